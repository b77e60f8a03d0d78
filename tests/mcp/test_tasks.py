"""Long work as tasks: handles outlive the server; clients poll a task or listen to it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from string import ascii_lowercase, ascii_uppercase, digits
from typing import Any

import pytest

from kbproc.surfaces.mcp.tasks import Handle, Handles
from tests.kit import llm
from tests.kit.mcp import Client, Message, client
from tests.kit.patience import LIVES, LONG

TASKS = "io.modelcontextprotocol/tasks"
KNOWS = {"extensions": {TASKS: {}}}
STREAM = "io.modelcontextprotocol/subscriptionId"
DIGITS = ascii_uppercase + ascii_lowercase + digits + "-_"  # the alphabet of task ids, in order
QUESTION = "How is git installed with apt?"
FILES = 200 if LONG else 60


class Slow:
    """An endpoint that sends one word, and the rest once `may` is set."""

    def __init__(self, endpoint: llm.Endpoint, may: threading.Event) -> None:
        self.endpoint = endpoint
        self.may = may

    def options(self, **more: Any) -> dict[str, Any]:
        return {"llm": self.endpoint.url, "can": KNOWS, "grace": 0, **more}


@pytest.fixture
def slow() -> Iterator[Slow]:
    may = threading.Event()

    def wait(reply: llm.Reply) -> None:
        may.wait(LIVES)

    steps = [llm.say("One "), wait, llm.say("two."), llm.finish()]
    with llm.endpoint(lambda question: steps) as endpoint:
        yield Slow(endpoint, may)
        may.set()


def begun(one: Client, tool: str, **arguments: Any) -> str:
    """Returns the id of the task that the call became."""
    result = one.call(tool, **arguments)
    assert result["resultType"] == "task" and result["status"] == "working", result
    assert not {"result", "error", "inputRequests"} & result.keys()
    assert result["ttlMs"] is None and result["createdAt"] <= result["lastUpdatedAt"]
    return result["taskId"]  # type: ignore[no-any-return]


def asked(one: Client) -> str:
    """Asks a question; returns the id of its task."""
    one.data("doc_add", title="Git", text="How git is installed: with apt, as root.")
    return begun(one, "chat", question=QUESTION)


def state(one: Client, id: str) -> Message:
    task = one.ask("tasks/get", taskId=id)["result"]
    assert (task["resultType"], task["taskId"]) == ("complete", id)
    return task  # type: ignore[no-any-return]


def ended(one: Client, id: str) -> Message:
    """Polls until the task ends, as clients do; returns the task."""
    while (task := state(one, id))["status"] == "working":
        pass
    return task


def data(task: Message) -> Any:
    assert task["status"] == "completed" and not task["result"]["isError"], task
    return task["result"]["structuredContent"]["data"]


def test_an_answer_that_takes_long_is_a_task(tmp_path: Path, slow: Slow) -> None:
    with client(tmp_path, **slow.options()) as one:
        assert one.ask("server/discover")["result"]["capabilities"]["extensions"] == {TASKS: {}}
        id = asked(one)
        assert state(one, id)["status"] == "working"
        slow.may.set()
        task = ended(one, id)
        assert data(task)["text"] == "One two."
        assert data(task)["status"] == "finished"
        assert state(one, id) == task


def test_a_task_outlives_its_server(tmp_path: Path, slow: Slow) -> None:
    """A server killed during a task goes on in the same message; a finished task stays finished."""
    with client(tmp_path, **slow.options()) as one:
        id = asked(one)
        one.process.process.kill()
    slow.may.set()
    with client(tmp_path, **slow.options()) as one:
        task = ended(one, id)
        assert data(task)["text"] == "One two."
        one.process.process.kill()
    before = len(slow.endpoint.asked)
    with client(tmp_path, **slow.options(grace=LIVES)) as one:
        again = state(one, id)
        assert data(again) == data(task)
        assert again["createdAt"] == task["createdAt"]
        (session,) = one.data("kb_call", method="session.list")
        assert session["message_count"] == 1
    assert len(slow.endpoint.asked) == before  # an answer in the log needs no second request


def test_an_ingest_that_was_killed_goes_on(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    for number in range(FILES):
        (tmp_path / "docs" / f"{number}.md").write_text(f"# Page {number}\n\nText {number}.\n")
    with client(tmp_path, can=KNOWS, grace=0) as one:
        id = begun(one, "doc_add", paths=["docs"])
        one.process.process.kill()
    with client(tmp_path, can=KNOWS, grace=0) as one:
        assert data(ended(one, id))["added"] == FILES
        assert one.data("kb_call", method="status")["documents"]["markdown"] == FILES


def test_what_is_done_soon_is_no_task(tmp_path: Path) -> None:
    with client(tmp_path, can=KNOWS, grace=LIVES) as one:
        result = one.call("chat", question=QUESTION)
        assert result["resultType"] == "complete" and "taskId" not in result


def test_who_does_not_know_tasks_gets_none(tmp_path: Path, slow: Slow) -> None:
    slow.may.set()
    with client(tmp_path, **slow.options(can={})) as one:
        assert one.call("chat", question=QUESTION)["resultType"] == "complete"
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            error = one.ask(method, taskId="x", inputResponses={})["error"]
            assert error["code"] == -32021
            assert error["data"] == {"requiredCapabilities": KNOWS}
        listens = {"taskIds": []}
        assert one.ask("subscriptions/listen", notifications=listens)["error"]["code"] == -32021


def test_the_older_era_has_none(tmp_path: Path) -> None:
    with client(tmp_path, era="2025-11-25", can=KNOWS) as one:
        assert "extensions" not in one.introduced["result"]["capabilities"]
        assert one.ask("tasks/get", taskId="x")["error"]["code"] == -32601


def test_what_is_no_task_is_told(tmp_path: Path, slow: Slow) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with client(tmp_path, **slow.options()) as one:
        id = asked(one)
        other = ("B" if id[0] == "A" else "A") + id[1:]
        for wrong in ("x", "", f"{id}A", id[:-4], other, "é", 7, None):
            for method in ("tasks/get", "tasks/update", "tasks/cancel"):
                answer = one.ask(method, taskId=wrong, inputResponses={})
                assert answer["error"]["code"] == -32602, wrong
        assert one.ask("tasks/result", taskId=id)["error"]["code"] == -32601
        assert one.ask("tasks/update", taskId=id, inputResponses={"x": {}})["result"]
        assert one.ask("tasks/update", taskId=id)["error"]["code"] == -32602
        assert state(one, id)["status"] == "working"
    with client(elsewhere, can=KNOWS) as one:
        assert one.ask("tasks/get", taskId=id)["error"]["code"] == -32602


def test_cancelled_is_cancelled_for_ever(tmp_path: Path, slow: Slow) -> None:
    with client(tmp_path, **slow.options()) as one:
        id = asked(one)
        acknowledged = one.ask("tasks/cancel", taskId=id)["result"]
        assert acknowledged.keys() == {"resultType", "_meta"}
        assert ended(one, id)["status"] == "cancelled"
        assert one.ask("tasks/cancel", taskId=id)["result"]["resultType"] == "complete"
        one.process.process.kill()
    with client(tmp_path, **slow.options()) as one:
        task = state(one, id)
        assert task["status"] == "cancelled" and "result" not in task


def test_a_task_has_one_id(tmp_path: Path) -> None:
    """A second spelling of an id would escape the list of cancelled tasks."""
    handles = Handles(tmp_path, lambda: "store")
    for began in range(60):
        handle = Handle("tool", "doc.ingest", {}, began, "5a")
        id = handles.id_of(handle)
        assert handles.read(id) == handle
        last = DIGITS.index(id[-1])
        others = [id + "=", id + "==", id.replace("-", "+"), id.replace("_", "/")]
        others += [id[:-1] + DIGITS[last ^ bit] for bit in (1, 2, 4, 8)]
        for other in others:
            assert other == id or handles.read(other) is None, other


def test_whoever_listens_is_told(tmp_path: Path, slow: Slow) -> None:
    with client(tmp_path, **slow.options()) as one:
        id = asked(one)
        stream = one.send("subscriptions/listen", notifications={"taskIds": [id, "x"]})
        first = one.next()
        assert first["method"] == "notifications/subscriptions/acknowledged"
        assert first["params"]["notifications"] == {"taskIds": [id]}
        now = one.next()
        assert now["method"] == "notifications/tasks"
        assert now["params"]["_meta"] == {STREAM: stream}
        slow.may.set()
        while (notice := one.until("notifications/tasks")["params"])["status"] == "working":
            pass
        notice.pop("_meta")
        task = state(one, id)
        assert notice == {k: v for k, v in task.items() if k not in ("resultType", "_meta")}


PURGE = {"method": "store.purge", "params": {"document_ids": [1]}}
APPROVED = {"approval": {"action": "accept", "content": {}}}


def test_a_plan_is_approved_before_there_is_a_task(tmp_path: Path) -> None:
    can = {**KNOWS, "elicitation": {}}
    with client(tmp_path, can=can, grace=LIVES, scopes="admin,doc:write") as one:
        one.data("doc_add", title="Git", text="Install git.")
        plan = one.call("kb_call", **PURGE)
        assert plan["resultType"] == "input_required"
        more = {"requestState": plan["requestState"], "inputResponses": APPROVED}
        answer = one.ask("tools/call", name="kb_call", arguments=PURGE, **more)["result"]
        assert answer["resultType"] == "complete" and not answer["isError"]


@pytest.mark.parametrize("action", ["accept", "decline"])
def test_a_task_can_wait_for_a_person(tmp_path: Path, action: str) -> None:
    """The plan takes longer than a call may take."""
    responses = {"approval": {**APPROVED["approval"], "action": action}}
    can = {**KNOWS, "elicitation": {}}
    with client(tmp_path, can=can, grace=0, scopes="admin,doc:write,doc:read") as one:
        one.data("doc_add", title="Git", text="Install git.")
        id = begun(one, "kb_call", **PURGE)
        waiting = ended(one, id)
        assert waiting["status"] == "input_required"
        assert "Git" in waiting["inputRequests"]["approval"]["params"]["message"]
        one.ask("tasks/update", taskId=id, inputResponses=responses)
        task = ended(one, id)
        assert task["status"] == "completed" and "inputRequests" not in task
        assert task["result"]["isError"] == (action == "decline")
        documents = one.data("doc_list")
        assert len(documents) == (action == "decline")
