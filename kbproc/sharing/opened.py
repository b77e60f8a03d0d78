"""The store of a process: not open yet, open, or why it is not.

Owns: waiting for it, and the event that tells a client that it is ready.
Refuses to know: who opens it, and who attaches.
"""

from __future__ import annotations

import threading
from typing import Any

import msgspec

from kbproc.agents.sight import require_agent, sight_of
from kbproc.base.errors import KbprocError
from kbproc.calls.call import Peer
from kbproc.store.store import Store
from kbproc.store.visible import narrowed
from kbproc.wire import messages


class Opened:
    """The store, once it is open, or why it could not be."""

    def __init__(self) -> None:
        self.store: Store | None = None
        self.error: KbprocError | None = None
        self.settled = threading.Event()

    def get(self) -> Store:
        if self.store is None:
            raise self.error or KbprocError("internal.error", "The store is not open.")
        return self.store


def ready(store: Store, wire: messages.Wire, peer: Peer) -> bytes:
    """The event that says so, and to an agent what it may do; an error if there is no such."""
    try:
        agent = require_agent(store.published.roster, peer.actor, peer.named)
    except KbprocError as error:
        return wire.plain_event("error", {"error": msgspec.to_builtins(messages.error_data(error))})
    scopes, bound = peer.scopes, dict[str, Any]()
    if agent is not None:
        scopes = scopes if agent.scopes is None else scopes & set(agent.scopes)
        bound = {"agent": agent.slug, "scopes": sorted(scopes)}
    seen = narrowed(store, sight_of(agent, scopes))
    with seen.reading() as snapshot:
        freshness = seen.freshness(snapshot)
    params = {"seq": freshness.seq, "freshness": freshness, **bound}
    return wire.plain_event("ready", params)
