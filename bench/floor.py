"""The floors as programs: a bare echo, and a bare search over the same parts.

Run as children, so that product and floor both answer over pipes. Owns: what
is left when the product is taken away: no validation, no threads, no snippets,
no snapshot, no typed answer. Refuses to know: kbproc, but for the embedder,
which is the same.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

LIMIT = 10
POOL = 200  # of both channels, as hybrid search ranks them


def echo(line: bytes) -> bytes:
    return line


def serve(answer: Callable[[bytes], bytes]) -> None:
    for line in sys.stdin.buffer:
        sys.stdout.buffer.write(answer(line))
        sys.stdout.buffer.flush()


class Search:
    """Top-k of tantivy, with FAISS if an embedder is given, and rows from DuckDB."""

    def __init__(self, folder: Path, embedder: Any) -> None:
        import duckdb
        import tantivy

        self._embedder = embedder
        self._db = duckdb.connect(
            str(folder / "catalog-000001.duckdb"), read_only=True, config={"threads": 1}
        )
        generation = json.loads((folder / "fulltext" / "current.json").read_text())["generation"]
        self._index = tantivy.Index.open(str(folder / "fulltext" / generation))
        self._searcher = self._index.searcher()
        stemmer = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.whitespace())
        self._stem = stemmer.filter(tantivy.Filter.stemmer("english")).build().analyze
        if embedder is not None:
            self._load_vectors(folder)

    def _load_vectors(self, folder: Path) -> None:
        import faiss
        import numpy as np

        faiss.omp_set_num_threads(1)
        self._vectors: Any
        self._ids = np.load(folder / "ids.npy")
        graphs = list(folder.glob("vectors-*.faiss"))
        if graphs:
            self._vectors = faiss.read_index(str(graphs[0]))
            self._vectors.hnsw.efSearch = 2 * POOL
        else:
            vectors = np.load(folder / "vectors.npy")
            self._vectors = faiss.IndexFlatIP(vectors.shape[1])
            self._vectors.add(vectors)

    def answer(self, line: bytes) -> bytes:
        import msgspec

        query = msgspec.json.decode(line)["params"]["query"]
        ids = self._by_words(query, LIMIT if self._embedder is None else POOL)
        if self._embedder is not None:
            # Half of each: how they are ranked is not the floor's business.
            ids = list(dict.fromkeys([*ids[: LIMIT // 2], *self._by_meaning(query)]))[:LIMIT]
        return msgspec.json.encode(self._rows(ids)) + b"\n"

    def _by_words(self, query: str, count: int) -> list[int]:
        import tantivy

        make, schema = tantivy.Query, self._index.schema
        words = query.split()
        clauses = [make.term_query(schema, "stem", word) for word in self._stem(query)]
        clauses += [make.boost_query(make.term_query(schema, "word", word), 0.25) for word in words]
        should = [(tantivy.Occur.Should, clause) for clause in clauses]
        found = self._searcher.search(make.boolean_query(should), count, count=True)
        hits: Any = found.hits
        ids: Any = self._searcher.fast_field_values("chunk_id", [hit[1] for hit in hits])
        return list(ids)

    def _by_meaning(self, query: str) -> list[int]:
        vector = self._embedder.embed(query)
        ids: list[int] = self._ids[self._vectors.search(vector[None], POOL)[1][0]].tolist()
        return ids

    def _rows(self, ids: list[int]) -> list[Any]:
        sql = (
            "select c.id, c.text, c.page, c.section, c.idx, d.id, d.title, d.path, d.type, d.tags, "
            "d.kb, d.chunk_count from (select unnest(?::bigint[]) as wanted) "
            "join chunks c on c.id = wanted join documents d on d.id = c.document_id"
        )
        rows: list[Any] = self._db.execute(sql, [ids]).fetchall()
        return rows


def _embedder(kind: str, dim: int, cache: str) -> Any:
    from kbproc.models.catalogue import load
    from kbproc.models.interface import ModelSpec

    return None if kind == "none" else load(ModelSpec(kind=kind, dim=dim), Path(cache))  # type: ignore[arg-type]


if __name__ == "__main__":
    if sys.argv[1] == "echo":
        serve(echo)
    else:
        folder, kind, dim, models = sys.argv[2:]
        serve(Search(Path(folder), _embedder(kind, int(dim), models)).answer)
