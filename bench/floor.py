"""The floors as programs: a bare echo, and the bare parts of a search.

They run as children, so that product and floor both answer over pipes. The bare parts of
the product are tantivy over one field, FAISS, and the rows in memory. They have no database, no
validation, no threads, no snippets, no ranking of two channels against one another. The embedder is
kbproc's own.
"""

from __future__ import annotations

import json
import os
import re
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
    """tantivy with one field of English stems; it returns numbers."""

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
        """Waits for merges of segments."""
        if self._writer is not None:
            self._writer.wait_merging_threads()
            self._writer = None

    def search(self, query: str, *, count: bool) -> list[int]:
        """Returns ten numbers; without `count`, tantivy skips matches that can't be among them."""
        # Signs and AND are syntax to tantivy, and it takes words that a "_" joins for a phrase.
        words = " ".join(re.findall(r"[^\W_]+", query.lower()))
        parsed = self._index.parse_query(words, ["text"])
        result: Any = self._searcher.search(parsed, LIMIT, count=count)
        hits = [address for _, address in result.hits]
        return [int(n) for n in self._searcher.fast_field_values("number", hits)]


class Vectors:
    """FAISS, exact or with a prebuilt graph; numbers are positions."""

    def __init__(self, dim: int, file: Path | None = None) -> None:
        import faiss

        faiss.omp_set_num_threads(1)
        self._index: Any = faiss.read_index(str(file)) if file else faiss.IndexFlatIP(dim)
        if hasattr(self._index, "hnsw"):
            self._index.hnsw.efSearch = _EF_SEARCH

    def add(self, vectors: Any) -> None:
        self._index.add(vectors)

    def search(self, vector: Any) -> list[int]:
        numbers: list[int] = self._index.search(vector[None], LIMIT)[1][0].tolist()
        return numbers

    def save(self, file: Path) -> None:
        import faiss

        faiss.write_index(self._index, str(file))


class Rows:
    """The shown fields of hits: lines of a file, all of them in memory."""

    def __init__(self, file: Path) -> None:
        self._file = file.open("ab")
        self.held: list[Any] = [json.loads(line) for line in file.read_bytes().splitlines()]

    def add(self, rows: Sequence[Any]) -> None:
        """Appends the rows with one sync, and returns when the disk has them."""
        self._file.write(b"".join(json.dumps(row).encode() + b"\n" for row in rows))
        self._file.flush()
        os.fdatasync(self._file.fileno())
        self.held.extend(rows)

    def close(self) -> None:
        self._file.close()


def build(folder: Path, rows: Iterable[Sequence[Any]], said: int) -> None:
    """Builds words and rows in `folder`; the index holds column `said`."""
    folder.mkdir(parents=True, exist_ok=True)
    words, row_file = Words(folder / "words"), Rows(folder / "rows.ndjson")
    row_file.add(list(rows))
    for number, row in enumerate(row_file.held):
        words.add(number, row[said])
    words.commit()
    words.close()
    row_file.close()


class Search:
    """Finds ten hits by words; with an embedder five of them, and the rest by meaning."""

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
        numbers = self._words.search(query, count=self._embedder is None)
        if self._embedder is not None:
            # Half of each channel, because the floor does no ranking.
            numbers = list(dict.fromkeys([*numbers[: LIMIT // 2], *self._by_meaning(query)]))[
                :LIMIT
            ]
        return msgspec.json.encode([self._rows[number] for number in numbers]) + b"\n"

    def _by_meaning(self, query: str) -> list[int]:
        return [self._numbers[place] for place in self._vectors.search(self._embedder.embed(query))]


def _embedder(kind: str, dim: int, cache: str) -> Any:
    from kbproc.engine.models.catalogue import load
    from kbproc.engine.models.interface import ModelSpec

    return None if kind == "none" else load(ModelSpec(kind=kind, dim=dim), Path(cache))  # type: ignore[arg-type]


if __name__ == "__main__":
    if sys.argv[1] == "echo":
        serve(echo)
    else:
        folder, kind, dim, models = sys.argv[2:]
        serve(Search(Path(folder), _embedder(kind, int(dim), models)).answer)
