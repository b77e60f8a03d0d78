"""Defines the facts of an entry, and the events by which one supersedes another or is reviewed."""

from __future__ import annotations

from msgspec import Struct

from kbproc.base.wording import plural
from kbproc.engine.events.event import Event, Subject


class Anchor(Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A source of an entry, as it was when the entry was derived from it.

    It is a `document` at a `revision`; or the file at `path`, of which only the lines from
    `start_line` to `end_line` count, if it names any; or a `commit` of the repository whose
    worktree is at `path`. `sha256`: of the document's source, of the file or of its lines. Of a
    source that was purged only the document's id is there, if it had one.
    """

    document: int | None = None
    revision: int | None = None
    path: str | None = None
    start_line: int | None = None
    end_line: int | None = None
    commit: str | None = None
    sha256: str = ""

    @property
    def is_purged(self) -> bool:
        return self.path is None and self.revision is None and not self.sha256


class EntryFacts(Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A knowledge entry's facts besides its text; times as in every projection.

    `review_after`: the moment from which on a person should check it again. `derived_from`: the
    documents, entries and notes that it was made from, by id. `valid_from`, `valid_to`: when what
    it says began and ceased to be true; None where its writer says neither. `anchors`: its sources
    as they were when it was made from them, files and commits among them. `in_review`: no read
    finds it before its approval, which is a revision without this. `replaces`: the entries that it
    supersedes then.
    """

    confidence: int
    source: str
    expires_at: str | None = None
    task_id: str | None = None
    task_kind: str | None = None
    review_after: str | None = None
    derived_from: list[int] = []
    valid_from: str | None = None
    valid_to: str | None = None
    anchors: list[Anchor] = []
    in_review: bool = False
    replaces: list[int] = []


class EntrySuperseded(Event, frozen=True, tag="entry.superseded"):
    """Entry `by` supersedes entry `id`, which `was` superseded before."""

    id: int
    by: int
    was: int | None = None

    def summary(self) -> str:
        return f"supersede entry {self.id} by entry {self.by}"

    def concerns(self) -> Subject:
        return Subject(document=self.id)


class EntryRevived(Event, frozen=True, tag="entry.revived"):
    """No entry supersedes these any more; `was` did, directly."""

    ids: list[int]
    was: int

    def summary(self) -> str:
        return f"revive {plural(len(self.ids), 'entry', 'entries')}"

    def concerns(self) -> Subject:
        return Subject(listed=self.ids)


class EntryReviewed(Event, frozen=True, kw_only=True, tag="entry.reviewed"):
    """A review: an entry's verification and its day of checking from now on.

    `verified_by`, `verified_at`: the person that verified it, and the moment; None without a
    verification, or after a revert of it. `review_after`: the moment from which on it is due.
    `anchors`: its sources as they are now; None for an entry without any.
    """

    id: int
    verified_by: str | None = None
    verified_at: str | None = None
    review_after: str | None = None
    anchors: list[Anchor] | None = None

    def summary(self) -> str:
        if self.verified_at is None:
            return f"take back that entry {self.id} was verified"
        return f"note that {self.verified_by} has verified entry {self.id}"

    def concerns(self) -> Subject:
        return Subject(document=self.id)


class EntryReplaces(Event, frozen=True, tag="entry.replaces"):
    """An entry in review supersedes these entries once it is approved."""

    id: int
    replaces: list[int]

    def summary(self) -> str:
        ids = ", ".join(map(str, self.replaces)) or "none"
        return f"note that entry {self.id} supersedes {ids} once it is approved"

    def concerns(self) -> Subject:
        return Subject(document=self.id)


REVIEW_TAG = EntryReviewed.tag()
LINK_TAGS = frozenset({EntrySuperseded.tag(), EntryRevived.tag()})
