"""Legs of a store that is shared, and of one that is asked about its past.

Owns: what an attached process costs beside the owner, and the first look back.
Refuses to know: clocks (measure.py) and how stores are made (corpus.py).
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from bench import corpus
from bench.measure import KBPROC, ROOT, Result, answer, environment, medians, request, serve
from bench.wire_legs import Setting

_PEAK = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // (1 if sys.platform == "linux" else 1024))
"""  # noqa: E501


def attached(setting: Setting) -> Iterator[Result]:
    """The same questions to the owner and to a process that is attached to it."""
    store = setting.store(setting.small)
    lines = [request("search", query=query) for query in corpus.queries(setting.rounds + 40)]
    ping = request("ping")
    with serve(store) as owner, serve(store) as guest:
        answer(guest.ask(ping))
        asked = [lambda _: guest.ask(ping), lambda _: owner.ask(ping)]
        times = medians(asked, setting.rounds * 3, warm=50)
        yield Result("ping, attached / the owner's", *times, aim=2.5)
        asked = [lambda i: guest.ask(lines[i]), lambda i: owner.ask(lines[i])]
        times = medians(asked, setting.rounds, warm=20)
        yield Result("search, attached / the owner's", *times, aim=1.5)
        yield Result("memory of an attached serve", guest.memory_mib(), aim=25, unit="MiB")
        rounds = 3 if setting.quick else 15
        times = medians([partial(_call_ping, store), _pass], rounds, warm=1)
        yield Result("call ping, attached / python -c pass", *times, aim=6)
        yield Result(
            "memory of an attached call", _peak_mib(store), aim=25, unit="MiB", note="at its peak"
        )


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
    """The first question about an earlier moment makes its views; the next ones find them."""
    library = corpus.open_store(setting.store(setting.small), corpus.HASH)
    seq = library.store.seq
    library.close()
    with serve(setting.store(setting.small)) as product:
        first, *more = corpus.queries(setting.rounds)
        started = time.perf_counter()
        answer(product.ask(request("search", query=first, as_of=seq)))
        took = time.perf_counter() - started
        yield Result(f"first search as_of, {setting.small:,} chunks", took, aim=5)
        then = [request("search", query=query, as_of=seq) for query in more]
        now = [request("search", query=query) for query in more]
        asked = [lambda i: product.ask(then[i]), lambda i: product.ask(now[i])]
        times = medians(asked, setting.rounds // 2, warm=5)
        yield Result("later searches as_of / now", *times, aim=2)
