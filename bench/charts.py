"""Draws charts as SVG: points and lines on logarithmic scales, readable on light and dark.

The same figures give the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from typing import NamedTuple

_WIDTH, _LEFT, _RIGHT = 760, 200, 140
_ROW, _TITLE, _AXIS, _GAP = 24, 30, 26, 14
_HEIGHT = 240  # the height of a panel of lines

_STYLE = """<style>
text { font: 13px system-ui, sans-serif; fill: #1f2328; }
.title { font-weight: 600; }
.faint { fill: #59636e; font-size: 11px; }
.grid { stroke: #d1d9e0; stroke-width: 1; }
.dot { fill: #57606a; } .reach { stroke: #57606a; stroke-width: 2; opacity: .6; }
.mine .dot { fill: #0969da; } .mine .reach { stroke: #0969da; } .mine text { font-weight: 600; }
.line { fill: none; stroke: #57606a; stroke-width: 2; } .mine .line { stroke: #0969da; }
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc; } .faint { fill: #9198a1; } .grid { stroke: #3d444d; }
.dot { fill: #9198a1; } .reach, .line { stroke: #9198a1; }
.mine .dot { fill: #4493f8; } .mine .reach, .mine .line { stroke: #4493f8; }
}
</style>"""


class Row(NamedTuple):
    """A point with its reach, if known; a row with `mine` stands out."""

    label: str
    value: float
    reach: float | None = None
    mine: bool = False


class Panel(NamedTuple):
    """Rows with one scale; `format_value` turns a value into words."""

    title: str
    rows: Sequence[Row]
    format_value: Callable[[float], str]


class Interval(NamedTuple):
    """A share in [0, 1] with its interval. Rows without a `group` belong to the one above."""

    group: str
    label: str
    mean: float
    low: float
    high: float


class Line(NamedTuple):
    label: str
    points: Sequence[tuple[float, float]]
    mine: bool = False


def points(panels: Sequence[Panel]) -> str:
    """Draws panels below one another, each with its own scale in factors of ten."""
    top, parts = 0, []
    for panel in panels:
        parts += _panel(panel, top)
        top += _TITLE + _ROW * len(panel.rows) + _AXIS + _GAP
    return _svg(top, parts, " · ".join(panel.title for panel in panels))


def _panel(panel: Panel, top: int) -> list[str]:
    values = [v for row in panel.rows for v in (row.value, row.reach) if v]
    low, high = _decades(values)
    place = _scale(low, high, _LEFT, _WIDTH - _RIGHT)
    bottom = top + _TITLE + _ROW * len(panel.rows)
    parts = [_text(0, top + 18, panel.title, "title")]
    for decade in range(low, high + 1):
        x = place(10.0**decade)
        parts.append(_rule(x, top + _TITLE, x, bottom))
        parts.append(_text(x, bottom + 16, panel.format_value(10.0**decade), "faint", "middle"))
    for number, row in enumerate(panel.rows):
        parts += _row(row, top + _TITLE + _ROW * number + _ROW // 2, place, panel.format_value)
    return parts


def _row(
    row: Row, y: int, place: Callable[[float], float], format_value: Callable[[float], str]
) -> list[str]:
    parts = ['<g class="mine">' if row.mine else "<g>"]
    parts.append(_text(_LEFT - 12, y + 4, row.label, "", "end"))
    x, end = place(row.value), place(row.reach or row.value)
    if row.reach:
        parts.append(f'<line class="reach" x1="{x:.1f}" y1="{y}" x2="{end:.1f}" y2="{y}"/>')
    parts.append(f'<circle class="dot" cx="{x:.1f}" cy="{y}" r="5"/>')
    label = format_value(row.value) + (f" – {format_value(row.reach)}" if row.reach else "")
    parts.append(_text(max(x, end) + 10, y + 4, label, ""))
    return [*parts, "</g>"]


def intervals(title: str, rows: Sequence[Interval]) -> str:
    """Draws a row for each interval, from 0 to 1; the last row of a group stands out."""
    bottom = _TITLE + _ROW * len(rows)
    parts = [_text(0, 18, title, "title")]
    for tenth in range(0, 11, 2):
        x = _LEFT + (_WIDTH - _RIGHT - _LEFT) * tenth / 10
        parts.append(_rule(x, _TITLE, x, bottom))
        parts.append(_text(x, bottom + 16, f"{tenth / 10:.1f}", "faint", "middle"))
    for number, row in enumerate(rows):
        is_last = number + 1 == len(rows) or bool(rows[number + 1].group)
        parts += _interval(row, _TITLE + _ROW * number + _ROW // 2, is_last)
    return _svg(bottom + _AXIS, parts, title)


def _interval(row: Interval, y: int, stands_out: bool) -> list[str]:
    x, low, high = (
        _LEFT + (_WIDTH - _RIGHT - _LEFT) * value for value in (row.mean, row.low, row.high)
    )
    return [
        '<g class="mine">' if stands_out else "<g>",
        _text(0, y + 4, row.group, ""),
        _text(_LEFT - 12, y + 4, row.label, "", "end"),
        f'<line class="reach" x1="{low:.1f}" y1="{y}" x2="{high:.1f}" y2="{y}"/>',
        f'<circle class="dot" cx="{x:.1f}" cy="{y}" r="4"/>',
        _text(high + 10, y + 4, f"{row.mean:.3f}", ""),
        "</g>",
    ]


def lines(
    title: str,
    series: Sequence[Line],
    across: Callable[[float], str],
    format_value: Callable[[float], str],
) -> str:
    """Draws lines on two logarithmic scales."""
    xs = [x for line in series for x, _ in line.points]
    ys = [y for line in series for _, y in line.points if y > 0]
    left_x, right, top, bottom = 70, _WIDTH - 150, _TITLE, _TITLE + _HEIGHT
    (x_low, x_high), (y_low, y_high) = _decades(xs), _decades(ys)
    to_x, to_y = _scale(x_low, x_high, left_x, right), _scale(y_low, y_high, bottom, top)
    parts = [_text(0, 18, title, "title")]
    for decade in range(x_low, x_high + 1):
        x = to_x(10.0**decade)
        parts.append(_rule(x, top, x, bottom))
        parts.append(_text(x, bottom + 16, across(10.0**decade), "faint", "middle"))
    for decade in range(y_low, y_high + 1):
        y = to_y(10.0**decade)
        parts.append(_rule(left_x, y, right, y))
        parts.append(_text(left_x - 8, y + 4, format_value(10.0**decade), "faint", "end"))
    for line in series:
        parts += _line(line, to_x, to_y)
    return _svg(bottom + _AXIS, parts, title)


def _line(line: Line, to_x: Callable[[float], float], to_y: Callable[[float], float]) -> list[str]:
    places = [(to_x(x), to_y(y)) for x, y in line.points if y > 0]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    end_x, end_y = places[-1]
    return [
        '<g class="mine">' if line.mine else "<g>",
        f'<polyline class="line" points="{path}"/>',
        *(f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>' for x, y in places),
        _text(end_x + 10, end_y + 4, line.label, ""),
        "</g>",
    ]


def _decades(values: Sequence[float]) -> tuple[int, int]:
    """Returns exponents of ten around all values, at least one apart."""
    low = math.floor(math.log10(min(values)))
    return low, max(low + 1, math.ceil(math.log10(max(values))))


def _scale(low: int, high: int, first: float, last: float) -> Callable[[float], float]:
    return lambda value: first + (math.log10(value) - low) / (high - low) * (last - first)


def _rule(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="grid" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _text(x: float, y: float, content: str, kind: str, anchor: str = "start") -> str:
    style = f' class="{kind}"' if kind else ""
    return f'<text{style} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(content)}</text>'


def _svg(height: int, parts: Sequence[str], label: str) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        f'width="{_WIDTH}" height="{height}" role="img" aria-label="{escape(label)}">'
    )
    return "\n".join([head, _STYLE, *parts, "</svg>"]) + "\n"
