"""Shows a turn with the turns before and after it, because a question or its answer says more.

They are shown with a hit and are none: as hits of their own they would displace better ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import structs

from kbproc.engine.events.document import CONVERSATION
from kbproc.engine.projections.catalog.rows import HitRow
from kbproc.knowledge.search.hits import Hit

_GAP = "\n\n"


def neighbour_ids(hits: Sequence[Hit]) -> list[int]:
    """Returns the ids of the chunks beside those hits that are passages of conversations."""
    turns = [hit.chunk_id for hit in hits if hit.source.type == CONVERSATION]
    return sorted({at for id in turns for at in (id - 1, id + 1)} - {hit.chunk_id for hit in hits})


def with_neighbours(hits: Sequence[Hit], rows: Mapping[int, HitRow], room: int) -> list[Hit]:
    """Returns the hits with the passages before and after each, as far as the room allows.

    The best hits come first, and each passage is shown once and whole.
    """
    unseen = dict(rows)
    longer_hits = []
    for hit in hits:
        texts = [hit.text]
        for step in (1, -1):
            row = unseen.get(hit.chunk_id + step)
            if row is None or (row.document_id, row.idx) != _place(hit, step):
                continue
            if len(row.text) + len(_GAP) <= room:
                room -= len(row.text) + len(_GAP)
                texts.insert(len(texts) if step > 0 else 0, unseen.pop(row.chunk_id).text)
        longer_hits.append(structs.replace(hit, text=_GAP.join(texts)) if len(texts) > 1 else hit)
    return longer_hits


def _place(hit: Hit, step: int) -> tuple[int, int]:
    return hit.source.document_id, hit.source.chunk_index + step
