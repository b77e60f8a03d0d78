"""Whether two full-text indexes hold the same.

Owns: telling chunks apart by everything that they are indexed under, and the checksums
that tantivy writes at the end of its files and never looks at again.
Refuses to know: which of two indexes is right.

Tantivy can't say which words a chunk has. But a query of many words, each with a
weight of its own, scores every chunk with the sum of the weights of its words: one
number a chunk, and equal numbers for equal words.
"""

from __future__ import annotations

import json
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import tantivy
from numpy.typing import NDArray
from tantivy import Occur

from kbproc.views.fulltext.search import FullTextSnapshot

_FIELDS = ("stem", "word", "kb", "any")
_BATCH = 1000
# Sums of so many such weights stay below 2²⁴, so that float32 holds them exactly.
_HEAVIEST = 16_000
_PARTS = (".idx", ".pos", ".term", ".store", ".fast", ".fieldnorm")
_MAGIC = (1337).to_bytes(4, "little")


def differing_chunks(one: FullTextSnapshot, other: FullTextSnapshot) -> list[int]:
    """Chunks that only one of them holds, or that they hold under other words.

    Positions within a text and BM25's statistics are not compared.
    """
    ids, others = one.chunk_ids(), other.chunk_ids()
    if not np.array_equal(ids, others):
        return [int(id) for id in np.setxor1d(ids, others)] or [int(ids[0])]
    differs = _documents(one, ids) != _documents(other, ids)
    for field in _FIELDS:
        terms = sorted(_terms(one, field) | _terms(other, field))
        for start in range(0, len(terms), _BATCH):
            batch = terms[start : start + _BATCH]
            differs |= _sums(one, ids, field, batch) != _sums(other, ids, field, batch)
    return [int(id) for id in ids[differs]]


def sealed(current: dict[str, Any]) -> dict[str, Any]:
    """What `current.json` says, with a checksum of it."""
    return {**current, "check": _checksum(current)}


def is_sealed(current: dict[str, Any]) -> bool:
    said = {name: value for name, value in current.items() if name != "check"}
    return current.get("check") == _checksum(said)


def _checksum(said: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(said, sort_keys=True).encode())


def schema_sum(folder: Path) -> int:
    """Of the schema as the index in `folder` has it; raises OSError, ValueError, KeyError."""
    schema = json.loads((folder / "meta.json").read_bytes())["schema"]
    return zlib.crc32(json.dumps(schema, sort_keys=True).encode())


def damaged_files(folder: Path) -> list[str]:
    """The index's files, in `folder`, that are missing or fail their checksum.

    A file ends with a JSON footer that holds the crc32 of what comes before, the
    footer's length and a magic number, 4 bytes each.
    """
    try:
        meta = json.loads((folder / "meta.json").read_bytes())
        wanted = [name for segment in meta["segments"] for name in _names(segment)]
    except (OSError, ValueError, KeyError, TypeError):
        return ["meta.json"]
    versions = {name: _version(folder / name) for name in wanted}
    # One tantivy wrote them all: a footer that says something else has rotted.
    usual = Counter(filter(None, versions.values())).most_common(1)
    return [name for name in wanted if not usual or versions[name] != usual[0][0]]


def _terms(snapshot: FullTextSnapshot, field: str) -> set[str]:
    return {term for term, _ in snapshot.searcher.terms_with_prefix(field, "")}


def _sums(
    snapshot: FullTextSnapshot, ids: NDArray[np.int64], field: str, terms: list[str]
) -> NDArray[np.float64]:
    """For each chunk the sum of the weights of those of `terms` that it has."""
    term_query, const = tantivy.Query.term_query, tantivy.Query.const_score_query
    clauses = [
        (
            Occur.Should,
            const(
                term_query(snapshot._schema, field, term, "basic"),
                1 + zlib.crc32(term.encode()) % _HEAVIEST,
            ),
        )
        for term in terms
    ]
    query = tantivy.Query.boolean_query(clauses)
    hits = snapshot.searcher.search(query, max(1, snapshot.num_docs), count=False).hits
    sums = np.zeros(len(ids))
    sums[np.searchsorted(ids, snapshot._column("chunk_id", hits))] = [hit[0] for hit in hits]
    return sums


def _documents(snapshot: FullTextSnapshot, ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each chunk its document."""
    hits = snapshot.searcher.search(
        tantivy.Query.all_query(), max(1, snapshot.num_docs), count=False
    ).hits
    documents = np.zeros(len(ids), np.int64)
    at = np.searchsorted(ids, snapshot._column("chunk_id", hits))
    documents[at] = snapshot._column("document_id", hits)
    return documents


def _names(segment: dict[str, object]) -> list[str]:
    stem = str(segment["segment_id"]).replace("-", "")
    deletes = segment.get("deletes")
    gone = [f"{stem}.{deletes['opstamp']}.del"] if isinstance(deletes, dict) else []
    return [stem + part for part in _PARTS] + gone


def _version(path: Path) -> str | None:
    """What a sound file's footer says beside its checksum; None if the file is not sound."""
    try:
        data = path.read_bytes()
        length = int.from_bytes(data[-8:-4], "little")
        body = memoryview(data)[: -8 - length]
        footer = json.loads(data[-8 - length : -8])
        if data[-4:] != _MAGIC or zlib.crc32(body) != footer.pop("crc"):
            return None
        return json.dumps(footer)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
