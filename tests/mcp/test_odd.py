"""Odd messages: no value ends `kbproc mcp`, stops its answers, or cancels another request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.kit.faults import faults_of, note
from tests.kit.mcp import ENVELOPE, MODERN, Client, client, served
from tests.kit.patience import until

compared = faults_of("odd", counted=True)

LEGACY = "2025-11-25"
WRONG = "a value of a wrong type or range"
ODD: tuple[Any, ...] = ([], {}, [[]], True, False, None, 77.0, -1, 1e300, "", "\x00", 2**80)
# A server that opens its store once the file `hold` is removed.
OPENS_LATE = """
import pathlib, time
from kbproc.base.pipes import leave
from kbproc.knowledge.app.library import Library
from tests.kit import fixed

open_now = Library.open

def open_late(*words, **given):
    while pathlib.Path("hold").exists():
        time.sleep(0.005)
    return open_now(*words, **given)

Library.open = open_late
leave(fixed.main())
"""
# Methods, and the place of the odd value in their params.
REQUESTS = (
    ("initialize", ("protocolVersion",)),
    ("initialize", ("capabilities",)),
    ("initialize", ("clientInfo",)),
    ("logging/setLevel", ("level",)),
    ("resources/list", ("cursor",)),
    ("resources/read", ("uri",)),
    ("resources/subscribe", ("uri",)),
    ("resources/unsubscribe", ("uri",)),
    ("tools/call", ("name",)),
    ("tools/call", ("arguments",)),
    ("tools/list", ("cursor",)),
    ("tools/list", ("_meta", "progressToken")),
    ("tools/list", ("_meta", "io.modelcontextprotocol/logLevel")),
    ("tools/list", ("_meta", "io.modelcontextprotocol/clientInfo")),
    ("subscriptions/listen", ("notifications",)),
    ("subscriptions/listen", ("notifications", "resourceSubscriptions")),
    ("subscriptions/listen", ("notifications", "taskIds")),
    ("subscriptions/listen", ("notifications", "resourcesListChanged")),
    ("tasks/get", ("taskId",)),
    ("tasks/update", ("inputResponses",)),
    ("tasks/cancel", ("taskId",)),
)
NOTIFICATIONS = (
    ("notifications/cancelled", ("requestId",)),
    ("notifications/initialized", ("_meta",)),
    ("notifications/progress", ("progressToken",)),
    ("notifications/roots/list_changed", ("x",)),
)


def params_with(path: tuple[str, ...], value: Any) -> dict[str, Any]:
    for name in reversed(path):
        value = {name: value}
    return value  # type: ignore[no-any-return]


def asked(era: str, method: str, path: tuple[str, ...], value: Any) -> dict[str, Any]:
    params = params_with(path, value)
    meta = params.get("_meta", {})
    if era == MODERN and isinstance(meta, dict):
        params["_meta"] = {**ENVELOPE, **meta}
    return {"jsonrpc": "2.0", "method": method, "params": params}


def lives(one: Client) -> None:
    """Checks that requests with and without the store are answered."""
    assert "result" in one.ask("tools/list")
    assert not one.call("kb_list")["isError"]


@pytest.mark.parametrize("era", [MODERN, LEGACY])
def test_no_value_ends_or_silences_it(tmp_path: Path, era: str) -> None:
    with client(tmp_path, era=era) as one:
        lives(one)
        waits = one.send(
            "tools/call", name="kb_call", arguments={"method": "ping", "params": {"min_seq": 999}}
        )
        for method, path in NOTIFICATIONS:
            for value in ODD:
                one.line(asked(era, method, path, value))
                note("odd", f"{WRONG} in a notification", "it is passed over")
        lives(one)
        for number, (method, path) in enumerate(REQUESTS):
            for place, value in enumerate(ODD):
                id = f"odd-{number}-{place}"
                one.line({**asked(era, method, path, value), "id": id})
                note("odd", f"{WRONG} in a request", "the next is answered")
        lives(one)
        answered = {message.get("id") for message in one.told}
        assert waits not in answered
        one.notify("notifications/cancelled", requestId=waits)
        lives(one)


def test_only_its_own_id_cancels_a_request(tmp_path: Path) -> None:
    """A dictionary lookup alone would not do: Python treats 1.0 and True as the key 1."""
    with served(tmp_path) as process:
        one = Client(process)
        slow = {"method": "ping", "params": {"min_seq": 2}}
        waits = one.send("tools/call", name="kb_call", arguments=slow)
        assert waits == 1
        for value in (1.0, True, "1", [1], {"id": 1}):
            one.notify("notifications/cancelled", requestId=value)
        one.data("kb_call", method="kb.create", params={"slug": "team"})
        one.data("kb_call", method="kb.create", params={"slug": "other"})
        answers = [message for message in one.told if message.get("id") == waits]
        assert "result" in (answers[0] if answers else one.answer_to(waits))


def test_an_agents_client_before_its_store_is_open(tmp_path: Path) -> None:
    """Requests that wait for the agent's scopes must not end the thread that reads the scopes."""
    with client(tmp_path, tools="all", scopes="admin,agent:read,agent:write") as admin:
        admin.data("agent_create", slug="helper", scopes=["kb:read", "note:read"])
    hold = tmp_path / "hold"
    hold.touch()
    bound = {"actor": "helper", "agent_named": "--agent"}
    with client(tmp_path, tools="all", program=OPENS_LATE, **bound) as one:
        for path in (("resourceSubscriptions",), ("taskIds",), ("resourcesListChanged",)):
            for place, value in enumerate(ODD):
                message = asked(MODERN, "subscriptions/listen", ("notifications", *path), value)
                one.line({**message, "id": f"{path[0]}-{place}"})
                note("odd", "the same before an agent's store is open", "the next is answered")
        hold.unlink()
        until(lambda: "result" in one.ask("tools/list"), "an answer")
        assert not one.call("kb_list")["isError"]
