"""A person approves each destructive call first."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbproc.surfaces.mcp.calls import UserShell
from kbproc.surfaces.mcp.toolbox import WireRequest
from tests.kit.mcp import ADMIN, MODERN, Client, client

CAN = {"elicitation": {}}
APPROVED = {"action": "accept", "content": {}}


def deletion(id: int) -> dict[str, Any]:
    return {"name": "kb_call", "arguments": {"method": "doc.delete", "params": {"ids": [id]}}}


DELETE = deletion(1)


@pytest.fixture
def modern(tmp_path: Path) -> Iterator[Client]:
    with client(tmp_path, can=CAN, scopes=ADMIN) as one:
        one.data("doc_add", title="One", text="the text")
        yield one


@pytest.fixture
def legacy(tmp_path: Path) -> Iterator[Client]:
    with client(tmp_path, era="2025-11-25", can=CAN, scopes=ADMIN) as one:
        one.data("doc_add", title="One", text="the text")
        yield one


def is_there(one: Client, id: int = 1) -> bool:
    return not one.call("doc_view", id=id)["isError"]


def approved(one: Client, answer: dict[str, Any], id: int = 1) -> dict[str, Any]:
    reply = one.ask("tools/call", **deletion(id))["result"]
    assert reply["resultType"] == "input_required"
    responses = {"approval": answer}
    state = reply["requestState"]
    again = one.ask("tools/call", **deletion(id), requestState=state, inputResponses=responses)
    return again["result"]  # type: ignore[no-any-return]


def test_the_plan_comes_as_a_request_for_input(modern: Client) -> None:
    result = modern.ask("tools/call", **DELETE)["result"]
    assert result.keys() == {"resultType", "inputRequests", "requestState", "_meta"}
    question = result["inputRequests"]["approval"]
    assert question["method"] == "elicitation/create"
    assert "doc.delete" in question["params"]["message"] and "One" in question["params"]["message"]
    assert question["params"]["requestedSchema"] == {"type": "object", "properties": {}}
    assert is_there(modern)


def test_an_approved_plan_is_carried_out(modern: Client) -> None:
    result = approved(modern, APPROVED)
    assert not result["isError"] and result["resultType"] == "complete"
    assert not is_there(modern)


def nobody_answered(one: Client, result: dict[str, Any], id: int = 1) -> None:
    """Checks that the result shows the plan and a complete command that really deletes."""
    text = result["content"][0]["text"]
    assert result["isError"] and text.startswith("Nobody answered") and "One" in text
    assert result["_meta"]["kbproc/error"]["type"] == "input.confirmation_required"
    (line,) = [line for line in text.splitlines() if line.startswith("kbproc ")]
    words = shlex.split(line)
    assert words[:4] == ["kbproc", "doc", "delete", str(id)] and words[4] == "--store"
    assert Path(words[5]).is_absolute() and (Path(words[5]) / "store.toml").exists()


def test_an_empty_form_is_accepted_with_or_without_content(modern: Client) -> None:
    assert not approved(modern, {"action": "accept"})["isError"]
    assert not is_there(modern)


def test_a_refusal_is_a_refusal(modern: Client) -> None:
    result = approved(modern, {"action": "decline"})
    assert result["isError"] and "did not approve" in result["content"][0]["text"]
    assert is_there(modern)


def test_where_nobody_answers_a_person_can_decide_in_a_shell(modern: Client) -> None:
    for answer in ({"action": "cancel"}, {"action": "later"}, {}):
        nobody_answered(modern, approved(modern, answer))
        assert is_there(modern), answer
    assert not approved(modern, APPROVED)["isError"], "somebody may be there later"


def test_the_command_is_quoted(tmp_path: Path) -> None:
    shell = UserShell(store="/my store", agent="scribe")
    line = shell.command(WireRequest("doc.delete", {"ids": [200, 201], "client_token": "x"}))
    assert line == "kbproc doc delete 200 201 --store '/my store'"
    line = shell.command(WireRequest("note.delete", {"slug": "todo", "confirm": "x"}))
    assert line == "kbproc note delete todo --agent scribe --store '/my store'"
    line = shell.command(WireRequest("doc.ingest", {"paths": ["a b"], "prune": True}))
    assert line == "kbproc doc ingest 'a b' --prune --store '/my store'"


def test_a_plan_that_is_stale_says_so(modern: Client) -> None:
    reply = modern.ask("tools/call", **DELETE)["result"]
    modern.data("kb_call", method="doc.update", params={"id": 1, "title": "Two"})
    responses, state = {"approval": APPROVED}, reply["requestState"]
    result = modern.ask("tools/call", **DELETE, requestState=state, inputResponses=responses)
    assert result["result"]["content"][0]["text"].startswith("resource.plan_stale")
    assert is_there(modern)


def test_a_forged_or_borrowed_state_approves_nothing(modern: Client) -> None:
    modern.data("doc_add", title="Other", text="other text")
    other = {"method": "doc.delete", "params": {"ids": [2]}}
    reply = modern.ask("tools/call", name="kb_call", arguments=other)["result"]
    for state in ("forged", reply["requestState"]):
        more = {"requestState": state, "inputResponses": {"approval": APPROVED}}
        assert modern.ask("tools/call", **DELETE, **more)["result"]["isError"]
    assert is_there(modern)


def test_a_client_of_the_older_era_is_asked(legacy: Client) -> None:
    id = legacy.send("tools/call", **DELETE)
    question = legacy.until("elicitation/create")
    assert "One" in question["params"]["message"]
    legacy.line({"jsonrpc": "2.0", "id": question["id"], "result": APPROVED})
    assert not legacy.answer_to(id)["result"]["isError"]
    assert not is_there(legacy)


def answered(one: Client, answer: dict[str, Any], id: int = 1) -> dict[str, Any]:
    request = one.send("tools/call", **deletion(id))
    question = one.until("elicitation/create")
    one.line({"jsonrpc": "2.0", "id": question["id"], **answer})
    return one.answer_to(request)["result"]  # type: ignore[no-any-return]


def test_a_client_of_the_older_era_refuses(legacy: Client) -> None:
    result = answered(legacy, {"result": {"action": "decline"}})
    assert result["isError"] and "did not approve" in result["content"][0]["text"]
    assert is_there(legacy)


def test_a_client_of_the_older_era_has_no_answer(legacy: Client) -> None:
    for answer in ({"result": {"action": "cancel"}}, {"error": {"code": -1}}):
        nobody_answered(legacy, answered(legacy, answer))
        assert is_there(legacy), answer


@pytest.mark.parametrize("era", [MODERN, "2025-11-25"])
@pytest.mark.parametrize("can", [{}, {"elicitation": {"url": {}}}])
def test_a_client_that_cannot_ask_gets_the_plan(
    tmp_path: Path, era: str, can: dict[str, Any]
) -> None:
    with client(tmp_path, era=era, can=can, scopes=ADMIN) as one:
        one.data("doc_add", title="One", text="the text")
        result = one.ask("tools/call", **DELETE)["result"]
        text = result["content"][0]["text"]
        assert result["isError"] and "kbproc doc delete" in text and "One" in text
        assert result["_meta"]["kbproc/error"]["type"] == "input.confirmation_required"
        assert is_there(one)


CODEX = "codex-mcp-client"
CHOICES = [
    ({"action": "accept", "content": {"carry_out": "yes"}}, "approved"),
    ({"action": "accept", "content": {"carry_out": "no"}}, "refused"),
    ({"action": "decline"}, "refused"),
    ({"action": "accept", "content": {}}, "unanswered"),
    ({"action": "accept"}, "unanswered"),
    ({"action": "accept", "content": None}, "unanswered"),
]


@pytest.mark.parametrize("era", [MODERN, "2025-11-25"])
def test_a_client_that_accepts_empty_forms_by_itself_gets_a_choice(
    tmp_path: Path, era: str, subtests: pytest.Subtests
) -> None:
    with client(tmp_path, era=era, can=CAN, scopes=ADMIN, name=CODEX) as one:
        for number, (answer, outcome) in enumerate(CHOICES):
            added = one.data("doc_add", title=f"One {number}", text=f"the text {number}")
            with subtests.test(answer=answer):
                carries_out_what_was_chosen(one, added["id"], answer, outcome)


def carries_out_what_was_chosen(one: Client, id: int, answer: dict[str, Any], outcome: str) -> None:
    if one.era == MODERN:
        result = approved(one, answer, id)
    else:
        result = answered(one, {"result": answer}, id)
    assert is_there(one, id) == (outcome != "approved")
    if outcome == "unanswered":
        nobody_answered(one, result, id)
    else:
        assert result["isError"] == (outcome == "refused")


def test_the_choice_starts_at_no(tmp_path: Path) -> None:
    with client(tmp_path, can=CAN, scopes=ADMIN, name=CODEX) as one:
        one.data("doc_add", title="One", text="the text")
        question = one.ask("tools/call", **DELETE)["result"]["inputRequests"]["approval"]
        schema = question["params"]["requestedSchema"]
        assert schema["required"] == ["carry_out"]
        assert schema["properties"]["carry_out"]["enum"] == ["no", "yes"]


@pytest.mark.parametrize("answer", [APPROVED, {"action": "decline"}, {}])
def test_what_was_cancelled_is_not_carried_out_when_it_is_approved_later(
    legacy: Client, answer: dict[str, Any]
) -> None:
    """The server withdraws its question and ignores an answer that still comes."""
    id = legacy.send("tools/call", **DELETE)
    question = legacy.until("elicitation/create")
    legacy.notify("notifications/cancelled", requestId=id)
    withdrawn = legacy.until("notifications/cancelled")
    assert withdrawn["params"] == {"requestId": question["id"]}
    legacy.line({"jsonrpc": "2.0", "id": question["id"], "result": answer})
    assert is_there(legacy)
    assert is_there(legacy), "nor a moment later"
    assert not [message for message in legacy.told if message.get("id") == id]
    id = legacy.send("tools/call", **DELETE)
    question = legacy.until("elicitation/create")
    legacy.line({"jsonrpc": "2.0", "id": question["id"], "result": APPROVED})
    assert not legacy.answer_to(id)["result"]["isError"]
    assert not is_there(legacy)
