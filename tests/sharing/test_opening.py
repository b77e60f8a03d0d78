"""An owner opens its store again, as long as the reason why it could not may pass."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from kbproc.engine.log.lease import FileLease
from kbproc.knowledge.app.library import Library
from tests.kit.patience import PATIENCE
from tests.kit.talk import Session


def test_an_opening_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that comes during a try sees why the last one failed, until there is a store."""
    open_library = Library.open
    errors: list[str | None] = []

    def opened(store: Path, **named: Any) -> Library:
        if not sessions:
            raise OSError(errno.ENOSPC, "No space left on device")
        error = sessions[0].owner.error
        errors.append(None if error is None else error.type)
        return open_library(store, **named)

    sessions: list[Session] = []
    monkeypatch.setattr(Library, "open", opened)
    session = Session(tmp_path / "store", cwd=tmp_path)
    sessions.append(session)
    (tmp_path / "store").mkdir(exist_ok=True)
    other = FileLease(tmp_path / "store")
    other.take(1)
    assert session.error("status")["type"] == "store.locked"
    other.release()
    assert session.data("status")
    assert errors == ["store.io", "store.locked"]
    session.close()


def test_a_client_that_comes_while_the_store_closes_reads_nothing(tmp_path: Path) -> None:
    session = Session(tmp_path / "store", cwd=tmp_path, model="none")
    session.connection.end(PATIENCE)
    session.owner.close()
    session.owner.begin(session.connection)  # reads no closed catalog
