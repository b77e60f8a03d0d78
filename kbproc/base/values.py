"""Values that many methods take: slugs, ids, titles, tags, metadata, moments.

Their shapes, limits and descriptions make schemas, flags and help. The module also cleans values,
and decodes JSON safely while many threads read.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from collections.abc import Callable, Iterable
from itertools import accumulate
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

import msgspec
from msgspec import Meta

from kbproc.base.errors import KbprocError
from kbproc.base.unseen import UNSEEN

if TYPE_CHECKING:
    from pathlib import Path

# `\Z`, because Python's `$` allows a newline after it. Schemas say `$`: see `published`.
SLUG = r"^[a-z0-9][a-z0-9-]{0,62}[a-z0-9]\Z"
# Characters that only shape how the letters of a word join, in Persian and the scripts of India.
_JOINERS = "[\u200c\u200d]"

Slug = Annotated[str, Meta(pattern=SLUG, description="lower-case letters, digits, hyphens; 2–64")]
KbSlug = Annotated[
    str,
    Meta(
        pattern=SLUG,
        description="knowledge base, by slug: 2–64 lower-case letters, digits and hyphens",
    ),
]
# A server of NATS, and an address that is asked over HTTP; both without a path.
NATS_URL, HTTP_URL = r"^(nats|tls)://[^\s/]{1,300}\Z", r"^https?://[^\s/]{1,300}\Z"
LOG_PLACE = r"^(file|(nats|tls)://[^\s/]{1,300})\Z"
OCR_LANGUAGE = r"^[A-Za-z][A-Za-z0-9_]{1,29}\Z"  # tesseract names languages so: eng, chi_sim
DocumentId = Annotated[int, Meta(ge=1, le=2**53, description="document, by id")]
ChunkId = Annotated[int, Meta(ge=1, le=2**53, description="chunk, by id")]
AnyTitle = Annotated[str, Meta(max_length=300, description="title")]  # may be empty
Title = Annotated[AnyTitle, Meta(min_length=1)]
TAG_CHARS, MOST_TAGS = 64, 16
Tag = Annotated[str, Meta(min_length=1, max_length=TAG_CHARS, description="kebab-case word")]
Tags = Annotated[
    list[Tag], Meta(max_length=MOST_TAGS, description="at most 16 tags, made kebab-case")
]
MOST_ALIASES = 16
MOST_MS = 86_400_000  # a day
TimeoutMs = Annotated[
    int, Meta(ge=0, le=MOST_MS, description="give up after this many milliseconds")
]
Share = Annotated[float, Meta(ge=0, le=1)]
Percent = Annotated[int, Meta(ge=0, le=100)]
Scalar = str | int | float | bool | None
Metadata = Annotated[
    dict[str, Scalar], Meta(max_length=64, description="flat object of strings, numbers, booleans")
]
INSTANT = r"^\d{4}-\d\d-\d\d([Tt ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?([Zz]|[+-]\d\d:\d\d)?)?\Z"
Instant = Annotated[
    str,
    Meta(
        pattern=INSTANT,
        description="RFC 3339 time or date; UTC unless it says otherwise",
    ),
]


def published(pattern: str) -> str:
    """Returns a pattern as ECMA-262 writes it: JSON Schema's `$` is the very end, and it has no
    `\\Z`.

    msgspec lets `extra_json_schema` replace no pattern.
    """
    return pattern[:-2] + "$" if pattern.endswith(r"\Z") else pattern


def clean_name(value: str, *, field: str) -> str:
    """Returns the name without outer spaces; refuses characters that hide or reorder text."""
    hidden = UNSEEN.search(value)
    if hidden or "\n" in value or "\t" in value:
        character = hidden.group() if hidden else next(c for c in value if c in "\n\t")
        raise KbprocError(
            "input.invalid_params",
            f"{field} holds the character U+{ord(character):04X}, which names may not hold.",
            field=field,
            hint="Leave out characters that can't be seen, and line breaks.",
        )
    if not value.strip():
        raise KbprocError("input.invalid_params", f"{field} is blank.", field=field)
    return value.strip()


def clean_tags(tags: Iterable[str], *, field: str = "$.params.tags") -> list[str]:
    """Returns tags in kebab-case, composed (NFC), without duplicates, in their order.

    A tag holds letters with their marks and digits of any script, one at least, and - . + #.
    """
    tag_words: dict[str, None] = {}
    for index, tag in enumerate(tags):
        where = f"{field}[{index}]"
        name = clean_name(re.sub(_JOINERS, "", tag) or tag, field=where)
        lower = unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).lower())
        word = re.sub(r"[\s_/-]+", "-", lower).strip("-")
        if not any(map(str.isalnum, word)) or not all(map(_is_of_tags, word)):
            raise KbprocError(
                "input.invalid_params",
                f"{where} is {tag!r}: a tag is letters, digits, hyphens and . + #.",
                field=where,
                hint="Write it like install-guide or c++.",
            )
        tag_words[word] = None
    return list(tag_words)


def _is_of_tags(character: str) -> bool:
    return (
        character.isalnum()
        or character in "-.+#"
        or unicodedata.category(character) in {"Mn", "Mc"}
    )


def check_metadata(metadata: dict[str, Any], *, field: str = "$.params.metadata") -> None:
    """Refuses keys with hidden characters or over 200, and values over 1,000 characters."""
    for key, value in metadata.items():
        clean_name(key, field=field)
        if len(key) > 200:
            raise KbprocError(
                "input.invalid_params",
                f"A key of {field} has {len(key)} characters; the limit is 200.",
                field=field,
            )
        if isinstance(value, str) and len(value) > 1000:
            raise KbprocError(
                "input.invalid_params",
                f"{field}.{key} has {len(value)} characters; the limit is 1000.",
                field=f"{field}.{key}",
            )


# msgspec keeps its knowledge of a Struct with the Struct before it is complete, and a second thread
# crashes the process if it reads the incomplete part. So types are learnt under a lock.
LEARNING = threading.Lock()
_Value = TypeVar("_Value")
_encode = msgspec.json.Encoder().encode


class Decoder(Generic[_Value]):
    """Decodes one type, which it learns with the first value: most processes decode few types."""

    __slots__ = ("_decode", "_make", "type")

    def __init__(self, kind: type[_Value], make: Callable[[], Any]) -> None:
        self.type = kind
        self._make = make
        self._decode: Callable[[Any], _Value] | None = None

    def decode(self, data: bytes | bytearray | memoryview | str | msgspec.Raw) -> _Value:
        return (self._decode or self.learn())(data)

    def learn(self) -> Callable[[Any], _Value]:
        """Learns the type; returns the function that decodes it."""
        with LEARNING:
            self._decode = self._make().decode
        return self._decode


def decoder(kind: type[_Value]) -> Decoder[_Value]:
    """Returns a JSON decoder, to be made once where `kind` is declared."""
    return Decoder(kind, lambda: msgspec.json.Decoder(kind))


# The errors of decoding bytes of unknown origin.
NOT_READABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


# Levels of lists and objects in JSON from outside. Python's own limit differs: up to 3.11 some
# hundred levels less the callers', later thousands, and from 3.14 on what the stack has room for.
MOST_LEVELS = 512
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?'
_LIKE_LISTS = bytes.maketrans(b"{}", b"[]")
_OPENING = ord("[")
_NO_BRACKETS = bytes({*range(256)} - {*b"[]{}"})


def check_depth(data: bytes | str) -> None:
    """Raises RecursionError for JSON of more than MOST_LEVELS."""
    if isinstance(data, str):
        if data.count("[") + data.count("{") <= MOST_LEVELS:
            return
        data = data.encode("utf-8", "surrogatepass")
    if data.count(b"[") + data.count(b"{") <= MOST_LEVELS:
        return
    brackets = re.sub(_STRING, b"", data, flags=re.DOTALL).translate(_LIKE_LISTS, _NO_BRACKETS)
    level, step = 0, 64
    for at in range(0, len(brackets), step):  # a line may have millions of brackets
        part = brackets[at : at + step]
        opening = part.count(b"[")
        if level + opening > MOST_LEVELS:
            levels = accumulate(
                (1 if bracket == _OPENING else -1 for bracket in part), initial=level
            )
            if max(levels) > MOST_LEVELS:
                raise RecursionError
        level += 2 * opening - len(part)


# The whole characters before an escape of half a character, and that escape. The pattern matches
# anything, because a search that fails would begin anew at each byte.
_HALF = (
    rb"((?:[^\\]++|\\[^u]|\\u(?![dD][89a-fA-F])"
    rb"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})*+)"
    rb"(?:(\\u[dD][89a-fA-F][0-9a-fA-F]{2})|(.)|\Z)"
)


def without_halves(data: bytes) -> bytes:
    """Returns JSON in which U+FFFD stands for each escape of half a character, such as `\\ud83d`.

    A program that cuts a text within an emoji writes such escapes, and decoders refuse them.
    """

    def whole(part: re.Match[bytes]) -> bytes:
        return part[1] + (rb"\ufffd" if part[2] else part[3] or b"")

    return re.sub(_HALF, whole, data, flags=re.DOTALL) if b"\\u" in data else data


def why_not_json(error: Exception) -> str:
    """Returns why bytes can't be decoded, as the end of a sentence."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, UnicodeDecodeError) or "UTF-8" in str(error):  # since msgspec 0.23
        return "it is not UTF-8"
    message = str(error).removeprefix("JSON is malformed: ")
    return message[:1].lower() + message[1:]


def object_in(file: Path) -> dict[str, Any]:
    """Returns the object in a file of JSON; empty if there is no file, or no object in it."""
    try:
        content = msgspec.json.decode(file.read_bytes())
    except (OSError, *NOT_READABLE):
        return {}
    return content if isinstance(content, dict) else {}


def packed_decoder(kind: type[_Value]) -> Decoder[_Value]:
    """Returns a msgpack decoder."""
    return Decoder(kind, lambda: msgspec.msgpack.Decoder(kind))


def as_json(value: Any) -> bytes:
    """Returns `value`, made of builtins, as JSON.

    A path may hold bytes that are not UTF-8, which JSON can't: `\\xff` stands for such a byte.
    """
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return _encode(_spelled(value))


def _spelled(value: Any) -> Any:
    if isinstance(value, str):
        try:
            return value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
        except UnicodeEncodeError:  # half a character, which no path can hold
            return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, list | tuple):
        return [_spelled(item) for item in value]
    if isinstance(value, dict):
        return {_spelled(key): _spelled(item) for key, item in value.items()}
    return value


def canonical(value: Any) -> bytes:
    """Returns JSON with sorted keys, so that equal values give equal bytes."""
    return msgspec.json.encode(value, order="sorted")
