"""Whether a full-text index is what it should be, and whether two of them hold the same.

Owns: telling chunks apart by everything that they are indexed under.
Refuses to know: which of two indexes is right, and their files.

Tantivy can't say which words a chunk has. But a query of many words, each with a
weight of its own, scores every chunk with the sum of the weights of its words: one
number a chunk, and equal numbers for equal words.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from kbproc.views.fulltext.files import CURRENT

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kbproc.views.fulltext.search import FullTextSnapshot

_FIELDS = ("stem", "word", "kb", "any")
_BATCH = 1000
# Sums of so many such weights stay below 2²⁴, so that float32 holds them exactly.
_HEAVIEST = 16_000


def problems(snapshot: FullTextSnapshot, folder: Path) -> list[str]:
    """What is wrong with the index in this folder as it stands; empty if nothing is."""
    found = [] if (folder / CURRENT).exists() else [f"{CURRENT} is missing"]
    ids = snapshot.chunk_ids()
    if twice := len(ids) - len(set(ids)):
        found.append(f"{twice} chunks are indexed twice")
    return found


def differing_chunks(one: FullTextSnapshot, other: FullTextSnapshot) -> list[int]:
    """Chunks that only one of them holds, or that they hold under other words or show otherwise.

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
    for start in range(0, len(ids), _BATCH):
        shown = ids[start : start + _BATCH].tolist()
        rows, others_rows = one.rows(shown), other.rows(shown)
        differs[start : start + _BATCH] |= [rows[id] != others_rows[id] for id in shown]
    return [int(id) for id in ids[differs]]


def _terms(snapshot: FullTextSnapshot, field: str) -> set[str]:
    return {term for term, _ in snapshot.searcher.terms_with_prefix(field, "")}


def _sums(
    snapshot: FullTextSnapshot, ids: NDArray[np.int64], field: str, terms: list[str]
) -> NDArray[np.float64]:
    """For each chunk the sum of the weights of those of `terms` that it has."""
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
    """For each chunk its document."""
    import numpy as np
    import tantivy

    hits = snapshot.searcher.search(
        tantivy.Query.all_query(), max(1, snapshot.num_docs), count=False
    ).hits
    documents = np.zeros(len(ids), np.int64)
    at = np.searchsorted(ids, snapshot.column("chunk_id", hits))
    documents[at] = snapshot.column("document_id", hits)
    return documents
