"""What the store asks of a view that follows it, of full text and of vectors alike."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from kbproc.events import codec
from kbproc.log.record import START, Position
from kbproc.models.pack import VectorPack
from kbproc.views.catalog.fold import FOLDS
from kbproc.views.catalog.rows import IndexRow
from kbproc.views.follower import Follower
from kbproc.views.fulltext.index import FullText
from kbproc.views.vectors.view import Vectors

DIM = 4
Opened = tuple[Follower, Callable[[], list[int]]]  # with what it finds: ids of chunks


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
    made: Opened = request.param(tmp_path)
    return made


ONE, TWO, THREE = (Position(seq, f"{seq:032x}") for seq in (1, 2, 3))


def test_a_change_is_staged_then_shown(opened: Opened) -> None:
    view, found = opened
    assert (view.position, found()) == (START, [])
    view.apply([], [row(1, 1), row(2, 1), row(3, 2)], ONE)
    assert (view.position, found()) == (START, [])
    view.commit()
    assert (view.position, found()) == (ONE, [1, 2, 3])


def test_changes_are_shown_in_order(opened: Opened) -> None:
    view, found = opened
    view.apply([], [row(1, 1), row(2, 2)], ONE)
    view.apply([1], [row(4, 1)], TWO)
    view.apply([2], [], THREE)
    view.commit()
    assert (view.position, found()) == (THREE, [4])


def test_what_was_rolled_back_is_never_shown(opened: Opened) -> None:
    view, found = opened
    view.apply([], [row(1, 1)], ONE)
    view.commit()
    view.apply([1], [row(2, 1)], TWO)
    view.rollback()
    view.commit()
    assert (view.position, found()) == (ONE, [1])


def test_a_change_that_is_applied_again_changes_nothing(opened: Opened) -> None:
    view, found = opened
    for position in (ONE, TWO):
        view.apply([1], [row(1, 1), row(2, 1)], position)
        view.commit()
    assert (view.position, found()) == (TWO, [1, 2])


def test_a_rebuild_holds_what_it_is_given(opened: Opened) -> None:
    view, found = opened
    view.apply([], [row(1, 1), row(2, 2)], ONE)
    view.commit()
    view.apply([], [row(3, 3)], TWO)
    view.rebuild(iter([row(5, 1)]), THREE)
    view.commit()
    assert (view.position, found()) == (THREE, [5])
    assert view.damaged() == []


def test_every_event_has_its_line_in_the_table_of_folds() -> None:
    assert set(FOLDS) == set(codec.KINDS.values())
