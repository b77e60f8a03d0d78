"""Making a stream, looking at one and taking it away, for whoever has no log open.

Owns: one connection for one question.
Refuses to know: logs and records.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import nats
from nats.errors import Error as NatsError

from kbproc.base.errors import KbprocError
from kbproc.log.jetstream.settings import StreamSettings
from kbproc.log.jetstream.stream import ANSWERS_S, Refused, Stream

T = TypeVar("T")


def ask(settings: StreamSettings, work: Callable[[Stream], Awaitable[T]]) -> T:
    """Of the first server that answers. Raises store.io."""
    return asyncio.run(_ask(settings, work))


async def _ask(settings: StreamSettings, work: Callable[[Stream], Awaitable[T]]) -> T:
    async def ignore(error: Exception) -> None:
        """It is raised, too."""

    why: Exception | None = None
    for server in settings.servers:
        try:
            connection = await nats.connect(
                [server],
                error_cb=ignore,
                allow_reconnect=False,
                connect_timeout=int(ANSWERS_S),
                user_credentials=settings.credentials,
            )
        except (TimeoutError, NatsError, OSError) as error:
            why = error
            continue
        try:
            return await work(Stream(connection, settings))
        except (TimeoutError, NatsError, OSError, Refused) as error:
            why = error
        finally:
            await connection.close()
    raise KbprocError(
        "store.io",
        f"No server of the cluster has done it: {str(why) or type(why).__name__}.",
        hint="Check servers in store.toml, [log], and that the servers run with JetStream.",
    )
