"""One sync: what was done by hand to the files of an agent's folder goes into the log.

Owns: the rounds of looking and recording; texts that an interrupted change has left over; notes
whose files are gone, and giving them a file again.
Refuses to know: when a folder is synced (background.py), what counts as a change (diff.py), what
an agent writes (change.py), and how files are read and replaced (notefiles/).

No text that a file holds is lost by what a sync does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from kbproc.agents.notefiles import edit, hidden
from kbproc.agents.notefiles import folder as notefolder
from kbproc.agents.notefiles.file import digest
from kbproc.agents.notefiles.folder import Unavailable
from kbproc.agents.notefiles.hidden import Leftover
from kbproc.agents.notes.diff import (
    Action,
    Behind,
    Diff,
    FileChange,
    NoteChange,
    SkippedFile,
    Synced,
    held_back_warning,
)
from kbproc.agents.notes.notebook import ACTOR, METHOD, Notebook
from kbproc.agents.notes.revision import NewRevision, content_of, is_unchanged, read_ahead
from kbproc.base.errors import KbprocError
from kbproc.documents.revision import fills_record
from kbproc.events.document import DocDeleted
from kbproc.store.lane import Lane
from kbproc.views.catalog.rows import DocumentRow

_ROUNDS = 5  # of looking again, while others write to the same notes
_logger = logging.getLogger(__name__)

Report = Callable[[int, int, str], None]


class Sync:
    """One sync of one notebook. `result`: what it has done so far.

    `approved`: notes that may be removed although they are more than half. `restore`: notes
    without a file get their file again instead. `report` gets the number of the change, how
    many there are, and the note's slug; `check` may raise between two records.
    """

    def __init__(
        self,
        book: Notebook,
        *,
        approved: frozenset[int] = frozenset(),
        restore: bool = False,
        report: Report = lambda number, count, slug: None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self.book = book
        self._approved = approved
        self._restores = restore
        self._report = report
        self._check = check
        self._stuck: set[str] = set()  # hidden names that only a person can help
        self.result = Synced(agents=1)

    def run(self) -> bool:
        """False if something is left to do soon.

        Raises store.*; a folder that can't be looked at is a warning.
        """
        book, warnings = self.book, self.result.warnings
        with book.lock:
            settled = False
            try:
                for _ in range(_ROUNDS):
                    self._check()
                    diff, settled = self._round()
                    if settled or self._has_leftovers(diff):
                        break
            except Unavailable as error:
                warnings.append(f"{error.message} {error.hint}")
            except KbprocError as error:
                warnings.append(f"The notes of {book.agent} are not in step: {error.message}")
                raise
            finally:
                book.synced = True
                self._publish_warnings()
            return settled

    def _publish_warnings(self) -> None:
        for warning in self.result.warnings:
            if warning not in self.book.warnings:
                _logger.warning("%s", warning)
        self.book.warnings = list(self.result.warnings)

    def _round(self) -> tuple[Diff, bool]:
        """One look, and what follows from it; True if nothing was left out."""
        book = self.book
        if (self._restores or book.is_shared) and not notefolder.exists(book.folder):
            book.make_folder()
        with book.store.reading() as snapshot:
            book.require_folder(snapshot.queries)
        self.result.warnings.clear()
        diff = book.diff()
        settled = True
        if diff.unfinished:
            settled = self._record_leftovers()
            diff = book.diff()
            settled = settled and not self._has_leftovers(diff)
        settled &= self._write_files(diff.behind)
        settled &= self._record_changes(diff.found)
        settled &= self._handle_removed(diff)
        self._describe(diff)
        return diff, settled

    def _has_leftovers(self, diff: Diff) -> bool:
        """Whether another round may find fewer of them."""
        return not diff.unfinished <= self._stuck

    def _describe(self, diff: Diff) -> None:
        result, agent = self.result, self.book.agent
        result.unchanged = diff.unchanged
        held_back = diff.removed if diff.bulk and not (result.removed or self._restores) else []
        result.held_back = len(held_back)
        if not self.book.store.read_only:
            self.book.held_back.keep(row.id for row in held_back)
        if held_back:
            result.warnings.append(held_back_warning(agent, diff))
        result.skipped = [
            SkippedFile(agent=agent, file=file.name, reason=file.reason) for file in diff.skipped
        ]

    # ------------------------------------------------------------------ files that are there

    def _record_changes(self, found: list[FileChange]) -> bool:
        settled = True
        batch: list[NewRevision] = []
        revisions = read_ahead(self.book.intake, self.book.folder, found)
        for number, revision in enumerate(revisions, 1):
            if revision is None:
                settled = False
            else:
                batch.append(revision)
            self._report(number, len(found), found[number - 1].slug)
            if fills_record(len(one.content.chunks) for one in batch) or number == len(found):
                settled &= self._record(batch)
                batch = []
                self._check()
        return settled

    def _record(self, revisions: list[NewRevision]) -> bool:
        """False if something was left out because the log says other things by now."""
        taken = self.book.record(revisions)
        for one in taken:
            was = str(one.row.source_id) if one.row and one.action == "renamed" else None
            self._count(one.slug, one.action, was)
        return len(taken) == len(revisions)

    def _count(self, slug: str, action: Action, was: str | None = None) -> None:
        self.result.count(NoteChange(agent=self.book.agent, slug=slug, action=action, was=was))

    # ------------------------------------------------------------------ files that are gone

    def _handle_removed(self, diff: Diff) -> bool:
        rows = diff.removed
        if not rows:
            return True
        if self._restores:
            return self.restore(rows)
        if not diff.bulk or self._approved.issuperset(row.id for row in rows):
            return self.record_removed(rows)
        return True

    def record_removed(self, rows: list[DocumentRow]) -> bool:
        gone = self.book.store.commit(partial(self._append_deletions, rows))
        for row in gone:
            self._count(str(row.source_id), "removed")
        return len(gone) == len(rows)

    def _append_deletions(self, rows: list[DocumentRow], lane: Lane) -> list[DocumentRow]:
        """The notes that are deleted: those that have no file and no newer revision still."""
        book = self.book
        if not book.is_of(lane.queries.agent(book.agent)):
            return []
        now = lane.queries.documents_by_id([row.id for row in rows])
        back = hidden.existing(book.folder, [str(row.source_id) for row in rows])
        gone = [
            row for row in rows if row.source_id not in back and is_unchanged(now.get(row.id), row)
        ]
        if gone:
            lane.append([DocDeleted(id=row.id) for row in gone], actor=ACTOR, method=METHOD)
        return gone

    def restore(self, rows: list[DocumentRow]) -> bool:
        return self._write_files([Behind(row, str(row.source_id)) for row in rows])

    def _write_files(self, behind: list[Behind]) -> bool:
        """A file that can't be written is a warning; the others are written all the same."""
        settled = True
        for one in behind:
            row, slug, _ = one
            try:
                if row.deleted_at is None:
                    self.book.intake.blobs.get(row.sha256)  # not in the lane: it may be far away
                written = self.book.store.commit(partial(self._write_back, one))
            except Unavailable:
                raise
            except KbprocError as error:
                self.result.warnings.append(f"{slug} is not restored: {error.message}")
                continue
            settled &= written
            if written:
                self._count(slug, "removed" if row.deleted_at else "restored")
        return settled

    def _write_back(self, one: Behind, lane: Lane) -> bool:
        """Works in the lane, so that nobody deletes the note meanwhile."""
        book, (row, slug, sha256) = self.book, one
        if not book.is_of(lane.queries.agent(book.agent)):
            return False
        is_gone = row.deleted_at is not None and lane.queries.note(book.agent, slug) is None
        if not is_gone and not is_unchanged(lane.queries.document(row.id), row):
            return False
        try:
            if not is_gone:
                edit.write(book.folder, slug, book.intake.blobs.get(row.sha256), sha256)
            elif sha256 is not None:
                edit.remove(book.folder, slug, sha256)
        except edit.EditedMeanwhile:
            return False
        return True

    # ------------------------------------------------------------------ after a crash

    def _record_leftovers(self) -> bool:
        """A text that an interrupted change had moved aside becomes a revision of its own."""
        settled = True
        self._stuck.clear()
        for leftover in hidden.leftovers(self.book.folder):
            if leftover.problem:
                self.result.warnings.append(leftover.problem)
                self._stuck.add(leftover.name)
            else:
                settled &= self._record_leftover(leftover)
        return settled

    def _record_leftover(self, leftover: Leftover) -> bool:
        book = self.book
        key = leftover.name, digest(leftover.data)
        row = book.note(leftover.slug)
        is_known = row is not None and row.sha256 == key[1]
        is_known = is_known or book.is_behind(leftover.slug, key[1])
        if key not in book.recorded_leftovers and not is_known:
            content = content_of(book.intake, leftover.slug, leftover.data)
            action: Action = "added" if row is None else "changed"
            if not self._record([NewRevision(action, leftover.slug, row, content)]):
                return False
        book.recorded_leftovers.add(key)
        if self._clear(leftover):
            book.recorded_leftovers.discard(key)
        return True

    def _clear(self, leftover: Leftover) -> bool:
        try:
            return hidden.clear(self.book.folder, leftover)
        except Unavailable:
            raise
        except KbprocError as error:
            self.result.warnings.append(error.message)
            self._stuck.add(leftover.name)
            return False
