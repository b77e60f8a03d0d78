"""The append-only log: the truth that everything else is made from.

Owns: segments, records as bytes, seq, the hash chain, fsync, the torn tail.
Refuses to know: event types and what they mean; `events` and `result` pass
through as raw JSON.

A line is `{"seq","ts","actor","method","token","params_hash","result","salt",
"events","prev","hash"}`. `body` = blake2b-128(salt ‖ result ‖ events) and
`hash` = blake2b-128(prev ‖ envelope ‖ body): whoever erases the text later
keeps `body`, and the chain still verifies.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import msgspec

from kbproc.errors import KbprocError
from kbproc.files import sync_folder
from kbproc.words import plural

SEGMENT_BYTES = 64 << 20
GENESIS = "0" * 32
_BLOCK = 1 << 16


class Position(NamedTuple):
    """A place in the log: the last record's seq and hash."""

    seq: int
    hash: str


START = Position(0, GENESIS)


class Mark(NamedTuple):
    """What `rollback` needs to know."""

    size: int
    head: Position
    last_ts: str


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """A record before the log has numbered and chained it."""

    ts: str
    actor: str
    method: str
    salt: str
    events: msgspec.Raw
    token: str | None = None
    params_hash: str | None = None
    result: msgspec.Raw = msgspec.Raw(b"null")


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the log."""

    seq: int
    ts: str
    actor: str
    method: str
    token: str | None
    params_hash: str | None
    result: msgspec.Raw
    salt: str
    events: msgspec.Raw
    prev: str
    hash: str

    @property
    def position(self) -> Position:
        return Position(self.seq, self.hash)


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Record).decode


def _hash(prev: str, seq: int, draft: Draft | Record) -> str:
    body = blake2b(bytes.fromhex(draft.salt), digest_size=16)
    body.update(bytes(draft.result))
    body.update(bytes(draft.events))
    envelope = (seq, draft.ts, draft.actor, draft.method, draft.token, draft.params_hash)
    chained = blake2b(bytes.fromhex(prev), digest_size=16)
    chained.update(_encode(envelope))
    chained.update(body.digest())
    return chained.hexdigest()


def _seal(draft: Draft, prev: Position) -> Record:
    seq = prev.seq + 1
    fields = msgspec.structs.asdict(draft)
    return Record(seq=seq, prev=prev.hash, hash=_hash(prev.hash, seq, draft), **fields)


def _corrupt(segment: Path, message: str, **detail: object) -> KbprocError:
    return KbprocError(
        "store.corrupt",
        f"The log segment {segment.name} {message}.",
        detail={"segment": segment.name, **detail},
    )


def _refused(error: OSError) -> KbprocError:
    return KbprocError("store.io", f"The log could not be written: {error.strerror}.")


def _lines_from_end(path: Path) -> Iterator[bytes]:
    """The file's lines without their newline, last first, reading only as far as asked."""
    with path.open("rb") as file:
        position = file.seek(0, os.SEEK_END)
        rest = b""
        while position > 0:
            step = min(max(_BLOCK, len(rest)), position)
            position -= step
            file.seek(position)
            parts = (file.read(step) + rest).split(b"\n")
            rest = parts[0]
            yield from (line for line in reversed(parts[1:]) if line)
        if rest:
            yield rest


class Log:
    """The segments of one store. One thread appends; any number read."""

    def __init__(self, folder: Path, head: Position, last_ts: str) -> None:
        self.folder = folder
        self.head = head
        self.last_ts = last_ts
        self.failed: OSError | None = None
        self._fd = -1
        self._size = 0

    @classmethod
    def open(cls, folder: Path, known: Position = START) -> Log:
        """Opens the log, cuts off a torn last line and verifies the chain after `known`.

        `known` is what a view has applied; a log that does not reach it, or
        holds another record there, has lost acknowledged records.
        Raises store.corrupt, store.io.
        """
        if not folder.exists():
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            sync_folder(folder.parent)
        log = cls(folder, START, "")
        segments = log.segments()
        if not segments:
            if known.seq:
                raise KbprocError(
                    "store.corrupt",
                    f"The log is empty, yet the views hold {plural(known.seq, 'record')}.",
                    detail={"expected_seq": known.seq},
                )
            return log
        _cut_torn_tail(segments[-1], known)
        if segments[-1].stat().st_size == 0 and len(segments) > 1:
            segments.pop().unlink()
        log._verify_tail(known)
        return log

    def segments(self) -> list[Path]:
        return sorted(self.folder.glob("[0-9]*.ndjson"))

    def _verify_tail(self, known: Position) -> None:
        previous = START if known.seq == 0 else known
        at_known = known.seq == 0
        for record in self.read(max(known.seq - 1, 0)):
            if record.seq == known.seq:
                at_known = record.hash == known.hash
                if not at_known:
                    break
            self.last_ts = record.ts
            previous = record.position
        if not at_known:
            raise KbprocError(
                "store.corrupt",
                f"The log does not hold record {known.seq} as the views applied it: "
                "its end was cut off or replaced.",
                detail={"expected_seq": known.seq, "last_seq": self._last_seq()},
            )
        self.head = previous

    def _last_seq(self) -> int:
        """Of the last record on disk, whether it fits or not."""
        for segment in reversed(self.segments()):
            for line in _lines_from_end(segment):
                return _decode_line(segment, None, line).seq
        return 0

    # ------------------------------------------------------------------ reading

    def read(self, after_seq: int = 0) -> Iterator[Record]:
        """Records with seq > `after_seq`, in order, each checked against the one before.

        Raises store.corrupt with segment, line and seq.
        """
        segments = self.segments()
        first = 0
        for index, segment in enumerate(segments):
            if int(segment.stem) <= after_seq + 1:
                first = index
        previous: Position | None = START if after_seq == 0 else None
        for index, segment in enumerate(segments[first:], first):
            near_end = index == len(segments) - 1 and after_seq > 0
            lines = _tail_lines(segment, after_seq) if near_end else _numbered_lines(segment)
            for number, line in lines:
                record = _decode_line(segment, number, line)
                if record.seq <= after_seq:
                    continue
                _check(segment, number, record, previous)
                previous = record.position
                yield record

    def verify(self) -> int:
        """Checks every record up to `head`; returns how many. Raises store.corrupt.

        Beyond `head` a writer may be in the middle of a line.
        """
        head, seq = self.head.seq, 0
        for record in self.read() if head else ():
            seq = record.seq
            if seq >= head:
                break
        if seq < head:
            raise KbprocError(
                "store.corrupt", f"The log ends at seq {seq}, not at {head}.",
                detail={"expected_seq": head, "last_seq": seq},
            )  # fmt: skip
        return head

    # ------------------------------------------------------------------ writing

    def append(self, drafts: Sequence[Draft]) -> list[Record]:
        """Numbers, chains and writes `drafts`; durable only after `sync`.

        Raises store.io with nothing kept.
        """
        if self.failed is not None:
            raise _refused(self.failed)
        records: list[Record] = []
        head = self.head
        for draft in drafts:
            records.append(_seal(draft, head))
            head = records[-1].position
        data = b"".join(_encode(record) + b"\n" for record in records)
        start = self._size
        try:
            if self._fd < 0:
                self._open_segment()
                start = self._size
            view = memoryview(data)
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError as error:
            self._cut_to(start)
            raise _refused(error) from error
        self._size += len(data)
        self.head = head
        self.last_ts = records[-1].ts if records else self.last_ts
        return records

    def mark(self) -> Mark:
        """Where the log stands, for `rollback` of what was appended since and not synced.

        A full segment ends here and never later, so that one batch lies in one segment.
        """
        if self.failed is not None:
            raise _refused(self.failed)
        try:
            if self._fd < 0 or self._size >= SEGMENT_BYTES:
                self._open_segment()
        except OSError as error:
            raise _refused(error) from error
        return Mark(self._size, self.head, self.last_ts)

    def rollback(self, mark: Mark) -> None:
        """Takes back appended, unsynced records."""
        self._cut_to(mark.size)
        self.head, self.last_ts = mark.head, mark.last_ts

    def sync(self) -> None:
        """Makes everything appended durable. After a failure no write is taken again."""
        if self._fd < 0:
            return
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            self.failed = error
            raise _refused(error) from error

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _open_segment(self) -> None:
        segments = self.segments()
        if segments and segments[-1].stat().st_size < SEGMENT_BYTES:
            path = segments[-1]
        else:
            path = self.folder / f"{self.head.seq + 1:012d}.ndjson"
        self.close()
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._size = os.fstat(self._fd).st_size
        try:
            sync_folder(self.folder)
        except OSError:
            self.close()  # so that the next write tries again before it acknowledges anything
            raise

    def _cut_to(self, size: int) -> None:
        """Drops what a failed write left behind; if even that fails, no write is taken again."""
        if self._fd < 0:
            return
        try:
            os.ftruncate(self._fd, size)
            self._size = size
        except OSError as error:
            self.failed = error


def _cut_torn_tail(segment: Path, known: Position) -> None:
    """Cuts off an unfinished last line: it was never acknowledged.

    One that a view has applied was: then it is damage, and stays for a salvage.
    """
    size = segment.stat().st_size
    if not size:
        return
    with segment.open("rb+") as file:
        file.seek(size - 1)
        if file.read(1) == b"\n":
            return
        lines = _lines_from_end(segment)
        torn, whole = next(lines, b""), next(lines, None)
        last = _decode_line(segment, None, whole).seq if whole else int(segment.stem) - 1
        if last < known.seq:
            raise _corrupt(
                segment, f"is damaged after seq {last}", expected_seq=known.seq, last_seq=last
            )
        file.truncate(size - len(torn))
        os.fsync(file.fileno())


def _numbered_lines(segment: Path) -> Iterator[tuple[int, bytes]]:
    with segment.open("rb") as file:
        yield from enumerate(file, 1)


def _tail_lines(segment: Path, after_seq: int) -> Iterator[tuple[int | None, bytes]]:
    """The lines after `after_seq`, found from the file's end; their numbers are unknown."""
    found: list[bytes] = []
    for line in _lines_from_end(segment):
        found.append(line)
        if _decode_line(segment, None, line).seq <= after_seq + 1:
            break
    yield from ((None, line) for line in reversed(found))


def _decode_line(segment: Path, number: int | None, line: bytes) -> Record:
    try:
        return _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _corrupt(
            segment, f"holds a line that can't be read (line {number}): {error}", line=number
        ) from error


def _check(segment: Path, number: int | None, record: Record, previous: Position | None) -> None:
    where = {"line": number, "seq": record.seq}
    if previous is not None and record.seq != previous.seq + 1:
        raise _corrupt(segment, f"goes from seq {previous.seq} to {record.seq}", **where)
    if previous is not None and record.prev != previous.hash:
        raise _corrupt(segment, f"breaks the chain at seq {record.seq}", **where)
    try:
        right = _hash(record.prev, record.seq, record) == record.hash
    except ValueError:
        right = False
    if not right:
        raise _corrupt(segment, f"holds a damaged record at seq {record.seq}", **where)
