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
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kbproc.agents.agent import notes_folder
from kbproc.base.durable import make_folder
from kbproc.base.errors import KbprocError
from kbproc.documents.content import Intake
from kbproc.documents.revision import Ids
from kbproc.events.document import DocDeleted
from kbproc.events.event import Event
from kbproc.notefiles import edit, hidden
from kbproc.notefiles import folder as notefolder
from kbproc.notefiles.file import digest
from kbproc.notefiles.folder import NoteFile, Unavailable
from kbproc.notefiles.hidden import Leftover
from kbproc.notes import diff as notediff
from kbproc.notes.diff import Action, Diff, Found, Held, NoteChange, SkippedFile, Synced
from kbproc.notes.revision import Item, content_of, full, note_written, read_ahead, same
from kbproc.store.decision import Here
from kbproc.store.state import SeenStore
from kbproc.views.catalog.queries.all import Queries
from kbproc.views.catalog.rows import AgentRow, DocumentRow

if TYPE_CHECKING:
    from kbproc.store.lane import Lane

ACTOR, METHOD = "file", "note.sync"  # who changes files by hand, and how it is recorded

_ROUNDS = 5  # of looking again, while others write to the same notes
_logger = logging.getLogger(__name__)

Tell = Callable[[int, int, str], None]


class Notebook:
    """One agent's folder. `lock` is held by whoever syncs, never in the writers' lane.

    `synced`: once at least in this process; `warnings`: what the last sync has to say.
    """

    def __init__(
        self,
        store: SeenStore,
        intake: Intake,
        agent: str,
        folder: Path,
        *,
        own: bool,
        current: Callable[[AgentRow], Notebook],
    ) -> None:
        """`own`: the folder lies in the store, and is made when it is first needed.

        `current` gives the notebook that an agent has by now.
        """
        self.agent = agent
        self.folder = folder
        self.lock = threading.RLock()
        self.synced = False
        self.warnings: list[str] = []
        self.store = store
        self._intake = intake
        self._notebook_of = current
        self._own = own
        agent_row = store.published.roster.agents.get(agent)
        self._made = None if agent_row is None else agent_row.created_at
        self._seen: dict[str, NoteFile] = {}
        self._held = Held(store.folder / "notes" / f".{agent}.held")
        self._left_over: set[tuple[str, str]] = set()  # recorded, and still there
        self._told: set[str] = set()  # left over, and only a person can help

    def is_of(self, agent: AgentRow | None) -> bool:
        """Whether the agent's notes lie here still; asked in the lane."""
        return (
            agent is not None
            and agent.deleted_at is None
            and agent.created_at == self._made
            and notes_folder(self.store, agent) == self.folder
        )

    def current(self) -> Notebook:
        """That of the agent's folder by now. Waits for its first sync."""
        agent = self.store.published.roster.agents.get(self.agent)
        return self if agent is None else self._notebook_of(agent)

    # ------------------------------------------------------------------ looking

    def look(self) -> Diff:
        """How files and log differ now. Raises Unavailable."""
        with self.lock:
            known = self._known()
            scan = notefolder.scan(self.folder, self._seen)
            self._seen = scan.files
            return notediff.compare(known, scan, self._held.ids)

    def foresee(self) -> Diff:
        """The same before anything is done, when the store's own folder may not be made yet."""
        if self._own and not notefolder.exists(self.folder):
            if known := len(self._known()):
                raise notediff.lost(self.folder, self.agent, known)
            return Diff(known=0, found=[], removed=[], unchanged=0, skipped=[])
        return self.look()

    def _known(self) -> dict[str, DocumentRow]:
        with self.store.reading() as snapshot:
            return {str(row.source_id): row for row in snapshot.queries.notes(self.agent)}

    def note(self, slug: str) -> DocumentRow | None:
        with self.store.reading() as snapshot:
            return snapshot.queries.note(self.agent, slug)

    def require_folder(self, queries: Queries) -> None:
        """Makes the store's own folder for the first note. Raises Unavailable, store.io.

        Waits for nobody, so that it may be called in the lane.
        """
        if self._own and not notefolder.exists(self.folder):
            if known := queries.notes_count(self.agent):
                raise notediff.lost(self.folder, self.agent, known)
            self._make_folder()

    def foresee_folder(self) -> None:
        """Raises as require_folder does, and makes nothing."""
        if self._own and not notefolder.exists(self.folder):
            self.foresee()

    def is_standing(self, slug: str) -> bool:
        """Whether anything is there under the note's name. Raises store.io, Unavailable."""
        if self._own and not notefolder.exists(self.folder):
            return False
        return bool(hidden.existing(self.folder, [slug]))

    def _make_folder(self) -> None:
        try:
            make_folder(self.folder)
        except OSError as error:
            raise KbprocError(
                "store.io", f"The notes folder {self.folder} could not be made: {error.strerror}."
            ) from error

    # ------------------------------------------------------------------ syncing

    def sync(
        self,
        *,
        approved: frozenset[int] = frozenset(),
        restore: bool = False,
        tell: Tell = lambda current, total, slug: None,
        check: Callable[[], None] = lambda: None,
    ) -> tuple[Synced, bool]:
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
                    if settled or self._unfinished(diff):
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
        self,
        done: Synced,
        approved: frozenset[int],
        restore: bool,
        tell: Tell,
        check: Callable[[], None],
    ) -> tuple[Diff, bool]:
        """One look, and what follows from it; True if nothing was left out."""
        if restore and not notefolder.exists(self.folder):
            self._make_folder()
        with self.store.reading() as snapshot:
            self.require_folder(snapshot.queries)
        done.warnings.clear()
        diff = self.look()
        settled = True
        if diff.unfinished:
            settled = self._record_leftovers(done)
            diff = self.look()
            settled = settled and not self._unfinished(diff)
        settled &= self._record_found(diff.found, done, tell, check)
        if diff.removed and restore:
            settled &= self._restore(diff.removed, done)
        elif diff.removed and (not diff.bulk or approved.issuperset(r.id for r in diff.removed)):
            settled &= self._record_removed(diff.removed, done)
        done.unchanged = diff.unchanged
        held = diff.removed if diff.bulk and not (done.removed or restore) else []
        done.held_back = len(held)
        if not self.store.read_only:
            self._held.keep(row.id for row in held)
        if held:
            done.warnings.append(notediff.held_back(self.agent, diff))
        done.skipped = [
            SkippedFile(agent=self.agent, file=file.name, reason=file.reason)
            for file in diff.skipped
        ]
        return diff, settled

    def _unfinished(self, diff: Diff) -> bool:
        """Whether another round may find less left over."""
        return not diff.unfinished <= self._told

    def _record_found(
        self, found: list[Found], done: Synced, tell: Tell, check: Callable[[], None]
    ) -> bool:
        settled = True
        batch: list[Item] = []
        items = read_ahead(self._intake, self.folder, found)
        for number, item in enumerate(items, 1):
            if item is None:
                settled = False
            else:
                batch.append(item)
            tell(number, len(found), found[number - 1].slug)
            if full(batch) or number == len(found):
                settled &= self._record(batch, done)
                batch = []
                check()
        return settled

    # ------------------------------------------------------------------ recording

    def _record(self, items: list[Item], done: Synced | None = None) -> bool:
        """One record; False if something was left out since the log now says other things."""
        if not items:
            return True
        taken = self.store.commit(lambda lane: self._append(lane, items))
        for item in taken if done is not None else []:
            was = str(item.row.source_id) if item.row and item.action == "renamed" else None
            done.count(  # type: ignore[union-attr]
                NoteChange(agent=self.agent, slug=item.slug, action=item.action, was=was)
            )
        return len(taken) == len(items)

    def _append(self, lane: Lane, items: list[Item]) -> list[Item]:
        here = Here(lane.queries, lane.now, lane.head)
        taken = [item for item in items if self._stands(here, item.slug, item.row)]
        ids = Ids(here)
        events: list[Event] = [
            note_written(here, i.content, agent=self.agent, slug=i.slug, row=i.row, ids=ids)
            for i in taken
        ]
        if events:
            lane.append(events, actor=ACTOR, method=METHOD)
        return taken

    def _stands(self, here: Here, slug: str, row: DocumentRow | None) -> bool:
        """Whether the log still says what it said when we looked."""
        if not self.is_of(here.queries.agent(self.agent)):
            return False
        if row is not None and not same(here.queries.document(row.id), row):
            return False
        is_its_own = row is not None and row.source_id == slug
        return is_its_own or here.queries.note(self.agent, slug) is None

    def _record_removed(self, rows: list[DocumentRow], done: Synced) -> bool:
        def append(lane: Lane) -> list[DocumentRow]:
            if not self.is_of(lane.queries.agent(self.agent)):
                return []
            now = lane.queries.documents_by_id([row.id for row in rows])
            back = hidden.existing(self.folder, [str(row.source_id) for row in rows])
            gone = [row for row in rows if row.source_id not in back and same(now.get(row.id), row)]
            if gone:
                lane.append([DocDeleted(id=r.id) for r in gone], actor=ACTOR, method=METHOD)
            return gone

        gone = self.store.commit(append)
        for row in gone:
            done.count(NoteChange(agent=self.agent, slug=str(row.source_id), action="removed"))
        return len(gone) == len(rows)

    def _record_leftovers(self, done: Synced) -> bool:
        """What a change that died on the way had moved aside becomes a revision of its own."""
        settled = True
        self._told.clear()
        for left in hidden.leftovers(self.folder):
            if left.problem:
                done.warnings.append(left.problem)
                self._told.add(left.name)
                continue
            key = left.name, digest(left.data)
            row = self.note(left.slug)
            if key not in self._left_over and (row is None or row.sha256 != key[1]):
                content = content_of(self._intake, left.slug, left.data)
                action: Action = "added" if row is None else "changed"
                if not self._record([Item(action, left.slug, row, content)], done):
                    settled = False
                    continue
            self._left_over.add(key)
            if self._forget(left, done):
                self._left_over.discard(key)
        return settled

    def _forget(self, left: Leftover, done: Synced) -> bool:
        try:
            return hidden.clear(self.folder, left)
        except Unavailable:
            raise
        except KbprocError as error:
            done.warnings.append(error.message)
            self._told.add(left.name)
            return False

    def _restore(self, rows: list[DocumentRow], done: Synced) -> bool:
        """What stands in one's way is a warning, and the others are written all the same."""
        settled = True
        for row in rows:
            slug = str(row.source_id)
            try:
                written = self.store.commit(partial(self._write_back, row))
            except Unavailable:
                raise
            except KbprocError as error:
                done.warnings.append(f"{slug} is not restored: {error.message}")
                continue
            settled &= written
            if written:
                done.count(NoteChange(agent=self.agent, slug=slug, action="restored"))
        return settled

    def _write_back(self, row: DocumentRow, lane: Lane) -> bool:
        """In the lane, so that nobody deletes the note meanwhile."""
        if not self.is_of(lane.queries.agent(self.agent)):
            return False
        if not same(lane.queries.document(row.id), row):
            return False
        try:
            data = self.store.blobs.get(row.sha256)
            edit.write(self.folder, str(row.source_id), data, None)
        except edit.EditedMeanwhile:
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
                self._record([Item(action, slug, row, content_of(self._intake, slug, data))])
        raise KbprocError(
            "resource.conflict",
            f"{self.folder / slug}.md keeps changing.",
            hint="Wait until whoever edits it is done, then repeat the change.",
        )

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
                "resource.conflict",
                f"{error.message} It is left as it is.",
                hint="Repair that file or move it away, then repeat the change.",
                detail=error.detail,
            ) from None
