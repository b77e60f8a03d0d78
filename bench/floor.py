"""The floors as programs: a bare echo, and the bare parts of a search.

Run as children, so that product and floor both answer over pipes. Owns: what is left when the
product is taken away: tantivy over one field, FAISS, the rows in memory. No database, no
validation, no threads, no snippets, no ranking of two channels against one another.
Refuses to know: kbproc, but for the embedder, which is the same.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

LIMIT = 10
_EF_SEARCH = 64
_HEAP = 50_000_000


def echo(line: bytes) -> bytes:
    return line


def serve(answer: Callable[[bytes], bytes]) -> None:
    for line in sys.stdin.buffer:
        sys.stdout.buffer.write(answer(line))
        sys.stdout.buffer.flush()


class Words:
    """tantivy with one field of English stems; numbers come back."""

    def __init__(self, folder: Path) -> None:
        import tantivy

        folder.mkdir(parents=True, exist_ok=True)
        schema = tantivy.SchemaBuilder().add_integer_field("number", fast=True)
        schema = schema.add_text_field("text", tokenizer_name="en_stem", index_option="freq")
        self._index = tantivy.Index(schema.build(), str(folder))
        self._writer: Any = None
        self._searcher = self._index.searcher()

    def add(self, number: int, text: str) -> None:
        import tantivy

        if self._writer is None:
            self._writer = self._index.writer(_HEAP, 1)
        self._writer.add_document(tantivy.Document(number=number, text=text))

    def commit(self) -> None:
        self._writer.commit()
        self._index.reload()
        self._searcher = self._index.searcher()

    def close(self) -> None:
        """Waits for segments that are being merged."""
        if self._writer is not None:
            self._writer.wait_merging_threads()
            self._writer = None

    def search(self, query: str, *, count: bool) -> list[int]:
        """`count`: every match is counted, too; without, tantivy skips what can't be among ten."""
        parsed = self._index.parse_query(query, ["text"])
        found: Any = self._searcher.search(parsed, LIMIT, count=count)
        hits = [address for _, address in found.hits]
        return [int(n) for n in self._searcher.fast_field_values("number", hits)]


class Vectors:
    """FAISS: exact, or a graph that was built elsewhere. Numbers are places."""

    def __init__(self, dim: int, file: Path | None = None) -> None:
        import faiss

        faiss.omp_set_num_threads(1)
        self._index: Any = faiss.read_index(str(file)) if file else faiss.IndexFlatIP(dim)
        if hasattr(self._index, "hnsw"):
            self._index.hnsw.efSearch = _EF_SEARCH

    def add(self, vectors: Any) -> None:
        self._index.add(vectors)

    def search(self, vector: Any) -> list[int]:
        found: list[int] = self._index.search(vector[None], LIMIT)[1][0].tolist()
        return found

    def save(self, file: Path) -> None:
        import faiss

        faiss.write_index(self._index, str(file))


class Rows:
    """What a hit shows: lines of a file, all of them in memory."""

    def __init__(self, file: Path) -> None:
        self._file = file.open("ab")
        self.held: list[Any] = [json.loads(line) for line in file.read_bytes().splitlines()]

    def add(self, rows: Sequence[Any]) -> None:
        """On the disk when it returns, with one sync."""
        self._file.write(b"".join(json.dumps(row).encode() + b"\n" for row in rows))
        self._file.flush()
        os.fdatasync(self._file.fileno())
        self.held.extend(rows)

    def close(self) -> None:
        self._file.close()


def build(folder: Path, rows: Iterable[Sequence[Any]], said: int) -> None:
    """Words and rows in `folder`; column `said` is what is indexed."""
    folder.mkdir(parents=True, exist_ok=True)
    words, held = Words(folder / "words"), Rows(folder / "rows.ndjson")
    held.add(list(rows))
    for number, row in enumerate(held.held):
        words.add(number, row[said])
    words.commit()
    words.close()
    held.close()


class Search:
    """Ten by words; with an embedder five of them, and ten by meaning for the rest."""

    def __init__(self, folder: Path, embedder: Any) -> None:
        self._embedder = embedder
        self._words = Words(folder / "words")
        rows = Rows(folder / "rows.ndjson")
        rows.close()
        self._rows = rows.held
        if embedder is not None:
            self._load_vectors(folder)

    def _load_vectors(self, folder: Path) -> None:
        import numpy as np

        self._numbers = np.load(folder / "numbers.npy").tolist()
        graph = next(folder.glob("*.faiss"), None)
        self._vectors = Vectors(self._embedder.dim, graph)
        if graph is None:
            self._vectors.add(np.load(folder / "vectors.npy"))

    def answer(self, line: bytes) -> bytes:
        import msgspec

        query = msgspec.json.decode(line)["params"]["query"]
        found = self._words.search(query, count=self._embedder is None)
        if self._embedder is not None:
            # Half of each: how they are ranked is not the floor's business.
            found = list(dict.fromkeys([*found[: LIMIT // 2], *self._by_meaning(query)]))[:LIMIT]
        return msgspec.json.encode([self._rows[number] for number in found]) + b"\n"

    def _by_meaning(self, query: str) -> list[int]:
        return [self._numbers[place] for place in self._vectors.search(self._embedder.embed(query))]


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
