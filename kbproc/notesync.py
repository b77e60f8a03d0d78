"""One agent's folder of notes against what the log says of it.

Owns: recording what was done to the files by hand, and that no text which a file holds
is lost by what kbproc does next.
Refuses to know: when this is done (notebooks.py), what an agent writes (notes.py), what
counts as a change (notediff.py), how files are read and replaced (notefolder.py, noteedit.py).

What the log says is read before the folder is, and looked at again in the lane: whatever
somebody else has written of a note meanwhile, that note is left to the next round.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from kbproc import events as ev
from kbproc import noteedit, notefolder, notehidden
from kbproc.commit import Here
from kbproc.errors import KbprocError
from kbproc.files import sync_folder
from kbproc.notediff import Action, Diff, Found, NoteChange, SkippedFile, Synced, compare, held_back
from kbproc.notefolder import Seen, Unavailable, digest
from kbproc.noterevision import content_of, note_written
from kbproc.revision import Content, Ids
from kbproc.words import plural

if TYPE_CHECKING:
    from kbproc.lane import Lane
    from kbproc.store import Store
    from kbproc.views.queries import DocumentRow

ACTOR, METHOD = "file", "note.sync"  # who changes files by hand, and how it is recorded

_ROUNDS = 5  # of looking again, while others write to the same notes
_AHEAD = 8
_BATCH_NOTES = 32
_BATCH_CHUNKS = 400
_logger = logging.getLogger(__name__)

Tell = Callable[[int, int, str], None]


class _Item(Struct, frozen=True):
    """What is recorded of one note; `row` is what it was made for."""

    action: Action
    slug: str
    row: DocumentRow | None
    content: Content


class Notebook:
    """One agent's folder. `lock` is held by whoever syncs, never in the writers' lane.

    `synced`: once at least in this process; `warnings`: what the last sync has to say.
    """

    def __init__(self, store: Store, agent: str, folder: Path, *, own: bool) -> None:
        """`own`: the folder lies in the store, and is made when it is first needed."""
        self.agent = agent
        self.folder = folder
        self.lock = threading.RLock()
        self.synced = False
        self.warnings: list[str] = []
        self._store = store
        self._own = own
        self._seen: dict[str, Seen] = {}
        self._held: set[int] = set()  # notes without a file that only a person lets go
        self._left_over: set[tuple[str, str]] = set()  # recorded, and still there

    # ------------------------------------------------------------------ looking

    def look(self) -> Diff:
        """How files and log differ now. Raises Unavailable."""
        with self.lock:
            known = self._known()
            scan = notefolder.scan(self.folder, self._seen)
            self._seen = scan.seen
            return compare(known, scan, self._held)

    def foresee(self) -> Diff:
        """The same before anything is done, when the store's own folder may not be made yet."""
        if self._own and not self.folder.exists():
            if known := len(self._known()):
                raise _lost(self.folder, self.agent, known)
            return Diff(known=0, found=[], removed=[], unchanged=0, skipped=[], unfinished=False)
        return self.look()

    def _known(self) -> dict[str, DocumentRow]:
        with self._store.reading() as snapshot:
            return {str(row.source_id): row for row in snapshot.queries.notes(self.agent)}

    def note(self, slug: str) -> DocumentRow | None:
        with self._store.reading() as snapshot:
            return snapshot.queries.note(self.agent, slug)

    def require_folder(self, *, make: bool = True) -> None:
        """Makes the store's own folder for the first note. Raises Unavailable, store.io."""
        if self._own and not self.folder.exists():
            self.foresee()
            if make:
                self._make_folder()

    def _make_folder(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            sync_folder(self.folder.parent)
        except OSError as error:
            raise KbprocError(
                "store.io", f"The notes folder {self.folder} could not be made: {error.strerror}."
            ) from error

    # ------------------------------------------------------------------ syncing

    def sync(
        self, *, approved: frozenset[int] = frozenset(), restore: bool = False,
        tell: Tell = lambda current, total, slug: None, check: Callable[[], None] = lambda: None,
    ) -> tuple[Synced, bool]:  # fmt: skip
        """Records what was done to the files; also False if something is left to do soon.

        `approved`: notes that may go although they are more than half; `restore`: those
        without a file get it back instead. `check` may raise between two records.
        Raises store.*; a folder that can't be looked at is a warning.
        """
        with self.lock:
            done = Synced(agents=1)
            settled = False
            try:
                for _ in range(_ROUNDS):
                    check()
                    diff, settled = self._round(done, approved, restore, tell, check)
                    if settled or diff.unfinished:
                        break
            except Unavailable as error:
                done.warnings.append(f"{error.message} {error.hint}")
            except KbprocError as error:
                done.warnings.append(f"The notes of {self.agent} are not in step: {error.message}")
                raise
            finally:
                self.synced = True
                self._warn(done.warnings)
            return done, settled

    def _warn(self, warnings: list[str]) -> None:
        for warning in warnings:
            if warning not in self.warnings:
                _logger.warning("%s", warning)
        self.warnings = list(warnings)

    def _round(
        self, done: Synced, approved: frozenset[int], restore: bool, tell: Tell,
        check: Callable[[], None],
    ) -> tuple[Diff, bool]:  # fmt: skip
        """One look, and what follows from it; True if nothing was left out."""
        if restore and not self.folder.exists():
            self._make_folder()
        self.require_folder()
        done.warnings.clear()
        diff = self.look()
        settled = True
        if diff.unfinished:
            settled = self._record_leftovers(done)
            diff = self.look()
            settled = settled and not diff.unfinished
        settled &= self._record_found(diff.found, done, tell, check)
        if diff.removed and restore:
            settled &= self._restore(diff.removed, done)
        elif diff.removed and (not diff.bulk or approved.issuperset(r.id for r in diff.removed)):
            settled &= self._record_removed(diff.removed, done)
        done.unchanged = diff.unchanged
        held = diff.removed if diff.bulk and not (done.removed or restore) else []
        done.held_back, self._held = len(held), {row.id for row in held}
        if held:
            done.warnings.append(held_back(self.agent, diff))
        done.skipped = [
            SkippedFile(agent=self.agent, file=file.name, reason=file.reason)
            for file in diff.skipped
        ]
        return diff, settled

    def _record_found(
        self, found: list[Found], done: Synced, tell: Tell, check: Callable[[], None]
    ) -> bool:
        settled = True
        batch: list[_Item] = []
        items = self._read_ahead(found)
        for number, item in enumerate(items, 1):
            if item is None:
                settled = False
            else:
                batch.append(item)
            tell(number, len(found), found[number - 1].slug)
            if _full(batch) or number == len(found):
                settled &= self._record(batch, done)
                batch = []
                check()
        return settled

    def _read_ahead(self, found: list[Found]) -> Generator[_Item | None]:
        """In their order, a few being parsed ahead; None for one that has changed meanwhile."""
        if len(found) == 1:  # as a rule, and a pool of threads takes a while to start
            yield self._read(found[0])
            return
        with ThreadPoolExecutor(_AHEAD, thread_name_prefix="notes") as executor:
            ahead: deque[Future[_Item | None]] = deque()
            remaining = iter(found)
            try:
                while True:
                    while len(ahead) < _AHEAD and (one := next(remaining, None)) is not None:
                        ahead.append(executor.submit(self._read, one))
                    if not ahead:
                        return
                    yield ahead.popleft().result()
            finally:
                for future in ahead:
                    future.cancel()

    def _read(self, found: Found) -> _Item | None:
        try:
            data = notefolder.read(self.folder, found.slug)
        except Unavailable:
            raise
        except KbprocError:
            return None
        if digest(data) != found.sha256:
            return None
        content = content_of(self._store, found.slug, data)
        return _Item(found.action, found.slug, found.row, content)

    # ------------------------------------------------------------------ recording

    def _record(self, items: list[_Item], done: Synced | None = None) -> bool:
        """One record; False if something was left out since the log now says other things."""
        if not items:
            return True
        taken = self._store.commit(lambda lane: self._append(lane, items))
        for item in taken if done is not None else []:
            was = str(item.row.source_id) if item.row and item.action == "renamed" else None
            done.count(  # type: ignore[union-attr]
                NoteChange(agent=self.agent, slug=item.slug, action=item.action, was=was)
            )
        return len(taken) == len(items)

    def _append(self, lane: Lane, items: list[_Item]) -> list[_Item]:
        here = Here(lane.queries, lane.now, lane.head)
        taken = [item for item in items if self._stands(here, item.slug, item.row)]
        ids = Ids(here)
        events: list[ev.Event] = [
            note_written(here, i.content, agent=self.agent, slug=i.slug, row=i.row, ids=ids)
            for i in taken
        ]
        if events:
            lane.append(events, actor=ACTOR, method=METHOD)
        return taken

    def _stands(self, here: Here, slug: str, row: DocumentRow | None) -> bool:
        """Whether the log still says what it said when we looked."""
        agent = here.queries.agent(self.agent)
        if agent is None or agent.deleted_at is not None:
            return False
        if row is not None and not _same(here.queries.document(row.id), row):
            return False
        is_its_own = row is not None and row.source_id == slug
        return is_its_own or here.queries.note(self.agent, slug) is None

    def _record_removed(self, rows: list[DocumentRow], done: Synced) -> bool:
        def append(lane: Lane) -> list[DocumentRow]:
            now = lane.queries.documents_by_id([row.id for row in rows])
            gone = [row for row in rows if _same(now.get(row.id), row)]
            if gone:
                lane.append([ev.DocDeleted(id=r.id) for r in gone], actor=ACTOR, method=METHOD)
            return gone

        gone = self._store.commit(append)
        for row in gone:
            done.count(NoteChange(agent=self.agent, slug=str(row.source_id), action="removed"))
        return len(gone) == len(rows)

    def _record_leftovers(self, done: Synced) -> bool:
        """What a change that died on the way had moved aside becomes a revision of its own."""
        settled = True
        for left in notehidden.leftovers(self.folder):
            if left.problem:
                done.warnings.append(left.problem)
                continue
            key = left.name, digest(left.data)
            row = self.note(left.slug)
            if key not in self._left_over and (row is None or row.sha256 != key[1]):
                content = content_of(self._store, left.slug, left.data)
                action: Action = "added" if row is None else "changed"
                if not self._record([_Item(action, left.slug, row, content)], done):
                    settled = False
                    continue
            self._left_over.add(key)
            if notehidden.forget(self.folder, left):
                self._left_over.discard(key)
        return settled

    def _restore(self, rows: list[DocumentRow], done: Synced) -> bool:
        for row in rows:
            if not self._store.commit(partial(self._write_back, row)):
                return False
            slug = str(row.source_id)
            done.count(NoteChange(agent=self.agent, slug=slug, action="restored"))
        return True

    def _write_back(self, row: DocumentRow, lane: Lane) -> bool:
        """In the lane, so that nobody deletes the note meanwhile."""
        if not _same(lane.queries.document(row.id), row):
            return False
        try:
            data = self._store.blobs.get(row.sha256)
            noteedit.write(self.folder, str(row.source_id), data, None)
        except noteedit.Unseen:
            return False
        return True

    # ------------------------------------------------------------------ one note

    def settle(self, slug: str) -> None:
        """Records what the log has not seen of this one file, so that it may be replaced.

        Raises resource.conflict if the file is no note as it stands, or never comes to
        rest; Unavailable.
        """
        with self.lock:
            for _ in range(_ROUNDS):
                row = self.note(slug)
                data = self._current(slug)
                if data is None or (row is not None and row.sha256 == digest(data)):
                    return
                action: Action = "added" if row is None else "changed"
                self._record([_Item(action, slug, row, content_of(self._store, slug, data))])
        raise KbprocError(
            "resource.conflict", f"{self.folder / slug}.md keeps changing.",
            hint="Wait until whoever edits it is done, then repeat the change.",
        )  # fmt: skip

    def is_unseen(self, slug: str) -> bool:
        """Whether `settle` would record something; raises as it does."""
        row, data = self.note(slug), self._current(slug)
        return data is not None and (row is None or row.sha256 != digest(data))

    def _current(self, slug: str) -> bytes | None:
        """What the file holds; None if there is none, or nothing in it that could be lost."""
        try:
            return notefolder.read(self.folder, slug)
        except Unavailable as error:
            if error.code == "missing" and self._own:
                return None
            raise
        except KbprocError as error:
            if error.type == "resource.not_found" or error.detail.get("code") == "blank":
                return None
            if error.type != "operation.failed":
                raise
            raise KbprocError(
                "resource.conflict", f"{error.message} It is left as it is.",
                hint="Repair that file or move it away, then repeat the change.",
                detail=error.detail,
            ) from None  # fmt: skip


def _same(now: DocumentRow | None, row: DocumentRow) -> bool:
    return now is not None and now.deleted_at is None and now.revision == row.revision


def _full(batch: list[_Item]) -> bool:
    chunks = sum(len(item.content.chunks) for item in batch)
    return len(batch) >= _BATCH_NOTES or chunks >= _BATCH_CHUNKS


def _lost(folder: Path, agent: str, known: int) -> Unavailable:
    error = Unavailable(folder, "missing", f"is gone, and the log has {plural(known, 'note')}")
    error.hint = (
        f"Put the folder back, as it may be missing from a backup; or write the notes of {agent} "
        "again from the log: note.sync with restore."
    )
    return error
