"""The store of this process: not open yet, open, or why it is not.

Owns: waiting until that is settled.
Refuses to know: who opens the store, and who uses it.
"""

from __future__ import annotations

import threading

from kbproc.base.errors import KbprocError
from kbproc.library.library import Library


class Opened:
    """The store, once it is open, or why it could not be."""

    def __init__(self) -> None:
        self.library: Library | None = None
        self.error: KbprocError | None = None
        self.settled = threading.Event()

    def get(self) -> Library:
        """Raises why there is no store."""
        if self.library is None:
            raise self.why_not()
        return self.library

    def why_not(self) -> KbprocError:
        return self.error or KbprocError("internal.error", "The store is not open.")
