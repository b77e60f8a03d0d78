"""Commands about profiles and links answer with what they wrote; a dry run writes nothing."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from kbproc.base.errors import KbprocError
from kbproc.base.settings.config import Config, SettingOrigin
from kbproc.surfaces.shell.arguments import Options, ParsedArguments
from kbproc.surfaces.shell.printing.formats import Output
from kbproc.surfaces.shell.profiles import (
    delete,
    link,
    list_profiles,
    save,
    show,
    unlink,
    use,
)

DRY = "Nothing was written: this was a dry run."


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keeps profiles and approvals in the test's own folder, which is the working folder, too."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def file(home: Path) -> Path:
    return home / "config/kbproc/profiles.toml"


def parsed(*words: str, **flags: str | bool) -> ParsedArguments:
    named = {f"--{name.replace('_', '-')}": [value] for name, value in flags.items()}
    return ParsedArguments(named, [*words])


def options(**more: Any) -> Options:
    config = {"store": Path("/kb"), "cache": Path("/cache"), **more.pop("config", {})}
    return Options(config=Config(**config), output=Output(sys.stdout, sys.stderr), **more)


def refusal(command: Any, *arguments: Any) -> KbprocError:
    with pytest.raises(KbprocError) as error:
        command(*arguments)
    return error.value


def test_a_saved_profile_keeps_the_settings_that_flags_name(file: Path) -> None:
    flags = parsed("work", store="kb", format="human", agent="gull")
    answer = save(flags, options())
    assert answer == {
        "data": {
            "name": "work",
            "store": "/kb",  # the settings have made it absolute
            "format": "text",
            "agent": "gull",
            "replaced": False,
            "file": str(file),
        },
        "meta": {
            "schema": "profile.save/1",
            "hint": "kbproc profile use work makes it the default profile.",
        },
    }
    assert "[profiles.work]" in file.read_text()
    again = save(parsed("work", kb="birds"), options(config={"profile": "work"}))
    assert again["data"]["replaced"] and "hint" not in again["meta"]
    assert show(parsed("work"), options())["data"] == [
        {"setting": "kb", "value": "birds", "from": "profile", "which": "work"}
    ]


@pytest.mark.parametrize(
    ("words", "flags", "field", "message"),
    [
        ((), {"kb": "birds"}, "NAME", "kbproc profile save needs a name."),
        (
            ("a", "b"),
            {"kb": "birds"},
            "NAME",
            "kbproc profile save takes NAME; 'b' is one too many.",
        ),
        (
            ("W",),
            {"kb": "birds"},
            "NAME",
            "'W' is no name for a profile: 2 to 64 lower-case letters, digits and hyphens.",
        ),
        (("work",), {}, "NAME", "profile save needs a setting to keep."),
        (
            ("work",),
            {"kb": "B"},
            "--kb",
            "kb is 'B'; it is 2 to 64 lower-case letters, digits and hyphens.",
        ),
    ],
)
def test_a_profile_without_a_valid_name_or_setting_is_refused(
    file: Path, words: tuple[str, ...], flags: dict[str, str], field: str, message: str
) -> None:
    error = refusal(save, parsed(*words, **flags), options())
    assert (error.type, error.field, error.message) == ("input.invalid_params", field, message)
    assert not file.exists()


def test_a_profile_is_chosen_listed_and_deleted() -> None:
    for name in ("work", "home"):
        save(parsed(name, kb=name), options())
    chosen = use(parsed("work"), options())
    assert (chosen["data"]["in_use"], chosen["data"]["before"]) == ("work", None)
    rows = list_profiles(parsed(), options(config={"profile": "work"}))
    assert [(row["name"], row["in_use"], row["kb"]) for row in rows["data"]] == [
        ("home", False, "home"),
        ("work", True, "work"),
    ]
    assert rows["meta"]["count"] == 2
    removal = delete(parsed("work"), options())
    assert (removal["data"]["name"], removal["data"]["was_in_use"]) == ("work", True)
    none = use(parsed(none=True), options())
    assert (none["data"]["in_use"], none["data"]["before"]) == (None, None)
    assert refusal(delete, parsed("work"), options()).type == "profile.not_found"
    assert refusal(use, parsed("work", none=True), options()).field == "NAME"
    assert refusal(list_profiles, parsed("x"), options()).message == (
        "kbproc profile list takes no name; 'x' is one too many."
    )


def test_a_variable_that_comes_before_the_chosen_profile_is_named() -> None:
    save(parsed("work", kb="birds"), options())
    origins = {"profile": SettingOrigin("environment", "KBPROC_PROFILE")}
    answer = use(parsed("work"), options(config={"origins": origins}))
    assert answer["meta"]["notice"] == ["KBPROC_PROFILE is set and comes first."]


def test_a_dry_run_says_what_it_would_do_and_writes_nothing(file: Path, home: Path) -> None:
    answer = save(parsed("work", kb="birds"), options(dry_run=True))
    assert answer["meta"] == {"schema": "profile.save/1", "dry_run": True, "notice": [DRY]}
    assert not file.exists()
    would_create = link(parsed(create=True), options(dry_run=True, config={"store": home / "kb"}))
    assert would_create["data"]["created"]
    assert not (home / ".kbproc.toml").exists() and not (home / "kb").exists()


def test_the_settings_in_effect_come_with_their_origins() -> None:
    origins = {"store": SettingOrigin("link", "/work/.kbproc.toml")}
    settings = {"origins": origins, "format": "json"}
    answer = show(parsed(), options(kb="birds", config=settings))
    rows = {row["setting"]: (row["value"], row["from"], row["which"]) for row in answer["data"]}
    assert rows == {
        "profile": (None, "default", None),
        "store": ("/kb", "link", "/work/.kbproc.toml"),
        "kb": ("birds", "flag", "--kb"),
        "format": ("json", "default", None),
        "agent": ("user", "default", None),
        "log_level": ("warning", "default", None),
    }


def test_a_link_binds_a_folder_until_it_is_removed(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("KBPROC_STORE", "KBPROC_KB"):
        monkeypatch.delenv(name, raising=False)
    answer = link(parsed(), options(kb="birds"))
    assert answer["data"] == {
        "store": "/kb",
        "kb": "birds",
        "replaced": False,
        "created": False,
        "file": str(home / ".kbproc.toml"),
    }
    assert answer["meta"]["hint"] == "There is no store there yet: kbproc link --create makes it."
    monkeypatch.setenv("KBPROC_KB", "lakes")
    again = link(parsed(str(home)), options())
    assert again["data"]["replaced"]
    assert again["meta"]["notice"] == ["KBPROC_KB is set and comes first: the link counts without."]
    monkeypatch.setenv("KBPROC_STORE", "/other")
    assert link(parsed(), options())["meta"]["notice"] == [
        "KBPROC_STORE and KBPROC_KB are set and come first: the link counts without."
    ]
    assert unlink(parsed(), options())["data"] == {
        "store": "/kb",
        "kb": "default",
        "file": str(home / ".kbproc.toml"),
    }
    assert refusal(unlink, parsed(), options()).type == "resource.not_found"


def test_a_folder_to_link_must_exist_and_be_one(home: Path) -> None:
    error = refusal(link, parsed("nowhere"), options())
    assert (error.type, error.field) == ("resource.not_found", "FOLDER")
    assert error.message == f"There is no folder {home}/nowhere."
    error = refusal(link, parsed("a", "b"), options())
    assert (error.type, error.message) == (
        "input.invalid_params",
        "kbproc link takes [FOLDER]; 'b' is one too many.",
    )


def test_approving_a_store_says_where_texts_may_go(home: Path) -> None:
    store = home / "kb"
    store.mkdir()
    toml = store / "store.toml"
    toml.write_text("format = 2\n")
    config = {"store": store}
    plain = link(parsed(trust=True, store="kb"), options(config=config))
    assert plain["meta"]["notice"] == [
        "The store names neither endpoint nor model: there was nothing to approve."
    ]
    toml.write_text('format = 2\n[llm]\nurl = "http://llm:1/v1"\n[log]\nservers = ["nats://a:1"]\n')
    answer = link(parsed(trust=True, store="kb"), options(config=config))
    assert answer["data"] == {
        "store": str(store),
        "kb": None,
        "replaced": False,
        "created": False,
        "file": None,
    }
    (notice,) = answer["meta"]["notice"]
    assert notice == ("Texts may be sent to http://llm:1/v1. Texts may be sent to nats://a:1.")
    nowhere = options(config={"store": home / "nowhere"})
    assert refusal(link, parsed(trust=True, store="x"), nowhere).type == "resource.not_found"
