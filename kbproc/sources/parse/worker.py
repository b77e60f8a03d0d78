"""The process that reads hostile documents: bytes come in, chunks go out, nothing else.

Owns: the frames, the limits it puts on itself, the loop. Run as
`python -m kbproc.sources.parse.worker` by pool.py, which sends a Setup and then lists of
Jobs on stdin; for each list one frame of Answers comes back on stdout, and before it Progress of
the jobs that ask for it.
Refuses to know: paths, the store, the user's files.
"""

from __future__ import annotations

import os
import struct
import threading
import time
from collections.abc import Callable
from pathlib import PurePath
from typing import BinaryIO, TypeVar

import msgspec

from kbproc.base.errors import KbprocError
from kbproc.base.pipes import claim
from kbproc.base.sandbox import end_with, limit, limit_processor
from kbproc.base.values import packed_decoder
from kbproc.sources.chunk import Chunk, TokenCounter, chunk, count_words, token_counter
from kbproc.sources.parse.blocks import Parsed, Scalar, clean_title
from kbproc.sources.parse.formats import parse
from kbproc.sources.parse.progress import Progress, Report, Unit, no_report

LENGTH = struct.Struct(">I")
OUT_OF_MEMORY = 12
REPORTS_A_SECOND = 4
# A document of so many bytes may take `timeout_s`, a larger one longer in proportion: 60 s are 20 s
# for each MB. A MB of numbers in one line takes 7 s, and two documents are read at a time.
BYTES_IN_TIME = 3_000_000
_T = TypeVar("_T")


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """The first frame. `tokenizer` is the path of a tokenizer.json; None estimates.

    `timeout_s` is what a document of at most BYTES_IN_TIME may take.
    """

    tokenizer: str | None
    max_tokens: int
    overlap: int
    memory_bytes: int
    timeout_s: float
    parent: int

    def seconds_for(self, size: int) -> float:
        """The time that documents of `size` bytes may take."""
        return self.timeout_s * max(1, size / BYTES_IN_TIME)


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """`reports`: Progress is to come before its answer."""

    data: bytes
    type: str
    name: str
    title: str | None
    reports: bool = False


class ParsedChunks(msgspec.Struct, kw_only=True):
    """A document ready for the log. `title` falls back to the file's name."""

    title: str
    chunks: list[Chunk]
    tags: list[str]
    metadata: dict[str, Scalar]
    pages: int | None
    unread: dict[str, int] = {}


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A KbprocError on its way to the parent; `last`: this worker ends with it."""

    type: str
    message: str
    hint: str
    valid_values: list[str] | None = None
    last: bool = False


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    parsed: ParsedChunks | None = None
    failure: Failure | None = None

    @property
    def is_last(self) -> bool:
        return self.failure is not None and self.failure.last


class Answers(msgspec.Struct, frozen=True, kw_only=True, tag="answers"):
    """One for each job, fewer if the last `is_last`."""

    answers: list[Answer]


decode_answer = packed_decoder(Answer).decode
decode_frame = packed_decoder(Answers | Progress).decode  # type: ignore[arg-type]
_decode_setup = packed_decoder(Setup).decode
_decode_jobs = packed_decoder(list[Job]).decode


def frame(message: object) -> bytearray:
    """A message with its length, four bytes, before it."""
    framed = bytearray(LENGTH.size)
    msgspec.msgpack.Encoder().encode_into(message, framed, LENGTH.size)
    LENGTH.pack_into(framed, 0, len(framed) - LENGTH.size)
    return framed


def main() -> int:
    """Serve until stdin ends. Returns the exit status."""
    reader, writer = claim()
    try:
        return _serve(os.fdopen(reader, "rb"), os.fdopen(writer, "wb"))
    except MemoryError:
        # A frame, not a document, was too large to hold.
        return OUT_OF_MEMORY


def _serve(source: BinaryIO, sink: BinaryIO) -> int:
    setup = _receive(source, _decode_setup)
    if setup is None:
        return 0
    end_with(setup.parent)
    limit(setup.memory_bytes)
    count = lazy_counter(setup.tokenizer)
    while jobs := _receive(source, _decode_jobs):
        answers: list[Answer] = []
        for job in jobs:
            limit_processor(setup.seconds_for(len(job.data)))
            report = _Reports(sink).report if job.reports else no_report
            answers.append(_answer(job, setup, count, report))
            if answers[-1].is_last:
                break
        sink.write(frame(Answers(answers=answers)))
        sink.flush()
        if answers[-1].is_last:
            return OUT_OF_MEMORY
    return 0


class _Reports:
    """Frames of Progress, at most REPORTS_A_SECOND of them."""

    def __init__(self, sink: BinaryIO) -> None:
        self._sink = sink
        self._last = time.monotonic()

    def report(self, unit: Unit, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self._last >= 1 / REPORTS_A_SECOND:
            self._last = now
            self._sink.write(frame(Progress(unit=unit, done=done, total=total)))
            self._sink.flush()


def _receive(source: BinaryIO, decode: Callable[[bytes], _T]) -> _T | None:
    head = source.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    size = LENGTH.unpack(head)[0]
    body = source.read(size)
    return decode(body) if len(body) == size else None


def lazy_counter(tokenizer: str | None) -> TokenCounter:
    """The tokenizer loads with the first document that needs it, once: some take 300 MB."""
    if tokenizer is None:
        return count_words
    loaded: list[TokenCounter] = []
    loading = threading.Lock()

    def count(text: str) -> int:
        if not loaded:
            with loading:
                if not loaded:
                    loaded.append(token_counter(tokenizer))
        return loaded[0](text)

    return count


def _answer(job: Job, setup: Setup, count: TokenCounter, report: Report) -> Answer:
    try:
        return Answer(parsed=read(job, setup, count, report))
    except KbprocError as error:
        failure = Failure(
            type=error.type,
            message=error.message,
            hint=error.hint,
            valid_values=error.valid_values,
        )
    except MemoryError:
        failure = Failure(
            type="operation.failed",
            message=f"{job.name} needed more than {size(setup.memory_bytes)} of memory to be read.",
            hint="Split the file, or convert it to a simpler format.",
            # What is left of its memory is in pieces.
            last=True,
        )
    return Answer(failure=failure)


def read(job: Job, setup: Setup, count: TokenCounter, report: Report = no_report) -> ParsedChunks:
    """Parse and chunk one document. Raises what `kbproc.sources.parse.formats.parse` raises."""
    parsed = parse(job.data, job.type, job.name, report)
    return chunked(parsed, job.name, job.title, setup, count, report)


def chunked(
    parsed: Parsed,
    name: str,
    title: str | None,
    setup: Setup,
    count: TokenCounter,
    report: Report = no_report,
) -> ParsedChunks:
    title = clean_title(title) or parsed.title or clean_title(PurePath(name).name)
    chunks = chunk(
        parsed.blocks,
        title=title,
        count=count,
        max_tokens=setup.max_tokens,
        overlap=setup.overlap,
        report=report,
    )
    return ParsedChunks(
        title=title or "untitled",
        chunks=chunks,
        tags=parsed.tags,
        metadata=parsed.metadata,
        pages=parsed.pages,
        unread=parsed.unread,
    )


def size(bytes: int) -> str:
    """2147483648 → "2 GiB"."""
    for unit, shift in (("GiB", 30), ("MiB", 20)):
        if bytes >= 1 << shift:
            return f"{bytes / (1 << shift):.3g} {unit}"
    return f"{bytes} bytes"


if __name__ == "__main__":
    raise SystemExit(main())
