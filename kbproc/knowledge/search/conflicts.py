"""Finds hits of one page that give one thing two values, and says which is the newer.

Only the hits of a page are compared, by the plain statements in them (base/text/claims.py). A wrong
mark costs more than a missing one. So two statements are no conflict where they may be about
different things: in another knowledge base, environment, section or time, with other tags, in a
folder beside, or where some text gives the thing several values.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath
from typing import NamedTuple

from msgspec import Struct

from kbproc.base.patterns import lazy
from kbproc.base.text.claims import Claim, asserted, claims, named, subject_of, words_of
from kbproc.base.unseen import one_line
from kbproc.engine.events.document import CONVERSATION
from kbproc.engine.events.origin import FOREIGN
from kbproc.engine.projections.catalog.rows import HitRow, marks_of

ENTRY = "knowledge"
_MOST_TEXT = 600  # characters of an entry
_AROUND = 80  # characters around a hit's best passage
_MOST_VALUES = 3  # more values mean that each text is about a thing of its own
_MOST_SHOWN = 2  # conflicts of a hit
_UNREAD = frozenset({"code", "table", "sheet"})
# Two texts that name others of these are about different things.
_NAMES_OF_ENVIRONMENTS = """
dev development prod production stage staging test testing qa ci local preview demo sandbox live
beta canary nightly linux macos mac osx windows ios android docker kubernetes k8s cloud free pro
team enterprise basic premium eu us asia europe
"""
_ENVIRONMENTS = frozenset(words_of(_NAMES_OF_ENVIRONMENTS))
# Words of a title or a section that say nothing of what it is about.
_NAMES_OF_TEXTS = """
guide handbook manual faq readme overview introduction reference doc documentation note page old
new draft copy final md txt pdf html minutes meeting limit setting configuration config default
value option detail general summary turn section chapter
"""
_OF_TEXTS = frozenset(words_of(_NAMES_OF_TEXTS))
_DATES = lazy(
    r"\d{4}-\d\d(?:-\d\d)?|\d{1,2}\.? (?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"
    r"(?: \d{4})?"
    r"|\b(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*+ \d{1,2}(?:,? \d{4})?",
    re.IGNORECASE,
)
# A text names an environment only by these, because the other names are everyday words.
_NAMED_IN_TEXTS = _ENVIRONMENTS & {"dev", "development", "prod", "production", "staging", "sandbox"}
_MOST_CITE = 80  # characters
_OF_SPEAKERS = frozenset(["my", "our"])


class Conflict(Struct, kw_only=True, frozen=True):
    """Another hit gives another value for what this one says.

    `older`: the other hit is newer; false where neither is. `says`: all of it in words.
    """

    document_id: int
    value: str
    other_value: str
    older: bool
    says: str


class DatedHit(NamedTuple):
    """A hit of a page: its row, its best passage with its section, its citation, and when it was
    said or made.

    `moment`: None for a document whose own time is unknown.
    """

    row: HitRow
    place: tuple[int, int] | None
    section: str | None
    cite: str
    moment: str | None

    @property
    def text(self) -> str:
        """Returns the text of an entry, or the sentences in and around the best passage, as far as
        they stand in its section.
        """
        text = self.row.text
        if self.row.type == ENTRY:
            return _sentences(text, 0, _MOST_TEXT)
        start, end = self.place or (0, _MOST_TEXT - _AROUND)
        begin, stop, section = 0, len(text), self.row.section
        for mark in marks_of(self.row.marks):
            if mark.section != section and mark.at >= end:
                stop = mark.at
                break
            if mark.section != section:
                begin, section = mark.at, mark.section
        return _sentences(text[:stop], max(begin, start - _AROUND), end + _AROUND, begin=begin)


class _Statement(NamedTuple):
    hit: DatedHit
    claim: Claim


def conflicts(hits: Sequence[DatedHit]) -> dict[int, list[Conflict]]:
    """Returns chunk → where a newer hit, or one as old, says otherwise."""
    by_subject: dict[tuple[str, frozenset[str], str], list[_Statement]] = defaultdict(list)
    for hit in hits:
        for claim in _claims_of(hit):
            by_subject[hit.row.kb, claim.subject, claim.kind].append(_Statement(hit, claim))
    results: dict[int, list[Conflict]] = defaultdict(list)
    for statements in by_subject.values():
        if len(statements) > 1:
            for chunk_id, conflict in _among(statements):
                if len(results[chunk_id]) < _MOST_SHOWN:
                    results[chunk_id].append(conflict)
    return results


def _claims_of(hit: DatedHit) -> Iterator[Claim]:
    row = hit.row
    if row.type in _UNREAD or row.superseded_by is not None:
        return
    own = claims(hit.text)
    if row.type == CONVERSATION:
        own = [claim for claim in own if _OF_SPEAKERS.isdisjoint(claim.subject)]
    yield from own
    if row.type == ENTRY:
        yield from _claims_of_entry(row, [*own, *claims(row.title)])


def _claims_of_entry(row: HitRow, own: Sequence[Claim]) -> Iterator[Claim]:
    """Yields what an entry says of the things that its title and its aliases name."""
    yield from claims(row.title)
    yield from filter(None, (named(name, row.text) for name in (row.title, *row.aliases)))
    if (assertion := asserted(row.title)) is not None:
        yield assertion
    subjects = {subject for name in row.aliases if (subject := subject_of(name))}
    if subjects and (title := subject_of(row.title)):
        yield from (claim._replace(subject=title) for claim in own if claim.subject in subjects)


def _sentences(text: str, start: int, end: int, *, begin: int = 0) -> str:
    """Returns the whole sentences and lines of a part of the text, which begins at `begin`."""
    if end < len(text):
        breaks = (text.rfind("\n", start, end), text.rfind(". ", start, end) + 1)
        end = max(start, *breaks)
    if start > begin:
        breaks = (text.find("\n", start, end), text.find(". ", start, end) + 1)
        start = min((place for place in breaks if place > 0), default=end) + 1
    return text[start:end]


# ---------------------------------------------------------------------- pairs


def _among(statements: Sequence[_Statement]) -> Iterator[tuple[int, Conflict]]:
    """Yields chunk and conflict for statements about one subject."""
    values: dict[int, set[str | float]] = defaultdict(set)
    for one in statements:
        values[one.hit.row.document_id].add(one.claim.value)
    several = any(len(own) > 1 for own in values.values())
    if several or len(set().union(*values.values())) > _MOST_VALUES:
        return
    first = {one.hit.row.document_id: one for one in reversed(statements)}
    for one in first.values():
        others = [other for other in first.values() if _are_in_conflict(one, other)]
        newest = max(others, key=lambda other: other.hit.moment or "", default=None)
        if newest is not None and (conflict := _conflict_of(one, newest)) is not None:
            yield one.hit.row.chunk_id, conflict


def _conflict_of(one: _Statement, other: _Statement) -> Conflict | None:
    """Returns the conflict that the first statement's hit shows; None for the newer hit."""
    mine, theirs = one.hit.moment, other.hit.moment
    are_dated = mine is not None and theirs is not None
    if are_dated and str(mine) > str(theirs):
        return None
    older = are_dated and str(mine) < str(theirs)
    value, other_value = one.claim.wording, other.claim.wording
    day = f" ({theirs[:10]})" if theirs else ""
    says = f"says {value}; {one_line(other.hit.cite, _MOST_CITE, '…')}{day} says {other_value}"
    return Conflict(
        document_id=other.hit.row.document_id,
        value=value,
        other_value=other_value,
        older=older,
        says=f"{'older' if older else 'differs'}: {says}",
    )


def _are_in_conflict(one: _Statement, other: _Statement) -> bool:
    row, another = one.hit.row, other.hit.row
    return (
        row.document_id != another.document_id
        and one.claim.differs(other.claim)
        and not (_is_foreign(another) and not _is_foreign(row))
        and _meet(row, another)
        and _are_near(row, another, is_full=one.claim.is_full)
        and _are_of_one_context(one, other)
    )


def _is_foreign(row: HitRow) -> bool:
    return row.origin in FOREIGN and row.verified_at is None


def _meet(one: HitRow, other: HitRow) -> bool:
    """Returns whether there is a time at which both are said to be true."""
    begins = max(one.valid_from or "", other.valid_from or "")
    ends = [end for end in (one.valid_to, other.valid_to) if end]
    return not ends or begins < min(ends)


def _are_near(one: HitRow, other: HitRow, *, is_full: bool) -> bool:
    """Returns whether tags and folders let both be about the same."""
    if one.tags and other.tags and set(one.tags).isdisjoint(other.tags):
        return False
    if not (one.path and other.path):
        return True
    here, there = PurePath(one.path).parent, PurePath(other.path).parent
    return here == there or (is_full and (here in there.parents or there in here.parents))


def _are_of_one_context(one: _Statement, other: _Statement) -> bool:
    row, another = one.hit.row, other.hit.row
    mine, theirs = _context(one.hit, one.claim.subject), _context(other.hit, other.claim.subject)
    if _environments(one.hit, mine) != _environments(other.hit, theirs):
        return False
    if mine == theirs or CONVERSATION in (row.type, another.type):
        return one.claim.is_full or CONVERSATION not in (row.type, another.type)
    return one.claim.is_full and ENTRY in (row.type, another.type) and not (mine and theirs)


def _context(hit: DatedHit, subject: frozenset[str]) -> frozenset[str]:
    """Returns the words of title and section that say what the text is about."""
    row = hit.row
    if row.type == CONVERSATION or (row.type == ENTRY and _names_it(row, subject)):
        return frozenset()
    text = _DATES.sub(" ", f"{row.title} {hit.section or ''}")
    return subject_of(text) - subject - _OF_TEXTS


def _names_it(row: HitRow, subject: frozenset[str]) -> bool:
    """Returns whether an entry's title is what it says."""
    return any(claim.subject == subject for claim in claims(row.title))


def _environments(hit: DatedHit, context: Iterable[str]) -> frozenset[str]:
    own = {*words_of(" ".join([*hit.row.tags, hit.row.path or ""])), *context} & _ENVIRONMENTS
    return frozenset(own | (_NAMED_IN_TEXTS & {*words_of(hit.text)}))
