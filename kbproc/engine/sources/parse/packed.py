"""Documents that are archives: the limits that one keeps before it is opened, and its XML.

Office Open XML, OpenDocument and EPUB are zip files of XML parts. No entity of a part is resolved
and nothing is fetched.
"""

from __future__ import annotations

import html
import io
import re
import zipfile
import zlib
from functools import lru_cache
from pathlib import PurePath
from typing import Any

from kbproc.base.errors import KbprocError

MAX_UNPACKED = 256 << 20
MAX_RATIO = 200
MAX_FILES = 10_000
# Small archives may be packed tightly without doing harm.
RATIO_FROM = 8 << 20
_OLD_OFFICE = b"\xd0\xcf\x11\xe0"
_ODD_XML = (b"<!--", b"<![CDATA[", b"<!DOCTYPE")
_ENTRY = re.compile(rb"""(?<![\w:.-])([\w:.-]++)\s*+=\s*+(?:"([^"]*)"|'([^']*)')""")
BROKEN = (
    *(zipfile.BadZipFile, zlib.error, KeyError, EOFError, OSError),
    *(NotImplementedError, RuntimeError, ValueError),
)


def opened(data: bytes, name: str, kind: str) -> zipfile.ZipFile:
    """Returns the archive. `kind` names the format in errors where the file's suffix does not.

    Raises `input.too_large` for a zip bomb, `operation.failed` for an archive that is damaged,
    encrypted or of an older format.
    """
    kind = PurePath(name).suffix[1:].upper() or kind
    if data.startswith(_OLD_OFFICE):
        message = (
            f"{name} is encrypted or of an older format: save it as {kind} without a password."
        )
        raise KbprocError("operation.failed", message)
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
    except BROKEN as error:
        message = f"{name} is damaged: it is not a whole {kind} archive ({error})."
        raise KbprocError("operation.failed", message) from error
    files = archive.infolist()
    unpacked = sum(file.file_size for file in files)
    ratio = unpacked / max(1, len(data))
    if unpacked > MAX_UNPACKED or len(files) > MAX_FILES:
        message = f"{name} would unpack to {unpacked >> 20} MiB in {len(files)} files"
        raise KbprocError("input.too_large", f"{message}: more than a document needs.")
    if unpacked > RATIO_FROM and ratio > MAX_RATIO:
        message = f"{name} would unpack to {ratio:.0f} times its size: this looks like a zip bomb."
        raise KbprocError("input.too_large", message)
    return archive


def xml(archive: zipfile.ZipFile, part: str, name: str) -> Any:
    """Returns the root element of a part. Raises `operation.failed` where it is damaged."""
    try:
        return parsed_xml(archive.read(part))
    except BROKEN as error:
        reason = "it has no such part" if isinstance(error, KeyError) else str(error)
        message = f"{name} is damaged at {part}: {reason}."
        raise KbprocError("operation.failed", message) from error


def optional_xml(archive: zipfile.ZipFile, part: str) -> Any:
    """Returns the root element of a part, or None where it is missing or damaged."""
    try:
        return parsed_xml(archive.read(part))
    except BROKEN:
        return None


def parsed_xml(data: bytes) -> Any:
    """Returns the root element. Raises ValueError for what is no XML."""
    from lxml import etree

    parser = etree.XMLParser(
        resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False
    )
    try:
        return etree.fromstring(data, parser)
    except etree.XMLSyntaxError as error:
        raise ValueError(str(error)) from error


def plain_xml(data: bytes) -> bytes:
    """Returns XML in UTF-8 without comments and CDATA; what can't be parsed as it is."""
    head = data[:200].lower()
    is_utf8 = not head.startswith((b"\xff\xfe", b"\xfe\xff")) and (
        b"encoding" not in head or b"utf-8" in head
    )
    if is_utf8 and not any(mark in data for mark in _ODD_XML):
        return data
    from lxml import etree

    try:
        root = parsed_xml(data)
    except ValueError:
        return data
    etree.strip_tags(root, etree.Comment)
    return bytes(etree.tostring(root, encoding="utf-8"))


def entries_of(tag: bytes) -> dict[bytes, bytes]:
    """Returns the attributes of a tag, without the prefixes of their names."""
    return {
        name.rpartition(b":")[2]: double or single for name, double, single in _ENTRY.findall(tag)
    }


def unescaped(data: bytes) -> str:
    """Returns the text of some XML in UTF-8 without elements."""
    text = data.decode("utf-8", "replace")
    return html.unescape(text) if "&" in text else text


def local(element: Any) -> str:
    """Returns an element's name without its namespace; "" for a comment or an instruction."""
    tag = element.tag
    return _local(tag) if isinstance(tag, str) else ""


@lru_cache(maxsize=4096)
def _local(tag: str) -> str:
    return tag.rpartition("}")[2]


def attribute(element: Any, name: str) -> str | None:
    """Returns the value of an attribute by its name alone, in whichever namespace it stands."""
    for key, value in element.attrib.items():
        if key.rpartition("}")[2] == name:
            return str(value)
    return None


def children(element: Any, *names: str) -> list[Any]:
    """Returns the children of these names, in order."""
    return [child for child in element if local(child) in names]


def first(element: Any, name: str) -> Any:
    """Returns the first descendant of that name, or None."""
    return next((each for each in element.iter() if local(each) == name), None)
