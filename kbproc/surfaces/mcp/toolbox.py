"""Chooses the tools of one process, by sets, names and scopes, and turns calls into requests.

The tools are read from tools.json, which `make generate` writes.

Arguments, as clients spell them, become values of the method's types. A spelling of a number, a
truth value, a list, an object or null counts if it has exactly one reading. Models and clients send
`"5"` for 5, `5.0` for 5, `"true"` for true, `null` or `""` for what they leave out, one item for a
list of one, and lists and objects as JSON in a string.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from kbproc.base.errors import KbprocError
from kbproc.base.suggest import closest, did_you_mean, nearest
from kbproc.base.values import decoder

Schema = dict[str, Any]

MOST_TEXT = 4 << 20  # characters of JSON in a string
MOST_DEPTH = 32
_EXACT = 1 << 53  # a larger JSON number with a fraction or an exponent is no exact integer
_WIDEST = 1 << 64
_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,19})")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?")
_TRUTH = {"true": True, "false": False}
_SEPARATORS = (",", "\n")  # a text with a separator may mean several items
_NO_READING = object()


def coerced(arguments: dict[str, Any], schema: Schema, *, clears: bool = True) -> dict[str, Any]:
    """Returns the arguments in the types of this schema of an object.

    `clears`: an empty text stays where the schema allows it. Without `clears`, and where the
    schema forbids it, an empty text means that the client leaves the argument out.
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
    """Returns the object that a text holds as JSON; any other value stays."""
    parsed = _json_of(value, dict) if isinstance(value, str) else _NO_READING
    return value if parsed is _NO_READING else parsed


def takes_null(schema: Schema) -> bool:
    return any(kind.get("type") == "null" for kind in _kinds(schema)) or not schema


def _is_left_out(value: Any, schema: Schema, *, required: bool, clears: bool) -> bool:
    """Returns true for a value to drop; an empty required text stays, so that an error names it."""
    if value is None:
        return not takes_null(schema)
    if value != "" or required:
        return False
    return not clears or not any(_fits(value, kind) for kind in _kinds(schema))


def _kinds(schema: Schema) -> list[Schema]:
    """Returns the alternatives of a schema."""
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
    # A list of one is the last choice, because 42 is rather the text "42" than ["42"].
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
    """Returns true if the value has that type already; its members are not checked."""
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
    """Returns a list or an object with converted members; any other value stays."""
    if isinstance(value, list) and "items" in kind:
        return [_read(item, kind["items"]) for item in value]
    if isinstance(value, dict) and kind.get("type") == "object":
        return coerced(value, _with_words(value, kind))
    return value


def _with_words(value: dict[str, Any], kind: Schema) -> Schema:
    """Returns the schema with the object's names of properties, such as taskId for task_id."""
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
    """Returns expires_at for expiresAt."""
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
    """Returns the choice that the value names, in upper or lower case."""
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
    """Returns a list from JSON in a text, or from its only item."""
    if isinstance(value, str):
        parsed = _json_of(value, list)
        if parsed is not _NO_READING:
            return _members(parsed, kind)
        if not _is_one_item(value):
            return _object_alone(value, kind)
    if value is None or isinstance(value, list):
        return _NO_READING
    return _alone(value, kind)


def _is_one_item(text: str) -> bool:
    """Returns true if the text can only be one item: no list, and no piece of JSON."""
    is_json = text.lstrip()[:1] in {"[", "{"}
    return bool(text.strip()) and not is_json and not any(sign in text for sign in _SEPARATORS)


def _alone(value: Any, kind: Schema) -> Any:
    items = kind.get("items", {})
    item = _read(value, items)
    return [item] if any(_fits(item, item_kind) for item_kind in _kinds(items)) else _NO_READING


def _object_alone(text: str, kind: Schema) -> Any:
    """Returns a list of the one object in a text; a text for other lists may be several items."""
    item_kinds = _kinds(kind.get("items", {}))
    only_objects = all(item_kind.get("type") == "object" for item_kind in item_kinds)
    return _alone(text, kind) if only_objects else _NO_READING


def _object(value: Any, kind: Schema) -> Any:
    if not isinstance(value, str):
        return _NO_READING
    parsed = _json_of(value, dict)
    return parsed if parsed is _NO_READING else _members(parsed, kind)


def _json_of(text: str, kind: type) -> Any:
    """Returns the list or object that a text holds as JSON, if not too long or too deep."""
    begins = "[" if kind is list else "{"
    if len(text) > MOST_TEXT or not text.lstrip().startswith(begins):
        return _NO_READING
    try:
        parsed = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return _NO_READING
    return parsed if isinstance(parsed, kind) and _is_shallow(parsed) else _NO_READING


def _is_shallow(value: Any) -> bool:
    """Returns true for a value of few levels; no recursion, because a client may send many."""
    level = [value]
    for _ in range(MOST_DEPTH):
        members: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                members += item.values()
            elif isinstance(item, list):
                members += item
        if not members:
            return True
        level = members
    return False


_FOLDER = Path(__file__).parent
_SEARCHES = ("search", "note.search")
_MOST_SHOWN = 100  # characters of what a client sent
ALL = "all"


class Mistake(Exception):
    """A wrong argument; the tool's error lets the model correct itself."""


class WireRequest(Struct, frozen=True):
    """A request on the wire. `added`: params that the caller did not write."""

    method: str
    params: dict[str, Any]
    added: frozenset[str] = frozenset()

    def adding(self, **params: Any) -> WireRequest:
        """Returns the request with more params, which the caller did not write."""
        added = self.added | params.keys()
        return WireRequest(self.method, {**self.params, **params}, frozenset(added))


class Tool(Struct, frozen=True, kw_only=True):
    """A tool of tools.json; `tool` is the part that a client sees. See declared.py.

    `reads_only` and `reach` belong to tools for any method. `reach`: an effect → the scopes of
    which one is needed for the effect.
    """

    method: str
    scope: str | None
    destructive: bool
    arguments: dict[str, str]
    tool: dict[str, Any]
    preset: dict[str, Any] = {}
    instead: dict[str, str] = {}
    reads_only: bool = False
    reach: dict[str, list[str]] = {}

    def published(self, scopes: frozenset[str], *, own: bool) -> dict[str, Any]:
        """Returns the tool for a client with these scopes. `own`: the client is an agent."""
        if not self.reach:
            return self.tool
        can = {name for name, some in self.reach.items() if not scopes.isdisjoint(some)}
        destroys = {"destroys", "destroys_own"} if own else {"destroys"}
        hints = {
            "readOnlyHint": "writes" not in can,
            "destructiveHint": not can.isdisjoint(destroys),
            "idempotentHint": "writes" not in can,
            "openWorldHint": "goes_outside" in can,
        }
        return {**self.tool, "annotations": hints}

    def is_within(self, scopes: frozenset[str]) -> bool:
        return self.scope is None or self.scope in scopes

    def to_request(self, arguments: dict[str, Any]) -> WireRequest:
        """Returns the request of a call. Raises Mistake."""
        if not self.method:
            return _any_method(arguments, reads_only=self.reads_only)
        present = {
            name: value
            for name, value in arguments.items()
            if value is not None or self._takes_null(name)
        }
        params = _renamed(present, self._param)
        method = self.method
        for name, other in self.instead.items():
            if _is_nothing(params.get(name)):
                params.pop(name, None)
            else:
                method = other
        params = _coerced_params(method, params)
        if isinstance(params.get("task_ref"), dict):
            params["task_ref"] = _renamed(params["task_ref"], snake)
        preset = self.preset if method == self.method else {}
        missing = {name: value for name, value in preset.items() if name not in params}
        return WireRequest(method, params).adding(**missing)

    def _takes_null(self, argument: str) -> bool:
        """Returns true if null is a value; else null means that the argument is left out."""
        published = self.tool["inputSchema"]["properties"].get(argument)
        return published is None or takes_null(published)

    def _param(self, argument: str) -> str:
        return self.arguments.get(argument) or snake(argument)

    def argument(self, param: str) -> str:
        """Returns the tool's argument for a param."""
        names = {own: name for name, own in self.arguments.items()}
        return names.get(param, param)


def _renamed(members: dict[str, Any], rename: Callable[[str], str]) -> dict[str, Any]:
    """Returns the members under new names. Raises Mistake for two values under one name."""
    renamed: dict[str, Any] = {}
    for name, value in members.items():
        if renamed.setdefault(rename(name), value) != value:
            raise Mistake(f"{name} has two values: give it once.")
    return renamed


def _is_nothing(value: Any) -> bool:
    """Returns true for values that clients send for an argument that they leave out."""
    return value in (None, "", "[]", [])


_NO_CONFIRM = "Only a person approves a plan: leave confirm out, and the client asks."


# Other names that models use for the object params.
_OTHER_NAMES = frozenset({"arguments", "args", "input", "parameters"})
_MOST_TRIED = 2_000  # characters
# Params that make a reading method change something outside the store.
_CHANGE_FILES = ("path", "repair")


def _any_method(arguments: dict[str, Any], *, reads_only: bool) -> WireRequest:
    method, params = arguments.get("method"), text_as_object(arguments.get("params"))
    params = {} if params in (None, "") else params
    if not isinstance(method, str):
        raise Mistake("method is required: a name that kb_describe lists, such as tag.list.")
    if not isinstance(params, dict):
        raise Mistake("params must be an object with the params of that method.")
    outside = {k: v for k, v in arguments.items() if k not in {"method", "params"}}
    if outside:
        name = next(iter(outside))
        raise Mistake(
            f"{name[:_MOST_SHOWN]} belongs into params: only method and params stand outside."
            + _try_within(method, params, outside)
        )
    method = _dotted(method)
    if reads_only and (method in writes() or any(params.get(name) for name in _CHANGE_FILES)):
        raise Mistake(f"kb_read only reads, and this {method} changes something: use kb_call.")
    return WireRequest(method, _coerced_params(method, params))


def _dotted(method: str) -> str:
    """Returns doc.list for doc_list, because models take the names of tools for methods."""
    dotted = method.replace("_", ".", 1)
    names = _tool_file().params
    return dotted if method not in names and dotted in names else method


def _try_within(method: str, params: dict[str, Any], outside: dict[str, Any]) -> str:
    """Returns a line with the corrected call, "" if it is long; all other members go to params."""
    for name, value in outside.items():
        members = text_as_object(value)
        holds_params = name in _OTHER_NAMES and isinstance(members, dict)
        params = {**params, **(members if holds_params else {name: value})}
    call = msgspec.json.encode({"method": method, "params": params}).decode()
    return f"\nTry: {call}" if len(call) <= _MOST_TRIED else ""


def _coerced_params(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Returns the params in the types of the method. Raises Mistake for a confirmation."""
    if params.get("confirm") not in (None, ""):
        raise Mistake(_NO_CONFIRM)
    params = {name: value for name, value in params.items() if name != "confirm"}
    return coerced(params, params_schema(method), clears=method in writes())


@functools.cache
def params_schema(method: str) -> dict[str, Any]:
    """Returns the schema of a method's params, types only; empty for an unknown method."""
    schema: dict[str, Any] = msgspec.json.decode(_tool_file().params.get(method, b"{}"))
    return schema


class _ToolFile(Struct, frozen=True):
    """The content of tools.json.

    `params`: method → the schema of its params as JSON, decoded only for the methods in use.
    """

    sets: dict[str, list[str]]
    tools: dict[str, Tool]
    writes: frozenset[str]
    long: frozenset[str]
    lasting: frozenset[str]
    params: dict[str, msgspec.Raw]


@functools.cache
def _tool_file() -> _ToolFile:
    return decoder(_ToolFile).decode((_FOLDER / "tools.json").read_bytes())


@functools.cache
def _methods() -> dict[str, Tool]:
    """Returns each method as a tool; made on first use, because that takes half a second."""
    from kbproc.methods.all import registry
    from kbproc.surfaces.mcp import declared

    data = msgspec.json.encode(declared.methods(registry()))
    return decoder(dict[str, Tool]).decode(data)


def writes() -> frozenset[str]:
    """Returns the methods that change something."""
    return _tool_file().writes


def long_methods() -> frozenset[str]:
    """Returns the methods that may take long; with a token, a retry continues the work."""
    return _tool_file().long


def lasting_methods() -> frozenset[str]:
    """Returns the methods whose stream the log keeps, also when it was stopped."""
    return _tool_file().lasting


class Toolbox:
    """The tools of the chosen sets and names, in the order of the names."""

    def __init__(self, names: str) -> None:
        """`names`: sets and tools, with commas. Raises input.invalid_params."""
        self._tools: dict[str, Tool] = {}
        for name in filter(None, (part.strip() for part in names.split(","))):
            for tool in _named(name):
                self._tools.setdefault(tool.tool["name"], tool)

    def within(self, scopes: frozenset[str], *, own: bool = False) -> list[dict[str, Any]]:
        """Returns the tools for a client with these scopes. `own`: the client is an agent."""
        tools = [tool for tool in self._tools.values() if tool.is_within(scopes)]
        return [tool.published(scopes, own=own) for tool in tools]

    def lacks_search(self, scopes: frozenset[str]) -> str | None:
        """Returns the scope that the chosen searches need, if these scopes allow no search."""
        needed = [tool.scope for tool in self._tools.values() if tool.method in _SEARCHES]
        return needed[0] if needed and scopes.isdisjoint(needed) else None

    def find(self, name: Any, scopes: frozenset[str]) -> Tool | None:
        tool = self._tools.get(name) if isinstance(name, str) else None
        return tool if tool is not None and tool.is_within(scopes) else None

    def call_of(self, request: WireRequest, scopes: frozenset[str]) -> str | None:
        """Returns a call, as a model writes it, of an offered tool that makes the same request."""
        tools = [tool for tool in self._tools.values() if tool.is_within(scopes)]
        special = next((tool for tool in tools if tool.method == request.method), None)
        if special is not None:
            arguments = {
                special.argument(name): value
                for name, value in request.params.items()
                if special.preset.get(name) != value
            }
            return _call_text(special, arguments)
        general = next((tool for tool in tools if not tool.method and tool.reads_only), None)
        arguments = {"method": request.method, "params": request.params}
        return None if general is None else _call_text(general, arguments)

    def unknown_tool(self, name: Any, scopes: frozenset[str]) -> str:
        """Returns the error text for a tool that does not exist, with the nearest tool."""
        names = [tool["name"] for tool in self.within(scopes)]
        near = closest(name, names) if isinstance(name, str) else None
        return f"There is no tool {str(name)[:_MOST_SHOWN]!r}. {did_you_mean(near)}".rstrip()


def _call_text(tool: Tool, arguments: dict[str, Any]) -> str:
    return f"{tool.tool['name']} {json.dumps(arguments, ensure_ascii=False)}"


def _named(name: str) -> list[Tool]:
    """Returns the tools of a set, or one tool. Raises input.invalid_params for other names."""
    file = _tool_file()
    if name == ALL:
        return list(_methods().values())
    if name in file.sets:
        return [file.tools[member] for member in file.sets[name]]
    tool = file.tools.get(name) or _methods().get(name)
    if tool is not None:
        return [tool]
    names = [*file.sets, ALL, *file.tools, *_methods()]
    raise KbprocError(
        "input.invalid_params",
        f"There is no tool and no set of tools {name!r}.",
        field="--tools",
        valid_values=nearest(name, names),
        hint=f"{did_you_mean(closest(name, names))}Sets are {', '.join([*file.sets, ALL])}.",
    )
