"""Remembers which documents met the latest filters.

A search needs the ids of all documents that meet its filter, and many may. SQLite takes 40 to 120
ms for 100,000 of them, so a list is kept and brought up to date by the documents that have changed.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

if TYPE_CHECKING:
    from kbproc.engine.projections.catalog.filters import DocumentFilter
    from kbproc.engine.projections.catalog.queries import Queries
    from kbproc.engine.projections.catalog.reader import Sight
    from kbproc.engine.projections.catalog.rows import Ids

_MOST = 16  # lists, of 8 bytes for each document
_MOST_CHANGED = 1000  # documents that are looked up singly

_Key = tuple["Sight", str]


class _List(Struct, frozen=True):
    """The sorted ids of the documents that met a filter at a position."""

    seq: int
    ids: Ids


class DocumentLists:
    """The documents of the latest filters and Sights, for all readers of one catalog."""

    def __init__(self) -> None:
        self._lists: OrderedDict[_Key, _List] = OrderedDict()
        self._lock = threading.Lock()

    def ids(self, queries: Queries, filter: DocumentFilter, seq: int) -> Ids:
        """Returns the sorted ids of the documents that meet the filter, in the catalog at `seq`."""
        if filter.ids is not None:  # they are few, and of one request
            return queries.document_ids(filter)
        key = (queries.sight, repr(filter))
        with self._lock:
            earlier = self._lists.get(key)
        if earlier is not None and earlier.seq == seq:
            ids = earlier.ids
        else:
            ids = self._up_to_date(queries, filter, earlier, seq)
        with self._lock:
            if key not in self._lists or self._lists[key].seq < seq:
                self._lists[key] = _List(seq, ids)
            self._lists.move_to_end(key)
            while len(self._lists) > _MOST:
                self._lists.popitem(last=False)
        return ids

    def _up_to_date(
        self, queries: Queries, filter: DocumentFilter, earlier: _List | None, seq: int
    ) -> Ids:
        if earlier is None or earlier.seq > seq:
            return queries.document_ids(filter)
        changed = list(queries.touched_since(earlier.seq))
        if len(changed) > _MOST_CHANGED:
            return queries.document_ids(filter)
        import numpy as np  # not above: most searches need none

        same = earlier.ids[np.isin(earlier.ids, changed, invert=True)]
        matches = queries.document_ids(replace(filter, ids=changed))
        return np.insert(same, np.searchsorted(same, matches), matches)
