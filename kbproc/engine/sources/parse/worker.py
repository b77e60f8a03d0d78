"""Runs the process that reads hostile documents: bytes come in, chunks go out, nothing else.

pool.py runs it as `python -m kbproc.engine.sources.parse.worker`. It sends a Setup and then lists
of Jobs on stdin. For each list, the worker writes one frame of ParseAnswers to stdout, and before
it Progress for the jobs that ask for it. The worker puts limits on itself.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import BinaryIO, TypeVar

import msgspec

from kbproc.base.errors import KbprocError
from kbproc.base.frames import frame, read_frame
from kbproc.base.paths import WITHIN
from kbproc.base.pipes import claim
from kbproc.base.sandbox import end_with, limit, limit_processor
from kbproc.base.text.secrets import redactions
from kbproc.base.values import packed_decoder
from kbproc.engine.events.document import ChunkText, ParsedFacts, parsed_facts_of
from kbproc.engine.events.origin import Origin
from kbproc.engine.sources.blobs import digest
from kbproc.engine.sources.chunk import chunk, count_words, token_counter
from kbproc.engine.sources.parse.blocks import Parsed, Part, Scalar, clean_title
from kbproc.engine.sources.parse.formats import (
    NO_OPTIONS,
    TAIL_BYTES,
    ReadOptions,
    SecretSourceError,
    detect,
    parse,
)
from kbproc.engine.sources.parse.ocr import OCR_SECONDS
from kbproc.engine.sources.parse.progress import Progress, Report, Unit, no_report
from kbproc.engine.sources.parse.unread import counted, total
from kbproc.engine.sources.word_counts import TokenCounter

OUT_OF_MEMORY = 12
REPORTS_A_SECOND = 4
# A document of this many bytes may take `timeout_s`, and a larger one longer in proportion: 60 s
# are 20 s for each MB. A MB of numbers in one line takes 7 s, and two documents are read at a time.
BYTES_IN_TIME = 3_000_000
_PACKED_WEIGHT = 8
# Limits for the files within one source; those beyond them are counted, and not read.
MAX_PARTS = 2_000
MAX_PARTS_BYTES = 128 << 20
MAX_DEPTH = 4
# Share of the time for a source after which no further file within it is read.
_PARTS_TIME = 0.7
_T = TypeVar("_T")


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """The first frame that a worker gets.

    `tokenizer` is the path of a tokenizer.json; with None, tokens are estimated. `timeout_s` is
    the limit for a document of at most BYTES_IN_TIME. `parent` is the id of the pool's process.
    """

    tokenizer: str | None
    max_tokens: int
    overlap: int
    memory_bytes: int
    timeout_s: float
    parent: int

    def seconds_for(self, size: int) -> float:
        """Returns the seconds that documents of `size` bytes may take."""
        return self.timeout_s * max(1, size / BYTES_IN_TIME)

    def seconds_of(self, jobs: Sequence[ParserJob]) -> float:
        """Returns the seconds that these documents may take together."""
        recognising = max((OCR_SECONDS for job in jobs if job.recognises), default=0)
        return self.seconds_for(sum(job.weight for job in jobs)) + recognising


class ParserJob(msgspec.Struct, frozen=True, kw_only=True):
    """A document to be read; with `reports`, the worker sends Progress before the answer."""

    data: bytes
    type: str
    name: str
    title: str | None
    reports: bool = False
    options: ReadOptions = NO_OPTIONS

    @property
    def weight(self) -> int:
        """Returns the bytes that count for the time; an archive's are packed."""
        return len(self.data) * (_PACKED_WEIGHT if self.type == "archive" else 1)

    @property
    def recognises(self) -> bool:
        """Returns True if text recognition may be needed, which takes seconds for a page."""
        return bool(self.options.ocr) and self.type in {"pdf", "picture", "mail", "archive"}


class ParsedChunks(ParsedFacts, kw_only=True, frozen=False):  # type: ignore[misc]
    """A parsed and chunked document; `title` falls back to the file's name.

    `parts`: the files within the source, and those within them, if the job asked for them.
    `source`, `origin`, `messages`, `derived_from`: see Parsed.
    """

    title: str
    chunks: list[ChunkText]
    tags: list[str]
    metadata: dict[str, Scalar]
    unread: dict[str, int] = {}
    parts: list[ParsedPart] = []
    source: bytes | None = None
    origin: Origin | None = None
    messages: list[str] = []
    derived_from: list[str] = []


class ParsedPart(msgspec.Struct, kw_only=True):
    """A file within a source: its path there, and what was read of it, or why it was not.

    `is_known`: it was read before, with the same bytes, and nothing else of it is here.
    """

    path: str
    data: bytes
    type: str
    is_known: bool = False
    parsed: ParsedChunks | None = None
    failure: ParseFailure | None = None


class ParseFailure(msgspec.Struct, frozen=True, kw_only=True):
    """A KbprocError for the parent process; `last` is True if this worker ends after it."""

    type: str
    message: str
    hint: str
    valid_values: list[str] | None = None
    last: bool = False


class ParseAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one job: either `parsed` or `failure`."""

    parsed: ParsedChunks | None = None
    failure: ParseFailure | None = None

    @property
    def is_last(self) -> bool:
        return self.failure is not None and self.failure.last


class ParseAnswers(msgspec.Struct, frozen=True, kw_only=True, tag="answers"):
    """An answer for each job; fewer if the last answer `is_last`."""

    answers: list[ParseAnswer]


decode_answer = packed_decoder(ParseAnswer).decode
decode_frame = packed_decoder(ParseAnswers | Progress).decode  # type: ignore[arg-type]
_decode_setup = packed_decoder(Setup).decode
_decode_jobs = packed_decoder(list[ParserJob]).decode


def main() -> int:
    """Serves until stdin ends; returns the exit status."""
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
        answers: list[ParseAnswer] = []
        for job in jobs:
            limit_processor(setup.seconds_of([job]))
            report = ProgressReporter(sink).report if job.reports else no_report
            answers.append(_answer(job, setup, count, report))
            if answers[-1].is_last:
                break
        sink.write(frame(ParseAnswers(answers=answers)))
        sink.flush()
        if answers[-1].is_last:
            return OUT_OF_MEMORY
    return 0


class ProgressReporter:
    """Writes frames of Progress, at most REPORTS_A_SECOND of them."""

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
    body = read_frame(source)
    return None if body is None else decode(body)


def lazy_counter(tokenizer: str | None) -> TokenCounter:
    """Returns a counter that loads its tokenizer on first use, because some take 300 MB."""
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


def _failure_of(error: KbprocError) -> ParseFailure:
    return ParseFailure(
        type=error.type, message=error.message, hint=error.hint, valid_values=error.valid_values
    )


def _answer(job: ParserJob, setup: Setup, count: TokenCounter, report: Report) -> ParseAnswer:
    try:
        return ParseAnswer(parsed=read(job, setup, count, report))
    except KbprocError as error:
        failure = _failure_of(error)
    except MemoryError:
        # The last answer, because the remaining memory is fragmented.
        failure = msgspec.structs.replace(_out_of_memory(job.name, setup), last=True)
    return ParseAnswer(failure=failure)


def _out_of_memory(name: str, setup: Setup) -> ParseFailure:
    return ParseFailure(
        type="operation.failed",
        message=f"{name} needed more than {size(setup.memory_bytes)} of memory to be read.",
        hint="Split the file, or convert it to a simpler format.",
    )


def read(
    job: ParserJob, setup: Setup, count: TokenCounter, report: Report = no_report
) -> ParsedChunks:
    """Parses and chunks one document. Raises the errors of `formats.parse`."""
    parsed = parse(job.data, job.type, job.name, report, job.options)
    chunks = chunked(parsed, job.name, job.title, setup, count, report)
    if parsed.parts:
        parts = _PartsReader(job.options, setup, count, setup.seconds_of([job]))
        parts.read(chunks, parsed.parts, job.type)
        if parts.has_secrets and parsed.source is None:
            raise SecretSourceError(job.name, "a file in it holds secrets")
        chunks.parts = parts.parts
    return chunks


class _PartsReader:
    """Reads the files within a source, and those within them, as far as the limits allow.

    `has_secrets`: one of them held secrets, so that the bytes of the source do.
    """

    def __init__(
        self, options: ReadOptions, setup: Setup, count: TokenCounter, seconds: float
    ) -> None:
        self.parts: list[ParsedPart] = []
        self.has_secrets = False
        self._options, self._setup, self._count = options, setup, count
        self._room = MAX_PARTS_BYTES
        self._end = time.monotonic() + _PARTS_TIME * seconds

    def read(
        self, source: ParsedChunks, parts: list[Part], type: str, path: str = "", depth: int = 1
    ) -> None:
        """Adds the parts of a source, and counts in `source` those that are not read."""
        omitted = 0
        for part in parts:
            part_type = detect(part.name, part.data[:4096], self._options, part.data[-TAIL_BYTES:])
            self._room -= len(part.data)
            if (
                not self._options.parts
                or part_type is None
                or not part.data.strip()
                or self._room < 0
                or len(self.parts) >= _MAX_OF_TYPE.get(type, MAX_PARTS)
                or depth > MAX_DEPTH
                or time.monotonic() > self._end
            ):
                omitted += 1
            else:
                self._read_part(part, part_type, f"{path}{part.name}", depth)
        kind = _PARTS.get(type, "attachments")
        source.unread = counted(total([source.unread, {kind: omitted}]))

    def _read_part(self, part: Part, type: str, path: str, depth: int) -> None:
        before = self._options.digests.get(path)
        if before is not None and before == digest(part.data):
            self.parts.append(ParsedPart(path=path, data=b"", type=type, is_known=True))
            return
        read_part = ParsedPart(path=path, data=part.data, type=type)
        self.parts.append(read_part)
        name = PurePath(part.name).name
        try:
            parsed = parse(part.data, type, name, no_report, self._options)
            self.has_secrets |= bool(redactions(parsed.unread))
            read_part.parsed = chunked(parsed, name, None, self._setup, self._count)
        except KbprocError as error:
            self.has_secrets |= isinstance(error, SecretSourceError)
            read_part.failure = _failure_of(error)
        except MemoryError:
            read_part.failure = _out_of_memory(name, self._setup)
        else:
            self.read(read_part.parsed, parsed.parts, type, f"{path}{WITHIN}", depth + 1)


# Type of a source → the kind of unread content that its files are; of mail, they are attachments.
_PARTS = {"archive": "embedded_files", "conversation": "conversations"}
# An export holds the conversations of years.
_MAX_OF_TYPE = {"conversation": 20_000}


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
        unread=parsed.unread,
        source=parsed.source,
        origin=parsed.origin,
        messages=parsed.messages,
        derived_from=parsed.derived_from,
        **parsed_facts_of(parsed),
    )


def size(bytes: int) -> str:
    """Returns a size in words: 2147483648 → "2 GiB"."""
    for unit, shift in (("GiB", 30), ("MiB", 20)):
        if bytes >= 1 << shift:
            return f"{bytes / (1 << shift):.3g} {unit}"
    return f"{bytes} bytes"


if __name__ == "__main__":
    raise SystemExit(main())
