"""The settings of programs that start MCP servers.

Owns: where each keeps them, in which form, and putting this server into them without losing
anything: a file that can't be read as what it should be is left as it is.
Refuses to know: who asks, and whether the change is wanted.
"""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import Struct

from kbproc.base.durable import make_folder, replace
from kbproc.base.errors import KbprocError

NAME = "kbproc"


class Places(Struct, frozen=True, kw_only=True):
    """Folders: the user's home, where programs keep settings, and the project's."""

    home: Path
    settings: Path
    project: Path


class Client(Struct, frozen=True, kw_only=True):
    """`member`: of the settings, under which the servers stand by name."""

    path: Callable[[Places], Path]
    member: str
    entry: Callable[[list[str]], dict[str, Any]]
    is_toml: bool = False


class Change(Struct, frozen=True, kw_only=True):
    """What a file of settings would be. `before` is None where there is none."""

    path: Path
    before: str | None
    after: str

    @property
    def is_done(self) -> bool:
        return self.before == self.after

    def shown(self) -> str:
        """As a unified diff."""
        before = (self.before or "").splitlines(keepends=True)
        after = self.after.splitlines(keepends=True)
        old = "/dev/null" if self.before is None else str(self.path)
        return "".join(difflib.unified_diff(before, after, old, str(self.path)))

    def write(self) -> None:
        """Raises store.io."""
        path = Path(self.path).resolve()  # where it is a link, what it leads to
        try:
            make_folder(path.parent)
            mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
            replace(path, self.after.encode())
            path.chmod(mode)
        except OSError as error:
            said = f"{path} can't be written: {error.strerror}."
            raise KbprocError("store.io", said) from None


def _plain(command: list[str]) -> dict[str, Any]:
    return {"command": command[0], "args": command[1:]}


def _typed(command: list[str]) -> dict[str, Any]:
    return {"type": "stdio", **_plain(command)}


CLIENTS = {
    "claude-code": Client(
        path=lambda at: at.project / ".mcp.json", member="mcpServers", entry=_typed
    ),
    "codex": Client(
        path=lambda at: at.home / ".codex" / "config.toml",
        member="mcp_servers",
        entry=_plain,
        is_toml=True,
    ),
    "cursor": Client(
        path=lambda at: at.home / ".cursor" / "mcp.json", member="mcpServers", entry=_plain
    ),
    "vscode": Client(
        path=lambda at: at.project / ".vscode" / "mcp.json", member="servers", entry=_typed
    ),
    "zed": Client(
        path=lambda at: at.settings / "zed" / "settings.json",
        member="context_servers",
        entry=_plain,
    ),
}


def find(name: str) -> Client:
    """Raises input.invalid_params."""
    client = CLIENTS.get(name)
    if client is None:
        raise KbprocError(
            "input.invalid_params",
            f"There is no client {name!r} whose settings are known.",
            field="CLIENT",
            valid_values=list(CLIENTS),
            hint="Any other program is told the command: kbproc mcp.",
        )
    return client


def printed(name: str, command: list[str]) -> str:
    """What the settings of a client must hold. Raises input.invalid_params."""
    client = find(name)
    entry = client.entry(command)
    if client.is_toml:
        return _toml(client, entry)
    return _json({client.member: {NAME: entry}})


def change(name: str, command: list[str], places: Places) -> Change:
    """Raises input.invalid_params for settings that can't be read, store.io."""
    client = find(name)
    path = client.path(places)
    try:
        before = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        before = None
    except (OSError, UnicodeDecodeError) as error:
        raise _broken(name, path, str(error)) from None
    make = _with_toml if client.is_toml else _with_json
    return Change(path=path, before=before, after=make(name, path, before or "", command))


def _with_json(name: str, path: Path, before: str, command: list[str]) -> str:
    client = CLIENTS[name]
    try:
        settings = json.loads(before) if before.strip() else {}
    except ValueError as error:
        raise _broken(name, path, f"it is no JSON without comments: {error}") from None
    servers = settings.get(client.member, {}) if isinstance(settings, dict) else None
    if not isinstance(servers, dict):
        raise _broken(name, path, f"{client.member} is no object")
    entry = client.entry(command)
    if servers.get(NAME) == entry:
        return before
    return _json({**settings, client.member: {**servers, NAME: entry}})


def _with_toml(name: str, path: Path, before: str, command: list[str]) -> str:
    """Another table at the end, so that nothing else is touched."""
    client = CLIENTS[name]
    entry = client.entry(command)
    try:
        servers = tomllib.loads(before).get(client.member, {})
    except ValueError as error:
        raise _broken(name, path, f"it is no TOML: {error}") from None
    if not isinstance(servers, dict):
        raise _broken(name, path, f"{client.member} is no table")
    if servers.get(NAME) == entry:
        return before
    if NAME in servers:
        raise _broken(name, path, f"it has another [{client.member}.{NAME}] already")
    gap = "" if not before else "\n" if before.endswith("\n") else "\n\n"
    after = f"{before}{gap}{_toml(client, entry)}"
    try:
        tomllib.loads(after)
    except ValueError as error:
        raise _broken(name, path, f"a table can't be added: {error}") from None
    return after


def _json(settings: dict[str, Any]) -> str:
    return json.dumps(settings, indent=2, ensure_ascii=False) + "\n"


def _toml(client: Client, entry: dict[str, Any]) -> str:
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in entry.items()]
    return "\n".join([f"[{client.member}.{NAME}]", *lines, ""])


def _broken(name: str, path: Path, why: str) -> KbprocError:
    return KbprocError(
        "input.invalid_params",
        f"{path} stays as it is: {why}.",
        field="CLIENT",
        hint=f"Put in by hand what kbproc mcp --print-config {name} prints.",
    )
