"""Help and completion know every command; both load nothing heavy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kbproc.base.errors import ERRORS, EXIT_CODES
from kbproc.methods.all import registry
from kbproc.methods.calls import method as reg
from kbproc.methods.calls.registry import Registry
from tests.kit.shell import Run, environment, in_process, write_docs
from tools.generate import markdown
from tools.generate.members import forms

REGISTRY = registry()
METHODS = [pytest.param(m, id=m.name) for m in REGISTRY.methods.values()]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    return in_process(tmp_path, monkeypatch, capsys)


def test_describe_is_prose_for_people(run: Run) -> None:
    for name in ("search", "doc.list"):
        assert run("describe", name, "--format", "text")[1] == run("help", *name.split("."))[1]
    assert run("describe", "--format", "text")[1] == run("help")[1]
    assert json.loads(run("describe", "search")[1])["data"]["name"] == "search"
    assert json.loads(run("describe", "search", "--full", "--format", "text")[1])["safety"]
    assert run("describe", "serach", "--format", "text")[0] == 1


# --------------------------------------------------------------------------- help


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_help(run: Run, method: reg.Method) -> None:
    code, out, err = run(*method.name.split("."), "--help")
    assert (code, err) == (0, "")
    assert method.summary in " ".join(out.split())
    assert "Examples\n  # " in out
    for error in method.all_errors:
        assert f"{error} ({ERRORS[error].exit})" in " ".join(out.split())
    lines = out.splitlines()
    longest = max(len(line) for line in lines if not line.startswith("  kbproc "))
    assert longest <= 80
    assert out.startswith(f"Risk: {method.name} (destructive)\n") == (method.kind == "destructive")
    if method.alias:
        assert run(method.alias, "--help")[1] == out
        assert run("help", method.alias)[1] == out


def test_the_overview_names_every_command(run: Run) -> None:
    code, out, _ = run("--help")
    assert code == 0
    for name in REGISTRY.methods:
        assert f"  {name.replace('.', ' ')} " in out
    assert run()[1] == out
    assert run("help")[1] == out
    assert max(len(line) for line in out.splitlines()) <= 80


def test_help_begins_with_what_is_wanted_most(run: Run) -> None:
    lines = run("--help")[1].splitlines()
    begin = lines[lines.index("Begin with") + 1 :]
    assert [line.split()[0] for line in begin[:5]] == ["start", "add", "search", "list", "status"]


def test_help_of_nouns_and_of_the_shells_own_commands(run: Run) -> None:
    assert "doc list" in run("doc", "--help")[1]
    for name in ("call", "serve", "exit-codes", "completion", "help"):
        code, out, _ = run("help", name)
        assert code == 0
        assert f"Usage: kbproc {name}" in out
    assert "--max-in-flight" in run("serve", "--help")[1]


def test_help_for_agents_is_json(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KBPROC_AGENT_HELP", "1")
    described = json.loads(run("describe", "search")[1])["data"]
    assert json.loads(run("search", "--help")[1]) == described
    root = run("--help")[1]
    assert {"methods", "commands", "profiles"} <= set(json.loads(root))
    assert len(root.encode()) <= 12_288
    assert {one["name"] for one in json.loads(run("tag", "--help")[1])} == {"tag.list"}
    assert json.loads(run("serve", "--help")[1])["name"] == "serve"


def test_exit_codes(run: Run) -> None:
    rows = json.loads(run("exit-codes")[1])["data"]
    assert {row["code"]: row["meaning"] for row in rows} == EXIT_CODES
    assert sorted(type for row in rows for type in row["errors"]) == sorted(ERRORS)


def test_the_block_for_agents_md(run: Run) -> None:
    code, out, _ = run("describe", "--agents-md")
    assert (code, out[:3]) == (0, "## ")


def test_doctor_is_strict_on_request(run: Run, tmp_path: Path) -> None:
    run("add", str(write_docs(tmp_path)))
    assert run("doctor", "--strict")[0] == 0
    next((tmp_path / "store" / "sources").glob("*.pack")).unlink()
    code, out, _ = run("doctor")
    assert (code, json.loads(out)["data"]["healthy"]) == (0, False)
    code, out, err = run("doctor", "--strict", "--format", "text")
    assert (code, out, err.splitlines()[0]) == (
        2,
        "",
        "Error (operation.failed): At least one check failed.",
    )
    assert "  blobs (fail): " in err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_commands_flags_and_values(run: Run, shell: str) -> None:
    code, out, err = run("completion", shell)
    assert (code, err) == (0, "")
    for word in ("ingest", "fts-only", "hybrid", "exit-codes"):
        assert word in out


def test_completion_in_bash(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "kbproc.bash"
    script.write_text(run("completion", "bash")[1])
    assert subprocess.run(["bash", "-n", script], check=False).returncode == 0

    def complete(*words: str) -> set[str]:
        quoted = " ".join(f"'{word}'" for word in words)
        script_line = (
            f"source {script}; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; "
            'eval "$(complete -p kbproc | sed -E "s/.*-F ([^ ]+).*/\\1/")"; echo "${COMPREPLY[@]}"'
        )
        done = subprocess.run(
            ["bash", "-c", script_line], capture_output=True, text=True, check=True
        )
        return set(done.stdout.split())

    assert complete("kbproc", "doc", "li") == {"list"}
    assert complete("kbproc", "search", "--mode", "hy") == {"hybrid"}
    assert complete("kbproc", "search", "--fts") == {"--fts-only"}


LIGHT = """
import sys
from kbproc.surfaces.shell.cli import main
for line in ("--version", "--help", "search --help", "completion bash", "ping -x"):
    main(line.split())
heavy = {"duckdb", "rich", "numpy", "tantivy", "faiss", "httpx", "jq", "pypdf", "onnxruntime"}
print(sorted(heavy & set(sys.modules)), file=sys.stderr)
from kbproc.base.pipes import leave
leave(0)
"""


def test_help_and_completion_load_nothing_heavy(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIGHT],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": os.environ["PATH"], **environment(tmp_path)},
    )
    assert done.stdout.startswith("kbproc ")
    assert done.stderr.splitlines()[-1] == "[]"


# ------------------------------------------------------------------- what is generated


def test_the_table_of_commands_is_whole() -> None:
    head, rule, *rows = markdown.commands(REGISTRY).splitlines()
    assert head.count("|") == rule.count("|") == 4
    assert [row.split("`")[1].replace(" ", ".") for row in rows] == list(REGISTRY.methods)
    for row in rows:
        assert row.startswith("| `") and row.endswith(" |")
    by_name = {row.split("`")[1]: row for row in rows}
    assert "--dry-run" in by_name["model use"], "what is followed as it stands changes no model"
    assert "127.0.0.1" not in by_name["doc fetch"] and "nowhere" not in by_name["store import"]


@pytest.mark.parametrize("method", METHODS)
def test_the_reference_tells_every_member_of_a_result(method: reg.Method) -> None:
    result_forms = forms(method) if method.result is not None else []
    text = markdown.reference(Registry({method.name: method}))
    for whole, *rest in result_forms:
        assert f"`data`: {whole.type}." in text
        assert all(f"| `{member.path}` |" in text for member in rest)


def test_the_reference_tells_every_form_of_a_result() -> None:
    one, many = forms(REGISTRY.methods["doc.create"])
    assert one[0].type == "object or null" and "source.url" in {member.path for member in one}
    assert {"documents[].id", "failures[].field"} <= {member.path for member in many}
    text = markdown.reference(Registry({"doc.create": REGISTRY.methods["doc.create"]}))
    assert "\nOr `data`: object. The outcome for each of `documents`." in text


def test_members_are_told_by_their_paths() -> None:
    [whole] = forms(REGISTRY.methods["search"])
    members = {member.path: member for member in whole}
    assert members["results"].type == "list of objects"
    assert members["results[].source.title"].type == "string"
    assert members["results[].score"].type == "number"
    assert "absolute" in members["results"].meaning or members["results[]"].meaning
