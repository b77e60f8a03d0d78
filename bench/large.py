"""`python -m bench.large`: measures a growing store, 1,000 to 1,000,000 chunks (large.json).

A run that was interrupted goes on in the same folder; bench/performance.py shows the figures.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from bench import corpus, floor, real_text
from bench.__main__ import machine
from bench.measure import Child, answer, request, serve
from bench.peers.running import disk_mib
from kbproc.base.pipes import leave

RESULTS = Path(__file__).parent / "large.json"
SIZES = (1_000, 10_000, 100_000, 1_000_000)
_ASKED = 200
_WARM = 20  # searches before the clock starts
_WRITTEN = 40
_OPENED = 3
_COUNTED = "select type, count(*) from documents group by type"

Figures = dict[str, float]


def main() -> int:
    options = _options()
    with tempfile.TemporaryDirectory(prefix="kbproc-large-") as own:
        folder = options.folder or Path(own)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "sizes.json"
        sizes: list[Figures] = json.loads(path.read_bytes()) if path.exists() else []
        for chunks in (size for size in SIZES if size <= options.most):
            if chunks in {size["chunks"] for size in sizes}:
                continue
            sizes.append(_size(folder / "store", chunks))
            path.write_text(json.dumps(sizes), encoding="utf-8")
            print(json.dumps(sizes[-1]), flush=True)
    if options.most == SIZES[-1]:
        results = {"measured": {"machine": machine()}, "sizes": sizes}
        RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.large", description=__doc__)
    parser.add_argument("--most", type=int, default=SIZES[-1], help="chunks of the largest size")
    parser.add_argument("--folder", type=Path, help="where the store stays, and a run goes on")
    return parser.parse_args()


def _size(store: Path, chunks: int) -> Figures:
    figures: Figures = {"chunks": chunks}
    next(real_text.passages(1))  # so that no time holds the reading of the documentation
    began = time.perf_counter()
    added = corpus.grow(store, chunks)
    if added:
        figures["chunks_in_per_s"] = added / (time.perf_counter() - began)
    figures["open_s"] = statistics.median(_opened(store) for _ in range(_OPENED))
    figures["words_alone_p50_s"] = _words_alone(store.parent / "words", chunks)
    with serve(store) as child:
        figures |= _searched(child)
        figures["memory_mib"] = child.memory_mib()
        figures["own_memory_mib"] = child.own_memory_mib()
        figures |= _written(child)
        figures |= _in_sql(child)
        seq = answer(child.ask(request("ping")))["data"]["seq"]
        figures["first_look_back_s"] = _took(child, "search", query="a", as_of=seq // 2)
        figures["rebuild_s"] = _took(child, "index.rebuild")
    figures["disk_mib"] = disk_mib(store)
    return figures


def _opened(store: Path) -> float:
    """Returns seconds from the start of a process until it is ready."""
    began = time.perf_counter()
    with serve(store):
        return time.perf_counter() - began


def _searched(child: Child) -> Figures:
    figures: Figures = {}
    queries = real_text.queries(_WARM + _ASKED)[_WARM:]
    for query in real_text.queries(_WARM):
        child.ask(request("search", query=query))
    kinds: dict[str, dict[str, Any]] = {
        "hybrid": {},
        "fts": {"mode": "fts"},
        "filtered": {"tags": ["tag-7"]},
    }
    for name, params in kinds.items():
        took = [_took(child, "search", query=query, **params) for query in queries]
        figures[f"{name}_p50_s"] = statistics.median(took)
        figures[f"{name}_p99_s"] = statistics.quantiles(took, n=100)[98]
    return figures


def _words_alone(folder: Path, chunks: int) -> float:
    """Returns the seconds in which tantivy alone finds and counts, in process: the floor."""
    shutil.rmtree(folder, ignore_errors=True)
    words = floor.Words(folder)
    for number, text in enumerate(real_text.texts(chunks)):
        words.add(number, text)
    words.commit()
    words.close()
    took = []
    for query in real_text.queries(_WARM + _ASKED):
        began = time.perf_counter()
        words.search(query, count=True)
        took.append(time.perf_counter() - began)
    shutil.rmtree(folder)
    return statistics.median(took[_WARM:])


def _in_sql(child: Child) -> Figures:
    """Measures the first query, which fills the tables, and later ones.

    One that runs out of time is sent again, as its hint says: the tables go on from there.
    """
    began = time.perf_counter()
    while True:
        try:
            child.result("sql.query", sql=_COUNTED, timeout_ms=60_000)
            break
        except RuntimeError as error:
            if "ms" not in str(error):
                raise
    first = time.perf_counter() - began
    took = [_took(child, "sql.query", sql=_COUNTED, timeout_ms=60_000) for _ in range(5)]
    return {"first_sql_s": first, "sql_p50_s": statistics.median(took)}


def _written(child: Child) -> Figures:
    """Measures writes and the searches that find them, in turns."""
    writes, searches = [], []
    for number, text in enumerate(real_text.texts(_WRITTEN, seed=11)):
        writes.append(_took(child, "doc.create", title=f"New {number}", text=text))
        searches.append(_took(child, "search", query=" ".join(text.split()[:4])))
    return {
        "write_p50_s": statistics.median(writes),
        "search_after_a_write_p50_s": statistics.median(searches),
    }


def _took(child: Child, method: str, **params: Any) -> float:
    began = time.perf_counter()
    child.result(method, **params)
    return time.perf_counter() - began


if __name__ == "__main__":
    leave(main())
