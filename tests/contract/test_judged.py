"""A command of the contract judges the chosen rules alone, or says why it judges none."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from kbproc import PROTOCOL
from kbproc.contract import command
from kbproc.contract.command import CommandAnswer, run
from kbproc.contract.kit import Kit, KitError
from kbproc.contract.verdicts import PASS, UNKNOWN, WRONG, RuleFinding
from kbproc.contract.watching import changes

ROWS = [
    {"id": "ids.echo", "level": "must", "part": "core", "says": "Ids come back.", "section": "1"},
    {"id": "ids.null", "level": "should", "part": "core", "says": "Null too.", "section": "1"},
    {"id": "params.unknown", "level": "must", "part": "log", "says": "None.", "section": "2"},
]
# Conversation → the rules that it judges.
SCENES = {"one": ["ids.echo"], "two": ["ids.echo", "ids.null"], "three": ["params.unknown"]}


class FakeKit:
    """A kit with these rules and conversations."""

    def conversations(self, of: str = "conversations") -> list[dict[str, Any]]:
        parts = {"three": "log"}
        return [
            {"name": name, "rules": rules, "part": parts.get(name, "core")}
            for name, rules in SCENES.items()
        ]

    def chosen(self, only: list[str], profile: list[str] | None = None) -> list[dict[str, Any]]:
        return [row for row in ROWS if not only or row["id"].partition(".")[0] in only]

    @property
    def folder(self) -> Path:
        return Path("/nowhere")

    def export(self, to: Path, versions: dict[str, Any]) -> list[str]:
        return ["README.md", "versions.json"]


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Puts verdicts by conversation in the place of the judge; without one a rule is kept."""
    verdicts: dict[str, str] = {}

    def judge(scene: dict[str, Any], line: str, *more: Any) -> list[RuleFinding]:
        verdict = verdicts.get(scene["name"], PASS)
        for transcript in more[2:]:
            transcript.append('< {"jsonrpc":"2.0","id":1,"result":{}}')
        step = "start" if verdict == UNKNOWN else "1"
        return [
            RuleFinding(rule, verdict, scene["name"], step=step, expected=f"{line} is odd")
            for rule in scene["rules"]
        ]

    monkeypatch.setattr(command, "own_kit", lambda: cast(Kit, FakeKit()))
    monkeypatch.setattr(command, "judge", judge)
    monkeypatch.setattr(command, "judge_client", judge)
    for name in ("rules_of", "rules_in"):
        monkeypatch.setattr(command, name, lambda scene: scene["rules"])
    return verdicts


def answer(
    name: str, *words: str, progress: list[Any] | None = None, **flags: Any
) -> CommandAnswer:
    values = {f"--{flag}": value for flag, value in flags.items()}
    steps = [] if progress is None else progress

    def step(*parts: Any) -> None:
        steps.append(parts)

    return run(name, list(words), values.get, step)


@pytest.mark.parametrize("name", ["check", "client"])
def test_every_rule_that_a_conversation_judges_gets_a_verdict(
    judged: dict[str, str], name: str
) -> None:
    steps: list[Any] = []
    whole = answer(name, exec="cmd", progress=steps)
    assert (whole.exit, whole.partial, whole.bare) == (0, None, False)
    assert {key: whole.data[key] for key in ("rules", "pass", "wrong", "unknown")} == {
        "rules": 3,
        "pass": 3,
        "wrong": 0,
        "unknown": 0,
    }
    assert steps == [
        ("conversations", 1, 3, "one"),
        ("conversations", 2, 3, "two"),
        ("conversations", 3, 3, "three"),
    ]


def test_a_broken_rule_makes_the_answer_partial(judged: dict[str, str]) -> None:
    judged["two"] = WRONG
    broken = answer("check", exec="cmd")
    assert broken.exit == 1
    assert broken.partial == {
        "type": "operation.partial",
        "exit_code": 1,
        "message": "2 of 3 rules are broken, and 0 could not be told.",
    }


def test_only_the_conversations_of_the_chosen_rules_run(judged: dict[str, str]) -> None:
    steps: list[Any] = []
    chosen = answer("check", exec="cmd", only="params", progress=steps)
    assert (chosen.data["rules"], steps) == (1, [("conversations", 1, 1, "three")])
    with pytest.raises(KitError, match="--only streams names no rule that is judged here"):
        answer("check", exec="cmd", only="streams")


def test_a_command_that_does_not_start_is_tried_once(judged: dict[str, str]) -> None:
    judged["one"] = UNKNOWN
    steps: list[Any] = []
    away = answer("check", exec="cmd", progress=steps)
    assert (away.exit, len(steps), away.data["unknown"]) == (2, 1, 3)
    assert away.text == "cmd is odd; so no rule could be judged.\n"
    junit = answer("check", exec="cmd", junit=True)
    assert junit.bare and junit.text.startswith("<?xml")


def test_only_the_conversations_of_the_chosen_parts_run(judged: dict[str, str]) -> None:
    steps: list[Any] = []
    chosen = answer("check", exec="cmd", profile="log", progress=steps)
    assert (chosen.data["rules"], steps) == (1, [("conversations", 1, 1, "three")])
    one = answer("check", exec="cmd", conversation="two")
    assert (one.data["rules"], len(one.data["transcript"])) == (2, 1)


def test_a_broken_rule_is_told_as_soon_as_it_is_known(judged: dict[str, str]) -> None:
    judged.update(one=WRONG, two=WRONG)
    notes: list[str] = []
    run("check", [], {"--exec": "cmd"}.get, lambda *step: None, notes.append)
    assert notes == [
        "ids.echo is broken in one: cmd is odd",
        "ids.null is broken in two: cmd is odd",
    ]


def test_patience_drops_after_a_wait_in_vain(
    judged: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    def judge(scene: dict[str, Any], line: str, kit: Kit, wait: float, *more: Any) -> Any:
        waits.append(wait)
        return [RuleFinding("ids.echo", UNKNOWN, "x", cause="ask: nothing came within 30 seconds")]

    monkeypatch.setattr(command, "judge", judge)
    answer("check", exec="cmd")
    assert waits == [command.PATIENCE_SECONDS, command.LATE_SECONDS, command.LATE_SECONDS]


def test_a_part_that_init_leaves_out_is_not_judged(
    judged: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    init = '{"jsonrpc":"2.0","method":"event","params":{"type":"init","capabilities":'

    def judge(scene: dict[str, Any], line: str, *more: Any) -> list[RuleFinding]:
        more[2].append(f'< {init}{{"parts":["core"]}}}}}}')
        return [RuleFinding(rule, PASS, scene["name"]) for rule in scene["rules"]]

    monkeypatch.setattr(command, "judge", judge)
    whole = answer("check", exec="cmd")
    assert (whole.exit, whole.data["pass"], whole.data["left_out"]) == (0, 2, 1)
    assert "left out params.unknown" in whole.text


def test_a_change_of_what_the_command_names_is_seen(tmp_path: Path) -> None:
    server, beside, other = (tmp_path / name for name in ("server.py", "wire.py", "sub"))
    server.write_text("1")
    beside.write_text("1")
    other.mkdir()
    pauses = iter([lambda: None, lambda: beside.write_text("12"), server.unlink])
    paths = changes(f"python {server}", lambda seconds: next(pauses)())
    assert [next(paths), next(paths)] == [beside, server]


@pytest.mark.parametrize(
    ("words", "flags", "message"),
    [
        ((), {}, "What is judged is one command: it needs --exec."),
        (("x",), {"exec": "cmd"}, "What is judged is one command: there is no place for 'x'."),
        (
            (),
            {"exec": "cmd", "patience": "0"},
            "--patience is '0'; it is a number of seconds, at least 1.",
        ),
        (
            (),
            {"exec": "cmd", "patience": "1.5"},
            "--patience is '1.5'; it is a number of seconds, at least 1.",
        ),
    ],
)
def test_a_command_line_that_can_not_be_judged_is_refused(
    judged: dict[str, str], words: tuple[str, ...], flags: dict[str, Any], message: str
) -> None:
    with pytest.raises(KitError) as error:
        answer("check", *words, **flags)
    assert str(error.value) == message


def test_requirements_and_an_export_are_told_in_words(
    judged: dict[str, str], tmp_path: Path
) -> None:
    rules = answer("requirements", "params")
    assert (rules.data, rules.text) == ([ROWS[2]], "params.unknown (must, log)\n  None.\n")
    export = answer("export", str(tmp_path))
    assert (export.data["files"], export.data["versions"]["protocol"]) == (2, PROTOCOL)
    assert export.text == f"2 files in {tmp_path}; begin with its README.md.\n"
    for words in ((), ("a", "b")):
        with pytest.raises(KitError, match="contract export needs a DIR"):
            answer("export", *words)
    with pytest.raises(KitError, match="holds no contract kit"):
        answer("requirements", kit=str(tmp_path))
