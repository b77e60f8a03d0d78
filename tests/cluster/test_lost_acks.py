"""Acknowledgements that a proxy eats, for longer than a node asks again for them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kbproc.log.jetstream import log as shared_log
from kbproc.log.jetstream import stream
from kbproc.log.jetstream.making import ask
from kbproc.log.jetstream.stream import Stream
from tests.kit import nats
from tests.kit.deaf import Proxy
from tests.kit.patience import until
from tests.kit.talk import Session


@pytest.mark.parametrize("window_s", [600, 0.1], ids=["within", "beyond"])
def test_a_write_that_nobody_acknowledged_is_there_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window_s: float
) -> None:
    """The node can't tell whether it was kept, and says so; the same token again writes it once,
    whether or not the servers still know its message.
    """
    monkeypatch.setattr(shared_log, "PATIENCE_S", 0.0)
    [server] = nats.shared()
    settings = nats.shared().settings()
    ask(settings, partial(Stream.create, replicas=1, window_s=window_s))
    proxy = Proxy(server.port)
    behind = msgspec.structs.replace(settings, servers=[f"nats://127.0.0.1:{proxy.port}"])
    session = Session(nats.put_settings(tmp_path / "one", behind), cwd=tmp_path)
    session.data("kb.create", slug="first")
    proxy.deaf = True
    with monkeypatch.context() as patched:
        patched.setattr(stream, "ANSWERS_S", 0.2)
        refused = session.error("kb.create", slug="papers", client_token="t")
    assert (refused["type"], refused["retryable"]) == ("store.io", True)
    assert refused["detail"] == {"kept": None} and proxy.lost.is_set()
    proxy.deaf = False
    said: list[Any] = []

    def is_told() -> bool:
        said.append(session.ask("kb.create", slug="papers", client_token="t"))
        return "result" in said[-1]

    until(is_told, "the outcome")
    assert said[-1]["result"]["meta"]["seq"] == 3
    assert said[-1]["result"]["data"]["slug"] == "papers"
    assert ask(settings, Stream.state).last_seq == 3
    session.close()
    proxy.close()
