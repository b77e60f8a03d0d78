"""The places of session logs are those that the clients' own variables and defaults name."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbproc.base.clients import LOGS
from kbproc.base.errors import KbprocError
from kbproc.knowledge.documents.chats import CLIENTS, ChatPlace, places


def test_only_places_that_exist_are_listed(tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path)}
    (tmp_path / ".claude/projects").mkdir(parents=True)
    (tmp_path / ".codex/archived_sessions").mkdir(parents=True)
    assert places([], env) == [
        ChatPlace("claude-code", tmp_path / ".claude/projects"),
        ChatPlace("codex", tmp_path / ".codex/archived_sessions"),
    ]
    assert places(["codex"], env) == [ChatPlace("codex", tmp_path / ".codex/archived_sessions")]


def test_a_clients_own_variable_comes_before_the_default_folder(tmp_path: Path) -> None:
    (tmp_path / ".claude/projects").mkdir(parents=True)
    (tmp_path / "own/projects").mkdir(parents=True)
    env = {"HOME": str(tmp_path), "CLAUDE_CONFIG_DIR": str(tmp_path / "own")}
    assert places(["claude-code"], env) == [ChatPlace("claude-code", tmp_path / "own/projects")]
    env["CLAUDE_CONFIG_DIR"] = ""
    assert places(["claude-code"], env) == [ChatPlace("claude-code", tmp_path / ".claude/projects")]


def test_every_client_with_logs_can_be_named() -> None:
    assert tuple(LOGS) == CLIENTS


def test_the_home_of_gemini_cli_has_its_folder_in_it(tmp_path: Path) -> None:
    (tmp_path / "own/.gemini/tmp").mkdir(parents=True)
    env = {"HOME": str(tmp_path), "GEMINI_CLI_HOME": str(tmp_path / "own")}
    assert places([], env) == [ChatPlace("gemini-cli", tmp_path / "own/.gemini/tmp")]


def test_opencode_keeps_a_database_among_the_users_data(tmp_path: Path) -> None:
    database = tmp_path / "data/opencode/opencode.db"
    database.parent.mkdir(parents=True)
    database.write_bytes(b"x" * 10)
    env = {"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path / "data")}
    (place,) = places([], env)
    assert place == ChatPlace("opencode", database)
    assert place.in_words() == f"opencode: 1 file, 0.0 MB in {database}"


def test_without_any_place_the_error_names_where_it_looked(tmp_path: Path) -> None:
    with pytest.raises(KbprocError) as refusal:
        places(["pi"], {"HOME": str(tmp_path)})
    error = refusal.value
    assert (error.type, error.field) == ("resource.not_found", "$.params.clients")
    assert error.message == f"There are no session logs in {tmp_path}/.pi/agent/sessions."


def test_a_place_counts_the_json_files_below_it_and_their_size(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/one.jsonl").write_bytes(b"x" * 1_500_000)
    (tmp_path / "two.json").write_bytes(b"")
    (tmp_path / "three.txt").write_bytes(b"x" * 9_000_000)
    (tmp_path / "four.json").symlink_to(tmp_path / "nowhere")
    place = ChatPlace("codex", tmp_path)
    assert place.in_words() == f"codex: 3 files, 1.5 MB in {tmp_path}"
    assert ChatPlace("codex", tmp_path / "gone").in_words().startswith("codex: 0 files, 0.0 MB")
