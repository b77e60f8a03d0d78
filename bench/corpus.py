"""Makes the data of measurements from real text: Markdown files, stores, and the floor's copy.

Stores are written through the product's own commit. Vectors are the hash embedder's. They are
written into the pack beforehand, so that nothing waits for a model. A store of the real model gets
them, too, because their direction does not change the cost of a search.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import re
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench import floor
from bench.real_text import Passage, passages, texts
from kbproc.base.host import Host, environment
from kbproc.engine.events.document import ChunkText, DocWritten
from kbproc.engine.models.hashing import HashEmbedder
from kbproc.engine.sources.chunk import embed_text
from kbproc.engine.store.lane import Lane
from kbproc.knowledge.app.library import Library

DIM = 384
HASH = {"kind": "hash", "name": "hash", "dim": DIM}
ONNX = {"kind": "onnx", "name": "all-MiniLM-L6-v2"}
NONE = {"kind": "none", "name": "none"}
CHUNKS_IN_DOCUMENT = 10
_DOCUMENTS_IN_RECORD = 100
_KINDS = ["markdown", "pdf", "text", "html"]


def markdown_files(folder: Path, count: int) -> None:
    """Writes files of six sections with two paragraphs each, some 800 words."""
    folder.mkdir(parents=True)
    paragraphs = passages(count * 12, seed=4, words=70)
    for number in range(count):
        lines = [f"# Document {number}"]
        for _ in range(6):
            first, second = next(paragraphs), next(paragraphs)
            lines += [f"## {_heading(first)}", first.text, second.text]
        (folder / f"{number:05}.md").write_text("\n\n".join(lines))


def short_files(folder: Path, count: int) -> None:
    """Writes files of one chunk, a title and some 35 words; a hundred in a folder."""
    for number, passage in enumerate(passages(count, seed=5, words=35)):
        within = folder / f"{number // 100:03}"
        within.mkdir(parents=True, exist_ok=True)
        (within / f"{number:05}.md").write_text(f"# {_heading(passage)}\n\n{passage.text}")


def _heading(passage: Passage) -> str:
    """Returns the first words, without signs that Markdown would read as markup."""
    return " ".join(re.findall(r"\w+", passage.title)) or "Untitled"


# --------------------------------------------------------------------------- stores


def open_store(folder: Path, model: dict[str, Any]) -> Library:
    from kbproc.base.settings.config import load

    return Library.open(folder, host=Host(), cache=load(environment()).cache, model=model)


def build_store(folder: Path, chunks: int, model: dict[str, Any] = HASH) -> None:
    """Makes a store of `chunks` chunks, ten a document, with all vectors in the graph."""
    grow(folder, chunks, model)


def grow(folder: Path, chunks: int, model: dict[str, Any] = HASH) -> int:
    """Adds chunks to a store up to `chunks`; returns the count of new ones."""
    library = open_store(folder, model)
    head = library.store.published.head
    existing, number = head.next_chunk - 1, head.next_document - 1
    source = itertools.islice(texts(chunks), existing, None)
    for first in range(existing, chunks, CHUNKS_IN_DOCUMENT * _DOCUMENTS_IN_RECORD):
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
    return max(0, chunks - existing)


def _append(lane: Lane, events: list[DocWritten]) -> None:
    lane.append(events, actor="bench", method="doc.ingest")


def append_texts(lane: Lane, texts: list[str]) -> None:
    """Appends one document of these chunks, with pending vectors."""
    chunks = [ChunkText(text=text) for text in texts]
    lane.append([_written(0, 1, chunks)], actor="bench", method="doc.ingest")


def _document(number: int, first_chunk: int, count: int, source: Iterator[str]) -> DocWritten:
    chunks_of = [
        ChunkText(text=next(source), page=i + 1, section=f"Section {i}") for i in range(count)
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
        origin="user",
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
    """Makes the bare parts of `store` in a copy: words, rows, and the graph or the vectors."""
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
    with contextlib.closing(sqlite3.connect(store / "views" / "catalog-000001.sqlite")) as db:
        rows = db.execute(
            f"select c.id, {_ROW} from chunks c join documents d on d.id = c.document_id "
            "order by c.id"
        ).fetchall()
    tags = 9
    floor.build(
        folder, [(*row[1:tags], json.loads(row[tags]), *row[tags + 1 :]) for row in rows], said=0
    )
    return np.array([row[0] for row in rows], np.int64)
