"""Decodes HTML pages in the encoding that browsers would choose.

The encoding comes from the byte order mark, `<meta>` or the XML declaration; a page that names an
encoding in which many of its bytes are not valid is read as any text.
"""

from __future__ import annotations

import codecs
import re

from kbproc.engine.sources.parse.damage import mend
from kbproc.engine.sources.parse.text import Decoded, decode

_PRESCAN = 1 << 14  # bytes: a page names its encoding near its start
_IN_CONTENT = re.compile(r"charset\s*+=\s*+[\"']?\s*+([^\s\"';]+)", re.I)
_XML = re.compile(r"<\?xml\s[^<>]{0,200}?encoding\s*=\s*[\"']([^\"'<>]{1,40})[\"']")
# Label in a page → the encoding that browsers use for it (encoding.spec.whatwg.org, "names and
# labels").
LABELS = {
    "ascii": "cp1252",
    "us-ascii": "cp1252",
    "iso-8859-1": "cp1252",
    "iso8859-1": "cp1252",
    "latin1": "cp1252",
    "l1": "cp1252",
    "iso-8859-9": "cp1254",
    "latin5": "cp1254",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "x-gbk": "gb18030",
    "shift_jis": "cp932",
    "shift-jis": "cp932",
    "sjis": "cp932",
    "x-sjis": "cp932",
    "euc-kr": "cp949",
    "ks_c_5601-1987": "cp949",
    "big5": "big5hkscs",
    "big5-hkscs": "big5hkscs",
    "tis-620": "cp874",
    "iso-8859-11": "cp874",
    "windows-874": "cp874",
    "iso-8859-8-i": "iso8859-8",
    "x-mac-cyrillic": "mac_cyrillic",
    "x-mac-roman": "mac_roman",
    "x-cp1252": "cp1252",
    "x-euc-jp": "euc_jp",
}
# Labels of wide encodings mean UTF-8, because a page in a wide one can't be read up to its label.
_IN_PAGES = LABELS | dict.fromkeys(("utf-16", "utf-16le", "utf-16be", "unicode"), "utf-8")
_SINGLE_BYTE = re.compile(r"cp(?:125\d|866|874)|iso8859-\d+|koi8-[rtu]|mac-(?:roman|cyrillic)")
_MULTIBYTE = frozenset(
    {"utf-8", "gb18030", "cp932", "cp949", "big5hkscs", "euc_jp", "iso2022_jp", "iso2022_kr"}
)


def decode_page(data: bytes, name: str) -> Decoded:
    """Decodes a page in the encoding that its BOM or the page itself names, else as any text.

    A page that is valid UTF-8 beyond ASCII is UTF-8, whatever single-byte encoding it names.
    Raises `input.unsupported_type` for bytes that are not text.
    """
    if data.startswith((codecs.BOM_UTF8, b"\xff\xfe", b"\xfe\xff")):
        return decode(data, name)
    encoding = _declared(data, name)
    if encoding is None:
        return decode(data, name)
    if encoding not in _MULTIBYTE or encoding == "utf-8":
        as_utf8 = _utf8(data, is_declared=encoding == "utf-8")
        if as_utf8:
            return as_utf8
    try:
        return Decoded(data.decode(encoding), encoding)
    except ValueError:
        return decode(data, name) if encoding == "utf-8" else _nearly(data, encoding, name)


def _declared(data: bytes, name: str) -> str | None:
    """Returns Python's name of the encoding that the page names, if pages can be in it."""
    from selectolax.lexbor import LexborHTMLParser

    head = data[:_PRESCAN].decode("latin-1")
    labels = []
    if "charset" in head.lower():
        # The HTML parser is used, because it tells a tag from a comment, a script or an attribute.
        for meta in LexborHTMLParser(head).css("meta"):
            attributes = meta.attributes
            labels.append(attributes.get("charset"))
            if (attributes.get("http-equiv") or "").strip().lower() == "content-type":
                in_content = _IN_CONTENT.search(attributes.get("content") or "")
                labels.append(in_content[1] if in_content else None)
    declaration = _XML.match(head)
    if declaration:
        is_xml = name.lower().endswith((".xhtml", ".xml"))
        labels.insert(0 if is_xml else len(labels), declaration[1])
    return next((encoding for label in labels if label and (encoding := _encoding(label))), None)


def _encoding(label: str) -> str | None:
    label = label.strip().lower()
    try:
        encoding = codecs.lookup(_IN_PAGES.get(label, label)).name
    except (LookupError, ValueError):
        return None
    return encoding if encoding in _MULTIBYTE or _SINGLE_BYTE.fullmatch(encoding) else None


def _utf8(data: bytes, *, is_declared: bool) -> Decoded | None:
    """Decodes `data` as UTF-8 if it is valid; if the page declares it, with a few bad bytes too."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text, bad = mend(data)
        beyond_ascii = len(text) - len(text.encode("ascii", "ignore"))
        is_utf8 = is_declared and beyond_ascii >= 2 * bad
        return Decoded(text, "utf-8", bad) if is_utf8 else None
    return None if text.isascii() and not is_declared else Decoded(text, "utf-8")


def _nearly(data: bytes, encoding: str, name: str) -> Decoded:
    """Decodes `data` in the declared encoding if only few bytes are invalid, else as any text."""
    try:
        return Decoded(data.decode("utf-8"), "utf-8")
    except UnicodeDecodeError:
        text = data.decode(encoding, "replace")
    replaced = text.count("\ufffd")
    beyond_ascii = len(text) - len(text.encode("ascii", "ignore"))
    return Decoded(text, encoding, replaced) if beyond_ascii > 10 * replaced else decode(data, name)
