"""What every peer is given: the same texts, vectors and questions, in a folder.

Runs in kbproc's environment. Owns: making them, the same every time, and telling how many of the
true nearest a peer has found.
Refuses to know: peers and clocks.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np

from bench import corpus
from bench.peers.trial import LIMIT
from kbproc.models.hashing import HashEmbedder
from kbproc.sources.chunk import embed_text

WORDS = 70  # of a text, on average; the longest is one chunk of kbproc's
_EQUAL = 1e-6  # cosines that differ by less are a tie


def make(folder: Path, documents: int, questions: int) -> None:
    """documents.ndjson, vectors.npy, queries.json, query_vectors.npy."""
    folder.mkdir(parents=True)
    embedder = HashEmbedder(dim=corpus.DIM)
    vectors = np.zeros((documents, corpus.DIM), np.float32)
    with (folder / "documents.ndjson").open("w", encoding="utf-8") as lines:
        texts = itertools.islice(corpus.texts(documents, seed=7, words=WORDS), documents)
        for number, text in enumerate(map(corpus.said, texts)):
            title = f"{' '.join(text.split()[:3])} {number}"
            lines.write(json.dumps({"title": title, "text": text}) + "\n")
            vectors[number] = embedder.embed(embed_text(title, None, text))
    np.save(folder / "vectors.npy", vectors)
    asked = corpus.queries(questions)
    (folder / "queries.json").write_text(json.dumps(asked), encoding="utf-8")
    np.save(folder / "query_vectors.npy", np.stack([embedder.embed(query) for query in asked]))


def recall(folder: Path, documents: int, found: dict[int, list[int]]) -> float:
    """The share of the ten nearest of `documents` that was found; `found` is by question."""
    vectors = np.load(folder / "vectors.npy")[:documents]
    asked = np.load(folder / "query_vectors.npy")
    shares = []
    for question, numbers in found.items():
        cosines = vectors @ asked[question]
        tenth = np.partition(cosines, -LIMIT)[-LIMIT]
        shares.append(int((cosines[numbers] >= tenth - _EQUAL).sum()) / LIMIT)
    return float(np.mean(shares))
