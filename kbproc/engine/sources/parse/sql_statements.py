"""Cuts SQL where its statements end, and names the table or the function of each.

A row of a dump is cited by its table, also where a line holds a megabyte of rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from typing import Literal, NamedTuple

from kbproc.base.patterns import lazy
from kbproc.engine.sources.parse.blocks import Block

# Strings, names and comments are passed over, because the signs within them end no statement.
_PLAIN_TEXT = r"'(?:[^']++|'')*+'?"
_ESCAPED_TEXT = r"'(?:[^'\\]++|''|\\.)*+'?"
_SIGNS = (
    r"|\"[^\"]*+\"?|`[^`]*+`?|--[^\n]*+|^#[^\n]*+|/\*(?!!)(?:[^*]++|\*(?!/))*+(?:\*/)?"
    r"|(?P<dollar>\$(?:[A-Za-z_]\w*+)?\$)|(?P<end>;)|^[ \t]*+(?P<go>(?:GO|/)[ \t]*+$)"
    r"|^[ \t]*+DELIMITER[ \t]++(?P<delimiter>\S++)"
    r"|\b(?P<begin>BEGIN|CASE)\b|\b(?P<close>END)\b(?!\s++(?:IF|LOOP|WHILE|REPEAT|FOR)\b)"
)
_FLAGS = re.I | re.M | re.S
# PostgreSQL and SQLite know a backslash only in E'…'; MySQL, which quotes names so: `a`, in all.
_TOKEN = lazy(rf"\bE{_ESCAPED_TEXT}|{_PLAIN_TEXT}{_SIGNS}", _FLAGS)
_MYSQL_TOKEN = lazy(rf"{_ESCAPED_TEXT}{_SIGNS}", _FLAGS)
# Comments and commands of a client, which belong to the statement below them.
_BEFORE = lazy(
    r"(?:\s++|--[^\n]*+|#[^\n]*+|\\[^\n]*+|DELIMITER\b[^\n]*+|/\*!\d*+"
    r"|/\*(?!!)(?:[^*]++|\*(?!/))*+(?:\*/)?|\*/)*+",
    re.I,
)
_PART = r"(?:`[^`]++`|\"[^\"]++\"|\[[^\]]++\]|[\w$#@]++)"
_NAME = rf"(?P<name>{_PART}(?:\s*+\.\s*+{_PART})*+)"
_CREATED = (
    r"FUNCTION|PROCEDURE|PROC|TABLE|VIEW|TRIGGER|INDEX|TYPE|SEQUENCE|PACKAGE(?:\s++BODY)?|EVENT|"
    r"SCHEMA|DATABASE|DOMAIN|POLICY|ROLE|EXTENSION|AGGREGATE"
)
_HEAD = lazy(
    r"(?:(?:INSERT|REPLACE)(?:\s++(?:LOW_PRIORITY|DELAYED|HIGH_PRIORITY|IGNORE|OVERWRITE|OR\s++\w++))*+"
    r"(?:\s++INTO)?(?:\s++TABLE)?"
    r"|UPDATE(?:\s++OR\s++\w++)?(?:\s++ONLY)?|DELETE\s++FROM(?:\s++ONLY)?|MERGE\s++INTO"
    r"|(?:ALTER|DROP|TRUNCATE)\s++TABLE(?:\s++IF\s++EXISTS)?(?:\s++ONLY)?|(?P<copy>COPY)"
    r"|CREATE(?:(?:\s++|\*/|/\*!\d*+)++(?:OR\s++\w++|DEFINER\s*+=\s*+\S++|ALGORITHM\s*+=\s*+\w++|SQL\s++SECURITY\s++\w++"
    rf"|(?!(?:{_CREATED})\b)[A-Z]++))*+(?:\s++|\*/|/\*!\d*+)++(?P<word>{_CREATED})"
    r"(?:\s++CONCURRENTLY)?(?:\s++IF\s++NOT\s++EXISTS)?)"
    rf"\s++{_NAME}",
    re.I,
)
_DELIMITER = lazy(r"^[ \t]*+DELIMITER[ \t]++(\S++)", re.I | re.M)
_END_OF_ROWS = lazy(r"^\\\.$", re.M)
_BATCH = lazy(r"^[ \t]*+(?:GO|/)[ \t]*+$", re.I | re.M)
_FROM_STDIN = lazy(r"COPY\b[^;]*\bFROM\s++STDIN\b", re.I)
_ROUTINES = frozenset({"function", "procedure", "trigger", "event", "package", "package body"})
_OF_DEFAULT_SCHEMAS = lazy(r"\A(?:public|dbo|main)\.(?=.)", re.I)
_QUOTES = lazy(r"[`\"\[\]]")
_BLANK_LINES = lazy(r"\n(?:[^\S\n]*+\n)++")
_LEADING = lazy(r"(?:[^\S\n]*+\n)*+")


# A semicolon ends a statement, except within BEGIN … END of a routine's body. In a text of
# batches, which a line `GO` or `/` ends, it ends no routine at all.
_Extent = Literal["statement", "body", "batch"]


class _Statement(NamedTuple):
    """A stretch of the text, and what it makes or fills."""

    start: int
    end: int
    section: str | None


def blocks(text: str) -> Iterator[Block]:
    """Yields the statements of a text; those of one table stay together up to a blank line."""
    line, counted = 1, 0
    for section, group in groupby(_statements(text), lambda each: each.section):
        statements = list(group)
        for start, end in _stanzas(text, statements[0].start, statements[-1].end):
            line += text.count("\n", counted, start)
            counted = start
            yield Block(text=text[start:end], section=section, kind="code", line=line)


def _stanzas(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yields the stretches between blank lines that hold something."""
    for gap in _BLANK_LINES.finditer(text, start, end):
        yield from _trimmed(text, start, gap.start())
        start = gap.end()
    yield from _trimmed(text, start, end)


def _trimmed(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yields the stretch without the line breaks around it."""
    match = _LEADING.match(text, start, end)
    start = match.end() if match else start
    if start and text[start - 1] != "\n":
        start += len(text[start:end]) - len(text[start:end].lstrip(" \t"))
    end = start + len(text[start:end].rstrip())
    if start < end:
        yield start, end


def _statements(text: str) -> Iterator[_Statement]:
    """Yields the statements of a text, each with the comments before it."""
    tokens = _MYSQL_TOKEN if "`" in text else _TOKEN
    has_batches = _BATCH.search(text) is not None
    start = 0
    delimiter = ";"
    while start < len(text):
        match = _BEFORE.match(text, start)
        begin = match.end() if match else start
        for each in _DELIMITER.finditer(text, start, begin):
            delimiter = each[1]
        head = _HEAD.match(text, begin)
        word = (head["word"] or "table").lower() if head else ""
        extent: _Extent = "statement"
        if word in _ROUTINES:
            extent = "batch" if has_batches else "body"
        end = _end(text, begin, delimiter, tokens, extent)
        if head and head["copy"] and _FROM_STDIN.match(text, begin, end):
            end = _end_of_rows(text, end)
        yield _Statement(start, end, _section(word, head["name"]) if head else None)
        start = end


def _end(text: str, begin: int, delimiter: str, tokens: re.Pattern[str], extent: _Extent) -> int:
    """Returns the character behind a statement."""
    if delimiter != ";":
        at = text.find(delimiter, begin)
        return len(text) if at < 0 else at + len(delimiter)
    at, depth = begin, 0
    while match := tokens.search(text, at):
        at = match.end()
        if match["dollar"]:
            close = text.find(match["dollar"], at)
            at = len(text) if close < 0 else close + len(match["dollar"])
        elif match["go"] or (match["end"] and extent != "batch" and not depth):
            return at
        elif match["delimiter"]:
            return match.start()
        elif extent == "body" and match["begin"]:
            depth += 1
        elif extent == "body" and match["close"]:
            depth = max(0, depth - 1)
    return len(text)


def _end_of_rows(text: str, start: int) -> int:
    """Returns the character behind the rows of COPY, which a line `\\.` ends."""
    match = _END_OF_ROWS.search(text, start)
    return match.end() if match else len(text)


def _section(word: str, name: str) -> str:
    plain = ".".join(part.strip() for part in _QUOTES.sub("", name).split("."))
    plain = _OF_DEFAULT_SCHEMAS.sub("", plain, count=1)
    return f"{'procedure' if word == 'proc' else ' '.join(word.split())} {plain}"
