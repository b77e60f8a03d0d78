"""Vectors of texts that are erased leave the cluster.

Owns: finding them in the stream of vectors, and taking every job away.
Refuses to know: which texts are erased, and what nodes have in their own packs.
"""

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
from kbproc.embedding.cluster.messages import keys_in, vectors_stream, work_stream
from kbproc.log.jetstream.connection import LOST, using, words
from kbproc.log.jetstream.settings import StreamSettings

_ANSWERS_S = 10.0


def erase(settings: StreamSettings, keys: Collection[bytes]) -> int:
    """Every message with one of these keys goes, its bytes overwritten; how many that was.

    What else such a message held is embedded again by whoever misses it. Jobs go, too: nodes embed
    those texts themselves. Call it before the nodes erase, and once more after that: what a node
    was embedding meanwhile may have come in between. Raises store.io.
    """
    wanted, why = frozenset(keys), "no server is named"
    for server in settings.servers:
        found: list[int] = []
        act = partial(_erase, store=settings.stream, keys=wanted, found=found)
        try:
            asyncio.run(using(server, settings.credentials, act))
        except LOST as error:
            why = words(error)
            continue
        return len(found)
    raise KbprocError("store.io", f"The cluster's vectors were not erased: {why}.")


async def _erase(client: Client, store: str, keys: frozenset[bytes], found: list[int]) -> None:
    context = client.jetstream(timeout=_ANSWERS_S)
    try:
        await context.purge_stream(work_stream(store))
        found += await _holding(context, store, keys)
    except NotFoundError:
        return  # no node has shared any
    for seq in found:
        await context.delete_msg(vectors_stream(store), seq)


async def _holding(context: JetStreamContext, store: str, keys: frozenset[bytes]) -> list[int]:
    """The seqs of messages that have such a key. Raises TimeoutError where the server that tells
    them lacks some.
    """
    name = vectors_stream(store)
    state = (await context.stream_info(name)).state
    left, last_seq = state.messages, state.last_seq
    if not left or not keys:
        return []
    config = ConsumerConfig(inactive_threshold=_ANSWERS_S)
    subscription = await context.subscribe(
        f"kb.{store}.vectors.*", stream=name, ordered_consumer=True, config=config
    )
    found, seq = [], 0
    while left:
        message = await subscription.next_msg(timeout=_ANSWERS_S)
        seq = message.metadata.sequence.stream
        if not keys.isdisjoint(keys_in(message.data)):
            found.append(seq)
        left = min(left - 1, message.metadata.num_pending)
    await subscription.unsubscribe()
    with contextlib.suppress(NotFoundError):
        more = await context.get_msg(name, seq=seq + 1, subject=f"kb.{store}.vectors.*", next=True)
        if (more.seq or 0) <= last_seq:  # asked of whoever leads
            raise TimeoutError("a server of the cluster holds less than the one that leads")
    return found
