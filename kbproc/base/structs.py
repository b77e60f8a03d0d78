"""Builds a struct from an object that has members of the same names, and cuts many into batches."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from operator import attrgetter
from typing import Any, TypeVar

from msgspec import Struct

Item = TypeVar("Item")


def common_members(
    kind: type[Struct], origin: type[Struct], *, but: Collection[str] = ()
) -> Callable[[Any], dict[str, Any]]:
    """Returns a function that takes an `origin` and returns its members that `kind` has, too.

    `but`: members that are not taken. So a member that both have is named by neither's caller.
    """
    names = [
        name
        for name in kind.__struct_fields__
        if name in origin.__struct_fields__ and name not in but
    ]
    values = attrgetter(*names)
    if len(names) == 1:  # then `values` returns the value and no tuple of one
        return lambda source: {names[0]: values(source)}
    return lambda source: dict(zip(names, values(source), strict=True))


def batches(
    items: Iterable[Item], weight: Callable[[Item], int], *, most: int
) -> Iterator[list[Item]]:
    """Yields the items in lists that weigh at most `most`; an item that weighs more is alone."""
    batch: list[Item] = []
    total = 0
    for item in items:
        weight_of_item = weight(item)
        if batch and total + weight_of_item > most:
            yield batch
            batch, total = [], 0
        batch.append(item)
        total += weight_of_item
    if batch:
        yield batch
