"""Words in a query that say when: "yesterday", "last week", "in March".

Owns: which words these are, in English, which days they mean, and what an entry or a note from
another time counts.
Refuses to know: how scores come about otherwise.

Entries and notes have a time of their own: when they were written. Of documents it is known only
when they came in, which says nothing of what they are about.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from kbproc.search.fusion import Fused
from kbproc.store.snapshot import Snapshot

# What an entry or a note from another time counts.
ELSEWHEN = 0.8
_OF_THEIR_TIME = ("knowledge", "note")

_MONTHS = "january february march april may june july august september october november december"
_DAYS = "monday tuesday wednesday thursday friday saturday sunday"
_MONTH, _DAY = "|".join(_MONTHS.split()), "|".join(_DAYS.split())


class Period(Struct, frozen=True, kw_only=True):
    """`since` and, not included, `until`: RFC 3339 in UTC. `words`: those that say it."""

    words: str
    since: str
    until: str

    def holds(self, *moments: str) -> bool:
        return any(self.since <= moment < self.until for moment in moments)


class Told(Struct, frozen=True, kw_only=True):
    """`factor`: what the whole score of this hit was multiplied by."""

    words: str
    since: str
    until: str
    factor: float


class Times:
    """One query's period, and the factors of what it found."""

    def __init__(self, meant: Period) -> None:
        self._meant = meant
        self._factors: dict[int, float] = {}

    @classmethod
    def of(cls, query: str, now: str) -> Times | None:
        meant = period(query, now)
        return None if meant is None else cls(meant)

    def weighed(self, snapshot: Snapshot, fused: Mapping[int, Fused]) -> dict[int, Fused]:
        """Chunk id → score: of entries and notes that were written at other times, less."""
        rows = snapshot.fulltext.rows(list(fused))
        own = {id: row.document_id for id, row in rows.items() if row.type in _OF_THEIR_TIME}
        written = snapshot.queries.documents_by_id(set(own.values()))
        for id, document in own.items():
            row = written.get(document)
            is_of_it = row is not None and self._meant.holds(row.created_at, row.updated_at)
            self._factors[id] = 1.0 if is_of_it else ELSEWHEN
        return {id: one.times(self.factor(id)) for id, one in fused.items()}

    def factor(self, id: int) -> float:
        """Returns the factor of a chunk that `weighed` has seen, else 1."""
        return self._factors.get(id, 1.0)

    def told(self, id: int) -> Told | None:
        """Of an entry or a note."""
        if id not in self._factors:
            return None
        meant = self._meant
        factor = self._factors[id]
        return Told(words=meant.words, since=meant.since, until=meant.until, factor=factor)


Span = tuple[datetime, datetime]


def period(query: str, now: str) -> Period | None:
    """What the first words that say when mean at `now`; None: the query has none."""
    said = _WORD.findall(query.lower())
    if _SAY_WHEN.isdisjoint(said) and not any(word[0].isdigit() for word in said):
        return None  # nearly all queries, in a tenth of the time
    found = _WHEN.search(query)
    if found is None or found.lastgroup is None:
        return None
    day = datetime.fromisoformat(now).astimezone(UTC).replace(hour=0, minute=0, second=0)
    try:
        since, until = _MEANING[found.lastgroup](found, day.replace(microsecond=0))
    except (ValueError, OverflowError):  # a day or a year that is none
        return None
    return Period(words=found[0], since=_told(since), until=_told(until))


def _told(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.000Z")


def _day(day: datetime, back: int = 0) -> Span:
    since = day - timedelta(days=back)
    return since, since + timedelta(days=1)


def _unit(day: datetime, unit: str, back: int) -> Span:
    """The calendar's day, week, month or year, so many before this one."""
    if unit == "day":
        return _day(day, back)
    if unit == "week":
        monday = day - timedelta(days=day.weekday() + 7 * back)
        return monday, monday + timedelta(days=7)
    if unit == "month":
        months = day.year * 12 + day.month - 1 - back
        return _month(day, months // 12, months % 12 + 1)
    first = day.replace(month=1, day=1, year=day.year - back)
    return first, first.replace(year=first.year + 1)


def _month(day: datetime, year: int, month: int) -> Span:
    first = day.replace(year=year, month=month, day=1)
    return first, first.replace(year=year + month // 12, month=month % 12 + 1)


def _named_month(found: re.Match[str], day: datetime) -> Span:
    """Without a year it is the latest that has begun."""
    name, year = found["name"] or found["name2"], found["of"] or found["of2"]
    month = _MONTHS.split().index(name.lower()) + 1
    return _month(day, int(year) if year else day.year - (month > day.month), month)


def _weekday(found: re.Match[str], day: datetime) -> Span:
    """The latest before today."""
    wanted = _DAYS.split().index(found["weekday"].lower())
    return _day(day, (day.weekday() - wanted - 1) % 7 + 1)


def _number(said: str) -> int:
    few = {"a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "few": 3, "couple": 2}
    return few[said.lower()] if said.lower() in few else int(said)


def _recent(found: re.Match[str], day: datetime) -> Span:
    """So many up to now."""
    count, unit = _number(found["many"]), found["units"].lower()
    days = {"day": 1, "week": 7, "month": 30, "year": 365}[unit]
    return day - timedelta(days=count * days), day + timedelta(days=1)


_WORD = re.compile(r"[a-z]+|\d+")
_UNITS = ("day", "week", "month", "year")
_SAY_WHEN = frozenset(
    ["today", "yesterday", *_MONTHS.split(), *_DAYS.split()]
    + [form for unit in _UNITS for form in (unit, f"{unit}s")]
)
_COUNT = r"\d{1,3}|an?|one|two|three|four|few|couple"
_UNIT = "|".join(_UNITS)
_WHEN = re.compile(
    rf"\b(?:(?P<today>today)|(?P<yesterday>yesterday)"
    rf"|(?P<iso>(?P<y>\d{{4}})-(?P<m>\d\d)-(?P<d>\d\d)(?!\d))"
    rf"|(?P<ago>(?P<count>{_COUNT}) (?:of )?(?P<unit>{_UNIT})s? ago)"
    rf"|(?P<recent>(?:last|past|previous) (?P<many>{_COUNT}) (?P<units>{_UNIT})s?)"
    rf"|(?P<relative>(?P<which>this|last|past|previous) (?P<one>week|month|year))"
    rf"|(?P<weekdays>(?:last|on) (?P<weekday>{_DAY}))"
    rf"|(?P<month>(?:in|last|since|during) (?P<name>{_MONTH})(?: (?P<of>\d{{4}}))?"
    rf"|(?P<name2>{_MONTH}) (?P<of2>\d{{4}}))"
    rf"|(?P<year>in (?P<number>(?:19|20)\d\d)))\b",
    re.IGNORECASE,
)
_MEANING: dict[str, Callable[[re.Match[str], datetime], Span]] = {
    "today": lambda found, day: _day(day),
    "yesterday": lambda found, day: _day(day, 1),
    "iso": lambda found, day: _day(
        day.replace(year=int(found["y"]), month=int(found["m"]), day=int(found["d"]))
    ),
    "ago": lambda found, day: _unit(day, found["unit"].lower(), _number(found["count"])),
    "recent": _recent,
    "relative": lambda found, day: _unit(
        day, found["one"].lower(), int(found["which"].lower() != "this")
    ),
    "weekdays": _weekday,
    "month": _named_month,
    "year": lambda found, day: _unit(day, "year", day.year - int(found["number"])),
}
