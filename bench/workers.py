"""`python -m bench.workers`: measures the speed-up of several embedding workers of a cluster.

The model only waits, 20 ms a text, so the figures show the cost of taking jobs, without sharing a
processor. `--onnx` uses the default model instead, in one and two workers of a core each.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

from nats.aio.client import Client
from nats.js import JetStreamContext

from kbproc.engine.cluster.jetstream.connection import using
from kbproc.engine.cluster.jetstream.settings import StreamSettings
from kbproc.engine.cluster.work import messages
from kbproc.engine.cluster.work.messages import NodeNames
from kbproc.engine.cluster.work.offers import TEXTS_IN_A_JOB
from kbproc.engine.models import catalogue
from kbproc.engine.models.hashing import HashEmbedder
from kbproc.engine.models.interface import Embedder, spec_of
from tests.kit.nats import Servers
from tests.kit.patience import until

JOBS = 45
_WAITS_S = "0.02"
_WORDS = "a team keeps what it has learned in one store and every node answers from its own copy "


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.workers", description=__doc__)
    parser.add_argument("--onnx", action="store_true")
    onnx = parser.parse_args().onnx
    cache = Path.home() / ".cache" / "kbproc" / "models"
    embedder = catalogue.load(spec_of({}), cache) if onnx else HashEmbedder()
    with tempfile.TemporaryDirectory(prefix="kbproc-bench-") as folder:
        servers = Servers.make(Path(folder)).start()
        try:
            counts = (1, 2) if onnx else (1, 2, 3)
            rates = [_rate(servers, embedder, count, onnx=onnx) for count in counts]
        finally:
            servers.kill()
    for count, rate in zip(counts, rates, strict=True):
        print(f"{count} workers: {rate:.1f} texts/s, {rate / rates[0]:.2f} times one")
    return 0


def _rate(servers: Servers, embedder: Embedder, count: int, *, onnx: bool) -> float:
    """Returns texts a second, once all workers listen."""
    settings = servers.stream()
    names = NodeNames(settings.stream, embedder.fingerprint)
    workers = [_started(settings, core, onnx=onnx) for core in range(count)]
    try:
        _with_client(settings, partial(_heard, names=names, count=count))
        begun = time.monotonic()
        _with_client(settings, partial(_offer, names=names, embedder=embedder))
        until(lambda: not _with_client(settings, partial(_remaining, names=names)), "the last job")
        return JOBS * TEXTS_IN_A_JOB / (time.monotonic() - begun)
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()


def _started(settings: StreamSettings, core: int, *, onnx: bool) -> subprocess.Popen[bytes]:
    [server] = settings.servers
    odd = ["-m", "tests.kit.workers", server, settings.stream, _WAITS_S]
    true = ["-m", "kbproc", "work", server, "--stream", settings.stream, "--parallel", "1"]
    process = subprocess.Popen(
        [sys.executable, *(true if onnx else odd)], stdout=subprocess.DEVNULL
    )
    if onnx:
        os.sched_setaffinity(process.pid, {core})
    return process


def _with_client(settings: StreamSettings, act: Callable[[Client], Awaitable[Any]]) -> Any:
    results: list[Any] = []

    async def use(client: Client) -> None:
        results.append(await act(client))

    asyncio.run(using(settings.servers[0], None, use))
    return results[0]


async def _heard(client: Client, names: NodeNames, count: int) -> None:
    heard, all_there = set[str](), asyncio.Event()

    async def beat(message: Any) -> None:
        heard.add(messages.decode_beat(message.data).worker)
        if len(heard) == count:
            all_there.set()

    await client.subscribe(names.beats, cb=beat)
    await all_there.wait()


async def _offer(client: Client, names: NodeNames, embedder: Embedder) -> None:
    context: JetStreamContext = client.jetstream()
    model = messages.model_of(embedder)
    for job in range(JOBS):
        texts = [f"{job} {text} {8 * _WORDS}" for text in range(TEXTS_IN_A_JOB)]
        await context.publish(names.jobs, messages.job(model, texts))


async def _remaining(client: Client, names: NodeNames) -> int:
    stream = messages.work_stream(names.store)
    return int((await client.jetstream().stream_info(stream)).state.messages)


if __name__ == "__main__":
    sys.exit(main())
