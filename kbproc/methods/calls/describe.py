"""Describes the methods as data, for agents and generated docs.

`describe` answers with an index that is cheap to read, one method, or everything; all is made from
the declarations, as is the block for AGENTS.md.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from kbproc import PROTOCOL, SCHEMA_VERSION, __version__
from kbproc.base.errors import ERRORS, EXIT_CODES, ErrorType
from kbproc.base.settings.config import CAPABILITIES, VARIABLES, Variable
from kbproc.methods.calls.flags import Described, Flag, argv_of, flags_of, usage_of
from kbproc.methods.calls.messages import PROCESS_EVENTS, STREAM_EVENTS, Capabilities
from kbproc.methods.calls.method import Example, Kind, Method
from kbproc.methods.calls.registry import ALIASES, Names, Registry
from kbproc.methods.calls.schemas import JsonSchema, params_schema, result_schema

BRIEF_BYTES = 2048


class Line(Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A method in the index; `required`: its params that must be given."""

    name: str
    summary: str
    kind: Kind
    required: list[str] | UnsetType = UNSET


class Index(Struct, kw_only=True, frozen=True):
    """The index: every method in a line."""

    name: str
    version: str
    protocol: str
    more: str
    aliases: dict[str, str]
    methods: list[Line]


class Typed(Struct, kw_only=True, frozen=True):
    """An example as a command line and as params; `exit` is what the shell ends with."""

    what: str
    command: str
    params: dict[str, Any]
    exit: int


class Brief(Line, kw_only=True, frozen=True):
    """One method in short. `params`: name → type, choice and bounds; `errors` by exit code.

    `undone_by`: the methods that take a write back, the closest first; empty if nothing does.
    """

    when_to_use: str
    usage: str
    params: dict[str, str]
    examples: list[Typed]
    errors: dict[str, list[str]]
    undone_by: list[str] | UnsetType = UNSET


class Safety(Struct, kw_only=True, frozen=True):
    """`reversible`: whether `undone_by` names methods that take it back, the closest first; null
    for what only reads.
    """

    read_only: bool
    idempotent: bool
    destructive: bool
    dry_run_supported: bool
    reversible: bool | None
    undone_by: list[str]


class Full(Struct, kw_only=True, frozen=True):
    """One method in full; `risk` is null for what only reads."""

    name: str
    summary: str
    when_to_use: str
    safety: Safety
    risk: str | None
    scope: str
    own_scope: str | None
    also_needs: str | None
    streams: bool
    needs_store: bool
    command: str
    alias: str | None
    positional: list[str]
    flags: list[Flag]
    params: JsonSchema
    result: JsonSchema
    errors: list[str]
    examples: list[Example]


class ErrorRow(ErrorType, kw_only=True, frozen=True):
    doc_url: str


class Surface(Struct, kw_only=True, frozen=True):
    """Everything, of every method."""

    name: str
    version: str
    protocol: str
    schema_version: int
    capabilities: Capabilities
    methods: list[Full]
    events: list[str]
    errors: list[ErrorRow]
    aliases: dict[str, str]
    exit_codes: dict[str, str]
    scopes: list[str]
    environment: list[Variable]
    profiles: list[str]


def index(names: Names[Described]) -> dict[str, Any]:
    """Returns every method in a line; at most 11 KB."""
    return {
        "name": "kbproc",
        "version": __version__,
        "protocol": PROTOCOL,
        "more": "describe NAME tells of one method; full: true tells everything of one or all",
        "aliases": ALIASES,
        "methods": [line(method) for method in names.methods.values()],
    }


def line(method: Described) -> dict[str, Any]:
    """Returns a method's line of the index."""
    required = [str(flag.param) for flag in flags_of(method) if flag.required]
    facts = {"name": method.name, "summary": method.summary, "kind": method.kind}
    return {**facts, "required": required} if required else facts


def brief(method: Described) -> dict[str, Any]:
    """Returns one method in at most 2 KB: the fullest description that fits."""
    fitting: dict[str, Any] = {}
    for description in _descriptions(method):
        fitting = description
        if len(msgspec.json.encode(description)) <= BRIEF_BYTES:
            break
    return fitting


def _descriptions(method: Described) -> Iterator[dict[str, Any]]:
    """Yields descriptions of the method, from the fullest to the shortest."""
    yield _description(method, with_help=True, examples=len(method.examples))
    for examples in range(len(method.examples), 0, -1):
        yield _description(method, with_help=False, examples=examples)


def _description(method: Described, *, with_help: bool, examples: int) -> dict[str, Any]:
    flags = [flag for flag in flags_of(method) if flag.param is not None]
    errors: dict[str, list[str]] = {}
    for name in sorted(method.all_errors, key=lambda name: ERRORS[name].exit):
        errors.setdefault(str(ERRORS[name].exit), []).append(name)
    return {
        **line(method),
        "when_to_use": method.when_to_use,
        "usage": usage_of(method).removeprefix("Usage: "),
        "params": {str(flag.param): _in_short(flag, with_help) for flag in flags},
        "examples": [
            {
                "what": example.what,
                "command": shlex.join(argv_of(method, example.params)),
                "params": example.params,
                "exit": example.exit,
            }
            for example in method.examples[:examples]
        ],
        "errors": errors,
        **({} if method.undone_by is None else {"undone_by": list(method.undone_by)}),
    }


def _in_short(flag: Flag, with_help: bool) -> str:
    """Returns type, choice, bounds and default of a param in a few words."""
    item = "|".join(map(str, flag.enum)) if flag.enum else str(flag.items or flag.type)
    words = ["required"] if flag.required else []
    words.append(f"list of {item}" if flag.type == "array" else item)
    if flag.minimum is not None and flag.maximum is not None and flag.maximum < 2**53:
        words.append(f"{flag.minimum}..{flag.maximum}")
    if flag.default not in (None, [], {}, "", False):
        words.append(f"= {flag.default}")
    return " ".join(words) + (f"; {flag.help}" if with_help and flag.help else "")


def of_registry(registry: Registry, profiles: Iterable[str] = ()) -> dict[str, Any]:
    """Returns everything; `profiles` are the names of the user's saved profiles."""
    return {
        "name": "kbproc",
        "version": __version__,
        "protocol": PROTOCOL,
        "schema_version": SCHEMA_VERSION,
        "capabilities": CAPABILITIES,
        "methods": [of_method(method) for method in registry.methods.values()],
        "events": sorted({*PROCESS_EVENTS, *STREAM_EVENTS}),
        "errors": [{**msgspec.to_builtins(row), "doc_url": row.doc_url} for row in ERRORS.values()],
        "aliases": ALIASES,
        "exit_codes": {str(code): meaning for code, meaning in EXIT_CODES.items()},
        "scopes": list(registry.scopes),
        "environment": [msgspec.to_builtins(variable) for variable in VARIABLES.values()],
        "profiles": list(profiles),
    }


def of_method(method: Method) -> dict[str, Any]:
    """Returns one method: purpose, safety, params with their flags, result, errors, examples."""
    return {
        "name": method.name,
        "summary": method.summary,
        "when_to_use": method.when_to_use,
        "safety": {
            "read_only": method.kind == "read",
            "idempotent": method.idempotent,
            "destructive": method.kind == "destructive",
            "dry_run_supported": method.kind != "read",
            "reversible": None if method.undone_by is None else bool(method.undone_by),
            "undone_by": list(method.undone_by or ()),
        },
        "risk": None if method.kind == "read" else method.name,
        "scope": method.scope,
        "own_scope": method.own_scope,
        "also_needs": method.also_needs,
        "streams": method.streams,
        "needs_store": method.needs_store,
        "command": method.name.replace(".", " "),
        "alias": method.alias,
        "positional": list(method.positional),
        "flags": [msgspec.to_builtins(flag) for flag in flags_of(method)],
        "params": params_schema(method),
        "result": result_schema(method),
        "errors": list(method.all_errors),
        "examples": [msgspec.to_builtins(example) for example in method.examples],
    }


def agents_md(names: Names[Described]) -> str:
    """Returns Markdown for a project's AGENTS.md: how an agent uses kbproc from its shell."""
    lines = [
        "## Knowledge base (kbproc)",
        "",
        '`kbproc search "words or a question" --format json` finds passages; cite `source.cite`. '
        "`data.confidence` none means that the store knows nothing of it.",
        "",
        "| command | what |",
        "| --- | --- |",
    ]
    for method in names.methods.values():
        risk = " (destructive: a person confirms)" if method.kind == "destructive" else ""
        lines.append(f"| `kbproc {method.name.replace('.', ' ')}` | {method.summary}{risk} |")
    lines += [
        "",
        "Exit codes: "
        + ", ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES.items())
        + ". Retry only where `error.retryable` is true; never confirm a plan yourself.",
        "",
    ]
    return "\n".join(lines)
