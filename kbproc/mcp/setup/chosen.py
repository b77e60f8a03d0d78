"""The command that a client starts the server with, for everything that was chosen.

Owns: flags and variables that stand for the settings of this moment, since clients start servers
with a few variables of the environment only; paths as they are written into a project's file.
Refuses to know: where clients keep their settings (clients.py).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from kbproc.base.paths import absolute
from kbproc.mcp.setup.clients import Places, Server
from kbproc.settings.config import DEFAULT, ENVIRONMENT, VARIABLES, Config

Given = Mapping[str, Sequence[str | bool]]  # flag → its values, in the order they came
_OWN = frozenset({"--format", "--help", "--print-config", "--yes"})
_PATHS = frozenset({"--root", "--store"})
_KEY = "KBPROC_LLM_API_KEY"
# Variables for which there is no flag.
_PASSED = (
    *(name for name in VARIABLES if name.startswith("KBPROC_LLM_") and name != _KEY),
    "XDG_CONFIG_HOME",
    "XDG_CACHE_HOME",
)
_PATH_VARIABLES = frozenset({"KBPROC_LLM_API_KEY_FILE", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"})


class Chosen(Struct, frozen=True, kw_only=True):
    """`notes`: what of the environment went into the server's settings, and what did not."""

    server: Server
    notes: list[str]


class _Setting(Struct, frozen=True, kw_only=True):
    """A flag that stands for a variable of the environment."""

    flag: str
    value: str
    variable: str


def chosen(config: Config, flags: Given, places: Places, *, is_project: bool) -> Chosen:
    """`flags`: of the server, as they were typed. `is_project`: the settings belong to a project,
    so that the command must work elsewhere, too. Raises input.invalid_params for flags without a
    usable path.
    """
    project = places if is_project else None
    notes = []
    program = _program(portable=is_project)
    if is_project and len(program) > 1:
        notes.append("kbproc is not on the PATH, so that the command works on this machine only.")
    words = [part for name, value in _flags_of(flags) for part in _words(name, value, project)]
    passed = []
    for setting in _settings(config, places.variables):
        flag = _words(setting.flag, setting.value, project)
        words += flag
        passed.append(f"{' '.join(flag)} ({setting.variable})")
    env = dict(_variables(places.variables, project))
    passed += env
    if passed:
        notes.append(
            "The server's settings hold what the environment says now, as a client may start "
            f"servers without it: {', '.join(passed)}."
        )
    if places.variables.get(_KEY):
        notes.append(
            f"{_KEY} stays out, because others may read settings: keep the key in a file of "
            f"mode 0600 that {_KEY}_FILE names."
        )
    return Chosen(server=Server(command=[*program, "mcp", *words], env=env), notes=notes)


def _program(*, portable: bool) -> list[str]:
    """Programs with windows have another PATH, so that they need the whole path."""
    import shutil

    path = shutil.which("kbproc")
    if path is None:
        return [sys.executable, "-m", "kbproc"]
    return ["kbproc"] if portable else [path]


def _flags_of(flags: Given) -> Iterator[tuple[str, str | bool]]:
    for name, values in flags.items():
        if name not in _OWN:
            yield from ((name, value) for value in values)


def _settings(config: Config, variables: Mapping[str, str]) -> Iterator[_Setting]:
    """Settings that the environment settles and no flag overrides."""
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
    """A project's file names folders of the project and of the home so that they fit elsewhere."""
    if project is None:
        return str(path)
    if path.is_relative_to(project.project):
        return str(path.relative_to(project.project))
    if path.is_relative_to(project.home):
        return str(Path("~") / path.relative_to(project.home))
    return str(path)
