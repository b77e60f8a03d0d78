"""Keeps the documents of one watched folder in step with its files, in a thread of its own.

Each pass looks at every name and its times, and reads only files that differ from the last time. A
file is read once it stays the same for a moment, because it may be half-written. The documents are
written by the same ingest as doc.ingest; so a process that dies in a pass loses nothing, and the
next one goes on with what differs.
"""

from __future__ import annotations

import logging
import stat
import threading
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from msgspec import UNSET
from msgspec.structs import replace

from kbproc.base import changes
from kbproc.base.errors import KbprocError
from kbproc.base.params import WriteParams
from kbproc.base.wording import plural
from kbproc.engine.projections.catalog.rows import WatchRow
from kbproc.engine.store.decision import Decision, DecisionState, WriteRequest
from kbproc.engine.store.pipeline import LongWrite
from kbproc.engine.store.store import Store
from kbproc.knowledge.documents import ingest
from kbproc.knowledge.documents.content import Intake
from kbproc.knowledge.documents.ingest import FoundFiles, IngestResult
from kbproc.knowledge.watching.notifications import Identity, Notifications, identity
from kbproc.knowledge.watching.watch import State, WatchProgress, work_of

ACTOR, METHOD = "file", "doc.ingest"  # changes of files are recorded under these names

SETTLE_S = 0.2  # a file is read once it is the same after as long as this
MOST_UNSETTLED_S = 10.0  # and at the latest after this, because a log file is never at rest
POLL_S = 2.0  # without notifications, and for a folder that is not there
REST = 0.25  # between two passes, as a share of the time of a pass
POLL_REST = 20.0  # the same without notifications
MOST_RETRY_S = 60.0
_JOIN_S = 10.0
_logger = logging.getLogger(__name__)


class Stamp(NamedTuple):
    """A file's times, size and identity, which differ once it is written, replaced or renamed."""

    modified: int
    changed: int
    size: int
    identity: Identity


class WatchedFolder:
    """One watched folder, from `start` to `close`."""

    def __init__(self, store: Store, intake: Intake, row: WatchRow, runtime: Path | None) -> None:
        self.row = row
        self.progress = WatchProgress(state="starting", warnings=[])
        self._store = store
        self._intake = intake
        self._work = work_of(row, runtime)
        self._path = Path(row.path)
        self._changed = threading.Condition()
        self._is_due = True
        self._closed = False
        self._read: dict[Path, Stamp] = {}  # the files whose documents are in step
        self._unsettled: dict[Path, float] = {}  # when each was first found to change
        self._found_failures: dict[str, str] = {}
        self._has_caught_up = False
        self._held: frozenset[int] = frozenset()  # documents whose removal waits for approval
        self._failures = 0  # passes in a row that raised an error
        self._warning_lines: list[str] = []
        self._retry_s: float | None = None
        self._poll_s: float | None = None
        self._polling_reason: str | None = None
        self._notifications: Notifications | None = None
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends the threads, without waiting; a pass that runs stops after its record."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            notifications = self._notifications
        if notifications is not None:
            notifications.close()

    def join(self, deadline: float) -> None:
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join(max(0.0, deadline - time.monotonic()))
        if self._notifications is not None:
            self._notifications.join()

    def look(self) -> None:
        """Has the next pass begin."""
        with self._changed:
            self._is_due = True
            self._changed.notify_all()

    # ------------------------------------------------------------------ the thread

    def _run(self) -> None:
        self._begin_notifications()
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_due or self._closed, self._pause_s())
                if self._closed:
                    return
                self._is_due, self._retry_s = False, None
            begun = time.monotonic()
            self._guarded_pass()
            took = time.monotonic() - begun
            self._poll_s = None if self._notifications else max(POLL_S, POLL_REST * took)
            self._rest(REST * took)

    def _begin_notifications(self) -> None:
        if self.row.poll:
            self._polling_reason = None
        elif changes.is_remote(self._path):
            self._polling_reason = (
                "The folder's file system reports no changes of others, so it is looked at every "
                "few seconds."
            )
        else:
            with self._changed:
                if not self._closed:
                    self._notifications = Notifications(self.look, self._poll_instead)

    def _poll_instead(self, why: str) -> None:
        """Looks at the folder from time to time, because the system can't report its changes."""
        self._polling_reason = (
            f"Changes in the folder can't be watched ({why}), so it is looked at every few seconds."
        )
        with self._changed:
            self._notifications = None
            self._is_due = True
            self._changed.notify_all()

    def _pause_s(self) -> float | None:
        pauses = [pause for pause in (self._retry_s, self._poll_s) if pause is not None]
        if self.progress.state == "missing":
            pauses.append(POLL_S)
        return min(pauses, default=None)

    def _rest(self, seconds: float) -> bool:
        """Waits; returns False if the folder is no longer watched."""
        with self._changed:
            return not self._changed.wait_for(lambda: self._closed, seconds)

    def _guarded_pass(self) -> None:
        """Runs a pass; after an error it is repeated later, at ever longer intervals."""
        try:
            self._pass()
            self._failures = 0
        except KbprocError as error:
            if not self._closed:
                _logger.warning("the watched folder %s: %s", self.row.path, error.message)
                hint = f" {error.hint}" if error.hint else ""
                self._fail(f"{error.message}{hint}")
        except Exception as error:
            _logger.exception("the watched folder %s could not be read", self.row.path)
            self._fail(f"The folder could not be read ({type(error).__name__}).")

    def _fail(self, warning: str) -> None:
        self._failures += 1
        self._retry_s = min(MOST_RETRY_S, 2.0**self._failures)
        self._show("failed", warnings=[warning])

    def _show(self, state: State, **members: object) -> None:
        before = self.progress
        self.progress = replace(before, state=state, **members)
        if self.progress != before:
            self._store.changed()

    # ------------------------------------------------------------------ one pass

    def _pass(self) -> None:
        """Compares the files with those that were read, and ingests what differs."""
        top = identity(self._path)
        if top is None or not self._path.is_dir():
            self._lose()
            return
        listing, stamps = self._look()
        if identity(self._path) != top:  # the folder vanished with all of its files
            self.look()
            return
        changed = [path for path, stamp in stamps.items() if self._read.get(path) != stamp]
        lost = self._read.keys() - stamps.keys()
        failures = {item.path: str(item.error) for item in listing.failures}
        is_new = not self._has_caught_up or failures != self._found_failures
        if not (changed or lost or is_new):
            self._show_current(files=len(stamps))
            return
        state: State = "reading" if self._has_caught_up else "starting"
        self._show(state, files=len(stamps), pending=len(changed))
        settled = self._settled(changed, stamps)
        other_files = [path for path in stamps if path not in settled]
        reading = {path: listing.paths[path] for path in settled}
        result = self._ingest(listing._replace(paths=reading, other_files=other_files))
        # After an error the next pass does all of this again.
        self._after(result, stamps, len(changed) - len(settled))
        self._read.update(settled)
        for path in lost:
            del self._read[path]
        self._found_failures, self._has_caught_up = failures, True

    def _look(self) -> tuple[FoundFiles, dict[Path, Stamp]]:
        with self._store.reading() as snapshot:
            failed_before = snapshot.queries.failures(self.row.kb)
        listing = ingest.find_files(self._store, self._work, failed_before, self._check)
        if self._notifications is not None:
            self._notifications.watch(listing.folders)
        return listing, stamps_of(listing.paths)

    def _settled(self, changed: list[Path], stamps: dict[Path, Stamp]) -> dict[Path, Stamp]:
        """Returns the changed files that stay the same for a moment, with their stamps.

        A pass for the others follows.
        """
        if changed and not self._rest(SETTLE_S):
            raise KbprocError("operation.cancelled", "The folder is no longer watched.")
        now, moment = stamps_of(changed), time.monotonic()
        self._unsettled = {
            path: self._unsettled.get(path, moment)
            for path in changed
            if now.get(path) != stamps[path]
        }
        overdue = {p for p, since in self._unsettled.items() if moment - since > MOST_UNSETTLED_S}
        for path in overdue:
            del self._unsettled[path]  # because the next change waits as long again
        if self._unsettled:
            self._retry_s = SETTLE_S
        return {path: stamp for path, stamp in now.items() if path not in self._unsettled}

    def _ingest(self, listing: FoundFiles) -> IngestResult:
        def tell(current: int, total: int, message: str) -> None:
            self.progress = replace(self.progress, pending=total - current)

        return ingest.run(
            self._store,
            self._intake,
            self._work,
            self._write(),
            tell=tell,
            cancelled=lambda: self._closed,
            listing=listing,
        )

    def _write(self) -> LongWrite:
        request = WriteRequest(
            method=METHOD,
            actor=ACTOR,
            params=WriteParams(),
            destructive=False,
            now=self._store.host.now(),
            origin=self.row.origin,
        )
        return LongWrite(self._store, request)

    def _check(self) -> None:
        if self._closed:
            raise KbprocError("operation.cancelled", "The folder is no longer watched.")

    # ------------------------------------------------------------------ files that are gone

    def _lose(self) -> None:
        """Warns that the folder is not there. Its documents stay, because it may be unmounted."""
        if self._notifications is not None:
            self._notifications.watch([])
        self._read, self._has_caught_up = {}, False
        warning = f"{self.row.path} is not there; its documents stay as they are."
        self._show("missing", pending=UNSET, files=UNSET, warnings=[warning])

    def _after(self, result: IngestResult, stamps: Collection[Path], pending: int) -> None:
        without_file, held_back = result.gone, 0
        if self.row.prune == "auto" and without_file:
            removed, held_back = self._write().item(self._prune)
            without_file -= removed
        elif self.row.prune == "ask":
            held_back = without_file
        self._warning_lines = self._warnings(held_back)
        self._show_current(
            files=len(stamps),
            pending=pending,
            without_file=without_file,
            held_back=held_back,
            failed=self._failed_count(stamps),
        )

    def _failed_count(self, present: Collection[Path]) -> int:
        """Returns how many of the present files could not be read the last time."""
        with self._store.reading() as snapshot:
            return sum(Path(path) in present for path in snapshot.queries.failures(self.row.kb))

    def _prune(self, here: DecisionState) -> Decision:
        """Removes the documents whose files are gone; none if these are more than half.

        A removal that was held back stays so, because a person has not decided.
        """
        rows = ingest.without_file(here, self._work)
        ids = frozenset(row.id for row in rows)
        total = ingest.count_below(here, self._work)
        if len(rows) * 2 > total or not self._held.isdisjoint(ids):
            self._held = ids
            return Decision(events=[], data=(0, len(rows)))
        self._held = frozenset()
        decision = ingest.prune(here, replace(self._work, approved=ids))
        return replace(decision, data=(len(rows), 0))

    def _warnings(self, held_back: int) -> list[str]:
        warnings = [] if self._polling_reason is None else [self._polling_reason]
        if held_back:
            documents = plural(held_back, "document")
            why = "more than half of them" if self.row.prune == "auto" else "as you have asked"
            warnings.append(
                f"{documents} of {self.row.path} came from files that are gone, and none is "
                f"removed ({why}). To remove them: kbproc add {self.row.path} --kb {self.row.kb} "
                "--prune"
            )
        return warnings

    def _show_current(self, **members: object) -> None:
        state: State = "current" if not members.get("pending") else "reading"
        shared = {"synced_at": self._store.host.now(), "warnings": self._warning_lines}
        self._show(state, **{"pending": 0, **shared, **members})


def stamps_of(paths: Iterable[Path]) -> dict[Path, Stamp]:
    """Returns the stamps of the files that are there."""
    stamps = {}
    for path in paths:
        with suppress(OSError):
            status = path.stat()
            if stat.S_ISREG(status.st_mode):
                stamps[path] = Stamp(
                    status.st_mtime_ns,
                    status.st_ctime_ns,
                    status.st_size,
                    (status.st_dev, status.st_ino),
                )
    return stamps
