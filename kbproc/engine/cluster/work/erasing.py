"""Erases vectors from a cluster's streams when their texts are erased."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection
from functools import partial

from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import ConsumerConfig
from nats.js.errors import NotFoundError

from kbproc.base.errors import KbprocError
from kbproc.engine.cluster.jetstream.connection import LOST, using, words
from kbproc.engine.cluster.jetstream.settings import StreamSettings
from kbproc.engine.cluster.work.messages import keys_in, vectors_stream, work_stream

_ANSWERS_S = 10.0


def erase(settings: StreamSettings, keys: Collection[bytes]) -> int:
    """Deletes every message with one of these keys; returns the number of messages.

    The server overwrites the messages' bytes. Nodes embed again what else such a message held, if
    they miss it. All jobs are deleted, too: nodes embed those texts themselves. Call this before
    the nodes erase the texts and once more after that, because a node may publish in between what
    it was embedding. Raises store.io.
    """
    erased_keys, why = frozenset(keys), "no server is named"
    for server in settings.servers:
        seqs: list[int] = []
        act = partial(_erase, store=settings.stream, keys=erased_keys, seqs=seqs)
        try:
            asyncio.run(using(server, settings.credentials, act))
        except LOST as error:
            why = words(error)
            continue
        return len(seqs)
    raise KbprocError("store.io", f"The cluster's vectors were not erased: {why}.")


async def _erase(client: Client, store: str, keys: frozenset[bytes], seqs: list[int]) -> None:
    """Deletes the messages and all jobs; adds the messages' seqs to `seqs`."""
    context = client.jetstream(timeout=_ANSWERS_S)
    try:
        await context.purge_stream(work_stream(store))
        seqs += await _seqs_with(context, store, keys)
    except NotFoundError:
        return  # no node has shared vectors yet
    for seq in seqs:
        await context.delete_msg(vectors_stream(store), seq)


async def _seqs_with(context: JetStreamContext, store: str, keys: frozenset[bytes]) -> list[int]:
    """Returns the seqs of messages that hold one of the keys.

    Raises TimeoutError if the server that answers lacks messages that the leader has.
    """
    name = vectors_stream(store)
    state = (await context.stream_info(name)).state
    remaining, last_seq = state.messages, state.last_seq
    if not remaining or not keys:
        return []
    config = ConsumerConfig(inactive_threshold=_ANSWERS_S)
    subscription = await context.subscribe(
        f"kb.{store}.vectors.*", stream=name, ordered_consumer=True, config=config
    )
    seqs, seq = [], 0
    while remaining:
        message = await subscription.next_msg(timeout=_ANSWERS_S)
        seq = message.metadata.sequence.stream
        if not keys.isdisjoint(keys_in(message.data)):
            seqs.append(seq)
        remaining = min(remaining - 1, message.metadata.num_pending)
    await subscription.unsubscribe()
    with contextlib.suppress(NotFoundError):
        next_message = await context.get_msg(
            name, seq=seq + 1, subject=f"kb.{store}.vectors.*", next=True
        )
        if (next_message.seq or 0) <= last_seq:  # `get_msg` asks the leader
            raise TimeoutError("a server of the cluster holds less than the one that leads")
    return seqs
