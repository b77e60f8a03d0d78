"""What git would ignore.

Owns: .gitignore files: reading one, and what it says of a path.
Refuses to know: walking folders. The rules are those of gitignore(5); each
pattern speaks of one path only: what lies in an ignored folder is never asked for.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple


class Rule(NamedTuple):
    pattern: re.Pattern[str]
    folders_only: bool
    ignores: bool


class Ignores(NamedTuple):
    """One .gitignore file: the folder it lies in and its rules, in order."""

    folder: Path
    rules: list[Rule]


def read(folder: Path) -> list[Ignores]:
    """The folder's .gitignore, if it has one that can be read."""
    try:
        lines = (folder / ".gitignore").read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return []
    rules = [rule for line in lines if (rule := _rule(line)) is not None]
    return [Ignores(folder, rules)] if rules else []


def ignored(path: Path, is_folder: bool, found: Sequence[Ignores]) -> bool:
    """The innermost file decides, and in it the last rule that matches."""
    for folder, rules in reversed(found):
        relative = path.relative_to(folder).as_posix()
        for rule in reversed(rules):
            if (is_folder or not rule.folders_only) and rule.pattern.fullmatch(relative):
                return rule.ignores
    return False


def _rule(line: str) -> Rule | None:
    line = re.sub(r"(?<!\\)((?:\\\\)*)[ ]+$", r"\1", line.rstrip("\r"))
    ignores = not line.startswith("!")
    line = line if ignores else line[1:]
    if not line or line.startswith("#"):
        return None
    folders_only = line.endswith("/")
    line = line.rstrip("/") if folders_only else line
    anchored = "/" in line
    try:
        body = _translate(line.removeprefix("/"))
        return Rule(
            re.compile(body if anchored else f"(?:.*/)?{body}", re.S), folders_only, ignores
        )
    except re.error:
        return None  # git takes a malformed pattern for one that matches nothing


_TOKEN = re.compile(
    r"(?P<start>(?:\A|(?<=/))\*\*/)|(?P<middle>/\*\*/)|(?P<end>/\*\*\Z)|(?P<star>\*+)|(?P<any>\?)"
    r"|\[(?P<negated>[!^])?(?P<set>\]?(?:\\.|\[:\w+:\]|[^\]\\])*)\]|\\(?P<quoted>.)|(?P<plain>.)",
    re.S,
)
_FIXED = {"start": "(?:.*/)?", "middle": "/(?:.*/)?", "end": "/.+", "star": "[^/]*", "any": "[^/]"}
_CLASSES = {
    "[:alpha:]": "a-zA-Z",
    "[:digit:]": "0-9",
    "[:alnum:]": "a-zA-Z0-9",
    "[:lower:]": "a-z",
    "[:upper:]": "A-Z",
    "[:space:]": r"\s",
}


def _translate(pattern: str) -> str:
    """A gitignore pattern as a regular expression."""
    return "".join(_part(found) for found in _TOKEN.finditer(pattern))


def _part(found: re.Match[str]) -> str:
    kind = found.lastgroup or ""
    if kind in _FIXED:
        return _FIXED[kind]
    if kind in {"plain", "quoted"}:
        return re.escape(found[kind])
    members = re.sub(r"\[:\w+:\]|\\.|[\[&|~^]", lambda m: _member(m[0]), found["set"])
    members = "\\]" + members[1:] if members.startswith("]") else members
    return f"(?!/)[{'^' if found['negated'] else ''}{members}]"


def _member(text: str) -> str:
    if text.startswith("[:"):
        return _CLASSES.get(text, "")
    return re.escape(text.removeprefix("\\") or "\\")
