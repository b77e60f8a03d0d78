"""Bundles all schemas for code generators: each type once, under a name of its own.

It names the types, shares equal ones and makes unions that a member tells apart. The index says
which schema each line and method has.
"""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Iterable
from typing import Any

from kbproc import PROTOCOL
from kbproc.methods.calls.messages import PROCESS_EVENTS, STREAM_EVENTS
from kbproc.methods.calls.method import Method
from kbproc.methods.calls.schemas import DIALECT

Schema = dict[str, Any]
_ID: Schema = {"anyOf": [{"type": "integer"}, {"type": "string"}]}
_VERSION: Schema = {"const": "2.0"}
_EVENTS = {"process": PROCESS_EVENTS, "stream": STREAM_EVENTS}


def type_name(schema: str) -> str:
    """Returns the type's name: `doc.get.params` → DocGetParams; `event.answer` → AnswerEvent;
    `error` → ErrorObject.
    """
    kind, _, event = schema.partition("event.")
    words = f"{event}.event" if event and not kind else schema
    return "ErrorObject" if schema == "error" else _pascal(words)


def _pascal(words: str) -> str:
    return "".join(word.title() for word in re.split(r"[._]", words))


def bundle(schemas: dict[str, Schema]) -> Schema:
    """Returns all `schemas` under `$defs`; raises ValueError if two types would share a name."""
    types = _Types()
    for kind in (".result", ".item", "", ".params"):  # the first type keeps a shared name
        for name, schema in schemas.items():
            if kind == next((k for k in (".result", ".item", ".params") if name.endswith(k)), ""):
                types.take(name, schema)
    items = [
        _ref(type_name(name)) for name in schemas if name.endswith(".item") if "event" not in name
    ]
    types.by_name["ItemEvent"]["properties"]["item"] = {"anyOf": [*items, {"type": "object"}]}
    _lines(types, [name.removesuffix(".params") for name in schemas if name.endswith(".params")])
    return {
        "$schema": DIALECT,
        "title": "KbprocLine",
        "description": f"Every line of protocol {PROTOCOL}, and all that lines hold, by name.",
        "anyOf": [_ref("ClientLine"), _ref("ServerLine")],
        "$defs": dict(sorted(types.by_name.items())),
    }


def _ref(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


class _Types:
    """The collected types, by name."""

    def __init__(self) -> None:
        self.by_name: dict[str, Schema] = {}

    def add(self, name: str, schema: Schema) -> Schema:
        """Adds a type; returns a reference to it."""
        titled = {"title": name} | schema | {"title": name}
        if self.by_name.setdefault(name, titled) != titled:
            raise ValueError(f"{name} would name two types")
        return _ref(name)

    def take(self, name: str, schema: Schema) -> None:
        """Adds a schema and the definitions in it."""
        whole = _clean(copy.deepcopy(schema))
        whole.pop("$schema")
        defs = whole.pop("$defs", {})
        named = self._name_all(defs, name)
        for inner, part in defs.items():
            self.add(named[inner], _renamed(part, named))
        whole = _renamed(whole, named)
        if name.endswith(".result"):
            self._take_result(name, whole)
        elif name == "event.init":
            self.add("ProcessInitEvent", whole["anyOf"][0])
            self.add("StreamInitEvent", whole["anyOf"][1])
        else:
            if name == "error":
                whole["properties"]["data"] = self.add("ErrorData", whole["properties"]["data"])
            self.add(type_name(name), whole)

    def _take_result(self, name: str, whole: Schema) -> None:
        """Adds a result with its `data` and `meta` as types.

        All methods share one type of `meta`, without what the method's own schema adds.
        """
        members = whole["properties"]
        kinds = members["data"].get("anyOf", [members["data"]])
        some = [kind for kind in kinds if kind != {"type": "null"}]
        data = self.add(
            type_name(name.removesuffix("result") + "data"),
            some[0] if len(some) == 1 else {"anyOf": some},
        )
        members["data"] = {"anyOf": [data, {"type": "null"}]} if len(some) < len(kinds) else data
        members["meta"]["properties"]["schema"] = {"type": "string"}
        members["meta"] = self.add("Meta", members["meta"])
        self.add(type_name(name), whole)

    def _name_all(self, defs: dict[str, Schema], whole: str) -> dict[str, str]:
        """Returns a name for each definition; a name in use for another type gets a prefix or
        suffix.
        """
        of_params = whole.endswith(".params")
        named = {inner: inner for inner in defs}
        settled = False
        while not settled:
            wrong = {
                inner
                for inner, name in named.items()
                if name == inner
                and self.by_name.get(name, _renamed(defs[inner], named) | {"title": name})
                != _renamed(defs[inner], named) | {"title": name}
            }
            named |= {
                inner: f"{inner}Params" if of_params else f"{type_name(whole)}{inner}"
                for inner in wrong
            }
            settled = not wrong
        return named


def _clean(schema: Any) -> Any:
    """Returns the schema as generators like it: descriptions of one line, `const` for one value,
    `oneOf` for tagged kinds.
    """
    if isinstance(schema, list):
        return [_clean(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    cleaned = {name: _clean(part) for name, part in schema.items()}
    if isinstance(cleaned.get("description"), str):
        cleaned["description"] = " ".join(inspect.cleandoc(cleaned["description"]).split())
    if isinstance(cleaned.get("enum"), list) and len(cleaned["enum"]) == 1:
        cleaned = {"const": cleaned.pop("enum")[0], **cleaned}
    if "discriminator" in cleaned and "anyOf" in cleaned:
        cleaned = {("oneOf" if name == "anyOf" else name): part for name, part in cleaned.items()}
    if cleaned.get("default") in ([], {}) and "type" not in cleaned:
        del cleaned["default"]  # not every generator finds the type of this value
    return _nullable(cleaned) if {"type": "null"} in cleaned.get("anyOf", []) else cleaned


def _nullable(schema: Schema) -> Schema:
    """Moves the description of a nullable value to the whole schema, without its null default."""
    if schema.get("default", ...) is None:
        del schema["default"]
    described = [kind for kind in schema["anyOf"] if "description" in kind]
    return (
        {"description": described[0].pop("description"), **schema}
        if len(described) == 1
        else schema
    )


def _renamed(schema: Any, named: dict[str, str]) -> Any:
    if isinstance(schema, list):
        return [_renamed(part, named) for part in schema]
    if isinstance(schema, dict):
        return {name: _renamed(part, named) for name, part in schema.items()}
    if isinstance(schema, str) and schema.startswith("#/$defs/"):
        return f"#/$defs/{named[schema.removeprefix('#/$defs/')]}"
    return schema


# --------------------------------------------------------------------------- the lines


def _lines(types: _Types, methods: list[str]) -> None:
    """Adds the types of whole lines, in both directions, with a type for each kind."""
    requests = {name: _request(types, name) for name in methods}
    types.add("Request", _tagged_union("method", requests))
    for group, events in _EVENTS.items():
        named = {
            name: _ref(f"{group.title()}InitEvent" if name == "init" else f"{name.title()}Event")
            for name in events
        }
        types.add(f"{group.title()}Event", _tagged_union("type", named))
    types.add("Event", {"anyOf": [_ref("ProcessEvent"), _ref("StreamEvent")]})
    types.add("Result", {"anyOf": [_ref(type_name(f"{name}.result")) for name in methods]})
    nullable = {"anyOf": [*_ID["anyOf"], {"type": "null"}]}
    types.add("Response", _object({"jsonrpc": _VERSION, "id": _ID, "result": _ref("Result")}))
    error = {"jsonrpc": _VERSION, "id": nullable, "error": _ref("ErrorObject")}
    types.add("ErrorResponse", _object(error))
    event = {"jsonrpc": _VERSION, "method": {"const": "event"}, "params": _ref("Event")}
    types.add("EventNotification", _object(event))
    cancel = {"jsonrpc": _VERSION, "method": {"const": "$/cancel"}, "params": _ref("CancelParams")}
    types.add("CancelParams", _object({"id": _ID}))
    types.add("CancelNotification", _object(cancel))
    types.add("ClientLine", {"anyOf": [_ref("Request"), _ref("CancelNotification")]})
    server_lines = ("EventNotification", "Response", "ErrorResponse")
    types.add("ServerLine", {"anyOf": [_ref(name) for name in server_lines]})


def _request(types: _Types, method: str) -> Schema:
    params = type_name(f"{method}.params")
    members = {"jsonrpc": _VERSION, "id": _ID, "method": {"const": method}, "params": _ref(params)}
    whole = _object(members)
    if not types.by_name[params].get("required"):
        whole["required"].remove("params")
    return types.add(type_name(f"{method}.request"), {**whole, "additionalProperties": False})


def _object(members: dict[str, Schema]) -> Schema:
    return {"type": "object", "properties": members, "required": list(members)}


def _tagged_union(member: str, kinds: dict[str, Schema]) -> Schema:
    """Returns a union of the kinds, which `member` tells apart."""
    mapping = {name: kind["$ref"] for name, kind in kinds.items()}
    return {
        "oneOf": list(kinds.values()),
        "discriminator": {"propertyName": member, "mapping": mapping},
    }


# --------------------------------------------------------------------------- the index


def index(methods: Iterable[Method]) -> Schema:
    """Returns the index of lines: the schema file of each, and its type in the bundle."""
    event_schemas = {
        group: {name: _entry(f"event.{name}", _event_type(group, name)) for name in events}
        for group, events in _EVENTS.items()
    }
    return {
        "title": "Which line has which schema",
        "protocol": PROTOCOL,
        "bundle": "bundle.json",
        "lines": {
            "request": _line("client", ["method", "id"], "Request", "`params`: by `method`"),
            "cancel": _line("client", ["method", "params"], "CancelNotification", "no answer"),
            "event": _line("server", ["method", "params"], "EventNotification", "by `params.type`"),
            "response": _line("server", ["id", "result"], "Response", "by the request's method"),
            "error": _line("server", ["id", "error"], "ErrorResponse", "any method's"),
        },
        "unknown": "Pass over events, members and named values that no schema tells of.",
        "lean": "Where meta.lean is true, no member within data is required.",
        "error": _entry("error", "ErrorObject"),
        "events": event_schemas,
        "methods": {method.name: _of_method(method) for method in methods},
    }


def _event_type(group: str, name: str) -> str:
    return f"{group.title()}InitEvent" if name == "init" else type_name(f"event.{name}")


def _entry(schema: str, type: str) -> Schema:
    return {"file": f"{schema}.json", "type": type}


def _line(sender: str, has: list[str], type: str, note: str) -> Schema:
    return {"from": sender, "has": has, "type": type, "told": note}


def _of_method(method: Method) -> Schema:
    parts = ["params", "result", *(["item"] if method.item is not None else [])]
    return {
        "summary": method.summary,
        "kind": method.kind,
        "streams": method.streams,
        "from_log": method.from_log,
        **{part: _entry(n := f"{method.name}.{part}", type_name(n)) for part in parts},
        "data": {"type": type_name(f"{method.name}.data")},
        "events": _events_of(method),
    }


def _events_of(method: Method) -> list[str]:
    """Returns the stream events of this version; any stream may hold a takeover's `warning`."""
    if not method.streams:
        return []
    if method.from_log:
        return ["init", "references", "answer", "warning"]
    return ["init", "progress", *(["item"] if method.item is not None else []), "warning"]
