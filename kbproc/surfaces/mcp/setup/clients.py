"""Adds this server to the settings of programs that start MCP servers, and removes it.

All other settings stay. A file that can't be read in its format is not changed.

An empty object that a person had before an installation stays; one that the installation added
goes with the entry. A client's settings do not distinguish the two, so that kbproc keeps a file in
its own folder of settings.

The command that starts the server holds the present settings as flags and variables, because
clients start servers with few variables of the environment. Paths in a project's file are relative.
"""

from __future__ import annotations

import contextlib
import difflib
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from kbproc.base import edits
from kbproc.base.errors import KbprocError
from kbproc.base.paths import absolute
from kbproc.base.settings.config import DEFAULT, ENVIRONMENT, VARIABLES, Config
from kbproc.base.suggest import closest, did_you_mean
from kbproc.base.values import NOT_READABLE, decoder
from kbproc.surfaces.mcp.setup import jsonc, toml

# The whole file of settings, or the object that holds the servers by name.
Addition = Literal["file", "member"]
_ADDITIONS = "mcp-installed.json"
_decoder = decoder(dict[str, Addition])


def additions_file(settings: Path) -> Path:
    """Returns the file of additions, below the folder in which programs keep settings."""
    return settings / "kbproc" / _ADDITIONS


def read_addition(record: Path, path: Path) -> Addition | None:
    """Returns the addition of an installation to the settings at `path`; None without one."""
    return _additions(record).get(str(path))


def _additions(record: Path) -> dict[str, Addition]:
    try:
        return _decoder.decode(edits.read(record) or b"{}")
    except (OSError, *NOT_READABLE):
        return {}


def keep_addition(record: Path, path: Path, addition: Addition | None) -> None:
    """Records an addition. If the file can't be written, a removal may leave an empty object."""
    keep_member(record, str(path), addition, _decoder)


def keep_member(
    record: Path, name: str, member: Any, decoder: msgspec.json.Decoder[dict[str, Any]]
) -> None:
    """Sets a member of a record, or removes it for None, also while other processes do so.

    A record that can't be written stays as it is, and one that can't be read is begun anew.
    """

    def change(data: bytes | None) -> bytes | None:
        try:
            members = decoder.decode(data or b"{}")
        except NOT_READABLE:
            members = {}
        members.pop(name, None)
        if member is not None:
            members[name] = member
        return msgspec.json.format(msgspec.json.encode(members)) if members else None

    with contextlib.suppress(OSError):
        edits.edit(record, change)


NAME = "kbproc"
_PROJECT_MODE = 0o644  # because others work on the project, too
_USER_MODE = 0o600


class Places(Struct, frozen=True, kw_only=True):
    """Folders: the user's home, the programs' settings, and the project.

    `variables`: the environment, in which some clients name other folders.
    """

    home: Path
    settings: Path
    project: Path
    variables: Mapping[str, str] = {}

    def named_by(self, variable: str, default: Path) -> Path:
        """Returns a variable's path, or the default. Raises input.invalid_params for no path."""
        path = self.variables.get(variable)
        return absolute(path, field=variable) if path else default


# Variables without a flag. An installation writes those that are set, and removes the others.
WRITTEN = tuple(
    name for name in VARIABLES if name.startswith("KBPROC_LLM_") and name != "KBPROC_LLM_API_KEY"
)


class ServerEntry(Struct, frozen=True, kw_only=True):
    """The command that starts the server, and variables of its environment."""

    command: list[str]
    env: dict[str, str] = {}


class ClientFormat(Struct, frozen=True, kw_only=True):
    """A program that starts servers, and the format of its settings.

    `member`: the member of the settings that holds the servers; `env`: the member of an entry
    that holds variables. `is_project`: the settings belong to a project, and come with it to
    other machines. `next_step`: advice on how to have the client start the server.
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
        """Returns the names of the members that an installation writes; other members stay."""
        return (*self.entry([""]), self.env)


def text_of(path: Path) -> str | None:
    """Returns a client's file; None without one. Raises ValueError for one that can't be read."""
    try:
        data = edits.read(path)
        return None if data is None else data.decode()
    except OSError as error:
        raise ValueError(error.strerror or str(error)) from None


class Change(Struct, frozen=True, kw_only=True):
    """A file of settings before and after. `before` and `after` are None where there is none.

    `mode`: of a new file. `addition`: the file or object that an installation adds around the
    entry; `record`: the file that records the addition, so that a removal removes it, too.
    """

    path: Path
    before: str | None
    after: str | None
    mode: int = _USER_MODE
    addition: Addition | None = None
    record: Path | None = None

    @property
    def is_done(self) -> bool:
        return self.after in {self.before, self.before or ""}

    def shown(self) -> str:
        """Returns the change as a unified diff."""
        before = (self.before or "").splitlines(keepends=True)
        after = (self.after or "").splitlines(keepends=True)
        old, new = (
            "/dev/null" if text is None else str(self.path) for text in (self.before, self.after)
        )
        return "".join(difflib.unified_diff(before, after, old, new))

    def write(self) -> bool:
        """Writes the file; returns False if another program has changed it since it was planned.

        Raises store.io.
        """
        before, after = (
            None if text is None else text.encode() for text in (self.before, self.after)
        )
        folder_mode = 0o755 if self.mode == _PROJECT_MODE else 0o700
        try:
            is_written = edits.write(
                self.path, before, after, mode=self.mode, folder_mode=folder_mode
            )
        except OSError as error:
            message = f"{self.path} can't be written: {error.strerror}."
            raise KbprocError("store.io", message) from None
        if is_written and self.record is not None:
            keep_addition(self.record, self.path.resolve(), self.addition)
        return is_written


def _plain(command: list[str]) -> dict[str, Any]:
    return {"command": command[0], "args": command[1:]}


def _typed(command: list[str]) -> dict[str, Any]:
    return {"type": "stdio", **_plain(command)}


def _local(command: list[str]) -> dict[str, Any]:
    return {"type": "local", "command": command}


def _opencode(at: Places) -> Path:
    default = at.settings / "opencode" / "opencode.json"
    commented = default.with_suffix(".jsonc")
    file = commented if commented.exists() and not default.exists() else default
    return at.named_by("OPENCODE_CONFIG", file)


CLIENTS = {
    "claude-code": ClientFormat(
        path=lambda at: at.project / ".mcp.json",
        member="mcpServers",
        entry=_typed,
        is_project=True,
        next_step="Claude Code asks you to approve the server when it next starts in this "
        "project. Without a person (claude -p) it starts only the servers that "
        '.claude/settings.local.json names: {"enabledMcpjsonServers": ["kbproc"]}.',
    ),
    "codex": ClientFormat(
        path=lambda at: at.named_by("CODEX_HOME", at.home / ".codex") / "config.toml",
        member="mcp_servers",
        entry=_plain,
        is_toml=True,
        next_step="Codex leaves out the tools of a server that has not answered within a second. "
        "On a slow machine put this before the first table of its config.toml: "
        "mcp_optional_startup_grace_ms = 10000.",
    ),
    "cursor": ClientFormat(
        path=lambda at: at.home / ".cursor" / "mcp.json",
        member="mcpServers",
        entry=_plain,
        next_step="Cursor lists the server in its settings under MCP; switch it on there.",
    ),
    "gemini": ClientFormat(
        path=lambda at: at.named_by("GEMINI_CLI_HOME", at.home) / ".gemini" / "settings.json",
        member="mcpServers",
        entry=_plain,
        next_step="Where trusted folders are switched on, Gemini CLI starts the server only in "
        "folders that you trust: /permissions.",
    ),
    "opencode": ClientFormat(path=_opencode, member="mcp", entry=_local, env="environment"),
    "qwen": ClientFormat(
        path=lambda at: at.named_by("QWEN_HOME", at.home / ".qwen") / "settings.json",
        member="mcpServers",
        entry=_plain,
    ),
    "vscode": ClientFormat(
        path=lambda at: at.project / ".vscode" / "mcp.json",
        member="servers",
        entry=_typed,
        is_project=True,
        next_step="VS Code asks you to trust the server when it first starts it.",
    ),
    "zed": ClientFormat(
        path=lambda at: at.settings / "zed" / "settings.json",
        member="context_servers",
        entry=_plain,
    ),
}


def find(name: str) -> ClientFormat:
    """Returns the client of that name. Raises input.invalid_params."""
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


def printed(name: str, server: ServerEntry) -> str:
    """Returns the settings with nothing but this server. Raises input.invalid_params."""
    client = find(name)
    return _Settings(client=client, text="").with_entry(_merged({}, client, server))


def installed(name: str, server: ServerEntry, places: Places) -> Change:
    """Returns the change that adds the server; the user's own members of its entry stay.

    Raises input.invalid_params for settings that can't be read.
    """

    def change(settings: _Settings) -> str:
        entry = _merged(settings.entry or {}, settings.client, server)
        return settings.text if settings.entry == entry else settings.with_entry(entry)

    installation = _change(name, places, change)
    before = _Settings(client=find(name), text=installation.before or "")
    if before.entry is not None:  # keeps the record of the earlier installation
        return installation
    addition: Addition | None = None
    if installation.before is None:
        addition = "file"
    elif not before.has_member:
        addition = "member"
    record = additions_file(places.settings)
    return msgspec.structs.replace(installation, addition=addition, record=record)


def removed(name: str, places: Places) -> Change:
    """Returns the change that removes the server.

    An object or a file that its installation added goes, too, if it is empty.

    Raises input.invalid_params for settings that can't be read.
    """
    record = additions_file(places.settings)
    addition = read_addition(record, find(name).path(places).resolve())

    def change(settings: _Settings) -> str:
        after = msgspec.structs.replace(settings, text=settings.without_entry())
        is_ours = addition is not None and after.text != settings.text
        return after.without_member() if is_ours else after.text

    removal = _change(name, places, change)
    is_gone = addition == "file" and not removal.is_done and _is_nothing(removal.after)
    after = None if is_gone else removal.after
    return msgspec.structs.replace(removal, after=after, record=record)


def _is_nothing(text: str | None) -> bool:
    return "".join((text or "").split()) in {"", "{}"}


def _merged(old: dict[str, Any], client: ClientFormat, server: ServerEntry) -> dict[str, Any]:
    """Returns the server's entry with the user's own members and variables."""
    env = old.get(client.env, {})
    own = {} if not isinstance(env, dict) else env
    env = {name: value for name, value in own.items() if name not in WRITTEN}
    env |= server.env
    entry = client.entry(server.command)
    # An entry without a command, such as one with a URL, is replaced.
    others = {name: old[name] for name in old if "command" in old and name not in client.owned}
    return {**entry, **({client.env: env} if env else {}), **others}


class _Settings(Struct, frozen=True, kw_only=True):
    """A client's settings as a text. Any method may raise ValueError for one that is broken."""

    client: ClientFormat
    text: str

    @property
    def _path(self) -> tuple[str, str]:
        return self.client.member, NAME

    @property
    def _is_empty(self) -> bool:
        return not self.text.strip("\ufeff\r\n\t ")

    def servers(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Returns the servers by name, and all other settings."""
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
        """Returns this server's entry; {} for an entry that is no object, None without one."""
        entry = self.servers()[0].get(NAME)
        return entry if entry is None or isinstance(entry, dict) else {}

    @property
    def has_member(self) -> bool:
        """Returns true if the settings have the member of the servers, even an empty one."""
        if self.client.is_toml:
            return self.client.member in tomllib.loads(self.text)
        return not self._is_empty and self.client.member in jsonc.parse(self.text)

    def with_entry(self, entry: dict[str, Any]) -> str:
        old = self.entry or {}
        if self.client.is_toml:
            stays = {name for name in entry if name not in self.client.owned}
            changed = [name for name in {**entry, **old} if name not in stays]
            return toml.put(self.text, self._path, entry, changed)
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
        drop = toml.drop if self.client.is_toml else jsonc.drop
        after = drop(self.text, self._path)
        if NAME in _Settings(client=self.client, text=after).servers()[0]:
            raise ValueError(f"{NAME} stands in one member with other servers")
        return after

    def without_member(self) -> str:
        """Returns the text, without the object of the servers if that is empty."""
        is_used = self.client.is_toml or self.servers()[0] or not self.has_member
        return self.text if is_used else jsonc.drop_empty(self.text, (self.client.member,))


def _change(name: str, places: Places, change: Callable[[_Settings], str]) -> Change:
    client = find(name)
    path = client.path(places)
    try:
        before = text_of(path)
    except ValueError as error:
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
        hint=f"Change the server {NAME} in {CLIENTS[name].member} by hand: "
        f"kbproc mcp --print-config {name} prints what belongs there.",
    )


Flags = Mapping[str, Sequence[str | bool]]  # flag → its values, in their order
_OWN = frozenset({"--format", "--help", "--print-config", "--yes"})
_PATHS = frozenset({"--root", "--store"})
_KEY = "KBPROC_LLM_API_KEY"
_BASES = ("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME")
_PASSED = (*WRITTEN, *_BASES)
_PATH_VARIABLES = frozenset({"KBPROC_LLM_API_KEY_FILE", *_BASES})


class SetupPlan(Struct, frozen=True, kw_only=True):
    """A server's settings. `notes`: variables that became part of them, and those that did not."""

    server: ServerEntry
    notes: list[str]


class _Setting(Struct, frozen=True, kw_only=True):
    """A flag that stands for a variable of the environment."""

    flag: str
    value: str
    variable: str


def planned(config: Config, flags: Flags, places: Places, *, is_project: bool) -> SetupPlan:
    """Returns the server's settings. `flags`: of the server, as they were typed.

    `is_project`: the settings belong to a project, so that the command must work on other
    machines, too. Raises input.invalid_params for flags without a usable path.
    """
    project = places if is_project else None
    notes = []
    program = program_words(portable=is_project)
    if is_project and len(program) > 1:
        notes.append("kbproc is not on the PATH, so that the command works on this machine only.")
    words = [part for name, value in _flags_of(flags) for part in _words(name, value, project)]
    sources = []
    for setting in _settings(config, places.variables):
        flag = _words(setting.flag, setting.value, project)
        words += flag
        sources.append(f"{' '.join(flag)} ({setting.variable})")
    env = dict(_variables(places.variables, project))
    sources += env
    if sources:
        notes.append(
            "The server's settings hold what the environment says now, as a client may start "
            f"servers without it: {', '.join(sources)}."
        )
    if places.variables.get(_KEY):
        notes.append(
            f"{_KEY} stays out, because others may read settings: keep the key in a file of "
            f"mode 0600 that {_KEY}_FILE names."
        )
    return SetupPlan(server=ServerEntry(command=[*program, "mcp", *words], env=env), notes=notes)


def program_words(*, portable: bool) -> list[str]:
    """Returns the command; a full path if possible, because desktop programs have another PATH."""
    import shutil

    path = shutil.which("kbproc")
    if path is None:
        return [sys.executable, "-m", "kbproc"]
    return ["kbproc"] if portable else [path]


def _flags_of(flags: Flags) -> Iterator[tuple[str, str | bool]]:
    for name, values in flags.items():
        if name not in _OWN:
            yield from ((name, value) for value in values)


def _settings(config: Config, variables: Mapping[str, str]) -> Iterator[_Setting]:
    """Yields settings that come from the environment, with their flags."""
    values = {
        "profile": config.profile,
        "store": str(config.store),
        "kb": config.kb,
        "agent": config.actor,
        "log_level": config.log_level,
    }
    names = {**ENVIRONMENT, "profile": "KBPROC_PROFILE"}
    for key, value in values.items():
        origin = config.origins.get(key, DEFAULT)
        if value is not None and origin.level == "environment":
            flag = f"--{key.replace('_', '-')}"
            yield _Setting(flag=flag, value=value, variable=names[key])
        elif key == "store" and origin == DEFAULT and variables.get("XDG_DATA_HOME"):
            yield _Setting(flag="--store", value=str(value), variable="XDG_DATA_HOME")


def _variables(variables: Mapping[str, str], project: Places | None) -> Iterator[tuple[str, str]]:
    for name in _PASSED:
        if value := variables.get(name):
            is_path = name in _PATH_VARIABLES
            yield name, _written(absolute(value, field=name), project) if is_path else value


def _words(name: str, value: str | bool, project: Places | None) -> list[str]:
    if isinstance(value, bool):
        return [name] if value else []
    if name in _PATHS:
        value = _written(absolute(value, field=name), project)
    return [name, value]


def _written(path: Path, project: Places | None) -> str:
    """Returns a path; in a project's file, relative to the project or to ~, for other machines."""
    if project is None:
        return str(path)
    if path.is_relative_to(project.project):
        return str(path.relative_to(project.project))
    if path.is_relative_to(project.home):
        return str(Path("~") / path.relative_to(project.home))
    return str(path)
