"""A write that a client repeats because the server died happens once."""

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

from kbproc.client.asker import AskedRequest
from kbproc.surfaces.mcp.calls import Calls, Once, UserShell, client_of
from kbproc.surfaces.mcp.protocol import McpRequest, McpSession
from kbproc.surfaces.mcp.toolbox import Toolbox
from kbproc.surfaces.sharing.reach import state_of
from tests.kit import llm
from tests.kit.mcp import MODERN, Client, client, served
from tests.kit.patience import LONG, PATIENCE, all_or, until
from tests.kit.processes import Crowd, held_at

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
    third = once(tmp_path)  # killed after its answer: the request is a new one
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
        one = once(tmp_path, name)
        tokens.append(one.token(one.take(WRITE, {"title": "a"})))
    assert len(set(tokens)) == 4


def test_the_order_of_members_makes_no_other_request(tmp_path: Path) -> None:
    one, other = once(tmp_path), once(tmp_path)
    assert one.take(WRITE, {"a": 1, "b": 2}) == other.take(WRITE, {"b": 2, "a": 1})


def test_a_folder_that_cannot_be_written_leaves_each_its_own(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    one = once(tmp_path / "file")
    assert one.take(WRITE, {}) != one.take(WRITE, {})


def test_files_of_clients_that_have_gone_are_removed(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    (tmp_path / f"{process.pid}-1-x-y").write_text("")
    (tmp_path / f"{os.getpid()}-1-x-y").write_text("")  # an earlier process with this id
    mine = tmp_path / f"{client_of(os.getpid())}-y"
    mine.write_text("")
    (tmp_path / "else").write_text("")
    once(tmp_path, client_of(os.getpid())).take(WRITE, {})
    names = {path.name for path in tmp_path.iterdir()}
    assert {mine.name, "else", "key"} < names and len(names) == 4


# ------------------------------------------------------------------- calls of the server


def done(message: Any, ids: dict[int, str], titles: list[str]) -> None:
    if "id" in message and message["id"] in ids:
        assert not message["result"]["isError"]
        titles.remove(ids.pop(message["id"]))


@pytest.mark.parametrize("era", all_or([MODERN], [MODERN, "2025-11-25"]))
def test_writes_under_repeated_kills_happen_once_each(tmp_path: Path, era: str) -> None:
    """The client repeats each call without an answer, as the protocol says."""
    titles = [f"Fact {number}" for number in range(WRITES)]
    remaining = list(titles)
    kills = 0
    while remaining:
        with served(tmp_path) as process:
            one = Client(process, era)
            ids = {}
            for title in remaining[:6]:
                arguments = {"title": title, "body": "Text."}
                ids[one.send("tools/call", name="store_knowledge", arguments=arguments)] = title
            for _ in range(min(3, len(ids))):  # others are done or not begun
                done(one.next(), ids, remaining)
            process.process.kill()
            for line in process.stdout:  # the pipe still holds answers
                done(json.loads(line), ids, remaining)
            kills += 1
    assert kills >= 4
    with Crowd(tmp_path) as crowd:  # an answer over MCP is cut to what a model can read
        entries = crowd.join().data("knowledge.list", limit=1000)
        assert sorted(entry["title"] for entry in entries) == sorted(titles)


def test_what_is_asked_twice_on_purpose_is_done_twice(tmp_path: Path) -> None:
    """Equal calls are two writes, within one server process and across two."""
    for lives in (1, 2):
        with client(tmp_path) as one:
            for _ in range(2):
                one.data("doc_add", title="Same", text="same text")
            assert len(one.data("doc_list")) == 2 * lives


def test_a_write_that_was_given_up_is_the_same_when_it_is_asked_again(tmp_path: Path) -> None:
    """The owner is stopped, and continues later."""
    with Crowd(tmp_path) as crowd:
        owner = crowd.join()
        with client(tmp_path, real=1) as one:
            one.data("doc_list")  # attaches to the owner
            params = {"title": "Once", "text": "words"}
            for number in range(2):
                owner.kill(signal.SIGSTOP)
                until(lambda: state_of(owner.pid) == "stopped", "a stopped owner")
                params = {"title": f"Once {number}", "text": "words"}
                timed = {**params, "timeout_ms": 300}
                given_up = one.call("kb_call", method="doc.create", params=timed)
                assert given_up["_meta"]["kbproc/error"]["type"] == "operation.timeout"
                text = given_up["content"][0]["text"]
                assert "make the same call again" in text and "client_token" not in text
                arguments = {"method": "doc.create", "params": params}
                again = one.send("tools/call", name="kb_call", arguments=arguments)
                owner.kill(signal.SIGCONT)
                assert not one.answer_to(again)["result"]["isError"]
                assert len(one.data("doc_list")) == number + 1


@pytest.mark.parametrize("era", [MODERN, "2025-06-18"])
def test_a_write_whose_call_was_cancelled_is_the_same_when_it_is_asked_again(
    tmp_path: Path, era: str
) -> None:
    """The log already has the write when the client cancels its call."""
    arguments = {"title": "Lamp", "body": "The lamp is lit at six."}
    with client(tmp_path, era=era, program=held_at("log.synced")) as one:
        one.data("doc_list")
        (tmp_path / "hold").touch()
        id = one.send("tools/call", name="store_knowledge", arguments=arguments)
        until((tmp_path / "held").exists, "a write that is in the log")
        one.notify("notifications/cancelled", requestId=id)
        again = one.send("tools/call", name="store_knowledge", arguments=arguments)
        one.answer_to(one.send("tools/list"))  # the server has read the cancellation
        (tmp_path / "hold").unlink()
        assert not one.answer_to(again)["result"]["isError"]
        listed = {"method": "knowledge.list", "params": {}}
        assert len(one.data("kb_call", **listed)) == 1
        one.data(
            "store_knowledge", **arguments
        )  # a new write, because the client has the answer to the last
        assert len(one.data("kb_call", **listed)) == 2


def test_a_write_that_an_owner_got_is_the_same_when_another_can_be_had_again(
    tmp_path: Path,
) -> None:
    """The owner dies once the write is in the log; then the store can't be written for a while."""
    arguments = {"title": "Lamp", "body": "The lamp is lit at six."}
    with Crowd(tmp_path) as crowd:
        owner = crowd.join(program=held_at("log.synced"))
        with client(tmp_path, real=1) as one:
            one.data("doc_list")
            (tmp_path / "hold").touch()
            id = one.send("tools/call", name="store_knowledge", arguments=arguments)
            until((tmp_path / "held").exists, "a write that is in the log")
            crowd.store.chmod(0o777)  # kbproc only reads a store that others may write
            owner.kill()
            result = one.answer_to(id)["result"]
            assert result["_meta"]["kbproc/error"]["type"] == "store.io", result
            assert "make the same call again" in result["content"][0]["text"]
            crowd.store.chmod(0o700)
            one.data("store_knowledge", **arguments)
            assert len(one.data("kb_call", method="knowledge.list", params={})) == 1


def test_a_question_whose_answer_was_stopped_is_asked_anew(tmp_path: Path) -> None:
    may = threading.Event()

    def wait(reply: llm.Reply) -> None:
        may.wait(PATIENCE)

    steps = [llm.say("One "), wait, llm.say("two."), llm.finish()]
    arguments = {"method": "chat", "params": {"question": "When is the lamp lit?"}}
    with (
        llm.endpoint(lambda question: steps) as endpoint,
        client(tmp_path, era="2025-06-18", llm=endpoint.url) as one,
    ):
        one.data("store_knowledge", title="Lamp", body="The lamp is lit at six.")
        meta = {"progressToken": "p"}
        id = one.send("tools/call", meta, name="kb_call", arguments=arguments)
        one.until("notifications/progress")
        one.notify("notifications/cancelled", requestId=id)
        one.ask("ping")
        may.set()
        answer = one.data("kb_call", **arguments)
        assert (answer["status"], answer["text"]) == ("finished", "One two.")


def test_nobody_can_guess_what_was_purged_by_the_token_in_the_log(tmp_path: Path) -> None:
    """The token outlives the purge; a reader of the log knows all but four digits of the text."""
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
    """Threads that start at the same time get the same key."""
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


# ------------------------------------------------------------------- between two threads


class UnansweredStore:
    """A store that keeps each request until the test answers it."""

    def __init__(self) -> None:
        self.asked: list[tuple[dict[str, Any], Callable[[Any], None]]] = []

    def ask(self, method: str, params: Any, on_answer: Any, on_event: Any) -> AskedRequest:
        self.asked.append((params, on_answer))
        return AskedRequest(len(self.asked), method, params, on_answer, on_event)

    def cancel(self, id: int) -> None:
        pass

    @property
    def tokens(self) -> list[str]:
        return [params["client_token"] for params, _ in self.asked]

    def fail(self, **data: Any) -> None:
        """Answers the newest request with an error."""
        data = {"type": "store.io", "message": "Lost.", "retryable": True, **data}
        self.asked[-1][1]({"error": {"data": data}})


class Attentive(McpSession):
    """A client that acts at a moment that no test can hit from outside.

    `on_reply` is called as soon as an answer can be read, `on_settle` just before a request is
    settled.
    """

    def __init__(self, folder: Path, store: UnansweredStore) -> None:
        self.on_reply: Callable[[], None] = lambda: None
        self.on_settle: Callable[[], None] = lambda: None
        self.results: list[Any] = []
        self._number = 0
        shell = UserShell(store="store")
        self._calls = Calls(store, once(folder), lambda: True, shell)  # type: ignore[arg-type]
        tool = Toolbox("kb_call").find("kb_call", frozenset({"doc:read"}))
        assert tool is not None

        def call(request: McpRequest) -> None:
            self._calls.call(request, tool, request.params["arguments"])

        super().__init__({"tools/call": call}, self._take_reply, described={}, server={})
        self.version = "2025-06-18"

    def _take_reply(self, line: bytes) -> None:
        self.results.append(json.loads(line)["result"])
        act, self.on_reply = self.on_reply, lambda: None
        act()

    def settle(self, request: McpRequest) -> bool:
        act, self.on_settle = self.on_settle, lambda: None
        act()
        return super().settle(request)

    def call(self, method: str, params: dict[str, Any]) -> None:
        self._number += 1
        arguments = {"method": method, "params": params}
        request = {"name": "kb_call", "arguments": arguments}
        self.say(id=self._number, method="tools/call", params=request)

    def cancel(self) -> None:
        self.say(method="notifications/cancelled", params={"requestId": self._number})

    def say(self, **message: Any) -> None:
        self.receive(json.dumps({"jsonrpc": "2.0", **message}).encode())


UNKNOWN = {"hint": "", "ask_again": True, "detail": {"client_token": "x"}}
CALLS = [("doc.create", {"title": "a", "text": "b"}), ("chat", {"question": "When?"})]


@pytest.mark.parametrize(("method", "params"), CALLS)
def test_a_client_that_asks_again_at_once_after_an_unknown_outcome_means_the_same_write(
    tmp_path: Path, method: str, params: dict[str, Any]
) -> None:
    store = UnansweredStore()
    one = Attentive(tmp_path, store)
    one.call(method, params)
    one.on_reply = lambda: one.call(method, params)
    store.fail(**UNKNOWN)
    assert store.tokens[0] == store.tokens[1]
    (result,) = one.results
    assert "make the same call again: so a write is done once" in result["content"][0]["text"]
    assert result["_meta"]["kbproc/error"]["outcome"] == "unknown"


def test_a_question_that_failed_for_sure_is_asked_anew(tmp_path: Path) -> None:
    """The second question gets a new token, because the first token returns the failure again."""
    store = UnansweredStore()
    one = Attentive(tmp_path, store)
    for _ in range(2):
        one.call("chat", {"question": "When?"})
        store.fail(hint="Look.", ask_again=True, detail={})
    assert store.tokens[0] != store.tokens[1]
    for result in one.results:
        assert "so a write is done once" not in result["content"][0]["text"]
        assert "outcome" not in result["_meta"]["kbproc/error"]


def test_a_call_that_is_cancelled_while_it_is_answered_keeps_no_number(tmp_path: Path) -> None:
    method, params = CALLS[0]
    store = UnansweredStore()
    one = Attentive(tmp_path, store)
    one.call(method, params)

    def cancel() -> None:
        one.cancel()
        one.call(method, params)

    one.on_settle = cancel
    store.fail(detail={})
    assert store.tokens[0] == store.tokens[1]
    assert one.results == []
