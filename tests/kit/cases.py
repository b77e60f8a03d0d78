"""Runs one check over many items, so that a rule is one case that names every item that fails."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def each(items: Iterable[T], check: Callable[[T], object]) -> None:
    """Checks every item; raises a group of all failures, each with a note that names its item."""
    failures = list[Exception]()
    for item in items:
        try:
            check(item)
        except Exception as error:  # noqa: BLE001  all are raised below
            error.add_note(f"item: {item!r}")
            failures.append(error)
    if failures:
        raise ExceptionGroup(f"{len(failures)} items failed", failures)
