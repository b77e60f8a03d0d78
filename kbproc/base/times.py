"""Moments as the store writes them: UTC, of one width, so that text order is time order."""

from __future__ import annotations

import functools
from datetime import UTC, date, datetime

from kbproc.base.errors import KbprocError

INSTANT_HINT = "Write it like 2026-01-31T12:00:00Z or 2026-01-31."
_MOST_SHOWN = 40


def instant(value: str, *, field: str) -> str:
    """Returns an RFC 3339 time or date as UTC text of the store's fixed width."""
    try:
        moment = parsed(value)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return rfc3339(round(moment.timestamp() * 1000))
    except (ValueError, OverflowError):
        raise KbprocError(
            "input.invalid_params",
            f"{field} is {value[:_MOST_SHOWN]!r}: there is no such moment.",
            field=field,
            hint=INSTANT_HINT,
        ) from None


def parsed(value: str) -> datetime:
    """Returns the moment in ISO 8601. Raises ValueError.

    It refuses the hour 24, which RFC 3339 has not and Python reads from 3.14 on.
    """
    if value[11:13] == "24":
        raise ValueError(value)
    return datetime.fromisoformat(value)


def rfc3339(epoch_ms: int) -> str:
    """Returns UTC with milliseconds and `Z`, of fixed width, so that text order is time order."""
    seconds, rest = divmod(epoch_ms, 1000)
    return f"{_second(seconds)}.{rest:03d}Z"


@functools.lru_cache(maxsize=64)
def _second(epoch_s: int) -> str:
    """Formats one second. It is cached, because formatting takes ten times as long as the rest of a
    request's use of the clock.
    """
    return datetime.fromtimestamp(epoch_s, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def dated(moment: str, now: str) -> str:
    """Returns the day of a moment and how long ago that is: 2026-03-14, 8 months ago.

    A moment after `now` gets no age, because a clock or a file's time is wrong then.
    """
    return _dated(moment[:10], now[:10])


@functools.lru_cache(maxsize=1024)
def _dated(day: str, today: str) -> str:
    days = (date.fromisoformat(today) - date.fromisoformat(day)).days
    return f"{day}, {_days_ago(days)}" if days >= 0 else day


def _days_ago(days: int) -> str:
    if days < 2:
        return ("today", "yesterday")[days]
    if days < 14:
        return f"{days} days ago"
    if days < 60:
        return f"{days // 7} weeks ago"
    if days < 730:
        return f"{round(days / 30.44)} months ago"
    return f"{round(days / 365.25)} years ago"
