"""Lean answers: only the members that a caller wants, and no more than fits.

Owns: the names that `fields` takes, what is left of an answer, and how many items a budget
of tokens holds.
Refuses to know: what any method answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from kbproc.base.errors import KbprocError
from kbproc.base.params import LeanParams, Params, structs_in, type_at
from kbproc.base.suggest import nearest

# JSON of prose takes some four bytes a token, JSON of numbers and names fewer.
BYTES_PER_TOKEN = 3
# The member that holds the items, where an answer is more than a list.
_ITEMS = "results"

Tree = dict[str, "Tree"]


def is_lean(params: object) -> bool:
    """Whether members are to be left out."""
    return isinstance(params, LeanParams) and bool(params.fields or params.left_out())


def check_fields(params: object, result: Any) -> None:
    """Raises input.invalid_params for a name that no member of the `result` type has."""
    if not isinstance(params, LeanParams) or not params.fields:
        return
    item = type_at(result, f".{_ITEMS}") or result
    for index, name in enumerate(params.fields):
        if type_at(item, f".{name}") is None:
            above, _, last = name.rpartition(".")
            known = _names(type_at(item, f".{above}") if above else item)
            near = nearest(last, known) or known[:20]
            raise KbprocError(
                "input.invalid_params",
                f"No item of the answer has a member {name!r}.",
                field=f"$.params.fields[{index}]",
                valid_values=[f"{above}.{one}" if above else one for one in near],
            )


def _names(annotation: Any) -> list[str]:
    return [name for struct in structs_in(annotation) for name in struct.__struct_fields__]


def lean(params: LeanParams, data: Any) -> Any:
    """`data` with the members that are wanted; of those, null ones are left out."""
    value = msgspec.to_builtins(data)
    tree = _tree(params.fields) if params.fields else None
    if isinstance(value, dict) and isinstance(value.get(_ITEMS), list):
        return {**value, _ITEMS: _kept(value[_ITEMS], tree, params.left_out())}
    return _kept(value, tree, params.left_out())


def _tree(names: Iterable[str]) -> Tree:
    tree: Tree = {}
    for name in names:
        at = tree
        for step in name.split("."):
            at = at.setdefault(step, {})
    return tree


def _kept(value: Any, tree: Tree | None, left_out: frozenset[str]) -> Any:
    """`tree` None: all members but those left out."""
    if isinstance(value, list):
        return [_kept(item, tree, left_out) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        name: _kept(member, tree[name] or None if tree else None, frozenset())
        for name, member in value.items()
        if member is not None and (name in tree if tree else name not in left_out)
    }


def fitting(params: Params, budget: int | None, items: Sequence[Any]) -> int:
    """How many of `items` a budget of tokens holds: the first one in any case."""
    if budget is None:
        return len(items)
    room = budget * BYTES_PER_TOKEN
    for count, item in enumerate(items):
        shown = lean(params, item) if isinstance(params, LeanParams) and is_lean(params) else item
        room -= len(msgspec.json.encode(shown)) + 1
        if room < 0 and count:
            return count
    return len(items)


def cut(text: str, budget: int | None) -> str:
    """As much of the beginning of `text` as a budget of tokens holds, one character at least."""
    if budget is None:
        return text
    room = budget * BYTES_PER_TOKEN
    return text.encode()[:room].decode("utf-8", "ignore") or text[:1]
