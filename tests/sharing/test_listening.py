"""The socket of an owner: recreated while the process owns the store, removed afterwards."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from kbproc.base.errors import KbprocError
from kbproc.base.settings.config import Config
from kbproc.engine.log.lease import FileLease
from kbproc.surfaces.sharing.reach import Listening
from tests.kit.patience import GLIMPSE, PATIENCE


def listening_at(store: Path) -> Listening:
    """Creates a store; returns its owner's socket."""
    store.mkdir(mode=0o700)
    lease = FileLease(store)
    lease.take(1)
    return Listening(lease, Config(store=store, cache=store / "cache"))


def test_a_thread_that_accepts_hears_of_the_end(tmp_path: Path) -> None:
    """accept() raises even if the socket was closed before the call."""
    listening = listening_at(tmp_path / "store")
    listening.close()
    with pytest.raises(OSError, match="closed"):
        listening.accept()


def test_a_socket_that_can_not_be_announced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk the store is not opened; the next process may take the lease."""

    def refuse(self: FileLease, address: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    store = tmp_path / "store"
    with monkeypatch.context() as full:
        full.setattr(FileLease, "announce", refuse)
        with pytest.raises(KbprocError) as raised:
            listening_at(store)
    assert (raised.value.type, "No space left" in raised.value.message) == ("store.io", True)
    assert not (store / "kbproc.sock").exists()
    lease = FileLease(store)
    lease.take(2)
    lease.release()


def test_what_is_stopped_is_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The accepting thread has just noticed that its socket was removed, when stop() is called."""
    listening = listening_at(tmp_path / "store")
    stopping = threading.Thread(target=listening.stop)

    def check(self: FileLease) -> None:
        if self is listening.lease:  # stores of other tests may still be closing
            stopping.start()
            stopping.join(GLIMPSE)  # let it run as far as it can

    monkeypatch.setattr(FileLease, "check", check)
    listening.path.unlink()
    assert listening.accept() is None
    stopping.join(PATIENCE)
    assert not stopping.is_alive()
    assert not listening.path.exists()
    listening.lease.release()
