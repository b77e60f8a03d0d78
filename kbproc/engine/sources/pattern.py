"""Patterns of names and paths, matched in time that no pattern can stretch.

Owns: `*`, `?`, `[a-z]`, backslashes and `**` as gitignore(5) describes them, and matching them.
Refuses to know: files, and what a match means.

A name's pattern is cut at its stars into pieces, each of which matches a fixed number of
characters. Each piece is looked for where the one before it ended, and taken where it is found
first: a later place would leave less for the pieces after it. So no place is tried twice for
another place's sake, and a match takes at most as many steps as pattern and name have characters
when multiplied. Folders of a path are matched in the same way, `**` being the star.
"""

from __future__ import annotations

import re
import string
from collections.abc import Sequence
from itertools import groupby

MOST_CHARACTERS = 1000  # of a pattern: the longest name has 255 bytes on most file systems

# What stands between two stars, and what matches a fixed number of characters.
Piece = str | re.Pattern[str]


class NamePattern:
    """A pattern of one name, or of a path in which a star also matches slashes."""

    def __init__(self, text: str) -> None:
        pieces: list[list[str]] = [[]]
        for token in _tokens(text):
            if token.startswith("*"):
                pieces.append([])
            else:
                pieces[-1].append(token)
        self._pieces = [_piece(piece) for piece in pieces]
        self._lengths = [len(piece) for piece in pieces]

    def matches(self, name: str) -> bool:
        first, last = self._pieces[0], self._pieces[-1]
        if len(self._pieces) == 1:
            return len(name) == self._lengths[0] and _at(first, name, 0)
        at, end = self._lengths[0], len(name) - self._lengths[-1]
        if at > end or not _at(first, name, 0) or not _at(last, name, end):
            return False
        for piece, length in zip(self._pieces[1:-1], self._lengths[1:-1], strict=True):
            found = _first(piece, name, at, end)
            if found < 0:
                return False
            at = found + length
        return True


class PathPattern:
    """A pattern of a path: no star but `**` reaches over a slash.

    Without a slash, but at its end, it is a pattern of the path's last name.
    """

    def __init__(self, text: str) -> None:
        tokens = _tokens(text)
        parts = ["".join(part) for slash, part in groupby(tokens, "/".__eq__) if not slash]
        self._parts = [None if part == "**" else NamePattern(part) for part in parts]
        if "/" not in tokens:
            self._parts = [None, NamePattern(text)]
        elif self._parts and self._parts[-1] is None:  # what lies within, not the folder itself
            self._parts.append(NamePattern("*"))

    def matches(self, names: Sequence[str]) -> bool:
        """`names`: of the folders from the outermost in, and the last one."""
        part = here = 0
        again: tuple[int, int] | None = None  # after the last `**`, and where it was tried last
        while here < len(names):
            wanted = self._parts[part] if part < len(self._parts) else NOTHING
            if wanted is None:
                again = part + 1, here
                part += 1
            elif wanted.matches(names[here]):
                part, here = part + 1, here + 1
            elif again:  # the `**` takes one name more
                part, here = again[0], again[1] + 1
                again = part, here
            else:
                return False
        return all(left is None for left in self._parts[part:])


def _at(piece: Piece, name: str, at: int) -> bool:
    if isinstance(piece, str):
        return name.startswith(piece, at)
    return piece.match(name, at) is not None


def _first(piece: Piece, name: str, at: int, end: int) -> int:
    """Where the piece is first, from `at` on and before `end`; -1 if nowhere."""
    if isinstance(piece, str):
        return name.find(piece, at, end)
    found = piece.search(name, at, end)
    return found.start() if found else -1


_TOKEN = re.compile(
    r"\*+|\[[!^]?\]?(?:\\.|\[:[a-z]{1,6}:\]|[^\]\\])*\]|\\.|.",
    re.S,
)


def _tokens(text: str) -> list[str]:
    found: list[str] = _TOKEN.findall(text)
    return ["/" if one == "\\/" else one for one in found]


def _piece(tokens: Sequence[str]) -> Piece:
    """Each token is one character's: itself, any, or one of a set."""
    if not any(_is_open(token) for token in tokens):
        return "".join(token[-1] for token in tokens)
    return re.compile("".join(map(_character, tokens)), re.S)


def _is_open(token: str) -> bool:
    """Whether more than one character matches."""
    return token[0] == "?" or (token[0] == "[" and len(token) > 1)


def _character(token: str) -> str:
    if not _is_open(token):
        return re.escape(token[-1])
    return "." if token[0] == "?" else _one_of(token[1:-1])


_CLASSES = {  # those of POSIX, over ASCII as in git
    "[:alnum:]": "a-zA-Z0-9",
    "[:alpha:]": "a-zA-Z",
    "[:blank:]": r" \t",
    "[:cntrl:]": r"\x00-\x1f\x7f",
    "[:digit:]": "0-9",
    "[:graph:]": "!-~",
    "[:lower:]": "a-z",
    "[:print:]": " -~",
    "[:punct:]": re.escape(string.punctuation),
    "[:space:]": r" \t\n\v\f\r",
    "[:upper:]": "A-Z",
    "[:xdigit:]": "0-9a-fA-F",
}
_MEMBER = re.compile(r"(\[:[a-z]+:\])|(\\.|.)(?:-(\\.|.))?", re.S)


def _one_of(text: str) -> str:
    """What stands between brackets, as a regular expression of one character."""
    negated = text[:1] in {"!", "^"}
    members = "".join(map(_member, _MEMBER.finditer(text[1:] if negated else text)))
    if not members:
        return "." if negated else "(?!)"
    return f"[{'^' if negated else ''}{members}]"


def _member(found: re.Match[str]) -> str:
    """A class, a range or a character; a range that runs backwards holds nothing."""
    if found[1]:
        return _CLASSES.get(found[1], "")
    low, high = found[2][-1], (found[3] or found[2])[-1]
    return f"{re.escape(low)}-{re.escape(high)}" if low <= high else ""


NOTHING = NamePattern("[]")
