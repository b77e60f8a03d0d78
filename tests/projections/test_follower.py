"""The follower interface, tested for the full-text index and the vector index alike."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from kbproc.engine.events import codec
from kbproc.engine.log.record import START, Position
from kbproc.engine.models.pack import VectorPack
from kbproc.engine.projections.catalog.folds import FOLDS
from kbproc.engine.projections.catalog.rows import IndexRow
from kbproc.engine.projections.follower import Follower
from kbproc.engine.projections.fulltext.index import FullText
from kbproc.engine.projections.vectors.view import Vectors

DIM = 4
Opened = tuple[Follower, Callable[[], list[int]]]  # a view, and the ids of its visible chunks


def row(chunk: int, document: int) -> IndexRow:
    return IndexRow(chunk, document, "default", "", None, f"word{chunk}")


def fulltext(folder: Path) -> Opened:
    index = FullText.open(folder)
    return index, lambda: index.snapshot().chunk_ids()


def vectors(folder: Path) -> Opened:
    pack = VectorPack.open(folder / "m.pack", dim=DIM, fingerprint=bytes(32))
    keys = [pack.key(f"word{chunk}") for chunk in range(10)]
    pack.append(keys, np.ones((10, DIM), np.float32))
    view = Vectors(folder=folder, pack=pack, string=lambda row: row.text)
    return view, lambda: sorted(view.snapshot().search(np.ones(DIM, np.float32), 99)[0].tolist())


@pytest.fixture(params=[fulltext, vectors], ids=["fulltext", "vectors"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Opened:
    result: Opened = request.param(tmp_path)
    return result


ONE, TWO, THREE = (Position(seq, f"{seq:032x}") for seq in (1, 2, 3))


def test_a_change_is_staged_then_shown(opened: Opened) -> None:
    view, ids = opened
    assert (view.position, ids()) == (START, [])
    view.apply([], [row(1, 1), row(2, 1), row(3, 2)], ONE)
    assert (view.position, ids()) == (START, [])
    view.commit()
    assert (view.position, ids()) == (ONE, [1, 2, 3])


def test_changes_are_shown_in_order(opened: Opened) -> None:
    view, ids = opened
    view.apply([], [row(1, 1), row(2, 2)], ONE)
    view.apply([1], [row(4, 1)], TWO)
    view.apply([2], [], THREE)
    view.commit()
    assert (view.position, ids()) == (THREE, [4])


def test_what_was_rolled_back_is_never_shown(opened: Opened) -> None:
    view, ids = opened
    view.apply([], [row(1, 1)], ONE)
    view.commit()
    view.apply([1], [row(2, 1)], TWO)
    view.rollback()
    view.commit()
    assert (view.position, ids()) == (ONE, [1])


def test_a_change_that_is_applied_again_changes_nothing(opened: Opened) -> None:
    view, ids = opened
    for position in (ONE, TWO):
        view.apply([1], [row(1, 1), row(2, 1)], position)
        view.commit()
    assert (view.position, ids()) == (TWO, [1, 2])


def test_a_rebuild_holds_what_it_is_given(opened: Opened) -> None:
    view, ids = opened
    view.apply([], [row(1, 1), row(2, 2)], ONE)
    view.commit()
    view.apply([], [row(3, 3)], TWO)
    view.rebuild(iter([row(5, 1)]), THREE)
    view.commit()
    assert (view.position, ids()) == (THREE, [5])
    assert view.damaged() == []


def test_every_event_has_its_line_in_the_table_of_folds() -> None:
    assert set(FOLDS) == set(codec.KINDS.values())
