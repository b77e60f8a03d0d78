"""The settings of programs that start MCP servers.

Owns: where each keeps them, in which form, and putting this server into them or taking it out
without losing anything: a file that can't be read as what it should be is left as it is.
Refuses to know: who asks, and whether the change is wanted.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from kbproc.base.durable import make_folder, replace
from kbproc.base.errors import KbprocError
from kbproc.base.paths import absolute
from kbproc.base.suggest import closest, did_you_mean
from kbproc.mcp.setup import jsonc, tables

NAME = "kbproc"
_PROJECT_MODE = 0o644  # a project's file is for everybody who works on it
_USER_MODE = 0o600


class Places(Struct, frozen=True, kw_only=True):
    """Folders: the user's home, where programs keep settings, and the project's.

    `variables`: the environment, in which some clients name other folders.
    """

    home: Path
    settings: Path
    project: Path
    variables: Mapping[str, str] = {}

    def named_by(self, variable: str, default: Path) -> Path:
        """Raises input.invalid_params for a variable that holds no path."""
        path = self.variables.get(variable)
        return absolute(path, field=variable) if path else default


class Server(Struct, frozen=True, kw_only=True):
    """The command that starts the server, and variables of its environment."""

    command: list[str]
    env: dict[str, str] = {}


class Client(Struct, frozen=True, kw_only=True):
    """`member`: of the settings, under which the servers stand by name; `env`: of an entry.

    `is_project`: the settings belong to a project, and come with it to other machines.
    `next_step`: what a person has to do before the client starts the server.
    """

    path: Callable[[Places], Path]
    member: str
    entry: Callable[[list[str]], dict[str, Any]]
    env: str = "env"
    is_toml: bool = False
    is_project: bool = False
    next_step: str | None = None

    @property
    def owned(self) -> tuple[str, ...]:
        """Names of the members that an installation writes; the user's own stay."""
        return (*self.entry([""]), self.env)


class Change(Struct, frozen=True, kw_only=True):
    """A file of settings before and after. `before` is None where there is none.

    `mode`: of a file that is new.
    """

    path: Path
    before: str | None
    after: str
    mode: int = _USER_MODE

    @property
    def is_done(self) -> bool:
        return (self.before or "") == self.after

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
            is_new_folder = not path.parent.exists()
            make_folder(path.parent)
            if is_new_folder and self.mode == _PROJECT_MODE:
                path.parent.chmod(0o755)
            mode = path.stat().st_mode & 0o777 if path.exists() else self.mode
            replace(path, self.after.encode())
            path.chmod(mode)
        except OSError as error:
            message = f"{path} can't be written: {error.strerror}."
            raise KbprocError("store.io", message) from None


def _plain(command: list[str]) -> dict[str, Any]:
    return {"command": command[0], "args": command[1:]}


def _typed(command: list[str]) -> dict[str, Any]:
    return {"type": "stdio", **_plain(command)}


def _local(command: list[str]) -> dict[str, Any]:
    return {"type": "local", "command": command}


def _opencode(at: Places) -> Path:
    usual = at.settings / "opencode" / "opencode.json"
    commented = usual.with_suffix(".jsonc")
    file = commented if commented.exists() and not usual.exists() else usual
    return at.named_by("OPENCODE_CONFIG", file)


CLIENTS = {
    "claude-code": Client(
        path=lambda at: at.project / ".mcp.json",
        member="mcpServers",
        entry=_typed,
        is_project=True,
        next_step="Claude Code asks you to approve the server when it next starts in this "
        "project. Without a person (claude -p) it starts only the servers that "
        '.claude/settings.local.json names: {"enabledMcpjsonServers": ["kbproc"]}.',
    ),
    "codex": Client(
        path=lambda at: at.named_by("CODEX_HOME", at.home / ".codex") / "config.toml",
        member="mcp_servers",
        entry=_plain,
        is_toml=True,
        next_step="Codex leaves out the tools of a server that has not answered within a second. "
        "On a slow machine put this before the first table of its config.toml: "
        "mcp_optional_startup_grace_ms = 10000.",
    ),
    "cursor": Client(
        path=lambda at: at.home / ".cursor" / "mcp.json",
        member="mcpServers",
        entry=_plain,
        next_step="Cursor lists the server in its settings under MCP; switch it on there.",
    ),
    "gemini": Client(
        path=lambda at: at.named_by("GEMINI_CLI_HOME", at.home) / ".gemini" / "settings.json",
        member="mcpServers",
        entry=_plain,
        next_step="Where trusted folders are switched on, Gemini CLI starts the server only in "
        "folders that you trust: /permissions.",
    ),
    "opencode": Client(path=_opencode, member="mcp", entry=_local, env="environment"),
    "qwen": Client(
        path=lambda at: at.named_by("QWEN_HOME", at.home / ".qwen") / "settings.json",
        member="mcpServers",
        entry=_plain,
    ),
    "vscode": Client(
        path=lambda at: at.project / ".vscode" / "mcp.json",
        member="servers",
        entry=_typed,
        is_project=True,
        next_step="VS Code asks you to trust the server when it first starts it.",
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
            f"The settings of a client {name!r} are not known.",
            field="CLIENT",
            valid_values=list(CLIENTS),
            hint=f"{did_you_mean(closest(name, CLIENTS))}Any other client needs the command "
            "kbproc mcp.",
        )
    return client


def printed(name: str, server: Server) -> str:
    """Returns the settings with nothing but this server. Raises input.invalid_params."""
    client = find(name)
    return _Settings(client=client, text="").with_entry(_merged({}, client, server))


def installed(name: str, server: Server, places: Places) -> Change:
    """Returns the change that puts the server in; what the user added to its entry stays.

    Raises input.invalid_params for settings that can't be read.
    """

    def change(settings: _Settings) -> str:
        entry = _merged(settings.entry or {}, settings.client, server)
        return settings.text if settings.entry == entry else settings.with_entry(entry)

    return _change(name, places, change)


def removed(name: str, places: Places) -> Change:
    """Returns the change that takes the server out.

    Raises input.invalid_params for settings that can't be read.
    """
    return _change(name, places, _Settings.without_entry)


def _merged(old: dict[str, Any], client: Client, server: Server) -> dict[str, Any]:
    """Returns the server's entry with the user's own members and variables."""
    env = old.get(client.env, {})
    own = {} if not isinstance(env, dict) else env
    env = {name: value for name, value in own.items() if not name.startswith("KBPROC_")}
    env |= server.env
    entry = client.entry(server.command)
    # An entry of another kind, such as one with a URL, has no command and is replaced.
    others = {name: old[name] for name in old if "command" in old and name not in client.owned}
    return {**entry, **({client.env: env} if env else {}), **others}


class _Settings(Struct, frozen=True, kw_only=True):
    """A client's settings as a text. Any method may raise ValueError for one that is broken."""

    client: Client
    text: str

    @property
    def _path(self) -> tuple[str, str]:
        return self.client.member, NAME

    @property
    def _is_empty(self) -> bool:
        return not self.text.strip("\ufeff\r\n\t ")

    def servers(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The servers by name, and all other settings."""
        member, others = self.client.member, {}
        if self.client.is_toml:
            others = tomllib.loads(self.text)
        elif not self._is_empty:
            others = jsonc.parse(self.text)
        if not isinstance(others, dict):
            raise ValueError("it is no object")
        servers = others.pop(member, {})
        if not isinstance(servers, dict):
            raise ValueError(f"{member} is no object")
        return servers, others

    @property
    def entry(self) -> dict[str, Any] | None:
        """This server's entry; {} for one that is no object, None where there is none."""
        entry = self.servers()[0].get(NAME)
        return entry if entry is None or isinstance(entry, dict) else {}

    def with_entry(self, entry: dict[str, Any]) -> str:
        old = self.entry or {}
        if self.client.is_toml:
            stays = {name for name in entry if name not in self.client.owned}
            changed = [name for name in {**entry, **old} if name not in stays]
            return tables.put(self.text, self._path, entry, changed)
        text = "{}\n" if self._is_empty else self.text
        if not old:
            return jsonc.put(text, self._path, entry)
        for name in old.keys() - entry.keys():
            text = jsonc.drop(text, (*self._path, name))
        for name, member in entry.items():
            if name not in old or old[name] != member:
                text = jsonc.put(text, (*self._path, name), member)
        return text

    def without_entry(self) -> str:
        if NAME not in self.servers()[0]:
            return self.text
        drop = tables.drop if self.client.is_toml else jsonc.drop
        return drop(self.text, self._path)


def _change(name: str, places: Places, change: Callable[[_Settings], str]) -> Change:
    client = find(name)
    path = client.path(places)
    try:
        before = path.read_bytes().decode()
    except FileNotFoundError:
        before = None
    except (OSError, UnicodeDecodeError) as error:
        raise _broken(name, path, str(error)) from None
    settings = _Settings(client=client, text=before or "")
    try:
        after = change(settings)
        _check(settings, _Settings(client=client, text=after))
    except (ValueError, TypeError, RecursionError) as error:
        raise _broken(name, path, str(error)) from None
    mode = _PROJECT_MODE if client.is_project else _USER_MODE
    return Change(path=path, before=before, after=after, mode=mode)


def _check(before: _Settings, after: _Settings) -> None:
    """Raises ValueError if anything but this server's entry differs."""
    servers, others = before.servers()
    new_servers, new_others = after.servers()
    servers.pop(NAME, None)
    new_servers.pop(NAME, None)
    if servers != new_servers or others != new_others:
        raise ValueError("other settings would change with it")


def _broken(name: str, path: Path, why: str) -> KbprocError:
    kind = "TOML" if CLIENTS[name].is_toml else "JSON"
    return KbprocError(
        "input.invalid_params",
        f"{path} stays as it is, because it can't be changed as {kind}: {why}.",
        field="CLIENT",
        hint=f"Change it by hand: kbproc mcp --print-config {name} prints what belongs there.",
    )
