"""The kit blames each fault of the minimal server on the rule that it breaks, and on no other."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbproc.contract import always
from kbproc.contract.judge import judge
from kbproc.contract.kit import Kit
from kbproc.contract.verdicts import LEFT_OUT, PASS, UNKNOWN, WRONG, exit_code, verdicts
from tests.kit.contract_faults import FAULTS, LIARS
from tests.kit.judged import (
    CONVERSATIONS,
    JUDGED,
    KIT,
    OURS,
    SERVED,
    all_kept,
    findings,
    judging,
    minimal,
    told_in,
)
from tests.kit.minimal import EXAMPLES, sources
from tests.kit.patience import LONG, PATIENCE, all_or, longer
from tests.kit.start import REPO

EVIDENCE = REPO / "docs" / "evidence" / "contract.md"
# Faults in which nothing comes that the harness waits for: a wait gets seconds, then twice as many.
_WAITS = {"log.timeout"}


@pytest.fixture(scope="module")
def table() -> Iterator[dict[str, str]]:
    with told_in("faults", FAULTS, EVIDENCE) as rows:
        yield rows


def test_every_rule_has_a_fault_in_a_place_that_is_there() -> None:
    assert set(FAULTS) == {row["id"] for row in JUDGED}
    for name in (*FAULTS, *LIARS):
        assert sources(name) != sources("-"), name


@pytest.mark.parametrize("rule", all_or([*FAULTS][::8], FAULTS))
def test_a_fault_is_blamed_on_its_rule_alone(
    rule: str, kit_forked: None, monkeypatch: pytest.MonkeyPatch, table: dict[str, str]
) -> None:
    """Holds the conversations about the rule, and in the long profile all."""
    names = set(CONVERSATIONS) if LONG else judging([rule])

    def blamed(seconds: float) -> set[str]:
        monkeypatch.setattr("kbproc.contract.exchange.END_SECONDS", max(seconds, 1.0))
        rule_findings = findings(minimal(rule), names, patience=seconds)
        return {one.rule for one in rule_findings if one.verdict == WRONG}

    if rule in _WAITS:
        assert longer(blamed, lambda rules: rules == {rule}, 0.5)
    else:
        assert blamed(PATIENCE) == {rule}
    table[rule] = f"| `{rule}` | {FAULTS[rule]['does']} |"


@pytest.mark.parametrize("name", [name for name, liar in LIARS.items() if "found" in liar])
def test_servers_of_strangers_are_found_out(name: str, kit_forked: None) -> None:
    """Each passed every rule of an earlier kit."""
    lies = set(LIARS[name]["found"])

    def missed(seconds: float) -> set[str]:
        rule_findings = findings(minimal(name), judging(lies), patience=seconds)
        return lies - {one.rule for one in rule_findings if one.verdict == WRONG}

    assert longer(missed, lambda rules: not rules, 0.5) == set()


def test_the_minimal_servers_keep_every_rule(kit_forked: None) -> None:
    rule_findings = findings(minimal("-"), CONVERSATIONS)
    all_kept("contract/examples/more.py", "check", verdicts(JUDGED, rule_findings))


@pytest.mark.parametrize("name", ["server.py", "server.mjs"])
def test_the_servers_of_core_keep_its_rules(name: str, request: pytest.FixtureRequest) -> None:
    command = minimal("core")
    if name == "server.py":
        request.getfixturevalue("kit_forked")
    elif shutil.which("node") is None:
        pytest.skip("there is no node")
    else:
        command = shlex.join(["node", str(EXAMPLES / name), "{store}"])
    names = [one["name"] for one in CONVERSATIONS.values() if one["part"] == "core"]
    rows = [row for row in JUDGED if row["part"] == "core"]
    judgement = verdicts(rows, findings(command, names))
    all_kept(f"contract/examples/{name}", "check --profile core", judgement)


def test_no_file_of_an_example_is_long() -> None:
    sizes = {path.name: len(path.read_text().splitlines()) for path in EXAMPLES.glob("*.*")}
    assert {name: size for name, size in sizes.items() if size >= 500} == {}


def test_what_init_leaves_out_is_not_judged(kit_forked: None) -> None:
    rows = verdicts(JUDGED, findings(minimal("leaves out tokens"), ["kbs", "batches"]))
    kinds = {one.rule: one.verdict for one in rows}
    assert kinds["writes.token_once"] == kinds["writes.token_method"] == LEFT_OUT
    assert kinds["writes.expected_revision"] == kinds["batches.one_array"] == PASS


def test_what_never_happened_is_not_kept(kit_forked: None) -> None:
    """A conversation without an error shows no rule about errors, and one without a stream none
    about streams.
    """
    steps = [{"ask": "ping"}]
    rule_findings = judge({"name": "short", "steps": steps}, minimal("-"), KIT, PATIENCE)
    passed = {one.rule for one in rule_findings if one.verdict == PASS}
    assert {
        rule for rule in always.RULES if rule.startswith(("errors.", "streams."))
    } & passed == set()
    assert {"results.data_and_meta", "lines.fit_schema", "answers.once"} <= passed


def test_what_may_be_left_out_is_not_wrong(kit_forked: None) -> None:
    rows = verdicts(JUDGED, findings(minimal("params.null"), ["lines"]))
    assert {one.rule: one.verdict for one in rows}["params.null"] == LEFT_OUT
    assert WRONG not in {one.verdict for one in rows}


@pytest.mark.parametrize(
    ("error", "verdicts"), [("resource.not_found", [PASS]), ("resource.conflict", [WRONG])]
)
def test_of_a_refusal_that_is_allowed_nothing_more_is_expected(
    error: str, verdicts: list[str], kit_forked: None
) -> None:
    step = {"ask": "kb.get", "id": "x", "params": {"slug": "nowhere"}, "may_refuse": error}
    expect = [{"rule": "kbs.unknown", "at": "/result/data/slug", "is": "nowhere"}]
    steps = [{**step, "rule": "ids.large", "expect": expect}]
    rule_findings = judge({"name": "may", "steps": steps}, minimal("-"), KIT, PATIENCE)
    own = [one for one in rule_findings if one.rule in {"ids.large", "kbs.unknown"}]
    assert [one.verdict for one in own] == verdicts
    assert own[0].expected in (
        "",
        'a result with the id "x", or resource.conflict, not resource.not_found',
    )


def test_one_cause_is_told_once(kit_forked: None) -> None:
    """An error in the place of a result breaks one rule, whatever else the step expects."""
    rule_findings = findings(minimal("writes.token_documents"), ["documents"])
    kinds = Counter(one.verdict for one in rule_findings)
    assert kinds[WRONG] == 1
    rule_findings = findings(minimal("lacks kb.create"), ["kbs"])
    assert {one.cause for one in rule_findings if one.verdict == UNKNOWN} == {
        "kb.create is missing"
    }


def test_what_breaks_a_presupposed_rule_is_told_once(kit_forked: None) -> None:
    """A server that forgets tokens forgets those of documents; what it got right stays right."""
    rules = {"kill.token", "kill.tokens", "kill.token_conflict", "kill.updates"}
    own = {
        (one.rule, one.verdict, one.cause) for one in findings(minimal("kill.token"), ["restarts"])
    }
    assert {one for one in own if one[0] in rules} == {
        ("kill.token", WRONG, ""),
        ("kill.tokens", UNKNOWN, "kill.token was not kept"),
        ("kill.tokens", PASS, ""),
        ("kill.token_conflict", UNKNOWN, "kill.tokens was not kept"),
        ("kill.updates", PASS, ""),
    }


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
    line = json.dumps({"jsonrpc": "2.0", "method": "event", "params": init}).encode()
    [violation] = always.violations(always.ProcessOutput([line], []), KIT)
    assert violation.rule == "lines.fit_schema"
    assert "required property at /capabilities" in violation.expected
    bare = line.replace(json.dumps(init).encode(), b'{"type": "init"}')
    [violation] = always.violations(always.ProcessOutput([bare], []), KIT)
    assert violation.expected.startswith('"protocol" is a required property at its top')
    line = {"type": "note", "agent": "ann", "slug": "tide", "text": "High at noon."}
    assert '"updated_at" is a required property' in str(KIT.misfit("store.export.item", line))
    document = {"id": 1, "kb": "default", "title": 5}
    assert "valid under any" not in str(KIT.misfit("doc.create.result", {"data": document}))


def test_a_line_with_nan_is_no_message() -> None:
    line = b'{"jsonrpc":"2.0","id":1,"result":{"data":NaN}}'
    [violation] = always.violations(always.ProcessOutput([line], []), KIT)
    assert violation.rule == "lines.only_messages"


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
    checks = judge(CONVERSATIONS["batches"], "./my-server --data {store}", KIT, PATIENCE)
    assert {one.verdict for one in checks} == {"pass"}


@pytest.mark.parametrize("store", ["{store}", ""])
def test_a_command_sets_variables_before_its_program(tmp_path: Path, store: str) -> None:
    program = tmp_path / "my-server"
    serve = f'exec {sys.executable} -m kbproc serve --store "${{1-$KBPROC_STORE}}"'
    program.write_text(f'#!/bin/sh\n[ "$FOO$BAR" = "1a b" ] && {serve}\n')
    program.chmod(0o700)
    command = f"FOO=1 BAR='a b' PATH={tmp_path}:/usr/bin:/bin my-server {store}"
    checks = judge(CONVERSATIONS["batches"], command, KIT, PATIENCE)
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
    (tmp_path / "requirements").mkdir()
    (tmp_path / "requirements" / "optional.yaml").write_text("[]")
    schema = {"oneOf": [{"type": "string"}, {"type": "object"}, {"required": ["a"]}]}
    (kit.schemas / "two.json").write_text(json.dumps(schema))
    assert "more than one" in str(kit.misfit("two", {"a": 1}))
