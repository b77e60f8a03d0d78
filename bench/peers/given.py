"""Makes the inputs of every peer: the same texts, vectors and questions, in a folder.

It runs in kbproc's environment, makes the same every time, and judges what a peer finds.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from bench import corpus, real_text
from bench.peers.trial import LIMIT
from kbproc.engine.events.document import ChunkText
from kbproc.engine.models.hashing import HashEmbedder
from kbproc.engine.sources.chunk import chunk, count_words, embed_text
from kbproc.engine.sources.parse.blocks import Block

WORDS = 80  # a text's average; one that is more than one chunk of kbproc's is cut
_EQUAL = 1e-6  # cosines that differ by less are a tie

Answers = dict[int, list[int]]  # question → the numbers of its hits


def make(folder: Path, documents: int, questions: int) -> None:
    """Writes documents.ndjson, vectors.npy, queries.json, query_vectors.npy and relevant.json.

    The last has, by question, the numbers of the documents that a collection's judges approve of.
    """
    folder.mkdir(parents=True)
    embedder = HashEmbedder(dim=corpus.DIM)
    vectors = np.zeros((documents, corpus.DIM), np.float32)
    numbers_by_page: dict[str, list[int]] = {}
    with (folder / "documents.ndjson").open("w", encoding="utf-8") as lines:
        passages = map(_in_one_chunk, real_text.passages(documents, words=WORDS, seed=7))
        for number, passage in enumerate(passages):
            lines.write(json.dumps({"title": passage.title, "text": passage.text}) + "\n")
            vectors[number] = embedder.embed(embed_text(passage.title, None, passage.text))
            for name in passage.names:
                numbers_by_page.setdefault(name, []).append(number)
    np.save(folder / "vectors.npy", vectors)
    queries = real_text.queries(questions)
    relevant = [
        [numbers_by_page[name] for name in real_text.answering(query) if name in numbers_by_page]
        for query in queries
    ]
    (folder / "queries.json").write_text(json.dumps(queries), encoding="utf-8")
    (folder / "relevant.json").write_text(json.dumps(relevant), encoding="utf-8")
    np.save(folder / "query_vectors.npy", np.stack([embedder.embed(query) for query in queries]))


def _in_one_chunk(passage: real_text.Passage) -> real_text.Passage:
    """Returns the passage, or its beginning where code makes more than one chunk of its words."""
    while len(_chunks(passage)) > 1:
        passage = passage._replace(text=passage.text[: len(passage.text) * 7 // 8])
    return passage


def _chunks(passage: real_text.Passage) -> list[ChunkText]:
    most = HashEmbedder(dim=corpus.DIM).max_tokens
    blocks = [Block(text=passage.text)]
    return chunk(blocks, title=passage.title, count=count_words, max_tokens=most)


def recall_of_judged(folder: Path, answers: Answers) -> float | None:
    """Returns the share of the relevant pages of which a passage was found, by question.

    None if the questions have no judgements.
    """
    relevant = json.loads((folder / "relevant.json").read_text(encoding="utf-8"))
    shares = [
        sum(not set(numbers).isdisjoint(page) for page in relevant[question])
        / len(relevant[question])
        for question, numbers in answers.items()
        if relevant[question]
    ]
    return float(np.mean(shares)) if shares else None


def recall(folder: Path, documents: int, answers: Answers) -> float:
    """Returns the share of the ten nearest `documents` that the `answers` hold, by question."""
    vectors = np.load(folder / "vectors.npy")[:documents]
    query_vectors = np.load(folder / "query_vectors.npy")
    shares = []
    for question, numbers in answers.items():
        cosines = vectors @ query_vectors[question]
        tenth = np.partition(cosines, -LIMIT)[-LIMIT]
        shares.append(int((cosines[numbers] >= tenth - _EQUAL).sum()) / LIMIT)
    return float(np.mean(shares))
