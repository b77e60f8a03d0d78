"""Processes that never open their store: another one does, and ends with its last client."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbproc.sharing import own
from tests.kit.patience import until
from tests.kit.processes import Crowd, check_once, holders, processes_in

pytestmark = pytest.mark.skipif(not Path("/proc/locks").exists(), reason="needs /proc")


@pytest.fixture
def crowd(tmp_path: Path) -> Iterator[Crowd]:
    with Crowd(tmp_path) as crowd:
        yield crowd


def owners(crowd: Crowd) -> list[int]:
    """Pids of processes that own the store for others, or are about to."""
    found = processes_in(crowd.folder).items()
    return [pid for pid, command in found if own.__name__ in command]


def test_the_owner_is_another_process(crowd: Crowd) -> None:
    client = crowd.join(thin=1)
    assert "result" in client.answer(client.create("one"))
    assert owners(crowd) == sorted(set(holders(crowd.store)))
    assert client.pid not in holders(crowd.store)
    assert os.getsid(owners(crowd)[0]) == owners(crowd)[0]


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_an_owner_that_dies_costs_no_session(crowd: Crowd, signum: int) -> None:
    client, other = crowd.together(2, thin=1)
    sent = []
    for round in range(3):
        ids = [client.create(f"a {round}"), other.create(f"b {round}")]
        sent += [f"a {round}", f"b {round}"]
        until(lambda: len(set(holders(crowd.store))) == 1, "an owner")
        os.kill(holders(crowd.store)[0], signum)
        assert "result" in client.answer(ids[0])
        assert "result" in other.answer(ids[1])
    check_once(client, acknowledged=sent, sent=sent)
    assert client.types() == ["init", "ready"]


@pytest.mark.parametrize("killed", [False, True])
def test_the_owner_ends_with_its_last_client(crowd: Crowd, killed: bool) -> None:
    """The pipes of its clients are not its own: the end of a client is the end of its output."""
    clients = crowd.together(2, thin=1)
    for client in clients:
        if killed:
            client.kill()
        else:
            client.leave()
        client.gone()
        if client is clients[0]:
            assert owners(crowd)
    until(lambda: not owners(crowd), "the owner's end")
    assert holders(crowd.store) == []


def test_of_many_that_begin_at_once_one_owner_stays(crowd: Crowd) -> None:
    clients = crowd.together(6, thin=1)
    until(lambda: len(owners(crowd)) == 1, "one owner")
    ids = [client.create(f"{n}") for n, client in enumerate(clients)]
    for client, id in zip(clients, ids, strict=True):
        assert "result" in client.answer(id)
    assert len(set(holders(crowd.store))) == 1


def test_where_a_server_has_the_store_open_none_is_started(crowd: Crowd) -> None:
    server = crowd.join()
    client = crowd.join(thin=1)
    assert "result" in client.answer(client.create("one"))
    assert owners(crowd) == []
    server.kill()
    server.gone()
    assert "result" in client.answer(client.create("two"))
    check_once(client, acknowledged=["one", "two"], sent=["one", "two"])


def test_why_there_is_no_store_is_answered(crowd: Crowd) -> None:
    crowd.store.write_text("no folder")
    client = crowd.spawn(thin=1)
    error = client.error("kb.list")
    assert error["type"] == "store.io" and "is a file" in error["message"], error
    crowd.store.unlink()
    assert "result" in client.answer(client.create("one"))
