"""What destroys is put to a person first."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.mcp import ADMIN, MODERN, Client, client

CAN = {"elicitation": {}}
APPROVED = {"action": "accept", "content": {"approve": True}}
DELETE = {"name": "kb_call", "arguments": {"method": "doc.delete", "params": {"ids": [1]}}}


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


def is_there(one: Client) -> bool:
    return not one.call("doc_view", id=1)["isError"]


def approved(one: Client, answer: dict[str, Any]) -> dict[str, Any]:
    asked = one.ask("tools/call", **DELETE)["result"]
    assert asked["resultType"] == "input_required"
    responses = {"approval": answer}
    state = asked["requestState"]
    again = one.ask("tools/call", **DELETE, requestState=state, inputResponses=responses)
    return again["result"]  # type: ignore[no-any-return]


def test_the_plan_comes_as_a_request_for_input(modern: Client) -> None:
    result = modern.ask("tools/call", **DELETE)["result"]
    assert result.keys() == {"resultType", "inputRequests", "requestState", "_meta"}
    asked = result["inputRequests"]["approval"]
    assert asked["method"] == "elicitation/create"
    assert "doc.delete" in asked["params"]["message"] and "One" in asked["params"]["message"]
    assert is_there(modern)


def test_an_approved_plan_is_carried_out(modern: Client) -> None:
    result = approved(modern, APPROVED)
    assert not result["isError"] and result["resultType"] == "complete"
    assert not is_there(modern)


@pytest.mark.parametrize(
    "answer",
    [
        {"action": "decline"},
        {"action": "cancel"},
        {"action": "accept", "content": {"approve": False}},
        {"action": "accept", "content": {}},
        {"action": "accept", "content": {"approve": "yes"}},
    ],
)
def test_anything_else_is_no_approval(modern: Client, answer: dict[str, Any]) -> None:
    result = approved(modern, answer)
    assert result["isError"] and "did not approve" in result["content"][0]["text"]
    assert is_there(modern)


def test_a_plan_that_is_stale_says_so(modern: Client) -> None:
    asked = modern.ask("tools/call", **DELETE)["result"]
    modern.data("kb_call", method="doc.update", params={"id": 1, "title": "Two"})
    responses, state = {"approval": APPROVED}, asked["requestState"]
    result = modern.ask("tools/call", **DELETE, requestState=state, inputResponses=responses)
    assert result["result"]["content"][0]["text"].startswith("resource.plan_stale")
    assert is_there(modern)


def test_a_forged_or_borrowed_state_approves_nothing(modern: Client) -> None:
    modern.data("doc_add", title="Other", text="other text")
    other = {"method": "doc.delete", "params": {"ids": [2]}}
    asked = modern.ask("tools/call", name="kb_call", arguments=other)["result"]
    for state in ("forged", asked["requestState"]):
        more = {"requestState": state, "inputResponses": {"approval": APPROVED}}
        assert modern.ask("tools/call", **DELETE, **more)["result"]["isError"]
    assert is_there(modern)


def test_a_client_of_the_older_era_is_asked(legacy: Client) -> None:
    id = legacy.send("tools/call", **DELETE)
    asked = legacy.until("elicitation/create")
    assert "One" in asked["params"]["message"]
    legacy.line({"jsonrpc": "2.0", "id": asked["id"], "result": APPROVED})
    assert not legacy.answer_to(id)["result"]["isError"]
    assert not is_there(legacy)


@pytest.mark.parametrize("answer", [{"result": {"action": "decline"}}, {"error": {"code": -1}}])
def test_a_client_of_the_older_era_refuses(legacy: Client, answer: dict[str, Any]) -> None:
    id = legacy.send("tools/call", **DELETE)
    asked = legacy.until("elicitation/create")
    legacy.line({"jsonrpc": "2.0", "id": asked["id"], **answer})
    assert legacy.answer_to(id)["result"]["isError"]
    assert is_there(legacy)


@pytest.mark.parametrize("era", [MODERN, "2025-11-25"])
@pytest.mark.parametrize("can", [{}, {"elicitation": {"url": {}}}])
def test_a_client_that_cannot_ask_gets_the_plan(
    tmp_path: Path, era: str, can: dict[str, Any]
) -> None:
    with client(tmp_path, era=era, can=can, scopes=ADMIN) as one:
        one.data("doc_add", title="One", text="the text")
        result = one.ask("tools/call", **DELETE)["result"]
        said = result["content"][0]["text"]
        assert result["isError"] and "kbproc doc delete" in said and "One" in said
        assert result["_meta"]["kbproc/error"]["type"] == "input.confirmation_required"
        assert is_there(one)
