"""Settings of MCP clients: kbproc changes them on request, and never breaks them."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path
from subprocess import PIPE
from typing import Any, NamedTuple

import pytest

from kbproc.base import json_edit
from kbproc.base.clients import SERVERS, Places
from kbproc.base.errors import KbprocError
from kbproc.surfaces.setup import servers as setup
from kbproc.surfaces.setup.change import editor_of
from kbproc.surfaces.setup.servers import ServerEntry
from tests.kit.patience import PATIENCE
from tests.kit.shell import environment
from tests.kit.start import start

COMMAND = ["/usr/bin/kbproc", "mcp", "--tools", "minimal"]
SERVER = ServerEntry(command=COMMAND, env={"KBPROC_LLM_URL": "http://localhost:8080/v1"})
JSON = [name for name in SERVERS if not SERVERS[name].file.endswith(".toml")]
# Settings as people write them: comments, trailing commas, tabs, a server of their own.
COMMENTED = """// Zed settings
{
\t"theme": "One Dark", // dark
\t/* servers of mine */
\t"MEMBER": {
\t\t"other": { "command": "other" }, // "kbproc": no
\t},
}
"""
TABLES = """# mine
model = "x"

[mcp_servers.kbproc]
command = "old"
# a slow disk
startup_timeout_sec = 60
args = [
  "mcp", # the server
  "--store", "/elsewhere",
]

[mcp_servers.kbproc.env]
KBPROC_LLM_URL = "http://elsewhere"
LANG = "C"

[mcp_servers.other]  # another
command = "other"
"""


class Ran(NamedTuple):
    code: int
    out: str
    err: str


def run(folder: Path, *argv: str, **variables: str) -> Ran:
    env = {"PATH": "/usr/bin:/bin", **environment(folder), **variables}
    command = ["-m", "kbproc", *argv]
    process = start(command, cwd=folder, env=env, stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True)
    out, err = process.communicate(timeout=PATIENCE)
    return Ran(process.returncode, out, err)


def places(folder: Path, **variables: str) -> Places:
    return Places(
        home=folder / "home",
        settings=folder / "config",
        data=folder / "data",
        project=folder / "project",
        variables=variables,
    )


def read(name: str, text: str) -> Any:
    return editor_of(SERVERS[name].file).parse(text)


def servers(name: str, text: str) -> Any:
    return read(name, text)[SERVERS[name].member]


def put(name: str, text: str, folder: Path) -> Path:
    path = setup.path_of(name, places(folder))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return path


def command_of(entry: Any) -> list[str]:
    command = entry["command"]
    return list(command) if isinstance(command, list) else [command, *entry["args"]]


@pytest.mark.parametrize("name", SERVERS)
def test_what_is_printed_is_what_is_installed(tmp_path: Path, name: str) -> None:
    change = setup.installed(name, SERVER, places(tmp_path))
    assert read(name, change.after) == read(name, setup.printed(name, SERVER))
    entry = servers(name, change.after)["kbproc"]
    assert command_of(entry) == COMMAND
    assert entry[SERVERS[name].env] == SERVER.env
    assert not change.path.exists()  # not before write()
    change.write()
    assert change.path.read_text() == change.after
    assert setup.installed(name, SERVER, places(tmp_path)).is_done


@pytest.mark.parametrize("name", SERVERS)
def test_what_else_is_in_the_settings_stays(tmp_path: Path, name: str) -> None:
    member = SERVERS[name].member
    text = json.dumps({"model": "x", member: {"other": {"command": "other"}}})
    if name not in JSON:
        text = f'# mine\nmodel = "x"\n\n[{member}.other]\ncommand = "other"'
    path = put(name, text, tmp_path)
    path.chmod(0o640)
    change = setup.installed(name, SERVER, places(tmp_path))
    assert "+" in change.shown() and str(path) in change.shown()
    change.write()
    assert read(name, path.read_text())["model"] == "x"
    assert servers(name, path.read_text()).keys() == {"other", "kbproc"}
    assert path.stat().st_mode & 0o777 == 0o640
    if name not in JSON:
        assert path.read_text().startswith("# mine\n")
    setup.removed(name, places(tmp_path)).write()
    assert path.read_text().strip() == text
    assert setup.removed(name, places(tmp_path)).is_done


@pytest.mark.parametrize("name", JSON)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_comments_stay_and_an_uninstallation_restores_every_byte(
    tmp_path: Path, name: str, newline: str
) -> None:
    text = COMMENTED.replace("MEMBER", SERVERS[name].member).replace("\n", newline)
    path = put(name, text, tmp_path)
    change = setup.installed(name, SERVER, places(tmp_path))
    lines = change.after.splitlines(keepends=True)
    old = text.splitlines(keepends=True)
    assert [line for line in lines if line in old] == old
    assert all(line.endswith(newline) for line in lines)
    change.write()
    assert servers(name, path.read_text())["kbproc"].keys() >= {"command"}
    setup.removed(name, places(tmp_path)).write()
    assert path.read_bytes() == text.encode()


@pytest.mark.parametrize("name", SERVERS)
def test_a_file_that_the_installation_made_goes_with_it(tmp_path: Path, name: str) -> None:
    at = places(tmp_path)
    change = setup.installed(name, SERVER, at)
    change.write()
    setup.installed(name, ServerEntry(command=["other"]), at).write()  # creates no file
    removed = setup.removed(name, at)
    assert "+++ /dev/null" in removed.shown()
    removed.write()
    assert not change.path.exists()
    assert setup.removed(name, at).is_done
    assert list((at.settings / "kbproc").iterdir()) == []


@pytest.mark.parametrize("name", SERVERS)
def test_a_file_that_others_use_meanwhile_stays(tmp_path: Path, name: str) -> None:
    at = places(tmp_path)
    change = setup.installed(name, SERVER, at)
    change.write()
    if name not in JSON:
        own = 'model = "x"\n' + change.path.read_text()
    else:
        own = json_edit.put(change.path.read_text(), ("model",), "x")
    change.path.write_text(own)
    setup.removed(name, at).write()
    assert read(name, change.path.read_text()) == {"model": "x"}


@pytest.mark.parametrize("name", JSON)
@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "{}\n",
        '{"model": "x"}',
        '{\n  "model": "x"\n}\n',
        '{\n\t"model": "x", // mine\n}\n',
        '{"MEMBER": {}}',
        '{\n  "MEMBER": {}\n}\n',
        '{\n  "model": "x",\n  "MEMBER": {},\n  "theme": "y"\n}\n',
        '{"MEMBER": {"other": {"command": "other"}}}',
    ],
)
def test_an_uninstallation_leaves_what_was_there_before(
    tmp_path: Path, name: str, text: str
) -> None:
    text = text.replace("MEMBER", SERVERS[name].member)
    path = put(name, text, tmp_path)
    setup.installed(name, SERVER, places(tmp_path)).write()
    setup.removed(name, places(tmp_path)).write()
    assert read(name, path.read_text()) == read(name, text)
    assert path.read_text().split() == text.split()


@pytest.mark.parametrize("name", JSON)
def test_an_object_with_a_comment_or_another_server_stays(tmp_path: Path, name: str) -> None:
    member, at = SERVERS[name].member, places(tmp_path)
    path = put(name, "{}", tmp_path)
    for added in ('// mine\n"kbproc"', '"other": {"command": "other"}, "kbproc"'):
        setup.installed(name, SERVER, at).write()
        path.write_text(path.read_text().replace('"kbproc"', added, 1))
        setup.removed(name, at).write()
        assert member in read(name, path.read_text())


@pytest.mark.parametrize("name", JSON)
def test_an_installation_is_not_refused_where_nothing_can_be_kept(
    tmp_path: Path, name: str
) -> None:
    at = places(tmp_path)
    path = put(name, "{}", tmp_path)
    (at.settings / "kbproc").parent.mkdir(exist_ok=True)
    (at.settings / "kbproc").write_text("no folder")
    setup.installed(name, SERVER, at).write()
    setup.removed(name, at).write()
    assert read(name, path.read_text()) == {SERVERS[name].member: {}}


@pytest.mark.parametrize("name", JSON)
def test_an_entry_changes_and_keeps_what_the_user_added(tmp_path: Path, name: str) -> None:
    env = SERVERS[name].env
    setup.installed(
        name, ServerEntry(command=["old"], env={"KBPROC_LLM_MODEL": "m"}), places(tmp_path)
    ).write()
    path = setup.path_of(name, places(tmp_path))
    text = json_edit.put(path.read_text(), (SERVERS[name].member, "kbproc", "timeout"), 600)
    own = {"LANG": "C", "KBPROC_LLM_API_KEY": "key", "KBPROC_PROFILE": "work"}
    for variable, value in own.items():
        text = json_edit.put(text, (SERVERS[name].member, "kbproc", env, variable), value)
    path.write_text(text.replace('"timeout"', '// slow\n"timeout"'))
    setup.installed(name, SERVER, places(tmp_path)).write()
    entry = servers(name, path.read_text())["kbproc"]
    assert command_of(entry) == COMMAND
    assert entry["timeout"] == 600 and "// slow" in path.read_text()
    assert entry[env] == {**own, **SERVER.env}


@pytest.mark.parametrize("name", JSON)
def test_an_entry_of_another_kind_is_replaced(tmp_path: Path, name: str) -> None:
    entry = {"url": "https://kb.example/mcp", "headers": {}}
    path = put(name, json.dumps({SERVERS[name].member: {"kbproc": entry}}), tmp_path)
    setup.installed(name, SERVER, places(tmp_path)).write()
    assert "url" not in servers(name, path.read_text())["kbproc"]


def test_a_table_changes_and_keeps_what_the_user_added(tmp_path: Path) -> None:
    path = put("codex", TABLES, tmp_path)
    setup.installed("codex", SERVER, places(tmp_path)).write()
    entry = servers("codex", path.read_text())["kbproc"]
    assert command_of(entry) == COMMAND
    assert entry["startup_timeout_sec"] == 60
    assert entry["env"] == {"LANG": "C", **SERVER.env}
    text = path.read_text()
    assert "# a slow disk\n" in text and '[mcp_servers.other]  # another\ncommand = "other"' in text
    setup.removed("codex", places(tmp_path)).write()
    assert servers("codex", path.read_text()) == {"other": {"command": "other"}}
    assert path.read_text().startswith('# mine\nmodel = "x"\n')


@pytest.mark.parametrize(
    "text",
    [
        '[mcp_servers]\nkbproc = { command = "old", args = [] }\nother = { command = "other" }\n',
        'mcp_servers.kbproc.command = "old"\nmcp_servers.other.command = "other"\n',
        '[mcp_servers.other]\ncommand = "other"\n[mcp_servers."kbproc"]\ncommand = "old"',
        '[mcp_servers.kbproc.env]\nLANG = "C"\n[mcp_servers.other]\ncommand = "other"\n',
    ],
)
def test_a_table_changes_however_it_is_written(tmp_path: Path, text: str) -> None:
    path = put("codex", text, tmp_path)
    setup.installed("codex", SERVER, places(tmp_path)).write()
    assert command_of(servers("codex", path.read_text())["kbproc"]) == COMMAND
    setup.removed("codex", places(tmp_path)).write()
    assert servers("codex", path.read_text()) == {"other": {"command": "other"}}


def test_a_table_in_one_line_with_others_is_left_to_a_person(tmp_path: Path) -> None:
    text = 'mcp_servers = { kbproc = { command = "old" }, other = { command = "other" } }\n'
    path = put("codex", text, tmp_path)
    for change in (
        lambda: setup.installed("codex", SERVER, places(tmp_path)),
        lambda: setup.removed("codex", places(tmp_path)),
    ):
        with pytest.raises(KbprocError, match="stays as it is") as raised:
            change()
        assert "the server kbproc in mcp_servers by hand" in str(raised.value.hint)
    assert path.read_text() == text


@pytest.mark.parametrize("name", SERVERS)
@pytest.mark.parametrize("broken", [b"{", b"\xff\xfe", b"{} {}", b"[1]"])
def test_a_broken_file_is_never_overwritten(tmp_path: Path, name: str, broken: bytes) -> None:
    path = put(name, "", tmp_path)
    if name not in JSON and broken == b"[1]":
        broken = b"mcp_servers = 1"
    path.write_bytes(broken)
    with pytest.raises(KbprocError) as caught:
        setup.installed(name, SERVER, places(tmp_path))
    assert "--print-config" in str(caught.value.hint)
    with pytest.raises(KbprocError):
        setup.removed(name, places(tmp_path))
    assert path.read_bytes() == broken


@pytest.mark.parametrize("name", SERVERS)
@pytest.mark.parametrize("text", ["", "\n"])
def test_a_file_that_is_empty_is_filled(tmp_path: Path, name: str, text: str) -> None:
    path = put(name, text, tmp_path)
    setup.installed(name, SERVER, places(tmp_path)).write()
    assert command_of(servers(name, path.read_text())["kbproc"]) == COMMAND


def test_a_link_is_followed_and_stays(tmp_path: Path) -> None:
    path = put("cursor", "{}", tmp_path)
    path.rename(tmp_path / "real.json")
    path.symlink_to(tmp_path / "real.json")
    setup.installed("cursor", SERVER, places(tmp_path)).write()
    assert path.is_symlink() and "kbproc" in (tmp_path / "real.json").read_text()


@pytest.mark.parametrize(
    "name, variable, file",
    [
        ("codex", "CODEX_HOME", "config.toml"),
        ("gemini", "GEMINI_CLI_HOME", ".gemini/settings.json"),
        ("qwen", "QWEN_HOME", "settings.json"),
    ],
)
def test_a_client_that_keeps_its_settings_elsewhere_is_followed(
    tmp_path: Path, name: str, variable: str, file: str
) -> None:
    at = places(tmp_path, **{variable: str(tmp_path / "there")})
    assert setup.installed(name, SERVER, at).path == tmp_path / "there" / file


def test_opencode_with_comments_keeps_its_file(tmp_path: Path) -> None:
    path = put("opencode", "", tmp_path)
    path.rename(path.with_suffix(".jsonc"))
    assert setup.installed("opencode", SERVER, places(tmp_path)).path.name == "opencode.jsonc"


@pytest.mark.parametrize("name", SERVERS)
def test_a_project_shares_its_file_and_a_user_does_not(tmp_path: Path, name: str) -> None:
    change = setup.installed(name, SERVER, places(tmp_path))
    old = os.umask(0o077)  # the umask of kbproc
    try:
        change.write()
    finally:
        os.umask(old)
    mode = 0o644 if SERVERS[name].is_project else 0o600
    assert change.path.stat().st_mode & 0o777 == mode


# ------------------------------------------------------------------------------- the shell


def entry_of(path: Path, name: str = "claude-code") -> Any:
    return servers(name, path.read_text())["kbproc"]


def test_the_shell_shows_the_change_and_asks(tmp_path: Path) -> None:
    preview = run(tmp_path, "mcp", "install", "claude-code", "--tools", "minimal")
    assert preview.code == 10 and "+" in preview.out
    assert not (tmp_path / ".mcp.json").exists()
    done = run(tmp_path, "mcp", "install", "claude-code", "--tools", "minimal", "--yes")
    assert done.code == 0 and "approve" in done.out
    args = entry_of(tmp_path / ".mcp.json")["args"]
    assert args[args.index("mcp") :][:3] == ["mcp", "--tools", "minimal"]
    again = run(tmp_path, "mcp", "install", "claude-code", "--tools", "minimal")
    assert again.code == 0 and "already" in again.out
    changed = run(tmp_path, "mcp", "install", "claude-code", "--tools", "all", "--yes")
    assert changed.code == 0 and "all" in entry_of(tmp_path / ".mcp.json")["args"]
    uninstalled = run(tmp_path, "mcp", "uninstall", "claude-code", "--yes")
    assert uninstalled.code == 0
    assert not (tmp_path / ".mcp.json").exists()
    assert run(tmp_path, "mcp", "uninstall", "claude-code").code == 0


def test_the_shell_prints_what_belongs_into_the_settings(tmp_path: Path) -> None:
    printed = run(tmp_path, "mcp", "--print-config", "codex", "--store", "kb")
    entry = tomllib.loads(printed.out)["mcp_servers"]["kbproc"]
    assert entry["args"][-2:] == ["--store", str(tmp_path / "kb")]


def test_the_command_says_what_the_environment_says(tmp_path: Path) -> None:
    """The command repeats the environment, because clients start servers with few variables."""
    assert run(tmp_path, "agent", "create", "bot").code == 0
    store = str(tmp_path / "store")
    chosen = {
        "KBPROC_AGENT": "bot",
        "KBPROC_KB": "default",
        "KBPROC_LOG_LEVEL": "debug",
        "KBPROC_LLM_URL": "http://localhost:8080/v1",
        "KBPROC_LLM_API_KEY": "secret",
        "CODEX_HOME": str(tmp_path / "codex"),
    }
    done = run(tmp_path, "mcp", "install", "codex", "--log-level", "error", "--yes", **chosen)
    assert done.code == 0, done.err
    entry = entry_of(tmp_path / "codex" / "config.toml", "codex")
    args = entry["args"][entry["args"].index("mcp") :]
    assert args[:3] == ["mcp", "--log-level", "error"]
    assert {args[n]: args[n + 1] for n in range(3, len(args), 2)} == {
        "--store": store,
        "--kb": "default",
        "--agent": "bot",
    }
    assert entry["env"]["KBPROC_LLM_URL"] == chosen["KBPROC_LLM_URL"]
    assert entry["env"]["XDG_CONFIG_HOME"] == str(tmp_path / ".config")
    assert f"--store {store} (KBPROC_STORE), --kb default (KBPROC_KB)" in done.out
    assert "secret" not in done.out and "KBPROC_LLM_API_KEY_FILE" in done.out


def test_another_folder_of_data_is_named_in_the_command(tmp_path: Path) -> None:
    data = {"KBPROC_STORE": "", "XDG_DATA_HOME": str(tmp_path / "data")}
    printed = run(tmp_path, "mcp", "--print-config", "codex", **data)
    entry = tomllib.loads(printed.out)["mcp_servers"]["kbproc"]
    assert entry["args"][-2:] == ["--store", str(tmp_path / "data" / "kbproc")]
    assert "XDG_DATA_HOME" in printed.err


def test_a_project_gets_a_command_that_works_elsewhere(tmp_path: Path) -> None:
    programs, project = tmp_path / "bin", tmp_path / "project"
    for folder in (programs, project):
        folder.mkdir()
    (programs / "kbproc").write_text("#!/bin/sh\n")
    (programs / "kbproc").chmod(0o755)
    (project / "kb").mkdir()
    install = ["mcp", "install", "claude-code", "--root", "project/kb", "--yes"]
    done = run(tmp_path, *install, PATH=f"{programs}:/usr/bin:/bin", HOME=str(tmp_path))
    assert done.code == 0, done.err
    entry = entry_of(tmp_path / ".mcp.json")
    assert entry["command"] == "kbproc"
    assert entry["args"] == ["mcp", "--root", "project/kb", "--store", "store"]
    assert (tmp_path / ".mcp.json").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(
    "args",
    [
        ["install"],
        ["install", "emacs"],
        ["--print-config", "emacs"],
        ["instal", "zed"],
        ["uninstall"],
        ["uninstall", "emacs"],
        ["install", "zed", "--tools", "everything"],
        ["install", "zed", "--scopes", "doc:reed"],
        ["install", "zed", "--root", "nowhere"],
    ],
)
def test_a_mistake_is_refused_before_anything_is_written(tmp_path: Path, args: list[str]) -> None:
    ran = run(tmp_path, "mcp", *args, "--yes")
    assert ran.code == 1 and '"input.invalid_params"' in ran.err
    assert not (tmp_path / ".config" / "zed").exists()


@pytest.mark.parametrize("flags", [["--agent", "nobody"], ["--kb", "nowhere"]])
def test_names_that_the_store_does_not_know_are_refused(tmp_path: Path, flags: list[str]) -> None:
    ran = run(tmp_path, "mcp", "install", "zed", *flags, "--yes")
    assert ran.code == 5 and flags[0] in ran.err
    assert not (tmp_path / ".config" / "zed").exists()
