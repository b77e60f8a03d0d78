"""Shows numbers, dates and times in the number formats of a spreadsheet's cells.

A format that depends on the reader's language, such as the system's date, is left to the caller.
Numbers have a point for decimals and commas between thousands, as the formats themselves do.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Decimal
from functools import lru_cache
from typing import NamedTuple

# The formats that a workbook uses by number without spelling them out. Missing ones, such as 14,
# depend on the language.
BUILT_IN = {
    1: "0",
    2: "0.00",
    3: "#,##0",
    4: "#,##0.00",
    9: "0%",
    10: "0.00%",
    11: "0.00E+00",
    15: "d-mmm-yy",
    16: "d-mmm",
    17: "mmm-yy",
    18: "h:mm AM/PM",
    19: "h:mm:ss AM/PM",
    20: "h:mm",
    21: "h:mm:ss",
    37: "#,##0;(#,##0)",
    38: "#,##0;(#,##0)",
    39: "#,##0.00;(#,##0.00)",
    40: "#,##0.00;(#,##0.00)",
    45: "mm:ss",
    46: "[h]:mm:ss",
}
_TOKEN = re.compile(
    r'"(?P<quoted>[^"]*)"|\\(?P<escaped>.)|(?P<space>_.)|(?P<fill>\*.)|\[(?P<bracket>[^\[\]]*)\]'
    r"|(?P<half>AM/PM|A/P)|(?P<general>General)"
    r"|(?P<number>[#0?][#0?,.]*(?:E[+-][#0?]+)?|\.[#0?]+)"
    r"|(?P<date>y+|m+|d+|h+|s+)|(?P<literal>.)",
    re.I | re.S,
)
_SECTION = re.compile(r'(?:"[^"]*"|\\.|\[[^\[\]]*\]|[^;])*', re.S)
_COLOUR = re.compile(r"(?:black|blue|cyan|green|magenta|red|white|yellow|color\s?\d+)\Z", re.I)
_CURRENCY = re.compile(r"\$([^-]*)(?:-([0-9A-F]+))?\Z", re.I)
_ELAPSED = re.compile(r"(h+|m+|s+)\Z", re.I)
_ENGLISH = frozenset({"", "409", "809", "C09", "1009", "1409", "2000000"})
_LONGEST = 200
_MOST_DECIMALS = 30
_MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_SECONDS = {"h": 3600, "m": 60, "s": 1}

Moment = datetime.datetime | datetime.date | datetime.time | datetime.timedelta


def plain(value: object) -> str:
    """Returns a value as a sheet shows it in a cell without a format, on one line."""
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    if isinstance(value, datetime.datetime):
        return value.isoformat(" ")
    return " ".join(str(value).split())


class _Token(NamedTuple):
    kind: str
    text: str


def in_format(value: object, code: str) -> str | None:
    """Returns a number, date or time as `code` shows it; None where that can't be told."""
    if isinstance(value, bool) or len(code) > _LONGEST:
        return None
    sections = _sections(code)
    if not sections:
        return None
    if isinstance(value, Moment):
        return _moment(value, sections[0])
    if isinstance(value, int | float):
        return _number(float(value), sections)
    return None


@lru_cache(maxsize=512)
def _sections(code: str) -> tuple[tuple[_Token, ...], ...]:
    """Returns the format's sections: of positive numbers, of negative ones, of zero, of texts.

    None of them for a format with conditions, or with the words of another language.
    """
    sections = []
    at = 0
    while at <= len(code):
        match = _SECTION.match(code, at)
        text = match[0] if match else ""
        tokens = _tokens(text)
        if tokens is None:
            return ()
        sections.append(tuple(tokens))
        at += len(text) + 1
    return tuple(sections)


def _tokens(section: str) -> list[_Token] | None:
    tokens: list[_Token] = []
    foreign = False
    for match in _TOKEN.finditer(section):
        kind = match.lastgroup or "literal"
        text = match[kind]
        if kind == "bracket":
            if currency := _CURRENCY.match(text):
                if (currency[2] or "").upper().startswith("F"):  # the system's date or time
                    return None
                foreign = foreign or (currency[2] or "").upper() not in _ENGLISH
                tokens.append(_Token("words", currency[1]))
            elif _ELAPSED.match(text):
                tokens.append(_Token("elapsed", text.lower()))
            elif not _COLOUR.match(text):
                return None
        elif kind in ("quoted", "escaped"):
            tokens.append(_Token("words", text))
        elif kind == "space":
            tokens.append(_Token("words", " "))
        elif kind != "fill":
            tokens.append(_Token(kind, text.lower() if kind == "date" else text))
    has_words = any(token.kind == "date" and token.text[:3] in ("mmm", "ddd") for token in tokens)
    return None if foreign and has_words else tokens


# ------------------------------------------------------------------ numbers


def _number(value: float, sections: Sequence[Sequence[_Token]]) -> str | None:
    section, sign = sections[0], "-" if value < 0 else ""
    if value < 0 and len(sections) > 1:
        section, sign = sections[1], ""
    elif value == 0 and len(sections) > 2:
        section = sections[2]
    numbers = [token for token in section if token.kind == "number"]
    odd = {token.kind for token in section} - {"number", "literal", "words"}
    fraction = any(token == _Token("literal", "/") for token in section)
    if odd or fraction or len(numbers) > 1:
        return None
    percents = sum(token == _Token("literal", "%") for token in section)
    digits = _digits(abs(value), numbers[0].text, percents) if numbers else ""
    if digits is None:
        return None
    if not numbers and len(sections) < 2:
        return None  # a format that shows every number as the same words
    parts = [digits if token.kind == "number" else token.text for token in section]
    return " ".join((sign + "".join(parts).strip()).split())


def _digits(value: float, pattern: str, percents: int) -> str | None:
    """Returns the digits of a number that is not negative, in a pattern such as "#,##0.00"."""
    pattern, _, exponent = pattern.upper().partition("E")
    whole, _, decimals = pattern.partition(".")
    most = len(decimals.rstrip(","))
    if "," in decimals.rstrip(",") or most > _MOST_DECIMALS:
        return None
    if exponent:
        return f"{value:.{most}E}"
    thousands = len(pattern) - len(pattern.rstrip(","))
    whole = whole.rstrip(",") if not decimals else whole
    try:
        exact = Decimal(repr(value)).scaleb(2 * percents - 3 * thousands)
        rounded = exact.quantize(Decimal(1).scaleb(-most), ROUND_HALF_UP)
    except ArithmeticError:  # more digits than a sheet shows; also infinity
        return None
    before, _, after = f"{rounded:{',' if ',' in whole else ''}f}".partition(".")
    least = sum(decimals.count(mark) for mark in "0?")
    after = after[:least] + after[least:].rstrip("0")
    digits = whole.count("0") + whole.count("?")
    if "," not in whole:
        before = before.rjust(digits, "0")
    before = "" if before == "0" and not digits and after else before
    return f"{before}.{after}" if after else before


# ------------------------------------------------------------------ dates and times


def _moment(value: Moment, section: Sequence[_Token]) -> str | None:
    kinds = {token.kind for token in section}
    if not kinds & {"date", "elapsed"} or "general" in kinds:
        return None
    elapsed = _elapsed(value)
    moment = _as_datetime(value)
    if moment is None or ("elapsed" in kinds and elapsed is None):
        return None
    half = "half" in kinds
    parts = []
    for i, token in enumerate(section):
        if token.kind == "date":
            is_minute = token.text in ("m", "mm") and _beside_time(section, i)
            parts.append(_part(moment, token.text, is_minute=is_minute, half=half))
        elif token.kind == "elapsed":
            unit = _SECONDS[token.text[0]]
            parts.append(f"{int((elapsed or 0) // unit):0{len(token.text)}d}")
        elif token.kind == "half":
            parts.append("AM" if moment.hour < 12 else "PM")
        elif token.kind == "number":
            parts.append(_fraction(moment, token.text))
        else:
            parts.append(token.text)
    return " ".join("".join(parts).split())


def _as_datetime(value: Moment) -> datetime.datetime | None:
    if isinstance(value, datetime.datetime):
        return value
    if isinstance(value, datetime.date):
        return datetime.datetime.combine(value, datetime.time())
    if isinstance(value, datetime.time):
        return datetime.datetime.combine(datetime.date(1899, 12, 31), value)
    try:
        return datetime.datetime(1899, 12, 30) + value
    except OverflowError:
        return None


def _elapsed(value: Moment) -> float | None:
    if isinstance(value, datetime.timedelta):
        return value.total_seconds() if value.total_seconds() >= 0 else None
    if isinstance(value, datetime.time):
        return value.hour * 3600 + value.minute * 60 + value.second
    return None


def _beside_time(section: Sequence[_Token], i: int) -> bool:
    """Returns True if an "m" counts minutes: behind hours, or before seconds."""
    times = [token for token in section[:i] if token.kind in ("date", "elapsed")]
    after = [token for token in section[i + 1 :] if token.kind in ("date", "elapsed")]
    return bool((times and times[-1].text[0] == "h") or (after and after[0].text[0] == "s"))


def _part(moment: datetime.datetime, code: str, *, is_minute: bool, half: bool) -> str:
    letter, width = code[0], len(code)
    if letter == "y":
        return f"{moment.year:04d}" if width > 2 else f"{moment.year % 100:02d}"
    if letter == "m" and not is_minute and width > 2:
        name = _MONTHS[moment.month - 1]
        return name[:3] if width == 3 else name[:1] if width == 5 else name
    if letter == "d" and width > 2:
        name = _DAYS[moment.weekday()]
        return name[:3] if width == 3 else name
    hour = (moment.hour % 12 or 12) if half else moment.hour
    month = moment.minute if is_minute else moment.month
    number = {"m": month, "d": moment.day, "h": hour, "s": moment.second}[letter]
    return f"{number:0{min(width, 2)}d}"


def _fraction(moment: datetime.datetime, pattern: str) -> str:
    digits = pattern.count("0")
    return f".{moment.microsecond:06d}"[: digits + 1] if pattern.startswith(".") else pattern
