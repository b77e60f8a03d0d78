"""Finds secrets in a text by their exact shapes, and puts the name of the kind in their place.

Precision comes first: a shape is a prefix with a fixed alphabet and length, a structure that can be
decoded, or a value behind a telling name. A hash, a UUID or a placeholder is none. The text is
looked at as its reader sees it (undivided.py): for the tokens of services, for the places of
secrets, and for private keys. Nothing of a secret stays, and no hash of it, because a short secret
could be guessed from its hash.

Every look is linear in the text: it goes from sign to sign, and each sign costs a bounded look.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import NamedTuple

from kbproc.base.text.private_keys import private_keys
from kbproc.base.text.secret_places import NAMED, PLACES, Secret, named_secrets, places
from kbproc.base.text.secret_services import SERVICES, Service
from kbproc.base.text.undivided import View, undivided

PRIVATE = "private_passages"
REDACTED = "redacted_"  # before the kind of a secret, in counts

_PRIVATE_TAG = re.compile(r"<(/?)private>", re.I)
_TOKEN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")
# A byte that may be in a token, or in the address around it, becomes "a"; others become a space.
_RUNS = bytes(
    ord("a") if chr(byte).isascii() and (chr(byte) in _TOKEN or chr(byte) in ".:/+=~@") else 32
    for byte in range(256)
)
_RUN = b"a" * 20  # no token is shorter
_MOST_ENDS = 4  # divisions that are tried as a token's end


class Redaction(NamedTuple):
    """A text without its secrets and private passages, and how many of each kind there were."""

    text: str
    counts: dict[str, int]


def redact(text: str, others: Mapping[str, str] | None = None) -> Redaction:
    """Returns the text with "[redacted: KIND]" for each secret and "[private]" for passages
    between <private> and </private>.

    `others`: secrets that stand elsewhere, by kind, and go here too. The keys of the counts are
    PRIVATE, and REDACTED with the kind.
    """
    text, passages = _without_private(text)
    view = undivided(text)
    secrets = _merged([*_secrets(view), *_others(view, others or {})])
    counts = Counter({PRIVATE: passages}) + Counter(REDACTED + each.kind for each in secrets)
    return Redaction(_without(text, view, secrets) if secrets else text, dict(counts))


def secret_kinds(text: str) -> dict[str, int]:
    """Returns the number of secrets in a text by kind; see `redact`."""
    return {kind: count for kind, count in redact(text).counts.items() if kind != PRIVATE}


def secret_values(text: str) -> dict[str, str]:
    """Returns the secrets of a text as its reader sees them, each with its kind."""
    view = undivided(text)
    return {view.text[start:end]: kind for start, end, kind in _merged(_secrets(view))}


def _without_private(text: str) -> tuple[str, int]:
    """Returns the text without private passages, and their number."""
    if "</" not in text:
        return text, 0
    parts, end, opening = [], 0, -1
    for tag in _PRIVATE_TAG.finditer(text):
        if not tag[1]:
            opening = tag.start() if opening < 0 else opening
        elif opening >= 0:
            parts.append(text[end:opening])
            end, opening = tag.end(), -1
    return "[private]".join([*parts, text[end:]]), len(parts)


def _secrets(view: View) -> Iterator[Secret]:
    """Yields the secrets of a view; of two that overlap, the first one names the kind."""
    text = view.text
    if "PRIVATE KEY" in text or "Private-Lines:" in text:
        yield from private_keys(text)
    yield from _tokens(view)
    lower = text.lower()
    if len(lower) != len(text):
        lower = text.replace("\u0130", "I").lower()  # the one letter that becomes two
    yield from (each for _, each in sorted(_in_places(text, lower)))
    yield from named_secrets(text, lower)


def _tokens(view: View) -> Iterator[Secret]:
    runs = _long_runs(view.text)
    for service in SERVICES if runs else ():
        for literal in service.literals:
            if literal in runs:
                yield from _of_service(service, literal, view)


def _long_runs(text: str) -> str:
    """Returns the parts of a text that are long enough for a token, a line each.

    Most texts have few, so that the literals of all services are looked for in little.
    """
    data = text.encode("utf-8", "replace")
    mask = data.translate(_RUNS)
    runs = []
    start = mask.find(_RUN)
    while start >= 0:
        end = mask.find(b" ", start)
        end = len(mask) if end < 0 else end
        runs.append(data[start:end])
        start = mask.find(_RUN, end)
    return b"\n".join(runs).decode()


def _of_service(service: Service, literal: str, view: View) -> Iterator[Secret]:
    text, pattern = view.text, _compiled(service.pattern)
    group = "secret" if "secret" in pattern.groupindex else 0
    place, end = text.find(literal), 0
    while place >= 0:
        for start in _edges(view, place, max(end, place - service.before)):
            match = _token_at(pattern, view, start)
            if match and service.check(match[group]):
                end = match.end()
                yield Secret(*match.span(group), service.kind)
                break
        place = text.find(literal, max(place + 1, end))


def _token_at(pattern: re.Pattern[str], view: View, start: int) -> re.Match[str] | None:
    """Returns the token that begins there and ends at an edge.

    A division may be its end, where the next word would make it too long.
    """
    match = pattern.match(view.text, start)
    if match is None or _is_edge(view, match.end()):
        return match
    shorter = (
        pattern.match(view.text, start, end) for end in view.cuts(start, match.end())[:_MOST_ENDS]
    )
    return next((each for each in shorter if each and _is_edge(view, each.end())), None)


def _edges(view: View, place: int, first: int) -> Iterator[int]:
    """Yields the places, from `place` back to `first`, at which a token may begin."""
    if view.text[place] not in _TOKEN:
        # The literal is that of an address, or stands within the token.
        yield place
    while place >= first:
        if _is_edge(view, place):
            yield place
        place -= 1


def _is_edge(view: View, place: int) -> bool:
    """Returns True between two characters of which one is of no token, and at a division."""
    text = view.text
    return (
        place in (0, len(text))
        or text[place - 1] not in _TOKEN
        or text[place] not in _TOKEN
        or view.is_cut(place)
    )


@cache
def _compiled(pattern: str, flags: int = 0) -> re.Pattern[str]:
    return re.compile(pattern, flags)


def _in_places(text: str, lower: str) -> Iterator[tuple[int, Secret]]:
    """Yields the secrets in other places than behind names, each with the number of its place."""
    for number, place in enumerate(PLACES):
        end = 0
        for start in places(lower, place.literals):
            if start < end:
                continue
            match = _compiled(place.pattern, re.I).match(text, start)
            if match is None:
                continue
            end = match.end()
            if place.check(match):
                yield number, Secret(*match.span("secret"), place.kind)


def _others(view: View, others: Mapping[str, str]) -> Iterator[Secret]:
    for value, kind in others.items():
        place = view.text.find(value)
        while place >= 0:
            yield Secret(place, place + len(value), kind)
            place = view.text.find(value, place + len(value))


def _merged(secrets: Iterable[Secret]) -> list[Secret]:
    """Returns secrets in the order of their places; those that overlap become one."""
    ranked = sorted((each.start, rank, each) for rank, each in enumerate(secrets))
    merged: list[tuple[int, Secret]] = []
    for _, rank, each in ranked:
        if merged and each.start < merged[-1][1].end:
            before_rank, before = merged[-1]
            kind = before.kind if before_rank < rank else each.kind
            span = Secret(before.start, max(before.end, each.end), kind)
            merged[-1] = min(rank, before_rank), span
        else:
            merged.append((rank, each))
    return [each for _, each in merged]


def _without(text: str, view: View, secrets: list[Secret]) -> str:
    """Returns the source without secrets. Tags that divide a secret stay, so that they pair."""
    cuts: list[tuple[int, int, str]] = []
    for secret in secrets:
        words = f"[redacted: {WORDS_OF[secret.kind]}]"
        end = -1
        for start, stop in view.places(secret.start, secret.end):
            if 0 <= end <= start and "<" not in text[end:start]:
                cuts[-1] = cuts[-1][0], stop, cuts[-1][2]
            else:
                cuts.append((start, stop, words))
            words, end = "", stop
    parts, last = [], 0
    for start, stop, words in sorted(cuts):
        parts += [text[last : max(start, last)], words]
        last = max(last, stop)
    return "".join([*parts, text[last:]])


# Kind → its name for people.
WORDS_OF: dict[str, str] = {
    "private_key": "private key",
    **{each.kind: each.words for each in SERVICES},
    **{each.kind: each.words for each in PLACES},
    **NAMED,
}


def _plural(words: str) -> str:
    if words.endswith("ry"):
        return f"{words[:-1]}ies"
    return re.sub(r"(?= of | behind | in |$)", "s", words, count=1)


# Key of a count → its words in the singular and in the plural.
WORDS: dict[str, tuple[str, str]] = {
    PRIVATE: ("private passage", "private passages"),
    **{
        REDACTED + kind: (f"redacted {words}", f"redacted {_plural(words)}")
        for kind, words in WORDS_OF.items()
    },
}


def redactions(counts: Mapping[str, int]) -> dict[str, int]:
    """Returns those of the counts that are of secrets and private passages."""
    return {kind: count for kind, count in counts.items() if kind in WORDS}
