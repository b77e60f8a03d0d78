"""Finds words in a query that name a time, such as "yesterday", "last week" or "in March".

The words are English. An entry or a note from another time gets a lower score: it has a time of its
own, when it was written. So has a turn of a conversation, whose section names it. Another document
has none, because the time of its ingest says nothing about its content.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from kbproc.base.patterns import lazy
from kbproc.base.text.query import parse_query
from kbproc.engine.events.document import CONVERSATION
from kbproc.engine.projections.catalog.rows import HitRow, marks_of
from kbproc.knowledge.search.fusion import Fused

# The factor of the score of an entry or a note from another time.
ELSEWHEN = 0.8
TIMED_TYPES = frozenset(["knowledge", "note", CONVERSATION])

_MONTHS = "january february march april may june july august september october november december"
_DAYS = "monday tuesday wednesday thursday friday saturday sunday"
_MONTH, _DAY = "|".join(_MONTHS.split()), "|".join(_DAYS.split())


class Period(Struct, frozen=True, kw_only=True):
    """The time that a query names, from `since` to before `until`, both RFC 3339 in UTC.

    `words`: the query's words for it. `is_relative`: they depend on the day on which they are said,
    and are several, such as "last week".
    """

    words: str
    since: str
    until: str
    is_relative: bool = False

    def holds(self, *moments: str) -> bool:
        return any(self.since <= moment < self.until for moment in moments)

    def timeless(self, query: str) -> str:
        """Returns the query without words such as "last week", which no text of that week holds.

        A quoted query, and one without other words, stay as they are.
        """
        if not self.is_relative or parse_query(query).phrases:
            return query
        rest = re.sub(rf"\b{re.escape(self.words)}\b", " ", query, count=1)
        parsed = parse_query(rest)
        return rest if parsed.terms and parsed.tells else query


class TimeFactor(Struct, frozen=True, kw_only=True):
    """The factor of a hit's whole score, with the period that it follows from."""

    words: str
    since: str
    until: str
    factor: float


class Times:
    """The period that a query names, and the factors of its hits."""

    def __init__(self, period: Period) -> None:
        self.period = period
        self._factors: dict[int, float] = {}

    @classmethod
    def of(cls, query: str, now: str) -> Times | None:
        named_period = period(query, now)
        return None if named_period is None else cls(named_period)

    def weighed(self, rows: Mapping[int, HitRow], fused: Mapping[int, Fused]) -> dict[int, Fused]:
        """Returns chunk id → score, lower for entries, notes and turns from other times."""
        for id, row in rows.items():
            if moments := _moments(row):
                self._factors[id] = 1.0 if self.period.holds(*moments) else ELSEWHEN
        return {id: score.times(self.factor(id)) for id, score in fused.items()}

    def factor(self, id: int) -> float:
        """Returns the factor of a chunk that `weighed` has seen, else 1."""
        return self._factors.get(id, 1.0)

    def explanation(self, id: int) -> TimeFactor | None:
        """Returns the factor of a chunk that has a time, with its reason; None for others."""
        if id not in self._factors:
            return None
        period = self.period
        factor = self._factors[id]
        return TimeFactor(words=period.words, since=period.since, until=period.until, factor=factor)


def _moments(row: HitRow) -> list[str]:
    """Returns the times of an entry or a note, or of the turns in a chunk of a conversation."""
    if row.type not in TIMED_TYPES:
        return []
    if row.type != CONVERSATION:
        return [row.created_at, row.updated_at]
    sections = {row.section, *(mark.section for mark in marks_of(row.marks))}
    return [moment for section in sections if (moment := said_in(section)) is not None]


def said_in(section: str | None) -> str | None:
    """Returns the time of the turn that a section of a conversation names; None without one."""
    match = _TURN.match(section) if section else None
    return f"{match['day']}T{match['time'] or '12:00'}:00.000Z" if match else None


# The section of a turn; see engine.sources.parse.conversation.
_TURN = lazy(r"(?P<day>\d{4}-\d\d-\d\d)(?: > turn \d+, (?P<time>\d\d:\d\d))?")
Span = tuple[datetime, datetime]


def period(query: str, now: str) -> Period | None:
    """Returns the period that a query's first words for a time mean at `now`; None without any."""
    words = _WORD.findall(query.lower())
    if _SAY_WHEN.isdisjoint(words) and not any(word[0].isdigit() for word in words):
        return None  # so that nearly all queries take a tenth of the time
    match = _WHEN.search(query)
    if match is None or match.lastgroup is None:
        return None
    day = datetime.fromisoformat(now).astimezone(UTC).replace(hour=0, minute=0, second=0)
    try:
        since, until = _MEANING[match.lastgroup](match, day.replace(microsecond=0))
    except (ValueError, OverflowError):  # there is no such day or year
        return None
    return Period(
        words=match[0],
        since=_timestamp(since),
        until=_timestamp(until),
        is_relative=match.lastgroup in _RELATIVE,
    )


def _timestamp(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.000Z")


def _day(day: datetime, back: int = 0) -> Span:
    since = day - timedelta(days=back)
    return since, since + timedelta(days=1)


def _unit(day: datetime, unit: str, back: int) -> Span:
    """Returns the calendar day, week, month or year `back` units before the current one."""
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


def _named_month(match: re.Match[str], day: datetime) -> Span:
    """Returns the named month; without a year, the latest one that has begun."""
    name, year = match["name"] or match["name2"], match["of"] or match["of2"]
    month = _MONTHS.split().index(name.lower()) + 1
    return _month(day, int(year) if year else day.year - (month > day.month), month)


def _weekday(match: re.Match[str], day: datetime) -> Span:
    """Returns the latest such weekday before today."""
    weekday = _DAYS.split().index(match["weekday"].lower())
    return _day(day, (day.weekday() - weekday - 1) % 7 + 1)


def _number(word: str) -> int:
    counts = {"a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "few": 3, "couple": 2}
    return counts[word.lower()] if word.lower() in counts else int(word)


def _recent(match: re.Match[str], day: datetime) -> Span:
    """Returns the last days, weeks, months or years up to the end of today."""
    count, unit = _number(match["many"]), match["units"].lower()
    days = {"day": 1, "week": 7, "month": 30, "year": 365}[unit]
    return day - timedelta(days=count * days), day + timedelta(days=1)


_WORD = re.compile(r"[a-z]+|\d+")
_RELATIVE = ("ago", "recent", "relative")
_UNITS = ("day", "week", "month", "year")
_SAY_WHEN = frozenset(
    ["today", "yesterday", *_MONTHS.split(), *_DAYS.split()]
    + [form for unit in _UNITS for form in (unit, f"{unit}s")]
)
_COUNT = r"\d{1,3}|an?|one|two|three|four|few|couple"
_UNIT = "|".join(_UNITS)
_WHEN = lazy(
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
    "today": lambda match, day: _day(day),
    "yesterday": lambda match, day: _day(day, 1),
    "iso": lambda match, day: _day(
        day.replace(year=int(match["y"]), month=int(match["m"]), day=int(match["d"]))
    ),
    "ago": lambda match, day: _unit(day, match["unit"].lower(), _number(match["count"])),
    "recent": _recent,
    "relative": lambda match, day: _unit(
        day, match["one"].lower(), int(match["which"].lower() != "this")
    ),
    "weekdays": _weekday,
    "month": _named_month,
    "year": lambda match, day: _unit(day, "year", day.year - int(match["number"])),
}
