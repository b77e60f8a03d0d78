"""Where a store is opened: its own folder, or an overlay of one that can't be written.

Owns: holding the lock from before the store is opened until after it is closed, and what must
be in order before anything of it is opened.
Refuses to know: what lies in the views and in the log.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from kbproc.base.errors import KbprocError
from kbproc.log.lease import Lease
from kbproc.sources import blobs
from kbproc.store import overlay
from kbproc.store.folder import keep_private
from kbproc.views import soundness


class Place:
    """A folder that this process holds. `folder` is `origin` or an overlay of it."""

    def __init__(self, folder: Path, origin: Path, lease: Lease) -> None:
        self.folder = folder
        self.origin = origin
        self.read_only = folder != origin
        self._lease = lease

    @classmethod
    def take(cls, origin: Path, pid: int) -> Place:
        """Raises store.locked, store.io."""
        folder, lease = overlay.take(origin, pid)
        return cls(folder, origin, lease)

    def prepare(self, mend: Callable[[Path], object] = lambda folder: None) -> None:
        """Fills the overlay, or removes what can't be used, after `mend`. Raises store.io."""
        try:
            if self.read_only:
                overlay.fill(self.folder, self.origin)
                return
            mend(self.folder)
            was_closed = soundness.were_closed(self.folder / "views")
            soundness.drop_damaged(self.folder / "views")
            if (self.folder / "views").is_dir():
                keep_private(self.folder / "views")
            if self._lease.was_abandoned or not was_closed:
                blobs.sweep(self.folder / "blobs")
        except OSError as error:
            raise KbprocError(
                "store.io", f"The store {self.origin} could not be opened: {error.strerror}."
            ) from error

    def check(self) -> None:
        """Raises store.io if the folder is no longer what was opened."""
        self._lease.check()

    def leave(self) -> None:
        """The overlay goes, the folder is free; who opens it next need not read it all again."""
        if self.read_only:
            overlay.remove(self.folder)
        else:
            with contextlib.suppress(OSError):
                soundness.look(self.folder / "views")
        self._lease.release()
