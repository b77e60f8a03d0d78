"""Keeps the processes that parse documents while a store is open.

They start when they are first needed. While all of them are busy, other machines may parse a large
document.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from kbproc.base.errors import KbprocError
from kbproc.base.threads import start_thread
from kbproc.engine.embedding.model import StoredModel
from kbproc.engine.sources.parse.formats import HOLDERS

if TYPE_CHECKING:
    from kbproc.engine.sources.parse.pool import ParserPool
    from kbproc.engine.sources.parse.progress import Progress
    from kbproc.engine.sources.parse.worker import ParsedChunks, ParserJob

_OVERLAP = 0.15  # share of a chunk's tokens
PROCESSES = 2
# Smallest document that another machine parses: the way there and back takes some 10 ms.
LEAST_LENT_BYTES = 32 << 10


class OtherMachines(Protocol):
    """The other machines that parse documents."""

    def read(self, data: bytes, type: str, name: str, title: str | None) -> ParsedChunks | None:
        """Returns the chunks that a local process would return; None: parse the document here."""


def pool_for(model: StoredModel) -> ParserPool:
    """Returns processes that cut texts into chunks which fit the model."""
    tokenizer = model.info.tokenizer_path if model.info else None
    return pool_of(tokenizer, model.max_tokens, workers=PROCESSES)


def pool_of(tokenizer: str | None, tokens: int, *, workers: int) -> ParserPool:
    from kbproc.engine.sources.parse.pool import ParserPool

    return ParserPool(
        workers=workers, tokenizer=tokenizer, max_tokens=tokens, overlap=round(tokens * _OVERLAP)
    )


class Parsers:
    """One pool of processes at a time, made by `start`."""

    def __init__(self, start: Callable[[], ParserPool]) -> None:
        self._start = start
        self._starting = threading.Lock()
        self._places = threading.Semaphore(PROCESSES)
        self.pool: ParserPool | None = None
        self.others: OtherMachines | None = None

    def get(self) -> ParserPool:
        with self._starting:
            if self.pool is None:
                self.pool = self._start()
            return self.pool

    def parse(
        self, jobs: Sequence[ParserJob], tell: Callable[[Progress], None] | None = None
    ) -> list[ParsedChunks | KbprocError]:
        """Parses as ParserPool.parse does; other machines may help while all processes are busy."""
        is_idle = self._places.acquire(blocking=False)
        try:
            result = None if is_idle or len(jobs) > 1 else self._parsed_elsewhere(jobs[0])
            return self.get().parse(jobs, tell) if result is None else [result]
        finally:
            if is_idle:
                self._places.release()

    def _parsed_elsewhere(self, job: ParserJob) -> ParsedChunks | None:
        """Returns what another machine has parsed; None for a job to be done here.

        A source that may hold others, or pictures of text, is parsed here: a worker knows no
        options.
        """
        is_plain = job.type not in HOLDERS and not job.options.ocr and not job.options.redact
        others = self.others  # read once, because a thread that ends the sharing clears it
        if others is None or not is_plain or len(job.data) < LEAST_LENT_BYTES:
            return None
        return others.read(job.data, job.type, job.name, job.title)

    def retire(self) -> None:
        """Ends the pool after its documents in progress; the next `get` starts another pool."""
        with self._starting:
            pool, self.pool = self.pool, None
        if pool is not None:
            start_thread(pool.retire, "retire")

    def close(self) -> None:
        if self.pool is not None:
            self.pool.close()
