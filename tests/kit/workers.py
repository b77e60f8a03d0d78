"""Cluster workers as processes whose embedder a test controls.

`python -m tests.kit.workers SERVER STREAM HOW`: HOW is `blocks` (it never ends), `fails`, or the
seconds per text, independent of the number of workers and cores. It prints `taken` for each job
that it has begun.
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
from kbproc.engine.cluster.jetstream.connection import using
from kbproc.engine.cluster.jetstream.settings import KIND, StreamSettings
from kbproc.engine.cluster.work import messages
from kbproc.engine.cluster.work import worker as work
from kbproc.engine.cluster.work.worker import ClusterWorker
from kbproc.engine.models.hashing import HashEmbedder
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

    number: int = asked(settings, count)
    return number


def work_of(settings: StreamSettings) -> int:
    """Returns the number of open jobs."""
    return messages_in(settings, messages.work_stream(settings.stream))


def main() -> int:
    server, stream, how = sys.argv[-3:]
    settings = StreamSettings(kind=KIND, servers=[server], stream=stream)
    messages.ACK_WAIT_S = work.ACK_WAIT_S = 2.0  # a job soon goes from the dead to another
    ClusterWorker(settings, OddEmbedder(how), parallel=1, tell=lambda message: None).run()
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
