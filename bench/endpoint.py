"""Measures how long a fill by an endpoint of embeddings takes, after the last write.

`python -m bench.endpoint --delay-ms 150`: the endpoint runs in a process of its own, answers each
request after so long, with vectors of 384 numbers in base64, and computes nothing. With
`--texts-a-minute 500` it refuses more than that: an allowance of a minute's texts fills up again.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import math
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from bench.bulk_legs import call
from kbproc.base.host import Host
from kbproc.knowledge.app.library import Library

_DIM = 384
_AT_ONCE = 500
_WORDS = 90


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--delay-ms", type=float, default=150.0)
    parser.add_argument("--chunks", type=int, default=10_000)
    parser.add_argument("--texts-a-minute", type=int, default=0, help="0: as many as come")
    parser.add_argument("--serve", action="store_true", help="be the endpoint")
    options = parser.parse_args()
    if options.serve:
        asyncio.run(_serve(options.delay_ms / 1000, Allowance(options.texts_a_minute)))
        return 0
    command = [
        sys.executable,
        "-m",
        "bench.endpoint",
        "--serve",
        "--delay-ms",
        f"{options.delay_ms}",
        "--texts-a-minute",
        f"{options.texts_a_minute}",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as endpoint:
        assert endpoint.stdout is not None
        try:
            _fill(int(endpoint.stdout.readline()), options.chunks)
        finally:
            endpoint.kill()
    return 0


def _fill(port: int, chunks: int) -> None:
    chance = random.Random(1)
    documents = [
        {"title": f"{n}", "text": " ".join(f"word{chance.randrange(9999)}" for _ in range(_WORDS))}
        for n in range(chunks)
    ]
    url = f"http://127.0.0.1:{port}/v1"
    model = {"kind": "openai", "name": "bench", "url": url, "dim": _DIM}
    with tempfile.TemporaryDirectory() as folder:
        store, cache = Path(folder) / "store", Path(folder) / "cache"
        library = Library.open(store, host=Host(), model=model, cache=cache)
        for at in range(0, chunks, _AT_ONCE):
            call(library, "doc.create", documents=documents[at : at + _AT_ONCE])
        began, used = time.perf_counter(), time.process_time()
        library.embedding.start()
        remaining = library.embedding.drain(lambda stage, done, total: None)
        took, cpu = time.perf_counter() - began, time.process_time() - used
        done = library.store.chunks - remaining
        print(f"{done} chunks: {took:.1f} s; {cpu:.1f} s of the processor, beside the endpoint's")
        library.close()


class Allowance:
    """The texts that an endpoint takes; 0 a minute: any number."""

    def __init__(self, per_minute: int) -> None:
        self._per_minute = per_minute
        self._room = float(per_minute)
        self._since = time.monotonic()

    def take(self, texts: int) -> float:
        """Takes the texts and returns 0, or returns the seconds until there is room for them."""
        if not self._per_minute:
            return 0.0
        now, per_s = time.monotonic(), self._per_minute / 60
        self._room = min(self._per_minute, self._room + (now - self._since) * per_s)
        self._since = now
        if texts > self._room:
            return (texts - self._room) / per_s
        self._room -= texts
        return 0.0


async def _serve(delay_s: float, allowance: Allowance) -> None:
    numbers = np.random.default_rng(0).standard_normal((4096, _DIM)).astype(np.float32)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            try:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
            except (asyncio.IncompleteReadError, ConnectionError):
                return
            length = int(head.partition(b"content-length:")[2].split(b"\r\n")[0])
            texts = json.loads(await reader.readexactly(length))["input"]
            await asyncio.sleep(delay_s)
            if wait_s := allowance.take(len(texts)):
                wait = b"retry-after: %d\r\ncontent-length: 0\r\n\r\n" % math.ceil(wait_s)
                writer.write(b"HTTP/1.1 429 Too Many Requests\r\n" + wait)
                await writer.drain()
                continue
            coded = (base64.b64encode(numbers[hash(text) % 4096].tobytes()) for text in texts)
            items = [{"index": n, "embedding": one.decode()} for n, one in enumerate(coded)]
            body = json.dumps({"data": items}).encode()
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
            await writer.drain()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, limit=1 << 24)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    sys.exit(main())
