"""Reads the table [log] of a store's settings: which stream on which servers is its log."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec import Struct

from kbproc.base.errors import KbprocError
from kbproc.base.values import decoder

KIND = "jetstream"
_MOST_COPIES = 3
_NAME = re.compile(r"[A-Za-z0-9-]{1,64}\Z")


class StreamSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A store's stream. `servers`: nats:// URLs. `stream`: the store's name in the cluster.

    `monitor`: the servers' http:// addresses, where they report whether they sync every write.
    `unsafe_sync`: the user accepts that acknowledged writes may be lost. `credentials`: a file
    that authenticates this node. `node`: this node's own name.
    """

    kind: str
    servers: list[str]
    stream: str
    monitor: list[str] = []
    unsafe_sync: bool = False
    credentials: str | None = None
    node: str | None = None

    @property
    def name(self) -> str:
        """The stream's name on the server."""
        return f"KB_{self.stream}"

    @property
    def copies(self) -> int:
        """The number of servers that keep each record of a new stream, unless the user sets it."""
        return _MOST_COPIES if len(self.servers) >= _MOST_COPIES else 1

    @property
    def subject(self) -> str:
        return f"kb.{self.stream}.log"

    @property
    def closed_subject(self) -> str:
        """The subject while the stream is refilled, so that nodes can't write to it."""
        return f"kb.{self.stream}.refill"


_decode = decoder(StreamSettings).decode


def read(table: dict[str, Any]) -> StreamSettings:
    """Returns the settings in the table [log]. Raises store.corrupt, which names the fault."""
    try:
        settings = _decode(msgspec.json.encode(table))
    except msgspec.ValidationError as error:
        raise _unusable(str(error)) from None
    if settings.kind != KIND:
        raise _unusable(f"there is no kind {settings.kind!r}")
    if not settings.servers:
        raise _unusable("it names no servers")
    if not _NAME.match(settings.stream):
        raise _unusable(f"{settings.stream!r} can't name a stream: letters, digits and hyphens can")
    return settings


def _unusable(why: str) -> KbprocError:
    return KbprocError(
        "store.corrupt",
        f"The table [log] of store.toml can't be used: {why}.",
        hint='It says kind = "jetstream", servers = ["nats://…"], stream = "NAME", and '
        'monitor = ["http://…"] or unsafe_sync = true.',
    )
