"""The servers that hold a stream: lists them, finds their leader, and changes both."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from kbproc.base.errors import KbprocError
from kbproc.engine.cluster.jetstream.making import ask
from kbproc.engine.cluster.jetstream.settings import StreamSettings
from kbproc.engine.cluster.jetstream.stream import LogStream
from tests.kit.nats import Server
from tests.kit.patience import PATIENCE, until

# Seconds for an answer. A server that loses the lead gives none, and the caller asks again.
_ANSWERS_S = PATIENCE / 60


class Replicas:
    """The replicas of one stream."""

    def __init__(self, settings: StreamSettings) -> None:
        self._settings = settings

    def standing(self) -> dict[str, Any]:
        """Returns the cluster state from the leader's view; empty without a leader."""
        info: dict[str, Any] = _asked(self._settings, f"STREAM.INFO.{self._settings.name}")
        cluster: dict[str, Any] = info.get("cluster", {})
        return cluster if cluster.get("leader") else {}

    @property
    def leader(self) -> str | None:
        return self.standing().get("leader")

    @property
    def names(self) -> list[str]:
        """The servers' names, the leader first."""
        standing = self.standing()
        others = [one["name"] for one in standing.get("replicas", [])]
        return [standing["leader"], *sorted(others)] if standing else []

    def is_whole(self) -> bool:
        """Returns True if there are three replicas and each is up to date."""
        others = self.standing().get("replicas", [])
        return len(others) == 2 and all(
            one["current"] and not one.get("offline") and not one.get("lag") for one in others
        )

    def until_whole(self) -> None:
        until(self.is_whole, "three whole replicas", lambda: str(self.standing()))

    def lead(self, name: str) -> None:
        """Makes this server the leader."""
        placement = {"placement": {"preferred": name}}

        def leads() -> bool:
            if self.leader == name:
                return True
            _asked(self._settings, f"STREAM.LEADER.STEPDOWN.{self._settings.name}", placement)
            return False

        until(leads, f"{name} to lead", lambda: str(self.standing()))

    def remove(self, name: str) -> None:
        """Removes the replica from this server; NATS places it on another."""

        def is_gone() -> bool:
            names = self.names
            if names and name not in names:
                return True
            _asked(self._settings, f"STREAM.PEER.REMOVE.{self._settings.name}", {"peer": name})
            return False

        until(is_gone, f"{name} to hold it no longer", lambda: str(self.standing()))


def bury(server: Server, others: list[Server]) -> None:
    """Removes a dead server from the cluster for good."""
    urls = [one.url.replace("//", "//operator:operator@") for one in others]
    settings = StreamSettings(kind="jetstream", servers=urls, stream="any")
    replies = []

    def is_gone() -> bool:
        replies.append(_asked(settings, "SERVER.REMOVE", {"peer": server.name}))
        return bool(replies[-1].get("success"))

    until(is_gone, f"the end of {server.name}", lambda: str(replies[-1]))


def _asked(
    settings: StreamSettings, what: str, body: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Returns the API's reply; empty if none comes."""
    try:
        return ask(settings, partial(_ask, what=what, body=body))
    except KbprocError:
        return {}


async def _ask(stream: LogStream, what: str, body: dict[str, Any] | None) -> dict[str, Any]:
    payload = b"" if body is None else msgspec.json.encode(body)
    answer = await stream.connection.request(f"$JS.API.{what}", payload, timeout=_ANSWERS_S)
    reply: dict[str, Any] = msgspec.json.decode(answer.data)
    return reply
