"""Servers that do not reach one another: one goes on alone, two go on together."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec
import pytest

from kbproc.engine.cluster.jetstream import log as shared_log
from kbproc.engine.cluster.jetstream.log import JetStreamLog
from tests.kit.nats import Server
from tests.kit.parted import Parted
from tests.kit.patience import PATIENCE, all_or, until
from tests.kit.team import impatient, is_kept, lines


@pytest.fixture
def servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Parted]:
    monkeypatch.setattr(shared_log, "PATIENCE_S", PATIENCE)
    running = Parted.wired(tmp_path / "nats")
    running.start()
    yield running
    running.kill()


def leader(servers: Parted) -> str | None:
    """Name of the stream's leader, as most servers see it."""
    leaders = [_leader(server) for server in servers]
    return max(set(leaders), key=leaders.count)


def _leader(server: Server) -> str | None:
    accounts = server.ask("/jsz?streams=true&accounts=true").get("account_details") or []
    for account in accounts:
        for stream in account["stream_detail"]:
            if stream["name"] == "KB_team":
                name: str | None = stream.get("cluster", {}).get("leader")
                return name
    return None


@pytest.mark.parametrize("alone", all_or(["follows"], ["leads", "follows"]))
def test_one_server_is_parted_from_two(servers: Parted, tmp_path: Path, alone: str) -> None:
    """A node that reaches only the single server can read but not write; the others write.
    Afterwards all hold the same records, and no acknowledged one is missing.
    """
    settings = servers.stream("team")
    until(partial(leader, servers), "a leader")
    name = leader(servers)
    at = next(n for n, one in enumerate(servers) if (one.name == name) == (alone == "leads"))
    rest = [one.url for n, one in enumerate(servers) if n != at]
    with contextlib.ExitStack() as opened:
        logs = []
        for node, urls in (("one", [servers[at].url]), ("two", rest)):
            log = JetStreamLog.open(tmp_path / node / "log")
            log.join(msgspec.structs.replace(settings, servers=urls))
            opened.callback(log.close)
            logs.append(log)
        one, two = logs
        for number in range(3):
            until(partial(is_kept, two, number), "a write")
        until(lambda: lines(one) == lines(two), "equal logs")
        servers.part(at)
        with impatient():
            assert not is_kept(one, 700)
        for number in range(10, 15):
            until(partial(is_kept, two, number), "the majority's write")
        with impatient():
            assert not is_kept(one, 701)
            assert len(lines(one)) == 3 and one.damage is None, "it reads on"
        written = lines(two)
        assert len(written) == 8
        servers.join()
        until(
            lambda: lines(one)[:8] == written, "what the majority wrote", lambda: str(one.trouble)
        )
        until(partial(is_kept, one, 20), "a write of the node that was parted")
        until(lambda: lines(one) == lines(two), "equal logs")
        assert one.damage is None and two.damage is None
        assert (one.verify(), two.verify()) == (9, 9), "nothing that was refused is there"
