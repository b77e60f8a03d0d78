"""Draws the screen of a tested block of the docs as an SVG, for pages that show pictures."""

from __future__ import annotations

import re
from html import escape
from pathlib import Path

_LINE, _CHARACTER, _EDGE = 18, 8.43, 16  # pixels; a monospaced character is .602 of its height


def files(repo: Path) -> dict[str, str]:
    """Returns path → text."""
    page = (repo / "docs" / "start.md").read_text(encoding="utf-8")
    (screen,) = re.findall(r"^```console\n(.*?)^```", page, re.M | re.S)
    return {"docs/start.svg": _drawn(screen.rstrip("\n").split("\n"))}


def _drawn(lines: list[str]) -> str:
    width = round(_CHARACTER * max(map(len, lines))) + 2 * _EDGE
    height = _LINE * len(lines) + 2 * _EDGE
    texts = [
        f'<text x="{_EDGE}" y="{_EDGE + _LINE * number - 4}" xml:space="preserve"'
        f"{_weight(line)}>{escape(line, quote=False)}</text>"
        for number, line in enumerate(lines, 1)
        if line
    ]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">\n'
        "<title>kbproc start, on a terminal</title>\n"
        f'<rect width="{width}" height="{height}" rx="8" fill="#1d1f24"/>\n'
        '<g fill="#d8dbe2" font-size="14" '
        'font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace">\n'
    )
    return head + "\n".join(texts) + "\n</g>\n</svg>\n"


def _weight(line: str) -> str:
    return ' font-weight="bold"' if line.startswith("$ ") else ""
