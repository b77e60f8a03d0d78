"""Measures how the parts rank: nDCG@10 of each channel and fusion, over BEIR-form folders.

    python bench/eval_ranking.py FOLDER --sets cranfield,product-docs,xquad/zh

Uses the analysis, the full-text index, the embedding model and the fusion directly,
without a store. A document is ranked by its best chunk. Vectors are kept in --cache.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kbproc.base.text.query import parse_query
from kbproc.engine.log.record import Position
from kbproc.engine.models.catalogue import load
from kbproc.engine.models.interface import Embedder, ModelSpec
from kbproc.engine.projections.catalog.rows import IndexRow
from kbproc.engine.projections.fulltext.index import FullText
from kbproc.engine.projections.fulltext.search import FullTextSnapshot
from kbproc.engine.projections.restriction import Restriction
from kbproc.engine.sources.chunk import chunk, embed_text
from kbproc.engine.sources.parse.formats import parse
from kbproc.knowledge.search.evaluation.measures import ndcg
from kbproc.knowledge.search.fusion import Fused, blend, ordered, rrf

SETS = "cranfield,codebase-chunks,product-docs,locomo,cacm,scifact,xquad/zh,xquad/de"
MARKDOWN = {"product-docs"}
POOL = 100
Vectors = NDArray[np.float32]
Ranking = list[str]


class Passage(NamedTuple):
    document: str
    kb: str
    title: str
    section: str | None
    text: str


class Collection(NamedTuple):
    """One set: its chunks, and of each judged query the text, the kb and the grades."""

    passages: list[Passage]
    queries: list[tuple[str, str | None, dict[str, float]]]


def ranks(scores: dict[int, float]) -> dict[int, int]:
    """Returns chunk id → rank from 1, greatest score first, equals by chunk id."""
    best_first = sorted(scores, key=lambda id: (-scores[id], id))
    return {id: rank for rank, id in enumerate(best_first, 1)}


def main() -> None:
    options = _options()
    embedder = None if options.fts_only else load(ModelSpec(), options.cache / "models")
    table: dict[str, dict[str, float]] = {}
    for name in options.sets.split(","):
        started = time.perf_counter()
        collection = _load(options.folder / name, name, embedder, whole=options.whole)
        table[name] = _evaluate(collection, embedder, options.cache)
        columns = "  ".join(f"{way} {value:.3f}" for way, value in table[name].items())
        size = f"{len(collection.passages)} chunks, {len(collection.queries)} queries"
        print(f"{name:16} {columns}  ({size}, {time.perf_counter() - started:.0f} s)", flush=True)
    if options.json:
        options.json.write_text(json.dumps(table, indent=1) + "\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where the collections lie")
    parser.add_argument("--sets", default=SETS, help="folders in it, comma-separated")
    parser.add_argument("--whole", action="store_true", help="one chunk a document")
    parser.add_argument("--fts-only", action="store_true", help="without the model")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "kbproc-eval")
    parser.add_argument("--json", type=Path, help="write the table here too")
    return parser.parse_args()


def _load(folder: Path, name: str, embedder: Embedder | None, *, whole: bool) -> Collection:
    suffix = "" if (folder / "queries.jsonl").exists() else "-train"
    grades: dict[str, dict[str, float]] = {}
    with (folder / f"qrels{suffix}.tsv").open() as file:
        for query, document, grade in list(csv.reader(file, delimiter="\t", quoting=3))[1:]:
            grades.setdefault(query, {})[document] = float(grade)
    queries = [
        (line["text"], line.get("conv"), grades[line["_id"]])
        for line in _lines(folder / f"queries{suffix}.jsonl")
        if line["_id"] in grades
    ]
    cut = _whole if whole or embedder is None else _cut(name, embedder)
    passages = [p for line in _lines(folder / "corpus.jsonl") for p in cut(line)]
    return Collection(passages, queries)


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.open()]


def _whole(line: dict[str, Any]) -> list[Passage]:
    return [Passage(line["_id"], line.get("conv", "all"), line["title"], None, line["text"])]


def _cut(name: str, embedder: Embedder) -> Callable[[dict[str, Any]], list[Passage]]:
    """Returns the chunks as the product makes them: parsed, then cut to the model's length."""
    type = "markdown" if name in MARKDOWN else "text"

    def cut(line: dict[str, Any]) -> list[Passage]:
        blocks = parse(line["text"].encode(), type, f"document.{type}").blocks
        chunks = chunk(
            blocks,
            title=line["title"],
            count=embedder.count_tokens,
            max_tokens=embedder.max_tokens,
        )
        kb = line.get("conv", "all")
        return [Passage(line["_id"], kb, line["title"], c.section, c.text) for c in chunks]

    return cut


def _evaluate(collection: Collection, embedder: Embedder | None, cache: Path) -> dict[str, float]:
    passages = collection.passages
    sums: dict[str, float] = {}
    vectors = query_vectors = None
    if embedder is not None:
        texts = [embed_text(p.title, p.section, p.text) for p in passages]
        vectors = _embedded(texts, embedder, cache)
        query_vectors = _embedded([text for text, _, _ in collection.queries], embedder, cache)
    with tempfile.TemporaryDirectory() as folder:
        snapshot = _indexed(passages, Path(folder))
        for number, (text, kb, grades) in enumerate(collection.queries):
            cosines = None if vectors is None else vectors @ query_vectors[number]  # type: ignore[index]
            if kb is not None and cosines is not None:
                cosines = np.where([p.kb == kb for p in passages], cosines, -1)
            for way, fused in _fused(snapshot, text, kb, cosines).items():
                best = _documents(passages, fused)
                sums[way] = sums.get(way, 0.0) + ndcg(best, grades)
    return {way: total / len(collection.queries) for way, total in sums.items()}


def _embedded(texts: list[str], embedder: Embedder, cache: Path) -> Vectors:
    digest = hashlib.sha256(embedder.fingerprint + json.dumps(texts).encode()).hexdigest()
    path = cache / f"{digest[:24]}.npy"
    if not path.exists():
        cache.mkdir(parents=True, exist_ok=True)
        np.save(path, np.array([embedder.embed(text) for text in texts], dtype=np.float16))
    return np.load(path).astype(np.float32)  # type: ignore[no-any-return]


def _indexed(passages: Iterable[Passage], folder: Path) -> FullTextSnapshot:
    index = FullText.open(folder / "fulltext")
    rows = (
        IndexRow(number, number, p.kb, p.title, p.section, p.text)
        for number, p in enumerate(passages)
    )
    index.rebuild(rows, Position(1, ""))
    return index.snapshot()


def _fused(
    snapshot: FullTextSnapshot, text: str, kb: str | None, cosines: Vectors | None
) -> dict[str, list[tuple[int, Fused]]]:
    query = parse_query(text)
    restriction = Restriction(kbs=None if kb is None else (kb,))
    hits = snapshot.search(query, POOL, restriction=restriction)
    bm25 = dict(zip(hits.chunk_ids, hits.raw_scores, strict=True))
    bound = snapshot.bound(query)
    lists = {"fts": ordered({id: blend(None, bm25[id], bound, "fts") for id in bm25})}
    if cosines is None:
        return lists
    near = [int(id) for id in np.argsort(-cosines, kind="stable")[:POOL] if cosines[id] > -1]
    permitted = snapshot.permitted(query, near)
    near = [id for id in near if id in permitted]
    vector_ranks = ranks({id: float(cosines[id]) for id in near})
    fts_ranks = ranks(bm25)
    bm25 |= snapshot.scores(query, [id for id in near if id not in bm25])
    both = {*bm25, *near}
    cosine = {id: float(cosines[id]) for id in both}
    lists["vector"] = ordered({id: blend(cosine[id], None, bound, "vector") for id in near})
    lists["blend"] = ordered({id: blend(cosine[id], bm25.get(id), bound) for id in both})
    lists["rrf"] = ordered({id: rrf(vector_ranks.get(id), fts_ranks.get(id)) for id in both})
    return lists


def _documents(passages: list[Passage], fused: list[tuple[int, Fused]]) -> Ranking:
    return list(dict.fromkeys(passages[id].document for id, _ in fused))[:10]


if __name__ == "__main__":
    main()
