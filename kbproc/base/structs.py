"""Builds a struct from an object that has members of the same names."""

from __future__ import annotations

from collections.abc import Callable, Collection
from operator import attrgetter
from typing import Any

from msgspec import Struct


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
