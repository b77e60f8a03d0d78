"""The place where an owner listens: made again while it is one, gone once it is none."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from kbproc.log.lease import FileLease
from kbproc.settings.config import Config
from kbproc.sharing.listening import Listening
from tests.kit.patience import PATIENCE


def test_what_is_stopped_is_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if its socket was removed, and the thread that accepts has just seen it."""
    store = tmp_path / "store"
    store.mkdir(mode=0o700)
    lease = FileLease(store)
    lease.take(1)
    listening = Listening(lease, Config(store=store, cache=tmp_path / "cache"))
    stopping = threading.Thread(target=listening.stop)

    def check(self: FileLease) -> None:
        stopping.start()
        stopping.join(0.2)  # as far as it comes

    monkeypatch.setattr(FileLease, "check", check)
    listening.path.unlink()
    assert listening.accept() is None
    stopping.join(PATIENCE)
    assert not stopping.is_alive()
    assert not listening.path.exists()
    lease.release()
