"""Compares the stores of a file of tests with what their logs give."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import msgspec

from kbproc.engine.projections.catalog.catalog import Catalog
from kbproc.engine.store.store import Store
from kbproc.knowledge.app.health import doctor
from tests.kit.patience import LONG

Step = tuple[str, ...]


class _Kind(msgspec.Struct):
    type: str


_kinds = msgspec.json.Decoder(list[_Kind])


class Rebuilds:
    """The comparisons of one file of tests.

    A projection is a fold of the log: what it does depends on the event and on the state that
    earlier events have made. So a store is rebuilt and compared only if its log has a step that no
    store before it had: a method with the events of its record, or an event right after another.
    The long profile compares every store.
    """

    def __init__(self, bench: Catalog) -> None:
        self._bench = bench
        self._steps: set[Step] = set()

    def check(self, store: Store) -> bool:
        """Asserts that the projections equal what the log gives; returns False where it did not
        look, because the file's earlier stores had all steps of this one.
        """
        steps = set(_steps(store))
        if steps <= self._steps and not LONG:
            return False
        comparison = doctor.compare(store, self._bench)
        assert not any(comparison.values()), f"a rebuild of {store.folder} differs: {comparison}"
        self._steps |= steps
        return True


def _steps(store: Store) -> Iterator[Step]:
    before = ""
    for record in store.log.read(0, store.log.head.seq):
        kinds = [kind.type for kind in _kinds.decode(record.events)]
        yield (record.method, "", *sorted(set(kinds)))
        yield from pairwise([before, *kinds])
        before = kinds[-1] if kinds else before
