"""Settings of coding agents: hooks go in and come out, and nothing else changes."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path
from typing import Any

import pytest

from kbproc.base import json_edit
from kbproc.base.clients import HOOKS, SKILLS, Places
from kbproc.base.errors import KbprocError
from kbproc.surfaces.hooks.protocol import NAMES
from kbproc.surfaces.setup import hooks as install
from kbproc.surfaces.setup.change import Change, write_change
from kbproc.surfaces.setup.skills import installed as skill
from tests.kit import shell
from tests.kit.shell import in_process, refused

# Settings as people and clients write them.
COMPACT = '{"model":"opus","permissions":{"allow":["Bash(ls:*)"]},"hooks":{"Stop":[]}}'
TABBED = """{
\t"env": { "A": "1" },\x20\x20
\t"hooks": {
\t\t"UserPromptSubmit": [
\t\t\t{ "matcher": "", "hooks": [ { "type": "command", "command": "date" } ] }
\t\t],
\t\t"PreToolUse" : [ ]
\t}
}"""
COMMENTED = """\ufeff// mine\r
{\r
  "theme": "dark", // kbproc hook prompt: no\r
  /* hooks of mine */\r
  "hooks": { "BeforeTool": [ { "hooks": [ { "type": "command", "command": "x" }, ] }, ], },\r
}\r
"""
CURSOR = '{ "version": 1,\n "hooks": { "sessionStart": [ { "command": "./a.sh" } ] } }\n'
TABLES = """# mine
model = "x"
[projects."/a"]
trust_level = "trusted"

[[hooks.SessionStart]]
matcher = "startup"
[[hooks.SessionStart.hooks]]
type = "command"
command = "date"

[hooks.state."/x"]
trusted_hash = "sha256:0"
[mcp_servers.kbproc]  # kbproc hook prompt
command = "kbproc\""""
SETTINGS = {
    "compact": ("claude-code", "settings.json", COMPACT),
    "tabs": ("claude-code", "settings.json", TABBED),
    "comments": ("gemini", "settings.json", COMMENTED),
    "flat": ("cursor", "hooks.json", CURSOR),
    "TOML": ("codex", "config.toml", TABLES),
    "Codex's JSON": ("codex", "hooks.json", TABBED),
    "empty": ("claude-code", "settings.json", ""),
    "blank": ("gemini", "settings.json", " \n"),
    "an empty object": ("claude-code", "settings.json", "{}"),
}


def places(folder: Path) -> Places:
    return Places(
        home=folder / "home",
        settings=folder / "config",
        data=folder / "data",
        project=folder / "project",
    )


def put(folder: Path, name: str) -> tuple[str, Path]:
    """Writes the settings of that name; returns their client and path."""
    client, file, text = SETTINGS[name]
    path = install.path_of(client, places(folder)).with_name(file)
    path.parent.mkdir(parents=True)
    path.write_bytes(text.encode())
    path.chmod(0o640)
    return client, path


def ours(path: Path) -> dict[str, list[str]]:
    """Returns event → the commands of kbproc."""
    text = path.read_text()
    settings: Any = tomllib.loads(text) if path.suffix == ".toml" else json_edit.parse(text)
    listed: dict[str, list[str]] = {}
    for event, groups in settings["hooks"].items():
        for group in groups if isinstance(groups, list) else []:
            for handler in group.get("hooks", [group]):
                if " hook " in handler["command"]:
                    listed.setdefault(event, []).append(handler["command"])
    return listed


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("times", [1, 3])
def test_a_removal_restores_every_byte(tmp_path: Path, name: str, times: int) -> None:
    client, path = put(tmp_path, name)
    before = now = path.read_bytes()
    for number in range(times):
        flags = {"--tokens": [str(300 + number)]}
        change = install.installed(client, flags, places(tmp_path))
        assert path.read_bytes() == now  # not before write()
        change.write()
        now = path.read_bytes()
        assert install.installed(client, flags, places(tmp_path)).is_done
    assert ours(path).keys() == set(HOOKS[client].names)
    assert all(len(commands) == 1 for commands in ours(path).values())
    assert path.stat().st_mode & 0o777 == 0o640
    install.removed(client, places(tmp_path)).write()
    assert path.read_bytes() == before
    assert install.removed(client, places(tmp_path)).is_done
    assert not (tmp_path / "config" / "kbproc" / "hooks-installed.json").exists()


def test_hooks_in_one_file_of_codex_go_though_another_is_there_now(tmp_path: Path) -> None:
    change = install.installed("codex", {}, places(tmp_path))
    change.write()
    change.path.with_name("hooks.json").write_text("{}")
    assert "hook prompt" in change.path.read_text()
    install.installed("codex", {}, places(tmp_path)).write()
    install.removed("codex", places(tmp_path)).write()
    assert not change.path.exists()
    assert change.path.with_name("hooks.json").read_text() == "{}"


@pytest.mark.parametrize("name", SETTINGS)
def test_without_a_record_only_the_hooks_go(tmp_path: Path, name: str) -> None:
    client, path = put(tmp_path, name)
    install.installed(client, {}, places(tmp_path)).write()
    if path.suffix == ".toml":
        path.write_text("a = 1\n" + path.read_text() + '\n[b]\nc = "d"\n')
    else:
        path.write_text(json_edit.put(path.read_text(), ("added",), "later"))
    install.removed(client, places(tmp_path)).write()
    text, (_, _, old) = path.read_text(), SETTINGS[name]
    assert "hook session-start" not in text
    if path.suffix == ".toml":
        before = tomllib.loads(old)
        assert tomllib.loads(text) == {"a": 1, "b": {"c": "d"}, **before}
    else:
        before = json_edit.parse(old) if old.strip() else {}
        hooks = {k: v for k, v in before.pop("hooks", {}).items() if v}
        now = json_edit.parse(text)
        assert now.pop("added") == "later"
        assert {k: v for k, v in now.pop("hooks", {}).items() if v} == hooks
        now.pop("version", None), before.pop("version", None)
        assert now == before


OWN = [
    "kbproc hook prompt | tee -a /tmp/log",
    "date && kbproc hook prompt --tokens 300",
    "my-kbproc hook prompt",
    "sh -c 'kbproc hook prompt'",
    "# kbproc hook prompt",
]


@pytest.mark.parametrize("command", OWN)
def test_a_handler_of_a_persons_own_that_mentions_kbproc_stays(
    tmp_path: Path, command: str
) -> None:
    handler = {"type": "command", "command": command}
    text = json.dumps({"hooks": {"UserPromptSubmit": [{"hooks": [handler]}]}})
    _, path = put(tmp_path, "compact")
    path.write_text(text)
    install.installed("claude-code", {}, places(tmp_path)).write()
    install.installed("claude-code", {"--tokens": ["300"]}, places(tmp_path)).write()
    path.write_text(json_edit.put(path.read_text(), ("added",), "later"))
    install.removed("claude-code", places(tmp_path)).write()
    assert json.loads(path.read_text()) == {**json.loads(text), "added": "later"}


def test_what_is_saved_before_the_answer_is_planned_anew(tmp_path: Path) -> None:
    _, path = put(tmp_path, "compact")
    messages: list[str] = []

    def show(text: str) -> None:
        if not messages:  # a client saves while the person reads
            path.write_text(json_edit.put(path.read_text(), ("saved",), True))
        messages.append(text)

    def plan() -> Change:
        return install.installed("claude-code", {}, places(tmp_path))

    assert write_change(plan, show, done="", agreed=True) == 0
    settings = json.loads(path.read_text())
    assert settings["saved"] is True and "UserPromptSubmit" in settings["hooks"]
    assert "planned anew" in messages[1] and messages[3].startswith("Written: ")
    assert (
        write_change(
            lambda: install.removed("gemini", places(tmp_path)), show, done="is out", agreed=True
        )
        == 0
    )


def test_a_pipe_in_the_place_of_settings_is_refused_at_once(tmp_path: Path) -> None:
    _, path = put(tmp_path, "compact")
    path.unlink()
    os.mkfifo(path)
    for plan in (install.installed, lambda name, _, at: install.removed(name, at)):
        with pytest.raises(KbprocError, match="no regular file") as caught:
            plan("claude-code", {}, places(tmp_path))
        assert caught.value.type == "input.invalid_params"


@pytest.mark.parametrize("client", HOOKS)
def test_a_file_that_the_installation_made_goes(tmp_path: Path, client: str) -> None:
    change = install.installed(client, {}, places(tmp_path))
    change.write()
    assert change.path.stat().st_mode & 0o777 == 0o600
    install.removed(client, places(tmp_path)).write()
    assert not change.path.exists()


@pytest.mark.parametrize(
    "text", ["[1]", "{", '{"hooks": []}', '{"hooks": {"UserPromptSubmit": {}}}', '{"hooks": 1}']
)
def test_settings_that_can_t_be_changed_stay(tmp_path: Path, text: str) -> None:
    _, path = put(tmp_path, "compact")
    path.write_text(text)
    with pytest.raises(KbprocError) as caught:
        install.installed("claude-code", {}, places(tmp_path))
    assert caught.value.type == "input.invalid_params" and path.read_text() == text


def test_flags_stand_in_the_commands_that_they_concern(tmp_path: Path) -> None:
    flags = {
        "--tokens": ["300"],
        "--start-tokens": ["900"],
        "--deadline-ms": ["2500"],
        "--quote": ["web"],
        "--record": [True],
        "--store": [str(tmp_path / "a b")],
        "--yes": [True],
    }
    install.installed("claude-code", flags, places(tmp_path)).write()
    path = install.path_of("claude-code", places(tmp_path))
    commands = {event: lines[0].partition(" hook ")[2] for event, lines in ours(path).items()}
    rest = f"--deadline-ms 2500 --quote web --store '{tmp_path}/a b'"
    assert commands["UserPromptSubmit"] == f"prompt --tokens 300 {rest}"
    record = rest.replace("--store", "--record --store")
    assert commands["SessionEnd"] == f"session-end {record}"
    assert commands["SessionStart"] == f"session-start --tokens 900 {rest}"
    assert commands["PreCompact"] == f"pre-compact {record}"
    assert json.loads(path.read_text())["hooks"]["PreCompact"][0]["hooks"][0]["timeout"] == 7


def test_recording_has_a_deadline_of_its_own(tmp_path: Path) -> None:
    install.installed("claude-code", {"--record": [True]}, places(tmp_path)).write()
    hooks = json.loads(install.path_of("claude-code", places(tmp_path)).read_text())["hooks"]
    seconds = {event: groups[0]["hooks"][0]["timeout"] for event, groups in hooks.items()}
    assert (seconds["UserPromptSubmit"], seconds["SessionEnd"]) == (5, 34)


@pytest.mark.parametrize(
    "flags", [{"--tokens": ["9"]}, {"--quote": ["all"]}, {"--deadline-ms": ["5"]}]
)
def test_wrong_flags_are_refused(tmp_path: Path, flags: dict[str, list[str]]) -> None:
    with pytest.raises(KbprocError, match=next(iter(flags))):
        install.installed("claude-code", flags, places(tmp_path))


def test_as_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = in_process(tmp_path, monkeypatch, capsys)
    path = tmp_path / ".claude" / "settings.json"
    code, out, err = run("hook", "install", "claude-code")
    assert (code, json.loads(err)["error"]["type"]) == (10, "input.confirmation_required")
    assert "+++ " in out and not path.exists()
    code, out, _ = run("hook", "install", "claude-code", "--yes")
    assert code == 0 and "+++ " in out and "hook prompt" in path.read_text()
    assert run("hook", "remove", "claude-code", "--yes")[0] == 0 and not path.exists()
    for verb in ("install", "remove"):
        assert refused(run, "hook", verb, "claud-code")["valid_values"] == list(HOOKS)
    assert "install" in refused(run, "hook")["valid_values"]
    assert run("skills", "install", "--yes")[0] == 0
    written = tmp_path / ".agents" / "skills" / "kbproc" / "SKILL.md"
    assert written.read_text().startswith("---\nname: kbproc\n")
    assert "has the skill already" in run("skills", "install")[1]
    assert refused(run, "skills", "install", "emacs")["valid_values"] == list(SKILLS)


def test_an_installation_names_what_the_hooks_need_in_this_folder(tmp_path: Path) -> None:
    env = shell.environment(tmp_path)
    del env["KBPROC_STORE"]
    trusted = tmp_path / ".config" / "kbproc" / "trusted.json"

    def last_line(*words: str) -> str:
        ran = shell.run(words, cwd=tmp_path, env=env)
        assert ran.code == 0, ran.err
        return ran.out.splitlines()[-1]

    hook = ("hook", "install", "claude-code", "--yes")
    assert "say nothing in this folder yet" in last_line(*hook)
    assert "kbproc link --create" in last_line(*hook)
    assert last_line(*hook, "--store", "store").startswith("Written: ")
    last_line("link", "--store", "store")
    assert last_line(*hook).startswith("Written: ")
    trusted.unlink()
    assert "kbproc link --trust" in last_line(*hook)
    last_line("link", "--trust")
    assert last_line(*hook).endswith("has the hooks already.")


def test_hooks_among_a_clients_own_tables_go_alone(tmp_path: Path) -> None:
    """Codex writes its settings anew, and people write between ours."""
    _, path = put(tmp_path, "TOML")
    install.installed("codex", {}, places(tmp_path)).write()
    own = '\n# mine, too\n[[hooks.Stop]]\n[[hooks.Stop.hooks]]\ncommand = "date"\n'
    path.write_text(f"b = 1\n{path.read_text()}{own}")
    install.installed("codex", {"--tokens": ["300"]}, places(tmp_path)).write()
    assert {event: len(commands) for event, commands in ours(path).items()} == dict.fromkeys(
        HOOKS["codex"].names, 1
    )
    install.removed("codex", places(tmp_path)).write()
    assert path.read_text() == f"b = 1\n{TABLES}\n{own}"


def test_hooks_in_one_value_with_a_persons_own_are_refused(tmp_path: Path) -> None:
    _, path = put(tmp_path, "TOML")
    command = "kbproc hook session-end"
    text = f'hooks.Stop = [{{ command = "date" }}, {{ command = "{command}" }}]\n'
    path.write_text(text)
    with pytest.raises(KbprocError, match="can't be changed: others stand in one member with"):
        install.removed("codex", places(tmp_path))
    assert path.read_text() == text


def test_every_event_of_a_client_is_one_that_a_hook_reads() -> None:
    for hooks in HOOKS.values():
        assert all(name in NAMES[event] for event, name in hooks.events.items())
        assert set(hooks.tools) <= set(NAMES["tool"])


@pytest.mark.parametrize("client", SKILLS)
def test_every_client_has_a_folder_of_skills(tmp_path: Path, client: str) -> None:
    path = skill(client, places(tmp_path)).path
    assert path.parts[-3:] == ("skills", "kbproc", "SKILL.md")
