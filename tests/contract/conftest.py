from __future__ import annotations

import pytest

from tests.kit.judged import started


@pytest.fixture
def kit_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forks the processes that the kit starts."""
    monkeypatch.setattr("kbproc.contract.exchange.popen", started)
