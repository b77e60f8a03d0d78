"""A proxy drops acknowledgements for longer than a node retries."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kbproc.engine.cluster.jetstream import log as shared_log
from kbproc.engine.cluster.jetstream import stream
from kbproc.engine.cluster.jetstream.making import ask
from kbproc.engine.cluster.jetstream.stream import LogStream
from tests.kit import nats
from tests.kit.deaf import Proxy
from tests.kit.patience import PATIENCE, until
from tests.kit.talk import Session


@pytest.mark.parametrize("window_s", [600, 0.1], ids=["within", "beyond"])
def test_a_write_that_nobody_acknowledged_is_there_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window_s: float
) -> None:
    """The node answers that the outcome is unknown; a retry with the same token writes once,
    whether or not the servers still know its message.
    """
    monkeypatch.setattr(shared_log, "PATIENCE_S", 0.0)
    [server] = nats.shared()
    settings = nats.shared().settings()
    ask(settings, partial(LogStream.create, replicas=1, window_s=window_s))
    proxy = Proxy(server.port)
    behind = msgspec.structs.replace(settings, servers=[f"nats://127.0.0.1:{proxy.port}"])
    session = Session(nats.put_settings(tmp_path / "one", behind), cwd=tmp_path)
    session.data("kb.create", slug="first")
    publish = LogStream.publish

    async def publish_to_the_deaf(*arguments: Any, **named: Any) -> int:
        proxy.deaf = True  # not earlier, or a node that is slow takes the servers for gone
        return await publish(*arguments, **named)

    with monkeypatch.context() as patched:
        patched.setattr(stream, "ANSWERS_S", 0.2)  # the node gets no answer in any time
        patched.setattr(LogStream, "publish", publish_to_the_deaf)
        refused = session.error("kb.create", slug="papers", client_token="t")
    assert (refused["type"], refused["retryable"]) == ("store.io", True)
    assert refused["detail"] == {"kept": None} and proxy.lost.wait(PATIENCE)
    proxy.deaf = False
    answers: list[Any] = []

    def is_told() -> bool:
        answers.append(session.ask("kb.create", slug="papers", client_token="t"))
        return "result" in answers[-1]

    until(is_told, "the outcome")
    assert answers[-1]["result"]["meta"]["seq"] == 3
    assert answers[-1]["result"]["data"]["slug"] == "papers"
    assert ask(settings, LogStream.state).last_seq == 3
    session.close()
    proxy.close()
