"""Formats a Markdown page for a terminal: prose and tables are wrapped, code is not."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING, TextIO

from kbproc.surfaces.shell.printing import tables

if TYPE_CHECKING:
    from rich.console import RenderableType

_WIDEST = 100  # longer lines are hard to read
_UNWRAPPED = re.compile(r"^(```.*?^```$|#{1,6} .*?$)", re.M | re.S)
_LINK = re.compile(
    r"(?<!!)\[([^][]+)\]\((?:\.\./)*(?P<page>[\w/-]+\.md)?(?P<anchor>#[^][()\s]*)?\)"
)
_IMAGE = re.compile(r"!\[([^][]*)\]\([^()\s]+\)")
_RULES = {"#": "=", "##": "-"}


def on_screen(markdown: str, out: TextIO, *, color: bool) -> str:
    """Returns the page at the terminal's width, and in colours if `out` is a terminal."""
    width = shutil.get_terminal_size().columns
    return as_text(markdown, width=width, color=color and out.isatty())


def as_text(markdown: str, *, width: int, color: bool) -> str:
    """Returns lines of at most `width` cells; code may be longer, so that it can be copied."""
    console = tables.console(min(width, _WIDEST), color)
    with console.capture() as drawn:
        for piece in filter(str.strip, _UNWRAPPED.split(markdown)):
            console.print(_drawn(piece.strip("\n")), soft_wrap=piece.startswith("```"))
            console.print()
    lines = (line.rstrip() for line in drawn.get().splitlines())
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip("\n") + "\n"


def _drawn(piece: str) -> RenderableType:
    from rich.markdown import Markdown
    from rich.text import Text

    if piece.startswith("```"):
        code = "\n".join(f"    {line}" for line in piece.split("\n")[1:-1])
        return Text(code, style="cyan")
    if not piece.startswith("#"):
        return Markdown(_linked(piece), hyperlinks=False)
    level, _, title = piece.replace("`", "").partition(" ")
    rule = _RULES.get(level, "") * len(title)
    return Text(f"{title}\n{rule}".strip(), style="bold")


def _linked(piece: str) -> str:
    """Returns the piece with links as `kbproc docs` takes them: undo#forgetting.

    A link within the page is its text alone. In a table the section is left out, because a cell
    can't break it.
    """

    def link(match: re.Match[str]) -> str:
        if match["page"] is None:
            return match[1]
        is_in_table = piece.startswith("|", piece.rfind("\n", 0, match.start()) + 1)
        anchor = "" if is_in_table else match["anchor"] or ""
        return f"[{match[1]}]({match['page'].removesuffix('.md')}{anchor})"

    return _LINK.sub(link, _IMAGE.sub(r"(Picture: \1)", piece))
