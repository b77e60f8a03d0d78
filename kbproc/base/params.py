"""Decodes a request's params into a struct, or raises an error that names the field.

The error also names the valid values. The module declares the params that all reads, lists and
writes share, too.
"""

# Annotations are values here: msgspec compiles each that is a text, at every start.

import re
from collections.abc import Iterable
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
from msgspec import Meta, Struct

from kbproc.base.errors import KbprocError
from kbproc.base.suggest import nearest
from kbproc.base.times import INSTANT_HINT
from kbproc.base.values import (
    HTTP_URL,
    INSTANT,
    LOG_PLACE,
    NATS_URL,
    NOT_READABLE,
    OCR_LANGUAGE,
    SLUG,
    Decoder,
    TimeoutMs,
    why_not_json,
)
from kbproc.base.wording import plural


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
    """Params of a read whose answer may be shortened."""

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
        """Returns the members that the answer omits if the request names no fields."""
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
    """Params of a read that can look at a past state."""

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


# Prefix of tokens that an attached process makes for writes whose clients sent none.
MADE_BY_US = "attached-"
COMMON_WRITE_FIELDS = frozenset({"client_token", "dry_run", "confirm", "timeout_ms"})

_MOST_SHOWN = 100  # characters of what a client sent
_MOST_SAID = 500

# Pattern → a sentence about a value that does not match.
_IN_WORDS = {
    SLUG: "it takes 2–64 lower-case letters, digits and hyphens",
    INSTANT: "that is no time or date",
    NATS_URL: "that is no address of a NATS server",
    LOG_PLACE: "that is neither a NATS server's address nor file",
    HTTP_URL: "that is no address of a server's monitoring",
    OCR_LANGUAGE: "that is no language of text recognition",
}
_HINTS = {
    INSTANT: INSTANT_HINT,
    NATS_URL: "Write it like nats://127.0.0.1:4222, or tls://HOST:PORT.",
    LOG_PLACE: "Write it like nats://127.0.0.1:4222, or file for the store's folder.",
    HTTP_URL: "Write it like http://127.0.0.1:8222.",
    OCR_LANGUAGE: "Write it as tesseract does: eng, deu, chi_sim; tesseract --list-langs has them.",
}

_KINDS = {
    "int": "an integer",
    "float": "a number",
    "str": "a string",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
}
_PARTS = {"str": "character", "array": "item", "object": "member"}
_SIGNS = {">=": "at least", "<=": "at most", ">": "more than", "<": "less than"}
# Patterns of msgspec's messages. They are compiled on first use, because most processes meet no
# such message and compiling would slow every start.
_TYPES = r"`([a-z]+(?: \| [a-z]+)*)`"
_LENGTH = r"^Expected `(?P<kind>str|array|object)` of length (?P<sign>[<>])= (?P<bound>\d+)$"
_BOUND = r"^Expected `(?:int|float)` (?P<sign>[<>]=?) (?P<bound>-?\d+(?:\.\d+)?)$"
_PATH = r" - at (?:`key` in )?`(?P<path>[^`]*)`$"
_UNKNOWN = r"unknown field `(?P<name>[^`]*)`"
_STEPS = r"\.(\w+)|\[([^][]*)\]"
_NAMES = r"\.(\w+)"
_MISSING = r"missing required field `(?P<name>[^`]*)`"


def decode_params(decoder: Decoder[Params], raw: bytes | msgspec.Raw) -> Params:
    """Decodes params. Raises input.invalid_params, which names the field and the valid values."""
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError as error:
        params: Any = decoder.type  # a form of a type since msgspec 0.23, before it the type
        raise _invalid(params, str(error), raw) from None
    except NOT_READABLE as error:
        raise KbprocError(
            "input.invalid_json",
            f"What params holds is not JSON: {why_not_json(error)}.",
            field="$.params",
        ) from None


def _invalid(params: type[Params], message: str, raw: bytes | msgspec.Raw) -> KbprocError:
    place = re.search(_PATH, message)
    path = place["path"] if place else "$"
    field = "$.params" + path.removeprefix("$")
    sentence = message[: place.start()] if place else message
    valid: list[Any] | None = None
    hint: str | None = None
    if unknown := re.search(_UNKNOWN, sentence):
        name = unknown["name"][:_MOST_SHOWN]
        if path == "$" and (lacking := _lacking(params, raw)):
            return _without_required(lacking, name)
        members = [m for s in structs_in(type_at(params, path)) for m in s.__struct_fields__]
        field += f".{name}"
        sentence = f"{field} is not a parameter of this method"
        valid = nearest(name, members)
    elif missing := re.search(_MISSING, sentence):
        field += f".{missing['name']}"
        sentence = f"{field} is required"
    elif (pattern := next((p for p in _IN_WORDS if sentence.endswith(repr(p))), None)) is not None:
        value = _value_at(raw, path)
        sentence = field if value is None else f"{field} is {value[:_MOST_SHOWN]!r}"
        sentence += f": {_IN_WORDS[pattern]}"
        hint = _HINTS.get(pattern)
    elif length := re.search(_LENGTH, sentence):
        sentence = f"{field} {_length_in_words(length, _value_at(raw, path))}"
    elif bound := re.search(_BOUND, sentence):
        number = bound["bound"].removesuffix(".0")
        sentence = f"{field} must be {_SIGNS[bound['sign']]} {number}"
    else:
        valid = list(_literals_in(type_at(params, path))) or None
        sentence = f"{field}: {_in_plain_words(sentence)[:_MOST_SAID]}"
    return KbprocError(
        "input.invalid_params", f"{sentence}.", hint=hint, field=field, valid_values=valid
    )


def _lacking(params: type[Params], raw: bytes | msgspec.Raw) -> list[str]:
    """Returns the required params that are missing; [] for JSON that is broken further on."""
    try:
        return missing_in(params, msgspec.json.decode(raw, type=dict[str, msgspec.Raw]))
    except NOT_READABLE:
        return []


def missing_in(params: type[Params], members: Iterable[str]) -> list[str]:
    """Returns the required params that `members` lacks."""
    names = set(members)
    return [
        field.name
        for field in msgspec.structs.fields(params)
        if field.required and field.name not in names
    ]


def _without_required(missing: list[str], unknown: str) -> KbprocError:
    """Returns an error that names the missing params first, since an unknown name is often a wrong
    name for one of them.
    """
    fields = [f"$.params.{name}" for name in missing]
    names, verb, target = " and ".join(fields), "is", "that"
    if len(fields) > 1:
        verb, target = "are", "one of these"
    return KbprocError(
        "input.invalid_params",
        f"{names} {verb} required, and $.params.{unknown} is not a parameter of this method.",
        hint=f"Write {names}; if $.params.{unknown} is meant to be {target}, rename it.",
        field=fields[0],
    )


def _length_in_words(length: re.Match[str], value: str | list[Any] | None) -> str:
    """Returns what is wrong with a value's length; None for a value that was not read."""
    bound, part = int(length["bound"]), _PARTS[length["kind"]]
    limit = f"the limit is {bound}" if length["sign"] == "<" else f"it needs at least {bound}"
    if value is None:
        size = "many" if length["sign"] == "<" else "few"
        return f"has too {size} {part}s; {limit}"
    return f"has {plural(len(value), part)}; {limit}" if value else "is empty"


def _in_plain_words(message: str) -> str:
    """Returns msgspec's message without names of Python types."""

    def kinds(match: re.Match[str]) -> str:
        return " or ".join(_KINDS.get(kind, kind) for kind in match[1].split(" | "))

    message = re.sub(_TYPES, kinds, message[:1].lower() + message[1:])
    return message.replace("invalid enum value", "there is no")


def _value_at(raw: bytes | msgspec.Raw, path: str) -> Any:
    """Returns the string or array at a path; None if the path goes through a key."""
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
    """Returns the declared type at a path such as `$.where.tags[0]`."""
    for name in re.findall(_NAMES, path):
        fields = [info for s in structs_in(annotation) for info in msgspec.structs.fields(s)]
        annotation = next((info.type for info in fields if info.name == name), None)
    return annotation


def as_taken(params: type[Params], name: str, value: Any) -> Any:
    """Returns the value as the param `name` takes it; None if the param does not take it.

    `value`: a text or a list of texts. A text becomes a list where only a list is taken.
    """
    kinds = list(_alternatives(type_at(params, f"$.{name}")))
    takes_list = any(get_origin(kind) is list and str in _parts(kind) for kind in kinds)
    if isinstance(value, str):
        return value if str in kinds else [value] if takes_list else None
    is_texts = isinstance(value, list) and all(isinstance(item, str) for item in value)
    return value if is_texts and takes_list else None


def _alternatives(annotation: Any) -> Iterable[Any]:
    """Yields the types of a union, without their annotations."""
    if get_origin(annotation) is Annotated:
        yield from _alternatives(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, UnionType):
        for inner in get_args(annotation):
            yield from _alternatives(inner)
    else:
        yield annotation


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
