"""An owner that does not answer: stopped, slow to open, or dead; and request timeouts."""

from __future__ import annotations

import fcntl
import functools
import json
import random
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbproc.base.errors import ASK_AGAIN
from kbproc.engine.log.lease import identity
from kbproc.surfaces.sharing import reach
from tests.kit import llm
from tests.kit.patience import LIVES, LONG, PATIENCE, until
from tests.kit.processes import (
    Client,
    Crowd,
    check_answers,
    check_once,
    held_at,
    holding,
    said,
    slow_embeddings,
    titles,
)
from tests.kit.talk import request

# An owner that works, but sends no answers while the file `mute` exists.
MUTE = """
import pathlib, time
from kbproc.base.pipes import leave
from kbproc.surfaces.wire.in_flight import InFlight
from kbproc.surfaces.wire.outbox import Outbox
from tests.kit import fixed

send = Outbox.send

def send_later(self, line):
    while pathlib.Path("mute").exists():
        time.sleep(0.005)
    send(self, line)

Outbox.send = send_later
poll = InFlight.poll
InFlight.poll = lambda self, *, expired: poll(self, expired=False)  # it is late with that, too
leave(fixed.main())
"""

# A command that waits for a stopped owner for moments only.
HURRIED = """
from kbproc.__main__ import main
from kbproc.base.pipes import leave
from kbproc.surfaces.sharing import reach

reach.STOPPED_SECONDS = 0.2
leave(main())
"""
# A command that only its own time keeps from waiting for a stopped owner.
UNHURRIED = HURRIED.replace("= 0.2", f"= reach.GRACE_SECONDS = {LIVES}")

pytestmark = pytest.mark.skipif(not Path("/proc/locks").exists(), reason="needs /proc")
WALK = 2000 if LONG else 30  # operations


@pytest.fixture
def crowd(tmp_path: Path) -> Iterator[Crowd]:
    with Crowd(tmp_path) as crowd:
        yield crowd


@pytest.fixture
def stopped(crowd: Crowd) -> Client:
    """An owner that is stopped, as by Ctrl-Z."""
    owner = crowd.join()
    owner.answer(owner.create("before"))
    owner.kill(signal.SIGSTOP)
    until(lambda: reach.state_of(owner.pid) == "stopped", "a stopped owner")
    return owner


def test_the_time_of_a_command(crowd: Crowd, stopped: Client) -> None:
    for words in (
        ["call", "ping", '{"timeout_ms": 300}'],
        ["call", "doc.create", "title=x", "text=y", "timeout_ms=300"],
        ["chat", "x", "--timeout", "0.3"],  # which asks for the position before
    ):
        done = crowd.run(*words, program=UNHURRIED)
        error = json.loads(done.err)["error"]
        assert (done.code, error["type"]) == (4, "operation.timeout"), done
        assert error["detail"] == {"pid": stopped.pid, "state": "stopped"}
        assert f"kill -CONT {stopped.pid}" in error["hint"]


def test_a_command_without_a_time(crowd: Crowd, stopped: Client) -> None:
    """A command does not wait for ever for a stopped process."""
    done = crowd.run("call", "ping", "{}", program=HURRIED)
    error = json.loads(done.err)["error"]
    assert (done.code, error["type"], error["retryable"]) == (2, "store.locked", True), done
    assert error["detail"] == {"pid": stopped.pid, "state": "stopped"}
    assert "is stopped" in error["message"]


def test_an_attached_serve_answers_in_time_and_goes_on(crowd: Crowd) -> None:
    owner, guest = crowd.join(), crowd.join(stopped_seconds=2)
    owner.kill(signal.SIGSTOP)
    until(lambda: reach.state_of(owner.pid) == "stopped", "a stopped owner")
    in_time = guest.start("doc.create", title="late", text="words", timeout_ms=200)
    batch = [
        {"jsonrpc": "2.0", "id": f"b{n}", "method": "ping", "params": {"timeout_ms": 200}}
        for n in range(2)
    ]
    guest.send(batch)
    error = guest.answer(in_time)["error"]["data"]
    assert error["type"] == "operation.timeout"
    token = error["detail"].pop("client_token")
    assert error["detail"] == {"pid": owner.pid, "state": "stopped"}
    assert error["retry"]["params"]["client_token"] == token
    guest.wait_for(lambda: guest.batches, "the batch's answers")
    assert [one["error"]["data"]["type"] for one in guest.batches[0]] == ["operation.timeout"] * 2
    refused = guest.error("ping")
    assert (refused["type"], refused["detail"]["state"]) == ("store.locked", "stopped")
    owner.kill(signal.SIGCONT)
    assert guest.data("ping")["seq"] >= 1
    check_answers(guest)
    assert titles(guest) == {}, "what was answered in time is not done later"
    assert (guest.end(), owner.end()) == (0, 0)


def test_a_write_that_was_given_up_is_done_once(crowd: Crowd) -> None:
    """A retry with or without the token writes once, after a timeout and after `store.locked`."""
    owner, guest = crowd.join(), crowd.join(stopped_seconds=2)
    for number, params in enumerate(({"timeout_ms": 200}, {})):
        owner.kill(signal.SIGSTOP)
        until(lambda: reach.state_of(owner.pid) == "stopped", "a stopped owner")
        given_up = [
            guest.error("doc.create", title=f"{kind} {number}", text="words", **params)
            for kind in ("plain", "token")
        ]
        call = crowd.run("call", "doc.create", f"title=call {number}", "text=w", "timeout_ms=200")
        assert call.code == 4, call
        owner.kill(signal.SIGCONT)
        again = given_up[1]["retry"]
        if params:
            again["params"]["timeout_ms"] = 600_000
        ids = [guest.start(again["method"], **again["params"]) for _ in range(2)]
        ids.append(guest.start("doc.create", title=f"plain {number}", text="words"))
        for id in ids:
            assert "result" in guest.answer(id)
    sent = [f"{kind} {number}" for kind in ("plain", "token") for number in range(2)]
    check_once(owner, acknowledged=sent, sent=sent)
    check_answers(guest)


def test_a_write_that_an_owner_got_is_told_with_its_token_where_no_other_can_be_had(
    crowd: Crowd,
) -> None:
    """The log may have the write or not; a retry with the same token is right in both cases."""
    with holding(crowd) as is_held:
        (crowd.folder / "hold").unlink()
        owner = crowd.join(program=held_at("log.synced"))
        guest = crowd.join()
        (crowd.folder / "hold").touch()
        created = guest.create("one")
        until(is_held, "a write that is in the log")
        crowd.store.chmod(0o777)  # kbproc only reads a store that others may write
        owner.kill()
        error = guest.answer(created)["error"]["data"]
    assert (error["type"], error["retryable"]) == ("store.io", False)
    assert error["detail"]["read_only"] and ASK_AGAIN in error["hint"] and error["ask_again"]
    assert error["retry"]["params"]["client_token"] == error["detail"]["client_token"]
    crowd.store.chmod(0o700)
    again = guest.ask(error["retry"]["method"], **error["retry"]["params"])["result"]
    assert again["meta"]["duplicate"]
    check_once(guest, acknowledged=["one"], sent=["one"])


def test_a_command_tells_the_token_of_a_write_that_an_owner_got(crowd: Crowd) -> None:
    with holding(crowd) as is_held:
        (crowd.folder / "hold").unlink()
        owner = crowd.join(program=held_at("log.synced"))
        (crowd.folder / "hold").touch()
        command = crowd.command("call", "doc.create", "title=one", "text=words")
        until(is_held, "a write that is in the log")
        crowd.store.chmod(0o777)  # kbproc only reads a store that others may write
        owner.kill()
        done = said(command)
    error = json.loads(done.err)["error"]
    assert (done.code, error["type"]) == (2, "store.io"), done
    token = error["detail"]["client_token"]
    crowd.store.chmod(0o700)
    again = crowd.run("call", "doc.create", "title=one", "text=words", f"client_token={token}")
    assert json.loads(again.out)["meta"]["duplicate"], again


def test_an_answer_is_made_though_its_owner_said_nothing_in_time(crowd: Crowd) -> None:
    may = threading.Event()

    def wait(reply: llm.Reply) -> None:
        may.wait(PATIENCE)

    steps = [llm.say("One "), wait, llm.say("two."), llm.finish()]
    question = {"question": "When is the lamp lit?", "client_token": "T"}
    with llm.endpoint(lambda prompt: steps) as endpoint:
        owner = crowd.join(program=MUTE, llm=endpoint.url)
        owner.data("knowledge.store", title="Lamp", body="The lamp is lit at six.")
        guest = crowd.join()
        guest.data("ping")
        (crowd.folder / "mute").touch()
        error = guest.error("chat", **question, timeout_ms=200)
        assert error["type"] == "operation.timeout", error
        (crowd.folder / "mute").unlink()
        guest.data("ping")
        may.set()
        answer = guest.data("chat", **question)
        assert (answer["status"], answer["text"]) == ("finished", "One two.")


def test_the_id_of_what_was_given_up_is_in_use_until_the_owner_answers(crowd: Crowd) -> None:
    """The answer to the first request is not taken for an answer to the second."""
    crowd.join(program=MUTE)
    guest = crowd.join()
    guest.data("ping")
    (crowd.folder / "mute").touch()
    guest.send(request("same", "kb.list", timeout_ms=200))
    guest.send(request("other", "ping", timeout_ms=200))
    assert guest.answer("same")["error"]["data"]["type"] == "operation.timeout"
    guest.send(request("same", "ping"))
    guest.wait_for(lambda: len(guest.answers["same"]) == 2, "the second answer")
    assert guest.answers["same"][1]["error"]["data"]["field"] == "$.id"
    (crowd.folder / "mute").unlink()

    def is_free() -> bool:
        count = len(guest.answers["same"])
        guest.send(request("same", "ping"))
        guest.wait_for(lambda: len(guest.answers["same"]) > count, "one more answer")
        return "result" in guest.answers["same"][-1]

    until(is_free, "an id that can be used again")
    assert "seq" in guest.answers["same"][-1]["result"]["data"]


def is_stopped(client: Client) -> bool:
    return reach.state_of(client.pid) == "stopped"


def test_a_random_walk_with_stops_and_kills(crowd: Crowd) -> None:
    """Each write is retried with the error's token until it is acknowledged."""
    walk = random.Random(43)
    model: Counter[str] = Counter()
    crowd.together(3)
    for number in range(WALK):
        owner = crowd.owner()
        guests = [client for client in crowd.living if client is not owner]
        client, title = walk.choice(guests), f"{number}"
        params = {"title": title, "text": "words"}
        event = walk.random()
        if event < 0.08:
            owner.kill(signal.SIGSTOP)
            until(functools.partial(is_stopped, owner), "a stopped owner")
            error = client.error("doc.create", **params, timeout_ms=walk.choice((100, 300)))
            assert error["type"] == "operation.timeout", error
            params.update(error.get("retry", {}).get("params", {}), timeout_ms=600_000)
            if walk.random() < 0.5:
                owner.kill()
            else:
                owner.kill(signal.SIGCONT)
        answer = client.start("doc.create", **params)
        if 0.08 <= event < 0.2:
            owner.kill()
        assert "result" in client.answer(answer), client.answer(answer)
        model[title] += 1
        if len(crowd.living) < 3:
            crowd.join()
    assert titles(crowd.owner()) == model
    for client in crowd.living:
        check_answers(client)


def test_a_stopped_owner_that_dies_is_followed(crowd: Crowd, stopped: Client) -> None:
    guest = crowd.spawn()
    created = guest.create("after")
    stopped.kill(signal.SIGKILL)
    assert "result" in guest.answer(created)
    assert titles(guest) == {"before": 1, "after": 1}


def test_the_end_beside_a_stopped_owner(crowd: Crowd, stopped: Client) -> None:
    for signum in (None, signal.SIGTERM):
        guest = crowd.spawn(drain_seconds=0.2)
        guest.wait_for(lambda client=guest: "init" in client.types(), "init")
        guest.create("never")
        if signum is None:
            guest.leave()
        else:
            guest.kill(signum)
        assert guest.gone() == 0


@pytest.mark.parametrize("attached", [False, True])
def test_a_command_does_not_wait_for_vectors_beyond_its_time(crowd: Crowd, attached: bool) -> None:
    with slow_embeddings(crowd.store, longest=LIVES):
        if attached:
            text = "another's, whose vector never comes"
            crowd.join().data("doc.create", title="another's", text=text)
        for seconds in ("1", "10", "100"):  # the machine may need long to open the store
            words = ["doc", "create", "--title", "x", "--text", "words", "--timeout", seconds]
            done = said(crowd.command(*words, KBPROC_FORMAT="json"))
            if done.code != 4:
                break
    assert done.code == 0, done
    assert "found by words only as yet" in done.err


# ------------------------------------------------------- a lease whose owner is silent


def test_whoever_was_refused_is_let_in_later(crowd: Crowd) -> None:
    """A retry after `store.locked` succeeds."""
    crowd.store.mkdir()
    with (crowd.store / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write(f"1234\n{identity(crowd.store)}\n")
        lock.flush()
        client = crowd.spawn(silent_seconds=0.2)
        refused = client.error("ping")
        assert (refused["type"], refused["retryable"]) == ("store.locked", True)
        timed = client.error("ping", timeout_ms=100)
        assert timed["type"] in {"operation.timeout", "store.locked"}
    assert client.data("ping")["seq"] == 1
    assert client.types() == ["init", "error", "ready"]


def test_the_last_lines_before_somebody_lets_go_of_the_lease(crowd: Crowd) -> None:
    """After the end of stdin the lines are still answered; then the process ends."""
    crowd.store.mkdir()
    with (crowd.store / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        client = crowd.spawn(silent_seconds=0.2)
        ids = [client.start("ping") for _ in range(3)]
        client.leave()
        for id in ids:
            assert client.answer(id)["error"]["data"]["type"] == "store.locked"
        assert client.gone() == 0


def test_the_end_while_somebody_holds_the_lease(crowd: Crowd) -> None:
    crowd.store.mkdir()
    with (crowd.store / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for signum in (None, signal.SIGTERM, signal.SIGINT):
            client = crowd.spawn()
            client.wait_for(lambda client=client: "init" in client.types(), "init")
            if signum is None:
                client.leave()
            else:
                client.kill(signum)
            assert client.gone() == (130 if signum == signal.SIGINT else 0)


# ------------------------------------------------------------------------- a slow owner


def test_a_store_that_opens_slowly(crowd: Crowd) -> None:
    """Requests time out before the store is open, at the owner and at an attached process."""
    with holding(crowd) as is_held:
        (crowd.folder / "hold").touch()
        owner = crowd.spawn(program=held_at("log.synced"))
        first = owner.start("ping", timeout_ms=200)
        until(is_held, "a store that is being opened")
        guest = crowd.spawn()
        second = guest.start("ping", timeout_ms=200)
        third = guest.create("queued")
        for client, id in ((owner, first), (guest, second)):
            error = client.answer(id)["error"]["data"]
            assert error["type"] == "operation.timeout", error
        assert guest.answers[third] == []
    assert "result" in guest.answer(third)
    assert guest.types() == ["init", "ready"]
    until(lambda: owner.types() == ["init", "ready"], "the owner's own words")  # on another pipe
    check_once(owner, acknowledged=["queued"], sent=["queued"])


def test_many_writers_while_owners_die(crowd: Crowd) -> None:
    """Attached processes wait for the next owner as long as it takes."""
    clients = crowd.together(6)
    ids: dict[Client, list[int]] = {client: [] for client in clients}
    for round in range(4):
        for client in crowd.living:
            ids[client].append(client.create(f"{client.pid} {round}"))
        owner = crowd.owner()
        owner.kill()
        owner.gone()
        for client in crowd.living:
            for id in ids[client]:
                assert "result" in client.answer(id), client.answer(id)
    assert len(crowd.living) == 2
    assert "store.locked" not in crowd.told()
