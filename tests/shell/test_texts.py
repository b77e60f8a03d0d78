"""Reads texts from stdin and files."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import pytest

from kbproc.methods.all import registry
from kbproc.methods.calls.flags import argv_of
from tests.kit import shell
from tests.kit.shell import Run, environment, in_process


@pytest.fixture(scope="module")
def with_an_agent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Makes a store with an agent."""
    folder = tmp_path_factory.mktemp("agent")
    argv = ["agent", "create", "gitea"]
    assert shell.run(argv, cwd=folder, env=environment(folder)).code == 0
    return folder / "store"


@pytest.fixture
def run(
    with_an_agent: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Run:
    shutil.copytree(with_an_agent, tmp_path / "store")
    return in_process(tmp_path, monkeypatch, capsys)


def _text_of(run: Run, slug: str) -> str:
    answer = json.loads(run("note", "get", slug, "--agent", "gitea")[1])
    text: str = answer["data"]["text"]
    return text


def test_a_note_from_stdin_is_what_stdin_says(run: Run) -> None:
    put = ["note", "put", "deploys", "--agent", "gitea", "--text"]
    assert run(*put, "-", stdin=b"# Deploys\n\nOn Friday.\n")[0] == 0
    assert _text_of(run, "deploys") == "# Deploys\n\nOn Friday.\n"
    assert run("note", "put", "deploys", "-", "--agent", "gitea", stdin=b"# Again\n")[0] == 0
    assert _text_of(run, "deploys") == "# Again\n"


def test_a_note_from_a_file_is_what_the_file_says(run: Run, tmp_path: Path) -> None:
    (tmp_path / "note.md").write_text("# Bücher 書\n")
    for words in (["--text", "@note.md"], ["--text=@note.md"], ["@note.md"]):
        assert run("note", "put", "books", *words, "--agent", "gitea")[0] == 0
        assert _text_of(run, "books") == "# Bücher 書\n"


def test_a_backslash_writes_the_character_itself(run: Run) -> None:
    for word, text in (
        ("\\-", "-"),
        ("\\@home", "@home"),
        ("\\\\@home", "\\@home"),
        ("\\-x", "-x"),
        ("\\x", "\\x"),
    ):
        assert run("note", "put", "signs", "--text", word, "--agent", "gitea")[0] == 0, word
        assert _text_of(run, "signs") == text


def test_many_documents_from_a_file_and_from_stdin(run: Run, tmp_path: Path) -> None:
    lines = b"".join(b'{"title": "T%d", "text": "words"}\n' % n for n in range(3))
    (tmp_path / "all.ndjson").write_bytes(lines)
    create = ["doc", "create", "--jq", ".data.added", "--documents"]
    assert run(*create, "@all.ndjson")[:2] == (0, "3\n")
    assert run(*create, "-", stdin=lines)[:2] == (0, "3\n")
    whole = b"[%s]" % lines.strip().replace(b"\n", b",\n")
    assert run(*create, "-", stdin=whole)[:2] == (0, "3\n")
    assert run("list", "--jq", ".meta.total")[1] == "9\n"


def test_every_text_flag_reads(run: Run, tmp_path: Path) -> None:
    (tmp_path / "title").write_text("Cache by branch")
    store = ["knowledge", "store", "--title", "@title", "--body", "-", "--jq", ".data.title"]
    assert run(*store, stdin=b"The key is the branch.")[1] == "Cache by branch\n"
    assert run("kb", "create", "books", "--description", "-", stdin=b"All of them")[0] == 0
    assert run("kb", "get", "books", "--jq", ".data.description")[1] == "All of them\n"
    code, out, _ = run("search", "-", "--fts-only", "--jq", ".data.query", stdin=b"branch")
    assert (code, out) == (0, "branch\n")
    (tmp_path / "count.sql").write_text("select count(*) as n from entries")
    assert run("sql", "query", "@count.sql", "--jq", ".data.rows[0][0]")[1] == "1\n"


def test_the_end_of_a_line_is_no_part_of_a_title_or_a_query(run: Run, tmp_path: Path) -> None:
    (tmp_path / "title").write_text("Cache by branch\n")
    store = ["knowledge", "store", "--title", "@title", "--body", "-"]
    entry = json.loads(run(*store, stdin=b"The key.\n")[1])["data"]
    assert entry["title"] == "Cache by branch"
    assert run("knowledge", "get", str(entry["id"]), "--jq", ".data.body")[1] == "The key.\n\n"
    for stdin in (b"branch\n", b"branch\r\n"):
        assert run("search", "-", "--jq", ".data.query", stdin=stdin)[1] == "branch\n"


def test_names_of_files_are_no_texts(run: Run) -> None:
    assert run("store", "backup", "@copy", "--jq", ".data.files > 0")[1] == "true\n"
    assert Path("@copy").is_dir()


def test_what_can_not_be_read_is_refused(run: Run) -> None:
    for words, stdin, exit, message in (
        (["--title", "-", "--text", "-"], b"x", 1, "only once"),
        (["--title", "t", "--text", "@nowhere.md"], b"", 5, "nowhere.md"),
        (["--title", "t", "--text", "@"], b"", 5, "''"),
        (["--title", "t", "--text", "-"], b"\xff\xfe", 1, "not UTF-8"),
        (["--title", "t", "--text", "@."], b"", 1, "no regular file"),
    ):
        code, out, err = run("doc", "create", *words, stdin=stdin)
        error = json.loads(err)["error"]
        assert (code, out, message in error["message"]) == (exit, "", True), error
        assert error["field"] == "--text", words
    assert json.loads(run("list")[1])["meta"]["total"] == 0


def test_a_command_line_that_was_made_means_its_params(run: Run) -> None:
    put = registry().methods["note.put"]
    for text in ("-", "@home", "\\-", "\\@x", "plain", "-dash", "--text"):
        argv = argv_of(put, {"slug": "made", "text": text, "agent": "gitea"})
        assert run(*argv[1:])[0] == 0, shlex.join(argv)
        assert _text_of(run, "made") == text
