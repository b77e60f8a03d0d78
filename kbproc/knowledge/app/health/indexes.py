"""Checks the indexes: compares two full-text indexes, and the vectors with catalog and pack.

Tantivy has no list of a chunk's words. But a query of many words, each with a weight of its own,
scores every chunk with the sum of the weights of its words: one number per chunk, and equal
numbers for equal words.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from kbproc.base.wording import plural
from kbproc.engine.projections.catalog.rows import IndexRow
from kbproc.engine.projections.fulltext.files import CURRENT

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kbproc.engine.projections.fulltext.search import FullTextSnapshot
    from kbproc.engine.projections.vectors.search import VectorSnapshot
    from kbproc.engine.projections.vectors.view import Vectors
    from kbproc.engine.projections.vectors.waiting import VectorRow


_FIELDS = ("stem", "head", "word", "name", "file", "folder", "kb", "any")
_BATCH = 1000
# Sums of `_BATCH` such weights stay below 2²⁴, so that float32 holds them exactly.
_HEAVIEST = 16_000


# ------------------------------------------------------------------ full text


def fulltext_problems(snapshot: FullTextSnapshot, folder: Path) -> list[str]:
    """Returns the problems of the index in this folder; empty if there are none."""
    messages = [] if (folder / CURRENT).exists() else [f"{CURRENT} is missing"]
    ids = snapshot.chunk_ids()
    if twice := len(ids) - len(set(ids)):
        messages.append(f"{plural(twice, 'chunk')} indexed twice")
    return messages


def differing_chunks(one: FullTextSnapshot, other: FullTextSnapshot) -> list[int]:
    """Returns chunks that only one index holds, or whose documents, words or labels differ.

    Positions within a text and BM25's statistics are not compared.
    """
    import numpy as np

    ids, others = np.array(one.chunk_ids(), np.int64), np.array(other.chunk_ids(), np.int64)
    if not np.array_equal(ids, others):
        return [int(id) for id in np.setxor1d(ids, others)] or [int(ids[0])]
    differs = _documents(one, ids) != _documents(other, ids)
    for field in _FIELDS:
        terms = sorted(_terms(one, field) | _terms(other, field))
        for start in range(0, len(terms), _BATCH):
            batch = terms[start : start + _BATCH]
            differs |= _sums(one, ids, field, batch) != _sums(other, ids, field, batch)
    return [int(id) for id in ids[differs]]


def _terms(snapshot: FullTextSnapshot, field: str) -> set[str]:
    return {term for term, _ in snapshot.searcher.terms_with_prefix(field, "")}


def _sums(
    snapshot: FullTextSnapshot, ids: NDArray[np.int64], field: str, terms: list[str]
) -> NDArray[np.float64]:
    """Returns for each chunk the sum of the weights of its words among `terms`."""
    import numpy as np
    import tantivy

    term_query, const = tantivy.Query.term_query, tantivy.Query.const_score_query
    clauses = [
        (
            tantivy.Occur.Should,
            const(
                term_query(snapshot.schema, field, term, "basic"),
                1 + zlib.crc32(term.encode()) % _HEAVIEST,
            ),
        )
        for term in terms
    ]
    query = tantivy.Query.boolean_query(clauses)
    hits = snapshot.searcher.search(query, max(1, snapshot.num_docs), count=False).hits
    sums = np.zeros(len(ids))
    sums[np.searchsorted(ids, snapshot.column("chunk_id", hits))] = [hit[0] for hit in hits]
    return sums


def _documents(snapshot: FullTextSnapshot, ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the document of each chunk."""
    import numpy as np
    import tantivy

    hits = snapshot.searcher.search(
        tantivy.Query.all_query(), max(1, snapshot.num_docs), count=False
    ).hits
    documents = np.zeros(len(ids), np.int64)
    at = np.searchsorted(ids, snapshot.column("chunk_id", hits))
    documents[at] = snapshot.column("document_id", hits)
    return documents


# ------------------------------------------------------------------ vectors


def vector_differences(view: Vectors, rows: Iterable[IndexRow]) -> list[str]:
    """Returns the differences in words. `rows`: the catalog's live rows at the index's position."""
    from kbproc.engine.projections.vectors.waiting import VectorRow, keyed

    state, waiting = view.contents()
    pending = {row.chunk_id: row for row in waiting}
    names = {code: kb for kb, code in state.kb_codes.items()}
    have = {
        chunk: VectorRow(chunk, document, names[kb], view.pack.key_at(row))
        for chunk, document, kb, row in state.slots[state.alive].tolist()
    }
    have |= {chunk: replace(row, seq=0) for chunk, row in pending.items()}
    want = {row.chunk_id: row for row in keyed(rows, view.key)}
    late = sorted(chunk for chunk, row in pending.items() if view.pack.has(row.key))
    return [
        *_compared(have, want),
        *(f"chunk {chunk} is pending, although its vector is in the pack" for chunk in late),
        *(
            f"chunk {chunk} has a vector that is not the one in the pack"
            for chunk in _strays(state)
        ),
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
    """Returns the chunks of the flat tail whose vector in use is not that of the pack."""
    import numpy as np

    from kbproc.engine.models.exact import units

    first = len(state.slots) - len(state.tail)
    vectors = units(state.pack, state.slots["row"][first:])
    wrong = np.flatnonzero((vectors != state.tail).any(axis=1))
    chunks: list[int] = state.slots["chunk"][first:][wrong].tolist()
    return chunks
