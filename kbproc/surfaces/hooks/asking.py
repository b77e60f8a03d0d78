"""Asks the owner of the store, or opens the store where it has none."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from kbproc.base.errors import KbprocError
from kbproc.client.asker import Asker, Message
from kbproc.engine.store.folder import require_store
from kbproc.surfaces.sharing.link import Gone, Link, converse, hello, refusal
from kbproc.surfaces.sharing.reach import connect, state_of, stopped

if TYPE_CHECKING:
    from pathlib import Path

    from kbproc.base.settings.config import Config
    from kbproc.surfaces.sharing.command import Command

# A method with its params.
Request = tuple[str, dict[str, Any]]
READ_SCOPES = ["doc:read", "kb:read", "knowledge:read", "note:read"]


_SURFACE = "hook"


class HookQuestion:
    """Requests to one store; to its owner they have these `scopes` alone."""

    def __init__(self, config: Config, folder: Path, scopes: Sequence[str] = READ_SCOPES) -> None:
        """Reaches the owner. Raises resource.not_found without a store, store.locked."""
        require_store(config.store)
        self._config = config
        self._link = _linked(config, folder, scopes)
        self._command: Command | None = None

    @property
    def is_attached(self) -> bool:
        """Returns true while another process has the store open."""
        return self._link is not None

    def all(self, requests: Sequence[Request]) -> list[dict[str, Any]]:
        """Returns the results, in the requests' order. Raises the first error of a method.

        Raises store.locked where the owner is stopped.
        """
        return [_result(response) for response in self.responses(requests)]

    def responses(self, requests: Sequence[Request]) -> list[dict[str, Any]]:
        """Returns the responses, each with `result` or `error`, in the requests' order."""
        if self._link is not None:
            try:
                return self._attached(self._link, requests)
            except Gone:  # the owner has ended, and this process may become the next one
                self._link.close()
                self._link = None
        command = self._command = self._command or _command(self._config)
        return [command.ask(name, params, lambda event: None) for name, params in requests]

    def _attached(self, link: Link, requests: Sequence[Request]) -> list[dict[str, Any]]:
        asker = Asker()
        answers: dict[int, Message] = {}
        for place, (name, params) in enumerate(requests):
            asker.ask(name, params, functools.partial(answers.__setitem__, place))
        converse(asker, link, _Check(self._config.store, link.pid))
        return [answers[place] for place in range(len(requests))]

    def close(self) -> None:
        """Closes the link, or the store."""
        if self._link is not None:
            self._link.close()
        if self._command is not None:
            self._command.close()


class _Check:
    """Raises store.locked while the owner is stopped, because it will not answer in time."""

    def __init__(self, store: Path, pid: int) -> None:
        self._store = store
        self._pid = pid

    def __call__(self) -> None:
        if state_of(self._pid) == "stopped":
            raise stopped(self._store, self._pid)


def _linked(config: Config, folder: Path, scopes: Sequence[str]) -> Link | None:
    """Returns the link to the owner; None without one. Raises the owner's refusal."""
    connection = connect(config.store)
    if connection is None:
        return None
    link = Link(connection)
    greeting = msgspec.structs.replace(hello(config, folder), scopes=list(scopes), surface=_SURFACE)
    try:
        link.greet(greeting, _Check(config.store, link.pid))
    except Gone:
        return None
    return link


def _command(config: Config) -> Command:
    """Returns a command, which opens the store. Imported late, because that is heavy."""
    from kbproc.base.host import Host
    from kbproc.base.spared import import_for_a_command

    import_for_a_command()
    from kbproc.methods.all import registry
    from kbproc.surfaces.sharing.command import Command

    return Command(config=config, registry=registry(), host=Host(), surface=_SURFACE)


def _result(response: dict[str, Any]) -> dict[str, Any]:
    if "error" in response:
        raise refusal(response["error"]["data"])
    result: dict[str, Any] = response["result"]
    if not isinstance(result, dict):
        raise KbprocError("internal.error", "The owner's answer has no result.")
    return result
