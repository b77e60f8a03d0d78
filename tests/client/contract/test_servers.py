"""A kbproc that breaks one rule is found out, and for that rule."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbproc.client.contract.judge import judge
from kbproc.client.contract.verdicts import Verdict, exit_code, verdicts
from tests.kit.broken import BREAKS
from tests.kit.judged import CONVERSATIONS, KIT, SERVED, findings, judging, told_in
from tests.kit.patience import LONG, PATIENCE


@pytest.fixture(scope="module")
def table() -> Iterator[dict[str, str]]:
    with told_in("breaks", BREAKS) as rows:
        yield rows


def of_kinds(found: list[Verdict], kind: str) -> dict[str, list[str]]:
    return {
        one.rule: [f"{why.conversation}: {why.expected}" for why in one.findings]
        for one in found
        if one.verdict == kind
    }


@pytest.mark.parametrize("name", [name for name, one in BREAKS.items() if LONG or not one.long])
def test_a_break_is_found_and_nothing_else(
    name: str, kit_forked: None, table: dict[str, str]
) -> None:
    """Under the long profile in every conversation, else in those that are about its rules."""
    broken = BREAKS[name]
    names = set(CONVERSATIONS) if LONG else broken.seen_in or judging(broken.rules)
    command = shlex.join([sys.executable, "-m", "tests.kit.broken", name, "{store}"])
    found = verdicts(SERVED, findings(command, names))
    wrong = of_kinds(found, "wrong")
    assert set(wrong) == broken.rules
    assert exit_code(found) == 1
    table[name] = (
        f"| `{name}` | {broken.breaks} | {', '.join(f'`{one}`' for one in sorted(wrong))} |"
    )


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("/nowhere/at-all {store}", "could not be started"),
        ("/nowhere/at-all", "is the command right?"),
        ("false", "is the command right?"),
        ("'unclosed", "can't be split"),
    ],
)
def test_what_could_not_be_told_is_not_wrong(command: str, said: str) -> None:
    found = findings(command, {"params"})
    assert {one.verdict for one in found} == {"unknown"}
    assert all(said in one.expected for one in found)


SHOWN = {"ids.as_sent", "answers.once"}


def test_what_a_conversation_would_have_shown_is_not_kept() -> None:
    """It stopped before: an echo has answered nothing, and so no id was told."""
    found = [one for one in judge(CONVERSATIONS["ids"], "cat", KIT, 0.5) if one.rule in SHOWN]
    assert {one.rule for one in found if one.verdict == "unknown"} == SHOWN
    rows = [row for row in SERVED if row["id"] in SHOWN]
    assert exit_code(verdicts(rows, found)) == 2


def test_a_server_is_found_from_where_the_command_is_given(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "my-server"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m kbproc serve --store "$2"\n')
    program.chmod(0o700)
    monkeypatch.chdir(tmp_path)
    found = judge(CONVERSATIONS["utf8"], "./my-server --data {store}", KIT, PATIENCE)
    assert {one.verdict for one in found} == {"pass"}
