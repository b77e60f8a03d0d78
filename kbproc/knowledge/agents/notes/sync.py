"""Syncs an agent's folder: records in the log the edits that people made to its files.

A sync scans the folder and records the differences, in several rounds if files keep changing. It
also records texts that an interrupted change has left over, and deletes notes whose files are
gone or writes their files again. Its plan lists the removals that a person must approve.

A sync loses no text that a file holds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial

from kbproc.base.errors import KbprocError
from kbproc.base.wording import plural
from kbproc.engine.events.document import DocDeleted
from kbproc.engine.projections.catalog.rows import DocumentRow
from kbproc.engine.store.decision import Decision
from kbproc.engine.store.lane import Lane
from kbproc.engine.store.target import Target
from kbproc.knowledge.agents.notes import edit
from kbproc.knowledge.agents.notes import files as notefiles
from kbproc.knowledge.agents.notes.diff import (
    Action,
    Diff,
    FileChange,
    NoteChange,
    SkippedFile,
    StaleNoteFile,
    Synced,
    held_back_warning,
)
from kbproc.knowledge.agents.notes.edit import Leftover
from kbproc.knowledge.agents.notes.files import Unavailable, digest
from kbproc.knowledge.agents.notes.notebook import (
    ACTOR,
    METHOD,
    NewRevision,
    Notebook,
    content_of,
    is_unchanged,
    read_ahead,
)
from kbproc.knowledge.documents.revision import fills_record

_ROUNDS = 5  # attempts, while others write to the same notes
_logger = logging.getLogger(__name__)

Report = Callable[[int, int, str], None]


class Sync:
    """One sync of one notebook. `result`: the changes so far.

    `approved`: notes that may be removed although they are more than half. `restore`: writes the
    files of notes without a file again, instead of removing the notes. `report` gets the number
    of the change, how many there are, and the note's slug; `check` may raise between two records.
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
        self._stuck: set[str] = set()  # hidden names that only a person can clear away
        self.result = Synced(agents=1)

    def run(self) -> bool:
        """Syncs the folder; returns False if another sync is needed soon.

        Raises store.*; a folder that can't be read becomes a warning.
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
        """Compares and records once; returns the diff, and True if no change was left out."""
        book = self.book
        if not notefiles.exists(book.folder):
            if self._restores:
                book.make_folder()
            else:
                book.rules.replace_missing(book.make_folder)
        with book.store.reading() as snapshot:
            book.require_folder(snapshot.queries)
        self.result.warnings.clear()
        diff = book.diff()
        settled = True
        if diff.unfinished:
            settled = self._record_leftovers()
            diff = book.diff()
            settled = settled and not self._has_leftovers(diff)
        settled &= self._write_files(diff.stale_files)
        settled &= self._record_changes(diff.changes)
        settled &= self._handle_removed(diff)
        self._describe(diff)
        return diff, settled

    def _has_leftovers(self, diff: Diff) -> bool:
        """Returns True if another round may clear away leftovers."""
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
        result.warnings += self.book.source_warnings()
        result.skipped = [
            SkippedFile(agent=agent, file=file.name, reason=file.reason) for file in diff.skipped
        ]

    # ------------------------------------------------------------------ changed files

    def _record_changes(self, changes: list[FileChange]) -> bool:
        settled = True
        batch: list[NewRevision] = []
        revisions = read_ahead(self.book.intake, self.book.folder, changes)
        for number, revision in enumerate(revisions, 1):
            if revision is None:
                settled = False
            else:
                batch.append(revision)
            self._report(number, len(changes), changes[number - 1].slug)
            chunks = sum(len(item.content.chunks) for item in batch)
            if fills_record(len(batch), chunks) or number == len(changes):
                settled &= self._record(batch)
                batch = []
                self._check()
        return settled

    def _record(self, revisions: list[NewRevision]) -> bool:
        """Records the revisions; returns False if one was left out because its note has changed."""
        recorded_revisions = self.book.record(revisions)
        for revision in recorded_revisions:
            row = revision.row if revision.action == "renamed" else None
            self._count(revision.slug, revision.action, str(row.source_id) if row else None)
        return len(recorded_revisions) == len(revisions)

    def _count(self, slug: str, action: Action, was: str | None = None) -> None:
        self.result.count(NoteChange(agent=self.book.agent, slug=slug, action=action, was=was))

    # ------------------------------------------------------------------ missing files

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
        deleted_rows = self.book.store.commit(partial(self._append_deletions, rows))
        for row in deleted_rows:
            self._count(str(row.source_id), "removed")
        return len(deleted_rows) == len(rows)

    def _append_deletions(self, rows: list[DocumentRow], lane: Lane) -> list[DocumentRow]:
        """Deletes the notes that still have no file and no newer revision, and returns them."""
        book = self.book
        if not book.is_of(lane.queries.agent(book.agent)):
            return []
        current_rows = lane.queries.documents_by_id([row.id for row in rows])
        existing_slugs = edit.existing(book.folder, [str(row.source_id) for row in rows])
        deleted_rows = [
            row
            for row in rows
            if row.source_id not in existing_slugs and is_unchanged(current_rows.get(row.id), row)
        ]
        if deleted_rows:
            lane.append([DocDeleted(id=row.id) for row in deleted_rows], actor=ACTOR, method=METHOD)
        return deleted_rows

    def restore(self, rows: list[DocumentRow]) -> bool:
        return self._write_files([StaleNoteFile(row, str(row.source_id)) for row in rows])

    def _write_files(self, stale_files: list[StaleNoteFile]) -> bool:
        """Writes the notes' files; one that can't be written becomes a warning.

        Returns False if a note or its file has changed since.
        """
        settled = True
        for stale_file in stale_files:
            row, slug, _ = stale_file
            try:
                if row.deleted_at is None:
                    self.book.intake.blobs.get(row.sha256)  # not in the lane: it may be far away
                written = self.book.store.commit(partial(self._write_back, stale_file))
            except Unavailable:
                raise
            except KbprocError as error:
                self.result.warnings.append(f"{slug} is not restored: {error.message}")
                continue
            settled &= written
            if written:
                self._count(slug, "removed" if row.deleted_at else "restored")
        return settled

    def _write_back(self, stale_file: StaleNoteFile, lane: Lane) -> bool:
        """Writes or removes the note's file, in the lane, so that the note can't change.

        Returns False if the note or its file has changed since.
        """
        book, (row, slug, sha256) = self.book, stale_file
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
        """Records each text that an interrupted change had moved aside as a revision of its own."""
        settled = True
        self._stuck.clear()
        for leftover in edit.leftovers(self.book.folder):
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
        is_known = is_known or book.is_earlier_text(leftover.slug, key[1])
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
            return edit.clear(self.book.folder, leftover)
        except Unavailable:
            raise
        except KbprocError as error:
            self.result.warnings.append(error.message)
            self._stuck.add(leftover.name)
            return False


# ------------------------------------------------------------------ the plan


def removal(books: Iterable[Notebook]) -> Decision:
    """Returns the removals to approve: the notes of agents that have lost more than half."""
    diffs = [(book.agent, _diff_of(book)) for book in books]
    large = [
        (agent, diff)
        for agent, diff in diffs
        if isinstance(diff, Diff) and diff.removed and diff.bulk
    ]
    rows = [(agent, row) for agent, diff in large for row in diff.removed]
    return Decision(
        events=[DocDeleted(id=row.id) for _, row in rows],
        data=None,
        targets=[
            Target(
                kind="note", id=f"{agent}/{row.source_id}", name=row.title, revision=row.revision
            )
            for agent, row in rows
        ],
        changes=[held_back_warning(agent, diff) for agent, diff in large],
        bulk=bool(rows),
        destructive=bool(rows),
    )


def preview(books: Iterable[Notebook], *, restore: bool) -> list[str]:
    """Returns the changes that a sync of these folders would make, as lines."""
    lines: list[str] = []
    for book in books:
        diff = _diff_of(book)
        lines += [diff] if isinstance(diff, str) else _preview_of(book.agent, diff, restore=restore)
    return lines


def _diff_of(book: Notebook) -> Diff | str:
    """Returns the diff, or a sentence why the folder can't be read."""
    try:
        return book.foresee_diff()
    except Unavailable as error:
        return f"{error.message} {error.hint}"


def _preview_of(agent: str, diff: Diff, *, restore: bool) -> list[str]:
    """Returns a line that counts the changes of a sync, and then a line for each."""
    verb = "restored" if restore else "removed"
    lines = [f"{change.action}: {agent}/{change.slug}" for change in diff.changes]
    lines += [f"{verb}: {agent}/{row.source_id}" for row in diff.removed]
    lines += [f"skipped: {agent}: {file.reason}" for file in diff.skipped]
    if diff.unfinished:
        lines.append(f"{agent}: what an interrupted change has left over is recorded first")
    return [f"{agent}: {plural(len(lines), 'change')}, {diff.unchanged} unchanged", *lines]
