"""Matches names and paths with the patterns of gitignore(5), in a time that patterns can't stretch.

Patterns hold `*`, `?`, `[a-z]`, backslashes and `**`.

A name's pattern is cut at its stars into pieces, each of which matches a fixed number of
characters. Each piece takes its first match behind the piece before it; a later match would only
leave less for the pieces that follow, so there is no backtracking. A match takes at most as many
steps as the lengths of pattern and name multiplied. The folders of a path are matched in the same
way, with `**` as the star.
"""

from __future__ import annotations

import re
import string
from collections.abc import Sequence
from itertools import groupby

MOST_CHARACTERS = 1000  # a pattern's limit; most file systems limit a name to 255 bytes

# A part of a pattern between two stars, which matches a fixed number of characters.
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
            start = _first(piece, name, at, end)
            if start < 0:
                return False
            at = start + length
        return True


class PathPattern:
    """A pattern of a path, in which only `**` matches slashes.

    A pattern without a slash, except at its end, matches the path's last name.
    """

    def __init__(self, text: str) -> None:
        tokens = _tokens(text)
        parts = ["".join(part) for slash, part in groupby(tokens, "/".__eq__) if not slash]
        self._parts = [None if part == "**" else NamePattern(part) for part in parts]
        if "/" not in tokens:
            self._parts = [None, NamePattern(text)]
        elif self._parts and self._parts[-1] is None:  # matches the contents, not the folder
            self._parts.append(NamePattern("*"))

    def matches(self, names: Sequence[str]) -> bool:
        """Returns True if the pattern matches the path; `names` are the path's parts in order."""
        part = index = 0
        retry: tuple[int, int] | None = None  # the part behind the last `**`, and its last try
        while index < len(names):
            pattern = self._parts[part] if part < len(self._parts) else NOTHING
            if pattern is None:
                retry = part + 1, index
                part += 1
            elif pattern.matches(names[index]):
                part, index = part + 1, index + 1
            elif retry:  # the `**` takes one name more
                part, index = retry[0], retry[1] + 1
                retry = part, index
            else:
                return False
        return all(pattern is None for pattern in self._parts[part:])


def _at(piece: Piece, name: str, at: int) -> bool:
    if isinstance(piece, str):
        return name.startswith(piece, at)
    return piece.match(name, at) is not None


def _first(piece: Piece, name: str, at: int, end: int) -> int:
    """Returns where the piece first matches between `at` and `end`, or -1."""
    if isinstance(piece, str):
        return name.find(piece, at, end)
    match = piece.search(name, at, end)
    return match.start() if match else -1


_TOKEN = re.compile(
    r"\*+|\[[!^]?\]?(?:\\.|\[:[a-z]{1,6}:\]|[^\]\\])*\]|\\.|.",
    re.S,
)


_TOKEN_WITHOUT_SET = re.compile(r"\*+|\\.|.", re.S)


def _tokens(text: str) -> list[str]:
    tokens: list[str] = []
    at, may_be_set = 0, True
    while match := (_TOKEN if may_be_set else _TOKEN_WITHOUT_SET).match(text, at):
        at = match.end()
        tokens.append("/" if match[0] == "\\/" else match[0])
        # A bracket is alone where it has no end, and then those behind it have none, either.
        may_be_set = may_be_set and match[0] != "["
    return tokens


def _piece(tokens: Sequence[str]) -> Piece:
    """Joins tokens, each of which matches one character: itself, any, or one of a set."""
    if not any(_is_open(token) for token in tokens):
        return "".join(token[-1] for token in tokens)
    return re.compile("".join(map(_character, tokens)), re.S)


def _is_open(token: str) -> bool:
    """Returns True if the token matches more than one character."""
    return token[0] == "?" or (token[0] == "[" and len(token) > 1)


def _character(token: str) -> str:
    if not _is_open(token):
        return re.escape(token[-1])
    return "." if token[0] == "?" else _one_of(token[1:-1])


_CLASSES = {  # the classes of POSIX, over ASCII as in git
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
    """Returns a regular expression of one character for the text between brackets."""
    negated = text[:1] in {"!", "^"}
    members = "".join(map(_member, _MEMBER.finditer(text[1:] if negated else text)))
    if not members:
        return "." if negated else "(?!)"
    return f"[{'^' if negated else ''}{members}]"


def _member(match: re.Match[str]) -> str:
    """Returns a class, a range or a character; "" for a range that runs backwards."""
    if match[1]:
        return _CLASSES.get(match[1], "")
    low, high = match[2][-1], (match[3] or match[2])[-1]
    return f"{re.escape(low)}-{re.escape(high)}" if low <= high else ""


NOTHING = NamePattern("[]")
