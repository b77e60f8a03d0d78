"""Finds the words of many chunks in a process of its own, ahead of their use.

Finding words takes most of the time that indexing takes, and Python uses one processor a process.
A few chunks are not worth the way to another process: their words are found in this one, when they
are asked for. So are those of chunks that the process has not begun by then, or could not do.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from kbproc.base.values import NOT_READABLE, packed_decoder
from kbproc.engine.projections.catalog.rows import IndexRow
from kbproc.engine.projections.fulltext.words import ChunkTexts, ChunkWords, words_of

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

    from kbproc.base.sandbox import Child

MANY = 400  # chunks for which a process is started: finding their words takes some 40 ms
FEW = 50  # chunks that are sent to a process that runs
SLICE = 200  # the most chunks that are sent at once
_MOST_AHEAD = 4_000  # chunks, with 1 to 2 kB of words each
_PATIENCE_S = 10.0  # for a slice, which takes some 20 ms
_decode_words = packed_decoder(list[ChunkWords]).decode
_logger = logging.getLogger(__name__)

FoundWords = Iterator[tuple[IndexRow, ChunkWords]]


class WordFinder:
    """The chunks whose words are to be found, in order. For one thread at a time.

    Words are found when `all` asks for them, unless the process has found them by then.
    """

    def __init__(self) -> None:
        self._slices: deque[_Slice] = deque()
        self._unsent: list[IndexRow] = []  # chunks after those of the slices
        self._process = _WordProcess()

    def add(self, rows: Iterable[IndexRow]) -> None:
        """Adds chunks at the end; once they are many, the process begins with them."""
        self._unsent += rows
        while len(self._unsent) >= (FEW if self._process.is_running else MANY):
            part, self._unsent = self._unsent[:SLICE], self._unsent[SLICE:]
            self._slices.append(_Slice(part, self._process.begin(part)))

    @property
    def is_full(self) -> bool:
        """Returns True if `all` is due before more is added, because the words take memory."""
        return sum(len(part.rows) for part in self._slices) >= _MOST_AHEAD

    def ready(self) -> FoundWords:
        """Yields, from the front, the chunks whose words the process has found."""
        while self._slices and self._slices[0].is_found:
            yield from self._slices.popleft().found()

    def all(self) -> FoundWords:
        """Yields all chunks.

        This thread finds words from the end until it meets the process, which goes on from the
        front.
        """
        if self._unsent:
            self._slices.append(_Slice(self._unsent, None))
            self._unsent = []
        for part in reversed(self._slices):
            if not part.find_here():
                break
        while self._slices:
            yield from self._slices.popleft().found()

    def clear(self) -> None:
        """Drops all chunks."""
        self._unsent = []
        while self._slices:
            self._slices.pop().cancel()

    def end_idle_process(self) -> None:
        """Ends the process, unless it has work; many chunks start it again."""
        if not self._slices:
            self._process.end()

    def close(self) -> None:
        """Drops all chunks and ends the process."""
        self.clear()
        self._process.end()


class _Slice:
    """Some chunks. `begun`: the words that the process finds; None if this process finds them."""

    def __init__(self, rows: Sequence[IndexRow], begun: Future[list[ChunkWords]] | None) -> None:
        self.rows = rows
        self._begun = begun
        self._words: list[ChunkWords] | None = None

    @property
    def is_found(self) -> bool:
        return self._begun is not None and self._begun.done()

    def cancel(self) -> bool:
        """Returns True if the process has not begun with the chunks and will not."""
        return self._begun is None or self._begun.cancel()

    def find_here(self) -> bool:
        """Finds the words in this process; returns False if the other one has begun to."""
        if self.cancel():
            self._words, self._begun = _found_here(self.rows), None
            return True
        return False

    def found(self) -> FoundWords:
        """Yields the chunks with their words, once they are found."""
        return zip(self.rows, self._words or self._result(), strict=True)

    def _result(self) -> list[ChunkWords]:
        if self._begun is not None:
            with contextlib.suppress(_NotFound):
                return self._begun.result()
        return _found_here(self.rows)


def _found_here(rows: Sequence[IndexRow]) -> list[ChunkWords]:
    return [words_of(_texts_of(row)) for row in rows]


def _texts_of(row: IndexRow) -> ChunkTexts:
    return ChunkTexts(row.title, row.section, row.text, row.path, row.url, row.aliases)


class _NotFound(Exception):
    """The other process could not find the words."""


class _WordProcess:
    """The process that finds words, and the thread that speaks to it.

    The process belongs to that thread, because Linux ends it with the thread that started it.
    """

    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None
        self._child: Child | None = None
        self._has_failed = False

    @property
    def is_running(self) -> bool:
        return self._thread is not None and not self._has_failed

    def begin(self, rows: Sequence[IndexRow]) -> Future[list[ChunkWords]] | None:
        """Queues the chunks; None if the process or a thread can't be had."""
        if self._has_failed:
            return None
        if self._thread is None:
            # Imported here, because a search that writes nothing needs none of these.
            from concurrent.futures import ThreadPoolExecutor

            self._thread = ThreadPoolExecutor(1, thread_name_prefix="words")
        try:
            return self._thread.submit(self._find, rows)
        except RuntimeError:  # the system starts no more threads
            self._has_failed = True
            return None

    def end(self) -> None:
        """Ends process and thread; chunks that it has begun with are not found."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.shutdown(wait=False, cancel_futures=True)
            self._kill()
            thread.shutdown(wait=True)
            self._kill()  # the thread may have started another in between
        self._has_failed = False

    def _kill(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.end()

    def _find(self, rows: Sequence[IndexRow]) -> list[ChunkWords]:
        """Returns the words that the process finds. Raises _NotFound."""
        from kbproc.base.frames import frame
        from kbproc.base.sandbox import patience_for

        if self._has_failed:
            raise _NotFound
        try:
            if self._child is None:
                self._child = _started()
            patience = patience_for(_PATIENCE_S)
            self._child.send(frame([_texts_of(row) for row in rows]), patience)
            words = _decode_words(self._child.receive_frame(patience))
            if len(words) != len(rows):
                raise ValueError(f"words of {len(words)} chunks for {len(rows)}")
            return words
        except (EOFError, OSError, ValueError, *NOT_READABLE) as error:
            self._has_failed = True
            self._kill()
            if self._thread is not None:  # not on the way out
                _logger.warning("words are found without a second process: %r", error)
            raise _NotFound from error


def _started() -> Child:
    from kbproc.base.sandbox import Child

    module = "kbproc.engine.projections.fulltext.worker"
    return Child(module, str(os.getpid()), environment={"MALLOC_ARENA_MAX": "2"})
