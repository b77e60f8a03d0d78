"""Documents as portable lines: what store.export writes and store.import reads.

Owns: the shape and the limits of every line, and reading a file with each checked.
Refuses to know: stores: lines are made in exporting.py, used in importing.py.

One JSON object a line: a header; the knowledge bases by slug; the documents by
id; an end that says how many documents there are, and the sha256 of all bytes
before it, so that a file that was cut or damaged is found.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, BinaryIO, NamedTuple

import msgspec
from msgspec import Meta, Struct

from kbproc.documents import instant
from kbproc.errors import KbprocError
from kbproc.model import (
    DocType,
    DocumentId,
    KbSlug,
    Scalar,
    Tags,
    Title,
    check_metadata,
    clean_name,
    clean_tags,
)
from kbproc.words import plural

VERSION = 1
MAX_LINE_BYTES = 256 << 20
_MOST = 2**31 - 1
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_FIELD = "$.params.path"

Count = Annotated[int, Meta(ge=0, le=_MOST)]
Size = Annotated[int, Meta(ge=0, le=2**53)]
Sha256 = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
Time = Annotated[str, Meta(max_length=40)]
Name = Annotated[str, Meta(max_length=4096)]


class _Part(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    pass


class _Line(_Part, kw_only=True, frozen=True, tag_field="type"):
    pass


class Header(_Line, frozen=True, tag="kbproc.export"):
    """First. `seq` is the position that was exported."""

    version: int
    seq: Size
    exported_at: Time
    store_format: int
    kbproc: Annotated[str, Meta(max_length=100)]


class _Versioned(Struct, frozen=True, tag_field="type", tag="kbproc.export"):
    version: int


class Kb(_Line, frozen=True, tag="kb"):
    slug: KbSlug
    name: Annotated[str, Meta(min_length=1, max_length=200)]
    description: Annotated[str, Meta(max_length=2000)] = ""


class Origin(_Part, frozen=True):
    """One of them, or none."""

    path: Name | None = None
    url: Name | None = None
    source_id: Annotated[str, Meta(min_length=1, max_length=500)] | None = None


class Chunk(_Part, frozen=True):
    text: Annotated[str, Meta(min_length=1)]
    page: Count | None = None
    section: Annotated[str, Meta(max_length=1000)] | None = None
    overlap: Count = 0


class Document(_Line, frozen=True, tag="document"):
    """`sha256` and `size_bytes` are the source's, whether it comes along or not."""

    id: DocumentId
    kb: KbSlug
    title: Title
    doc_type: DocType
    source: Origin
    tags: Tags
    metadata: Annotated[dict[str, Scalar], Meta(max_length=1000)]
    revision: Annotated[int, Meta(ge=1, le=_MOST)]
    created_at: Time
    updated_at: Time
    created_by: Annotated[str, Meta(max_length=1000)]
    parser: Count
    sha256: Sha256
    size_bytes: Size
    chunks: list[Chunk]
    pages: Count | None = None
    source_base64: bytes | None = None


class End(_Line, frozen=True, tag="end"):
    """Last. `sha256` is of all lines before it with their newlines; null in a stream."""

    documents: Size
    sha256: Sha256 | None


Line = Header | Kb | Document | End
encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(Line)


class Found(NamedTuple):
    """A line, its number from 1, and the file's bytes up to its end."""

    number: int
    line: Line
    offset: int


def open_file(path: Path) -> BinaryIO:
    """A regular file, to be read. Raises input.unsupported_type, store.io."""
    try:
        # A pipe that is opened to be waited for would hold up the import for ever.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise KbprocError("store.io", f"{path} can't be read: {error.strerror}.") from error
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise _no_export(f"{path.name} is no regular file")
    return os.fdopen(fd, "rb")


def read(file: BinaryIO) -> Iterator[Found]:
    """Every line in order, checked and normalised; its hash and end, too.

    Raises input.invalid_params naming the line, input.too_large,
    input.unsupported_type, store.incompatible.
    """
    digest, number, offset = hashlib.sha256(), 0, 0
    order = _Order()
    for number, data in enumerate(_raw_lines(file), 1):
        line = _header(data) if number == 1 else _decode(number, data)
        order.check(number, line, digest.hexdigest() if isinstance(line, End) else "")
        digest.update(data)
        offset += len(data)
        yield Found(number, line, offset)
    if not order.ended:
        raise bad_line(number + 1, "the end is missing: the file was cut")


def _raw_lines(file: BinaryIO) -> Iterator[bytes]:
    file.seek(0)
    for number in itertools.count(1):
        data = _next_line(file)
        if not data:
            return
        if len(data) > MAX_LINE_BYTES:
            raise KbprocError(
                "input.too_large", f"Line {number} has more than {MAX_LINE_BYTES >> 20} MiB.",
                field=_FIELD, detail={"line": number},
            )  # fmt: skip
        if not data.endswith(b"\n"):
            raise bad_line(number, "it is not whole: the file was cut")
        yield data


def _next_line(file: BinaryIO) -> bytes:
    try:
        return file.readline(MAX_LINE_BYTES + 1)
    except OSError as error:
        raise KbprocError("store.io", f"The file can't be read: {error.strerror}.") from error


def _header(data: bytes) -> Header:
    """A later version may have other members: so its number is looked at first."""
    try:
        version = msgspec.json.decode(data, type=_Versioned).version
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise _no_export("Its first line is not the header of an export") from None
    if version != VERSION:
        raise KbprocError(
            "store.incompatible",
            f"The file is an export of version {version}; this kbproc reads version {VERSION}.",
            hint="A later kbproc has written it: install that one.",
            field=_FIELD,
        )
    line = _decode(1, data)
    if not isinstance(line, Header):
        raise _no_export("Its first line is not the header of an export")
    return line


def _no_export(why: str) -> KbprocError:
    return KbprocError("input.unsupported_type", f"{why}.", field=_FIELD,
                       hint="Name a file that store.export has written.")  # fmt: skip


def _decode(number: int, data: bytes) -> Line:
    try:
        line: Line = _decoder.decode(data)
        return _normal(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise bad_line(number, str(error)) from None
    except KbprocError as error:
        raise bad_line(number, error.message.removesuffix(".")) from None


def _normal(line: Line) -> Line:
    match line:
        case Kb():
            clean_name(line.slug, field="slug")  # the pattern's $ lets a newline follow
            return msgspec.structs.replace(line, name=clean_name(line.name, field="name"))
        case Document():
            return _normal_document(line)
    return line


def _normal_document(line: Document) -> Document:
    """As it would have come in otherwise. Raises KbprocError that names the member."""
    check_metadata(line.metadata, field="metadata")
    _check_origin(line.source)
    for index, chunk in enumerate(line.chunks):
        where = f"chunks[{index}]"
        if _CONTROL.search(chunk.text):
            raise _wrong(f"{where}.text holds a control character")
        if chunk.section is not None:
            clean_name(chunk.section, field=f"{where}.section")
        if chunk.overlap > len(chunk.text):
            raise _wrong(f"{where}.overlap is longer than its text")
    source = line.source_base64
    if source is not None and hashlib.sha256(source).hexdigest() != line.sha256:
        raise _wrong("source_base64 is not what sha256 says")
    return msgspec.structs.replace(
        line,
        title=clean_name(line.title, field="title"),
        tags=clean_tags(line.tags, field="tags"),
        created_at=instant(line.created_at, field="created_at"),
    )


def _check_origin(source: Origin) -> None:
    """A path may hold whatever a file system takes for a name."""
    given = [name for name in ("path", "url", "source_id") if getattr(source, name) is not None]
    if len(given) > 1:
        raise _wrong(f"source has {' and '.join(given)}; it may have one")
    if source.path is not None and (not source.path.startswith("/") or "\0" in source.path):
        raise _wrong("source.path is no absolute path")
    for name in given:
        if name != "path":
            clean_name(getattr(source, name), field=f"source.{name}")


def _wrong(message: str) -> KbprocError:
    return KbprocError("input.invalid_params", f"{message}.")


class _Order:
    """What may come after what."""

    def __init__(self) -> None:
        self.ended = False
        self._kbs: dict[str, None] = {}
        self._last_id = 0
        self._documents = 0

    def check(self, number: int, line: Line, sha256: str) -> None:
        if self.ended:
            raise bad_line(number, "it comes after the end")
        match line:
            case Header() if number > 1:
                raise bad_line(number, "it is a second header")
            case Kb():
                self._kb(number, line)
            case Document():
                self._document(number, line)
            case End():
                self._end(number, line, sha256)

    def _kb(self, number: int, line: Kb) -> None:
        if line.slug in self._kbs or self._documents:
            raise bad_line(number, f"the knowledge base {line.slug} is out of order")
        self._kbs[line.slug] = None

    def _document(self, number: int, line: Document) -> None:
        if line.kb not in self._kbs:
            raise bad_line(number, f"no line before it names the knowledge base {line.kb}")
        if line.id <= self._last_id:
            raise bad_line(number, f"document {line.id} comes after {self._last_id}")
        self._last_id = line.id
        self._documents += 1

    def _end(self, number: int, line: End, sha256: str) -> None:
        if line.documents != self._documents:
            counted = plural(self._documents, "document")
            raise bad_line(number, f"it counts {line.documents}, but {counted} came before")
        if line.sha256 not in {None, sha256}:
            raise bad_line(number, "its sha256 is not that of the lines before: one was changed")
        self.ended = True


def bad_line(number: int, why: str) -> KbprocError:
    return KbprocError(
        "input.invalid_params", f"Line {number}: {why}.", field=_FIELD,
        hint="Export again, or copy the file again.",
        detail={"line": number},
    )  # fmt: skip
