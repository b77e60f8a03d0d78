"""Clients of forked servers, in both kinds; none of them outlives its test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kbproc.client import Kbproc
from tests.kit.harness import ENVIRONMENT, Awaiting, Waiting, popen, serving

Open = Callable[..., Any]


@pytest.fixture(autouse=True)
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kbproc.client.process.popen", popen)


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    """Makes clients, of class Kbproc by default, and closes them after the test."""
    clients: list[Any] = []

    def open(kind: Any = Kbproc, command: list[str] | None = None, **options: Any) -> Any:
        command = command or serving(tmp_path / "store")
        clients.append(kind(command=command, cwd=tmp_path, env=ENVIRONMENT, **options))
        return clients[-1]

    yield open
    for client in clients:
        client.close()


@pytest.fixture(params=[Waiting, Awaiting], ids=["waits", "awaits"])
def either(request: pytest.FixtureRequest, opened: Open) -> Open:
    """Makes clients of both kinds, one kind a test."""

    def open(**options: Any) -> Any:
        return opened(request.param, **options)

    return open
