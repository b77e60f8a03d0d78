"""Stores of this process share a log in memory; see tests/kit/memory_log.py."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from kbproc.engine.cluster.interface import ClusteredLog
from tests.kit.memory_log import Streams
from tests.kit.nats import put_settings
from tests.kit.patience import until
from tests.kit.talk import Session


def test_two_nodes_write_one_log_and_both_forget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams = Streams().install(monkeypatch)
    stores = [put_settings(tmp_path / name, streams.settings()) for name in ("one", "two")]
    with contextlib.ExitStack() as opened:
        one, two = sessions = [Session(store, cwd=tmp_path) for store in stores]
        for session in sessions:
            assert isinstance(session.store.log, ClusteredLog)
            opened.callback(session.close)
        first = one.data("doc.create", title="one", text="a heron")
        second = two.data("doc.create", title="two", text="a crane")
        assert (first["id"], second["id"]) == (1, 2), "the second node knew of the first document"
        until(lambda: len(one.data("doc.list")) == 2, "the second document on the first node")
        plan = one.error("store.purge", document_ids=[1])["plan"]["plan_hash"]
        one.data("store.purge", document_ids=[1], confirm=plan)
        for store in stores:
            log = store / "log"
            until(lambda log=log: b"heron" not in _bytes(log), "the erasure")
            assert b"crane" in _bytes(log)


def _bytes(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.iterdir())
