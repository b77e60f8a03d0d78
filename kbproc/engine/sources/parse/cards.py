"""Calendars (ICS) and address books (VCF): a block for each event, task and card.

RFC 5545 and RFC 6350 describe them, and vCard 2.1, whose values may be quoted-printable. A line
that is folded goes on in the next, even within a word or a character.
"""

from __future__ import annotations

import quopri
import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from kbproc.engine.sources.parse import text
from kbproc.engine.sources.parse.blocks import Block, Parsed, clean_title

_BREAK = re.compile(r"\r?\n|\r")
_FOLD = re.compile(rb"\r?\n[ \t]")
_LINE = re.compile(
    r'(?:(?P<group>[\w-]+)\.)?(?P<name>[\w-]+)(?P<entries>(?:;(?:"[^"]*"|[^":;])*)*):(?P<value>.*)'
)
_ENTRY = re.compile(r';([\w-]+)(?:=((?:"[^"]*"|[^";])*))?')
_ESCAPE = re.compile(r"\\(.)", re.S)
_TIME = re.compile(r"(\d{4})-?(\d\d)-?(\d\d)(?:T(\d\d):?(\d\d)(?::?\d\d)?(Z|[+-]\d\d:?\d\d)?)?\Z")
# Components that tell programs how to compute, and none of which a reader sees.
_UNSEEN = frozenset({"VTIMEZONE", "STANDARD", "DAYLIGHT"})
# Properties for programs: identities, versions and orders of changes.
_FOR_PROGRAMS = frozenset(
    (
        *("BEGIN", "END", "VERSION", "PRODID", "CALSCALE", "METHOD", "UID", "DTSTAMP", "SEQUENCE"),
        *("REV", "CREATED", "LAST-MODIFIED", "X-ABUID", "TZID", "X-ABLABEL"),
    )
)
# Properties whose parts are separated by semicolons.
_IN_PARTS = frozenset({"N", "ADR", "ORG", "GEO", "RRULE", "REQUEST-STATUS"})
_TITLES = ("SUMMARY", "FN", "N", "X-WR-CALNAME")
_PICTURES = frozenset({"PHOTO", "LOGO"})
_ADDRESSES = ("mailto:", "tel:")


class _Property(NamedTuple):
    group: str
    name: str
    entries: dict[str, str]
    value: str


def parse(data: bytes, name: str) -> Parsed:
    """Returns a block for each component; a file without any is read as text.

    Raises `input.unsupported_type` for bytes that are not text.
    """
    decoded = text.decode(_FOLD.sub(b"", data), name)
    properties = list(_properties(decoded.text))
    if not any(each.name == "BEGIN" for each in properties):
        return text.parse(data, name)
    unread: Counter[str] = Counter({"replaced_bytes": decoded.replaced})
    components = list(_components(properties, unread))
    titles = [title for title, _ in components if title]
    blocks = [
        Block(text="\n".join(lines), section=clean_title(title)) for title, lines in components
    ]
    is_one = len([lines for _, lines in components if lines]) == 1
    named = next((each.value for each in properties if each.name == "X-WR-CALNAME"), None)
    title = named or (titles[0] if titles and is_one else None)
    return Parsed(title=title, blocks=blocks, unread=dict(+unread))


def _properties(source: str) -> Iterator[_Property]:
    """Yields the properties; a quoted-printable value goes on behind a "=" at its line's end."""
    lines = iter(_BREAK.split(source))
    for line in lines:
        match = _LINE.fullmatch(line.strip())
        if match is None:
            if line.strip():  # damaged, or the rest of a line that was folded wrongly
                yield _Property("", "", {}, line.strip())
            continue
        entries = {
            name.upper(): (value or name).replace('"', "")
            for name, value in _ENTRY.findall(match["entries"])
        }
        value = match["value"]
        if "QUOTED-PRINTABLE" in (*entries, entries.get("ENCODING", "").upper()):
            while value.endswith("="):
                value = value[:-1] + next(lines, "")
            value = _from_quoted(value, entries.get("CHARSET", "utf-8"))
        yield _Property(match["group"] or "", match["name"].upper(), entries, value)


def _from_quoted(value: str, charset: str) -> str:
    data = quopri.decodestring(value.encode("utf-8", "surrogateescape"))
    try:
        return data.decode(charset)
    except (UnicodeDecodeError, LookupError):
        return data.decode("utf-8", "replace")


def _components(
    properties: list[_Property], unread: Counter[str]
) -> Iterator[tuple[str | None, list[str]]]:
    """Yields the title and the lines of each component; an alarm belongs to its event."""
    open_names: list[str] = []
    groups: dict[str, str] = {
        each.group: _plain(each.value) for each in properties if each.name == "X-ABLABEL"
    }
    title: str | None = None
    lines: list[str] = []
    for each in properties:
        if each.name in ("BEGIN", "END"):
            is_alarm = each.value.upper() == "VALARM"
            if lines and not is_alarm:
                yield title, lines
            title, lines = (title, lines) if is_alarm else (None, [])
            if each.name == "BEGIN":
                open_names.append(each.value.upper())
            elif open_names:
                open_names.pop()
            continue
        if _UNSEEN.intersection(open_names) or each.name in _FOR_PROGRAMS:
            continue
        line = _line(each, groups.get(each.group, ""), unread)
        if line and each.name in _TITLES and (not title or each.name == "FN"):
            title = _value(each).replace("\n", " ")
        lines += [line] if line else []
    if lines:
        yield title, lines


def _line(each: _Property, label: str, unread: Counter[str]) -> str:
    """Returns a property as a person would read it aloud; "" and a count for a file within."""
    encoding = each.entries.get("ENCODING", "").upper()
    is_file = encoding in ("B", "BASE64") or "BASE64" in each.entries
    if is_file or each.value[:5].lower() == "data:":
        unread["pictures" if each.name in _PICTURES else "embedded_files"] += 1
        return ""
    value = _value(each)
    if not value or not each.name:
        return value
    kinds = [each.entries.get("TYPE", ""), *(key for key in each.entries if key in _KINDS)]
    kind = label or ", ".join(filter(None, kinds)).replace("TYPE,", "").lower()
    person = each.entries.get("CN", "")
    zone = each.entries.get("TZID", "")
    head = f"{each.name.capitalize()} ({kind})" if kind else each.name.capitalize()
    tail = f" ({zone})" if zone else f" ({value})" if person and person != value else ""
    return f"{head}: {person if person else value}{tail}"


# Kinds of a number or an address that vCard 2.1 writes without TYPE=.
_KINDS = frozenset({"HOME", "WORK", "CELL", "FAX", "PAGER", "VOICE", "PREF", "INTERNET"})


def _value(each: _Property) -> str:
    if each.name in _IN_PARTS:
        parts = re.split(r"(?<!\\);", each.value)
        joined = " ".join(_plain(part) for part in parts if part.strip())
        return joined.strip()
    value = _plain(each.value)
    for scheme in _ADDRESSES:
        if value.lower().startswith(scheme):
            return value[len(scheme) :]
    times = [moment(one) for one in value.split(",")]
    return ", ".join(times) if all(map(_TIME.match, value.split(","))) else value


def _plain(value: str) -> str:
    """Returns a value without escapes: "a\\, b\\nc" → "a, b" and "c" on a line of its own."""
    return _ESCAPE.sub(lambda match: "\n" if match[1] in "nN" else match[1], value).strip()


def moment(value: str) -> str:
    """Returns a date or a time as people write it: "20240305T140000Z" → "2024-03-05 14:00 UTC"."""
    match = _TIME.match(value.strip())
    if match is None:
        return value
    year, month, day, hour, minute, zone = match.groups()
    time = f" {hour}:{minute}" if hour else ""
    return f"{year}-{month}-{day}{time}{' UTC' if zone == 'Z' else zone or ''}"
