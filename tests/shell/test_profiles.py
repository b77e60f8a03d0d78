"""Profiles and links, and their precedence for each setting."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbproc.base import values as values_
from kbproc.base.errors import KbprocError
from kbproc.base.settings import config, profiles, toml, trust
from kbproc.base.settings.profiles import LINK, SETTINGS, Profiles
from kbproc.engine.store.folder import write_settings
from kbproc.methods.all import registry
from kbproc.methods.calls.flags import GLOBAL_FLAGS, flags_of
from kbproc.surfaces.sharing.serve import Serving
from kbproc.surfaces.shell.arguments import Options, options_of, parse
from kbproc.surfaces.shell.cli import main
from kbproc.surfaces.shell.commands import PROFILE_COMMANDS
from kbproc.surfaces.shell.printing.formats import Output
from tests.kit.patience import PATIENCE
from tests.kit.shell import SETTINGS as STORE_TOML
from tests.kit.shell import Run, in_process
from tests.kit.start import start as start_python
from tests.kit.talk import REPO

A_STORE = ("--store", "store")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs commands without any setting: no variable, no link, no profile."""
    command = in_process(tmp_path, monkeypatch, capsys)
    for name in ("KBPROC_STORE", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    return command


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / ".config" / "kbproc" / profiles.FILE


def put(path: Path, text: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    if path.name == LINK:
        config.trust_of(os.environ).add_link(path, path.read_bytes())
    return path


def error_of(answer: tuple[int, str, str], exit: int) -> dict[str, Any]:
    code, out, err = answer
    assert (code, out) == (exit, "")
    error: dict[str, Any] = json.loads(err.splitlines()[-1])["error"]
    assert error["exit_code"] == exit
    return error


def data_of(answer: tuple[int, str, str]) -> Any:
    assert answer[0] == 0, answer
    return json.loads(answer[1])["data"]


def in_effect(run: Run, *flags: str) -> dict[str, tuple[Any, str, str | None]]:
    rows = data_of(run("profile", "show", *flags))
    return {row["setting"]: (row["value"], row["from"], row["which"]) for row in rows}


# ------------------------------------------------------------------- precedence

# Setting → its flag, its variable, and a value for each level from flag to profile.
VALUES: dict[str, tuple[str, str, list[str]]] = {
    "store": ("--store", "KBPROC_STORE", ["/a", "/b", "/c", "/d"]),
    "kb": ("--kb", "KBPROC_KB", ["aa", "bb", "cc", "dd"]),
    "format": ("--format", "KBPROC_FORMAT", ["json", "json", "", "json"]),
    "agent": ("--agent", "KBPROC_AGENT", ["ann", "ben", "", "dan"]),
    "log_level": ("--log-level", "KBPROC_LOG_LEVEL", ["debug", "info", "", "error"]),
}
LEVELS = ("flag", "environment", "link", "profile", "default")
CASES = [
    (key, level)
    for key in SETTINGS
    for level in LEVELS
    if level != "link" or key in profiles.LINKED
]


@pytest.mark.parametrize(("key", "level"), CASES)
def test_each_level_comes_before_those_below(
    run: Run, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, level: str
) -> None:
    flag, variable, values = VALUES[key]
    flags: list[str] = []
    for here, value in zip(
        LEVELS[LEVELS.index(level) :], values[LEVELS.index(level) :], strict=False
    ):
        if here == "flag":
            flags = [flag, value]
        elif here == "environment":
            monkeypatch.setenv(variable, value)
        elif here == "link" and value:
            put(tmp_path / LINK, f'{key} = "{value}"')
        elif here == "profile":
            put(file, f'use = "work"\n[profiles.work]\n{key} = "{value}"')
    defaults = {
        "store": str(tmp_path / ".local/share/kbproc"),
        "kb": "default",
        "format": None,
        "agent": "user",
        "log_level": "warning",
    }
    expected = defaults[key] if level == "default" else values[LEVELS.index(level)]
    which = {
        "flag": flag,
        "environment": variable,
        "link": str(tmp_path / LINK),
        "profile": "work",
        "default": None,
    }
    assert in_effect(run, *flags)[key] == (expected, level, which[level])


def test_a_profile_is_chosen_by_flag_then_variable_then_use(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("used", "meant", "named"):
        run("profile", "save", name, "--kb", f"kb-{name}")
    assert in_effect(run)["kb"][0] == "default"
    run("profile", "use", "used")
    assert in_effect(run)["profile"] == ("used", "profile", "used")
    monkeypatch.setenv("KBPROC_PROFILE", "meant")
    assert in_effect(run)["kb"] == ("kb-meant", "profile", "meant")
    assert in_effect(run, "--profile", "named")["kb"] == ("kb-named", "profile", "named")
    assert in_effect(run, "--profile=named")["profile"] == ("named", "flag", "--profile")
    monkeypatch.delenv("KBPROC_PROFILE")
    assert data_of(run("profile", "use", "--none"))["before"] == "used"
    assert in_effect(run)["profile"] == (None, "default", None)


def test_the_store_that_is_meant_is_the_one_that_is_used(run: Run, tmp_path: Path) -> None:
    for name in ("one", "two"):
        put(tmp_path / name / "store.toml", STORE_TOML)
        (tmp_path / name).chmod(0o700)
        run("profile", "save", name, "--store", name, "--agent", f"agent-{name}")
        run("agent", "create", f"agent-{name}", "--profile", name, "--actor", "somebody")
        run("kb", "create", f"kb-{name}", "--profile", name)
    code, out, _ = run("--profile", "two", "kb", "list", "--jq", ".data[].slug, .profile")
    assert (code, out) == (0, "default\nkb-two\ntwo\n")
    run("doc", "create", "--title", "t", "--text", "x", "--profile", "one")
    assert run("doc", "history", "1", "--profile", "one", "--jq", ".data[].actor")[1] == (
        "agent-one\n"
    )
    run("profile", "save", "two", "--store", "two", "--kb", "kb-two")
    create = ("doc", "create", "--title", "t", "--text", "x", "--jq", ".data.kb")
    assert run(*create, "--profile", "two")[1] == "kb-two\n"
    assert not (tmp_path / ".local").exists()


def test_the_envelope_names_the_profile(run: Run) -> None:
    run("profile", "save", "work", *A_STORE)
    assert json.loads(run("exit-codes")[1])["profile"] is None
    assert json.loads(run("exit-codes", "--profile", "work")[1])["profile"] == "work"


def test_an_agent_named_by_a_flag_is_told_apart() -> None:
    def told(*argv: str, own: tuple[str, ...] = ()) -> Options:
        settled = config.Config(store=Path("s"), cache=Path("c"), actor="env")
        parsed = parse("kbproc", GLOBAL_FLAGS, list(argv))
        return options_of(parsed, settled, Output(sys.stdout, sys.stderr), own)

    def named(*argv: str) -> tuple[str, str | None]:
        return told(*argv).config.actor, told(*argv).config.agent_named_by

    assert named() == ("env", None)
    assert named("--agent", "a") == ("a", "--agent")
    assert named("--actor", "a") == ("a", None)
    assert told("--agent", "a", own=("--agent",)).config.actor == "env"
    assert told("--profile", "p", "--store=s").again == ["--store", "s", "--profile", "p"]
    with pytest.raises(KbprocError, match="exclude each other"):
        told("--agent", "a", "--actor", "b")


# ------------------------------------------------------------------ unknown names


def test_an_unknown_profile(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    error = error_of(run("ping", "--profile", "work"), 5)
    assert (error["type"], error["valid_values"]) == ("profile.not_found", [])
    assert "profile save" in error["hint"]
    for name in ("work", "play"):
        run("profile", "save", name, *A_STORE)
    for argv in (
        ["ping", "--profile", "wrk"],
        ["profile", "show", "wrk"],
        ["profile", "use", "wrk"],
        ["profile", "delete", "wrk"],
    ):
        error = error_of(run(*argv), 5)
        assert (error["type"], error["valid_values"]) == ("profile.not_found", ["work"])
        assert error["hint"] == "Did you mean work? See kbproc profile list."
    monkeypatch.setenv("KBPROC_PROFILE", "new")
    assert error_of(run("ping"), 5)["valid_values"] == ["play", "work"]
    assert run("profile", "list")[0] == 0
    assert run("profile", "save", "new", *A_STORE)[0] == 0
    assert run("exit-codes")[0] == 0


def test_a_profile_in_use_that_is_gone(run: Run, file: Path) -> None:
    put(file, 'use = "gone"\n[profiles.work]\nkb = "books"\n')
    error = error_of(run("ping"), 5)
    assert (error["type"], "profile use --none" in error["hint"]) == ("profile.not_found", True)
    assert run("profile", "use", "work")[0] == 0
    assert in_effect(run)["kb"][0] == "books"


def test_deleting_the_profile_in_use_chooses_none(run: Run) -> None:
    run("profile", "save", "work", *A_STORE)
    run("profile", "use", "work")
    assert data_of(run("profile", "delete", "work"))["was_in_use"] is True
    assert data_of(run("profile", "list")) == []
    assert in_effect(run)["profile"][0] is None


# ----------------------------------------------------------------------- commands


def test_saving_again_replaces_and_keeps_the_others(run: Run, tmp_path: Path) -> None:
    run("profile", "save", "other", "--kb", "books")
    saved = data_of(run("profile", "save", "work", "--store", "a/../b", "--agent", "robin"))
    assert saved["store"] == str(tmp_path / "b")
    assert (saved["agent"], saved["replaced"]) == ("robin", False)
    again = data_of(run("profile", "save", "work", "--kb", "notes", "--log-level", "INFO"))
    assert again["replaced"] is True
    assert data_of(run("profile", "show", "work")) == [
        {"setting": "kb", "value": "notes", "from": "profile", "which": "work"},
        {"setting": "log_level", "value": "info", "from": "profile", "which": "work"},
    ]
    rows = data_of(run("profile", "list"))
    assert [(row["name"], row["kb"], row["in_use"]) for row in rows] == [
        ("other", "books", False),
        ("work", "notes", False),
    ]


@pytest.mark.parametrize(
    ("argv", "field"),
    [
        (["profile", "save", "Work", "--kb", "books"], "NAME"),
        (["profile", "save", "w", "--kb", "books"], "NAME"),
        (["profile", "save", "--kb", "books"], "NAME"),
        (["profile", "save", "work"], "NAME"),
        (["profile", "save", "work", "more", "--kb", "books"], "NAME"),
        (["profile", "save", "work", "--kb", "Not a slug"], "--kb"),
        (["profile", "save", "work", "--agent", "a\u202eb"], "--agent"),
        (["profile", "use"], "NAME"),
        (["profile", "use", "work", "--none"], "NAME"),
        (["profile", "list", "work"], "NAME"),
        (["ping", "--profile"], "--profile"),
        (["link", "--kb", "Not a slug"], "--kb"),
        (["link", "a", "b"], "FOLDER"),
    ],
)
def test_what_can_not_be_is_refused(
    run: Run, file: Path, tmp_path: Path, argv: list[str], field: str
) -> None:
    error = error_of(run(*argv), 1)
    assert (error["type"], error["field"]) == ("input.invalid_params", field)
    assert not file.exists()
    assert not (tmp_path / LINK).exists()


def test_a_dry_run_writes_nothing(run: Run, file: Path, tmp_path: Path) -> None:
    code, out, _ = run("profile", "save", "work", *A_STORE, "--dry-run")
    assert (code, json.loads(out)["meta"]["dry_run"]) == (0, True)
    assert run("link", "--dry-run")[0] == 0
    assert not file.parent.exists()
    assert not (tmp_path / LINK).exists()
    run("profile", "save", "work", *A_STORE)
    run("link")
    before = file.read_bytes()
    for argv in (["profile", "use", "work"], ["profile", "delete", "work"], ["unlink"]):
        code, out, err = run(*argv, "--dry-run", "--format", "text")
        assert (code, err) == (0, "Note: Nothing was written: this was a dry run.\n")
        assert out.startswith("Dry run: nothing was changed. The result would be:\n")
    assert file.read_bytes() == before
    assert (tmp_path / LINK).exists()


@pytest.mark.parametrize(
    "argv",
    [
        ["--help"],
        ["help"],
        [],
        ["search", "--help"],
        ["profile", "--help"],
        ["version"],
        ["describe"],
        ["exit-codes"],
        ["completion", "bash"],
    ],
)
def test_what_needs_no_settings_comes_without(
    run: Run, file: Path, argv: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / LINK, "= broken")
    assert run(*argv)[0] == 0
    put(file, "= broken")
    assert run(*argv)[0] == 0
    file.unlink()
    (tmp_path / LINK).unlink()
    monkeypatch.setenv("KBPROC_PROFILE", "gone")
    assert run(*argv)[0] == 0
    error_of(run("ping"), 5)


def test_a_link_that_variables_overrule_says_so(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KBPROC_STORE", "/somewhere")
    assert "KBPROC_STORE is set and comes first" in run("link", "--format", "text")[2]
    monkeypatch.delenv("KBPROC_STORE")
    assert "KBPROC_STORE" not in run("link", "--format", "text")[2]


def test_an_unknown_word_after_profile(run: Run) -> None:
    error = error_of(run("profile", "sav"), 1)
    assert (error["type"], error["valid_values"][0]) == ("input.unknown_method", "profile save")


@pytest.mark.parametrize("name", PROFILE_COMMANDS)
def test_help_has_an_example(run: Run, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words = name.split()
    code, out, _ = run(*words, "--help")
    assert code == 0
    assert f"Usage: kbproc {name}" in out
    assert f"\nExamples\n  kbproc {name}" in out
    assert max(len(line) for line in out.splitlines()) <= 80
    assert run("help", *words)[1] == out
    assert f"  {name} " in run("--help")[1]
    monkeypatch.setenv("KBPROC_AGENT_HELP", "1")
    assert json.loads(run(*words, "--help")[1])["name"] == name


def test_help_of_profile_and_completion(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "kbproc profile use work" in run("profile", "--help")[1]
    for shell in ("bash", "zsh", "fish"):
        script = run("completion", shell)[1]
        for word in ("profile", "save", "unlink", "--none", "--agent"):
            assert word.lstrip("-") in script
    run("profile", "save", "work", *A_STORE)
    monkeypatch.setenv("KBPROC_AGENT_HELP", "1")
    assert len(json.loads(run("profile", "--help")[1])) == 5
    assert json.loads(run("--help")[1])["profiles"] == ["work"]


def test_text_fits_a_terminal(run: Run) -> None:
    run(
        "profile",
        "save",
        "work",
        "--store",
        "a/very/long/way/" * 6,
        "--kb",
        "books",
        "--agent",
        "robin",
        "--log-level",
        "info",
    )
    for argv in (["profile", "list"], ["profile", "show"], ["profile", "show", "work"]):
        code, out, err = run(*argv, "--format", "text", "--profile", "work")
        assert (code, err) == (0, "")
        assert max(len(line) for line in out.splitlines()) <= 80


# ------------------------------------------------------------------- broken files

BROKEN: list[tuple[str | bytes, int | None, str]] = [
    ('use = "a', 1, "Unterminated"),
    ('# fine\n[profiles.work]\nkb = "aa"\nkb = "bb"\n', 4, "Cannot overwrite"),
    ("[profiles.work]\r\nkb = aa\r\n", 2, "Invalid value"),
    ("[profiles.work\n", 1, "Expected"),
    (b"# x\n\xff\n", 2, "not UTF-8"),
    ('[profiles.work]\nkb = "aa"\n[profiles.play]\nbk = "aa"\n', 4, "no setting 'bk'"),
    ('usee = "work"\n', 1, "no setting 'usee'"),
    ("\nuse = 5\n", 2, "use is 5"),
    ("profiles = 5\n", 1, "no table"),
    ("[profiles]\nwork = 5\n", 2, "no table"),
    ('\n[profiles."My work"]\nkb = "aa"\n', 2, "no profile's name"),
    ('[profiles.work]\nkb = "aa"\nagent = 5\n', 3, "string in quotes"),
    ('[profiles.work]\nkb = ""\n', 2, "empty"),
    ('[profiles.work]\nformat = "yaml"\n', 2, "json, ndjson, text"),
    ('[profiles.work]\n\nlog_level = "loud"\n', 3, "debug, info"),
    ('[profiles.work]\nkb = "No Slug"\n', 2, "lower-case"),
    ('[profiles.work]\nstore = "here"\n', 2, "absolute"),
    ('profiles = {work = {kb = "aa", x = """\n"""}}\n', None, "no setting 'x'"),
    ("x = " + "[" * 5000, None, "nested too deeply"),
    ("#" * (1 << 17), None, "64 KiB"),
]


@pytest.mark.parametrize(("text", "line", "message"), BROKEN)
def test_a_broken_file_of_profiles(
    run: Run, file: Path, text: str | bytes, line: int | None, message: str
) -> None:
    before = put(file, text).read_bytes()
    for argv in (
        ["ping"],
        ["profile", "list"],
        ["profile", "save", "work", "--kb", "aa"],
        ["profile", "use", "work"],
        ["profile", "delete", "work"],
        ["profile", "show"],
        ["link"],
        ["serve"],
    ):
        error = error_of(run(*argv), 1)
        assert (error["type"], error["detail"]) == (
            "input.invalid_params",
            {"path": str(file), "line": line},
        )
        place = f"{file}: " if line is None else f"{file}, line {line}: "
        assert error["message"].startswith(place)
        assert message in error["message"]
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ('store = "x"\nkb = \n', 2, "Invalid value"),
        ('store = "x"\nagent = "robin"\n', 2, "no setting 'agent'; there are store, kb"),
        ("\nkb = 5\n", 2, "string in quotes"),
        ("[store]\n", 1, "string in quotes"),
        (b"kb = '\xe9'\n", 1, "not UTF-8"),
    ],
)
def test_a_broken_link(
    run: Run, tmp_path: Path, text: str | bytes, line: int, message: str
) -> None:
    path = put(tmp_path / LINK, text)
    before = path.read_bytes()
    for argv in (["ping"], ["link", "--kb", "books"], ["unlink"], ["profile", "list"]):
        error = error_of(run(*argv), 1)
        assert error["detail"] == {"path": str(path), "line": line}
        assert f"{path}, line {line}: " in error["message"]
        assert message in error["message"]
    assert path.read_bytes() == before


def test_a_broken_link_elsewhere_is_left_alone(run: Run, tmp_path: Path) -> None:
    path = put(tmp_path / "sub" / LINK, "broken")
    for command in ("link", "unlink"):
        assert error_of(run(command, "sub"), 1)["detail"]["line"] == 1
    assert path.read_text() == "broken"


# -------------------------------------------------------------------------- files


def test_only_the_user_may_read_profiles(run: Run, file: Path, tmp_path: Path) -> None:
    file.parent.mkdir(parents=True)
    file.parent.chmod(0o755)
    before = os.umask(0)
    try:
        run("profile", "save", "work", *A_STORE)
        run("link")
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in file.parent.iterdir()}
    names = (profiles.FILE, "profiles.lock", trust.FILE, "trusted.lock")
    assert modes == dict.fromkeys(names, 0o600)
    assert file.parent.stat().st_mode & 0o777 == 0o700
    assert (tmp_path / LINK).stat().st_mode & 0o777 == 0o600


def test_a_disk_that_refuses_leaves_the_file_as_it_was(
    run: Run, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("profile", "save", "work", "--kb", "books")
    before = file.read_bytes()

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("kbproc.base.disk.sync", full)
        error = error_of(run("profile", "save", "play", "--kb", "books"), 2)
        assert error["type"] == "store.io"
        assert str(file) in error["message"]
    assert file.read_bytes() == before
    assert {path.name for path in file.parent.iterdir()} == {profiles.FILE, "profiles.lock"}


def test_a_file_that_is_a_symlink_stays_one(run: Run, file: Path, tmp_path: Path) -> None:
    real = put(tmp_path / "dotfiles" / "kb.toml", '[profiles.work]\nkb = "books"\n')
    file.parent.mkdir(parents=True)
    file.symlink_to(real)
    assert run("profile", "save", "play", "--kb", "games")[0] == 0
    assert file.is_symlink()
    assert set(profiles.read(real).named) == {"work", "play"}


def test_a_file_that_can_not_be_read(run: Run, file: Path) -> None:
    file.mkdir(parents=True)
    error = error_of(run("ping"), 2)
    assert (error["type"], error["detail"]["path"]) == ("store.io", str(file))


def start(folder: Path, *argv: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    return start_python(
        ["-m", "kbproc", *argv],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(REPO),
            "HOME": str(folder),
            **(env or {}),
        },
    )


def test_processes_that_save_at_once_lose_nothing(tmp_path: Path, file: Path) -> None:
    names = [f"profile-{number}" for number in range(6)]
    started = [start(tmp_path, "profile", "save", name, "--kb", name) for name in names]
    for process in started:
        out, err = process.communicate(timeout=PATIENCE)
        assert (process.returncode, err) == (0, ""), out
    assert profiles.read(file).named == {name: {"kb": name} for name in names}


VISIBLE = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
SLUGS = st.from_regex(values_.SLUG, fullmatch=True)
KEPT = st.fixed_dictionaries(
    {},
    optional={
        "store": VISIBLE.map("/{}".format),
        "kb": SLUGS,
        "format": st.sampled_from(profiles.CHOICES["format"]),
        "agent": VISIBLE.filter(lambda name: profiles.complaint("agent", name) is None),
    },
)


@given(st.dictionaries(SLUGS, KEPT, max_size=3), st.none() | SLUGS)
def test_whatever_is_written_reads_back(
    tmp_path_factory: pytest.TempPathFactory, named: dict[str, dict[str, str]], use: str | None
) -> None:
    path = tmp_path_factory.getbasetemp() / "read-back.toml"
    original = Profiles(use=use, named=named)
    toml.write(path, original.as_toml(), original.as_table())
    assert profiles.read(path) == original


# -------------------------------------------------------------------------- links


def test_a_link_is_found_from_below(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    below = tmp_path / "project" / "src" / "deep"
    below.mkdir(parents=True)
    linked = data_of(run("link", "project", "--store", "project/.kb", "--kb", "site"))
    path = tmp_path / "project" / LINK
    assert (linked["file"], linked["replaced"]) == (str(path), False)
    assert path.read_text().splitlines()[1:] == ['store = ".kb"', 'kb = "site"']
    assert in_effect(run)["kb"][1] == "default"
    monkeypatch.chdir(below)
    assert in_effect(run)["store"] == (str(tmp_path / "project" / ".kb"), "link", str(path))
    error = error_of(run("unlink"), 5)
    assert f"kbproc unlink {path.parent}" in error["hint"]
    assert data_of(run("link", "--kb", "inner"))["store"] == str(tmp_path / "project" / ".kb")
    assert in_effect(run)["kb"][2] == str(below / LINK)  # only the nearest link counts
    assert data_of(run("unlink"))["kb"] == "inner"
    (tmp_path / "project").rename(tmp_path / "moved")
    monkeypatch.chdir(tmp_path / "moved" / "src")
    assert run("link", "--trust")[0] == 0
    assert in_effect(run)["store"][0] == str(tmp_path / "moved" / ".kb")
    monkeypatch.chdir(tmp_path)
    assert run("unlink", "moved")[0] == 0
    assert error_of(run("unlink", "moved"), 5)["type"] == "resource.not_found"
    assert error_of(run("link", "project"), 5)["type"] == "resource.not_found"


def test_a_link_takes_what_is_in_effect(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("profile", "save", "work", "--store", "/somewhere/kb", "--kb", "books")
    monkeypatch.setenv("KBPROC_KB", "papers")
    linked = data_of(run("link", "--profile", "work"))
    assert (linked["store"], linked["kb"]) == ("/somewhere/kb", "papers")
    assert data_of(run("link"))["replaced"] is True


def test_a_relative_store_means_the_links_folder(run: Run, tmp_path: Path) -> None:
    put(tmp_path / LINK, 'store = "../kb"')
    assert in_effect(run)["store"][0] == str(tmp_path.parent / "kb")
    put(tmp_path / LINK, 'store = "~/kb"')
    assert in_effect(run)["store"][0] == str(tmp_path / "kb")


def warnings(answer: tuple[int, str, str]) -> list[str]:
    return [json.loads(line)["message"] for line in answer[2].splitlines()]


def test_a_link_that_came_with_a_repository_is_passed_over_until_it_is_trusted(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("link", "--kb", "mine")
    clone = tmp_path / "clone"
    (clone / "src").mkdir(parents=True)
    path = clone / LINK
    path.write_text('store = ".kb"\nkb = "theirs"\n')
    monkeypatch.chdir(clone / "src")
    messages = warnings(run("profile", "list"))
    assert len(messages) == 1
    assert messages[0].startswith(str(path))
    assert "kbproc link --trust" in messages[0]
    answer = run("profile", "show", "--jq", '.data[] | select(.setting=="kb").value')
    assert answer[:2] == (0, "mine\n")
    run("link", "--trust", "--dry-run")
    assert warnings(run("profile", "list")) == messages
    answer = run("link", "--trust")
    trusted = data_of(answer)
    assert warnings(answer) == [], "it is being trusted"
    assert (trusted["file"], trusted["kb"]) == (str(path), "theirs")
    assert in_effect(run)["kb"] == ("theirs", "link", str(path))
    path.write_text('kb = "another"\n')
    assert warnings(run("profile", "list")) == messages, "what has changed is asked about again"
    path.write_text("= broken")
    assert warnings(run("profile", "list")) == messages, "nor can it break anything"
    monkeypatch.chdir(tmp_path)
    path.unlink()
    (tmp_path / LINK).unlink()
    assert error_of(run("link", "--trust"), 5)["type"] == "resource.not_found"


@pytest.mark.parametrize("what", ["endpoint", "model"])
def test_the_model_of_a_store_is_approved_with_it(run: Run, tmp_path: Path, what: str) -> None:
    store, url = tmp_path / "theirs", "http://127.0.0.1:9/v1"
    model: dict[str, object] = {"kind": "openai", "name": "theirs"}
    model |= {"url": url} if what == "endpoint" else {"kind": "onnx"}
    write_settings(put(store / "store.toml", ""), model)
    approved = config.trust_of(os.environ)
    code, out, _ = run("link", "--trust", "--store", str(store), "--dry-run")
    assert (code, approved.has_model(store, model)) == (0, False)
    code, out, _ = run("link", "--trust", "--store", str(store))
    assert (code, (url if what == "endpoint" else "theirs") in out) == (0, True)
    assert approved.has_model(store, model)
    assert not approved.has_model(tmp_path, model)
    assert not approved.has_model(store, {**model, "dim": 3}), "what has changed is asked about"


def test_the_endpoint_that_answers_is_approved_with_its_store(run: Run, tmp_path: Path) -> None:
    """An unapproved endpoint is never called; the approval covers the model as well."""
    llm = 'format = 2\n\n[llm]\nurl = "http://127.0.0.1:9/v1"\nmodel = "toy"\n'
    path = put(tmp_path / "theirs" / "store.toml", llm)
    model = {"kind": "openai", "name": "theirs", "url": "http://127.0.0.1:8/v1"}
    write_settings(path, model)
    store = ("--store", str(tmp_path / "theirs"))
    run("doc", "create", "--title", "Git", "--text", "Git is installed by make.", *store)
    error = error_of(run("chat", "How is git installed?", *store, "--dry-run"), 2)
    assert error["type"] == "llm.unavailable"
    error = error_of(run("chat", "How is git installed?", *store), 2)
    assert (error["type"], "not approved" in error["message"]) == ("llm.unavailable", True)
    assert "kbproc link --trust --store" in error["hint"]
    code, out, _ = run("link", "--trust", *store)
    assert (code, ":8/v1" in out, ":9/v1" in out) == (0, True, True)
    assert config.trust_of(os.environ).has_model(tmp_path / "theirs", model)
    code, _, err = run("chat", "How is git installed?", *store)
    assert (code, "not approved" in err, "ConnectError" in err) == (2, False, True)


@pytest.mark.parametrize("what", ["url", "folder"])
def test_the_cross_encoder_is_approved_with_its_store(run: Run, tmp_path: Path, what: str) -> None:
    store, named = tmp_path / "theirs", "/models/theirs" if what == "folder" else "http://[::1]:9"
    settings = {what: named, "model": "toy"} if what == "url" else {what: named}
    write_settings(put(store / "store.toml", ""), {"kind": "none", "name": "none"})
    write_settings(store / "store.toml", settings, "rerank")
    code, out, _ = run("link", "--trust", "--store", str(store))
    assert (code, named in out) == (0, True)
    assert ("may be sent" if what == "url" else "may be run") in out
    approved = config.trust_of(os.environ)
    assert approved.has_reranker(store, settings)
    assert not approved.has_reranker(store, {**settings, "candidates": 9})


def test_what_is_approved_is_there(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = error_of(run("link", "--trust", "--store", "nowhere"), 5)
    assert error["type"] == "resource.not_found"
    put(tmp_path / "plain" / "store.toml", "format = 2\n")
    code, out, _ = run("link", "--trust", "--store", "plain")
    assert (code, "nothing to approve" in out) == (0, True)
    assert json.loads(out)["data"]["store"] == str(tmp_path / "plain")


@pytest.mark.parametrize("flag", [["--kb", "handbook"], ["--create"]])
def test_a_link_that_is_approved_stays_as_it_is(run: Run, flag: list[str]) -> None:
    error = error_of(run("link", "--trust", *flag), 1)
    assert (error["type"], flag[0] in error["message"]) == ("input.invalid_params", True)


def test_what_is_approved_is_what_was_read(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that replaces the link during the approval is not approved."""
    path, content = tmp_path / LINK, b'kb = "seen"\n'
    path.write_bytes(content)
    real = profiles.nearest_link

    def exchanged(folder: Path) -> profiles.Link:
        resolved = real(folder)
        path.write_bytes(b'kb = "exchanged"\n')
        return resolved

    monkeypatch.setattr(profiles, "nearest_link", exchanged)
    assert data_of(run("link", "--trust"))["kb"] == "seen"
    approved = config.trust_of(os.environ)
    assert approved.has_link(path, content)
    assert not approved.has_link(path, path.read_bytes())


@pytest.mark.parametrize("wrong", ["", "[]", "{", '{"links": 5}'])
def test_where_nobody_can_read_what_was_approved_nothing_is(
    run: Run, file: Path, wrong: str
) -> None:
    run("link", "--kb", "mine")
    file.with_name(trust.FILE).write_text(wrong)
    assert "not trusted yet" in warnings(run("profile", "list"))[0]
    run("link", "--trust")
    assert in_effect(run)["kb"][0] == "mine"


def _of_another(path: Path) -> None:
    put(path, 'kb = "theirs"')
    os.chown(path, 12345, 12345)


MISTRUSTED = {
    "another": (_of_another, "belongs to another user"),
    "open": (lambda path: put(path, 'kb = "theirs"').chmod(0o666), "written by every user"),
    "symlink": (
        lambda path: path.symlink_to(put(path.with_name("x"), 'kb = "theirs"')),
        "symbolic link",
    ),
    "folder": (lambda path: path.mkdir(), "no regular file"),
    "pipe": (os.mkfifo, "no regular file"),
}


@pytest.mark.parametrize("kind", MISTRUSTED)
def test_what_is_not_to_be_trusted_is_passed_over(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    if kind == "another" and os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    make, message = MISTRUSTED[kind]
    run("link", "--kb", "mine")
    sub = tmp_path / "sub"
    sub.mkdir()
    make(sub / LINK)
    monkeypatch.chdir(sub)
    code, out, err = run("profile", "show", "--jq", '.data[] | select(.setting=="kb").value')
    assert (code, out) == (0, "mine\n")
    warning = json.loads(err)
    assert warning["type"] == "warning"
    assert warning["message"].startswith(str(sub / LINK))
    assert message in warning["message"]
    for command in ("link", "unlink"):
        assert error_of(run(command), 7)["type"] == "resource.conflict"
    assert os.path.lexists(sub / LINK)


def test_a_link_of_ones_own_that_can_not_be_read(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / LINK, 'kb = "mine"')
    opened = os.open

    def refused(path: Any, *more: Any, **named: Any) -> int:
        if str(path).endswith(LINK):
            raise PermissionError(13, "Permission denied")
        return opened(path, *more, **named)

    monkeypatch.setattr(os, "open", refused)
    error = error_of(run("ping"), 2)
    assert (error["type"], error["detail"]["path"]) == ("store.io", str(tmp_path / LINK))


def test_a_working_folder_that_is_gone(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (tmp_path / "a.md").write_text("# Heron\n\nA bird.")
    folder.rmdir()
    for line in (["exit-codes"], ["version"], ["add", str(tmp_path / "a.md")], ["search", "bird"]):
        assert run(*line)[0] == 0, line
    for line in (["add", "a.md"], ["store", "export", "all.ndjson"], ["add", "a.md", "--dry-run"]):
        error = error_of(run(*line), 1)
        assert error["type"] == "input.invalid_params", line
        assert "the working folder, where it starts, has been removed" in error["message"]


# -------------------------------------------------------------------------- serve


def test_serve_obeys_them_too(tmp_path: Path) -> None:
    store = tmp_path / "work" / "kb"
    put(store / "store.toml", STORE_TOML)
    store.chmod(0o700)
    put(
        tmp_path / ".config" / "kbproc" / profiles.FILE,
        '[profiles.work]\nstore = "/nowhere"\nagent = "robin"\n',
    )
    path = put(tmp_path / "project" / LINK, f'store = "{store}"\n')
    (tmp_path / "project" / "sub").mkdir()
    os.mkfifo(tmp_path / "project" / "sub" / LINK)
    env = {"HOME": str(tmp_path)}
    config.trust_of(env).add_link(path, path.read_bytes())
    process = start(tmp_path / "project" / "sub", "serve", "--profile", "work", env=env)
    out, err = process.communicate("", timeout=PATIENCE)
    assert process.returncode == 0, err
    init = json.loads(out.splitlines()[0])["params"]
    assert (init["store"], init["actor"]) == (str(store), "robin")
    warning = json.loads(err.splitlines()[0])
    assert (warning["level"], LINK in warning["msg"]) == ("warning", True)


@pytest.mark.parametrize(
    ("argv", "wanted"),
    [
        ([], ("linked", "mine", "profile work")),
        (["--kb", "site", "--agent", "robin"], ("site", "robin", "--agent")),
        (["--actor", "robin"], ("linked", "robin", None)),
    ],
)
def test_what_serve_is_told(
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    argv: list[str],
    wanted: tuple[str, str, str | None],
) -> None:
    put(tmp_path / LINK, 'kb = "linked"')
    run("profile", "save", "work", "--agent", "mine")
    configs: list[config.Config] = []

    def run_instead(serving: Serving, pipes: Any) -> int:
        configs.append(serving.config)
        return 0

    monkeypatch.setattr("kbproc.surfaces.sharing.serve.run", run_instead)
    assert main(["serve", "--profile", "work", *argv], pipes=(0, 1)) == 0
    assert (configs[0].kb, configs[0].actor, configs[0].agent_named_by) == wanted


def test_an_unknown_profile_of_serve(tmp_path: Path) -> None:
    process = start(tmp_path, "serve", env={"KBPROC_PROFILE": "work"})
    out, err = process.communicate("", timeout=PATIENCE)
    assert (process.returncode, out) == (5, "")
    assert json.loads(err)["error"]["type"] == "profile.not_found"


def test_flags_that_say_they_can_be_kept_can_be_kept() -> None:
    saveable = {flag.name for flag in GLOBAL_FLAGS if flag.profileable}
    assert saveable == {"--store", "--kb", "--format", "--agent", "--log-level"}
    names = {flag.name for method in registry().methods.values() for flag in flags_of(method)}
    assert "--profile" not in names
