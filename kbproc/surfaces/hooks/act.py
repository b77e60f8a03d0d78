"""Reads what a tool is about to do, or how it failed, and which names stand in that.

Clients name tools and their arguments differently, so an act is known by the shape of its input: a
path beside a new text is an edit, a path alone is a read, and a command is a command.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from kbproc.base.patterns import lazy

_PATHS = ("file_path", "notebook_path", "path", "absolute_path", "filename")
_TEXTS = ("new_string", "content", "new_source", "file_text", "edits", "new_str", "patch")
_COMMANDS = ("command", "cmd", "script")
_MOST_CHARS = 20_000  # a client may send a whole file
_MOST_NAMES = 6
_MOST_QUERY = 500
# Names of files that many folders have, which name one only with their folder.
_COMMON = (
    "__init__ __main__ app build changelog cli client common config conftest constants core data "
    "defaults dockerfile errors gitignore helpers index init lib license main makefile mod models "
    "package page readme requirements routes run server settings setup style styles test tests "
    "types util utils version views"
)
# Programs that only look, or that every session uses, so that their names name nothing.
_LOOKS = (
    "awk basename bat cat cd chmod command cp cut date df diff dirname du echo env export false "
    "fd file find grep head jq kill less ls mkdir more mv nl pwd ps printf read realpath rg rm "
    "sed set sleep sort stat sudo tail tee test time timeout touch tr tree true type uname uniq "
    "wait wc which whoami xargs yes"
)
_GIT_LOOKS = "add blame branch diff log ls-files remote rev-parse show status"
_RUNNERS = "bash bun deno node npx perl php python python3 ruby sh uv uvx zsh"
# Verbs of programs that act on a package, because such a command is about the package.
_OF_PACKAGES = "add i install reinstall remove rm uninstall update upgrade"
_PACKAGE_MANAGERS = (
    "apt apt-get brew bundle cargo conda dnf gem go npm pip pip3 pipx pnpm poetry yarn"
)
_SEPARATORS = lazy(r"&&|\|\||[;|&\n]")
_WORD = lazy(r"[A-Za-z][\w:.-]*")
_PACKAGE = lazy(r"@?[\w][\w.:/-]*")
_FILE = lazy(r"[\w.@+-]+\.\w{1,10}")
_ASSIGNMENT = lazy(r"[A-Za-z_]\w*=")
_PATCHED = lazy(r"^\*\*\* (?:Update|Add|Delete) File: (.+)$", re.MULTILINE)
_DEFINITION = lazy(
    r"\b(?:def|class|function|func|fn|interface|struct|enum|trait|type)\s+([A-Za-z_]\w{5,})"
)
_KIND = r"[\w.]*(?<!No)(?:Error|Exception|Failure|Panic)\b"  # NoError is none
# A line that says what went wrong; the last of the most telling ones is the error.
_TELLING = (
    lazy(rf"^(?:\s|E\s)*{_KIND}.*\S"),
    lazy(r"(?i)\b(?:error|fatal|failed|panicked|not found|denied|refused|cannot|can't)\b"),
)
_CODE = lazy(r"\b(?:[A-Z]{1,6}[-_]?\d{3,6}|E[A-Z]{4,})\b")
_EXIT = lazy(r"(?m)^Exit Code: [1-9]")
_LAST_LINE = lazy(rf"(?m)^(?:{_KIND}|(?i:error|fatal|panic)[\[:(]).*\s*\Z")


class Act(Struct, frozen=True, kw_only=True):
    """An edit or a command, by the names in it, the most telling one first; or a failure.

    `titles`: names that count only as names of entries and notes. `path`: the file of an edit.
    `error`: the line that says what went wrong.
    """

    names: list[str] = []
    titles: list[str] = []
    path: str | None = None
    error: str = ""

    @property
    def query(self) -> str:
        """Returns the words to search for; "" for an act that names nothing."""
        return _plain(self.error or " ".join([*self.names, *self.titles]))

    @property
    def subjects(self) -> str:
        """Returns the names that entries and notes may have as title or alias."""
        return _plain(", ".join(name for name in [*self.names, *self.titles] if "/" not in name))


NOTHING = Act()
_OPERATORS = lazy(r"[\"“”„«»/\\\0]|(?<!\S)-+(?=\S)")


def _plain(text: str) -> str:
    """Returns a query of plain words."""
    return " ".join(_OPERATORS.sub(" ", text).split())[:_MOST_QUERY]


def act_of(tool_input: Mapping[str, Any], folder: str, *, error: str = "") -> Act:
    """Returns what a tool does in a folder; `error`: how it failed, "" for one that did not."""
    if error:
        return Act(error=telling_line(error[-_MOST_CHARS:]))
    command = _first_text(tool_input, _COMMANDS)
    patched = _PATCHED.findall(command) if command else []
    if command and not patched:
        names, titles = _of_command(command)
        return Act(names=names, titles=titles)
    path = patched[0].strip() if patched else _first_text(tool_input, _PATHS)
    text = command or "\n".join(_texts(tool_input))
    if not path or not (patched or any(name in tool_input for name in _TEXTS)):
        return NOTHING
    absolute = os.path.normpath(Path(folder) / path)
    names = [*_of_path(absolute, folder), *dict.fromkeys(_DEFINITION.findall(text))]
    return Act(names=names[:_MOST_NAMES], path=absolute)


def error_of(event: Mapping[str, Any]) -> str:
    """Returns the error in a client's event after a tool was used; "" for none."""
    for name in ("error", "error_message"):
        if isinstance(error := event.get(name), str):
            return error
    response = event.get("tool_response")
    if isinstance(response, dict):
        error = response.get("error")
        if isinstance(error, dict):
            error = error.get("message")
        if isinstance(error, str):
            return error
        output, pattern = response.get("llmContent"), _EXIT
    else:
        output, pattern = response, _LAST_LINE  # Codex says no exit code
    return output if isinstance(output, str) and pattern.search(output[-2000:]) else ""


def telling_line(error: str) -> str:
    """Returns the line that says what went wrong; "" if none does."""
    lines = [line.strip() for line in error.removeprefix("Output: ").splitlines() if line.strip()]
    for pattern in _TELLING:
        if telling := [line for line in lines if pattern.search(line)]:
            return telling[-1][:300]
    return ""


def codes_of(error: str) -> list[str]:
    """Returns the codes in an error, such as E0382 or ECONNREFUSED."""
    return _CODE.findall(error)


def _first_text(members: Mapping[str, Any], names: tuple[str, ...]) -> str:
    for name in names:
        value = members.get(name)
        if isinstance(value, list) and all(isinstance(part, str) for part in value):
            is_script = len(value) > 2 and Path(value[0]).name in _RUNNERS.split()
            value = value[-1] if is_script else shlex.join(value)
        if isinstance(value, str) and value:
            return value[:_MOST_CHARS]
    return ""


def _texts(members: Mapping[str, Any]) -> Iterator[str]:
    for name in ("old_string", *_TEXTS):
        value = members.get(name)
        if isinstance(value, str):
            yield value[:_MOST_CHARS]


def _of_path(path: str, folder: str) -> list[str]:
    """Returns the names of a file: its path in the folder, and its own name if that is telling."""
    relative = path.removeprefix(f"{folder}/")
    name = Path(path).name
    parent = Path(path).parent.name
    names = [relative] if "/" in relative and not relative.startswith("/") else []
    if not is_common(name):
        return list(dict.fromkeys([*names, name]))
    return list(dict.fromkeys([*names, *([f"{parent}/{name}"] if parent else [])]))


def is_common(name: str) -> bool:
    """Returns whether files of this name are in many folders."""
    stem = name.lstrip(".").partition(".")[0].lower()
    return stem in _COMMON.split() or len(name) < 5


def _of_command(command: str) -> tuple[list[str], list[str]]:
    """Returns the names in a command line, and the names of its programs alone."""
    names: dict[str, None] = {}
    titles: dict[str, None] = {}
    for part in _SEPARATORS.split(command):
        try:
            words = shlex.split(part, comments=True)
        except ValueError:  # a quotation goes over several parts
            words = part.split()
        while words and (_ASSIGNMENT.match(words[0]) or words[0] in {"sudo", "time", "env"}):
            words = words[1:]
        if words:
            _add_names(words, names, titles)
    return list(names)[:_MOST_NAMES], list(titles)[:_MOST_NAMES]


def _add_names(words: list[str], names: dict[str, None], titles: dict[str, None]) -> None:
    """Adds the names of one program with its arguments."""
    program, arguments = Path(words[0]).name, words[1:]
    plain = [word for word in arguments if not word.startswith("-")]
    verb = plain[0] if plain else ""
    looks = program in _LOOKS.split() or (program == "git" and verb in _GIT_LOOKS.split())
    if program in {"rm", "mv"} or not looks:
        for word in plain:
            name = Path(word).name
            if _FILE.fullmatch(name) and not is_common(name):
                names[name] = None
    if looks:
        return
    if program in _RUNNERS.split():
        if "-m" in arguments[:-1]:
            module = arguments[arguments.index("-m") + 1]
            (names if "." in module else titles)[module] = None
        return
    if "/" in words[0] or "." in program:
        names[program] = None
        return
    verbs = [word for word in plain[:2] if _WORD.fullmatch(word) and "." not in word]
    flags = [word for word in arguments if re.fullmatch(r"--[a-z][a-z-]{3,}", word)]
    if program in _PACKAGE_MANAGERS.split() and verb in _OF_PACKAGES.split() and plain[1:]:
        if package := _PACKAGE.match(plain[1]):
            names[f"{program} {verb} {package[0]}"] = None
            titles[package[0]] = None
        titles[f"{program} {verb}"] = None
    elif verbs:
        names.update({f"{program} {verbs[0]} {flag}": None for flag in flags[:1]})
        if len(verbs) > 1 and verbs[0] in {"run", "exec", "compose"}:
            names[f"{program} {verbs[0]} {verbs[1]}"] = None
        else:
            names[f"{program} {verbs[0]}"] = None
    titles[program] = None
