"""Word documents written by hand, for the tests: XML in an archive."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping

from tests.kit.zips import zipped

OFFICE = "http://schemas.openxmlformats.org"
STRICT = "http://purl.oclc.org/ooxml/wordprocessingml/main"
_SPACES = {
    "w": f"{OFFICE}/wordprocessingml/2006/main",
    "r": f"{OFFICE}/officeDocument/2006/relationships",
    "m": f"{OFFICE}/officeDocument/2006/math",
    "mc": f"{OFFICE}/markup-compatibility/2006",
    "wp": f"{OFFICE}/drawingml/2006/wordprocessingDrawing",
    "a": f"{OFFICE}/drawingml/2006/main",
    "c": f"{OFFICE}/drawingml/2006/chart",
    "wps": "http://schemas.microsoft.com/office/word/2010/wordprocessingShape",
    "v": "urn:schemas-microsoft-com:vml",
    "o": "urn:schemas-microsoft-com:office:office",
}


def part(name: str, content: str, *, word: str = _SPACES["w"]) -> str:
    """Returns a part whose root is an element of Word's namespace."""
    spaces = " ".join(f'xmlns:{key}="{uri}"' for key, uri in {**_SPACES, "w": word}.items())
    return f"<w:{name} {spaces}>{content}</w:{name}>"


def run(text: str, properties: str = "") -> str:
    return f'<w:r><w:rPr>{properties}</w:rPr><w:t xml:space="preserve">{text}</w:t></w:r>'


def paragraph(content: str, properties: str = "") -> str:
    return f"<w:p><w:pPr>{properties}</w:pPr>{content}</w:p>"


def docx(
    body: str, parts: Mapping[str, str] | None = None, *, word: str = _SPACES["w"], title: str = ""
) -> bytes:
    """Returns a document with this body; `parts`: XML by name, such as "footnotes", "header1"."""
    parts = parts or {}
    package = f"{OFFICE}/package/2006/relationships"
    of = f"{OFFICE}/officeDocument/2006/relationships"
    files = {
        "_rels/.rels": f'<Relationships xmlns="{package}"><Relationship Id="a" '
        f'Type="{of}/officeDocument" Target="word/document.xml"/></Relationships>',
        "word/document.xml": part("document", f"<w:body>{body}</w:body>", word=word),
        "word/_rels/document.xml.rels": f'<Relationships xmlns="{package}">'
        + "".join(
            f'<Relationship Id="{name}" Type="{of}/{name.rstrip("0123456789")}" '
            f'Target="{name}.xml"/>'
            for name in parts
        )
        + "</Relationships>",
        **{f"word/{name}.xml": content for name, content in parts.items()},
    }
    if title:
        files["docProps/core.xml"] = (
            f'<p xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>{title}</dc:title></p>'
        )
    return zipped(files, zipfile.ZIP_STORED)
