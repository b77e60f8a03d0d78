"""Which folders become stores, and who may look into them."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from kbproc.base.errors import KbprocError
from kbproc.base.settings.config import Rerank, load
from tests.kit import shell
from tests.kit.patience import PATIENCE, all_or
from tests.kit.shell import Run, environment, in_process, refused, write_docs
from tests.kit.start import start


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    return in_process(tmp_path, monkeypatch, capsys)


@pytest.mark.parametrize("flag", ["--store", "--kb", "--agent", "--actor"])
def test_an_empty_name_is_refused(run: Run, tmp_path: Path, flag: str) -> None:
    before = sorted(tmp_path.iterdir())
    for argv in (["search", "x"], ["doc", "create", "--title", "t", "--text", "x"]):
        error = refused(run, *argv, f"{flag}=")
        assert (error["type"], error["field"]) == ("input.invalid_params", flag)
    assert sorted(tmp_path.iterdir()) == before


def test_what_adds_nothing_makes_no_store(
    run: Run, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    before = sorted(tmp_path.iterdir())
    for argv in (
        ["status"],
        ["search", "x"],
        ["list"],
        ["call", "ping"],
        ["store", "export", "all.ndjson"],
        ["store", "backup", "copy"],
        ["doc", "delete", "1"],
        ["doc", "create", "--title", "t", "--text", "x", "--dry-run"],
    ):
        with subtests.test(argv=argv):
            error = refused(run, *argv, "--store", "mistyped")
            assert (error["type"], error["exit_code"]) == ("resource.not_found", 5)
            assert "kbproc --store mistyped add" in error["hint"]
            assert sorted(tmp_path.iterdir()) == before


def test_the_doctor_makes_no_store(run: Run, tmp_path: Path) -> None:
    code, out, _ = run("doctor", "--store", "mistyped")
    findings = {row["name"]: row for row in json.loads(out)["data"]["findings"]}
    assert (code, findings["store"]["status"]) == (0, "fail")
    assert "There is no store in mistyped" in findings["store"]["message"]
    assert not (tmp_path / "mistyped").exists()


def test_what_needs_no_store_needs_none(run: Run) -> None:
    for argv in (["version"], ["describe", "search"], ["schema"]):
        assert run(*argv, "--store", "mistyped")[0] == 0


def test_what_adds_makes_a_store(run: Run, tmp_path: Path) -> None:
    assert run("kb", "create", "books", "--store", "new")[0] == 0
    assert run("kb", "get", "books", "--store", "new")[0] == 0
    (tmp_path / "empty").mkdir()
    assert run("kb", "create", "books", "--store", "empty")[0] == 0


def test_a_folder_of_something_else_is_not_adopted(run: Run, tmp_path: Path) -> None:
    docs = write_docs(tmp_path)
    for argv in (["kb", "create", "books"], ["add", "docs"]):
        error = refused(run, *argv, "--store", "docs")
        assert (error["type"], error["exit_code"]) == ("resource.already_exists", 7)
        assert "git-admin.md" in error["message"]
    assert sorted(path.name for path in docs.iterdir()) == ["git-admin.md", "setup.md"]


def test_everything_in_a_store_is_for_its_user_alone(tmp_path: Path) -> None:
    write_docs(tmp_path)
    where = environment(tmp_path)
    (tmp_path / "store" / "store.toml").chmod(0o600)
    for argv in (["add", "docs"], ["search", "git"]):
        subprocess.run(
            [sys.executable, "-m", "kbproc", *argv],
            env={"PATH": os.environ["PATH"], **where},
            cwd=tmp_path,
            check=True,
            capture_output=True,
            umask=0o022,
        )
    store = tmp_path / "store"
    assert list((store / "views").rglob("*"))
    assert _open_to_others([store, *store.rglob("*")]) == []


def test_what_was_open_to_others_is_closed(run: Run, tmp_path: Path) -> None:
    run("kb", "create", "books")
    views = tmp_path / "store" / "views"
    before = [views, *views.rglob("*")]
    for path in before:
        path.chmod(0o755 if path.is_dir() else 0o644)
    assert run("kb", "list")[0] == 0
    assert _open_to_others(before) == []


def _open_to_others(paths: Iterable[Path]) -> list[str]:
    return [
        f"{path} {stat.S_IMODE(path.lstat().st_mode):o}"
        for path in paths
        if path.exists() and stat.S_IMODE(path.lstat().st_mode) & 0o077
    ]


# ------------------------------------------------------------------- paths of a store


def variables(folder: Path) -> dict[str, str]:
    """Returns the environment of a process without the name of a store."""
    names = {"PATH": os.environ["PATH"], **environment(folder), "KBPROC_FORMAT": "json"}
    del names["KBPROC_STORE"]
    return names


def program(folder: Path, *argv: str, **env: str) -> tuple[int, dict[str, Any]]:
    """Returns exit code and answer of a command that is run in `folder`, its user's home."""
    ran = shell.run(argv, cwd=folder, env={**variables(folder), **env})
    assert "Traceback" not in ran.err
    return ran.code, json.loads((ran.out or ran.err).splitlines()[-1])


@pytest.fixture(scope="module")
def added(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Makes a store with two documents."""
    folder = tmp_path_factory.mktemp("added")
    write_docs(folder)
    code, _ = program(folder, "add", "docs", "--store", "store")
    assert code == 0
    return folder / "store"


@pytest.fixture
def placed(tmp_path: Path, added: Path) -> Path:
    """Makes a folder with two documents in `my store`, to which `named` leads."""
    write_docs(tmp_path)
    (tmp_path / "deep" / "er").mkdir(parents=True)
    shutil.copytree(added, tmp_path / "deep" / "my store")
    (tmp_path / "named").symlink_to(tmp_path / "deep" / "my store")
    (tmp_path / "aside").symlink_to(tmp_path / "deep" / "er")
    return tmp_path


SPELLINGS = (
    "deep/my store",
    "./deep/my store/",
    "docs/../deep/my store",
    "aside/../my store",
    "named",
    "~/deep/my store",
)
COUNT = ("sql", "query", "select count(*) as n from documents")


def how(folder: Path, level: str, spelling: str) -> tuple[list[str], dict[str, str]]:
    """Returns flags and variables that name the store to a command."""
    if level == "flag":
        return ["--store", spelling], {}
    if level == "environment":
        return [], {"KBPROC_STORE": spelling}
    if level == "profile":
        assert program(folder, "profile", "save", "mine", "--store", spelling)[0] == 0
        return ["--profile", "mine"], {}
    assert program(folder, "link", "--store", spelling)[0] == 0
    return [], {}


LEVELS = ("flag", "environment", "profile", "link")
# Each level and most spellings once; the long profile tries all pairs.
_SOME = zip(LEVELS, ("aside/../my store", "deep/my store", "~/deep/my store", "named"), strict=True)


@pytest.mark.parametrize(("level", "spelling"), all_or(_SOME, itertools.product(LEVELS, SPELLINGS)))
def test_every_spelling_of_a_store_is_the_same_store(
    placed: Path, level: str, spelling: str
) -> None:
    flags, env = how(placed, level, spelling)
    code, answer = program(placed, *COUNT, *flags, **env)
    assert (code, answer["data"]["rows"]) == (0, [[2]])
    code, answer = program(placed, "search", "tarball", "--mode", "fts", *flags, **env)
    assert (code, len(answer["data"]["results"])) == (0, 1)


@pytest.mark.parametrize("level", all_or(["environment"], LEVELS))
def test_all_ways_in_take_a_relative_path(placed: Path, level: str) -> None:
    flags, env = how(placed, level, "deep/my store")
    (placed / "more.md").write_text("# More\n\nA heron.\n")
    code, answer = program(placed, "add", "more.md", *flags, **env)
    assert (code, answer["data"]["added"]) == (0, 1)
    code, answer = program(placed, "doctor", *flags, **env)
    assert (code, answer["data"]["healthy"]) == (0, True)
    code, answer = program(placed, "store", "backup", "copy", *flags, **env)
    assert (code, answer["data"]["path"]) == (0, str(placed / "copy"))
    code, answer = program(
        placed, "call", "sql.query", json.dumps({"sql": COUNT[2]}), *flags, **env
    )
    assert (code, answer["data"]["rows"]) == (0, [[3]])


def test_the_working_folder_may_be_the_store(placed: Path) -> None:
    inside = placed / "deep" / "my store"
    for spelling in (".", "./"):
        env = {**variables(placed), "KBPROC_STORE": spelling}
        ran = shell.run(COUNT, cwd=inside, env=env)
        assert (ran.code, json.loads(ran.out)["data"]["rows"]) == (0, [[2]]), spelling


@pytest.mark.parametrize("level", all_or(["flag"], LEVELS))
def test_a_server_and_who_attaches_to_it_share_a_relative_store(placed: Path, level: str) -> None:
    flags, env = how(placed, level, "deep/my store")
    server = start(
        ["-m", "kbproc", "serve", *flags],
        cwd=placed,
        env={**variables(placed), **env},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    with server:
        assert server.stdin and server.stdout
        request = {"id": 1, "method": "sql.query", "params": {"sql": COUNT[2]}}
        server.stdin.write(json.dumps({"jsonrpc": "2.0", **request}).encode() + b"\n")
        server.stdin.flush()
        lines = map(json.loads, server.stdout)
        assert next(lines)["params"]["store"] == str(placed / "deep" / "my store")
        answer = next(line for line in lines if line.get("id") == 1)
        assert answer["result"]["data"]["rows"] == [[2]]
        for spelling in SPELLINGS:
            code, attached = program(placed, *COUNT, "--store", spelling)
            assert (code, attached["data"]["rows"]) == (0, [[2]])
        server.stdin.close()


def test_a_home_of_nobody_is_refused_by_name(tmp_path: Path) -> None:
    for path in ("~nobody-of-that-name/store", "~nobody-of-that-name"):
        for field, flags, env in (
            ("--store", ["--store", path], {}),
            ("KBPROC_STORE", [], {"KBPROC_STORE": path}),
        ):
            code, answer = program(tmp_path, "search", "x", *flags, **env)
            error = answer["error"]
            assert (code, error["type"], error["field"]) == (1, "input.invalid_params", field)
            assert f"./{path}" in error["hint"]
        server = start(
            ["-m", "kbproc", "serve", "--root", path],
            cwd=tmp_path,
            env=variables(tmp_path),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        answer = json.loads(server.communicate(timeout=PATIENCE)[0].splitlines()[-1])
        assert answer["error"]["data"]["field"] == "--root"


def test_a_store_with_a_space_is_quoted_in_what_to_type(run: Run) -> None:
    error = refused(run, "search", "x", "--store", "no such")
    assert "kbproc --store 'no such' add" in error["hint"]


def test_folders_of_the_environment_are_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    env = {f"XDG_{kind}": kind.lower() for kind in ("DATA_HOME", "CACHE_HOME", "RUNTIME_DIR")}
    files = {"KBPROC_LLM_API_KEY_FILE": "key", "KBPROC_RERANK_FOLDER": "model"}
    settled = load({**env, **files, "HOME": "home", "KBPROC_RERANK_API_KEY_FILE": "~/key"})
    assert settled.store == tmp_path / "data_home" / "kbproc"
    assert settled.cache == tmp_path / "cache_home" / "kbproc"
    assert settled.runtime == tmp_path / "runtime_dir" / "kbproc"
    assert settled.approved == tmp_path / "home" / ".config" / "kbproc" / "trusted.json"
    assert settled.llm.api_key_file == str(tmp_path / "key")
    assert settled.rerank == Rerank(folder=str(tmp_path / "model"), api_key_file="~/key")


def test_a_relative_store_in_a_folder_that_is_gone_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    with pytest.raises(KbprocError, match="has been removed") as caught:
        load({"KBPROC_STORE": "store", "HOME": str(tmp_path)})
    assert caught.value.field == "KBPROC_STORE"
    assert load({"KBPROC_STORE": "/s", "HOME": str(tmp_path)}).store == Path("/s")
