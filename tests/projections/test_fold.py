"""Folding many records at once leaves the same rows as folding them one by one."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from kbproc.engine.log.record import Record
from kbproc.engine.projections.catalog.catalog import Catalog
from tests.kit.catalogs import reading
from tests.kit.steps import conversations, records, steps, talks


def digest(folder: Path, name: str, batches: Sequence[Sequence[Record]]) -> str:
    catalog = Catalog(folder / name)
    try:
        for batch in batches:
            catalog.apply(batch)
        catalog.commit()
        with reading(catalog) as queries:
            return queries.digest()
    finally:
        catalog.close()
        (folder / name).unlink()


@given(steps, st.integers(0, 40))
def test_many_at_once_are_as_one_by_one(sequence: list[tuple[str, int, int]], cut: int) -> None:
    written = records([step for step in sequence if step[0] != "s" or step[1] < step[2]])
    with tempfile.TemporaryDirectory() as folder:
        one = digest(Path(folder), "one.sqlite", [[record] for record in written])
        batches = [written[:cut], written[cut:]]
        assert digest(Path(folder), "all.sqlite", batches) == one


@given(talks)
def test_many_answers_at_once_are_as_one_by_one(sequence: list[tuple[str, int]]) -> None:
    written = conversations(sequence)
    with tempfile.TemporaryDirectory() as folder:
        one = digest(Path(folder), "one.sqlite", [[record] for record in written])
        assert digest(Path(folder), "all.sqlite", [written]) == one
