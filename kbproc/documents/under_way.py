"""The large files that are being read, and how far each is.

Owns: which of them is told of, and whether there is anything new to tell.
Refuses to know: what reads them, and who is told.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kbproc.sources.parse.progress import Progress


class UnderWay:
    """Files are read by several threads; one thread asks for `news`."""

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._messages: dict[object, str] = {}  # in the order in which files began to report
        self._last: str | None = None

    @contextlib.contextmanager
    def reading(self, name: str) -> Iterator[Callable[[Progress], None]]:
        """Yields what is to be told how far the file is."""
        key = object()

        def tell(progress: Progress) -> None:
            with self._changing:
                self._messages[key] = f"{name}: {progress.in_words()}"

        try:
            yield tell
        finally:
            with self._changing:
                self._messages.pop(key, None)

    def news(self) -> str | None:
        """A message about the file that began first, unless it is the one of before."""
        with self._changing:
            message = next(iter(self._messages.values()), None)
        if message == self._last:
            return None
        self._last = message
        return message
