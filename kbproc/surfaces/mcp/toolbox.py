"""Arguments as clients spell them, read as what a schema asks for.

Owns: which spellings of a number, a truth value, a list, an object and of nothing have exactly one
reading, and what that is.
Refuses to know: tools and methods; and ranges and names, which the method itself refuses: a value
that has no reading, or more than one, stays as it is.

Models and clients send `"5"` for 5, `5.0` for 5, `"true"` for true, `null` or `""` for what they
leave out, one item for a list of one, and lists and objects as JSON in a string.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

Schema = dict[str, Any]

MOST_TEXT = 4 << 20  # characters of JSON in a string
MOST_DEPTH = 32
_EXACT = 1 << 53  # beyond it a JSON number with a fraction or an exponent is no certain integer
_WIDEST = 1 << 64
_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,19})")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?")
_TRUTH = {"true": True, "false": False}
_SEVERAL = (",", "\n")  # a text that holds one may be meant as several items
_NO_READING = object()


def coerced(arguments: dict[str, Any], schema: Schema, *, clears: bool = True) -> dict[str, Any]:
    """Returns the arguments as this schema of an object asks for them.

    `clears`: an empty text stays where the schema allows it. Without `clears`, and wherever the
    schema forbids an empty text, it means that the client leaves the argument out.
    """
    properties, required = schema.get("properties", {}), schema.get("required", ())
    result = {}
    for name, value in arguments.items():
        member = properties.get(name)
        if member is None:
            result[name] = value
        elif not _is_left_out(value, member, required=name in required, clears=clears):
            result[name] = _read(value, member)
    return result


def text_as_object(value: Any) -> Any:
    """Returns the object that a text holds as JSON, and any other value as it is."""
    parsed = _json_of(value, dict) if isinstance(value, str) else _NO_READING
    return value if parsed is _NO_READING else parsed


def takes_null(schema: Schema) -> bool:
    return any(kind.get("type") == "null" for kind in _kinds(schema)) or not schema


def _is_left_out(value: Any, schema: Schema, *, required: bool, clears: bool) -> bool:
    """Keeps an empty text where something is required: the error then names it."""
    if value is None:
        return not takes_null(schema)
    if value != "" or required:
        return False
    return not clears or not any(_fits(value, kind) for kind in _kinds(schema))


def _kinds(schema: Schema) -> list[Schema]:
    """The alternatives that a value may be."""
    if "anyOf" not in schema:
        return [schema]
    return [kind for part in schema["anyOf"] for kind in _kinds(part)]


def _read(value: Any, schema: Schema) -> Any:
    """Returns the only reading of the value; a value with none or several stays as it is."""
    kinds = _kinds(schema)
    for kind in kinds:
        if _fits(value, kind):
            return _members(value, kind)
    readings = _readings(value, [kind for kind in kinds if kind.get("type") != "array"])
    # A list of one is the last resort: 42 is the text "42" before it is ["42"].
    readings = readings or _readings(value, [kind for kind in kinds if kind.get("type") == "array"])
    return readings[0] if len(readings) == 1 else value


def _readings(value: Any, kinds: list[Schema]) -> list[Any]:
    readings: list[Any] = []
    for kind in kinds:
        reading = _reading(value, kind)
        if reading is not _NO_READING and reading not in readings:
            readings.append(reading)
    return readings


def _fits(value: Any, kind: Schema) -> bool:
    """Returns whether the value is of that kind already; its members are not looked at."""
    if "enum" in kind:
        return value in kind["enum"]
    match kind.get("type"):
        case None:
            return True
        case "null":
            return value is None
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "string":
            return isinstance(value, str) and _is_text_of(value, kind)
        case "array":
            return isinstance(value, list)
        case _:
            return isinstance(value, dict)


def _is_text_of(text: str, kind: Schema) -> bool:
    if len(text) < kind.get("minLength", 0):
        return False
    return "pattern" not in kind or re.search(kind["pattern"], text) is not None


def _members(value: Any, kind: Schema) -> Any:
    """A list or an object with its members read; anything else as it is."""
    if isinstance(value, list) and "items" in kind:
        return [_read(item, kind["items"]) for item in value]
    if isinstance(value, dict) and kind.get("type") == "object":
        return coerced(value, _with_words(value, kind))
    return value


def _with_words(value: dict[str, Any], kind: Schema) -> Schema:
    """The schema with each property by the name that the object has for it: taskId is task_id."""
    members = kind.get("properties", {})
    names = {name: snake(name) for name in value if name not in members and snake(name) in members}
    if not names:
        return kind
    required = {*kind.get("required", ())}
    return {
        **kind,
        "properties": {**members, **{name: members[own] for name, own in names.items()}},
        "required": [*required, *(name for name, own in names.items() if own in required)],
    }


def snake(name: str) -> str:
    """expiresAt → expires_at."""
    if name.islower():
        return name
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in name)


# ------------------------------------------------------------------------- other spellings


def _reading(value: Any, kind: Schema) -> Any:
    if "enum" in kind:
        return _choice(value, kind["enum"])
    match kind.get("type"):
        case "boolean":
            return _truth(value)
        case "integer":
            return _integer(value)
        case "number":
            return _number(value)
        case "string":
            return _text(value, kind)
        case "array":
            return _array(value, kind)
        case "object":
            return _object(value, kind)
    return _NO_READING


def _choice(value: Any, choices: list[Any]) -> Any:
    """One of the words, in any case."""
    if not isinstance(value, str):
        return _NO_READING
    word = value.strip().casefold()
    same = [choice for choice in choices if isinstance(choice, str) and choice.casefold() == word]
    return same[0] if len(same) == 1 else _NO_READING


def _truth(value: Any) -> Any:
    if not isinstance(value, str):
        return _NO_READING
    return _TRUTH.get(value.strip().lower(), _NO_READING)


def _integer(value: Any) -> Any:
    if isinstance(value, str):
        text = value.strip()
        if _INTEGER.fullmatch(text):
            return int(text) if abs(int(text)) < _WIDEST else _NO_READING
        value = _number(text)
    if isinstance(value, float) and value.is_integer() and abs(value) <= _EXACT:
        return int(value)
    return _NO_READING


def _number(value: Any) -> Any:
    """Reads a number as JSON spells it; one that overflows has no reading."""
    if not isinstance(value, str) or not _NUMBER.fullmatch(text := value.strip()):
        return _NO_READING
    if _INTEGER.fullmatch(text) and abs(int(text)) < _WIDEST:
        return int(text)
    number = float(text)
    return number if abs(number) != float("inf") else _NO_READING


def _text(value: Any, kind: Schema) -> Any:
    """Reads integers alone: 1.10 arrives as 1.1, and true may have been yes."""
    if not isinstance(value, int) or isinstance(value, bool):
        return _NO_READING
    return str(value) if _is_text_of(str(value), kind) else _NO_READING


def _array(value: Any, kind: Schema) -> Any:
    """A list as JSON in a text, or the one item of a list."""
    if isinstance(value, str):
        parsed = _json_of(value, list)
        if parsed is not _NO_READING:
            return _members(parsed, kind)
        if not _is_one(value):
            return _object_alone(value, kind)
    if value is None or isinstance(value, list):
        return _NO_READING
    return _alone(value, kind)


def _is_one(text: str) -> bool:
    """Returns whether the text is one item beyond doubt: no list, and no piece of JSON."""
    is_json = text.lstrip()[:1] in {"[", "{"}
    return bool(text.strip()) and not is_json and not any(sign in text for sign in _SEVERAL)


def _alone(value: Any, kind: Schema) -> Any:
    items = kind.get("items", {})
    item = _read(value, items)
    return [item] if any(_fits(item, one) for one in _kinds(items)) else _NO_READING


def _object_alone(text: str, kind: Schema) -> Any:
    """One object as JSON, for a list of objects; any other text may be several items."""
    only_objects = all(one.get("type") == "object" for one in _kinds(kind.get("items", {})))
    return _alone(text, kind) if only_objects else _NO_READING


def _object(value: Any, kind: Schema) -> Any:
    if not isinstance(value, str):
        return _NO_READING
    parsed = _json_of(value, dict)
    return parsed if parsed is _NO_READING else _members(parsed, kind)


def _json_of(text: str, kind: type) -> Any:
    """The list or object that a text is as JSON, if it is neither too long nor too deep."""
    begins = "[" if kind is list else "{"
    if len(text) > MOST_TEXT or not text.lstrip().startswith(begins):
        return _NO_READING
    try:
        parsed = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return _NO_READING
    return parsed if isinstance(parsed, kind) and _is_shallow(parsed) else _NO_READING


def _is_shallow(value: Any) -> bool:
    """Without recursion: the value is as deep as a client likes."""
    level = [value]
    for _ in range(MOST_DEPTH):
        members: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                members += one.values()
            elif isinstance(one, list):
                members += one
        if not members:
            return True
        level = members
    return False
