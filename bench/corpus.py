"""What is measured on: made-up text, and stores full of it.

Owns: a vocabulary with Zipf's frequencies, Markdown files, queries, stores
written through the product's own commit, and the copy that the floor reads.
The same seed gives the same text every time.
Refuses to know: clocks and results.

Vectors are the hash embedder's. They are written into the pack beforehand, so
that nothing waits for a model; a store of the real model gets them, too: what
they point at does not change what a search costs.
"""

from __future__ import annotations

import hashlib
import itertools
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench import floor
from kbproc.base.host import Host
from kbproc.events.document import ChunkText, DocWritten
from kbproc.library.library import Library
from kbproc.models.hashing import HashEmbedder
from kbproc.sources.chunk import embed_text
from kbproc.store.lane import Lane

DIM = 384
HASH = {"kind": "hash", "name": "hash", "dim": DIM}
ONNX = {"kind": "onnx", "name": "all-MiniLM-L6-v2"}
NONE = {"kind": "none", "name": "none"}
WORDS_IN_CHUNK = 140  # on average
CHUNKS_IN_DOCUMENT = 10
_DOCUMENTS_IN_RECORD = 100
_VOCABULARY = 20_000
_KINDS = ["markdown", "pdf", "text", "html"]


@cache
def _words() -> list[str]:
    random = np.random.default_rng(1)
    heads, tails = list("bcdfghjklmnprstvwz"), ["a", "e", "i", "o", "u", "ar", "en", "is", "ol"]
    made: dict[str, None] = {}
    while len(made) < _VOCABULARY:
        count = int(random.integers(1, 5))
        made["".join(random.choice(heads) + random.choice(tails) for _ in range(count))] = None
    return list(made)


def _cumulated_shares() -> NDArray[np.float64]:
    """Zipf: the n-th commonest word is said a n-th as often as the commonest."""
    weights = 1 / np.arange(1, _VOCABULARY + 1)
    result: NDArray[np.float64] = np.cumsum(weights / weights.sum())
    result[-1] = 1.0
    return result


def texts(count: int, *, seed: int = 2, words: int = WORDS_IN_CHUNK) -> Iterator[NDArray[np.int64]]:
    """`count` texts as numbers of words, `words` on average.

    Their lengths differ as those of real chunks do: equal ones would tie all over.
    """
    random, shares = np.random.default_rng(seed), _cumulated_shares()
    for _ in range(count):
        length = int(random.integers(words // 2, words * 3 // 2 + 1))
        yield np.searchsorted(shares, random.random(length))


def said(numbers: NDArray[np.int64]) -> str:
    """In sentences of ten words."""
    words = [_words()[i] for i in numbers]
    parts = [" ".join(words[i : i + 10]) for i in range(0, len(words), 10)]
    return ". ".join(part.capitalize() for part in parts) + "."


def queries(count: int) -> list[str]:
    """Two to four words each, neither the commonest nor the rarest; all different."""
    random = np.random.default_rng(3)
    made: dict[str, None] = {}
    while len(made) < count:
        ranks = np.exp(random.uniform(np.log(50), np.log(10_000), random.integers(2, 5)))
        made[" ".join(_words()[int(rank)] for rank in ranks)] = None
    return list(made)


def markdown_files(folder: Path, count: int) -> None:
    """Files of six sections with two paragraphs each, some 800 words."""
    folder.mkdir(parents=True)
    paragraphs = texts(count * 12, seed=4, words=70)
    for number in range(count):
        lines = [f"# Document {number}"]
        for section in range(6):
            lines += [f"## Section {section}", said(next(paragraphs)), said(next(paragraphs))]
        (folder / f"{number:05}.md").write_text("\n\n".join(lines))


def short_files(folder: Path, count: int) -> None:
    """Files of a title and some 35 words, a hundred in a folder: a chunk each."""
    for number, words in enumerate(texts(count, seed=5, words=35)):
        within = folder / f"{number // 100:03}"
        within.mkdir(parents=True, exist_ok=True)
        (within / f"{number:05}.md").write_text(f"# Note {number}\n\n{said(words)}")


# --------------------------------------------------------------------------- stores


def open_store(folder: Path, model: dict[str, Any]) -> Library:
    from kbproc.settings.config import environment, load

    return Library.open(folder, host=Host(), cache=load(environment()).cache, model=model)


def build_store(folder: Path, chunks: int, model: dict[str, Any] = HASH) -> None:
    """A store of `chunks` chunks, ten a document, every vector in place, the graph folded."""
    grow(folder, chunks, model)


def grow(folder: Path, chunks: int, model: dict[str, Any] = HASH) -> int:
    """The same of a store that may hold some already; how many chunks came."""
    library = open_store(folder, model)
    head = library.store.published.head
    had, number = head.next_chunk - 1, head.next_document - 1
    source = itertools.islice(texts(chunks), had, None)
    for first in range(had, chunks, CHUNKS_IN_DOCUMENT * _DOCUMENTS_IN_RECORD):
        last = min(chunks, first + CHUNKS_IN_DOCUMENT * _DOCUMENTS_IN_RECORD)
        written = []
        for start in range(first, last, CHUNKS_IN_DOCUMENT):
            count = min(CHUNKS_IN_DOCUMENT, last - start)
            written.append(_document(number, start + 1, count, source))
            number += 1
        _embed(library, written)
        library.store.commit(lambda lane, events=written: _append(lane, events))  # type: ignore[misc]
    library.tidy()
    library.close()
    return max(0, chunks - had)


def _append(lane: Lane, events: list[DocWritten]) -> None:
    lane.append(events, actor="bench", method="doc.ingest")


def append_texts(lane: Lane, texts: list[str]) -> None:
    """One document of these chunks, vectors pending."""
    chunks = [ChunkText(text=text) for text in texts]
    lane.append([_written(0, 1, chunks)], actor="bench", method="doc.ingest")


def _document(
    number: int, first_chunk: int, count: int, source: Iterator[NDArray[np.int64]]
) -> DocWritten:
    chunks_of = [
        ChunkText(text=said(next(source)), page=i + 1, section=f"Section {i}") for i in range(count)
    ]
    return _written(number, first_chunk, chunks_of)


def _written(number: int, first_chunk: int, chunks: list[ChunkText]) -> DocWritten:
    kind = _KINDS[number % len(_KINDS)]
    return DocWritten(
        id=number + 1,
        kb="default",
        revision=1,
        title=f"Document {number}",
        doc_type=kind,
        source_sha256=hashlib.sha256(str(number).encode()).hexdigest(),
        size_bytes=10_000,
        first_chunk=first_chunk,
        chunks=chunks,
        parser=1,
        path=f"/home/user/docs/{number:05}.{kind}",
        tags=[f"tag-{number % 50}"],
    )


def _embed(library: Library, documents: list[DocWritten]) -> None:
    pack = library.embedding.pack
    if pack is None:
        return
    strings = [
        embed_text(d.title, c.section, c.text, max_tokens=library.embedding.max_tokens)
        for d in documents
        for c in d.chunks
    ]
    pack.append(
        [pack.key(string) for string in strings],
        np.stack(HashEmbedder(dim=DIM).embed_many(strings)),
    )


_ROW = (
    "c.text, c.page, c.section, c.idx, d.id, d.title, d.path, d.type, d.tags, d.kb, d.chunk_count"
)


def floor_copy(store: Path, folder: Path, model: dict[str, Any]) -> None:
    """The bare parts of `store`, made apart from it: words, rows, and the graph or the vectors."""
    ids = _bare_rows(store, folder)
    opened = open_store(store, model)
    vectors = opened.store.vectors
    assert vectors and opened.embedding.pack
    state = vectors.snapshot()
    np.save(folder / "numbers.npy", np.searchsorted(ids, state.slots["chunk"]))
    if state.graph is None:
        np.save(folder / "vectors.npy", opened.embedding.pack.vectors(state.slots["row"]))
    else:
        shutil.copy(next((store / "views").glob("vectors-*.faiss")), folder)
    opened.close()


def _bare_rows(store: Path, folder: Path) -> NDArray[np.int64]:
    """Returns the chunks' ids, by the numbers that the floor gives them."""
    import duckdb

    with duckdb.connect(str(store / "views" / "catalog-000001.duckdb"), read_only=True) as db:
        rows = db.execute(
            f"select c.id, {_ROW} from chunks c join documents d on d.id = c.document_id "
            "order by c.id"
        ).fetchall()
    floor.build(folder, [row[1:] for row in rows], said=0)
    return np.array([row[0] for row in rows], np.int64)
