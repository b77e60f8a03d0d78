"""A hook reads its flags strictly, and takes a deadline, an event or a client from them."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from kbproc.base.errors import KbprocError
from kbproc.base.settings.config import SettingOrigin
from kbproc.surfaces.hooks.deadline import (
    DEADLINE_MS,
    TOOL_DEADLINE_MS,
    deadline_of,
    is_deadline,
)
from kbproc.surfaces.hooks.options import HookOptions, options_of
from kbproc.surfaces.hooks.origins import may_quote
from kbproc.surfaces.hooks.run import is_event
from kbproc.surfaces.setup.command import hook, skill


@pytest.mark.parametrize(
    ("words", "milliseconds"),
    [
        ([], 1000),
        (["--record"], 30_000),
        (["--deadline-ms", "200"], 200),
        (["--deadline-ms=60000", "--record"], 60_000),
        (["--deadline-ms", "199"], 1000),
        (["--deadline-ms", "60001"], 1000),
        (["--deadline-ms"], 1000),
        (["--deadline-ms", "-5"], 1000),
        (["--deadline-ms", "1", "--deadline-ms", "500"], 500),
    ],
)
def test_a_deadline_is_the_flags_or_the_default(words: list[str], milliseconds: int) -> None:
    assert deadline_of(["hook", "prompt", *words]) == milliseconds
    is_default = milliseconds == DEADLINE_MS
    of_tool = deadline_of(["hook", "tool", *words])
    assert of_tool == (TOOL_DEADLINE_MS if is_default or words == ["--record"] else milliseconds)


@pytest.mark.parametrize(
    ("text", "is_valid"),
    [("200", True), ("60000", True), ("199", False), ("1e3", False), ("", False), ("²00", False)],
)
def test_a_deadline_has_a_least_and_a_greatest_value(text: str, is_valid: bool) -> None:
    assert is_deadline(text) == is_valid


@pytest.mark.parametrize(
    ("item", "allowed", "is_quoted"),
    [
        ({"origin": "user"}, (), True),
        ({"origin": "agent"}, (), True),
        ({"origin": "web"}, (), False),
        ({"origin": "web"}, ("web",), True),
        ({"origin": "import"}, ("web",), False),
        ({}, ("web", "import"), False),
        ({"origin": None}, (), False),
    ],
)
def test_foreign_texts_are_quoted_only_where_a_setting_says_so(
    item: dict[str, Any], allowed: tuple[str, ...], is_quoted: bool
) -> None:
    assert may_quote(item, allowed) == is_quoted


def test_flags_of_a_hook_are_read_in_both_forms() -> None:
    words = ["prompt", "--tokens", "100", "--quote=web,", "--record", "--store", "/kb", "--kb="]
    assert options_of(words) == HookOptions(
        event="prompt", tokens=100, quote=("web",), record=True, store="/kb"
    )
    assert options_of(["prompt"]).tokens == 500
    assert options_of(["session-start", "--tokens=5000"]).tokens == 5000
    assert options_of(["session-end"]) == HookOptions(event="session-end", tokens=0)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--tokens", "99"], "--tokens is '99'; it can be 100 to 5000."),
        (["--tokens", "5001"], "--tokens is '5001'; it can be 100 to 5000."),
        (["--tokens"], "--tokens is ''; it can be 100 to 5000."),
        (["--quote", "user"], "--quote is 'user'; it can be web,import."),
        (["--yes"], "A hook has no flag '--yes'."),
        (["x" * 50], f"A hook has no flag '{'x' * 40}'."),
    ],
)
def test_unknown_flags_and_values_are_refused(words: list[str], message: str) -> None:
    with pytest.raises(KbprocError) as error:
        options_of(["prompt", *words])
    assert (error.value.type, error.value.message) == ("input.invalid_params", message)


def test_flags_come_before_every_other_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KBPROC_KB", "birds")
    options = HookOptions(event="prompt", tokens=500, store=str(tmp_path), agent="gull")
    config = options.config(tmp_path)
    assert (config.store, config.kb, config.actor) == (tmp_path, "birds", "gull")
    assert config.agent_named_by == "--agent"
    assert config.origins["store"] == SettingOrigin("flag", "--store")
    assert config.origins["kb"].level == "environment"


class Stdin(io.StringIO):
    def __init__(self, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


@pytest.mark.parametrize(
    ("words", "is_terminal", "is_from_client"),
    [
        (["hook", "prompt"], False, True),
        (["hook", "nonsense"], False, True),
        (["hook", "prompt"], True, False),
        (["hook", "install", "claude-code"], False, False),
        (["hook", "remove"], False, False),
        (["hook"], False, False),
        (["hook", "--help"], False, False),
        (["hook", "prompt", "-h"], False, False),
        (["search", "hook"], False, False),
    ],
)
def test_only_a_client_sends_an_event(
    monkeypatch: pytest.MonkeyPatch, words: list[str], is_terminal: bool, is_from_client: bool
) -> None:
    monkeypatch.setattr(sys, "stdin", Stdin(is_terminal))
    assert is_event(words) == is_from_client


@pytest.mark.parametrize("words", [[], ["install"], ["remove", "a", "b"], ["prompt", "x"]])
def test_a_person_installs_or_removes_one_client(words: list[str]) -> None:
    with pytest.raises(KbprocError) as error:
        hook(cast(Any, None), words, cast(Any, None), lambda text: None, agreed=True)
    assert (error.value.type, error.value.field) == ("input.invalid_params", "EVENT")
    assert error.value.valid_values is not None
    assert error.value.valid_values[:4] == ["install", "remove", "report", "forget"]


def test_a_skill_is_installed_for_one_client_at_most() -> None:
    with pytest.raises(KbprocError) as error:
        skill(["claude-code", "x"], lambda text: None, agreed=True)
    assert error.value.message == "skills install takes [CLIENT]; 'x' is one too many."
