"""`python -m bench.stages`: where the time of the three hot paths goes, and bench/stages.json.

Owns: which functions are stages of which path. Each is timed where it stands, in one process and
without pipes; what no stage tells is Python in between.
Refuses to know: how the page shows it (performance.py).
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

from bench import corpus
from bench.__main__ import machine
from bench.bulk_legs import answered
from kbproc.base.pipes import leave
from kbproc.library.library import Library
from kbproc.methods.all import registry
from kbproc.wire.messages import Wire

RESULTS = Path(__file__).parent / "stages.json"
CHUNKS = 10_000
REQUESTS = 200
FILES = 1000
_WIRE = Wire(sys.maxsize)

_POOL = "kbproc.sources.parse.pool.ParserPool"
_WRITING = {
    "its source is durable": "kbproc.sources.blobs.Blobs.settle",
    "records are written to the log": "kbproc.log.tail.Tail.write",
    "the log is synced": "kbproc.log.tail.Tail.sync",
    "the catalog takes it in": "kbproc.views.catalog.catalog.Catalog.apply",
    "the catalog commits": "kbproc.views.catalog.catalog.Catalog.commit",
    "the full-text index gets it": "kbproc.views.fulltext.index.FullText.apply",
    "the vector view gets it": "kbproc.views.vectors.view.Vectors.apply",
    "what readers see is shown": "kbproc.store.store.Store.publish",
}
STAGES = {
    "search, hybrid": {
        "the query's vector": "kbproc.embedding.model.StoredModel.query_vector",
        "best by words": "kbproc.views.fulltext.search.FullTextSnapshot.search",
        "best by meaning, cosines": "kbproc.views.vectors.search.VectorSnapshot.compared",
        "BM25 of the best by meaning": "kbproc.views.fulltext.search.FullTextSnapshot.scores",
        "rows of the page": "kbproc.views.fulltext.search.FullTextSnapshot.rows",
        "snippets of the page": "kbproc.search.search.snippet",
        "the answer is checked and encoded": "kbproc.wire.messages.Wire.result",
    },
    "doc.create": {
        "a text is cut": f"{_POOL}.read_here",
        **_WRITING,
        "the answer is checked and encoded": "kbproc.wire.messages.Wire.result",
    },
    "doc.ingest": {
        "texts are cut, in a process of their own": f"{_POOL}.parse_some",
        **_WRITING,
        "the full-text index commits": "kbproc.views.fulltext.index.FullText.commit",
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
    return [_asked(library, "search", query=query) for query in corpus.queries(REQUESTS)]


def _creates(library: Library) -> list[Callable[[], None]]:
    said = [corpus.said(numbers) for numbers in corpus.texts(REQUESTS)]
    return [_asked(library, "doc.create", title="A text", text=text) for text in said]


def _ingest(library: Library, files: Path) -> Callable[[], None]:
    corpus.markdown_files(files, FILES)
    return _asked(library, "doc.ingest", paths=[str(files)])


def _asked(library: Library, name: str, **params: Any) -> Callable[[], None]:
    method = registry().methods[name]
    return lambda: _ignore(_WIRE.result(1, method, answered(library, name, **params)))


def _ignore(line: bytes) -> None:
    assert line


def _path(
    library: Library, name: str, asked: list[Callable[[], None]], each: int
) -> dict[str, Any]:
    """Seconds per request, or per item where a request holds so many."""
    if len(asked) > 1:
        asked[0]()  # what is made once
    took: list[float] = []
    with _timed(STAGES[name]) as seconds:
        for ask in asked[1:] or asked:
            started = time.perf_counter()
            ask()
            took.append(time.perf_counter() - started)
    count = len(took) * each
    stages = {label: sum(times) / count for label, times in seconds.items()}
    return {"path": name, "median": statistics.median(took) / each, "stages": stages}


@contextmanager
def _timed(stages: dict[str, str]) -> Iterator[Seconds]:
    """What each stage has taken, every time that it was run."""
    seconds: Seconds = {label: [] for label in stages}
    with ExitStack() as watched:
        for label, place in stages.items():
            owner, _, name = place.rpartition(".")
            watched.enter_context(_watched(resolve_name(owner), name, seconds[label]))
        yield seconds


@contextmanager
def _watched(owner: Any, name: str, seconds: list[float]) -> Iterator[None]:
    real = getattr(owner, name)

    def timed(*given: Any, **named: Any) -> Any:
        started = time.perf_counter()
        try:
            return real(*given, **named)
        finally:
            seconds.append(time.perf_counter() - started)

    setattr(owner, name, timed)
    try:
        yield
    finally:
        setattr(owner, name, real)


if __name__ == "__main__":
    leave(main())
