"""Adds this server to the settings of programs that start MCP servers, and removes it.

An empty object that a person had before an installation stays; one that the installation added
goes with the entry.

The command that starts the server holds the present settings as flags and variables, because
clients start servers with few variables of the environment. Paths in a project's file are relative.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from kbproc.base.clients import BY_NAME, SERVERS, Places, Servers
from kbproc.base.errors import KbprocError
from kbproc.base.paths import absolute
from kbproc.base.settings.config import DEFAULT, ENVIRONMENT, VARIABLES, Config
from kbproc.base.values import decoder
from kbproc.surfaces.setup.change import (
    PROJECT_MODE,
    USER_MODE,
    Change,
    Editor,
    Flags,
    InstallationRecord,
    editor_of,
    parsed,
    program_words,
    text_of,
    unknown_client,
)

NAME = "kbproc"
# The part that an installation adds: the whole file, or the object that holds the servers.
Addition = Literal["file", "member"]
_additions = decoder(dict[str, Addition])
# Variables without a flag. An installation writes those that are set, and removes the others.
WRITTEN = tuple(
    name for name in VARIABLES if name.startswith("KBPROC_LLM_") and name != "KBPROC_LLM_API_KEY"
)


class ServerEntry(Struct, frozen=True, kw_only=True):
    """The command that starts the server, and variables of its environment."""

    command: list[str]
    env: dict[str, str] = {}


def find(name: str) -> Servers:
    """Returns the settings of the client of that name. Raises input.invalid_params."""
    if name in SERVERS:
        return SERVERS[name]
    message = f"The settings of a client {name!r} are not known."
    hint = "Any other client needs the command kbproc mcp."
    raise unknown_client(name, SERVERS, message=message, hint=hint)


def path_of(name: str, places: Places) -> Path:
    """Returns the client's file. Raises input.invalid_params."""
    servers, client = find(name), BY_NAME[name]
    path = client.path(servers.file, places)
    if servers.variable and (own := places.variables.get(servers.variable)):
        return absolute(own, field=servers.variable)
    other = client.path(servers.other, places) if servers.other else path
    return other if other.exists() and not path.exists() else path


def printed(name: str, server: ServerEntry) -> str:
    """Returns the settings with nothing but this server. Raises input.invalid_params."""
    servers = find(name)
    settings = _Settings(servers=servers, editor=editor_of(servers.file), text="")
    return settings.with_entry(_merged({}, servers, server))


def installed(name: str, server: ServerEntry, places: Places) -> Change:
    """Returns the change that adds the server; the user's own members of its entry stay.

    Raises input.invalid_params for settings that can't be read.
    """

    def change(settings: _Settings) -> str:
        entry = _merged(settings.entry or {}, settings.servers, server)
        return settings.text if settings.entry == entry else settings.with_entry(entry)

    installation, before = _change(name, places, change)
    if before.entry is not None:  # keeps the record of the earlier installation
        return installation
    addition: Addition | None = None
    if installation.before is None:
        addition = "file"
    elif not before.has_member:
        addition = "member"
    return msgspec.structs.replace(installation, member=addition, record=_record(places))


def removed(name: str, places: Places) -> Change:
    """Returns the change that removes the server.

    An object or a file that its installation added goes, too, if it is empty.

    Raises input.invalid_params for settings that can't be read.
    """
    record = _record(places)
    addition = record.of(path_of(name, places))

    def change(settings: _Settings) -> str:
        after = msgspec.structs.replace(settings, text=settings.without_entry())
        is_ours = addition is not None and after.text != settings.text
        return after.without_member() if is_ours else after.text

    removal, _ = _change(name, places, change)
    is_gone = addition == "file" and not removal.is_done and _is_nothing(removal.after)
    after = None if is_gone else removal.after
    return msgspec.structs.replace(removal, after=after, record=record)


def _record(places: Places) -> InstallationRecord:
    return InstallationRecord(path=places.records / "mcp-installed.json", decoder=_additions)


def _is_nothing(text: str | None) -> bool:
    return "".join((text or "").split()) in {"", "{}"}


def _merged(old: dict[str, Any], servers: Servers, server: ServerEntry) -> dict[str, Any]:
    """Returns the server's entry with the user's own members and variables."""
    env = old.get(servers.env, {})
    own = {} if not isinstance(env, dict) else env
    env = {name: value for name, value in own.items() if name not in WRITTEN}
    env |= server.env
    entry = servers.entry(server.command)
    # An entry without a command, such as one with a URL, is replaced.
    owned = {*entry, servers.env}
    others = {name: old[name] for name in old if "command" in old and name not in owned}
    return {**entry, **({servers.env: env} if env else {}), **others}


class _Settings(Struct, frozen=True, kw_only=True):
    """A client's settings as a text. Any method may raise ValueError for one that is broken."""

    servers: Servers
    editor: Editor
    text: str

    @property
    def _path(self) -> tuple[str, str]:
        return self.servers.member, NAME

    def parts(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Returns the servers by name, and all other settings."""
        others = parsed(self.editor, self.text)
        servers = others.pop(self.servers.member, {})
        if not isinstance(servers, dict):
            raise ValueError(f"{self.servers.member} is no object")
        return servers, others

    @property
    def entry(self) -> dict[str, Any] | None:
        """Returns this server's entry; {} for an entry that is no object, None without one."""
        entry = self.parts()[0].get(NAME)
        return entry if entry is None or isinstance(entry, dict) else {}

    @property
    def has_member(self) -> bool:
        """Returns true if the settings have the member of the servers, even an empty one."""
        return self.servers.member in parsed(self.editor, self.text)

    def with_entry(self, entry: dict[str, Any]) -> str:
        return self.editor.change(self.text, self._path, entry)

    def without_entry(self) -> str:
        has_entry = NAME in self.parts()[0]
        return self.editor.drop(self.text, self._path) if has_entry else self.text

    def without_member(self) -> str:
        """Returns the text, without the object of the servers if that is empty."""
        is_used = self.parts()[0] or not self.has_member
        path = (self.servers.member,)
        return self.text if is_used else self.editor.drop_empty(self.text, path)


def _change(
    name: str, places: Places, change: Callable[[_Settings], str]
) -> tuple[Change, _Settings]:
    """Returns the change, and the settings before it. Raises input.invalid_params."""
    servers, path = find(name), path_of(name, places)
    try:
        before = text_of(path)
        settings = _Settings(servers=servers, editor=editor_of(path), text=before or "")
        after = change(settings)
        _check(settings, msgspec.structs.replace(settings, text=after))
    except (ValueError, TypeError, RecursionError) as error:
        raise _broken(name, path, str(error)) from None
    mode = PROJECT_MODE if servers.is_project else USER_MODE
    return Change(path=path, before=before, after=after, mode=mode), settings


def _check(before: _Settings, after: _Settings) -> None:
    """Raises ValueError if anything but this server's entry differs."""
    (servers, others), (new_servers, new_others) = before.parts(), after.parts()
    servers.pop(NAME, None)
    new_servers.pop(NAME, None)
    if servers != new_servers or others != new_others:
        raise ValueError("other settings would change with it")


def _broken(name: str, path: Path, why: str) -> KbprocError:
    kind = "TOML" if path.suffix == ".toml" else "JSON"
    return KbprocError(
        "input.invalid_params",
        f"{path} stays as it is, because it can't be changed as {kind}: {why}.",
        field="CLIENT",
        hint=f"Change the server {NAME} in {SERVERS[name].member} by hand: "
        f"kbproc mcp --print-config {name} prints what belongs there.",
    )


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
