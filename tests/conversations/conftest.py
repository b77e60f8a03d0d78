"""The folder of a conversation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from kbproc.engine.models import weights
from kbproc.knowledge.app import upkeep
from tests.conversations.scripts import BASE, make_files
from tests.kit.fixed import IDLE_SECONDS, NOT_HERE
from tests.kit.places import alone_at


@pytest.fixture
def folder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yields a folder at the same path on every machine, for one run at a time."""
    monkeypatch.setattr(upkeep, "IDLE_SECONDS", IDLE_SECONDS)
    monkeypatch.setattr(weights, "CARRIERS", NOT_HERE)
    with alone_at(BASE / request.node.callspec.params["name"]) as path:
        make_files(path)
        yield path
    with suppress(OSError):  # the base folder still has other conversations
        BASE.rmdir()
