"""Which stream a store's log is, and on which servers.

Owns: the table [log] of a store's settings, and what is wrong with it in words.
Refuses to know: how a stream is reached.
"""

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
    """`servers`: nats:// URLs. `stream`: what the cluster calls the store.

    `monitor`: the servers' http:// addresses, which tell whether they sync every write.
    `unsafe_sync`: the user takes the loss of acknowledged writes into account. `credentials`: a
    file that proves who we are. `node`: tells this node from the others.
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
        """The stream's on the server."""
        return f"KB_{self.stream}"

    @property
    def copies(self) -> int:
        """So many servers keep each record of a stream that is made, unless somebody says so."""
        return _MOST_COPIES if len(self.servers) >= _MOST_COPIES else 1

    @property
    def subject(self) -> str:
        return f"kb.{self.stream}.log"

    @property
    def closed_subject(self) -> str:
        """While the stream is being refilled, so that nobody else writes to it."""
        return f"kb.{self.stream}.refill"


_decode = decoder(StreamSettings).decode


def read(table: dict[str, Any]) -> StreamSettings:
    """Raises store.corrupt, which names what is wrong."""
    try:
        found = _decode(msgspec.json.encode(table))
    except msgspec.ValidationError as error:
        raise _unusable(str(error)) from None
    if found.kind != KIND:
        raise _unusable(f"there is no kind {found.kind!r}")
    if not found.servers:
        raise _unusable("it names no servers")
    if not _NAME.match(found.stream):
        raise _unusable(f"{found.stream!r} can't name a stream: letters, digits and hyphens can")
    return found


def _unusable(why: str) -> KbprocError:
    return KbprocError(
        "store.corrupt",
        f"The table [log] of store.toml can't be used: {why}.",
        hint='It says kind = "jetstream", servers = ["nats://…"], stream = "NAME", and '
        'monitor = ["http://…"] or unsafe_sync = true.',
    )
