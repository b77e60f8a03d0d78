"""The kit finds a kbproc that breaks one rule, and names that rule."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbproc.contract.judge import judge
from kbproc.contract.kit import Kit
from kbproc.contract.verdicts import Verdict, exit_code, verdicts
from tests.kit.broken import BREAKS
from tests.kit.judged import CONVERSATIONS, KIT, OURS, SERVED, findings, judging, told_in
from tests.kit.patience import LONG, PATIENCE


@pytest.fixture(scope="module")
def table() -> Iterator[dict[str, str]]:
    with told_in("breaks", BREAKS) as rows:
        yield rows


def of_kinds(rows: list[Verdict], kind: str) -> dict[str, list[str]]:
    return {
        one.rule: [f"{why.conversation}: {why.expected}" for why in one.findings]
        for one in rows
        if one.verdict == kind
    }


@pytest.mark.parametrize("name", [name for name, one in BREAKS.items() if LONG or not one.long])
def test_a_break_is_found_and_nothing_else(
    name: str, kit_forked: None, table: dict[str, str]
) -> None:
    """Runs the conversations about the broken rules; the long profile runs all."""
    broken = BREAKS[name]
    names = set(CONVERSATIONS) if LONG else broken.seen_in or judging(broken.rules)
    command = shlex.join([sys.executable, "-m", "tests.kit.broken", name, "{store}"])
    rows = verdicts(SERVED, findings(command, names))
    wrong = of_kinds(rows, "wrong")
    assert set(wrong) == broken.rules
    assert exit_code(rows) == 1
    table[name] = (
        f"| `{name}` | {broken.breaks} | {', '.join(f'`{one}`' for one in sorted(wrong))} |"
    )


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("/nowhere/at-all {store}", "could not be started"),
        ("/nowhere/at-all", "could not be started"),
        ("false", "is the command right?"),
        ("'unclosed", "can't be split"),
        ("FOO=1 /nowhere/at-all", "/nowhere/at-all could not be started"),
        ("FOO=1", "names no program"),
    ],
)
def test_what_could_not_be_told_is_not_wrong(command: str, reason: str) -> None:
    checks = findings(command, {"params"})
    assert {one.verdict for one in checks} == {"unknown"}
    assert all(reason in one.expected for one in checks)


def test_a_member_that_is_missing_is_named_by_its_variant() -> None:
    """The members of an init show whether it is the process's or a stream's."""
    begins = {"type": "init", "protocol": "1.0", "server": {"name": "k", "version": "1"}}
    init = {**begins, "store": "/x", "actor": "user", "scopes": [], "capabilities": {}}
    assert "required property at /capabilities (schema event.init)" in str(
        KIT.misfit("event.init", init)
    )
    line = {"type": "note", "agent": "ann", "slug": "tide", "text": "High at noon."}
    assert '"updated_at" is a required property' in str(KIT.misfit("store.export.item", line))
    document = {"id": 1, "kb": "default", "title": 5}
    assert "valid under any" not in str(KIT.misfit("doc.create.result", {"data": document}))


SHOWN = {"ids.as_sent", "answers.once"}


def test_what_a_conversation_would_have_shown_is_not_kept() -> None:
    """An echo as server answers nothing, so the conversation ends before it shows any id."""
    checks = [one for one in judge(CONVERSATIONS["ids"], "cat", KIT, 0.5) if one.rule in SHOWN]
    assert {one.rule for one in checks if one.verdict == "unknown"} == SHOWN
    rows = [row for row in SERVED if row["id"] in SHOWN]
    assert exit_code(verdicts(rows, checks)) == 2


def test_a_server_is_found_from_where_the_command_is_given(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "my-server"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m kbproc serve --store "$2"\n')
    program.chmod(0o700)
    monkeypatch.chdir(tmp_path)
    checks = judge(CONVERSATIONS["utf8"], "./my-server --data {store}", KIT, PATIENCE)
    assert {one.verdict for one in checks} == {"pass"}


@pytest.mark.parametrize("store", ["{store}", ""])
def test_a_command_sets_variables_before_its_program(tmp_path: Path, store: str) -> None:
    program = tmp_path / "my-server"
    serve = f'exec {sys.executable} -m kbproc serve --store "${{1-$KBPROC_STORE}}"'
    program.write_text(f'#!/bin/sh\n[ "$FOO$BAR" = "1a b" ] && {serve}\n')
    program.chmod(0o700)
    command = f"FOO=1 BAR='a b' PATH={tmp_path}:/usr/bin:/bin my-server {store}"
    checks = judge(CONVERSATIONS["utf8"], command, KIT, PATIENCE)
    assert {one.verdict for one in checks} == {"pass"}


def test_what_is_absent_on_both_sides_is_not_the_same(kit_forked: None) -> None:
    same = {"rule": "methods.unknown", "of": "first/result/none", "same": "first/result/no"}
    steps = [{"ask": "ping", "as": "first", "expect": [same]}]
    (one,) = [
        one
        for one in judge({"name": "absent", "steps": steps}, OURS, KIT, PATIENCE)
        if one.rule == "methods.unknown"
    ]
    assert one.verdict == "unknown" and "first/result/no did not come" in one.expected


def test_a_value_that_two_variants_allow_is_a_misfit(tmp_path: Path) -> None:
    kit = Kit(tmp_path, tmp_path)
    kit.schemas.mkdir(parents=True)
    schema = {"oneOf": [{"type": "string"}, {"type": "object"}, {"required": ["a"]}]}
    (kit.schemas / "two.json").write_text(json.dumps(schema))
    assert "more than one" in str(kit.misfit("two", {"a": 1}))
