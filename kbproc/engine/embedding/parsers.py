"""The processes that read documents, for as long as a store is open.

Owns: starting them when first needed, letting them go, and which documents are read on other
machines.
Refuses to know: formats, what they are told of the model, and who the other machines are.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from kbproc.base.errors import KbprocError
from kbproc.embedding.model import StoredModel

if TYPE_CHECKING:
    from kbproc.sources.parse.pool import ParserPool
    from kbproc.sources.parse.progress import Progress
    from kbproc.sources.parse.worker import Job, ParsedChunks

_OVERLAP = 0.15  # of what a chunk may hold
_PROCESSES = 2
# Bytes of a document that is worth its way to another machine and back, some 10 ms.
_WORTH = 32 << 10


class Others(Protocol):
    """Other machines that read documents."""

    def read(self, data: bytes, type: str, name: str, title: str | None) -> ParsedChunks | None:
        """What the processes here would read in it; None: it is to be read here."""


def pool_for(model: StoredModel) -> ParserPool:
    """Processes that cut texts into chunks which fit the model."""
    tokenizer = model.info.tokenizer_path if model.info else None
    return pool_of(tokenizer, model.max_tokens, workers=_PROCESSES)


def pool_of(tokenizer: str | None, tokens: int, *, workers: int) -> ParserPool:
    from kbproc.sources.parse.pool import ParserPool

    return ParserPool(
        workers=workers, tokenizer=tokenizer, max_tokens=tokens, overlap=round(tokens * _OVERLAP)
    )


class Parsers:
    """One pool of processes at a time; `start` makes it."""

    def __init__(self, start: Callable[[], ParserPool]) -> None:
        self._start = start
        self._starting = threading.Lock()
        self._places = threading.Semaphore(_PROCESSES)
        self.pool: ParserPool | None = None
        self.others: Others | None = None

    def get(self) -> ParserPool:
        with self._starting:
            if self.pool is None:
                self.pool = self._start()
            return self.pool

    def parse(
        self,
        data: bytes,
        type: str,
        name: str,
        title: str | None,
        tell: Callable[[Progress], None] | None = None,
    ) -> ParsedChunks:
        """See ParserPool.parse; where all processes are busy, others may do it."""
        is_idle = self._places.acquire(blocking=False)
        try:
            others = None if is_idle or len(data) < _WORTH else self.others
            found = None if others is None else others.read(data, type, name, title)
            return found if found is not None else self.get().parse(data, type, name, title, tell)
        finally:
            if is_idle:
                self._places.release()

    def parse_some(self, jobs: Sequence[Job]) -> list[ParsedChunks | KbprocError]:
        """See ParserPool.parse_some."""
        is_idle = self._places.acquire(blocking=False)
        try:
            return self.get().parse_some(jobs)
        finally:
            if is_idle:
                self._places.release()

    def retire(self) -> None:
        """What is being read is read to its end; the next who needs one starts it."""
        with self._starting:
            pool, self.pool = self.pool, None
        if pool is not None:
            threading.Thread(target=pool.retire, name="retire", daemon=True).start()

    def close(self) -> None:
        if self.pool is not None:
            self.pool.close()
