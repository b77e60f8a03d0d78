"""The shell surface: commands, formats, usage errors, environment."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kbproc.base.errors import ERRORS
from kbproc.surfaces.shell.printing.tables import error_lines, result_text
from tests.kit.patience import PATIENCE
from tests.kit.shell import ANSI, Run, environment, in_process, refused, write_docs
from tests.kit.start import start


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    return in_process(tmp_path, monkeypatch, capsys)


# ------------------------------------------------------------------------ formats


def test_json_is_one_envelope(run: Run) -> None:
    code, out, err = run("ping")
    assert (code, err, out.count("\n")) == (0, "", 1)
    envelope = json.loads(out)
    assert list(envelope) == ["ok", "data", "meta", "profile"]
    assert (envelope["ok"], envelope["data"], envelope["profile"]) == (True, {"seq": 1}, None)
    assert envelope["meta"]["schema"] == "ping/1"


def test_errors_are_one_envelope_on_stderr(run: Run) -> None:
    code, out, err = run("doc", "get", "99")
    assert (code, out, err.count("\n")) == (5, "", 1)
    envelope = json.loads(err)
    assert envelope["ok"] is False
    assert envelope["error"]["type"] == "resource.not_found"
    assert envelope["error"]["exit_code"] == code


def test_ndjson_is_bare_events(run: Run, tmp_path: Path) -> None:
    code, out, err = run("add", str(write_docs(tmp_path)), "--format", "ndjson")
    events = [json.loads(line) for line in out.splitlines()]
    assert (code, err) == (0, "")
    assert events[0]["type"] == "init"
    assert {event["type"] for event in events[1:-1]} == {"progress"}
    assert [event["index"] for event in events[:-1]] == list(range(len(events) - 1))
    assert list(events[-1]) == ["type", "data", "meta"]
    assert events[-1]["data"]["added"] == 2


def test_ndjson_errors_are_events_on_stderr(run: Run) -> None:
    code, out, err = run("doc", "get", "99", "--format=ndjson")
    assert (code, out) == (5, "")
    assert json.loads(err)["type"] == "error"


def test_search_as_text(run: Run, tmp_path: Path) -> None:
    run("add", str(write_docs(tmp_path)))
    code, out, err = run("search", "install git", "--fts-only", "--format", "human")
    assert (code, err) == (0, "")
    head, blank, *hits = out.splitlines()
    assert head == 'Search: "install git" (2 matches, showing top 2)'
    assert blank == ""
    assert re.fullmatch(r"1\. \[\d\.\d{3}\] Git Admin Guide \[markdown\] \[git, admin\]", hits[0])
    assert hits[1].startswith("   ")
    assert any(re.fullmatch(r"2\. \[\d\.\d{3}\] Setup §Installation \[markdown\]", h) for h in hits)
    assert all(len(line) <= 80 for line in out.splitlines())
    code, out, _ = run("search", "install git", "--fts-only", "--offset", "1", "--format", "text")
    assert out.startswith('Search: "install git" (2 matches, showing 2)\n\n2. [')


def test_entries_notes_and_agents_as_text(run: Run) -> None:
    for title in ("Cache by branch", "Cache by lock file"):
        run("knowledge", "store", "--title", title, "--body", "The cache key.", "--tags", "ci")
    run("knowledge", "store", "--title", "Build", "--body", "x", "--expires-at", "2999-01-01")
    run("knowledge", "supersede", "1", "2")
    _, out, _ = run(
        "knowledge", "search", "cache", "--mode", "fts", "--format", "text", "--include-superseded"
    )
    assert re.search(
        r"\[\d\.\d{3}\] Cache by branch \[knowledge\] \[ci\] #1, confidence 80, superseded by 2\n",
        out,
    )
    assert re.search(
        r"Cache by lock file \[knowledge\] \[ci\] #2, confidence 80\n   The cache", out
    )
    _, out, _ = run("knowledge", "list", "--include-superseded", "--format", "text")
    assert max(len(line) for line in out.splitlines()) <= 80
    for word in ("Cache by branch", "superseded by 2", "expires 2999-01-01", "80", "user"):
        assert word in out
    run("agent", "create", "gitea", "--kbs", "default", "--instructions", "Be short.")
    run("agent", "create", "open", "--quotas", '{"notes_stored": 5}')
    _, out, _ = run("agent", "list", "--format", "text")
    assert out.splitlines()[0].split() == ["slug", "description", "kbs", "scopes", "quotas"]
    assert "Be short." not in out
    assert re.search(r"gitea +default +all +none", out)
    assert re.search(r"open +all +all +notes_stored 5", out)
    assert re.search(
        r"scopes +all\nquotas +none", run("agent", "get", "gitea", "--format", "text")[1]
    )
    run("note", "put", "deploy-hooks", "# Deploy hooks\n\nSigned.", "--agent", "gitea")
    _, out, _ = run("note", "search", "hooks", "--agent", "gitea", "--format", "text")
    assert re.match(r"1\. \[\d\.\d{3}\] Deploy hooks.* \(deploy-hooks, .* today\)\n   ", out)


def test_a_warning_is_said_once(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    run("agent", "create", "gitea", "--notes-folder", str(folder))
    run("note", "put", "todo", "# To do", "--agent", "gitea")
    (folder / "todo.md").unlink()
    folder.rmdir()
    for argv in (["note", "sync"], ["note", "list"]):
        _, out, err = run(*argv, "--agent", "gitea", "--format", "text")
        assert (out + err).count(str(folder)) == 1, (out, err)


def test_search_without_hits_says_why(run: Run) -> None:
    code, out, err = run("search", "anything", "--format", "text")
    assert (code, out.strip()) == (0, 'Search: "anything" (0 matches)')
    assert "Hint: The store is empty" in err


def test_tables_fit_a_terminal(run: Run, tmp_path: Path) -> None:
    run("add", str(write_docs(tmp_path)))
    for command in (
        ["list"],
        ["kb", "list"],
        ["tags"],
        ["info", "1"],
        ["status"],
        ["doctor"],
        ["exit-codes"],
        ["chunk", "list", "1"],
        ["version"],
    ):
        code, out, _ = run(*command, "--format", "text")
        assert code == 0, command
        assert not ANSI.search(out)
        assert max(len(line) for line in out.splitlines()) <= 80, command
    assert run("list", "--format", "text")[1].splitlines()[0].split()[:2] == ["id", "title"]


def test_next_page_is_told(run: Run, tmp_path: Path) -> None:
    run("add", str(write_docs(tmp_path)))
    _, _, err = run("list", "--limit", "1", "--format", "text")
    cursor = re.fullmatch(
        r"1 of 2 shown\. --cursor (\S+) shows the next page, --all shows every page\.\n", err
    )
    assert cursor is not None
    _, out, err = run("list", "--cursor", cursor[1], "--jq", ".data[].id")
    assert (out, err) == ("2\n", "")


def test_errors_as_text(run: Run) -> None:
    code, out, err = run("search", "x", "--mode", "word", "--format", "text")
    assert (code, out) == (1, "")
    assert err.splitlines() == [
        "Error (input.invalid_params): --mode: there is no 'word'.",
        "Valid values: hybrid, fts, vector",
        "Hint: See kbproc search --help.",
    ]


def test_partial_failures_are_listed(run: Run, tmp_path: Path) -> None:
    (write_docs(tmp_path) / "broken.pdf").write_bytes(b"%PDF-1.4 broken")
    code, out, err = run("add", "docs", "--format", "json")
    answer, failure = json.loads(out), json.loads(err.splitlines()[-1])
    assert (code, answer["ok"], failure["ok"]) == (3, False, False)
    assert (answer["data"]["added"], len(answer["data"]["failures"])) == (2, 1)
    assert (failure["error"]["type"], failure["error"]["exit_code"]) == ("operation.partial", 3)
    assert json.loads(run("list")[1])["meta"]["count"] == 2  # the readable files were added


def test_a_report_ends_with_its_counts(run: Run, tmp_path: Path) -> None:
    """The report lists each failure once, below its folder, and ends with the counts."""
    (write_docs(tmp_path) / "sub").mkdir()
    (tmp_path / "docs/sub/broken.pdf").write_bytes(b"%PDF-1.4 broken")
    code, out, err = run("add", "docs", "--format", "text")
    assert code == 3
    lines = out.splitlines()
    assert lines[0] == "Could not be read:"
    assert lines[1].startswith("  sub/broken.pdf is damaged: ")
    assert [line.split() for line in lines[3:]] == [
        ["kb", "default"],
        ["added", "2"],
        ["failed", "1"],
        ["chunks", "2"],
    ]
    assert err.splitlines() == ["Error (operation.partial): 1 of 3 files could not be read."]
    assert "git-admin.md" not in out


def test_a_failure_names_its_file_once(run: Run, tmp_path: Path) -> None:
    """The name stands once whether a verb or a colon follows it in the message."""
    docs = write_docs(tmp_path)
    (docs / "sub").mkdir()
    (docs / "sub/.gitignore").write_text("x" * 9000)
    data = json.loads(run("add", "docs")[1])
    assert data["data"]["failures"][0]["message"].startswith(".gitignore: line 1 ")
    assert data["meta"]["partial"]["first"].count(".gitignore") == 1
    out = run("add", "docs", "--format", "text")[1]
    assert out.splitlines()[1].startswith("  sub/.gitignore: line 1 was ")
    checked = run("kb", "check", "default", "--format", "text")[1]
    assert "docs/sub/.gitignore: line 1 was not applied" in checked
    failed = {**data["meta"]["partial"], "detail": data["data"], "hint": ""}
    assert "/docs/sub/.gitignore: line 1 was " in [*error_lines(failed)][1]


def test_what_worked_is_listed_on_request(run: Run, tmp_path: Path) -> None:
    write_docs(tmp_path)
    (tmp_path / "docs/photo.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(64))
    out = run("add", "docs", "--verbose", "--format", "text")[1]
    assert out.split("\n\n")[:2] == [
        "Documents:\n  git-admin.md (added)\n  setup.md (added)",
        "Files of unsupported types:\n  photo.png",
    ]
    for number in range(11):
        (tmp_path / f"docs/photo{number:02}.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(64))
    names = ["photo.png", *(f"photo{number:02}.png" for number in range(11))]
    brief, full = (
        run("add", "docs", *more, "--format", "text")[1].split("\n\n")[0].splitlines()
        for more in ([], ["--verbose"])
    )
    assert brief == [
        "Files of unsupported types, the first 10 of 12:",
        *(f"  {name}" for name in names[:10]),
    ]
    assert full == ["Files of unsupported types:", *(f"  {name}" for name in names)]
    plan = run("add", "docs", "--dry-run", "--format", "text")[1]
    assert "unsupported: photo.png; photo00.png; " in plan and "photo08.png and 2 more" in plan
    (tmp_path / "docs/setup.md").write_text("# Other\n")
    out = run("add", "docs/setup.md", "docs/git-admin.md", "--verbose", "--format", "text")[1]
    assert out.startswith("Documents:\n  docs/setup.md (updated)\n")


def test_failures_that_are_known_are_no_news(run: Run, tmp_path: Path) -> None:
    broken = write_docs(tmp_path) / "broken.pdf"
    broken.write_bytes(b"%PDF-1.4 broken")
    assert run("add", "docs")[0] == 3
    code, out, err = run("add", "docs", "--format", "text")
    assert (code, err) == (0, "")
    assert re.search(r"^failed +1, as before$", out, re.M)
    assert run("add", "docs", "--dry-run")[0] == 0
    code, out, err = run("add", "docs", "--dry-run", "--strict", "--format", "text")
    assert (code, out.splitlines()[-1]) == (3, "Nothing was written.")
    assert err.splitlines()[0] == "Error (operation.partial): 1 file can't be read."
    assert "was done" not in err
    code, out, err = run("add", "docs", "--strict", "--format", "text")
    assert code == 3
    assert err == "Error (operation.partial): 1 file could not be read, as before.\n"
    (tmp_path / "docs/also.pdf").write_bytes(b"%PDF-1.4 broken, too")
    code, out, err = run("add", "docs", "--format", "text")
    assert code == 3
    assert [line[:10] for line in out.splitlines()[1:3]] == ["  also.pdf", "  broken.p"]
    assert "2 of 4 files could not be read, 1 of them as before." in err
    broken.write_bytes(b"%PDF-1.4 broken in another way")
    assert run("add", "docs")[0] == 3


def test_a_single_file_that_no_parser_reads_is_a_mistake(run: Run, tmp_path: Path) -> None:
    (tmp_path / "photo.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(64))
    for dry_run in ([], ["--dry-run"]):
        error = refused(run, "add", "photo.png", *dry_run)
        assert (error["type"], error["exit_code"]) == ("input.unsupported_type", 1)
        assert error["message"] == "No parser reads photo.png: it is a PNG picture."
        assert "(OCR)" in error["hint"]
    (tmp_path / "data.bin").write_bytes(bytes(64))
    error = refused(run, "add", "data.bin")
    assert error["hint"] == ERRORS["input.unsupported_type"].hint
    (tmp_path / "old.wpd").write_bytes(b"\xffWPC" + bytes(64))
    assert refused(run, "add", "old.wpd")["hint"] == "Save it as DOCX or PDF."
    write_docs(tmp_path)
    assert run("add", "photo.png", "docs/setup.md")[0] == 3


def test_what_is_no_path_leads_to_its_command(run: Run) -> None:
    run("kb", "create", "k1")
    error = refused(run, "add", "https://example.org/a", "--kb", "k1", "--tags", "x")
    assert (error["type"], error["field"]) == ("input.invalid_params", "PATHS")
    assert error["hint"].startswith("Use kbproc doc fetch, ")
    words = "kbproc doc fetch https://example.org/a --kb k1 --tags x"
    assert error["retry"]["argv"] == words.split()
    error = refused(run, "add", "-")
    assert error["hint"].endswith("kbproc doc create --title TITLE --text -")


def test_an_import_lists_no_ids(run: Run, tmp_path: Path) -> None:
    run("add", str(write_docs(tmp_path)))
    run("store", "export", "all.ndjson")
    elsewhere = ("store", "import", "all.ndjson", "--store", "other", "--format", "text")
    code, out, _ = run(*elsewhere)
    assert code == 0
    assert "ids" not in out and "→" not in out
    assert (
        "Ids in the file, and the ids here:\n  1 → 1\n  2 → 2\n" in run(*elsewhere, "--verbose")[1]
    )


def test_text_can_not_steer_the_terminal() -> None:
    row = {"id": 1, "title": "a\x1b[2Jb\u202ec", "tags": ["x\x07"]}
    out = result_text(None, {}, {"data": [row], "meta": {}})
    assert "�" in out
    assert not re.search("[\x1b\x07\u202e]", out)
    data = {"type": "t", "message": "\x1b]0;x\x07", "hint": "h", "detail": {}}
    assert not re.search("[\x1b\x07]", "".join(error_lines(data)))


def test_markup_in_texts_stays_as_it_is() -> None:
    out = result_text(None, {}, {"data": {"title": "[bold]x[/bold] :smile:"}, "meta": {}})
    assert "[bold]x[/bold] :smile:" in out


def test_output_is_utf8_whatever_the_locale(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kbproc", "call", "kb.create", "-", "--jq", ".data.name"],
        input='{"slug": "books", "name": "Bücher 書"}'.encode(),
        capture_output=True,
        check=False,
        env={"PATH": os.environ["PATH"], "PYTHONIOENCODING": "ascii", **environment(tmp_path)},
    )
    assert (done.returncode, done.stdout.decode()) == (0, "Bücher 書\n")


# ----------------------------------------------------------------------------- jq


def test_jq_reads_the_envelope(run: Run) -> None:
    assert run("kb", "list", "--jq", ".data[0].slug, .ok, [1]")[1] == "default\ntrue\n[1]\n"


@pytest.mark.parametrize("format", ["json", "ndjson", "text"])
def test_jq_in_every_format(run: Run, format: str) -> None:
    assert run("ping", "--jq", ".data.seq", "--format", format) == (0, "1\n", "")


def test_a_bad_jq_program_is_refused_before_the_request(run: Run) -> None:
    code, out, err = run("kb", "create", "books", "--jq", ".data[")
    assert (code, out) == (1, "")
    assert json.loads(err)["error"]["field"] == "--jq"
    assert json.loads(run("kb", "list")[1])["meta"]["count"] == 1


def test_a_jq_program_that_does_not_fit(run: Run) -> None:
    code, out, err = run("ping", "--jq", ".data.seq.x")
    assert (code, out) == (1, "")
    assert json.loads(err)["error"]["type"] == "input.invalid_params"


# --------------------------------------------------------------------------- call


def test_call_takes_json_words_and_stdin(run: Run) -> None:
    assert run("call", "kb.create", '{"slug": "aa"}', "name=5", "--jq", ".data.name")[0] == 1
    assert run("call", "kb.create", '{"slug": "aa"}', "name=A", "--jq", ".data.name")[1] == "A\n"
    code, out, _ = run("call", "kb.get", "-", "--jq", ".data.slug", stdin=b'{"slug":"aa"}')
    assert (code, out) == (0, "aa\n")


def test_call_of_an_unknown_method(run: Run) -> None:
    code, _, err = run("call", "doc.lst")
    error = json.loads(err)["error"]
    assert (code, error["type"]) == (1, "input.unknown_method")
    assert "doc.list" in error["valid_values"]


# -------------------------------------------------------------------- usage errors


@pytest.mark.parametrize(
    ("argv", "type", "valid"),
    [
        (["serach", "x"], "input.unknown_method", "search"),
        (["doc", "lst"], "input.unknown_method", "doc list"),
        (["doc"], "input.unknown_method", "doc list"),
        (["list", "--limt", "3"], "input.invalid_params", "--limit"),
        (["ping", "--format", "yaml"], "input.invalid_params", "ndjson"),
        (["ping", "--log-level", "loud"], "input.invalid_params", "debug"),
        (["kb", "delete", "x", "--yes=all"], "input.invalid_params", "bulk"),
        (["completion", "tcsh"], "input.invalid_params", "bash"),
        (["--limit", "3"], "input.invalid_params", "--timeout"),
    ],
)
def test_usage_errors_are_typed(run: Run, argv: list[str], type: str, valid: str) -> None:
    code, out, err = run(*argv)
    error = json.loads(err)["error"]
    assert (code, out, error["type"]) == (1, "", type)
    assert valid in error["valid_values"]


def test_a_noun_alone_lists_all_its_commands(run: Run) -> None:
    error = json.loads(run("knowledge")[2])["error"]
    listed = re.findall(r"^  (knowledge \w+)", run("knowledge", "--help")[1], re.MULTILINE)
    assert error["valid_values"] == sorted(listed)
    assert error["hint"] == "See kbproc knowledge --help."


@pytest.mark.parametrize(
    ("argv", "hint"),
    [
        (["xyzzy"], "See kbproc --help."),
        (["serach"], "Did you mean kbproc search? See kbproc --help."),
        (["delete", "1"], "A noun is missing: do you mean kbproc doc delete? See kbproc --help."),
        (["rm", "1"], "A noun is missing: do you mean kbproc doc delete? See kbproc --help."),
        (
            ["undo"],
            "Did you mean kbproc doc restore or kbproc events revert? kbproc docs undo shows how.",
        ),
        (["erase", "1"], "Did you mean kbproc store purge? kbproc docs undo shows how."),
        (
            ["model", "use", "all-MiniLM-L7"],
            "Did you mean all-MiniLM-L6-v2? kbproc model list has the names; the folder of a "
            "sentence-transformers model is one, too.",
        ),
        (["download", "1"], "Did you mean kbproc doc download? See kbproc --help."),
        (["agnet", "list"], "Did you mean kbproc agent? See kbproc --help."),
        (["doc", "zz"], "See kbproc doc --help."),
        (["doc", "lst"], "Did you mean kbproc doc list? See kbproc doc --help."),
        (["list", "--xyzzy"], "See kbproc doc list --help."),
        (["list", "--limt", "3"], "Did you mean --limit? See kbproc doc list --help."),
        (["call", "xyzzy"], "Call describe for the list of methods."),
        (["kb", "get", "UP"], "See kbproc kb get --help."),
        (
            ["call", "kb.get", "slug=UP"],
            "Correct the field that is named and send the request again.",
        ),
        (
            ["list", "--created-after", "soon"],
            "Write it like 2026-01-31T12:00:00Z or 2026-01-31. "
            "Words are understood, too: yesterday, monday 9:30, 2 hours ago.",
        ),
    ],
)
def test_only_what_is_alike_is_guessed(run: Run, argv: list[str], hint: str) -> None:
    error = json.loads(run(*argv)[2])["error"]
    assert error["hint"] == hint
    assert "regex" not in error["message"]


def test_nobody_guesses_what_is_to_be_deleted(run: Run) -> None:
    for argv in (["delete", "1"], ["rm", "1"], ["update", "1"]):
        error = json.loads(run(*argv)[2])["error"]
        assert "retry" not in error
        assert error["valid_values"][0].startswith("doc ")
    error = json.loads(run("download", "1")[2])["error"]
    assert error["retry"]["argv"] == ["kbproc", "doc", "download", "1"]


def test_what_is_too_long_says_how_long(run: Run) -> None:
    code, _, err = run("kb", "create", "aa", "--name", "x" * 4000)
    assert (code, "has 4000 characters; " in json.loads(err)["error"]["message"]) == (1, True)


def test_errors_come_in_the_format_that_was_asked_for(run: Run) -> None:
    assert run("nothing", "--format", "text")[2].startswith("Error (input.unknown_method): ")
    assert json.loads(run("nothing", "--format", "ndjson")[2])["type"] == "error"


def test_a_fault_of_the_shell_is_typed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kbproc.base.settings.config.check_platform", lambda: 1 // 0)
    code, _, err = run("ping", "--format", "text")
    assert (code, err.splitlines()[-2].split(":")[0]) == (2, "Error (internal.error)")


def test_a_bad_timeout(run: Run) -> None:
    assert run("ping", "--timeout", "soon")[0] == 1
    code, _, err = run("ping", "--timeout=-1")
    assert (code, json.loads(err)["error"]["field"]) == (1, "--timeout")
    error = json.loads(run("sql", "query", "select 1", "--timeout", "60000")[2])["error"]
    assert error["message"] == "--timeout-ms must be at most 60000."
    assert error["hint"] == "--timeout counts seconds, --timeout-ms milliseconds."


def test_arguments_that_are_no_text(run: Run) -> None:
    code, _, err = run("add", os.fsdecode(b"caf\xe9"))
    assert (code, json.loads(err)["error"]["type"]) == (1, "input.invalid_params")


def test_bad_environment(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KBPROC_FORMAT", "yaml")
    code, _, err = run("ping")
    assert (code, json.loads(err)["error"]["field"]) == (1, "KBPROC_FORMAT")


# -------------------------------------------------------------------- environment


def test_explicit_before_environment_before_default(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for slug in ("from-env", "from-flag"):
        run("kb", "create", slug)

    def put(*flags: str) -> str:
        return run("doc", "create", "--title", "t", "--text", "x", "--jq", ".data.kb", *flags)[1]

    assert put() == "default\n"
    monkeypatch.setenv("KBPROC_KB", "from-env")
    assert put() == "from-env\n"
    assert put("--kb", "from-flag") == "from-flag\n"
    _, out, _ = run(
        "call", "doc.create", "title=t", "text=x", "--kb", "from-flag", "--jq", ".data.kb"
    )
    assert out == "from-flag\n"
    assert json.loads(run("list")[1])["meta"]["total"] == 1
    assert json.loads(run("list", "--kb", "*")[1])["meta"]["total"] == 4


def test_format_from_the_environment(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KBPROC_FORMAT", "human")
    assert run("ping")[1] == "seq  1\n"
    assert json.loads(run("ping", "--format", "json")[1])["ok"]


def test_flags_before_the_command(run: Run, tmp_path: Path) -> None:
    code, out, _ = run("--format", "text", "--store", str(tmp_path / "store"), "ping")
    assert (code, out) == (0, "seq  1\n")


def test_actor_is_who_a_plan_is_for(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run("kb", "create", "books")

    def plan_hash(*flags: str) -> str:
        return run("kb", "delete", "books", "--dry-run", "--jq", ".meta.plan.plan_hash", *flags)[1]

    mine = plan_hash()
    run("agent", "create", "robin", "--scopes", "admin,kb:read")
    monkeypatch.setenv("KBPROC_AGENT", "robin")
    robins = plan_hash()
    monkeypatch.delenv("KBPROC_AGENT")
    assert len({mine, robins, plan_hash("--actor", "kim")}) == 3
    assert plan_hash("--actor", "robin") == robins


def test_two_agents_are_refused(run: Run) -> None:
    for agent in ("gitea", "robin"):
        run("agent", "create", agent)
    for argv in (
        ["--agent", "robin", "note", "put", "todo", "# To do", "--agent", "gitea"],
        ["note", "put", "todo", "# To do", "--agent=robin", "--agent=gitea"],
        ["--agent", "robin", "search", "deploys", "--agent", "gitea"],
        ["search", "deploys", "--agent", "gitea", "--agent", "robin"],
    ):
        code, _, err = run(*argv)
        error = json.loads(err)["error"]
        assert (code, error["field"]) == (1, "--agent"), argv
        assert sorted(error["valid_values"]) == ["gitea", "robin"], argv
    assert run("note", "get", "todo", "--agent", "gitea")[0] == 5
    one = ["--agent", "gitea", "note", "put", "todo", "# To do", "--agent", "gitea"]
    assert run(*one)[0] == 0


def test_an_agent_that_is_not_there_may_do_nothing(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A misspelt agent is an error; an unregistered name would have all rights."""
    run("agent", "create", "robin")
    monkeypatch.setenv("KBPROC_AGENT", "robbin")
    for command in (["list"], ["kb", "create", "books"], ["kb", "delete", "default", "--yes=bulk"]):
        code, _, err = run(*command)
        error = json.loads(err)["error"]
        assert (code, error["type"], error["field"]) == (5, "resource.not_found", "KBPROC_AGENT")
        assert error["valid_values"] == ["robin"]
    assert run("list", "--actor", "robbin")[0] == 0


def test_timeout_becomes_timeout_ms(tmp_path: Path) -> None:
    """The command is a process, because only its end ends the request that it gives up."""
    argv = ["-m", "kbproc", "call", "ping", "min_seq=99", "--timeout", "0.01"]
    command = start(argv, cwd=tmp_path, env=environment(tmp_path), stderr=subprocess.PIPE)
    _, err = command.communicate(timeout=PATIENCE)
    assert (command.returncode, json.loads(err)["error"]["type"]) == (4, "operation.timeout")


def test_waiting_for_what_can_not_come_ends_at_once(run: Run) -> None:
    assert run("call", "ping", "min_seq=99")[0] == 4


def test_what_a_start_spares_is_there_for_whoever_needs_it(tmp_path: Path) -> None:
    program = (
        "import sys, typing\n"
        "typing.ForwardRef('int')\n"  # which imports ast from Python 3.14 on
        "of_typing = {*sys.modules}\n"
        "from kbproc.base import spared\n"
        "spared.import_lean()\n"
        "spared.import_for_a_command()\n"
        "spared.import_validator()\n"
        "from pathlib import Path\n"
        "assert not spared.SPARED.keys() & (sys.modules.keys() - of_typing)\n"
        "import msgspec, uuid\n"
        "assert Path('/ü b').as_uri() == 'file:///%C3%BC%20b'\n"
        "class Told(msgspec.Struct):\n"
        "    '\\n    One.'\n"
        "told = msgspec.json.schema(Told)['$defs']['Told']['description']\n"
        "assert told == 'One.', told\n"
        "import platform, textwrap, typing_extensions, urllib.parse\n"
        "assert platform.python_version() and textwrap.fill('a') and urllib.parse.quote('ü')\n"
        "spared.import_completion()\n"
        "import importlib.metadata, shtab\n"
        "assert importlib.metadata.version('shtab') and shtab.SUPPORTED_SHELLS\n"
        "import bz2, lzma, email.utils, jsonschema_rs, logging\n"
        "assert email.utils.formatdate() and bz2.compress(b'a') and lzma.compress(b'a')\n"
        "assert not jsonschema_rs.validator_for({'type': 'string'}).is_valid(1)\n"
        "spared.import_numpy()\n"
        "import inspect, io, pickle, numpy, numpy.ma\n"
        "row = numpy.arange(3.0)\n"
        "assert pickle.loads(pickle.dumps(row)).tolist() == [0, 1, 2] and row.ctypes.data\n"
        "assert 'axis' in str(inspect.signature(numpy.linalg.norm))\n"
        "import shutil, shlex, signal\n"
        "from signal import SIGINT\n"
        "assert shutil.which('sh') and shlex.quote('a b') and signal.SIGINT is SIGINT\n"
        "try:\n    raise ValueError('why')\n"
        "except ValueError:\n    error = sys.exc_info()\n"
        "assert 'ValueError: why' in logging.Formatter().formatException(error)\n"
        "print(uuid.uuid4().version)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "4\n", "")
