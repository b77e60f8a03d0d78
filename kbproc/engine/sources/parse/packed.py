"""Documents that are archives: the limits that one keeps before it is opened, and its XML.

Office Open XML, OpenDocument and EPUB are zip files of XML parts. No entity of a part is resolved
and nothing is fetched.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from pathlib import PurePath
from typing import Any
from xml.parsers import expat

from kbproc.base.errors import KbprocError

MAX_UNPACKED = 256 << 20
MAX_RATIO = 200
MAX_FILES = 10_000
# Small archives may be packed tightly without doing harm.
RATIO_FROM = 8 << 20
_OLD_OFFICE = b"\xd0\xcf\x11\xe0"
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


def require_xml(archive: zipfile.ZipFile, part: str, name: str) -> None:
    """Checks, in constant memory, that a part is whole.

    Raises `operation.failed` where it is damaged. Readers that work without a tree may wait for
    ever for the end of an element that never comes.
    """
    parser = expat.ParserCreate()
    try:
        with archive.open(part) as stream:
            parser.ParseFile(stream)
    except (*BROKEN, expat.ExpatError) as error:
        message = f"{name} is damaged at {part}: {error}."
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


def local(element: Any) -> str:
    """Returns an element's name without its namespace; "" for a comment or an instruction."""
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""


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
