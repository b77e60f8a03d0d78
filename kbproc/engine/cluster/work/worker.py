"""Embeds and parses for the nodes of a cluster, in a process without a store.

A worker may end at any moment: the server gives a job that it has not acknowledged to another
worker. A job that fails again and again is buried: a note without its texts takes its place.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import ConsumerConfig

from kbproc.base.errors import KbprocError
from kbproc.base.values import NOT_READABLE
from kbproc.engine.cluster.jetstream.connection import LOST, using, words
from kbproc.engine.cluster.jetstream.making import unusable
from kbproc.engine.cluster.jetstream.settings import StreamSettings
from kbproc.engine.cluster.work import messages
from kbproc.engine.cluster.work.messages import ACK_WAIT_S, TRIES, Beat, BuriedJob, NodeNames
from kbproc.engine.cluster.work.reading import WorkerReading
from kbproc.engine.models.interface import Embedder

_BEAT_S = 1.0
_FETCH_S = 2.0
_PAUSE_S = 0.5
_ANSWERS_S = 5.0
_ASKS_S = 0.5
_AGAIN_S = 1.0
_CHECKS_S = 10.0
_SHORT = 16  # digits that tell fingerprints apart

Tell = Callable[[str], None]
Act = Callable[[Client, JetStreamContext, Msg], Awaitable[None]]


class Done(NamedTuple):
    """A worker's count of its `jobs`, their embedded `texts`, and parsed `documents`."""

    jobs: int
    texts: int
    documents: int


class ClusterWorker:
    """A worker of a cluster; `run` works until the process gets SIGINT or SIGTERM."""

    def __init__(
        self, settings: StreamSettings, embedder: Embedder, *, parallel: int, tell: Tell
    ) -> None:
        """`parallel`: jobs at the same time. `tell`: gets messages for a person."""
        self.done = Done(0, 0, 0)
        self._settings = settings
        self._embedder = embedder
        self._parallel = parallel
        self._tell = tell
        self._names = NodeNames(settings.stream, embedder.fingerprint)
        self._id = os.urandom(8).hex()
        self._threads = ThreadPoolExecutor(parallel, thread_name_prefix="work")
        self._reading = WorkerReading(embedder, parallel)
        self._was_connected = False

    def run(self) -> Done:
        """Works until the process gets a signal to end; returns the counts of its work.

        Raises store.io if no server can be reached at first, model.unavailable if the nodes have
        another model.
        """
        try:
            with contextlib.suppress(asyncio.CancelledError):
                asyncio.run(self._serve())
        finally:
            self._reading.close()
        self._threads.shutdown()
        return self.done

    async def _serve(self) -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, partial(_cancel, task))
        notice = ""
        while True:
            for server in self._settings.servers:
                why = await self._use_until_lost(server)
                if not self._was_connected:
                    raise unusable(self._settings.servers, why)
                if why != notice:
                    self._tell(f"no connection: {why}")
                    notice = why
            await asyncio.sleep(_PAUSE_S)

    async def _use_until_lost(self, server: str) -> str:
        """Works over a connection; returns the reason why it ended."""
        error: BaseException = ConnectionError("it was lost")
        refusals: list[KbprocError] = []
        try:
            await using(server, self._settings.credentials, self._use)
        except* LOST as errors:
            error = errors.exceptions[0]
        except* KbprocError as errors:
            refusals = [e for e in errors.exceptions if isinstance(e, KbprocError)]
        for refusal in refusals:
            raise refusal
        return f"{server}: {words(error)}"

    async def _use(self, client: Client) -> None:
        await self._check(client)
        context = client.jetstream(timeout=_ANSWERS_S)
        await messages.make_streams(context, self._settings)
        if not self._was_connected:
            self._was_connected = True
            self._tell(f"works for {self._settings.stream} with {self._embedder.name}")
        async with asyncio.TaskGroup() as group:
            group.create_task(self._beat(client))
            group.create_task(self._keep_checking(client))
            names = self._names
            for _ in range(self._parallel):
                for subject, durable, act in (
                    (names.jobs, names.consumer, self._embed_one),
                    (names.documents, names.parsers, self._read_one),
                ):
                    config = messages.consumer_of(subject, durable)
                    group.create_task(self._work(client, context, config, act))

    async def _check(self, client: Client) -> None:
        """Raises model.unavailable if nodes answer and all of them have another model."""
        models = []

        async def take(message: Msg) -> None:
            with contextlib.suppress(*NOT_READABLE):
                models.append(messages.decode_model(message.data))

        inbox = client.new_inbox()
        subscription = await client.subscribe(inbox, cb=take)
        await client.publish(messages.model_subject(self._names.store), b"", reply=inbox)
        await asyncio.sleep(_ASKS_S)
        await subscription.unsubscribe()
        own = messages.model_of(self._embedder)
        if models and all(model.fingerprint != own.fingerprint for model in models):
            raise _mismatch(models[0], own)

    async def _keep_checking(self, client: Client) -> None:
        """Checks again and again: nodes may start after their workers, or change their model."""
        while client.is_connected:
            await asyncio.sleep(_CHECKS_S)
            await self._check(client)

    async def _beat(self, client: Client) -> None:
        beat = Beat(worker=self._id, parallel=self._parallel, parser=self._names.parser)
        data = msgspec.json.encode(beat)
        while client.is_connected:
            await client.publish(self._names.beats, data)
            await asyncio.sleep(_BEAT_S)
        raise ConnectionError("the connection was lost")

    async def _work(
        self, client: Client, context: JetStreamContext, config: ConsumerConfig, act: Act
    ) -> None:
        subscription = await context.pull_subscribe(
            str(config.filter_subject),
            durable=config.durable_name,
            stream=messages.work_stream(self._names.store),
            config=config,
        )
        while client.is_connected:
            try:
                [message] = await subscription.fetch(1, timeout=_FETCH_S)
            except TimeoutError:
                continue
            await self._do(client, context, message, act)

    async def _do(self, client: Client, context: JetStreamContext, message: Msg, act: Act) -> None:
        tries = message.metadata.num_delivered
        if tries > TRIES:
            await self._bury(context, message, tries - 1, "the workers that took it have ended")
            return
        progress = asyncio.create_task(_in_progress(message))
        try:
            await act(client, context, message)
        except (KbprocError, *NOT_READABLE) as error:
            self._tell(f"a job failed: {error}")
            if tries == TRIES:
                await self._bury(context, message, tries, str(error))
            else:
                await message.nak(delay=_AGAIN_S)
        finally:
            progress.cancel()

    async def _read_one(self, client: Client, context: JetStreamContext, message: Msg) -> None:
        job = messages.decode_parse_job(message.data)
        async with _returned_when_cancelled(message):
            has_result = await self._reading.read(client, job)
        await message.ack_sync()
        self.done = self.done._replace(documents=self.done.documents + has_result)

    async def _embed_one(self, client: Client, context: JetStreamContext, message: Msg) -> None:
        loop = asyncio.get_running_loop()
        async with _returned_when_cancelled(message):
            halves = await loop.run_in_executor(self._threads, self._embed, message.data)
        await _finish_when_cancelled(self._hand_in(context, message, halves))

    async def _hand_in(
        self, context: JetStreamContext, message: Msg, halves: dict[bytes, bytes]
    ) -> None:
        """Publishes a job's vectors, acknowledges the job and counts it."""
        for parcel in messages.parcels(self._embedder.fingerprint, halves):
            await context.publish(self._names.vectors, parcel, headers={messages.MAKER: self._id})
        await message.ack_sync()
        jobs, texts, documents = self.done
        self.done = Done(jobs + 1, texts + len(halves), documents)

    async def _bury(self, context: JetStreamContext, message: Msg, tries: int, why: str) -> None:
        """Replaces a job by a note with the number of its texts and the reason.

        The note stays in the stream for a while.
        """
        count = 1  # a document
        with contextlib.suppress(*NOT_READABLE):
            count = len(messages.decode_embed_job(message.data).texts)
        dead = msgspec.json.encode(BuriedJob(texts=count, tries=tries, why=why))
        await context.publish(messages.dead_subject(self._names.store), dead)
        await message.ack_sync()

    def _embed(self, data: bytes) -> dict[bytes, bytes]:
        """Returns key → 16-bit floats, computed in a thread. Raises what the model raises."""
        import numpy as np

        embedder = self._embedder
        job = messages.decode_embed_job(data)
        strings = [text.decode("utf-8", "surrogatepass") for text in job.texts]
        vectors = embedder.embed_many(strings)
        keys = [messages.key_of(embedder.fingerprint, text) for text in job.texts]
        halves = [np.asarray(vector, "<f2").tobytes() for vector in vectors]
        return dict(zip(keys, halves, strict=True))


def _cancel(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        task.cancel()


@contextlib.asynccontextmanager
async def _returned_when_cancelled(message: Msg) -> AsyncIterator[None]:
    """Returns a job when its worker ends, so that another worker takes it at once."""
    try:
        yield
    except asyncio.CancelledError:
        await message.nak()
        raise


async def _finish_when_cancelled(work: Coroutine[Any, Any, None]) -> None:
    """Awaits the work and finishes it before a cancel, so that published vectors are counted."""
    working = asyncio.ensure_future(work)
    try:
        await asyncio.shield(working)
    except asyncio.CancelledError:
        await working
        raise


async def _in_progress(message: Msg) -> None:
    with contextlib.suppress(*LOST):
        while True:
            await asyncio.sleep(ACK_WAIT_S / 4)
            await message.in_progress()


def _mismatch(theirs: messages.NodeModel, own: messages.NodeModel) -> KbprocError:
    def described(model: messages.NodeModel) -> str:
        return (
            f"{model.name} ({model.dim} dimensions, {model.max_tokens} tokens, fingerprint "
            f"{model.fingerprint[:_SHORT]})"
        )

    same = "Its weights or their precision differ. " if theirs.name == own.name else ""
    return KbprocError(
        "model.unavailable",
        f"The nodes embed with {described(theirs)}, this worker with {described(own)}.",
        hint=f"{same}Start it with --model {theirs.name}, from the same weights and by the same "
        "version of kbproc.",
        detail={"nodes": theirs.fingerprint, "worker": own.fingerprint},
        lasting=True,
    )
