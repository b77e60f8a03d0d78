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
    """Makes a client; `kind` is Kbproc if nothing else is said."""
    found: list[Any] = []

    def open(kind: Any = Kbproc, command: list[str] | None = None, **options: Any) -> Any:
        command = command or serving(tmp_path / "store")
        found.append(kind(command=command, cwd=tmp_path, env=ENVIRONMENT, **options))
        return found[-1]

    yield open
    for client in found:
        client.close()


@pytest.fixture(params=[Waiting, Awaiting], ids=["waits", "awaits"])
def either(request: pytest.FixtureRequest, opened: Open) -> Open:
    """The same, of both kinds."""

    def open(**options: Any) -> Any:
        return opened(request.param, **options)

    return open
