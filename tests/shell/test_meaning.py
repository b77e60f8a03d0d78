"""Flags: their meaning, those without effect, and the knowledge base that they choose."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from kbproc.methods.all import registry
from kbproc.methods.calls.method import Method
from tests.kit import shell
from tests.kit.patience import all_or
from tests.kit.shell import Run, environment, in_process, refused, write_docs


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    return in_process(tmp_path, monkeypatch, capsys)


# --------------------------------------------------------- flags that mean nothing


def test_what_means_nothing_is_refused(run: Run, subtests: pytest.Subtests) -> None:
    for method in registry().methods.values():
        with subtests.test(method.name):
            refuses_what_means_nothing(run, method)


def refuses_what_means_nothing(run: Run, method: Method) -> None:
    has = method.params.__struct_fields__
    meaning = {
        "--dry-run": "dry_run" in has,
        "--kb=books": "kb" in has,
        "--yes": "confirm" in has or method.name == "doc.fetch",
        "--no-wait": method.kind != "read",
    }
    words = method.name.split(".")
    page = run(*words, "--help")[1]
    for flag, means in meaning.items():
        name = flag.partition("=")[0]
        assert (f"  {name} " in page) == means, flag
        if not means:
            for argv in ([*words, flag], [flag, *words], ["call", method.name, flag]):
                error = refused(run, *argv)
                assert (error["type"], error["field"]) == ("input.invalid_params", name)


@pytest.mark.parametrize(
    "argv",
    [
        ["serve", "--dry-run"],
        ["serve", "--yes"],
        ["serve", "--jq", "."],
        ["profile", "use", "work", "--kb", "books"],
        ["link", "--agent", "robin"],
        ["exit-codes", "--kb", "books"],
        ["completion", "bash", "--dry-run"],
        ["help", "--store", "x"],
    ],
)
def test_nor_do_the_shells_own_commands_take_it(run: Run, argv: list[str]) -> None:
    error = refused(run, *argv)
    assert (error["type"], "means nothing" in error["message"]) == ("input.invalid_params", True)


# ---------------------------------------------------------------------- previews


def _files(folder: Path) -> list[str]:
    return sorted(str(path) for path in folder.rglob("*"))


def test_reads_that_write_files_have_no_preview(run: Run, tmp_path: Path) -> None:
    run("add", str(write_docs(tmp_path)))
    before = _files(tmp_path)
    for argv in (
        ["store", "export", "all.ndjson"],
        ["doc", "download", "1", "--path", "copy.md"],
        ["doctor", "--repair"],
    ):
        assert refused(run, *argv, "--dry-run")["field"] == "--dry-run", argv
        assert _files(tmp_path) == before, argv


def test_a_preview_is_refused_as_the_deed_is(run: Run, subtests: pytest.Subtests) -> None:
    for argv in (
        ["doc", "fetch", "ftp://example.org/x"],
        ["doc", "fetch", "http://127.0.0.1/x"],
        ["doc", "fetch", "http://"],
        ["model", "use", "/nowhere"],
        ["model", "use", "no-such-model"],
        ["model", "use", "gpt", "--kind", "openai"],
    ):
        with subtests.test(argv=argv):
            assert refused(run, *argv, "--dry-run") == refused(run, *argv)


def test_no_model_is_a_model_by_name(run: Run, tmp_path: Path) -> None:
    run("add", str(write_docs(tmp_path)))
    plan = json.loads(run("model", "use", "none", "--dry-run")[1])["meta"]["plan"]
    assert plan["changes"] == ['model: "hash" → "none"', "search by words only"]
    used = json.loads(run("model", "use", "none")[1])["data"]
    assert (used["kind"], used["changed"]) == ("none", True)
    assert (used["embedded"], used["pending"]) == (0, 0)
    current = [row["name"] for row in json.loads(run("model", "list")[1])["data"] if row["current"]]
    assert current == ["none"]


# --------------------------------------------------------------- knowledge bases


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Makes a store with two knowledge bases, with a document, an entry and a tag each."""
    folder = tmp_path_factory.mktemp("two")
    env = environment(folder)
    for kb in ("books", "games"):
        words = ["--title", kb, "--kb", kb]
        for argv in (
            ["kb", "create", kb],
            ["doc", "create", *words, "--text", f"word {kb}", "--tags", kb],
            ["knowledge", "store", *words, "--body", f"word {kb}"],
        ):
            assert shell.run(argv, cwd=folder, env=env).code == 0
    return folder / "store"


@pytest.fixture
def filled(
    two: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """Returns a function that runs commands on a copy of the store of `two`."""
    shutil.copytree(two, tmp_path / "store")
    return in_process(tmp_path, monkeypatch, capsys)


def _kbs_shown(run: Run, *more: str) -> dict[str, set[str]]:
    def kbs(program: str, *argv: str) -> set[str]:
        code, out, err = run(*argv, *more, "--jq", program)
        assert code == 0, err
        return set(out.split())

    return {
        "list": kbs(".data[].kb", "list"),
        "tags": kbs(".data[].name", "tags"),
        "search": kbs(".data.results[].source.kb", "search", "word", "--fts-only"),
        "entries": kbs(".data[].kb", "knowledge", "list"),
        "found": kbs(".data.results[].source.kb", "knowledge", "search", "word"),
        "call": kbs(".data[].kb", "call", "doc.list"),
    }


BOTH = {"books", "games"}


def test_all_are_looked_at_unless_one_is_chosen(filled: Run) -> None:
    assert all(names == BOTH for names in _kbs_shown(filled).values())
    assert all(names == {"books"} for names in _kbs_shown(filled, "--kb", "books").values())


def choose(run: Run, by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chooses the knowledge base `games` for the commands to come."""
    if by == "environment":
        monkeypatch.setenv("KBPROC_KB", "games")
    elif by == "profile":
        run("profile", "save", "play", "--kb", "games")
        run("profile", "use", "play")
    else:
        run("link", "--kb", "games")


@pytest.mark.parametrize("by", ["environment", "profile", "link"])
def test_one_is_chosen_in_several_ways(
    filled: Run, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose(filled, by, monkeypatch)
    for more, names in ((), {"games"}), (("--kb", "books"), {"books"}), (("--kb", "*"), BOTH):
        assert set(filled("list", *more, "--jq", ".data[].kb")[1].split()) == names
    answer = filled("doc", "create", "--title", "t", "--text", "x", "--jq", ".data.kb")[1]
    assert answer == "games\n"


@pytest.mark.parametrize("by", all_or(["link"], ["environment", "profile", "link"]))
def test_the_chosen_one_is_added_to_and_looked_at(
    filled: Run, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose(filled, by, monkeypatch)
    assert all(names == {"games"} for names in _kbs_shown(filled).values())
    chat = ("chat", "Which one?", "--format", "json")
    for flags, kb in (((), ["games"]), (("--kb", "books"), ["books"]), (("--kb", "*"), None)):
        for command in (chat, ("session", "create", "Which ones")):
            filled(*command, *flags)
            _, out, _ = filled("session", "list", "--jq", ".data[-1].kb")
            assert json.loads(out) == kb
    assert all(names == {"books"} for names in _kbs_shown(filled, "--kb", "books").values())
    assert all(names == BOTH for names in _kbs_shown(filled, "--kb", "*").values())
    slug = filled("doc", "create", "--title", "t", "--text", "x", "--jq", ".data.kb")[1]
    assert slug == "games\n"
    exported = json.loads(filled("store", "export", "all.ndjson")[1])["data"]
    assert exported["kbs"] == 3  # only a flag narrows a command on the whole store


def test_nothing_is_added_to_all(filled: Run) -> None:
    for argv in (["doc", "create", "--title", "t", "--text", "x"], ["add", "docs"]):
        error = refused(filled, *argv, "--kb", "*")
        assert (error["type"], error["field"]) == ("input.invalid_params", "--kb"), argv


def test_a_link_makes_what_it_names(run: Run, tmp_path: Path) -> None:
    site = tmp_path / "site"
    (site / "docs").mkdir(parents=True)
    (site / "docs" / "a.md").write_text("# A\n\nText.\n")
    (site / "README.md").write_text("# Site\n\nFor the choir. By Robin.\n")
    link = ["link", "site", "--store", "site/.kb", "--kb", "site"]
    answer = json.loads(run(*link)[1])
    assert (answer["data"]["created"], "link --create" in answer["meta"]["hint"]) == (False, True)
    answer = json.loads(run(*link, "--create", "--dry-run")[1])
    assert (answer["data"]["created"], (site / ".kb").exists()) == (True, False)
    assert json.loads(run(*link, "--create")[1])["data"]["created"] is True
    assert json.loads(run(*link, "--create")[1])["data"]["created"] is False
    described = json.loads(run("kb", "get", "site", "--store", "site/.kb")[1])["data"]
    assert described["description"] == "For the choir."
    settings = site / ".kb" / "store.toml"
    settings.write_text((tmp_path / "store" / "store.toml").read_text())


def test_git_adds_nothing_of_a_store(run: Run, tmp_path: Path) -> None:
    """A store holds texts, whichever command makes it in a work tree."""
    repo = tmp_path / "repo"
    subprocess.run(["git", "init", "-q", str(repo)], check=True)
    run("link", "repo", "--store", "repo/.kb", "--kb", "site", "--create")
    run("doc", "create", "--title", "t", "--text", "x", "--store", "repo/made/other")
    run("store", "backup", "repo/copy", "--store", "repo/.kb")
    assert len(list(repo.rglob("store.toml"))) == 3
    command = ["git", "-C", str(repo), "add", "-A", "--dry-run"]
    added = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert not [line for line in added.splitlines() if line != "add '.kbproc.toml'"]


def test_the_documented_way_to_begin_works(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KBPROC_STORE")
    write_docs(tmp_path)
    assert run("link", "--store", ".kb", "--kb", "site", "--create")[0] == 0
    assert run("model", "use", "hash", "--kind", "hash")[0] == 0
    code, out, err = run("add", "docs")
    assert (code, json.loads(out)["data"]["added"]) == (0, 2), err
    assert set(run("list", "--jq", ".data[].kb")[1].split()) == {"site"}


def test_one_that_is_not_there_names_the_way(filled: Run, tmp_path: Path) -> None:
    write_docs(tmp_path)
    for argv, says in (
        (["list", "--kb", "bokos"], "Did you mean books?"),
        (["list", "--kb", "xyzzy"], "kbproc kb create xyzzy"),
        (["add", "docs", "--kb", "xyzzy"], "kbproc kb create xyzzy"),
    ):
        error = refused(filled, *argv)
        assert (error["type"], says in error["hint"]) == ("resource.not_found", True), (argv, error)


def test_a_linked_one_that_is_not_there_names_the_link(filled: Run, tmp_path: Path) -> None:
    write_docs(tmp_path)
    filled("link", "--kb", "xyzzy")
    for argv in (["list"], ["add", "docs"]):
        assert "kbproc link --create" in refused(filled, *argv)["hint"]
