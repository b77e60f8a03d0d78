"""A write that is asked for again because the server died happens once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kbproc.mcp.once import Once, client_of
from kbproc.sharing.waiting import state_of
from tests.kit.mcp import MODERN, Client, client, served
from tests.kit.patience import LONG, until
from tests.kit.processes import Crowd

WRITE = "knowledge.store"
WRITES = 100 if LONG else 24


def once(folder: Path, name: str | None = "client", where: str = "store") -> Once:
    return Once(folder, name, lambda: where)


def test_the_same_request_has_the_same_token_until_it_is_answered(tmp_path: Path) -> None:
    one = once(tmp_path)
    ticket = one.take(WRITE, {"title": "a"})
    token = one.token(ticket)
    again = once(tmp_path)  # the server was killed before it answered
    assert again.token(again.take(WRITE, {"title": "a"})) == token
    again.answered(ticket)
    third = once(tmp_path)  # killed after it had answered: the request is another one
    assert third.token(third.take(WRITE, {"title": "a"})) != token


def test_two_at_the_same_time_are_two(tmp_path: Path) -> None:
    one = once(tmp_path)
    first, second = (one.take(WRITE, {"title": "a"}) for _ in range(2))
    assert first != second
    one.answered(second)
    again = once(tmp_path)
    assert again.take(WRITE, {"title": "a"}) == first
    assert again.take(WRITE, {"title": "a"}) not in (first, second)


@pytest.mark.parametrize(
    "other",
    [
        lambda folder: once(folder).take(WRITE, {"title": "b"}),
        lambda folder: once(folder).take("doc.create", {"title": "a"}),
        lambda folder: once(folder, where="another store").take(WRITE, {"title": "a"}),
    ],
)
def test_other_content_is_another_write(tmp_path: Path, other: Callable[[Path], object]) -> None:
    assert other(tmp_path) != once(tmp_path).take(WRITE, {"title": "a"})


def test_another_client_is_another_write(tmp_path: Path) -> None:
    tokens = []
    for name in ("one", "two", None, None):
        found = once(tmp_path, name)
        tokens.append(found.token(found.take(WRITE, {"title": "a"})))
    assert len(set(tokens)) == 4


def test_the_order_of_members_makes_no_other_request(tmp_path: Path) -> None:
    one, other = once(tmp_path), once(tmp_path)
    assert one.take(WRITE, {"a": 1, "b": 2}) == other.take(WRITE, {"b": 2, "a": 1})


def test_a_folder_that_cannot_be_written_leaves_each_its_own(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = once(tmp_path / "file")
    assert found.take(WRITE, {}) != found.take(WRITE, {})


def test_files_of_clients_that_have_gone_are_removed(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    (tmp_path / f"{gone.pid}-1-x-y").write_text("")
    (tmp_path / f"{os.getpid()}-1-x-y").write_text("")  # a process that had this number before
    mine = tmp_path / f"{client_of(os.getpid())}-y"
    mine.write_text("")
    (tmp_path / "else").write_text("")
    once(tmp_path, client_of(os.getpid())).take(WRITE, {})
    left = {path.name for path in tmp_path.iterdir()}
    assert {mine.name, "else", "key"} < left and len(left) == 4


# ------------------------------------------------------------------- through the server


def done(message: Any, ids: dict[int, str], left: list[str]) -> None:
    if "id" in message and message["id"] in ids:
        assert not message["result"]["isError"]
        left.remove(ids.pop(message["id"]))


@pytest.mark.usefixtures("executed")
@pytest.mark.parametrize("era", [MODERN, "2025-11-25"])
def test_writes_under_repeated_kills_happen_once_each(tmp_path: Path, era: str) -> None:
    """The client asks again for what it got no answer to, as the protocol says."""
    wanted = [f"Fact {number}" for number in range(WRITES)]
    left = list(wanted)
    kills = 0
    while left:
        with served(tmp_path) as process:
            one = Client(process, era)
            ids = {}
            for title in left[:6]:
                arguments = {"title": title, "body": "Text."}
                ids[one.send("tools/call", name="store_knowledge", arguments=arguments)] = title
            for _ in range(min(3, len(ids))):  # more are done, some have not begun
                done(one.next(), ids, left)
            process.process.kill()
            for line in process.stdout:  # what was answered is in the pipe
                done(json.loads(line), ids, left)
            kills += 1
    assert kills >= 4
    with client(tmp_path, era=era) as one:
        found = one.data("kb_call", method="knowledge.list", params={"limit": 1000})
        assert sorted(entry["title"] for entry in found) == sorted(wanted)


@pytest.mark.usefixtures("executed")
def test_what_is_asked_twice_on_purpose_is_done_twice(tmp_path: Path) -> None:
    """In one life of the server, and in two."""
    for lives in (1, 2):
        with client(tmp_path) as one:
            for _ in range(2):
                one.data("doc_add", title="Same", text="same text")
            assert len(one.data("doc_list")) == 2 * lives


def test_a_write_that_was_given_up_is_the_same_when_it_is_asked_again(tmp_path: Path) -> None:
    """The process that has the store open is stopped, and goes on later."""
    with Crowd(tmp_path) as crowd:
        owner = crowd.join()
        with client(tmp_path, real=1) as one:
            one.data("doc_list")  # it is attached
            params = {"title": "Once", "text": "words"}
            for number in range(2):
                owner.kill(signal.SIGSTOP)
                until(lambda: state_of(owner.pid) == "stopped", "a stopped owner")
                params = {"title": f"Once {number}", "text": "words"}
                timed = {**params, "timeout_ms": 300}
                given_up = one.call("kb_call", method="doc.create", params=timed)
                assert given_up["_meta"]["kbproc/error"]["type"] == "operation.timeout"
                arguments = {"method": "doc.create", "params": params}
                again = one.send("tools/call", name="kb_call", arguments=arguments)
                owner.kill(signal.SIGCONT)
                assert not one.answer_to(again)["result"]["isError"]
                assert len(one.data("doc_list")) == number + 1


def test_nobody_can_guess_what_was_purged_by_the_token_in_the_log(tmp_path: Path) -> None:
    """Whoever has the log, and knows all but four digits; the token outlives the purge."""
    body = "The code of the door is {:04d}."
    with client(tmp_path) as one:
        id = one.data("store_knowledge", title="Door", body=body.format(4711))["id"]
    with Crowd(tmp_path) as crowd:
        user = crowd.join()
        plan = user.error("store.purge", document_ids=[id])["plan"]
        user.data("store.purge", document_ids=[id], confirm=plan["plan_hash"])
    log = b"".join(path.read_bytes() for path in (tmp_path / "store" / "log").iterdir())
    assert b"Door" not in log
    tokens = {json.loads(line).get("token") for line in log.splitlines()} - {None}
    assert any(token.startswith("mcp-") for token in tokens)
    name = client_of(os.getpid())
    where = f"{os.path.realpath(tmp_path / 'store')}\nuser"
    elsewhere = Once(tmp_path / "elsewhere", name, lambda: where)
    for guess in range(10_000):
        params = {"title": "Door", "body": body.format(guess)}
        assert elsewhere.token(elsewhere.take(WRITE, params)) not in tokens, guess


def test_the_key_of_a_folder_is_one_and_for_its_user_alone(tmp_path: Path) -> None:
    """Whoever begins at the same time has the same."""
    ready = threading.Barrier(4)

    def ask(number: int) -> Any:
        ready.wait()
        return once(tmp_path).take(WRITE, {"title": "a"})

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(ask, range(4)))) == 1
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.glob("key*")] == ["key"]


def test_a_damaged_key_leaves_each_its_own(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"")
    assert once(tmp_path).take(WRITE, {}) != once(tmp_path).take(WRITE, {})
