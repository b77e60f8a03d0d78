"""The agent gitea and its folder of notes, which nobody watches."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import OpenSession
from tests.kit.notes import attach
from tests.kit.talk import Session


@pytest.fixture
def session(open_session: OpenSession) -> Session:
    made = open_session()
    attach(made)
    made.data("agent.create", slug="gitea")
    return made


@pytest.fixture
def folder(session: Session) -> Path:
    path: Path = session.store.folder / "notes" / "gitea"
    path.mkdir(parents=True, exist_ok=True)
    return path
