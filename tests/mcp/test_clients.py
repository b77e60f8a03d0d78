"""The settings of programs that start servers: changed when asked, and never broken."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from subprocess import PIPE
from typing import Any, NamedTuple

import pytest

from kbproc.base.errors import KbprocError
from kbproc.mcp.setup import clients
from kbproc.mcp.setup.clients import CLIENTS, Places
from tests.kit.patience import PATIENCE
from tests.kit.shell import environment
from tests.kit.start import start

COMMAND = ["/usr/bin/kbproc", "mcp", "--tools", "minimal"]


class Ran(NamedTuple):
    code: int
    out: str


def run(folder: Path, *argv: str) -> Ran:
    env = {"PATH": "/usr/bin:/bin", **environment(folder)}
    command = ["-m", "kbproc", *argv]
    process = start(command, cwd=folder, env=env, stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True)
    out, _ = process.communicate(timeout=PATIENCE)
    return Ran(process.returncode, out)


def places(folder: Path) -> Places:
    return Places(home=folder / "home", settings=folder / "config", project=folder / "project")


def read(name: str, text: str) -> Any:
    return tomllib.loads(text) if CLIENTS[name].is_toml else json.loads(text)


def servers(name: str, text: str) -> Any:
    return read(name, text)[CLIENTS[name].member]


@pytest.mark.parametrize("name", CLIENTS)
def test_what_is_printed_is_what_is_installed(tmp_path: Path, name: str) -> None:
    change = clients.change(name, COMMAND, places(tmp_path))
    assert read(name, change.after) == read(name, clients.printed(name, COMMAND))
    entry = servers(name, change.after)["kbproc"]
    assert (entry["command"], entry["args"]) == (COMMAND[0], COMMAND[1:])
    assert not change.path.exists()  # until it is written
    change.write()
    assert change.path.read_text() == change.after
    assert clients.change(name, COMMAND, places(tmp_path)).is_done


@pytest.mark.parametrize("name", CLIENTS)
def test_what_else_is_in_the_settings_stays(tmp_path: Path, name: str) -> None:
    member = CLIENTS[name].member
    path = CLIENTS[name].path(places(tmp_path))
    path.parent.mkdir(parents=True)
    if CLIENTS[name].is_toml:
        path.write_text(f'# mine\nmodel = "x"\n\n[{member}.other]\ncommand = "other"')
    else:
        path.write_text(json.dumps({"model": "x", member: {"other": {"command": "other"}}}))
    path.chmod(0o644)
    change = clients.change(name, COMMAND, places(tmp_path))
    assert "+" in change.shown() and str(path) in change.shown()
    change.write()
    assert read(name, path.read_text())["model"] == "x"
    assert servers(name, path.read_text()).keys() == {"other", "kbproc"}
    assert path.stat().st_mode & 0o777 == 0o644
    if CLIENTS[name].is_toml:
        assert path.read_text().startswith("# mine\n")


@pytest.mark.parametrize("name", CLIENTS)
@pytest.mark.parametrize("broken", [b"{", b"\xff\xfe", b"// a comment\n{}", b"[1]"])
def test_a_broken_file_is_never_overwritten(tmp_path: Path, name: str, broken: bytes) -> None:
    path = CLIENTS[name].path(places(tmp_path))
    path.parent.mkdir(parents=True)
    if CLIENTS[name].is_toml and broken == b"[1]":
        broken = b"mcp_servers = 1"
    path.write_bytes(broken)
    with pytest.raises(KbprocError) as caught:
        clients.change(name, COMMAND, places(tmp_path))
    assert "--print-config" in str(caught.value.hint)
    assert path.read_bytes() == broken


def test_a_link_is_followed_and_stays(tmp_path: Path) -> None:
    at = places(tmp_path)
    path = CLIENTS["cursor"].path(at)
    path.parent.mkdir(parents=True)
    (tmp_path / "real.json").write_text("{}")
    path.symlink_to(tmp_path / "real.json")
    clients.change("cursor", COMMAND, at).write()
    assert path.is_symlink() and "kbproc" in (tmp_path / "real.json").read_text()


def test_the_shell_shows_the_change_and_asks(tmp_path: Path) -> None:
    asked = run(tmp_path, "mcp", "install", "claude-code", "--tools", "minimal")
    assert asked.code == 10 and "+" in asked.out
    assert not (tmp_path / ".mcp.json").exists()
    done = run(tmp_path, "mcp", "install", "claude-code", "--tools", "minimal", "--yes")
    assert done.code == 0
    entry = json.loads((tmp_path / ".mcp.json").read_text())["mcpServers"]["kbproc"]
    assert entry["args"][-3:] == ["mcp", "--tools", "minimal"]
    again = run(tmp_path, "mcp", "install", "claude-code", "--tools", "minimal")
    assert again.code == 0 and "already" in again.out


def test_the_shell_prints_what_belongs_into_the_settings(tmp_path: Path) -> None:
    printed = run(tmp_path, "mcp", "--print-config", "codex", "--store", "kb")
    entry = tomllib.loads(printed.out)["mcp_servers"]["kbproc"]
    assert entry["args"][-2:] == ["--store", str(tmp_path / "kb")]


@pytest.mark.parametrize(
    "args", [["install"], ["install", "emacs"], ["--print-config", "emacs"], ["instal", "zed"]]
)
def test_a_client_that_is_none_is_told(tmp_path: Path, args: list[str]) -> None:
    assert run(tmp_path, "mcp", *args).code == 1
