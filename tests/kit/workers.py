"""Workers of a cluster as processes whose embedder does as a test wants.

`python -m tests.kit.workers SERVER STREAM HOW`, where HOW is `blocks` (it never ends), `fails`,
or the seconds that a text takes, however many of its kind run on how few cores. It says `taken`
for each job that it has begun.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

import numpy as np
from nats.aio.client import Client
from nats.js import JetStreamContext
from numpy.typing import NDArray

from kbproc.base.errors import KbprocError
from kbproc.embedding.cluster import messages
from kbproc.embedding.cluster.worker import Worker
from kbproc.log.jetstream.connection import using
from kbproc.log.jetstream.settings import KIND, StreamSettings
from kbproc.models.hashing import HashEmbedder
from tests.kit.start import REPO, start


class OddEmbedder(HashEmbedder):
    def __init__(self, how: str) -> None:
        super().__init__()
        self._how = how

    def embed_many(self, texts: list[str]) -> list[NDArray[np.float32]]:
        sys.stdout.write("taken\n")
        sys.stdout.flush()
        if self._how == "blocks":
            threading.Event().wait()
        if self._how == "fails":
            raise KbprocError("model.unavailable", "It is out of order.")
        time.sleep(float(self._how) * len(texts))
        return super().embed_many(texts)


def asked(settings: StreamSettings, act: Callable[[JetStreamContext], Awaitable[Any]]) -> Any:
    async def use(client: Client) -> Any:
        return await act(client.jetstream())

    return asyncio.run(using(settings.servers[0], None, use))


def messages_in(settings: StreamSettings, stream: str) -> int:
    async def count(context: JetStreamContext) -> int:
        return (await context.stream_info(stream)).state.messages

    found: int = asked(settings, count)
    return found


def work_of(settings: StreamSettings) -> int:
    """Jobs that nobody has done yet."""
    return messages_in(settings, messages.work_stream(settings.stream))


def main() -> int:
    server, stream, how = sys.argv[-3:]
    settings = StreamSettings(kind=KIND, servers=[server], stream=stream)
    Worker(settings, OddEmbedder(how), parallel=1, tell=lambda said: None).run()
    return 0


def worker(folder: Path, settings: StreamSettings, how: str) -> Popen[Any]:
    program = "import sys; from tests.kit.workers import main; sys.exit(main())"
    return start(
        ["-c", program, settings.servers[0], settings.stream, how],
        cwd=folder,
        env={"PYTHONPATH": str(REPO), "PATH": "/usr/bin:/bin"},
        stdout=PIPE,
    )


if __name__ == "__main__":
    sys.exit(main())
