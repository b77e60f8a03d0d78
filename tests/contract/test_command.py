"""`kbproc contract`: its exit codes, its formats, and errors that help."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from xml.etree import ElementTree as xml

import pytest

from tests.kit.judged import KIT, OURS
from tests.kit.shell import Run, in_process, refused

CLAMPS = shlex.join([sys.executable, "-m", "tests.kit.minimal", "params.out_of_range", "{store}"])

# Two rules of one conversation.
PARAMS = "params.out_of_range,params.wrong_type"


@pytest.fixture
def run(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    kit_forked: None,
) -> Run:
    return in_process(tmp_path, monkeypatch, capsys)


def test_exit_0_for_what_keeps_the_rules(run: Run) -> None:
    code, out, err = run("contract", "check", "--exec", OURS, "--only", "ids,methods.unknown")
    answer = json.loads(out)
    assert (code, err, answer["ok"]) == (0, "", True)
    data = answer["data"]
    assert (data["rules"], data["pass"], data["wrong"], data["unknown"]) == (7, 7, 0, 0)


def test_exit_1_for_a_broken_rule_and_the_report_shows_it(run: Run) -> None:
    code, out, _ = run("contract", "check", "--exec", CLAMPS, "--only", PARAMS)
    answer = json.loads(out)
    assert (code, answer["ok"], answer["meta"]["partial"]["exit_code"]) == (1, False, 1)
    [wrong] = [one for one in answer["data"]["verdicts"] if one["verdict"] == "wrong"]
    assert wrong["rule"] == "params.out_of_range"
    first = wrong["findings"][0]
    assert first["expected"] == "the error input.invalid_params, not a result"
    assert '"limit": 0' in first["sent"] and '"result"' in first["came"]
    code, out, _ = run("contract", "check", "--exec", CLAMPS, "--only", PARAMS, "--format=text")
    assert code == 1 and max(map(len, out.splitlines())) <= 80
    assert "wrong    params.out_of_range" in out
    assert out.endswith(
        "Rules: 2. 1 kept, 1 broken (wrong), 0 that the harness could not tell (unknown).\n"
    )


def test_exit_2_for_what_could_not_be_told(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    code, out, _ = run(
        "contract", "check", "--exec", "/nowhere {store}", "--only", "ids", "--format", "text"
    )
    assert code == 2
    why = "/nowhere could not be started: there is no such program"
    assert out.splitlines()[0] == f"{why}; so no rule could be judged."
    code, out, _ = run("contract", "check", "--exec", "/nowhere {store}")
    data = json.loads(out)["data"]
    assert (code, data["unknown"]) == (2, data["rules"])
    assert {one["findings"][0]["cause"] for one in data["verdicts"]} == {why}


# A server that answers nothing, or only that it knows no method.
SILENT = """
import json, sys
for line in sys.stdin if sys.argv[1] == "nothing" else ():
    pass
for line in sys.stdin:
    request = json.loads(line) if '"id"' in line and line.rstrip().endswith("}") else {}
    error = {"code": -32601, "message": "", "data": {"type": "input.unknown_method"}}
    if "method" in request:
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": error}), flush=True)
"""


@pytest.mark.parametrize("knows", ["nothing", "no method"])
def test_who_answers_nothing_is_not_waited_for_in_each_conversation(
    run: Run, monkeypatch: pytest.MonkeyPatch, knows: str
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr("kbproc.contract.command.PATIENCE_SECONDS", 0.2)
    code, out, _ = run(
        "contract", "check", "--exec", shlex.join([sys.executable, "-c", SILENT, knows])
    )
    findings = [one for rule in json.loads(out)["data"]["verdicts"] for one in rule["findings"]]
    why = "no request of the first 3 conversations was answered"
    tried = {one["conversation"] for one in findings if one["cause"] != why}
    assert tried == {one["name"] for one in KIT.conversations()[:3]}
    assert {one["step"] for one in findings if one["cause"] == why} == {"not run"}
    assert code in {1, 2}


def test_one_cause_is_told_once_after_what_is_wrong(run: Run) -> None:
    """Many rules cannot be judged for one reason: the server has no kb.create."""
    lacks = shlex.join([sys.executable, "-m", "tests.kit.minimal", "lacks kb.create", "{store}"])
    only = "--only=writes,start.ready"
    code, out, _ = run("contract", "check", "--exec", lacks, only, "--format", "text")
    lines = out.splitlines()
    causes = [line for line in lines if line.startswith("unknown")]
    assert causes == ["unknown  not shown because kb.create is missing: 16 rules"]
    kinds = [line.split()[0] for line in lines if line.startswith(("wrong", "unknown", "pass"))]
    assert kinds == sorted(kinds, key=["wrong", "unknown", "pass"].index)
    assert (code, kinds.count("wrong")) == (2, 0)


def test_junit_has_failures_for_wrong_and_errors_for_unknown(run: Run) -> None:
    code, out, _ = run("contract", "check", "--exec", CLAMPS, "--only", PARAMS, "--junit")
    suite = xml.fromstring(out)
    assert (code, suite.get("tests"), suite.get("failures"), suite.get("errors")) == (
        *(1, "2", "1", "0"),
    )
    [failed] = [case for case in suite if case.find("failure") is not None]
    assert failed.get("name") == "params.out_of_range"


def test_a_conversation_is_shown_beside_ours(run: Run) -> None:
    words = ("contract", "check", "--exec", CLAMPS, "--conversation", "params", "--format", "text")
    code, out, err = run(*words)
    lines = out.splitlines()
    begin = next(number for number, line in enumerate(lines) if '"limit": 0' in line)
    assert lines[begin].startswith("> ") and lines[begin + 1].startswith("kbproc < ")
    assert '"input.invalid_params"' in lines[begin + 1]
    assert lines[begin + 2].startswith("yours  < ") and '"result"' in lines[begin + 2]
    assert code == 1 and "Rules: " in out
    assert "params.out_of_range is broken in params: the error input.invalid_params" in err


def test_requirements_are_listed(run: Run) -> None:
    code, out, _ = run("contract", "requirements", "ids", "end.stdin", "--format", "text")
    assert code == 0 and out.startswith("ids.as_sent (must, core)\n  An id,")
    assert out.count("(must, core)") == 7


def test_export_says_where_to_begin(run: Run, tmp_path: Path) -> None:
    code, out, _ = run("contract", "export", "kit")
    assert code == 0 and json.loads(out)["data"]["versions"]["protocol"] == "1.0"
    assert (tmp_path / "kit" / "README.md").is_file()
    assert "new or empty" in refused(run, "contract", "export", "kit")["hint"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["check"], "it needs --exec"),
        (["check", "--exec", "x", "--only", "strems"], "no rule or area 'strems'"),
        (["check", "--exec", "x", "--only", "client"], "names no rule that is judged here"),
        (["check", "--exec", "x", "--patience", "soon"], "number of seconds"),
        (["check", "--exec", "x", "--kit", "/nowhere"], "holds no contract kit"),
        (["check", "--exec", "x", "--profile", "logs"], "There is no part 'logs'"),
        (["check", "--exec", "x", "--conversation", "idz"], "There is no conversation 'idz'"),
        (["check", "more", "--exec", "x"], "no place for 'more'"),
        (["export"], "needs a DIR"),
        (["requirements", "nope"], "no rule or area 'nope'"),
    ],
)
def test_what_can_not_be_is_said(run: Run, words: list[str], message: str) -> None:
    error = refused(run, "contract", *words)
    assert message in error["message"] and error["exit_code"] == 1
    if "strems" in words:
        assert error["hint"].startswith("Did you mean streams?")
        assert error["valid_values"][0] == "streams"
