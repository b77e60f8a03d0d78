"""Params as they are typed on a command line: read, and written.

Owns: a value of a flag from its words by its type, and a request as a command line that reads
back the same.
Refuses to know: which words belong to which flag; and ranges, patterns and choices, which the
method itself refuses: each error exists once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from kbproc.base.errors import KbprocError
from kbproc.calls.flags import Flag, Kind, flags_of

if TYPE_CHECKING:
    from kbproc.calls.method import Method

TRUTH = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_WHOLE = r"-?\d+"
_DECIMAL = r"-?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"
_ESCAPED = r"\\+[-@]"


def is_number(text: str) -> bool:
    return re.fullmatch(_DECIMAL, text) is not None


def unescaped(word: str) -> str:
    r"""The text that a word means: `\-` and `\@` begin it with that character."""
    return word[1:] if re.match(_ESCAPED, word) else word


def _escaped(text: str) -> str:
    """So that it is not taken for stdin or a file."""
    special = text == "-" or text.startswith("@") or re.match(_ESCAPED, text)
    return f"\\{text}" if special else text


def value_of(flag: Flag, texts: Sequence[str | bool]) -> Any:
    """What the words of a flag mean; raises input.invalid_params."""
    if flag.type == "boolean":
        return texts[-1]
    words = [str(text) for text in texts]
    if flag.type == "object":
        return _object(flag, words)
    if flag.items is not None:
        return _list_or_one(flag, words)
    return scalar(words[-1], flag.type)


def _list_or_one(flag: Flag, texts: list[str]) -> Any:
    items = [item for text in texts for item in _items(flag, text)]
    return items[0] if flag.type != "array" and len(items) == 1 else items


def _items(flag: Flag, text: str) -> list[Any]:
    """`a,b`, or a JSON array for items that hold commas."""
    if flag.is_records:
        return _records(flag, text)
    if text.startswith("["):
        decoded = _json(text)
        if isinstance(decoded, list):
            return decoded
    return [scalar(part.strip(), flag.items) for part in text.split(",")] if text else []


def _records(flag: Flag, text: str) -> list[Any]:
    """A JSON array of objects, one object, or an object a line."""
    whole = _json(text)
    if isinstance(whole, list):
        return whole
    if isinstance(whole, dict):
        return [whole]
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    found = [(number, _json(line)) for number, line in lines]
    for number, item in found:
        if not isinstance(item, dict):
            raise KbprocError(
                "input.invalid_params",
                f"{flag.name}: line {number} is no JSON object.",
                field=flag.name,
                hint="Write a JSON array of objects, or one object a line.",
            )
    return [item for _, item in found]


def _object(flag: Flag, texts: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for text in texts:
        decoded = _json(text) if text.startswith("{") else None
        if isinstance(decoded, dict):
            found.update(decoded)
            continue
        key, equals, value = text.partition("=")
        if not equals:
            raise KbprocError(
                "input.invalid_params",
                f"{flag.name} is {text!r}, which is neither KEY=VALUE nor a JSON object.",
                field=flag.name,
                hint=f'Write {flag.name} KEY=VALUE, or {flag.name} \'{{"key": "value"}}\'.',
            )
        found[key] = json_or_text(value)
    return found


def scalar(text: str, kind: Kind | None) -> Any:
    """What is no number stays a text, which the method then refuses by name."""
    if kind == "integer" and re.fullmatch(_WHOLE, text):
        return int(text)
    if kind == "number" and is_number(text):
        return float(text)
    if kind == "boolean":
        return TRUTH.get(text.lower(), text)
    return json_or_text(text) if kind in {"json", "object", "array"} else text


def json_or_text(text: str) -> Any:
    """The JSON value that `text` spells, else the text itself."""
    decoded = _json(text)
    return text if decoded is msgspec.UNSET else decoded


def _json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return msgspec.UNSET


# ---------------------------------------------------------------------- to words


def command_of(method: Method) -> str:
    return f"kbproc {method.name.replace('.', ' ')}"


def usage_of(method: Method, name: str | None = None) -> str:
    """`name`: the command, where it is not the method's own."""
    flags = {flag.param: flag for flag in flags_of(method)}
    slots = [_slot(flags[param]) for param in method.positional]
    return f"Usage: {' '.join([name or command_of(method), *slots, '[FLAGS]'])}"


def _slot(flag: Flag) -> str:
    name = str(flag.param).upper() + (" …" if flag.type == "array" else "")
    return name if flag.required else f"[{name}]"


def argv_of(method: Method, params: dict[str, Any]) -> list[str]:
    """The command line that means `params`; members that are null are left out."""
    left = {name: value for name, value in params.items() if value is not None}
    flags = {flag.param: flag for flag in flags_of(method) if flag.param is not None}
    words = _positional_words(method, flags, left)
    for name, value in left.items():
        words += _flag_words(flags, name, value)
    return [*command_of(method).split(), *words]


def _positional_words(method: Method, flags: dict[str, Flag], left: dict[str, Any]) -> list[str]:
    words: list[str] = []
    for name in method.positional:
        value = left.get(name)
        flag, items = flags[name], value if isinstance(value, list) else [value]
        texts = [_word(flag, item) for item in items]
        if value in (None, []) or any(word.startswith("-") for word in texts):
            break
        if not isinstance(value, list) and value_of(flag, [_text(value)]) != value:
            break
        words += texts
        del left[name]
    return words


def _flag_words(flags: dict[str, Flag], param: str, value: Any) -> list[str]:
    flag = flags[param]
    if value is True:
        return [flag.name]
    if value is False:
        return [flag.name.replace("--", "--no-", 1)]
    if isinstance(value, dict) and value:
        return _object_words(flags, flag, value)
    if isinstance(value, list) and flag.is_records:
        return _pair(flag.name, _text(value))
    if isinstance(value, list):
        joined = ",".join(_text(item) for item in value)
        same = bool(value) and _list_or_one(flag, [joined]) == value
        return _pair(flag.name, joined if same else _text(value))
    return _pair(flag.name, _word(flag, value))


def _object_words(flags: dict[str, Flag], flag: Flag, value: dict[str, Any]) -> list[str]:
    if any(f"{flag.param}.{key}" in flags for key in value):
        present = {key: item for key, item in value.items() if item is not None}
        return [
            word
            for key, item in present.items()
            for word in _flag_words(flags, f"{flag.param}.{key}", item)
        ]
    words = [f"{key}={_text(item)}" for key, item in value.items()]
    if _object(flag, words) != value:
        return _pair(flag.name, _text(value))
    return [part for word in words for part in _pair(flag.name, word)]


def _word(flag: Flag, value: Any) -> str:
    return _escaped(_text(value)) if flag.is_text else _text(value)


def _pair(name: str, value: str) -> list[str]:
    return [f"{name}={value}"] if value.startswith("-") else [name, value]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
