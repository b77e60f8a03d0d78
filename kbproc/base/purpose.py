"""Reads what a folder is for from its README."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from kbproc.base.paths import open_regular
from kbproc.base.unseen import visible

_NAMES = ("README.md", "README", "README.txt", "README.rst", "readme.md")
_HEAD_BYTES = 16_384
_MOST_CHARS = 200
# Headings, pictures, markup, tables, lists, rules and code say nothing in a sentence.
_NO_PROSE = re.compile(r"#|!\[|\[!\[|<|\||[-*+=~`>_^.:]{1,3}(?:\s|$|[-=~`>_^.:])|\d+\.\s|\s{4}|\t")
_LINK = re.compile(r"\[([^\[\]]*+)\](?:\([^()]*+\)|\[[^\[\]]*+\])")
_MARKS = re.compile(r"\*\*|__|`")
# "e.g." ends no sentence, and after a Chinese or Japanese one no space stands.
_SENTENCE = re.compile(r"(?<=[.!?])(?<!e\.g\.)(?<!i\.e\.)\s|(?<=[。！？])")
_FRONT_MATTER = re.compile(r"\A---\n.*?\n---(?:\n|\Z)", re.DOTALL)
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)


def purpose_of(folder: Path) -> str:
    """Returns the first sentence of a folder's README, as plain text; "" where there is none."""
    for name in _NAMES:
        try:
            with os.fdopen(open_regular(folder / name), "rb") as file:
                text = file.read(_HEAD_BYTES).decode(errors="replace")
        except OSError:
            continue
        return _shortened(_plain(" ".join(_first_paragraph(text))))
    return ""


def _first_paragraph(text: str) -> Iterator[str]:
    """Yields the lines of the first paragraph of prose."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    lines = _COMMENT.sub("", _FRONT_MATTER.sub("", text)).splitlines()
    is_fenced = has_begun = False
    for line, following in zip(lines, [*lines[1:], ""], strict=False):
        is_fence = line.lstrip().startswith(("```", "~~~"))
        is_fenced ^= is_fence
        is_title = re.fullmatch(r"\s*(?:={3,}|-{3,})\s*", following) is not None
        is_code = is_fenced or is_fence
        is_prose = not (is_code or is_title or not line.strip() or _NO_PROSE.match(line))
        if is_prose:
            has_begun = True
            yield line.strip()
        elif has_begun:
            return


def _plain(text: str) -> str:
    text = _MARKS.sub("", _LINK.sub(lambda match: match[1], text))
    return " ".join(visible(text).split())


def _shortened(text: str) -> str:
    """Returns the first sentence, which is cut at a word where it is long."""
    first = _SENTENCE.split(text, maxsplit=1)[0]
    if len(first) <= _MOST_CHARS:
        return first
    beginning = first[:_MOST_CHARS]
    return (beginning.rpartition(" ")[0] or beginning) + "…"
