"""Formats answers as text for people.

Tables, key/value lists, search results, plans and errors become lines of text without
control characters.
"""

from __future__ import annotations

import io
import re
import shlex
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from kbproc.base.layout import (
    HitLayout,
    Hits,
    Layout,
    LayoutRecord,
    Report,
    Table,
    TextLines,
    in_minutes,
)
from kbproc.base.wording import failure_in_words
from kbproc.methods.calls.method import Method

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

# A document's text must not steer the terminal: C0 but tab and newline, DEL, C1, bidi.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_LONGEST_CELL = 160
_MOST_COLUMNS = 6
_LEAST_CELL = 10
_MOST_CHANGES = 20
_MOST_VALUES = 8
_MOST_FAILURES = 20
_MOST_IDS = 30


def result_text(
    method: Method | None,
    params: dict[str, Any],
    result: dict[str, Any],
    *,
    width: int = 80,
    color: bool = False,
    details: bool = False,
) -> str:
    """Returns an answer's data as text, without `remarks`. `details`: with a report's details."""
    page = console(width, color)
    data, meta = result["data"], result["meta"]
    if data is None:
        if "plan" in meta:
            _print(page, plan_lines(meta["plan"]))
            _print(page, ["Nothing was written."])
    elif method is not None and isinstance(method.result, tuple) and not method.layout:
        _print(page, [msgspec.json.format(msgspec.json.encode(data)).decode()])
    else:
        if method is None and meta.get("dry_run"):  # a method's dry run answers a plan
            _print(page, ["Dry run: nothing was changed. The result would be:", ""])
        is_lean = meta.get("lean")
        layout = _lean(data, params) if is_lean else _layout(method, params, data)
        _draw(page, layout, details=details)
    return _drawn(page)


def _layout(method: Method | None, params: dict[str, Any], data: Any) -> Layout:
    layout = None if method is None else method.layout
    if callable(layout):
        return layout(data, params)
    if isinstance(data, list):
        return Table(rows=data, columns=layout)
    return LayoutRecord(members=data)


def _lean(data: Any, params: dict[str, Any]) -> Layout:
    """Returns the layout of data with only the requested members, none of which is left out."""
    if isinstance(data, dict) and isinstance(data.get("results"), list):
        data = data["results"]
    if not isinstance(data, list):
        return LayoutRecord(members=data)
    names = list(dict.fromkeys(name for row in data for name in row))
    rows = [dict.fromkeys(names) | row for row in data]
    requested = dict.fromkeys(field.partition(".")[0] for field in params.get("fields") or ())
    return Table(rows=rows, columns=[name for name in requested if name in names] or None)


def is_report(method: Method | None, params: dict[str, Any], result: dict[str, Any]) -> bool:
    """Returns true if the answer's text lists its failures."""
    data, lean = result["data"], result["meta"].get("lean")
    return data is not None and not lean and isinstance(_layout(method, params, data), Report)


def item_lines(method: Method, item: dict[str, Any]) -> Iterator[str]:
    """Returns the lines of an item of an endless stream."""
    layout = _layout(method, {}, [item])
    assert isinstance(layout, TextLines)  # noqa: S101
    return map(plain, layout.lines)


def _draw(page: Console, layout: Layout, *, details: bool = False) -> None:
    if isinstance(layout, Table):
        _table(page, layout)
    elif isinstance(layout, Hits):
        _hits(page, layout)
    elif isinstance(layout, Report):
        _report(page, layout, details=details)
    elif isinstance(layout, TextLines):
        _print(page, map(plain, layout.lines))
    else:
        _record(page, layout.members)


def without(result: dict[str, Any], printed: Container[str]) -> dict[str, Any]:
    """Returns an answer without the notices and warnings that were printed before.

    A text that is both a notice and a warning stays a warning.
    """
    data, meta = result["data"], result["meta"]
    if isinstance(data, dict) and isinstance(data.get("warnings"), list):
        data = {**data, "warnings": [line for line in data["warnings"] if line not in printed]}
    rows = data.get("warnings", []) if isinstance(data, dict) else []
    if "notice" in meta:
        notices = [line for line in meta["notice"] if line not in printed and line not in rows]
        meta = {**meta, "notice": notices}
    return {"data": data, "meta": meta}


def remarks(result: dict[str, Any]) -> Iterator[str]:
    """Yields the lines of an answer's meta for a person."""
    meta = result["meta"]
    if meta.get("duplicate"):
        yield "Note: nothing was done: this is the outcome of an earlier request with this token."
    for notice in meta.get("notice", []):
        yield f"Note: {plain(notice)}"
    if "hint" in meta:
        yield f"Hint: {plain(meta['hint'])}"
    if "next_cursor" in meta:
        of = f" of {meta['total']}" if "total" in meta else ""
        yield (
            f"{meta['count']}{of} shown. --cursor {meta['next_cursor']} shows the next page, "
            "--all shows every page."
        )


def error_lines(data: dict[str, Any]) -> Iterator[str]:
    """Yields the lines of an error's data."""
    failures = [_failure(failure) for failure in data["detail"].get("failures", [])]
    yield f"Error ({data['type']}): {plain(data['message'])}"
    for finding in data["detail"].get("findings", []):
        if finding["status"] != "pass":
            failures.append(f"{finding['name']} ({finding['status']}): {finding['message']}")
    for failure in failures[:_MOST_FAILURES]:
        yield f"  {plain(failure)}"
    yield from _more(len(failures) - _MOST_FAILURES)
    if "plan" in data:
        yield from plan_lines(data["plan"])
    if data.get("valid_values"):
        yield f"Valid values: {_few(data['valid_values'])}"
    if data["hint"]:
        yield f"Hint: {plain(data['hint'])}"
    if "argv" in data.get("retry", {}):
        yield f"Retry: {plain(shlex.join(data['retry']['argv']))}"


def _failure(failure: dict[str, Any]) -> str:
    """Returns the line of a failed file, or of a failed text, which most messages name."""
    message = str(failure["message"])
    if "path" in failure:
        return failure_in_words(failure["path"], message, failure["path"])
    field = failure.get("field", "")
    return message if field and field in message else f"{field}: {message}"


def _few(values: list[Any]) -> str:
    """Returns the first values; all of them where there are hardly more."""
    first = values if len(values) <= _MOST_VALUES + 2 else values[:_MOST_VALUES]
    text = ", ".join(plain(str(value)) for value in first)
    return text + (f" and {len(values) - len(first)} more" if len(first) < len(values) else "")


def plan_lines(plan: dict[str, Any]) -> Iterator[str]:
    yield f"Plan: {plan['action']} (risk: {plan['risk']['level']})"
    for change in plan["changes"][:_MOST_CHANGES]:
        yield f"  {plain(change)}"
    yield from _more(len(plan["changes"]) - _MOST_CHANGES)
    if not plan["changes"]:
        for event in plan["events"]["items"][:_MOST_CHANGES]:
            yield f"  {plain(event['summary'])}"
        yield from _more(plan["events"]["total"] - _MOST_CHANGES)


def _more(count: int) -> Iterator[str]:
    if count > 0:
        yield f"  … and {count} more"


def plain(text: str) -> str:
    return _CONTROL.sub("\ufffd", text)


# ------------------------------------------------------------------------ hits


def _hits(page: Console, layout: Hits) -> None:
    if layout.head is not None:
        _print(page, [plain(layout.head), ""])
    elif not layout.hits:
        _print(page, ["Nothing found."])
    for number, hit in enumerate(layout.hits, layout.first):
        _hit(page, number, hit)


def _hit(page: Console, number: int, hit: HitLayout) -> None:
    from rich.text import Text

    line = Text(f"{number}. [{hit.score:.3f}] ")
    line.append(plain(hit.title), "bold")
    line.append(plain(hit.labels), "dim")
    page.print(line, soft_wrap=True)
    more = {name: value for name, value in hit.more.items() if value is not None}
    details = [f"{_label(name)}: {in_words(name, value)}" for name, value in more.items()]
    if hit.where:
        details.append(plain(hit.where))
    for text in (_marked(hit), *map(Text, details)):
        for part in text.wrap(page, page.width - 3):
            part.rstrip()
            page.print(Text("   ").append_text(part), soft_wrap=True)


def _marked(hit: HitLayout) -> Text:
    """Returns the snippet as one line, with the matching words in bold."""
    from rich.text import Text

    text = Text()
    for word in re.finditer(r"\S+", hit.snippet):
        text.append(" " if text else "")
        moved = len(text) - word.start()
        text.append(plain(word[0]))
        for start, end in hit.highlights:
            if start < word.end() and end > word.start():
                text.stylize("bold", max(start, word.start()) + moved, end + moved)
    return text


# ---------------------------------------------------------- tables and records


def _table(page: Console, layout: Table) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as Grid

    rows, verbatim = layout.rows, layout.verbatim
    if not rows:
        _print(page, ["Nothing found."])
        return
    names = [
        name
        for name in layout.columns or _columns(rows)
        if verbatim or any(row[name] is not None for row in rows)
    ]
    cells = {name: [_cell(name, row[name], verbatim) for row in rows] for name in names}
    labels = {name: _label(name, verbatim) for name in names}
    if _least_width(labels, cells) > page.width:
        _blocks(page, [{name: row[name] for name in names} for row in rows], verbatim)
        return
    grid = Grid(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    for name in names:
        number = all(isinstance(row[name], (int, float, type(None))) for row in rows)
        grid.add_column(
            labels[name],
            justify="right" if number else "left",
            no_wrap=number or name.endswith("_at"),
            overflow="fold",
        )
    for texts in zip(*cells.values(), strict=True):
        grid.add_row(*map(_short, texts))
    page.print(grid)


def _least_width(labels: dict[str, str], cells: dict[str, list[str]]) -> int:
    """Returns the smallest width of a readable table, whose long texts are folded."""

    def least(name: str, texts: list[str]) -> int:
        longest = max(map(len, texts))
        is_unfolded = name.endswith("_at") or all(text[:1] in "-0123456789" for text in texts)
        return max(len(labels[name]), longest if is_unfolded else min(longest, _LEAST_CELL))

    return sum(least(name, texts) for name, texts in cells.items()) + 3 * (len(cells) - 1)


def _blocks(page: Console, rows: Sequence[dict[str, Any]], verbatim: bool) -> None:
    """Prints each row as a list, for rows whose table would not fit."""
    for number, row in enumerate(rows):
        if number:
            _print(page, [""])
        _record(page, row, verbatim)


def _columns(rows: Sequence[dict[str, Any]]) -> list[str]:
    simple = [name for name, value in rows[0].items() if not isinstance(value, dict)]
    return simple[:_MOST_COLUMNS]


def _cell(name: str, value: Any, verbatim: bool) -> str:
    return _literal(value) if verbatim else in_words(name, value)


def _literal(value: Any) -> str:
    """Returns a text as it is, and any other value as JSON."""
    return plain(value if isinstance(value, str) else msgspec.json.encode(value).decode())


def _short(text: str) -> RenderableType:
    from rich.text import Text

    text = " ".join(text.split())
    return Text(text if len(text) <= _LONGEST_CELL else text[: _LONGEST_CELL - 1] + "…")


def _record(page: Console, data: dict[str, Any], verbatim: bool = False) -> None:
    """Prints short members as a list, then long texts and lists of objects."""
    from rich.table import Table as Grid
    from rich.text import Text

    if verbatim:
        data = {name: _literal(value) for name, value in data.items()}
    members = {name: value for name, value in data.items() if verbatim or not _is_empty(value)}
    long = {name: value for name, value in members.items() if _is_long(value)}
    grid = Grid.grid(padding=(0, 2))
    grid.add_column(no_wrap=True, style="bold")
    grid.add_column(overflow="fold")
    for name, value in members.items():
        if name not in long:
            grid.add_row(_label(name, verbatim), Text(_cell(name, value, verbatim)))
    page.print(grid)
    for name, value in long.items():
        _print(page, ["", f"{_label(name, verbatim)}:"])
        if isinstance(value, list):
            _table(page, Table(rows=value))
        elif isinstance(value, dict):
            _record(page, value)
        else:
            _print(page, [plain(value)])


def _report(page: Console, report: Report, *, details: bool) -> None:
    for part in report.parts:
        heading, lines = part.shown(details=details)
        if lines:
            _print(page, [f"{heading}:", *(f"  {plain(line)}" for line in lines), ""])
    _record(page, report.counts)


def _is_empty(value: Any) -> bool:
    """Returns true for a value that is empty, such as an object whose members are all null."""
    if isinstance(value, dict):
        return all(item is None for item in value.values())
    return value is None or value in ([], "")


def _is_long(value: Any) -> bool:
    if isinstance(value, list):
        return isinstance(value[0], dict)
    text = in_words("", value)
    return isinstance(value, (str, dict)) and ("\n" in text or len(text) > _LONGEST_CELL)


def _label(name: str, verbatim: bool = False) -> str:
    if verbatim:
        return plain(name)
    if name == "chunk_count":
        return "chunks"
    return name.removesuffix("_bytes").replace("_", " ")


def in_words(name: str, value: Any) -> str:
    """Returns a member's value in words."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, int) and name.endswith("_bytes"):
        return size(value)
    if isinstance(value, list):
        most = _MOST_IDS if name == "ids" else len(value)
        first = ", ".join(in_words("", item) for item in value[:most])
        return f"{first} and {len(value) - most} more" if len(value) > most else first
    if isinstance(value, dict):
        items = {key: item for key, item in value.items() if item is not None}
        return ", ".join(f"{plain(key)} {in_words(key, item)}" for key, item in items.items())
    return plain(in_minutes(str(value)))


def size(count: int) -> str:
    """Returns a number of bytes in the largest unit that fits, a power of 1024."""
    amount, unit = float(count), "B"
    for unit in ("B", "KiB", "MiB", "GiB"):  # noqa: B007  the last one is used below
        if amount < 1024:
            break
        amount /= 1024
    return f"{count} B" if unit == "B" else f"{amount:.1f} {unit}"


# ------------------------------------------------------------------------ page


def console(width: int, color: bool) -> Console:
    from rich.console import Console

    return Console(
        file=io.StringIO(),
        width=width,
        force_terminal=color,
        color_system="standard" if color else None,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )


def _print(page: Console, lines: Iterable[str]) -> None:
    for line in lines:
        page.print(line, soft_wrap=True)


def _drawn(page: Console) -> str:
    assert isinstance(page.file, io.StringIO)  # noqa: S101
    lines = [line.rstrip() for line in page.file.getvalue().split("\n")]
    if not any(lines):
        return ""
    return "\n".join(lines).strip("\n") + "\n"
