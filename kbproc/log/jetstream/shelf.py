"""Bytes beside the stream, by name: sources, and records that are too long for a message.

Owns: the bucket of the object store, and what is written there and read.
Refuses to know: what the bytes are. It lives in the thread of its loop.
"""

from __future__ import annotations

import asyncio

from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js.api import ObjectStoreConfig, StorageType
from nats.js.errors import NotFoundError
from nats.js.object_store import ObjectStore

_READS_S = 60.0


class Shelf:
    """What is put under a name stays what it is: equal names have equal bytes."""

    def __init__(self, connection: Client, bucket: str, answers_s: float) -> None:
        self._bucket = bucket
        self._context = connection.jetstream(timeout=answers_s)
        self._objects = ObjectStore(bucket, f"OBJ_{bucket}", self._context)
        self._one = asyncio.Lock()  # uploads side by side hit the server's limits

    async def create(self, replicas: int) -> None:
        await self._context.create_object_store(
            self._bucket, ObjectStoreConfig(replicas=replicas, storage=StorageType.FILE)
        )

    async def put(self, name: str, data: bytes) -> None:
        """Once; it is kept when this returns."""
        async with self._one:
            if not await self.has(name):
                await self._objects.put(name, data)

    async def restore(self, name: str, data: bytes) -> bool:
        """Whether it was not there whole."""
        try:
            if await asyncio.wait_for(self.get(name), _READS_S) == data:
                return False
        except (NatsError, ValueError, TimeoutError):  # its parts are not what they were
            await self._objects.delete(name)
        await self._objects.put(name, data)
        return True

    async def has(self, name: str) -> bool:
        try:
            await self._objects.get_info(name)
        except NotFoundError:
            return False
        return True

    async def get(self, name: str) -> bytes | None:
        try:
            return (await self._objects.get(name)).data or b""
        except NotFoundError:
            return None
