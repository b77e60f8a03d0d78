"""Bytes beside the stream, by name: sources, and records that are too long for a message.

Owns: the bucket of the object store, and what is written there and read.
Refuses to know: what the bytes are. It lives in the thread of its loop.
"""

from __future__ import annotations

import asyncio
import contextlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import sha256

from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js.api import ObjectStoreConfig, RawStreamMsg, StorageType
from nats.js.errors import DigestMismatchError, NotFoundError
from nats.js.object_store import ObjectStore

_READS_S = 60.0


class Shelf:
    """What is put under a name stays what it is: equal names have equal bytes."""

    def __init__(self, connection: Client, bucket: str, answers_s: float) -> None:
        self._bucket = bucket
        self._context = connection.jetstream(timeout=answers_s)
        self._stream = f"OBJ_{bucket}"
        self._objects = ObjectStore(bucket, self._stream, self._context)
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
        """Its parts from whoever leads: the library waits for ever for a server that lacks some.

        Raises NatsError where they are not what they were.
        """
        try:
            found = await self._objects.get_info(name)
        except NotFoundError:
            return None
        parts, seq = list[bytes](), 0
        for _ in range(found.chunks or 0):
            part = await self._next(f"$O.{self._bucket}.C.{found.nuid}", seq)
            if part is None:
                break
            parts.append(part.data or b"")
            seq = part.seq or 0
        data = b"".join(parts)
        digest = urlsafe_b64encode(sha256(data).digest()).decode()
        if found.size and found.digest != f"SHA-256={digest}":
            raise DigestMismatchError
        return data

    async def _next(self, subject: str, after_seq: int) -> RawStreamMsg | None:
        with contextlib.suppress(NotFoundError):
            return await self._context.get_msg(
                self._stream, seq=after_seq + 1, subject=subject, next=True
            )
        return None

    async def names(self) -> list[str]:
        """Sorted; none where there is no such shelf. For a shelf that holds few."""
        filter = f"$O.{self._bucket}.M.*"
        try:
            found = await self._context.stream_info(self._stream, subjects_filter=filter)
        except NotFoundError:
            return []
        subjects = found.state.subjects or {}
        return sorted(urlsafe_b64decode(one.rpartition(".")[2]).decode() for one in subjects)

    async def erase(self, name: str) -> None:
        """Its bytes are overwritten: what the library deletes stays in the server's files."""
        async with self._one:
            try:
                found = await self._objects.get_info(name)
            except NotFoundError:
                return
            await self._erase_all(f"$O.{self._bucket}.C.{found.nuid}")
            named = urlsafe_b64encode(name.encode()).decode()
            await self._erase_all(f"$O.{self._bucket}.M.{named}")

    async def _erase_all(self, subject: str) -> None:
        seq = 0
        while found := await self._next(subject, seq):
            seq = found.seq or 0
            with contextlib.suppress(NotFoundError):  # another has erased it
                await self._context.delete_msg(self._stream, seq)
