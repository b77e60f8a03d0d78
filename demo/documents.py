"""Makes the demo's PDF and DOCX: binary files are better made than kept."""

from __future__ import annotations

import zipfile
from pathlib import Path

PAGES = [
    "Coffee machine manual. Fill the tank with fresh water every morning.",
    "Descaling. When the red lamp blinks, dissolve one tablet of citric acid "
    "in a litre of water and run the rinse programme twice.",
]


def make_pdf(path: Path) -> None:
    """A PDF of two pages, written by hand: objects, table of offsets, trailer."""
    pages = [f"{4 + 2 * i} 0 R" for i in range(len(PAGES))]
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{' '.join(pages)}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for i, text in enumerate(PAGES):
        lines = " T* ".join(f"({line}) Tj" for line in _wrapped(text))
        stream = f"BT /F1 12 Tf 14 TL 72 720 Td {lines} ET"
        objects.append(
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] "
            f"/Resources << /Font << /F1 3 0 R >> >> /Contents {5 + 2 * i} 0 R >>"
        )
        objects.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
    objects.append("<< /Title (Coffee machine manual) >>")
    _write_pdf(path, objects)


def _wrapped(text: str, width: int = 70) -> list[str]:
    import textwrap

    return textwrap.wrap(text, width)


def _write_pdf(path: Path, objects: list[str]) -> None:
    out, offsets = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, 1):
        offsets.append(len(out))
        out += f"{number} 0 obj\n{body}\nendobj\n".encode("latin-1")
    table = "".join(f"{offset:010d} 00000 n \n" for offset in offsets)
    size = len(objects) + 1
    trailer = f"trailer\n<< /Size {size} /Root 1 0 R /Info {len(objects)} 0 R >>\n"
    tail = f"xref\n0 {size}\n0000000000 65535 f \n{table}{trailer}startxref\n{len(out)}\n%%EOF\n"
    path.write_bytes(out + tail.encode("latin-1"))


def make_docx(path: Path) -> None:
    """A Word document, written by hand: a zip archive of XML parts."""
    body = "".join(
        f'<w:p><w:pPr><w:pStyle w:val="{style}"/></w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>'
        for style, text in PARAGRAPHS
    )
    styles = "".join(
        f'<w:style w:type="paragraph" w:styleId="{style}"><w:name w:val="{name}"/></w:style>'
        for style, name in STYLES.items()
    )
    parts = {
        "[Content_Types].xml": f"<Types xmlns='{OPEN}/package/2006/content-types'>"
        "<Default Extension='rels' ContentType='application/vnd.openxmlformats-package."
        "relationships+xml'/><Default Extension='xml' ContentType='application/xml'/>"
        f"<Override PartName='/word/document.xml' ContentType='{WORD}.document.main+xml'/>"
        f"<Override PartName='/word/styles.xml' ContentType='{WORD}.styles+xml'/></Types>",
        "_rels/.rels": _relation("officeDocument", "word/document.xml"),
        "word/_rels/document.xml.rels": _relation("styles", "styles.xml"),
        "word/document.xml": f"<w:document xmlns:w='{OPEN}/wordprocessingml/2006/main'>"
        f"<w:body>{body}</w:body></w:document>",
        "word/styles.xml": f"<w:styles xmlns:w='{OPEN}/wordprocessingml/2006/main'>"
        f"{styles}</w:styles>",
    }
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, f"<?xml version='1.0' encoding='UTF-8'?>{content}")


OPEN = "http://schemas.openxmlformats.org"
WORD = "application/vnd.openxmlformats-officedocument.wordprocessingml"
STYLES = {"Title": "Title", "Heading1": "heading 1", "Normal": "Normal"}
PARAGRAPHS = [
    ("Title", "Onboarding"),
    ("Heading1", "First day"),
    ("Normal", "Fetch your laptop at the help desk and change the initial password."),
    ("Heading1", "First week"),
    ("Normal", "Meet your mentor, read the runbooks, and deploy something small."),
]


def _relation(kind: str, target: str) -> str:
    return (
        f"<Relationships xmlns='{OPEN}/package/2006/relationships'><Relationship Id='r1' "
        f"Type='{OPEN}/officeDocument/2006/relationships/{kind}' Target='{target}'/>"
        "</Relationships>"
    )
