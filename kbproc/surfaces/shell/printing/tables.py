"""Answers as text for people.

Owns: tables, key/value lists, search results, plans and errors as lines of text,
and taking control characters out of them.
Refuses to know: where the text goes. `width` is in terminal cells; with `color`
False no escape sequence is written.
"""

from __future__ import annotations

import io
import re
import shlex
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from kbproc.base.layout import Hit, Hits, Layout, Lines, Record, Table, in_minutes
from kbproc.calls.method import Method

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

# A document's text must not steer the terminal: C0 but tab and newline, DEL, C1, bidi.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_LONGEST_CELL = 160
_MOST_COLUMNS = 6
_LEAST_CELL = 10
_MOST_CHANGES = 20
_MOST_VALUES = 8
_MOST_FAILURES = 20


def result_text(
    method: Method | None,
    params: dict[str, Any],
    result: dict[str, Any],
    *,
    width: int = 80,
    color: bool = False,
) -> str:
    """An answer's data; what meta says besides is `remarks`."""
    page = console(width, color)
    data, meta = result["data"], result["meta"]
    if data is None:
        if "plan" in meta:
            _print(page, plan_lines(meta["plan"]))
            _print(page, ["Nothing was written."])
    elif method is not None and isinstance(method.result, tuple) and not method.shown:
        _print(page, [msgspec.json.format(msgspec.json.encode(data)).decode()])
    else:
        if method is None and meta.get("dry_run"):  # a method's dry run answers a plan
            _print(page, ["A dry run: this would be so.", ""])
        _draw(page, _lean(data) if meta.get("lean") else _layout(method, params, data))
    return _drawn(page)


def _layout(method: Method | None, params: dict[str, Any], data: Any) -> Layout:
    shown = None if method is None else method.shown
    if callable(shown):
        return shown(data, params)
    if isinstance(data, list):
        return Table(rows=data, columns=shown)
    return Record(members=data)


def _lean(data: Any) -> Layout:
    """Of whatever members were asked for."""
    if isinstance(data, dict) and isinstance(data.get("results"), list):
        data = data["results"]
    return Table(rows=data) if isinstance(data, list) else Record(members=data)


def item_lines(method: Method, item: dict[str, Any]) -> Iterator[str]:
    """An item of a stream that never ends by itself."""
    layout = _layout(method, {}, [item])
    assert isinstance(layout, Lines)  # noqa: S101
    return map(plain, layout.lines)


def _draw(page: Console, layout: Layout) -> None:
    if isinstance(layout, Table):
        _table(page, layout.rows, layout.columns)
    elif isinstance(layout, Hits):
        _hits(page, layout)
    elif isinstance(layout, Lines):
        _print(page, map(plain, layout.lines))
    else:
        _record(page, layout.members)


def without(result: dict[str, Any], told: Container[str]) -> dict[str, Any]:
    """An answer less the notices and warnings that were printed before.

    What is both a notice and a warning stays a warning.
    """
    data, meta = result["data"], result["meta"]
    if isinstance(data, dict) and isinstance(data.get("warnings"), list):
        data = {**data, "warnings": [line for line in data["warnings"] if line not in told]}
    rows = data.get("warnings", []) if isinstance(data, dict) else []
    if "notice" in meta:
        left = [line for line in meta["notice"] if line not in told and line not in rows]
        meta = {**meta, "notice": left}
    return {"data": data, "meta": meta}


def remarks(result: dict[str, Any]) -> Iterator[str]:
    """What meta has to say to a person, a line each."""
    meta = result["meta"]
    if meta.get("duplicate"):
        yield "Note: this was done before under the same client_token; nothing was done now."
    for notice in meta.get("notice", []):
        yield f"Note: {plain(notice)}"
    if "hint" in meta:
        yield f"Hint: {plain(meta['hint'])}"
    if "next_cursor" in meta:
        of = f" of {meta['total']}" if "total" in meta else ""
        yield (
            f"{meta['count']}{of} shown. For the next ones add --cursor {meta['next_cursor']}, "
            "for all of them --all"
        )


def error_lines(data: dict[str, Any]) -> Iterator[str]:
    """`data`: the error's data."""
    yield f"Error ({data['type']}): {plain(data['message'])}"
    failures = [_failure(failure) for failure in data["detail"].get("failures", [])]
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
    yield f"Hint: {plain(data['hint'])}"
    if "argv" in data.get("retry", {}):
        yield f"Retry: {plain(shlex.join(data['retry']['argv']))}"


def _failure(failure: dict[str, Any]) -> str:
    """Of one file, or of one of many texts in a request; most messages name the latter."""
    where, said = failure.get("path", failure.get("field", "")), str(failure["message"])
    return said if "field" in failure and where in said else f"{where}: {said}"


def _few(values: list[Any]) -> str:
    """The nearest; all of them where there are hardly more."""
    shown = values if len(values) <= _MOST_VALUES + 2 else values[:_MOST_VALUES]
    told = ", ".join(plain(str(value)) for value in shown)
    return told + (f" and {len(values) - len(shown)} more" if len(shown) < len(values) else "")


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


def _hits(page: Console, found: Hits) -> None:
    if found.head is not None:
        _print(page, [plain(found.head), ""])
    elif not found.hits:
        _print(page, ["Nothing."])
    for number, hit in enumerate(found.hits, found.first):
        _hit(page, number, hit)


def _hit(page: Console, number: int, hit: Hit) -> None:
    from rich.text import Text

    line = Text(f"{number}. [{hit.score:.3f}] ")
    line.append(plain(hit.title), "bold")
    line.append(plain(hit.labels), "dim")
    page.print(line, soft_wrap=True)
    more = {name: value for name, value in hit.more.items() if value is not None}
    told = [f"{_label(name)}: {in_words(name, value)}" for name, value in more.items()]
    if hit.where:
        told.append(plain(hit.where))
    for text in (" ".join(plain(hit.snippet).split()), *told):
        for part in Text(text).wrap(page, page.width - 3):
            page.print(f"   {part.plain.rstrip()}", soft_wrap=True)


# ---------------------------------------------------------- tables and records


def _table(page: Console, rows: Sequence[Any], columns: Iterable[str] | None) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    if not rows:
        _print(page, ["Nothing."])
        return
    shown = [
        name for name in columns or _columns(rows) if any(row[name] is not None for row in rows)
    ]
    cells = {name: [in_words(name, row[name]) for row in rows] for name in shown}
    if _least_width(cells) > page.width:
        _blocks(page, [{name: row[name] for name in shown} for row in rows])
        return
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    for name in shown:
        number = all(isinstance(row[name], (int, float, type(None))) for row in rows)
        table.add_column(
            _label(name),
            justify="right" if number else "left",
            no_wrap=number or name.endswith("_at"),
            overflow="fold",
        )
    for row in rows:
        table.add_row(*(_cell(name, row[name]) for name in shown))
    page.print(table)


def _least_width(cells: dict[str, list[str]]) -> int:
    """What a table takes whose texts are folded as far as they can be read."""

    def least(name: str, texts: list[str]) -> int:
        longest = max(map(len, texts))
        whole = name.endswith("_at") or all(text[:1] in "-0123456789" for text in texts)
        return max(len(_label(name)), longest if whole else min(longest, _LEAST_CELL))

    return sum(least(name, texts) for name, texts in cells.items()) + 3 * (len(cells) - 1)


def _blocks(page: Console, rows: Sequence[dict[str, Any]]) -> None:
    """One row below the other: a table would not fit."""
    for number, row in enumerate(rows):
        if number:
            _print(page, [""])
        _record(page, row)


def _columns(rows: Sequence[dict[str, Any]]) -> list[str]:
    simple = [name for name, value in rows[0].items() if not isinstance(value, dict)]
    return simple[:_MOST_COLUMNS]


def _cell(name: str, value: Any) -> RenderableType:
    from rich.text import Text

    told = " ".join(in_words(name, value).split())
    return Text(told if len(told) <= _LONGEST_CELL else told[: _LONGEST_CELL - 1] + "…")


def _record(page: Console, data: dict[str, Any]) -> None:
    """Short members first as a list, then long texts and lists of things."""
    from rich.table import Table
    from rich.text import Text

    given = {name: value for name, value in data.items() if not _is_empty(value)}
    long = {name: value for name, value in given.items() if _is_long(value)}
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True, style="bold")
    grid.add_column(overflow="fold")
    for name, value in given.items():
        if name not in long:
            grid.add_row(_label(name), Text(in_words(name, value)))
    page.print(grid)
    for name, value in long.items():
        _print(page, ["", f"{_label(name)}:"])
        if isinstance(value, list):
            _table(page, value, None)
        elif isinstance(value, dict):
            _record(page, value)
        else:
            _print(page, [plain(value)])


def _is_empty(value: Any) -> bool:
    """Also a source that names nothing."""
    if isinstance(value, dict):
        return all(item is None for item in value.values())
    return value is None or value in ([], "")


def _is_long(value: Any) -> bool:
    if isinstance(value, list):
        return isinstance(value[0], dict)
    told = in_words("", value)
    return isinstance(value, (str, dict)) and ("\n" in told or len(told) > _LONGEST_CELL)


def _label(name: str) -> str:
    if name == "chunk_count":
        return "chunks"
    return name.removesuffix("_bytes").replace("_", " ")


def in_words(name: str, value: Any) -> str:
    """A member's value in words."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, int) and name.endswith("_bytes"):
        return size(value)
    if isinstance(value, list):
        return ", ".join(in_words("", item) for item in value)
    if isinstance(value, dict):
        given = {key: item for key, item in value.items() if item is not None}
        return ", ".join(f"{plain(key)} {in_words(key, item)}" for key, item in given.items())
    return plain(in_minutes(str(value)))


def size(count: int) -> str:
    """Bytes in the largest unit that fits, powers of 1024."""
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
