"""A struct is built of the members that another object has under the same names."""

from __future__ import annotations

from msgspec import Struct

from kbproc.base.structs import batches, common_members


class Row(Struct):
    id: int
    title: str
    hidden: bool


class Shown(Struct, kw_only=True):
    title: str
    id: int
    length: int = 0


def test_members_of_the_same_name_are_taken() -> None:
    take = common_members(Shown, Row)
    assert take(Row(1, "A", hidden=True)) == {"title": "A", "id": 1}
    assert Shown(**take(Row(1, "A", hidden=True)), length=2) == Shown(id=1, title="A", length=2)


def test_members_can_be_left_out() -> None:
    take = common_members(Shown, Row, but=("title",))
    assert take(Row(1, "A", hidden=True)) == {"id": 1}


def test_batches_are_as_heavy_as_they_may_be() -> None:
    """An item that weighs more than a batch may is alone in its own."""
    assert list(batches([], int, most=4)) == []
    assert list(batches([1, 3, 1, 9, 2, 2, 1], int, most=4)) == [[1, 3], [1], [9], [2, 2], [1]]
