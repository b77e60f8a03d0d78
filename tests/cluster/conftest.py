"""Nodes of a cluster in this process, and processes that end with a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest

from kbproc.engine.cluster.jetstream.settings import StreamSettings
from tests.kit.nats import put_settings
from tests.kit.talk import Session


@pytest.fixture
def open_node(tmp_path: Path) -> Iterator[Callable[..., Session]]:
    opened: list[Session] = []

    def open(name: str, settings: StreamSettings, model: str = "hash") -> Session:
        put_settings(tmp_path / name, settings, model)
        opened.append(Session(tmp_path / name, cwd=tmp_path))
        return opened[-1]

    yield open
    for session in opened:
        session.close()


@pytest.fixture
def started() -> Iterator[list[Popen[Any]]]:
    """A list of processes that are killed at the end of the test."""
    processes: list[Popen[Any]] = []
    yield processes
    for process in processes:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
