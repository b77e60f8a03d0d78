"""Legs of a shared store, and of questions about the past.

They measure the cost of an attached client beside the owner, the wait of searches during an ingest,
and the first look back.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import cycle, islice, takewhile
from pathlib import Path

from bench import corpus, real_text
from bench.measure import KBPROC, ROOT, Child, Result, answer, environment, medians, request, serve
from bench.wire_legs import Setting

_PAUSE_SECONDS = 0.05
_PEAK = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // (1 if sys.platform == "linux" else 1024))
"""  # noqa: E501


def attached(setting: Setting) -> Iterator[Result]:
    """Sends the same questions to the owner and to an attached client."""
    store = setting.store(setting.small)
    lines = [request("search", query=query) for query in real_text.queries(setting.rounds + 40)]
    ping = request("ping")
    with serve(store) as owner, serve(store) as guest:
        answer(guest.ask(ping))
        actions = [lambda _: guest.ask(ping), lambda _: owner.ask(ping)]
        times = medians(actions, setting.rounds * 3, warm=50)
        yield Result("ping, attached / the owner's", *times, aim=2.5)
        actions = [lambda i: guest.ask(lines[i]), lambda i: owner.ask(lines[i])]
        times = medians(actions, setting.rounds, warm=20)
        yield Result("search, attached / the owner's", *times, aim=1.5)
        yield Result("memory of an attached serve", guest.memory_mib(), aim=25, unit="MiB")
        rounds = 3 if setting.quick else 15
        times = medians([partial(_call_ping, store), _pass], rounds, warm=1)
        yield Result("call ping, attached / python -c pass", *times, aim=6)
        yield Result(
            "memory of an attached call", _peak_mib(store), aim=25, unit="MiB", note="at its peak"
        )


def beside_ingest(setting: Setting) -> Iterator[Result]:
    """Searches without pauses, while an attached client ingests a folder of files."""
    yield from _beside_ingest(setting, "hash", 60 if setting.quick else 2000)
    if setting.has_model:
        yield from _beside_ingest(setting, "onnx", 10 if setting.quick else 150)


def _beside_ingest(setting: Setting, kind: str, count: int) -> Iterator[Result]:
    files, store = setting.folder / f"added-{kind}", _copied(setting, kind, f"added to-{kind}")
    corpus.markdown_files(files, count)
    lines = [
        (mode, request("search", query=query, mode=mode))
        for query in real_text.queries(setting.rounds)
        for mode in ("fts", "hybrid")
    ]
    with serve(store) as owner:
        _seconds_of(owner, lines[:20])
        alone = _seconds_of(owner, lines)
        adding = subprocess.Popen(
            [*KBPROC, "add", str(files)],
            env=environment(KBPROC_STORE=str(store)),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        beside = _seconds_of(owner, takewhile(lambda _: adding.poll() is None, cycle(lines)))
    if adding.returncode:
        raise RuntimeError(f"the ingest ended with {adding.returncode}")
    for mode, times in beside.items():
        idle, model = _late(alone[mode]), ", real model" if kind == "onnx" else ""
        note = f"p50 {statistics.median(times) * 1e3:.1f} ms; p99 {idle * 1e3:.1f} ms without it"
        name = f"search {mode}{model}, beside an ingest, p99"
        yield Result(name, _late(times), aim=max(0.03, round(4 * idle, 3)), note=note)


def _copied(setting: Setting, kind: str, name: str) -> Path:
    """Returns a copy of the small store, which a leg may change."""
    store = setting.folder / name
    original = setting.store(setting.small, kind)
    shutil.copytree(original, store, ignore=shutil.ignore_patterns("*.sock"))
    return store


def beside_fill(setting: Setting) -> Iterator[Result]:
    """Searches and pings now and then, while the built-in model embeds new documents."""
    if not setting.has_model:
        return
    store = _copied(setting, "onnx", "filled")
    lines = [
        line
        for query in real_text.queries(setting.rounds)
        for line in (("search hybrid", request("search", query=query)), ("ping", request("ping")))
    ]
    documents = [
        {"title": passage.title or "Untitled", "text": passage.text}
        for passage in real_text.passages(20 if setting.quick else 400, seed=6, words=140)
    ]
    with serve(store) as owner:
        _seconds_of(owner, lines[:20])
        alone = _seconds_of(owner, _with_pauses(lines[: setting.rounds]))
        owner.result("doc.create", documents=documents)
        first, began = owner.pending_embeddings(), time.perf_counter()
        beside: dict[str, list[float]] = {}
        rest = cycle(lines)
        while owner.pending_embeddings():
            for name, times in _seconds_of(owner, _with_pauses(islice(rest, 20))).items():
                beside.setdefault(name, []).extend(times)
        per_s = first / (time.perf_counter() - began)
    for name, times in beside.items():
        idle = _late(alone[name])
        note = (
            f"p50 {statistics.median(times) * 1e3:.1f} ms; without it "
            f"{statistics.median(alone[name]) * 1e3:.1f} and {idle * 1e3:.1f} ms; "
            f"{per_s:.1f} texts/s meanwhile"
        )
        aim = max(0.03, round(4 * idle, 3))
        yield Result(f"{name}, real model, beside a fill, p99", _late(times), aim=aim, note=note)


def _with_pauses(lines: Iterable[tuple[str, bytes]]) -> Iterator[tuple[str, bytes]]:
    """Yields the lines with a pause before each, in which the model goes on."""
    for line in lines:
        time.sleep(_PAUSE_SECONDS)
        yield line


def _seconds_of(owner: Child, lines: Iterable[tuple[str, bytes]]) -> dict[str, list[float]]:
    """Returns the seconds of the searches, by mode."""
    times: dict[str, list[float]] = {}
    for mode, line in lines:
        started = time.perf_counter()
        response = owner.ask(line)
        times.setdefault(mode, []).append(time.perf_counter() - started)
        answer(response)
    return times


def _late(times: list[float]) -> float:
    return statistics.quantiles(times, n=100)[-1]


def _call_ping(store: Path, _: int) -> None:
    _run([*KBPROC, "call", "ping"], store)


def _pass(_: int) -> None:
    subprocess.run([sys.executable, "-c", "pass"], check=True, env=environment())


def _run(argv: list[str], store: Path) -> str:
    return subprocess.run(
        argv,
        check=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment(KBPROC_STORE=str(store)),
    ).stdout


def _peak_mib(store: Path) -> float:
    return int(_run([sys.executable, "-c", _PEAK, *KBPROC, "call", "ping"], store)) / 1024


def past(setting: Setting) -> Iterator[Result]:
    """Asks about an earlier moment: the first question makes its views, the next ones use them."""
    library = corpus.open_store(setting.store(setting.small), corpus.HASH)
    seq = library.store.seq
    library.close()
    with serve(setting.store(setting.small)) as product:
        first, *more = real_text.queries(setting.rounds)
        started = time.perf_counter()
        answer(product.ask(request("search", query=first, as_of=seq)))
        took = time.perf_counter() - started
        yield Result(f"first search as_of, {setting.small:,} chunks", took, aim=5)
        then = [request("search", query=query, as_of=seq) for query in more]
        now = [request("search", query=query) for query in more]
        actions = [lambda i: product.ask(then[i]), lambda i: product.ask(now[i])]
        times = medians(actions, setting.rounds // 2, warm=5)
        yield Result("later searches as_of / now", *times, aim=2)
