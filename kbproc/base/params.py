"""A request's params: what they share, and from bytes to a struct or an error that helps.

Owns: the params that every read, list and write has; saying which field is wrong, and what it
could be instead.
Refuses to know: which methods there are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec
from msgspec import Meta, Struct

from kbproc.base.errors import KbprocError
from kbproc.base.suggest import nearest
from kbproc.base.values import HTTP_URL, LOG_PLACE, NATS_URL, SLUG, Instant

MOST_MS = 86_400_000  # a day
TimeoutMs = Annotated[
    int, Meta(ge=0, le=MOST_MS, description="give up after this many milliseconds")
]


class Params(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Base of every method's params: closed, by name only."""


class ReadParams(Params, kw_only=True, frozen=True):
    min_seq: (
        Annotated[int, Meta(ge=0, description="wait until this log position is applied")] | None
    ) = None
    timeout_ms: TimeoutMs | None = None


BudgetTokens = Annotated[
    int,
    Meta(ge=1, le=1_000_000, description="about so many tokens at most, the rest on a next page"),
]


TextOffset = Annotated[int, Meta(ge=0, description="first character of the text")]


class LeanParams(ReadParams, kw_only=True, frozen=True):
    """Of a read whose answer may be shortened."""

    fields: (
        Annotated[
            list[Annotated[str, Meta(min_length=1, max_length=100)]],
            Meta(
                min_length=1,
                max_length=50,
                description="only these members of each item, such as title or source.cite",
            ),
        ]
        | None
    ) = None

    def left_out(self) -> frozenset[str]:
        """Members that the request does without, if it names no fields."""
        return frozenset()


class ListParams(LeanParams, kw_only=True, frozen=True):
    budget_tokens: BudgetTokens | None = None
    limit: Annotated[int, Meta(ge=1, le=1000, description="most items to return")] = 50
    cursor: Annotated[str, Meta(max_length=500, description="next_cursor of the page before")] | (
        None
    ) = None


AsOf = Annotated[
    Annotated[int, Meta(ge=0, le=2**53)] | Annotated[str, Meta(max_length=40)],
    Meta(description="what it would have answered then: a log position or an RFC 3339 time"),
]


class PastParams(LeanParams, kw_only=True, frozen=True):
    """Of a read that can look back."""

    as_of: AsOf | None = None


class PastListParams(ListParams, kw_only=True, frozen=True):
    as_of: AsOf | None = None


class WriteParams(Params, kw_only=True, frozen=True):
    client_token: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=200,
                description="makes the write happen exactly once: same token, same outcome",
            ),
        ]
        | None
    ) = None
    dry_run: Annotated[bool, Meta(description="only tell what would happen")] = False
    timeout_ms: TimeoutMs | None = None


class DestructiveParams(WriteParams, kw_only=True, frozen=True):
    confirm: (
        Annotated[str, Meta(max_length=200, description="plan_hash of the plan a person approved")]
        | None
    ) = None


# So begin the tokens of attached processes, for writes to which their clients gave none.
MADE_BY_US = "attached-"
COMMON_WRITE_FIELDS = frozenset({"client_token", "dry_run", "confirm", "timeout_ms"})

_MOST_SHOWN = 100  # characters of what a client sent
_MOST_SAID = 500

_INSTANT = str(next(arg.pattern for arg in get_args(Instant) if isinstance(arg, Meta)))
# Pattern → what it means, in words.
_IN_WORDS = {
    SLUG: "it takes 2–64 lower-case letters, digits and hyphens",
    _INSTANT: "that is no time or date",
    NATS_URL: "that is no address of a NATS server",
    LOG_PLACE: "that is neither a NATS server's address nor file",
    HTTP_URL: "that is no address of a server's monitoring",
}
_HINTS = {
    _INSTANT: "Write it like 2026-01-31T12:00:00Z or 2026-01-31.",
    NATS_URL: "Write it like nats://127.0.0.1:4222, or tls://HOST:PORT.",
    LOG_PLACE: "Write it like nats://127.0.0.1:4222, or file for the store's folder.",
    HTTP_URL: "Write it like http://127.0.0.1:8222.",
}

_KINDS = {
    "int": "an integer",
    "float": "a number",
    "str": "a string",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
}
# Of msgspec's messages; most processes meet none, and to compile them takes time of every start.
_TYPES = r"`([a-z]+(?: \| [a-z]+)*)`"
_LENGTH = r" of length [<>]= \d+$"
_PATH = r" - at (?:`key` in )?`(?P<path>[^`]*)`$"
_UNKNOWN = r"unknown field `(?P<name>[^`]*)`"
_STEPS = r"\.(\w+)|\[([^]]*)\]"
_NAMES = r"\.(\w+)"
_MISSING = r"missing required field `(?P<name>[^`]*)`"


def decode_params(decoder: msgspec.json.Decoder[Params], raw: bytes | msgspec.Raw) -> Params:
    """Raises input.invalid_params that names the field and the valid values."""
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError as error:
        raise _invalid(decoder.type, str(error), raw) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise KbprocError(
            "input.invalid_json",
            f"What params holds is not JSON: {why_not_json(error)}.",
            field="$.params",
        ) from None


def why_not_json(error: Exception) -> str:
    """What keeps bytes from being decoded, as the end of a sentence."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8"
    said = str(error).removeprefix("JSON is malformed: ")
    return said[:1].lower() + said[1:]


def _invalid(params: type[Params], message: str, raw: bytes | msgspec.Raw) -> KbprocError:
    found = re.search(_PATH, message)
    path = found["path"] if found else "$"
    field = "$.params" + path.removeprefix("$")
    said = message[: found.start()] if found else message
    valid: list[Any] | None = None
    hint: str | None = None
    if unknown := re.search(_UNKNOWN, said):
        name = unknown["name"][:_MOST_SHOWN]
        if path == "$" and (lacking := _lacking(params, raw)):
            return _without_required(lacking, name)
        members = [m for s in structs_in(type_at(params, path)) for m in s.__struct_fields__]
        field += f".{name}"
        said = f"{field} is not a parameter of this method"
        valid = nearest(name, members)
    elif missing := re.search(_MISSING, said):
        field += f".{missing['name']}"
        said = f"{field} is required"
    elif (pattern := next((p for p in _IN_WORDS if said.endswith(repr(p))), None)) is not None:
        given = _value_at(raw, path)
        said = field if given is None else f"{field} is {given[:_MOST_SHOWN]!r}"
        said += f": {_IN_WORDS[pattern]}"
        hint = _HINTS.get(pattern)
    else:
        valid = list(_literals_in(type_at(params, path))) or None
        given = _value_at(raw, path) if re.search(_LENGTH, said) else None
        said = f"{field}: {_in_plain_words(said)[:_MOST_SAID]}"
        if given is not None:
            said += f"; it has {len(given)}"
    return KbprocError(
        "input.invalid_params", f"{said}.", hint=hint, field=field, valid_values=valid
    )


def _lacking(params: type[Params], raw: bytes | msgspec.Raw) -> list[str]:
    """Returns the required params that are missing; [] for JSON that is broken further on."""
    try:
        return missing_in(params, msgspec.json.decode(raw, type=dict[str, msgspec.Raw]))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []


def missing_in(params: type[Params], members: Iterable[str]) -> list[str]:
    """Returns the required params that `members` lacks."""
    there = set(members)
    return [
        one.name for one in msgspec.structs.fields(params) if one.required and one.name not in there
    ]


def _without_required(missing: list[str], unknown: str) -> KbprocError:
    """Names the missing params first: an unknown name is often a wrong name for one of them."""
    fields = [f"$.params.{name}" for name in missing]
    names, verb, meant = " and ".join(fields), "is", "that"
    if len(fields) > 1:
        verb, meant = "are", "one of these"
    return KbprocError(
        "input.invalid_params",
        f"{names} {verb} required, and $.params.{unknown} is not a parameter of this method.",
        hint=f"Write {names}; if $.params.{unknown} is meant to be {meant}, rename it.",
        field=fields[0],
    )


def _in_plain_words(said: str) -> str:
    """What msgspec says, with no name of a Python type."""

    def kinds(match: re.Match[str]) -> str:
        return " or ".join(_KINDS.get(kind, kind) for kind in match[1].split(" | "))

    said = re.sub(_TYPES, kinds, said[:1].lower() + said[1:])
    return said.replace("invalid enum value", "there is no")


def _value_at(raw: bytes | msgspec.Raw, path: str) -> Any:
    """The string or array where a path leads; None for one that goes through a key."""
    value = msgspec.json.decode(raw)
    for name, index in re.findall(_STEPS, path):
        if isinstance(value, dict) and name:
            value = value.get(name)
        elif isinstance(value, list) and index.isdecimal():
            value = value[int(index)]
        else:
            return None
    return value if isinstance(value, (str, list)) else None


def type_at(annotation: Any, path: str) -> Any:
    """What is declared where a path such as `$.where.tags[0]` leads."""
    for name in re.findall(_NAMES, path):
        fields = [info for s in structs_in(annotation) for info in msgspec.structs.fields(s)]
        annotation = next((info.type for info in fields if info.name == name), None)
    return annotation


def takes_text(params: type[Params], name: str) -> bool:
    return str in _parts(type_at(params, f"$.{name}"))


def structs_in(annotation: Any) -> Iterable[type[Struct]]:
    for part in _parts(annotation):
        if isinstance(part, type) and issubclass(part, Struct):
            yield part


def _literals_in(annotation: Any) -> Iterable[Any]:
    for part in _parts(annotation):
        if get_origin(part) is Literal:
            yield from get_args(part)


def _parts(annotation: Any) -> Iterable[Any]:
    yield annotation
    for inner in get_args(annotation):
        yield from _parts(inner)
