"""Reads moments in a person's words: yesterday, monday 9:30, 2 hours ago.

A day's word means the beginning of that day in local time, as a date does; "ago" counts
back from now.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from kbproc.base.patterns import lazy

_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_NUMBERS = {"a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6}
_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 7 * 86400}
_MONTHS = {"month": 1, "year": 12}
_UNIT = "|".join((*_SECONDS, *_MONTHS))
_COUNT = "|".join((r"\d{1,6}", *_NUMBERS))
_SPAN = lazy(
    rf"(?:(?P<count>{_COUNT}) (?P<unit>{_UNIT})s? ago"
    rf"|in (?P<to_come>{_COUNT}) (?P<next>{_UNIT})s?"
    rf"|last (?P<last>week|month|year))"
)
_DAY = lazy(
    rf"(?:(?:last |on )?(?P<weekday>{'|'.join(_DAYS)})|(?P<word>today|yesterday|tomorrow))?"
    r"(?:(?: at)? ?(?P<hour>\d{1,2}):(?P<minute>\d\d))?"
)
EXAMPLES = "yesterday, monday 9:30, 2 hours ago"


def moment(words: str, now: datetime) -> str | None:
    """Returns the moment as RFC 3339 in UTC; None for other words. `now`: in local time."""
    text = " ".join(words.lower().split())
    try:
        if text == "now":
            instant: datetime | None = now
        elif (span := _SPAN.fullmatch(text)) is not None:
            instant = _away(span, now)
        else:
            day = _DAY.fullmatch(text) if text else None
            instant = None if day is None else _on_day(day, now)
    except (ValueError, OverflowError):  # because no such time or year exists
        return None
    if instant is None:
        return None
    return instant.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _away(match: re.Match[str], now: datetime) -> datetime:
    if match["last"]:
        return _moved(now, -1, match["last"])
    if match["unit"]:
        return _moved(now, -_number(match["count"]), match["unit"])
    return _moved(now, _number(match["to_come"]), match["next"])


def _number(word: str) -> int:
    return _NUMBERS[word] if word in _NUMBERS else int(word)


def _moved(now: datetime, count: int, unit: str) -> datetime:
    if unit in _SECONDS:
        return now + timedelta(seconds=count * _SECONDS[unit])
    months = now.year * 12 + now.month - 1 + count * _MONTHS[unit]
    first = now.replace(year=months // 12, month=months % 12 + 1, day=1)
    last = (first + timedelta(days=31)).replace(day=1) - timedelta(days=1)
    return first.replace(day=min(now.day, last.day), tzinfo=None).astimezone()


def _on_day(match: re.Match[str], now: datetime) -> datetime:
    """Returns the moment on a day; a weekday is the latest one before today."""
    days = {"yesterday": -1, "tomorrow": 1}.get(match["word"] or "", 0)
    if match["weekday"]:
        days = -((now.weekday() - _DAYS.index(match["weekday"]) - 1) % 7 + 1)
    day = now.date() + timedelta(days=days)
    hour, minute = int(match["hour"] or 0), int(match["minute"] or 0)
    return datetime(day.year, day.month, day.day, hour, minute).astimezone()
