"""The servers that hold a stream: which they are, which of them leads, and changing both."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from kbproc.base.errors import KbprocError
from kbproc.log.jetstream.making import ask
from kbproc.log.jetstream.settings import StreamSettings
from kbproc.log.jetstream.stream import Stream
from tests.kit.nats import Server
from tests.kit.patience import until

_ANSWERS_S = 2.0


class Replicas:
    """Of one stream."""

    def __init__(self, settings: StreamSettings) -> None:
        self._settings = settings

    def standing(self) -> dict[str, Any]:
        """As whoever leads sees it; empty while nobody does."""
        found: dict[str, Any] = _asked(self._settings, f"STREAM.INFO.{self._settings.name}")
        cluster: dict[str, Any] = found.get("cluster", {})
        return cluster if cluster.get("leader") else {}

    @property
    def leader(self) -> str | None:
        return self.standing().get("leader")

    @property
    def names(self) -> list[str]:
        """The one that leads comes first."""
        standing = self.standing()
        others = [one["name"] for one in standing.get("replicas", [])]
        return [standing["leader"], *sorted(others)] if standing else []

    def is_whole(self) -> bool:
        """Three of them, and each has all."""
        others = self.standing().get("replicas", [])
        return len(others) == 2 and all(
            one["current"] and not one.get("offline") and not one.get("lag") for one in others
        )

    def until_whole(self) -> None:
        until(self.is_whole, "three whole replicas", lambda: str(self.standing()))

    def lead(self, name: str) -> None:
        """The others do not any more."""
        wanted = {"placement": {"preferred": name}}

        def leads() -> bool:
            if self.leader == name:
                return True
            _asked(self._settings, f"STREAM.LEADER.STEPDOWN.{self._settings.name}", wanted)
            return False

        until(leads, f"{name} to lead", lambda: str(self.standing()))

    def remove(self, name: str) -> None:
        """From this server; another one that has none gets it."""

        def is_gone() -> bool:
            names = self.names
            if names and name not in names:
                return True
            _asked(self._settings, f"STREAM.PEER.REMOVE.{self._settings.name}", {"peer": name})
            return False

        until(is_gone, f"{name} to hold it no longer", lambda: str(self.standing()))


def bury(server: Server, others: list[Server]) -> None:
    """It is dead, and never comes back; so the others go on without it."""
    urls = [one.url.replace("//", "//operator:operator@") for one in others]
    settings = StreamSettings(kind="jetstream", servers=urls, stream="any")
    said = []

    def is_gone() -> bool:
        said.append(_asked(settings, "SERVER.REMOVE", {"peer": server.name}))
        return bool(said[-1].get("success"))

    until(is_gone, f"the end of {server.name}", lambda: str(said[-1]))


def _asked(
    settings: StreamSettings, what: str, given: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Empty if nobody answers."""
    try:
        return ask(settings, partial(_ask, what=what, given=given))
    except KbprocError:
        return {}


async def _ask(stream: Stream, what: str, given: dict[str, Any] | None) -> dict[str, Any]:
    said = b"" if given is None else msgspec.json.encode(given)
    answer = await stream.connection.request(f"$JS.API.{what}", said, timeout=_ANSWERS_S)
    found: dict[str, Any] = msgspec.json.decode(answer.data)
    return found
