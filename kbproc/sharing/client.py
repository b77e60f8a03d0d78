"""One client of the store that this process owns.

Owns: the store of this process, which is open or is not, what a hello means for a
connection, and the event that tells a client that the store is ready.
Refuses to know: over which descriptors a client speaks, and when it leaves.
"""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path
from typing import Any

import msgspec

from kbproc.agents.access import require_agent, scopes_of, visible_to
from kbproc.base.errors import KbprocError
from kbproc.calls.call import Peer, known
from kbproc.library.library import Library
from kbproc.sharing.reach import Hello
from kbproc.store.state import SeenStore
from kbproc.store.visible import narrowed
from kbproc.wire import messages
from kbproc.wire.connection import Connection
from kbproc.wire.outbox import Outbox
from kbproc.wire.service import Service

_logger = logging.getLogger(__name__)


class Opened:
    """The store, once it is open, or why it could not be."""

    def __init__(self) -> None:
        self.library: Library | None = None
        self.error: KbprocError | None = None
        self.settled = threading.Event()

    def get(self) -> Library:
        """Raises why there is no store."""
        if self.library is None:
            raise self.why_not()
        return self.library

    def why_not(self) -> KbprocError:
        return self.error or KbprocError("internal.error", "The store is not open.")


def connection_of(
    service: Service, hello: Hello, outbox: Outbox, *, profiles: tuple[str, ...] = ()
) -> Connection:
    """A connection whose requests wait for `begin`. `profiles`: the names `describe` lists."""
    connection = Connection(
        service,
        _peer_of(hello, frozenset(service.registry.scopes), profiles),
        outbox,
        wire=service.wire.limited(hello.max_line_bytes),
        max_in_flight=hello.max_in_flight,
    )
    connection.opening.hold()
    return connection


def _peer_of(hello: Hello, known: frozenset[str], profiles: tuple[str, ...]) -> Peer:
    return Peer(
        actor=hello.actor,
        scopes=frozenset(hello.scopes) & known,
        cwd=_path(hello.cwd, hello.odd_cwd),
        root=None if hello.root is None else _path(hello.root, hello.odd_root),
        kb=hello.kb,
        surface=hello.surface,
        named_by=hello.named_by,
        scoped=hello.scoped,
        is_self_named=hello.is_self_named,
        profile=hello.profile,
        profiles=profiles,
        allow_private_addresses=hello.allow_private_addresses,
    )


def _path(spelled: str, odd: bytes | None) -> Path:
    return Path(spelled if odd is None else os.fsdecode(odd))


def begin(opened: Opened, connection: Connection) -> None:
    """Tells the client that the store is ready, or why it is not; work begins."""
    wire, library = connection.wire, opened.library
    if library is None:
        connection.outbox.send(_error(wire, opened.why_not()))
    else:
        connection.outbox.send(_ready(library.store, wire, connection.peer))
        _start(library)
    connection.opening.end()


def _start(library: Library) -> None:
    """Begins work in the background. Where no thread can be had, the next client begins it."""
    try:
        library.start()
    except RuntimeError as error:
        if not messages.is_no_thread(error):
            raise
        _logger.warning("no work in the background was begun: %s", error)


def _ready(store: SeenStore, wire: messages.Wire, peer: Peer) -> bytes:
    """The event `ready`, which tells an agent what it may do; an error for an unknown agent."""
    roster = store.published.roster
    try:
        peer = known(peer, roster)
        agent = require_agent(roster, peer.actor, peer.named_by)
    except KbprocError as error:
        return _error(wire, error)
    scopes = scopes_of(agent, peer.scopes, named=peer.scoped)
    bound: dict[str, Any] = {}
    if agent is not None:
        bound = {"agent": agent.slug, "scopes": sorted(scopes)}
    seen = narrowed(store, visible_to(agent, scopes))
    with seen.reading() as snapshot:
        freshness = seen.freshness(snapshot)
    return wire.plain_event("ready", {"seq": freshness.seq, "freshness": freshness, **bound})


def _error(wire: messages.Wire, error: KbprocError) -> bytes:
    return wire.plain_event("error", {"error": msgspec.to_builtins(messages.error_data(error))})
