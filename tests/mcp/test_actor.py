"""The log names the client that wrote, unless the user names another actor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kbproc.surfaces.mcp.serve import name_in
from tests.kit.mcp import MODERN, client, served
from tests.kit.mcp import Client as Lines

ENTRY = {"title": "Restart policy", "body": "Two nodes at a time."}
CLIENT_INFO = "io.modelcontextprotocol/clientInfo"


def authors(folder: Path) -> list[str]:
    with client(folder, tools="all", scopes="admin") as other:
        records = other.data("events_read")
    return [record["actor"] for record in records if record["actor"] != "kbproc"]


@pytest.mark.parametrize("era", ["2024-11-05", "2025-11-25"])
def test_the_actor_is_the_name_of_the_client(tmp_path: Path, era: str) -> None:
    with client(tmp_path, era=era) as lines:
        lines.data("store_knowledge", **ENTRY)
    assert authors(tmp_path) == ["lines"]


def test_the_newer_era_names_the_client_in_each_request(tmp_path: Path) -> None:
    call = {"name": "store_knowledge", "arguments": ENTRY}
    with client(tmp_path) as lines:
        meta = {CLIENT_INFO: {"name": "codex", "version": "1"}}
        assert not lines.ask("tools/call", meta, **call)["result"]["isError"]
        meta = {CLIENT_INFO: {"name": "another", "version": "1"}}  # one pipe is one client
        assert not lines.ask("tools/call", meta, **call)["result"]["isError"]
    assert authors(tmp_path) == ["codex", "codex"]


def test_a_client_without_a_name_is_the_user(tmp_path: Path) -> None:
    with client(tmp_path) as lines:
        lines.data("store_knowledge", **ENTRY)
    assert authors(tmp_path) == ["user"]


def test_another_actor_is_the_users_choice(tmp_path: Path) -> None:
    with client(tmp_path, era="2025-11-25", actor="ann") as lines:
        lines.data("store_knowledge", **ENTRY)
    assert authors(tmp_path) == ["ann"]


def test_what_the_user_wrote_before_is_still_the_clients_own(tmp_path: Path) -> None:
    """Earlier versions wrote for every client as the user."""
    with client(tmp_path) as old:
        for title in ("Old", "New"):
            old.data("store_knowledge", title=title, body=f"The {title} one.")
    with client(tmp_path, era="2025-11-25") as lines:
        lines.data("supersede_knowledge", oldId=1, newId=2)


def test_what_one_client_did_is_reverted_and_old_records_stay(tmp_path: Path) -> None:
    with client(tmp_path) as old:  # earlier versions wrote like this
        old.data("store_knowledge", title="Old", body="Of before.")
    with client(tmp_path, era="2025-11-25") as lines:
        lines.data("store_knowledge", **ENTRY)
        lines.data("supersede_knowledge", oldId=1, newId=2)
    with client(tmp_path, tools="all", scopes="admin") as user:
        done = user.call("events_revert", actor="lines", since=1, dry_run=True)
    plan = done["structuredContent"]["meta"]["plan"]
    assert plan["changes"][0].startswith("undo 2 of 2 records")
    assert "entry 1 “Old”: superseded no more" in plan["changes"]


def test_a_client_with_the_name_of_an_agent_is_not_that_agent(tmp_path: Path) -> None:
    """The server does not trust a client's name: the client keeps its tools and is no agent."""
    with client(tmp_path, tools="all", scopes="admin,agent:read,agent:write") as admin:
        admin.data("agent_create", slug="lines", scopes=["kb:read"])
    with client(tmp_path, era="2025-11-25") as lines:
        lines.data("store_knowledge", **ENTRY)
        assert not lines.call("search_knowledge", query="restart")["isError"]
    assert authors(tmp_path)[-1] == "user"


@pytest.mark.parametrize(
    "info, name",
    [
        ({"name": "claude-code"}, "claude-code"),
        ({"name": " Visual\tStudio\u202e Code\n"}, "Visual Studio Code"),
        ({"name": "x" * 1000}, "x" * 64),
        ({"name": "\n"}, None),
        ({"name": 5}, None),
        ({}, None),
        (None, None),
    ],
)
def test_a_name_is_what_the_log_can_hold(info: Any, name: str | None) -> None:
    assert name_in(info) == name


def test_a_client_that_says_nothing_ends(tmp_path: Path) -> None:
    with served(tmp_path) as process:
        Lines(process, MODERN)
        assert process.close() == []
