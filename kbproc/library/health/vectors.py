"""Whether the vector view holds what it should.

Owns: comparing it with the catalog's rows and with the pack, in words.
Refuses to know: its files, and what is done about a difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from kbproc.views.catalog.rows import IndexRow

if TYPE_CHECKING:
    from kbproc.views.vectors.search import VectorSnapshot
    from kbproc.views.vectors.view import Vectors
    from kbproc.views.vectors.waiting import VectorRow


def differences(view: Vectors, rows: Iterable[IndexRow]) -> list[str]:
    """`rows`: all live ones of the catalog, at the view's position."""
    from kbproc.views.vectors.waiting import VectorRow, keyed

    state, waiting = view.contents()
    pending = {row.chunk_id: row for row in waiting}
    names = {code: kb for kb, code in state.kb_codes.items()}
    have = {
        chunk: VectorRow(chunk, document, names[kb], view.pack.key_at(row))
        for chunk, document, kb, row in state.slots[state.alive].tolist()
    }
    have |= {chunk: row._replace(seq=0) for chunk, row in pending.items()}
    want = {row.chunk_id: row for row in keyed(rows, view.key)}
    late = sorted(chunk for chunk, row in pending.items() if view.pack.has(row.key))
    return [
        *_compared(have, want),
        *(f"chunk {chunk} is pending though its vector is there" for chunk in late),
        *(f"chunk {chunk} has another vector than the pack" for chunk in _strays(state)),
    ]


def _compared(have: dict[int, VectorRow], want: dict[int, VectorRow]) -> Iterator[str]:
    for chunk in sorted(want.keys() - have.keys()):
        yield f"chunk {chunk} is missing"
    for chunk in sorted(have.keys() - want.keys()):
        yield f"chunk {chunk} should not be there"
    for chunk in sorted(want.keys() & have.keys()):
        if want[chunk] != have[chunk]:
            yield f"chunk {chunk} differs"


def _strays(state: VectorSnapshot) -> list[int]:
    """Chunks of the flat tail whose vector in use is not that of the pack."""
    import numpy as np

    from kbproc.models.exact import units

    first = len(state.slots) - len(state.tail)
    vectors = units(state.pack, state.slots["row"][first:])
    wrong = np.flatnonzero((vectors != state.tail).any(axis=1))
    chunks: list[int] = state.slots["chunk"][first:][wrong].tolist()
    return chunks
