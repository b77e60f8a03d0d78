"""Keeps the documents of one watched folder in step with its files, in a thread of its own.

Each pass reads only files that differ from the last time. It looks at every name and its times; if
notifications name the changes, and these are edits of known files, it looks at those files alone.
So whatever may change which files are read still has the whole folder walked. A file is read once
it stays the same for a moment, because it may be half-written. The documents are written by the
same ingest as doc.ingest; so a process that dies in a pass loses nothing, and the next one goes on
with what differs.
"""

from __future__ import annotations

import logging
import math
import os
import stat
import threading
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from msgspec import UNSET
from msgspec.structs import replace

from kbproc.base import changes
from kbproc.base.changes import Identity, Notifications
from kbproc.base.errors import KbprocError
from kbproc.base.params import WriteParams
from kbproc.base.paths import printable
from kbproc.base.wording import plural
from kbproc.base.workers import Backoff, Worker
from kbproc.engine.projections.catalog.rows import WatchRow
from kbproc.engine.sources import gitignore, skipped, walk
from kbproc.engine.store.decision import Decision, DecisionState, WriteRequest
from kbproc.engine.store.pipeline import LongWrite
from kbproc.engine.store.store import Store
from kbproc.knowledge.documents import ingest
from kbproc.knowledge.documents.content import Intake
from kbproc.knowledge.documents.ingest import FileOutcome, FoundFiles, IngestResult
from kbproc.knowledge.watching.watch import NotApproved, State, WatchProgress, work_of

ACTOR, METHOD = "file", "doc.ingest"  # changes of files are recorded under these names

SETTLE_S = 0.2  # a file is read once it is the same after as long as this
MOST_UNSETTLED_S = 10.0  # and at the latest after this, because a log file is never at rest
POLL_S = 2.0  # without notifications, and for a folder that is not there
REST = 0.25  # between two passes, as a share of the time of a pass
POLL_REST = 20.0  # the same without notifications
MOST_RETRY_S = 60.0
# After looks at single files the whole folder is walked within as long as this, because some
# changes come without a notification: those of hidden files, and those beyond the system's queue.
WALK_S = 60.0
_MOST_EDITS = 1000  # a walk takes no longer than so many looks, and the queue may have overflowed
_JOIN_S = 10.0
_logger = logging.getLogger(__name__)


class Stamp(NamedTuple):
    """A file's times, size and identity, which differ once it is written, replaced or renamed."""

    modified: int
    changed: int
    size: int
    identity: Identity


class Before(NamedTuple):
    """The folder as a pass found it, and the number of its documents then."""

    top: Identity
    document_count: int


class WatchedFolder:
    """One watched folder, from `start` to `close`."""

    def __init__(
        self,
        store: Store,
        intake: Intake,
        row: WatchRow,
        runtime: Path | None,
        approved: Callable[[], Identity],
    ) -> None:
        """`approved`: see watch.approved_folder."""
        self.row = row
        self.progress = WatchProgress(state="starting", warnings=[])
        self._store = store
        self._intake = intake
        self._approved = approved
        self._work = work_of(row, runtime)
        self._path = Path(row.path)
        self._guard = threading.Lock()
        self._is_walk_due = True
        self._changed_paths: set[str] = set()
        self._walk_at = math.inf
        self._read: dict[Path, Stamp] = {}  # the files whose documents are in step
        self._listing: FoundFiles | None = None  # the result of the last walk
        self._unsettled: dict[Path, float] = {}  # when each was first found to change
        self._found_failures: dict[str, str] = {}
        self._has_caught_up = False
        self._held: frozenset[int] = frozenset()  # documents whose removal waits for approval
        self._raised = Backoff(2.0, MOST_RETRY_S)  # passes that raised an error
        self._unread = Backoff(2.0, MOST_RETRY_S)  # passes that left files unread
        self._warning_lines: list[str] = []
        self._retry_s: float | None = None
        self._poll_s: float | None = None
        self._polling_reason: str | None = None
        self._notifications: Notifications | None = None
        if not row.poll:
            if changes.is_remote(self._path):
                self._polling_reason = (
                    "The folder's file system reports no changes of others, so it is looked at "
                    "every few seconds."
                )
            else:
                self._notifications = Notifications(self.look, self._poll_instead, concerns)
        self._worker = Worker("watch", self._step)

    def start(self) -> None:
        self._worker.start()

    def stop(self) -> None:
        """Ends the threads, without waiting; a pass that runs stops after its record."""
        self._worker.stop()
        if (notifications := self._notifications) is not None:
            notifications.close()

    def join(self, deadline: float) -> None:
        self._worker.join(max(0.0, deadline - time.monotonic()))
        if self._notifications is not None:
            self._notifications.join()

    @property
    def is_running(self) -> bool:
        """True from `start` until the threads have ended."""
        notifications = self._notifications
        return self._worker.is_running or (notifications is not None and notifications.is_running)

    def look(self, paths: Collection[str] | None = None) -> None:
        """Has the next pass begin. `paths`: all that changed; None if anything may have changed."""
        with self._guard:
            self._is_walk_due = self._is_walk_due or paths is None
            self._changed_paths.update(paths or ())
        self._worker.wake()

    # ------------------------------------------------------------------ the thread

    def _step(self, is_woken: bool) -> float | None:
        """Runs a pass; returns the seconds until the next one without a change."""
        self._retry_s = None
        begun = time.monotonic()
        self._guarded_pass()
        took = time.monotonic() - begun
        self._poll_s = None if self._notifications else max(POLL_S, POLL_REST * took)
        self._worker.pause(REST * took)
        return self._pause_s()

    def _poll_instead(self, why: str) -> None:
        """Looks at the folder from time to time, because the system can't report its changes."""
        self._polling_reason = (
            f"Changes in the folder can't be watched ({why}), so it is looked at every few seconds."
        )
        with self._guard:
            self._notifications = None
            self._is_walk_due = True
        self._worker.wake()

    def _pause_s(self) -> float | None:
        pauses = [pause for pause in (self._retry_s, self._poll_s) if pause is not None]
        if self.progress.state == "missing":
            pauses.append(POLL_S)
        if self._walk_at < math.inf:
            pauses.append(max(0.0, self._walk_at - time.monotonic()))
        return min(pauses, default=None)

    def _guarded_pass(self) -> None:
        """Runs a pass; after an error it is repeated later, at ever longer intervals."""
        try:
            self._pass()
            self._raised.reset()
        except NotApproved as reason:
            self._lose(str(reason))
        except KbprocError as error:
            if not self._worker.is_stopped:
                _logger.warning("the watched folder %s: %s", self.row.path, error.message)
                hint = f" {error.hint}" if error.hint else ""
                self._fail(f"{error.message}{hint}")
        except OSError as error:
            self._fail(f"{self.row.path} can't be read: {error.strerror}. It is tried again.")
        except Exception as error:
            _logger.exception("the watched folder %s could not be read", self.row.path)
            self._fail(f"The folder could not be read ({type(error).__name__}).")

    def _fail(self, warning: str) -> None:
        with self._guard:
            self._is_walk_due = True
        self._retry_s = self._raised.failed()
        self._show("failed", warnings=[warning])

    def _show(self, state: State, **members: object) -> None:
        before = self.progress
        self.progress = replace(before, state=state, **members)
        if self.progress != before:
            self._store.changed()

    # ------------------------------------------------------------------ one pass

    def _pass(self) -> None:
        """Compares the files with those that were read, and ingests what differs."""
        top = self._approved()
        listing, stamps = self._look()
        # A folder that vanishes takes its files with it, and the walk lists its path as a file.
        if self._approved() != top or self._path in listing.paths:
            self.look()
            return
        _require_listed(self._path, listing)
        changed = [path for path, stamp in stamps.items() if self._read.get(path) != stamp]
        lost = self._read.keys() - stamps.keys()
        failures = {item.path: str(item.error) for item in listing.failures}
        is_repeated = not self._has_caught_up or self._unread.failures
        if not (changed or lost or is_repeated or failures != self._found_failures):
            self._show_current(files=len(stamps))
            return
        state: State = "reading" if self._has_caught_up else "starting"
        self._show(state, files=len(stamps), pending=len(changed))
        settled = self._settled(changed, stamps)
        other_files = [path for path in stamps if path not in settled]
        reading = {path: listing.paths[path] for path in settled}
        document_count = self._document_count()
        unread: dict[str, str] = {}
        listing = listing._replace(paths=reading, other_files=other_files)
        result = self._ingest(listing, unread.__setitem__)
        # After an error the next pass does all of this again.
        self._after(
            result, stamps, len(changed) - len(settled), unread, Before(top, document_count)
        )
        self._read.update(settled)
        for path in lost.union(map(Path, unread)):
            self._read.pop(path, None)
        self._found_failures, self._has_caught_up = failures, True

    def _look(self) -> tuple[FoundFiles, dict[Path, Stamp]]:
        """Returns the folder's files and their stamps."""
        edited = self._edited_files()
        if self._listing is not None and edited is not None:
            self._walk_at = min(self._walk_at, time.monotonic() + WALK_S)
            return self._listing._replace(mended=[]), {**self._read, **stamps_of(edited)}
        self._walk_at = math.inf
        with self._store.reading() as snapshot:
            failed_before = snapshot.queries.failures(self.row.kb)
        listing = ingest.find_files(self._store, self._work, failed_before, self._check)
        if self._notifications is not None:
            self._notifications.watch(listing.folders)
        stamps = stamps_of(listing.paths)
        failures = [*listing.failures, *_unseen_files(listing.paths.keys() - stamps.keys())]
        self._listing = listing._replace(failures=failures)
        return self._listing, stamps

    def _edited_files(self) -> set[Path] | None:
        """Returns the files to look at, if all that changed are edits of files that were read
        before; None if the folder is to be walked.
        """
        with self._guard:
            is_walk_due, names = self._is_walk_due, self._changed_paths
            self._is_walk_due, self._changed_paths = False, set()
        is_late = time.monotonic() >= self._walk_at
        is_current = self._has_caught_up and self._notifications and not self._unread.failures
        if is_walk_due or is_late or not is_current:
            return None
        folders = frozenset(self._listing.folders if self._listing else ())
        paths = {Path(name) for name in names}.union(self._unsettled)
        edited = {path for path in paths if path in self._read and _is_regular(path)}
        others = paths - edited
        if len(paths) > _MOST_EDITS or any(self._may_decide(path, folders) for path in others):
            return None
        inodes = {self._read[path].identity for path in edited}
        return {path for path, stamp in self._read.items() if stamp.identity in inodes}

    def _may_decide(self, path: Path, folders: Collection[Path]) -> bool:
        """Returns False only for a path that came and went, as editors' temporary files do."""
        return (
            os.path.lexists(path)
            or path in self._read
            or path in folders
            or path.name == gitignore.NAME
            or skipped.is_of_project(path.name)
        )

    def _settled(self, changed: list[Path], stamps: dict[Path, Stamp]) -> dict[Path, Stamp]:
        """Returns the changed files that stay the same for a moment, with their stamps.

        A pass for the others follows.
        """
        if changed and not self._worker.pause(SETTLE_S):
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

    def _ingest(self, listing: FoundFiles, on_unread: Callable[[str, str], None]) -> IngestResult:
        def tell(current: int, total: int, message: str) -> None:
            self.progress = replace(self.progress, pending=total - current)

        return ingest.run(
            self._store,
            self._intake,
            self._work,
            self._write(),
            tell=tell,
            cancelled=lambda: self._worker.is_stopped,
            listing=listing,
            on_unread=on_unread,
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
        if self._worker.is_stopped:
            raise KbprocError("operation.cancelled", "The folder is no longer watched.")

    # ------------------------------------------------------------------ files that are gone

    def _lose(self, warning: str) -> None:
        """Shows why nothing is read. The documents stay, because the folder may come back."""
        if self._notifications is not None:
            self._notifications.watch([])
        self._read, self._has_caught_up, self._walk_at = {}, False, math.inf
        self._raised.reset()
        self._show("missing", pending=UNSET, files=UNSET, warnings=[warning])

    def _document_count(self) -> int:
        """Returns how many documents of the folder there are, if the removal of some needs that."""
        if self.row.prune != "auto":
            return 0
        with self._store.reading() as snapshot:
            return ingest.count_below(snapshot.queries, self._work)

    def _after(
        self,
        result: IngestResult,
        stamps: Collection[Path],
        pending: int,
        unread: dict[str, str],
        before: Before,
    ) -> None:
        without_file, held_back = result.gone, 0
        if self.row.prune == "auto" and without_file:
            removed, held_back = self._write().item(partial(self._prune, before))
            without_file -= removed
        elif self.row.prune == "ask":
            held_back = without_file
        self._try_again(bool(unread))
        is_held = self._intake.purged_files.check()
        purged = [] if is_held is None else [p for p in map(str, stamps) if is_held(p)]
        self._warning_lines = self._warnings(held_back, unread, purged)
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

    def _try_again(self, is_unread: bool) -> None:
        """Has the folder walked again, ever more rarely, while the system refuses to read a file;
        that ends without a change of the file.
        """
        if is_unread:
            self._walk_at = min(self._walk_at, time.monotonic() + self._unread.failed())
        else:
            self._unread.reset()

    def _prune(self, before: Before, here: DecisionState) -> Decision:
        """Removes the documents whose files are gone; none if these are more than half of those
        that there were before the pass.

        A removal that was held back stays so, because a person has not decided. Raises NotApproved,
        OSError.
        """
        rows = ingest.without_file(here, self._work)
        if self._approved() != before.top:  # another folder's files say nothing of these documents
            self.look()
            return Decision(events=[], data=(0, 0))
        ids = frozenset(row.id for row in rows)
        if len(rows) * 2 > before.document_count or not self._held.isdisjoint(ids):
            self._held = ids
            return Decision(events=[], data=(0, len(rows)))
        self._held = frozenset()
        decision = ingest.prune(here, replace(self._work, approved=ids))
        return replace(decision, data=(len(rows), 0))

    def _warnings(self, held_back: int, unread: dict[str, str], purged: list[str]) -> list[str]:
        warnings = [] if self._polling_reason is None else [self._polling_reason]
        if purged:
            warnings.append(ingest.purged_in_words(list(map(printable, map(Path, purged)))))
        if unread:
            warnings.append(
                f"{plural(len(unread), 'path')} of {self.row.path} can't be read and will be tried "
                f"again. The first: {next(iter(unread.values()))}"
            )
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


def concerns(name: str) -> bool:
    """Returns True if a change of the file of that name may change what is read."""
    return not name.startswith(".") or name == gitignore.NAME


def _require_listed(folder: Path, listing: FoundFiles) -> None:
    """Raises the error of a folder that could not be listed."""
    for item in listing.failures:
        if item.error is not None and item.path == str(folder):
            raise item.error


def _unseen_files(paths: Iterable[Path]) -> list[FileOutcome]:
    """Returns the outcomes of the files that the system refuses to look at; not of gone ones."""
    outcomes = []
    for path in sorted(paths):
        try:
            path.stat()
        except FileNotFoundError:
            continue
        except OSError as error:
            name = printable(path)
            outcomes.append(FileOutcome(path=name, action="failed", error=walk.unseen(path, error)))
    return outcomes


def _is_regular(path: Path) -> bool:
    """Returns True for a file that is no link."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


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
