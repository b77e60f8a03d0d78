"""A process without a store that embeds and parses for the nodes of a cluster.

Owns: taking jobs, saying that one is in progress, handing its vectors to the nodes, and burying a
job that fails again and again.
Refuses to know: models, how a document is parsed (reading.py), the command line, and who offers
jobs.

A worker may end at any moment: a job that it has not acknowledged is given to another.
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
from kbproc.embedding.cluster import messages
from kbproc.embedding.cluster.messages import ACK_WAIT_S, TRIES, Beat, Dead, Names
from kbproc.embedding.cluster.reading import Reading
from kbproc.log.jetstream.connection import LOST, using, words
from kbproc.log.jetstream.settings import StreamSettings
from kbproc.models.interface import Embedder

_BEAT_S = 1.0
_FETCH_S = 2.0
_PAUSE_S = 0.5
_ANSWERS_S = 5.0
_ASKS_S = 0.5
_AGAIN_S = 1.0
_CHECKS_S = 10.0
_SHORT = 16  # digits of a fingerprint that tell it from others

Tell = Callable[[str], None]
Act = Callable[[Client, JetStreamContext, Msg], Awaitable[None]]


class Done(NamedTuple):
    """`texts` that were embedded in `jobs`, and `documents` that were parsed."""

    jobs: int
    texts: int
    documents: int


class Worker:
    """`run` works until the process is told to end."""

    def __init__(
        self, settings: StreamSettings, embedder: Embedder, *, parallel: int, tell: Tell
    ) -> None:
        """`parallel`: so many jobs at the same time. `tell`: what a person may want to know."""
        self.done = Done(0, 0, 0)
        self._settings = settings
        self._embedder = embedder
        self._parallel = parallel
        self._tell = tell
        self._names = Names(settings.stream, embedder.fingerprint)
        self._id = os.urandom(8).hex()
        self._threads = ThreadPoolExecutor(parallel, thread_name_prefix="work")
        self._reading = Reading(embedder, parallel)
        self._was_connected = False

    def run(self) -> Done:
        """Raises store.io if no server is there at first, model.unavailable for another model
        than the nodes'.
        """
        try:
            with contextlib.suppress(asyncio.CancelledError):
                asyncio.run(self._keep())
        finally:
            self._reading.close()
        self._threads.shutdown()
        return self.done

    async def _keep(self) -> None:
        loop, here = asyncio.get_running_loop(), asyncio.current_task()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, partial(_cancel, here))
        told = ""
        while True:
            for server in self._settings.servers:
                why = await self._lost(server)
                if not self._was_connected:
                    raise _unreachable(why)
                if why != told:
                    self._tell(f"no connection: {why}")
                    told = why
            await asyncio.sleep(_PAUSE_S)

    async def _lost(self, server: str) -> str:
        """Why the connection came to its end."""
        error: BaseException = ConnectionError("it was lost")
        refusals: list[KbprocError] = []
        try:
            await using(server, self._settings.credentials, self._use)
        except* LOST as errors:
            error = errors.exceptions[0]
        except* KbprocError as errors:
            refusals = [one for one in errors.exceptions if isinstance(one, KbprocError)]
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
        """Raises model.unavailable if nodes are there, and all of them have another model."""
        found = []

        async def answered(message: Msg) -> None:
            with contextlib.suppress(*messages.NOT_READABLE):
                found.append(messages.decode_model(message.data))

        inbox = client.new_inbox()
        subscription = await client.subscribe(inbox, cb=answered)
        await client.publish(messages.model_subject(self._names.store), b"", reply=inbox)
        await asyncio.sleep(_ASKS_S)
        await subscription.unsubscribe()
        own = messages.model_of(self._embedder)
        if found and all(model.fingerprint != own.fingerprint for model in found):
            raise _mismatch(found[0], own)

    async def _keep_checking(self, client: Client) -> None:
        """A node may come later than its workers, and its model may be changed."""
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
        except (KbprocError, *messages.NOT_READABLE) as error:
            self._tell(f"a job failed: {error}")
            if tries == TRIES:
                await self._bury(context, message, tries, str(error))
            else:
                await message.nak(delay=_AGAIN_S)
        finally:
            progress.cancel()

    async def _read_one(self, client: Client, context: JetStreamContext, message: Msg) -> None:
        job = messages.decode_unread(message.data)
        async with _given_up_at_once(message):
            has_it = await self._reading.read(client, job)
        await message.ack_sync()
        self.done = self.done._replace(documents=self.done.documents + has_it)

    async def _embed_one(self, client: Client, context: JetStreamContext, message: Msg) -> None:
        loop = asyncio.get_running_loop()
        async with _given_up_at_once(message):
            made = await loop.run_in_executor(self._threads, self._embed, message.data)
        await _to_its_end(self._hand_in(context, message, made))

    async def _hand_in(
        self, context: JetStreamContext, message: Msg, made: dict[bytes, bytes]
    ) -> None:
        for parcel in messages.parcels(self._embedder.fingerprint, made):
            await context.publish(self._names.vectors, parcel, headers={messages.MAKER: self._id})
        await message.ack_sync()
        jobs, texts, documents = self.done
        self.done = Done(jobs + 1, texts + len(made), documents)

    async def _bury(self, context: JetStreamContext, message: Msg, tries: int, why: str) -> None:
        """The texts go; how many there were, and why, is told for a while."""
        count = 1  # a document
        with contextlib.suppress(*messages.NOT_READABLE):
            count = len(messages.decode_job(message.data).texts)
        dead = msgspec.json.encode(Dead(texts=count, tries=tries, why=why))
        await context.publish(messages.dead_subject(self._names.store), dead)
        await message.ack_sync()

    def _embed(self, data: bytes) -> dict[bytes, bytes]:
        """Key → 16-bit floats. In a thread. Raises what the model raises."""
        import numpy as np

        embedder = self._embedder
        job = messages.decode_job(data)
        strings = [text.decode("utf-8", "surrogatepass") for text in job.texts]
        vectors = embedder.embed_many(strings)
        keys = [messages.key_of(embedder.fingerprint, text) for text in job.texts]
        halves = [np.asarray(vector, "<f2").tobytes() for vector in vectors]
        return dict(zip(keys, halves, strict=True))


def _cancel(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        task.cancel()


@contextlib.asynccontextmanager
async def _given_up_at_once(message: Msg) -> AsyncIterator[None]:
    """A job of a worker that is told to end: another takes it at once."""
    try:
        yield
    except asyncio.CancelledError:
        await message.nak()
        raise


async def _to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Whoever is told to end meanwhile ends after it: what was handed in is counted."""
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


def _unreachable(why: str) -> KbprocError:
    return KbprocError(
        "store.io",
        f"No server of the cluster can be used: {why}.",
        hint="Check the addresses, and that the servers run with JetStream.",
    )


def _mismatch(theirs: messages.Model, own: messages.Model) -> KbprocError:
    def told(model: messages.Model) -> str:
        return (
            f"{model.name} ({model.dim} dimensions, {model.max_tokens} tokens, fingerprint "
            f"{model.fingerprint[:_SHORT]})"
        )

    same = "Its weights or their precision differ. " if theirs.name == own.name else ""
    return KbprocError(
        "model.unavailable",
        f"The nodes embed with {told(theirs)}, this worker with {told(own)}.",
        hint=f"{same}Start it with --model {theirs.name}, from the same weights and by the same "
        "version of kbproc.",
        detail={"nodes": theirs.fingerprint, "worker": own.fingerprint},
        lasting=True,
    )
