"""The place where an owner listens: made again while it is one, gone once it is none."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from kbproc.base.errors import KbprocError
from kbproc.log.lease import FileLease
from kbproc.settings.config import Config
from kbproc.sharing.listening import Listening
from tests.kit.patience import PATIENCE


def listening_at(store: Path) -> Listening:
    """The lease of a new store, and the socket in it."""
    store.mkdir(mode=0o700)
    lease = FileLease(store)
    lease.take(1)
    return Listening(lease, Config(store=store, cache=store / "cache"))


def test_a_thread_that_accepts_hears_of_the_end(tmp_path: Path) -> None:
    """Also where the socket was closed before it looked."""
    listening = listening_at(tmp_path / "store")
    listening.close()
    with pytest.raises(OSError, match="closed"):
        listening.accept()


def test_a_socket_that_can_not_be_announced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk the store is not opened, and whoever comes next may try."""

    def refuse(self: FileLease, address: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    store = tmp_path / "store"
    with monkeypatch.context() as full:
        full.setattr(FileLease, "announce", refuse)
        with pytest.raises(KbprocError) as found:
            listening_at(store)
    assert (found.value.type, "No space left" in found.value.message) == ("store.io", True)
    assert not (store / "kbproc.sock").exists()
    lease = FileLease(store)
    lease.take(2)
    lease.release()


def test_what_is_stopped_is_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if its socket was removed, and the thread that accepts has just seen it."""
    listening = listening_at(tmp_path / "store")
    stopping = threading.Thread(target=listening.stop)

    def check(self: FileLease) -> None:
        if self is listening.lease:  # stores of other tests may be closing still
            stopping.start()
            stopping.join(0.2)  # as far as it comes

    monkeypatch.setattr(FileLease, "check", check)
    listening.path.unlink()
    assert listening.accept() is None
    stopping.join(PATIENCE)
    assert not stopping.is_alive()
    assert not listening.path.exists()
    listening.lease.release()
