"""`python -m bench.stages`: times the stages of the three hot paths into bench/stages.json.

Each function that is a stage of a path is timed in place, in one process and without pipes; time
outside all stages is Python in between. bench/performance.py shows the figures.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from bench import corpus, real_text
from bench.__main__ import machine
from bench.bulk_legs import answered
from kbproc.base.pipes import leave
from kbproc.knowledge.app.library import Library
from kbproc.methods.all import registry
from kbproc.surfaces.wire.messages import Wire

RESULTS = Path(__file__).parent / "stages.json"
CHUNKS = 10_000
REQUESTS = 200
FILES = 1000
_WIRE = Wire(sys.maxsize)

_WORDS = "kbproc.engine.projections.fulltext.search.FullTextSnapshot"
_VECTORS = "kbproc.engine.projections.vectors.search.VectorSnapshot"
_POOL = "kbproc.engine.sources.parse.pool.ParserPool"
_WRITING = {
    "its source is durable": "kbproc.engine.sources.packs.Pack.append",
    "records are written to the log": "kbproc.engine.log.tail.LogTail.write",
    "the log is synced": "kbproc.engine.log.tail.LogTail.sync",
    "the catalog takes it in": "kbproc.engine.projections.catalog.catalog.Catalog.apply",
    "the catalog commits": "kbproc.engine.projections.catalog.catalog.Catalog.commit",
    "the vector view gets it": "kbproc.engine.projections.vectors.view.Vectors.apply",
    "what readers see is shown": "kbproc.engine.store.store.Store.publish",
}
STAGES = {
    "search, hybrid": {
        "the query's vector": "kbproc.engine.embedding.model.StoredModel.query_vector",
        "best by words": f"{_WORDS}.search",
        "best by meaning, cosines": f"{_VECTORS}.search_with_cosines",
        "BM25 of the best by meaning": f"{_WORDS}.scores",
        "rows of the page": "kbproc.engine.projections.catalog.queries.Queries.hit_rows",
        "snippets of the page": "kbproc.knowledge.search.search.snippet",
        "the answer is checked and encoded": "kbproc.surfaces.wire.messages.Wire.result",
    },
    "doc.create": {
        "a text is cut": f"{_POOL}.read_here",
        **_WRITING,
        "the answer is checked and encoded": "kbproc.surfaces.wire.messages.Wire.result",
    },
    "doc.ingest": {
        "texts are cut, in a process of their own": f"{_POOL}.parse",
        **_WRITING,
        "the full-text index gets it": "kbproc.engine.projections.fulltext.index.FullText.apply",
        "the full-text index commits": "kbproc.engine.projections.fulltext.index.FullText.commit",
    },
}

Seconds = dict[str, list[float]]


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="kbproc-stages-") as folder:
        corpus.build_store(Path(folder) / "store", CHUNKS)
        library = corpus.open_store(Path(folder) / "store", corpus.HASH)
        paths = [
            _path(library, "search, hybrid", _searches(library), 1),
            _path(library, "doc.create", _creates(library), 1),
            _path(library, "doc.ingest", [_ingest(library, Path(folder) / "files")], FILES),
        ]
        library.close()
    text = json.dumps({"machine": machine(), "paths": paths}, indent=1, ensure_ascii=False)
    RESULTS.write_text(f"{text}\n", encoding="utf-8")
    print(text)
    return 0


def _searches(library: Library) -> list[Callable[[], None]]:
    return [_request(library, "search", query=query) for query in real_text.queries(REQUESTS)]


def _creates(library: Library) -> list[Callable[[], None]]:
    bodies = list(real_text.texts(REQUESTS))
    return [_request(library, "doc.create", title="A text", text=text) for text in bodies]


def _ingest(library: Library, files: Path) -> Callable[[], None]:
    corpus.markdown_files(files, FILES)
    return _request(library, "doc.ingest", paths=[str(files)])


def _request(library: Library, name: str, **params: Any) -> Callable[[], None]:
    method = registry().methods[name]
    return lambda: _ignore(_WIRE.result(1, method, answered(library, name, **params)))


def _ignore(line: bytes) -> None:
    assert line


def _path(
    library: Library, name: str, requests: list[Callable[[], None]], each: int
) -> dict[str, Any]:
    """Returns seconds per request, or per item if a request holds several."""
    if len(requests) > 1:
        requests[0]()  # the first request makes things that later ones use
    took: list[float] = []
    with _timed(STAGES[name]) as seconds:
        for ask in requests[1:] or requests:
            started = time.perf_counter()
            ask()
            took.append(time.perf_counter() - started)
    count = len(took) * each
    stages = {label: sum(times) / count for label, times in seconds.items()}
    return {"path": name, "median": statistics.median(took) / each, "stages": stages}


@contextmanager
def _timed(stages: dict[str, str]) -> Iterator[Seconds]:
    """Collects the seconds of each run of each stage."""
    seconds: Seconds = {label: [] for label in stages}
    with ExitStack() as watched:
        for label, place in stages.items():
            owner, _, name = place.rpartition(".")
            watched.enter_context(_watched(resolve_name(owner), name, seconds[label]))
        yield seconds


@contextmanager
def _watched(owner: Any, name: str, seconds: list[float]) -> Iterator[None]:
    real = getattr(owner, name)

    def timed(*args: Any, **kwargs: Any) -> Any:
        started = time.perf_counter()
        try:
            return real(*args, **kwargs)
        finally:
            seconds.append(time.perf_counter() - started)

    setattr(owner, name, timed)
    try:
        yield
    finally:
        setattr(owner, name, real)


if __name__ == "__main__":
    leave(main())
