"""Where a conversation takes place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from kbproc.library import upkeep
from tests.conversations.scripts import BASE, make_files
from tests.kit.fixed import IDLE_SECONDS
from tests.kit.places import alone_at


@pytest.fixture
def folder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The same path on every machine, and one run at a time in it."""
    monkeypatch.setattr(upkeep, "IDLE_SECONDS", IDLE_SECONDS)
    with alone_at(BASE / request.node.callspec.params["name"]) as path:
        make_files(path)
        yield path
    with suppress(OSError):  # other conversations are there
        BASE.rmdir()
