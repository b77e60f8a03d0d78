"""Finds statements that give one thing one value, such as “The upload limit is 30 MB”.

Only a plain statement counts: a subject, a word or a sign for “is”, a value, and little after it.
Its subject is all of the sentence but the value, so that two statements are about the same thing
only if they say the same of it but for the value. A question, a condition, a denial, an estimate,
an example and a list of values are no statements.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import NamedTuple

from kbproc.base.patterns import lazy
from kbproc.base.text.analysis import STOP_WORDS
from kbproc.base.text.caches import cached

_MOST_AROUND = 100  # characters of a sentence before a value, and after it
_MOST_LABEL = 6  # words before a colon
_MOST_VALUE = 60  # characters of a text that is a value alone
_THOUSAND = 3  # digits
_ROUNDED = 0.05  # the share by which a number and a rounding of it may differ


class Claim(NamedTuple):
    """A subject, as a set of words, and its value.

    `kind`: only values of one kind can differ. `value`: as it is compared; `wording`: as the text
    has it. `is_full`: the subject says by itself what it is, in two words or more.
    """

    subject: frozenset[str]
    kind: str
    value: str | float
    wording: str
    is_full: bool

    def differs(self, other: Claim) -> bool:
        """Returns whether both can't be true of one thing."""
        one, two = self.value, other.value
        if self.kind != other.kind or one == two:
            return False
        if isinstance(one, float) and isinstance(two, float):
            may_be_rounded = ("." in self.wording) != ("." in other.wording)
            return not may_be_rounded or abs(one - two) > _ROUNDED * max(abs(one), abs(two))
        short, long = sorted((str(one), str(two)), key=len)
        return self.kind not in _OPEN or short not in long


# Kinds of which one text may name a part: 3.11 and 3.11.2, 3 May and 3 May 2026.
_OPEN = ("name", "version", "date", "time")

# ---------------------------------------------------------------------- patterns

# After these only a number counts, because a thing may have, use or need several others.
_COUNTING = (
    "allows?|c(?:osts?|loses? at)|e(?:xpires? (?:after|in)|nds? at)|h(?:as|ave|olds?)|"
    "l(?:asts?|istens? on)|needs?|opens? at|r(?:equires?|uns? (?:at|every))|starts? at|takes?"
)
_BEING = "is|are|equals|defaults to|l(?:ives|ies) in|runs on"
_FILLERS = "now|currently|still|always|only|just|set to|in|at|on|by default"
_NAMES_OF_MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec"
_MONTHS = _NAMES_OF_MONTHS.split()
_MONTH = rf"(?:{'|'.join(_MONTHS)})[a-z]*\.?"
_DATE = (
    rf"\d{{4}}-\d\d-\d\d|\d{{1,2}}\.? {_MONTH}(?: \d{{4}})?|{_MONTH} \d{{1,2}}(?:,? \d{{4}})?(?!\d)"
)
_WEEKDAY = "(?:mon|tues|wednes|thurs|fri|satur|sun)day"
_VERSION = r"v\d+(?:\.\d+)*|\d+(?:\.\d+){2,}(?:-?(?:rc|beta|alpha)\d*)?"
_WORDS_OF_NUMBERS = "two three four five six seven eight nine ten eleven twelve"
_SMALL = _WORDS_OF_NUMBERS.split()
_NUMBER = rf"[$€£]?-?\d+(?:[.,'\u202f]\d+)*|(?:{'|'.join(_SMALL)})(?= )"
_SWITCH = {"on": True, "true": True, "yes": True, "enabled": True, "active": True}
_SWITCH |= {"off": False, "false": False, "no": False, "disabled": False, "inactive": False}
_DUTY = {"required": True, "mandatory": True, "optional": False}
_RIGHT = {"allowed": True, "permitted": True, "forbidden": False, "prohibited": False}
_TRUTHS = {"switch": _SWITCH, "duty": _DUTY, "right": _RIGHT}
_TRUTH = "|".join(word for words in _TRUTHS.values() for word in words)
# Two patterns, because one for both has no first character to search for, and takes four times as
# long.
_VERB = lazy(
    rf" (?:{_BEING}|{_COUNTING}|(?:is|are) [a-z]+ (?:for|to|at|by)|after|every|within)"
    rf"(?: up to| at most| at least)? (?=[^a-z\s]|(?:{_FILLERS}|{_TRUTH}|{'|'.join(_SMALL)})\b"
    rf"|[a-z]+[\d./@:_-])"
)
_MARK = lazy(r"[:=][ \t]*")
_QUOTED = r"`[^`\n]{1,60}`|[\"“][^\"”\n]{1,60}[\"”]"
_NAME = r"(?-i:[A-Z][\w'’&-]*(?: [A-Z][\w'’&-]*){0,2})|[\w-]+(?:[./@:_][\w-]+)+"
_VALUE = lazy(
    rf"(?:(?:{_FILLERS}) ){{0,3}}(?:(?P<date>{_DATE})|(?P<version>{_VERSION})"
    rf"|(?P<time>(?:{_WEEKDAY}s?,? )?\d?\d:\d\d)|(?P<number>{_NUMBER})"
    rf"|(?P<truth>{_TRUTH})(?![\w-])|(?P<quoted>{_QUOTED})|(?P<name>{_NAME}))"
    r"(?:(?![\w@])|(?<=\d)(?=(?:ms|s|min|h|[kmgt]i?b)\b))",
    re.IGNORECASE,
)
_END = lazy(r"\n|[.!?;](?=\s|$)|$")
_STARTS = ("\n", ". ", "; ", "! ", "? ")
_SHORTENED = ("e.g. ", "i.e. ", "vs. ", "etc. ", "ca. ")  # after these a sentence goes on
_BULLET = lazy(r"\s*(?:[-*+•>#]+|\d{1,3}[.)])\s+")
_UNIT = lazy(r"[ \u00a0\u202f-]?(%|[A-Za-zµ]+)(?![\w-])")
# A number before this is the first of several numbers, or a part of a range or a sum.
_MORE = lazy(r"\s?(?:-|–|—|to|and|or|/|,|x|×|\+)\s?[`\"\d]|\s?[+*/%^(]\s?\d|:\d|\+")
_LAST = lazy(r"\W*+(?:(?:now|by default|today)\W*+)?")
_WORDS_OF_DOUBT = """
if when whenever unless while until should would could may might can must not never no cannot
example instance suppose assume say about around roughly nearly almost approximately approx ca
was were been used had whether than either neither each every some any one another other many
most often usually sometime typically probably perhap t
"""
_NO_STATEMENT = frozenset(_WORDS_OF_DOUBT.split())
# A subject that begins so points elsewhere, or goes on with what was said before.
_WORDS_THAT_POINT = """
this that these those it its he she they we you i his her their your there here which what who
where how why and or but so as then
"""
_POINTING = frozenset(_WORDS_THAT_POINT.split())
_INDEFINITE = frozenset(["a", "an"])
_DENIAL = lazy(r"(?:\b(?:do|does|is|are|can|must|should)(?: not|n['’]t)|\bcannot| not)\b")
_OF_CODE = tuple("\"'0123456789")
_SIGNS_OF_DOUBT = "~≈?"
_ASSIGNED = lazy(r"(?:export |set )?[\"'`]?[\w.-]{2,60}[\"'`]?")
_WORDS = lazy(r"[^\W_]+")
_ALONE = lazy(r"[`\"“]?[\w./@-]{2,}[`\"”]?")
_STOPS = (STOP_WORDS - {"my", "our"}) | {
    "now",
    "currently",
    "still",
    "always",
    "only",
    "just",
    "set",
    "per",
}
# Words that are about a text itself, or name no thing.
_NAMES_OF_NOTHING = """
default value result output answer note tip warning type name title id number date time version
status state author owner size length count total step part page chapter section figure table
option argument parameter field key code error message response request return required optional
description level mode format path url file line point question problem issue reason difference
thing case first second third last next previou following maximum minimum max min score rate
updated created modified from subject source link category tag example input usage summary
content text item row column index model see more goal purpose idea way rule advantage benefit
alternative choice my our
"""
_GENERIC = frozenset(_NAMES_OF_NOTHING.split())
_SECONDS = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0, "day": 86400.0, "week": 604800.0}
_BYTES = {"byte": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12}
_BYTES |= {"kib": 2.0**10, "mib": 2.0**20, "gib": 2.0**30, "tib": 2.0**40}
_SHORT = {"millisecond": "ms", "sec": "s", "second": "s", "minute": "min", "hour": "h", "hr": "h"}
_SHORT |= {"percent": "%"}


# ---------------------------------------------------------------------- statements


def claims(text: str) -> list[Claim]:
    """Returns the statements of a text, each of which gives one value."""
    return list(_claims(text))


def _claims(text: str) -> Iterator[Claim]:
    for sign in itertools.chain(_VERB.finditer(text), _MARK.finditer(text)):
        value = _VALUE.match(text, sign.end())
        if value is None or value.lastgroup is None:
            continue
        before = _before(text, sign.start())
        end = _END.search(text, value.end(), value.end() + _MOST_AROUND)
        is_cut = end is None or (not end[0] and end.end() < len(text))
        if before is None or end is None or is_cut or end[0] == "?":
            continue
        after = text[value.end() : end.start()]
        if subject := _subject_before(before, sign[0], after):
            claim = _claim(subject, sign[0].strip(), value.lastgroup, value[value.lastgroup], after)
            if claim is not None:
                yield claim


def _before(text: str, end: int) -> str | None:
    """Returns the sentence up to there; None for a long one."""
    least = max(0, end - _MOST_AROUND)
    places = [(text.rfind(start, least, end), len(start)) for start in _STARTS]
    begin = max((at + size for at, size in places if at >= 0), default=-1)
    if begin < 0 and least:
        return None
    if text[max(0, begin - 6) : max(0, begin)].endswith(_SHORTENED):
        return None
    before = text[max(0, begin) : end].rstrip()
    bullet = _BULLET.match(before)
    return before[bullet.end() :] if bullet else before


def words_of(text: str) -> list[str]:
    """Returns the words of a text in small letters, without the ending of a plural."""
    return [
        word[:-1] if word[2:] and word[-1] == "s" != word[-2] and word not in _STOPS else word
        for word in _WORDS.findall(text.lower())
    ]


def _subject_before(before: str, sign: str, after: str) -> list[str]:
    """Returns the words before a sign; [] if they are not the subject of a plain statement."""
    own, mark = words_of(before), sign[0]
    # Code: a line that is indented, a quoted key, a time of day, an address.
    if mark in ":=" and (before[:1].isspace() or before[-1:] in _OF_CODE):
        return []
    if mark == "=":
        is_plain = _ASSIGNED.fullmatch(before) and not after.strip(" \t`\"'")
        return own if is_plain else []
    if not own or own[0] in _POINTING or (mark == ":" and (len(own) > _MOST_LABEL or sign == ":")):
        return []
    if not _NO_STATEMENT.isdisjoint(own) or any(char in before for char in _SIGNS_OF_DOUBT):
        return []
    return own


def _claim(own: list[str], sign: str, group: str, text: str, after: str) -> Claim | None:
    content = frozenset(own) - _STOPS
    if content <= _GENERIC or not any(word[0].isalpha() and word[1:] for word in content):
        return None
    rest = words_of(after)
    if not _NO_STATEMENT.isdisjoint(rest) or any(word[0].isdigit() for word in rest):
        return None
    if group != "number" and sign not in _SINGLE:
        return None
    if group in ("quoted", "name", "truth") and not _LAST.fullmatch(after):
        return None
    if group in ("quoted", "name") and (sign == "are" or own[0] in _INDEFINITE):
        return None
    value = _number(text, after) if group == "number" else _plain(group, text, after)
    if value is None:
        return None
    kind, compared, wording, tail = value
    verb = [] if sign in _EQUAL else words_of(sign)
    subject = (content | {*verb, *words_of(tail)}) - _STOPS
    return Claim(subject, kind, compared, wording, len(content - _GENERIC) > 1)


_EQUAL = frozenset([":", "=", "is", "are", "equals"])
_SINGLE = _EQUAL | {"defaults to", "lives in", "lies in", "runs on"}
_Value = tuple[str, "str | float", str, str]


def _plain(group: str, text: str, after: str) -> _Value | None:
    """Returns the kind, the value as compared and as wording, and the words after it."""
    if group == "date":
        return group, _day(text.lower()), text, after
    if group in ("version", "time"):
        return group, re.sub(r"\b0(?=\d:)", "", text.lower().lstrip("v")), text, after
    if group == "truth":
        word = text.lower()
        kind = next(kind for kind, values in _TRUTHS.items() if word in values)
        return kind, str(_TRUTHS[kind][word]), text, ""
    name = text.strip('`"“” ')
    return ("name", name.lower(), name, "") if len(name) > 1 else None


def _day(text: str) -> str:
    """Returns the month, the day and, where it is named, the year: 05-03-2026."""
    if text[4:5] == "-":
        return f"{text[5:]}-{text[:4]}"
    month = next(number for number, name in enumerate(_MONTHS, 1) if name in text)
    day, *year = re.findall(r"\d+", text)
    return "-".join([f"{month:02}", day.zfill(2), *year])


def _number(text: str, after: str) -> _Value | None:
    """Returns the same of a number; None for one of several."""
    plain = text.lstrip("$€£")
    if _MORE.match(after):
        return None
    small = plain.lower()
    number = float(_SMALL.index(small) + 2) if small in _SMALL else _parsed(plain)
    if number is None:
        return None
    unit = _UNIT.match(after)
    [name] = words_of(unit[1]) or [unit[1]] if unit else [""]
    name = _SHORT.get(name, name)
    tail = after[unit.end() :] if unit else after
    for kind, factors in (("seconds", _SECONDS), ("bytes", _BYTES), ("share", {"%": 1.0})):
        if unit and name in factors:
            return kind, number * factors[name], f"{text}{unit[0]}", tail
    is_noun = unit is not None and name not in _STOPS
    wording = f"{text}{unit[0]}" if unit and is_noun else text
    return f"number{text[: text.find(plain)]}", number, wording, after


def _parsed(text: str) -> float | None:
    whole = text.replace("'", "").replace("\u202f", "")
    head, comma, tail = whole.rpartition(",")
    if comma and len(tail) != _THOUSAND:
        whole = f"{head}.{tail}"
    try:
        return float(whole.replace(",", ""))
    except ValueError:
        return None


# ---------------------------------------------------------------------- names


@cached(1024)
def named(name: str, text: str) -> Claim | None:
    """Returns the claim of a text that is a value and nothing else, of the thing of that name."""
    line = text.strip().rstrip(".")
    if len(line) > _MOST_VALUE or "\n" in line or not (subject := subject_of(name)):
        return None
    statements = claims(f"{name.strip().rstrip(':.')} is {line}.")
    if len(statements) == 1 and statements[0].subject == subject:
        return statements[0]
    if statements or not _ALONE.fullmatch(line) or subject <= _GENERIC:
        return None
    return Claim(subject, "name", line.strip('`"“”').lower(), line, len(subject) > 1)


@cached(1024)
def asserted(title: str) -> Claim | None:
    """Returns what a title says is so, or is not so; None for one without words."""
    plain = _DENIAL.sub(" ", title)
    subject = subject_of(plain)
    so = plain == title
    return Claim(subject, "denial", str(so), "yes" if so else "no", True) if subject else None


@cached(1024)
def subject_of(name: str) -> frozenset[str]:
    """Returns the subject of a name, as a claim about it has it."""
    return frozenset(words_of(name)) - _STOPS
