"""Legs over real pipes and whole processes: ping, search, get, start, one-shot call, memory.

It has the requests, their rounds and the aims; corpus.py makes the stores, measure.py the clocks.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from bench import corpus, real_text
from bench.measure import (
    KBPROC,
    ROOT,
    Child,
    Result,
    answer,
    cores_apart,
    environment,
    medians,
    request,
    serve,
)

_FLOOR = [sys.executable, "-m", "bench.floor"]
_DESCRIBED = {"hash": corpus.HASH, "onnx": corpus.ONNX}


class Setting:
    """The setting of all legs: a temporary folder, sizes in chunks, stores made on first use."""

    def __init__(self, *, folder: Path, quick: bool, files: Path | None) -> None:
        self.folder = folder
        self.quick = quick
        self.files = files
        self.sizes = [100, 300] if quick else [10_000, 100_000]
        self.rounds = 20 if quick else 400
        self._stores: dict[tuple[int, str], Path] = {}

    @property
    def small(self) -> int:
        return self.sizes[0]

    @cached_property
    def has_model(self) -> bool:
        """Returns whether the real model is available, after exporting it if needed."""
        from kbproc.engine.models.catalogue import available, load
        from kbproc.engine.models.interface import ModelSpec

        availability = available(ModelSpec(), models())
        if availability == "needs_export":
            load(ModelSpec(), models())
        return not availability.startswith("missing")

    def store(self, chunks: int, kind: str = "hash") -> Path:
        """Returns a closed store of that many chunks."""
        key = (chunks, kind)
        if key not in self._stores:
            path = self.folder / f"{kind}-{chunks}"
            corpus.build_store(path, chunks, _DESCRIBED[kind])
            self._stores[key] = path
        return self._stores[key]


def models() -> Path:
    from kbproc.base.host import environment as read
    from kbproc.base.settings.config import load

    return load(read()).cache / "models"


# ----------------------------------------------------------------------------- ping


def ping(setting: Setting) -> Iterator[Result]:
    """Measures ping, which takes the way of every read, with pool and validation."""
    line = request("ping")
    store = setting.store(setting.small)
    with cores_apart(), serve(store) as product, Child([*_FLOOR, "echo"]) as floor:
        answer(product.ask(line))
        actions = [lambda _: product.ask(line), lambda _: floor.ask(line)]
        times = medians(actions, setting.rounds * 5, warm=50)
    yield Result("ping / echo", *times, aim=2.5)


# --------------------------------------------------------------------------- search


def search(setting: Setting) -> Iterator[Result]:
    """Measures searches against the bare parts: echo, tantivy, FAISS, embedding, rows in memory."""
    for chunks in setting.sizes:
        yield from _search(setting, chunks, "fts", "none")
        yield from _search(setting, chunks, "hybrid", "hash")
    if setting.has_model:
        yield from _search(setting, setting.small, "hybrid", "onnx")


# Seconds, if nothing else runs on the processor between two searches.
_AIMS = {
    ("fts", 10_000): 0.0008,
    ("hybrid", 10_000): 0.0015,
    ("fts", 100_000): 0.0016,
    ("hybrid", 100_000): 0.0025,
}


def _search(setting: Setting, chunks: int, mode: str, embedder: str) -> Iterator[Result]:
    kind = "onnx" if embedder == "onnx" else "hash"
    store = setting.store(chunks, kind)
    parts = setting.folder / f"parts-{kind}-{chunks}"
    if not parts.exists():
        corpus.floor_copy(store, parts, _DESCRIBED[kind])
    bare = [*_FLOOR, "search", str(parts), embedder, str(corpus.DIM), str(models())]
    warm = 5 if setting.quick else 40
    queries = real_text.queries(setting.rounds + warm)
    lines = [request("search", query=query, mode=mode) for query in queries]
    with cores_apart(), serve(store) as product, Child(bare) as floor:
        _all_found(product, lines[0], mode)
        actions = [lambda i: product.ask(lines[i]), lambda i: floor.ask(lines[i])]
        times = medians(actions, setting.rounds, warm=warm)
        [alone] = medians(actions[:1], setting.rounds, warm=warm)
    name = {"none": "", "hash": ", hash", "onnx": ", real model"}[embedder]
    name = f"search {mode}{name}, {chunks:,} chunks"
    yield Result(f"{name} / its parts", *times, aim=1.5)
    if embedder != "onnx":
        yield Result(f"{name}, alone", alone, aim=_AIMS.get((mode, chunks)))


def _all_found(product: Child, line: bytes, mode: str) -> None:
    """Raises RuntimeError for a degraded search, which would be a fast one."""
    response = answer(product.ask(line))
    hits = response["data"]["results"]
    channels = ["fts"] if mode == "fts" else ["fts", "vector"]
    if not hits or any(hit["score_breakdown"][one] is None for hit in hits for one in channels):
        raise RuntimeError(f"the search was not whole: {response['meta']}")
    if response["meta"]["freshness"]["pending_embeddings"]:
        raise RuntimeError("vectors are missing")


_IN_FLIGHT = 64


def in_flight(setting: Setting) -> Iterator[Result]:
    """Measures simultaneous searches against the same ones in sequence."""
    legs = [("fts", "hash"), ("hybrid", "hash"), ("hybrid", "onnx")][: 2 + setting.has_model]
    for mode, kind in legs:
        lines = [
            request("search", query=query, mode=mode).replace(b'"id": 1,', b'"id": %d,' % number, 1)
            for number, query in enumerate(real_text.queries(setting.rounds))
        ]
        with serve(setting.store(setting.small, kind)) as product:
            _all_found(product, lines[0], mode)
            actions = [
                partial(_flown, product, lines, _IN_FLIGHT),
                partial(_flown, product, lines, 1),
            ]
            together, alone = medians(actions, 1 if setting.quick else 3)
        name = f"{_IN_FLIGHT} searches in flight, {mode}{', real model' * (kind == 'onnx')}"
        times = [seconds / len(lines) for seconds in (together, alone)]
        yield Result(f"{name} / one by one", *times, aim=1.1, note="each")


def _flown(product: Child, lines: list[bytes], most: int, _: int) -> None:
    for number, line in enumerate(lines):
        if number >= most:
            answer(product.line())
        product.send(line)
    for _line in lines[-most:]:
        answer(product.line())


# ----------------------------------------------------------------------- one by its id


def get(setting: Setting) -> Iterator[Result]:
    """Measures reads by id: of unchanged documents and entries, of chunks, of changed notes."""
    documents = setting.small // corpus.CHUNKS_IN_DOCUMENT
    store = setting.folder / "gets"
    shutil.copytree(setting.store(setting.small), store, ignore=shutil.ignore_patterns("*.sock"))
    with cores_apart(), serve(store) as product:
        requests = {
            method: [request(method, id=number + 1) for number in range(documents)]
            for method in ("doc.get", "chunk.get")
        }
        requests["knowledge.get"] = _entries(product)
        requests["note.get"] = _notes(product)
        answer(product.ask(request("search", query="entry")))
        for method, lines in requests.items():
            answer(product.ask(lines[0]))
            [took] = medians(
                [lambda i, lines=lines: product.ask(lines[i % len(lines)])],  # type: ignore[misc]
                setting.rounds,
                warm=40,
            )
            yield Result(f"{method}, {setting.small:,} chunks", took, aim=0.0005)


def _entries(product: Child) -> list[bytes]:
    """Stores a hundred entries; returns the requests that read them."""
    bodies = (f"What entry {number} says of its thing." for number in range(100))
    responses = [
        answer(product.ask(request("knowledge.store", title=text, body=text))) for text in bodies
    ]
    return [request("knowledge.get", id=one["data"]["id"]) for one in responses]


def _notes(product: Child) -> list[bytes]:
    """Writes a hundred notes twice; returns the requests that read them."""
    answer(product.ask(request("agent.create", slug="writer")))
    names = [{"agent": "writer", "slug": f"note-{number}"} for number in range(100)]
    for text in ("# One\n\nFirst words.", "# Two\n\nOther words."):
        for name in names:
            answer(product.ask(request("note.put", text=text, **name)))
    return [request("note.get", **name) for name in names]


# -------------------------------------------------------------------------- process


def start(setting: Setting) -> Iterator[Result]:
    """Measures the first line of a coprocess, before any store work."""
    with tempfile.TemporaryDirectory(dir=setting.folder) as folder:
        product = partial(_first_line, Path(folder) / "store")
        rounds = 3 if setting.quick else 15
        yield Result("first init line / python -c pass", *medians([product, _pass], rounds), aim=3)


def _first_line(store: Path, _: int) -> float:
    """Returns the time of the first line."""
    child = Child([*KBPROC, "serve"], KBPROC_STORE=str(store))
    line = child.line()
    came = time.perf_counter()
    assert json.loads(line)["params"]["type"] == "init", line
    child.process.kill()
    child.process.wait()
    child.process.communicate()
    return came


def _pass(_: int) -> None:
    subprocess.run([sys.executable, "-c", "pass"], check=True, env=environment())


def call(setting: Setting) -> Iterator[Result]:
    """Measures one search in one process, which opens the store itself."""
    legs = [("fts", "hash", 0.2)]
    if setting.has_model:
        legs.append(("hybrid", "onnx", 0.33))
    for mode, kind, aim in legs:
        store, queries = setting.store(setting.small, kind), real_text.queries(20)
        action: Callable[[int], Any] = partial(_call, store, mode, queries)
        seconds = medians([action], 2 if setting.quick else 7, warm=1)
        name = f"one-shot call search {mode}, {setting.small:,} chunks"
        yield Result(name, *seconds, aim=aim, note="real model" if kind == "onnx" else "")


def _call(store: Path, mode: str, queries: list[str], number: int, *prefix: str) -> str:
    """Returns the stderr of one search."""
    params = json.dumps({"query": queries[number], "mode": mode})
    done = subprocess.run(
        [*prefix, *KBPROC, "call", "search", params],
        capture_output=True,
        text=True,
        env=environment(KBPROC_STORE=str(store)),
        cwd=ROOT,
        check=True,
    )
    response = json.loads(done.stdout)
    hits = response["data"]["results"]
    if not hits or (mode == "hybrid" and hits[0]["score_breakdown"]["vector"] is None):
        raise RuntimeError(f"the search was not whole: {done.stdout[:300]}")
    return done.stderr


# A small process stands between, because a child at first counts its parent's memory.
_PEAK = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True)
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
print(peak // (1 if sys.platform == "linux" else 1024), file=sys.stderr)
"""


def _peak_mib(store: Path, mode: str) -> float:
    output = _call(store, mode, real_text.queries(1), 0, sys.executable, "-c", _PEAK)
    return int(output.split()[-1]) / 1024


_UNTIL_IDLE = 5.0  # seconds; see knowledge/app/upkeep.py


def memory(setting: Setting) -> Iterator[Result]:
    """Measures resident MiB: after the first searches, when idle, and a one-shot call's peak."""
    if not Path("/proc/self/status").exists():
        return
    kinds = [("hash", chunks) for chunks in setting.sizes]
    if setting.has_model:
        kinds.append(("onnx", setting.small))
    for kind, chunks in kinds:
        with serve(setting.store(chunks, kind)) as child:
            idle = child.memory_mib()
            for query in real_text.queries(50):
                child.ask(request("search", query=query))
            used = child.memory_mib()
            time.sleep(_UNTIL_IDLE)
            rested = child.memory_mib()
        name = f"memory of serve, {chunks:,} chunks{', real model' if kind == 'onnx' else ''}"
        note = f"{idle:.0f} MiB before the first search, {used:.0f} right after fifty"
        yield Result(name, rested, aim=350 if chunks >= 100_000 else None, unit="MiB", note=note)
    for mode, kind in [("fts", "hash"), ("hybrid", "onnx")][: 1 + setting.has_model]:
        peak = _peak_mib(setting.store(setting.small, kind), mode)
        yield Result(f"memory of a one-shot {mode} search", peak, unit="MiB", note="at its peak")
