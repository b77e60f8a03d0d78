"""A client in a few lines passes; each way of doing it wrongly is found."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from kbproc.client.contract.clients import judge_client, rules_in
from kbproc.client.contract.verdicts import Finding
from tests.kit.judged import KIT, told_in

SCENES: list[dict[str, Any]] = KIT.conversations("clients")
# Each with the rules that it breaks, in the scenes that are about one of them.
BREAKS = {
    "by_position": {"client.requests"},
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


def found(scene: dict[str, Any], broken: str = "") -> list[Finding]:
    command = shlex.join([sys.executable, "-m", "tests.kit.contract_client", broken])
    return judge_client(scene, command, KIT)


def kinds(findings: list[Finding], kind: str) -> set[str]:
    return {one.rule for one in findings if one.verdict == kind}


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: str(scene["name"]))
def test_a_plain_client_passes(scene: dict[str, Any]) -> None:
    findings = found(scene)
    assert [one for one in findings if one.verdict != "pass"] == []
    assert kinds(findings, "pass") == set(rules_in(scene))


@pytest.mark.parametrize("name", BREAKS)
def test_a_client_that_is_wrong_is_found(
    name: str, monkeypatch: pytest.MonkeyPatch, table: dict[str, str]
) -> None:
    monkeypatch.setattr("kbproc.client.contract.clients.TASK_SECONDS", _SECONDS.get(name, 120.0))
    [rule] = BREAKS[name]
    about = [one for one in SCENES if rule in rules_in(one)]
    scenes = about[:1] if rule in {"client.requests", "client.end"} else about
    findings = [one for scene in scenes for one in found(scene, name)]
    assert kinds(findings, "wrong") == BREAKS[name]
    table[name] = f"| `{name}` | `{rule}` |"


@pytest.fixture(scope="module")
def table() -> Iterator[dict[str, str]]:
    yield from told_in("client breaks", BREAKS)


# These hang, whatever time they have.
_SECONDS = {"waits_for_ever": 3.0, "reads_one_line": 3.0}


def test_a_client_that_starts_no_server_can_not_be_told() -> None:
    findings = judge_client(SCENES[0], "cat", KIT)
    assert {one.verdict for one in findings} == {"unknown"}
    assert {one.expected for one in findings} == {"the client started no server"}
