"""Answers as people see them: narrow terminals, many columns, explanations, times."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from kbproc.base.settings import config
from tests.kit import shell
from tests.kit.shell import ANSI, Run, environment, in_process, on_terminal, write_docs

COLUMNS = "select id, title, type, kb, path, sha256, created_at, updated_at from documents"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Makes a folder with a store that holds two documents; no test changes it."""
    folder = tmp_path_factory.mktemp("tables")
    argv = ["add", str(write_docs(folder))]
    assert shell.run(argv, cwd=folder, env=environment(folder)).code == 0
    return folder


@pytest.fixture
def run(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Returns a function that runs commands on the store that all tests of this file share."""
    return in_process(folder, monkeypatch, capsys)


@pytest.fixture
def own(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Run:
    """Returns a function that runs commands on this test's copy of the store."""
    shutil.copytree(folder / "store", tmp_path / "store")
    return in_process(tmp_path, monkeypatch, capsys)


def text(run: Run, *argv: str) -> str:
    code, out, err = run(*argv, "--format", "text")
    assert code == 0, err
    return out


def test_words_that_match_are_marked_on_a_terminal(folder: Path) -> None:
    search = ("search", "git tarball", "--fts-only", "--limit", "1")
    screen = on_terminal(folder, *search)[1]
    bold = [one.strip() for one in re.findall("\x1b\\[1m([^\x1b]*)\x1b\\[0m", screen)]
    assert bold[-2:] == ["git", "tarball"]
    plain = on_terminal(folder, *search, env={"NO_COLOR": "1"})[1]
    assert "tarball" in plain and not ANSI.search(plain)
    assert re.sub("\x1b\\[[0-9;]*m", "", screen) == plain


def test_a_long_list_is_cut(own: Run) -> None:
    ids = [str(3 + n) for n in range(35)]
    documents = [{"title": n, "text": f"x {n}"} for n in ids]
    assert own("doc", "create", "--documents", json.dumps(documents), "--no-wait")[0] == 0
    out = text(own, "doc", "delete", *ids, "--yes=bulk")
    assert re.search(r"^ids +3, 4, .*, 32\s+and 5 more$", out, re.M | re.S)


def test_few_weak_hits_are_shown(own: Run) -> None:
    run = own
    words = "The baker of street {} sells bread of rye, and the mill stands still."
    documents = [{"title": f"Bakery {n}", "text": words.format(n)} for n in range(5)]
    assert run("doc", "create", "--documents", json.dumps(documents))[0] == 0
    query = "the comet of vega and the orbit of mars in what telescope stands"
    out = text(run, "search", query, "--fts-only")
    assert re.search(r"showing top 3; --limit (\d+) shows \d+ more\)", out.splitlines()[0])
    assert out.count("[text]") + out.count("[markdown]") == 3
    assert text(run, "search", query, "--fts-only", "--limit", "5").count("Bakery ") > 3
    assert len(json.loads(run("search", query, "--fts-only")[1])["data"]["results"]) > 3


def test_no_name_and_no_title_is_lost(
    run: Run, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    text(run, "kb", "update", "default", "--description", "Guides.")
    for argv in (["list"], ["sql", "query", COLUMNS], ["kb", "list"], ["chunk", "list", "1"]):
        monkeypatch.setenv("COLUMNS", "200")
        heads = re.split(r" {2,}", text(run, *argv).splitlines()[0].strip())
        for width in (40, 60, 80, 200):
            with subtests.test(argv=argv, width=width):
                monkeypatch.setenv("COLUMNS", str(width))
                out = text(run, *argv)
                assert max(len(line) for line in out.splitlines()) <= width
                words = " ".join(out.split())
                for head in heads:
                    assert re.search(rf"(?:^|\s){re.escape(head)}(?:\s|$)", out), head
                if argv == ["list"]:
                    assert "Git Admin Guide" in words or ("Git" in words and "Guide" in words)


def test_a_row_that_does_not_fit_is_a_block(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    first, second = text(run, "list").split("\n\n")
    assert first.splitlines()[:3] == [
        "id          1",
        "title       Git Admin Guide",
        "kb          default",
    ]
    assert "Setup" in second


def test_the_list_names_the_knowledge_base(run: Run) -> None:
    head = text(run, "list").splitlines()[0].split()
    assert head[:3] == ["id", "title", "kb"]


def test_times_say_that_they_are_utc(run: Run) -> None:
    assert re.search(r"created at +\d{4}-\d\d-\d\d \d\d:\d\dZ", text(run, "info", "1"))


def test_tags_come_by_their_counts(own: Run) -> None:
    run = own
    tagged = (("A", ["zebra"]), ("B", ["zebra", "yak"]), ("C", ["zebra", "yak"]))
    documents = [{"title": title, "text": f"x {title}", "tags": tags} for title, tags in tagged]
    assert run("doc", "create", "--documents", json.dumps(documents))[0] == 0

    def names(*more: str) -> list[str]:
        return run("tags", "--jq", ".data[].name", *more)[1].split()

    assert names() == ["zebra", "yak", "admin", "git"]
    assert names("--order", "name") == ["admin", "git", "yak", "zebra"]
    by_name = run("call", "tag.list", "--jq", ".data[].name")[1].split()
    assert by_name == names("--order", "name"), "on the wire they come by name"
    paged, cursor = list[str](), [""]
    while cursor:
        more = ["--cursor", cursor[0]] if cursor[0] else []
        paged += names("--limit", "1", *more)
        cursor = run("tags", "--limit", "1", *more, "--jq", ".meta.next_cursor // empty")[1].split()
    assert paged == names()


def test_explanations_are_shown(run: Run) -> None:
    argv = ["search", "install git", "--fts-only"]
    plain, explained = text(run, *argv), text(run, *argv, "--explain")
    assert set(plain.splitlines()) < set(explained.splitlines())
    more = "\n".join(line for line in explained.splitlines() if line not in plain.splitlines())
    assert "fts" in more and "rank" in more and "instal" in more


def test_a_path_begins_where_one_stands(run: Run, folder: Path, subtests: pytest.Subtests) -> None:
    def titles(prefix: str) -> str:
        return run("list", "--path-prefix", prefix, "--jq", ".data[].title")[1]

    for prefix in ("docs", "./docs", "docs/git"):
        with subtests.test(prefix=prefix):
            whole = titles(str((folder / prefix).resolve()))
            assert titles(prefix) == whole and "Git Admin Guide" in whole
            output = run("search", "git", "--path-prefix", prefix, "--jq", ".data.returned > 0")[1]
            plan = run("doc", "delete", "--where.path-prefix", prefix, "--dry-run")[1]
            assert output == "true\n" and "Git Admin Guide" in plan
    assert titles("nowhere") == ""


def test_a_dumb_terminal_gets_plain_text(tmp_path: Path) -> None:
    write_docs(tmp_path)
    for argv in (["add", "docs"], ["list"], ["search", "git"]):
        code, output = on_terminal(tmp_path, *argv, env={"TERM": "dumb"})
        assert (code, ANSI.search(output)) == (0, None), output
    assert config.bare({"HOME": "/", "TERM": "dumb"}).color is False


# ------------------------------------------------------------------- log output


def test_debug_says_what_was_done(run: Run) -> None:
    assert run("search", "git")[2] == ""
    _, _, err = run("search", "git", "--log-level", "debug")
    assert re.search(r'"level":"info","msg":"opened ', err)
    assert re.search(r'"level":"debug","msg":"search answered in [\d.]+ ms at position \d+"', err)
    assert set(re.findall(r'"logger":"(\w+)', err)) == {"kbproc"}
    _, _, err = run("ping", "--log-level", "debug", "--format", "text")
    assert "DEBUG: ping answered in" in err


def test_the_doctor_says_at_which_position(run: Run) -> None:
    at = run("ping", "--jq", ".data.seq")[1]
    assert run("doctor", "--jq", ".meta.seq")[1] == at != "0\n"


def test_the_doctor_asks_the_endpoint(own: Run, tmp_path: Path) -> None:
    settings = (
        'format = 2\n[model]\nkind = "openai"\nname = "m"\nurl = "http://127.0.0.1:9"\ndim = 8\n'
    )
    (tmp_path / "store" / "store.toml").write_text(settings)
    row = own("doctor", "--jq", '.data.findings[] | select(.name == "model") | .status')[1]
    assert row == "warn\n"


def test_no_model_is_not_called_ready(run: Run) -> None:
    status = '.data[] | select(.kind == "none") | .status'
    assert run("model", "list", "--jq", status)[1] == "words only\n"


# -------------------------------------------------------------------------- completion


def test_scripts_ask_for_what_there_is(run: Run) -> None:
    for name in ("bash", "zsh", "fish"):
        script = run("completion", name)[1]
        for command in ("kb list", "agent list", "profile list", "schema", "describe"):
            assert f"kbproc {command} --" in script, (name, command)
        assert "($(kbproc" not in script.replace("compgen -W", ""), f"{name}: only when wanted"


COMPLETIONS = {
    "kb get bo": "books",
    "search x --kb ga": "games",
    "profile use bo": "books",
    "schema ga": "games",
    "kb stat": "status",
}


def test_bash_completes(run: Run, tmp_path: Path) -> None:
    (tmp_path / "script").write_text(run("completion", "bash")[1])
    lines = ["kbproc() { echo books; echo games; }", "source ./script"]  # answers every command
    for typed in COMPLETIONS:
        words = ["kbproc", *typed.split()]
        lines += [
            f"COMP_WORDS=({' '.join(words)}) COMP_CWORD={len(words) - 1} COMPREPLY=()",
            f"_shtab_kbproc kbproc {words[-1]} {words[-2]}",
            f'echo "{typed}: ${{COMPREPLY[@]}}"',
        ]
    done = subprocess.run(
        ["bash", "-c", "\n".join(lines)], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [f"{typed}: {one}" for typed, one in COMPLETIONS.items()], (
        done.stderr
    )


def test_a_query_is_shown_with_its_own_names_nulls_and_values(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    select = "select 1/0 as a_b, 1234567.5 as size_bytes, true as t, '' as e, [1, null] as l"
    head, _, row = text(run, "sql", "query", select).splitlines()
    assert head.split() == ["a_b", "size_bytes", "t", "e", "l"]
    assert row.split() == ["null", "1234567.5", "true", "[1,null]"]
    assert text(run, "sql", "query", "select null as only").split()[::2] == ["only", "null"]
    monkeypatch.setenv("COLUMNS", "32")
    block = text(run, "sql", "query", select).splitlines()
    assert [line.split() for line in block[:2]] == [["a_b", "null"], ["size_bytes", "1234567.5"]]
    assert block[3].strip() == "e"


def test_each_requested_member_is_a_column(own: Run) -> None:
    run = own
    for title, more in (("A", []), ("B", ["--expires-at", "2099-01-01T00:00:00Z"]), ("C", [])):
        run("knowledge", "store", "--title", title, "--body", title, "--no-wait", *more)
    out = text(run, "knowledge", "list", "--fields", "title,expires_at").splitlines()
    assert [line.split() for line in (out[0], *out[2:])] == [
        *(["title", "expires", "at"], ["A"], ["B", "2099-01-01", "00:00Z"], ["C"])
    ]
    fields = "id,title,kb,type,revision,sha256,chunk_count,origin,source.path"
    out = text(run, "list", "--fields", fields)
    assert "origin" in out and "path" in out and "admin.md" in out
