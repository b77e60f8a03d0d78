from __future__ import annotations

import pytest

from tests.kit.judged import started


@pytest.fixture
def kit_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the kit starts is forked."""
    monkeypatch.setattr("kbproc.client.contract.peer.popen", started)
