"""The processes that read documents, for as long as a store is open.

Owns: starting them when first needed, and letting them go.
Refuses to know: formats, and what they are told of the model.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from kbproc.embedding.model import StoredModel

if TYPE_CHECKING:
    from kbproc.sources.parse.pool import ParserPool

_OVERLAP = 0.15  # of what a chunk may hold


def pool_for(model: StoredModel) -> ParserPool:
    """Processes that cut texts into chunks which fit the model."""
    from kbproc.sources.parse.pool import ParserPool

    tokens = model.max_tokens
    return ParserPool(
        tokenizer=model.tokenizer_path, max_tokens=tokens, overlap=round(tokens * _OVERLAP)
    )


class Parsers:
    """One pool of processes at a time; `start` makes it."""

    def __init__(self, start: Callable[[], ParserPool]) -> None:
        self._start = start
        self._starting = threading.Lock()
        self.pool: ParserPool | None = None

    def get(self) -> ParserPool:
        with self._starting:
            if self.pool is None:
                self.pool = self._start()
            return self.pool

    def retire(self) -> None:
        """What is being read is read to its end; the next who needs one starts it."""
        with self._starting:
            pool, self.pool = self.pool, None
        if pool is not None:
            threading.Thread(target=pool.retire, name="retire", daemon=True).start()

    def close(self) -> None:
        if self.pool is not None:
            self.pool.close()
