"""Fixtures: the agent gitea and its notes folder, without a watcher."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import OpenSession
from tests.kit.notes import attach
from tests.kit.talk import Session


@pytest.fixture
def session(open_session: OpenSession) -> Session:
    opened = open_session()
    attach(opened)
    opened.data("agent.create", slug="gitea")
    return opened


@pytest.fixture
def folder(session: Session) -> Path:
    path: Path = session.store.folder / "notes" / "gitea"
    path.mkdir(parents=True, exist_ok=True)
    return path
