"""Our client and one of a few lines pass; the kit finds each way of breaking a rule."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbproc.contract.clients import judge_client, rules_in
from kbproc.contract.verdicts import RuleFinding, verdicts
from tests.kit.judged import CLIENTS, KIT, PAGE, all_kept, told_in
from tests.kit.patience import PATIENCE, longer
from tests.kit.start import REPO

SCENES: list[dict[str, Any]] = KIT.conversations("clients")
# Break → the rules that it breaks, in scenes about one of them.
BREAKS = {
    "by_position": {"client.requests"},
    "halves_ids": {"client.ids"},
    "answers_in_order": {"client.out_of_order"},
    "knows_all_events": {"client.unknown_events"},
    "knows_all_members": {"client.unknown_members"},
    "knows_all_errors": {"client.errors"},
    "ends_at_warnings": {"client.warning"},
    "loses_events": {"client.stream_whole"},
    "reads_pieces": {"client.slow_line"},
    "reads_one_line": {"client.many_lines"},
    "forgets_the_token": {"client.token_again"},
    "waits_for_ever": {"client.dead_pipe"},
    "ends_badly": {"client.end"},
}


PLAIN = REPO / "tests" / "kit" / "contract_client.py"
OURS = REPO / "clients" / "python" / "examples" / "contract_driver.py"


@pytest.fixture(autouse=True)
def forked(kit_forked: None) -> None:
    """Forks the drivers of clients, which so start at once."""


def findings_of(scene: dict[str, Any], driver: Path, *broken: str) -> list[RuleFinding]:
    """Returns the findings; the driver is a program's text, so that it can be forked."""
    command = shlex.join([sys.executable, "-c", driver.read_text(), "{server}", *broken])
    return judge_client(scene, command, KIT)


def kinds(findings: list[RuleFinding], kind: str) -> set[str]:
    return {one.rule for one in findings if one.verdict == kind}


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: str(scene["name"]))
def test_a_plain_client_passes(scene: dict[str, Any]) -> None:
    findings = findings_of(scene, PLAIN)
    assert [one for one in findings if one.verdict != "pass"] == []
    assert kinds(findings, "pass") == set(rules_in(scene))


@pytest.mark.parametrize("name", BREAKS)
def test_a_client_that_is_wrong_is_found(
    name: str, monkeypatch: pytest.MonkeyPatch, table: dict[str, str]
) -> None:
    [rule] = BREAKS[name]
    about = [one for one in SCENES if rule in rules_in(one)]
    scenes = about[:1] if rule in _ANYWHERE or name in _HANGING else about

    def wrong(seconds: float) -> set[str]:
        monkeypatch.setattr("kbproc.contract.clients.TASK_SECONDS", seconds)
        findings = [one for scene in scenes for one in findings_of(scene, PLAIN, name)]
        return kinds(findings, "wrong")

    if name in _HANGING:
        assert longer(wrong, lambda rules: rules == BREAKS[name], 1.0)
    else:
        assert wrong(PATIENCE) == BREAKS[name]
    table[name] = f"| `{name}` | `{rule}` |"


@pytest.fixture(scope="module")
def table() -> Iterator[dict[str, str]]:
    with told_in("client breaks", BREAKS) as rows:
        yield rows


_ANYWHERE = {"client.requests", "client.ids", "client.end"}
# Clients that hang until the time ends get little of it.
_HANGING = {"waits_for_ever", "reads_one_line"}


def test_every_rule_has_a_client_that_breaks_it() -> None:
    assert {rule for rules in BREAKS.values() for rule in rules} == {row["id"] for row in CLIENTS}


def test_ours_keeps_every_rule() -> None:
    findings = [one for scene in SCENES for one in findings_of(scene, OURS)]
    all_kept("kbproc.client", "client", verdicts(CLIENTS, findings))


def test_the_page_shows_its_driver() -> None:
    assert f"```python\n{OURS.read_text()}```" in PAGE.read_text()


def test_a_client_that_starts_no_server_can_not_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    findings = judge_client(SCENES[0], "cat", KIT)
    assert {one.verdict for one in findings} == {"unknown"}
    assert {one.expected for one in findings} == {"the client started no server"}


def test_a_driver_is_found_from_where_the_command_is_given(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    shutil.copy(PLAIN, "driver.py")
    command = shlex.join([sys.executable, "driver.py", "{server}"])
    assert {one.verdict for one in judge_client(SCENES[0], command, KIT)} == {"pass"}
