"""A file of portable lines: what store.export writes and store.import reads.

Owns: reading the file with each line checked, and what may come after what.
Refuses to know: the lines' shapes (lines.py), and stores: moving/outgoing.py makes the lines,
and moving/incoming/ uses them.

One JSON object a line: a header; the knowledge bases by slug; the agents by slug; the
documents by id; the notes by agent and slug; the sessions; an end that counts them, with the sha256
of all bytes before it, so that a file that was cut or damaged is found.

Version 1 knew of no entries, agents and notes, version 2 of no vectors, version 3 of no sessions. A
file is of the first version that knows of all that it holds, so that earlier versions of kbproc can
read it.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import math
import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec
from msgspec import Struct

from kbproc.base import paths
from kbproc.base.errors import KbprocError, is_lasting
from kbproc.base.values import decoder
from kbproc.base.wording import plural
from kbproc.moving.portable.lines import (
    Agent,
    Document,
    End,
    Header,
    Kb,
    Line,
    Note,
    Session,
    line_decoder,
    normalised,
)

VERSION, VERSIONS = 4, (1, 2, 3, 4)
MAX_LINE_BYTES = 256 << 20
_FIELD = "$.params.path"


class _Versioned(Struct, frozen=True, tag_field="type", tag="kbproc.export"):
    version: int


_decode_version = decoder(_Versioned).decode


class NumberedLine(NamedTuple):
    """A line, its number from 1, and the file's bytes up to its end."""

    number: int
    line: Line
    offset: int


def open_file(path: Path, *, within: Path | None = None) -> BinaryIO:
    """A regular file that lies within that folder, to be read.

    Raises input.unsupported_type, path.outside_root, store.io.
    """
    try:
        return os.fdopen(paths.open_file(path, within=within), "rb")
    except OSError as error:
        if error.errno == errno.EINVAL:
            raise _no_export(f"{path.name} is no regular file") from None
        said = f"{path} can't be read: {error.strerror}."
        raise KbprocError("store.io", said, lasting=is_lasting(error)) from error


def read(file: BinaryIO) -> Iterator[NumberedLine]:
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
        yield NumberedLine(number, line, offset)
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
                "input.too_large",
                f"Line {number} has more than {MAX_LINE_BYTES >> 20} MiB.",
                field=_FIELD,
                detail={"line": number},
            )
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
        version = _decode_version(data).version
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise _no_export("Its first line is not the header of an export") from None
    if version not in VERSIONS:
        raise KbprocError(
            "store.incompatible",
            f"The file is an export of version {version}; this kbproc reads up to {VERSION}.",
            hint="A later kbproc has written it: install that one.",
            field=_FIELD,
        )
    line = _decode(1, data)
    if not isinstance(line, Header):
        raise _no_export("Its first line is not the header of an export")
    return line


def _no_export(why: str) -> KbprocError:
    return KbprocError(
        "input.unsupported_type",
        f"{why}.",
        field=_FIELD,
        hint="Name a file that store.export has written.",
    )


def _decode(number: int, data: bytes) -> Line:
    try:
        line: Line = line_decoder.decode(data)
        return normalised(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise bad_line(number, str(error)) from None
    except KbprocError as error:
        raise bad_line(number, error.message.removesuffix(".")) from None


class _Order:
    """Which lines may come after which, and that all links between them lead somewhere."""

    def __init__(self) -> None:
        self.ended = False
        self._dim: int | None = None
        self._kbs: dict[str, None] = {}
        self._agents: dict[str, None] = {}
        self._last_id = 0
        self._last_note = ("", "")
        self._sessions: set[str] = set()
        self._documents = self._notes = 0
        self._entries: dict[int, str] = {}
        self._links: dict[int, tuple[int, int]] = {}  # entry → its successor, and the line

    def check(self, number: int, line: Line, sha256: str) -> None:
        if self.ended:
            raise bad_line(number, "it comes after the end")
        match line:
            case Header() if number > 1:
                raise bad_line(number, "it is a second header")
            case Header():
                self._dim = line.vectors.dim if line.vectors is not None else None
            case Kb():
                self._kb(number, line)
            case Agent():
                self._agent(number, line)
            case Document():
                self._document(number, line)
            case Note():
                self._note(number, line)
            case Session():
                if line.key in self._sessions:
                    raise bad_line(number, "it is a session that came before")
                self._sessions.add(line.key)
            case End():
                self._end(number, line, sha256)

    @property
    def _late(self) -> bool:
        """Whether what comes after all documents has come."""
        return bool(self._notes or self._sessions)

    def _kb(self, number: int, line: Kb) -> None:
        if line.slug in self._kbs or self._agents or self._documents or self._late:
            raise bad_line(number, f"the knowledge base {line.slug} is out of order")
        self._kbs[line.slug] = None

    def _agent(self, number: int, line: Agent) -> None:
        if line.slug in self._agents or self._documents or self._late:
            raise bad_line(number, f"the agent {line.slug} is out of order")
        self._agents[line.slug] = None

    def _note(self, number: int, line: Note) -> None:
        if line.agent not in self._agents:
            raise bad_line(number, f"no line before it names the agent {line.agent}")
        if (line.agent, line.slug) <= self._last_note or self._sessions:
            raise bad_line(number, f"the note {line.agent}/{line.slug} is out of order")
        self._last_note = line.agent, line.slug
        self._notes += 1

    def _document(self, number: int, line: Document) -> None:
        if line.kb not in self._kbs:
            raise bad_line(number, f"no line before it names the knowledge base {line.kb}")
        if line.id <= self._last_id:
            raise bad_line(number, f"document {line.id} comes after {self._last_id}")
        if self._late:
            raise bad_line(number, f"document {line.id} is out of order")
        if line.vectors is not None:
            self._check_vectors(number, line, line.vectors)
        self._last_id = line.id
        self._documents += 1
        if line.entry is not None:
            self._entries[line.id] = line.kb
            if line.entry.superseded_by is not None:
                self._links[line.id] = line.entry.superseded_by, number

    def _check_vectors(self, number: int, line: Document, vectors: Sequence[bytes | None]) -> None:
        if self._dim is None:
            raise bad_line(number, "it has vectors, but the header names no model of theirs")
        if len(vectors) != len(line.chunks):
            counted = plural(len(vectors), "vector"), plural(len(line.chunks), "chunk")
            raise bad_line(number, f"it has {counted[0]} for {counted[1]}")
        for vector in vectors:
            if vector is not None and not _is_vector(vector, self._dim):
                raise bad_line(number, f"one of its vectors is not {self._dim} numbers")

    def _end(self, number: int, line: End, sha256: str) -> None:
        for told, came, what in (
            (line.documents, self._documents, "document"),
            (line.agents, len(self._agents), "agent"),
            (line.notes, self._notes, "note"),
            (line.sessions, len(self._sessions), "session"),
        ):
            if told != came:
                counted = plural(came, what)
                raise bad_line(number, f"it counts {told}, but {counted} came before")
        if line.sha256 not in {None, sha256}:
            raise bad_line(number, "its sha256 is not that of the lines before: one was changed")
        self._check_links()
        self.ended = True

    def _check_links(self) -> None:
        """Every successor is an entry of the same knowledge base, and no chain a circle."""
        done: set[int] = set()
        for id, (by, number) in self._links.items():
            if by not in self._entries or self._entries[by] != self._entries[id]:
                raise bad_line(number, f"entry {by}, which supersedes {id}, is not in its kb")
            at, path = id, set[int]()
            while at in self._links and at not in done:
                if at in path:
                    raise bad_line(number, f"entry {id} would come to supersede itself")
                path.add(at)
                at = self._links[at][0]
            done |= path


def _is_vector(data: bytes, dim: int) -> bool:
    """Whether these are so many finite 16-bit floats: no sum of finite ones overflows a double."""
    return len(data) == 2 * dim and math.isfinite(sum(struct.unpack(f"<{dim}e", data)))


def bad_line(number: int, why: str) -> KbprocError:
    return KbprocError(
        "input.invalid_params",
        f"Line {number}: {why}.",
        field=_FIELD,
        hint="Export again, or copy the file again.",
        detail={"line": number},
    )
