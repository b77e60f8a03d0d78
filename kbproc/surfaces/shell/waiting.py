"""Says how long the embedding of added passages takes, and how the person can leave it."""

from __future__ import annotations

import time
from collections.abc import Callable

from kbproc.base.wording import duration_in_words, pending_in_words
from kbproc.surfaces.shell.printing.formats import Output

_FIRST_SECONDS = 3.0  # until then the pace is unknown
_LONG_SECONDS = 15.0  # a shorter wait is not announced


class EmbeddingWait:
    """The wait of a command for its passages' vectors, from its first progress on."""

    def __init__(self, output: Output, now: Callable[[], float] = time.monotonic) -> None:
        self._output = output
        self._now = now
        self._began: tuple[float, int] | None = None  # the time, and the chunks that were done
        self._is_announced = False

    def progress(self, stage: str, current: int, total: int | None) -> None:
        """Shows the progress; a note says once what a long wait brings."""
        seconds = None if total is None else self._remaining_seconds(current, total)
        eta_ms = None if seconds is None else round(seconds * 1000)
        self._output.progress(stage, current, total, eta_ms=eta_ms)
        if seconds is None or total is None or self._is_announced:
            return
        self._is_announced = True
        if seconds >= _LONG_SECONDS:
            rest = pending_in_words(total - current, total)
            self._output.note(
                f"{rest} Embedding them takes about {duration_in_words(seconds)} more; Ctrl-C, or "
                "--no-wait, leaves it to later commands."
            )

    def _remaining_seconds(self, current: int, total: int) -> float | None:
        """Returns the rest at the pace so far; None while the pace is unknown."""
        if self._began is None:
            self._began = self._now(), current
        began, first = self._began
        seconds = self._now() - began
        if seconds < _FIRST_SECONDS or current <= first:
            return None
        return seconds / (current - first) * (total - current)
