"""Stores bytes by name beside the stream: sources, and records too long for a message.

They lie in a bucket of JetStream's object store.
"""

from __future__ import annotations

import asyncio
import contextlib
from base64 import urlsafe_b64decode, urlsafe_b64encode

from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js.api import ObjectStoreConfig, RawStreamMsg, StorageType
from nats.js.errors import DigestMismatchError, NotFoundError
from nats.js.object_store import ObjectStore

from kbproc.base.hashes import sha256

_READS_S = 60.0


class ObjectShelf:
    """A bucket of bytes by name. The bytes of a name never change."""

    def __init__(self, connection: Client, bucket: str, answers_s: float) -> None:
        self._bucket = bucket
        self._context = connection.jetstream(timeout=answers_s)
        self._stream = f"OBJ_{bucket}"
        self._objects = ObjectStore(bucket, self._stream, self._context)
        self._upload_lock = asyncio.Lock()  # uploads side by side hit the server's limits

    async def create(self, replicas: int) -> None:
        await self._context.create_object_store(
            self._bucket, ObjectStoreConfig(replicas=replicas, storage=StorageType.FILE)
        )

    async def put(self, name: str, data: bytes) -> None:
        """Stores the bytes durably, unless the name has some already."""
        async with self._upload_lock:
            if not await self.has(name):
                await self._objects.put(name, data)

    async def restore(self, name: str, data: bytes) -> bool:
        """Stores the bytes unless they are there undamaged; returns True if it stored them."""
        try:
            if await asyncio.wait_for(self.get(name), _READS_S) == data:
                return False
        except (NatsError, ValueError, TimeoutError):  # the stored parts are damaged
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
        """Returns the bytes, or None if the name has none. Raises NatsError for damaged bytes.

        It asks the leader for each part, because the library waits for ever for a server that
        lacks some.
        """
        try:
            info = await self._objects.get_info(name)
        except NotFoundError:
            return None
        parts, seq = list[bytes](), 0
        for _ in range(info.chunks or 0):
            part = await self._next(f"$O.{self._bucket}.C.{info.nuid}", seq)
            if part is None:
                break
            parts.append(part.data or b"")
            seq = part.seq or 0
        data = b"".join(parts)
        digest = urlsafe_b64encode(sha256(data).digest()).decode()
        if info.size and info.digest != f"SHA-256={digest}":
            raise DigestMismatchError
        return data

    async def _next(self, subject: str, after_seq: int) -> RawStreamMsg | None:
        with contextlib.suppress(NotFoundError):
            return await self._context.get_msg(
                self._stream, seq=after_seq + 1, subject=subject, next=True
            )
        return None

    async def names(self) -> list[str]:
        """Returns all names, sorted; none if there is no such shelf. For a shelf with few names."""
        filter = f"$O.{self._bucket}.M.*"
        try:
            info = await self._context.stream_info(self._stream, subjects_filter=filter)
        except NotFoundError:
            return []
        subjects = info.state.subjects or {}
        return sorted(
            urlsafe_b64decode(subject.rpartition(".")[2]).decode() for subject in subjects
        )

    async def erase(self, name: str) -> None:
        """Overwrites the bytes, which the library's deletion leaves in the server's files."""
        async with self._upload_lock:
            try:
                info = await self._objects.get_info(name)
            except NotFoundError:
                return
            await self._erase_all(f"$O.{self._bucket}.C.{info.nuid}")
            encoded_name = urlsafe_b64encode(name.encode()).decode()
            await self._erase_all(f"$O.{self._bucket}.M.{encoded_name}")

    async def _erase_all(self, subject: str) -> None:
        seq = 0
        while message := await self._next(subject, seq):
            seq = message.seq or 0
            with contextlib.suppress(NotFoundError):  # another node has erased it
                await self._context.delete_msg(self._stream, seq)
