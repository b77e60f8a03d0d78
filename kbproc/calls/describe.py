"""The surface, told as data: what agents and generated docs read.

Owns: `describe`'s answer and the block for AGENTS.md, both made from the
declarations.
Refuses to know: anything that is not declared there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from kbproc import PROTOCOL, SCHEMA_VERSION, __version__
from kbproc.base.errors import ERRORS, EXIT_CODES
from kbproc.calls.flags import flags_of
from kbproc.calls.method import Method
from kbproc.calls.registry import Registry
from kbproc.calls.schema import PROCESS_EVENTS, STREAM_EVENTS, params_schema, result_schema
from kbproc.settings.config import CAPABILITIES, VARIABLES


def of_registry(registry: Registry, profiles: Iterable[str] = ()) -> dict[str, Any]:
    """Everything; `profiles`: the names of those that the user has saved."""
    return {
        "name": "kbproc",
        "version": __version__,
        "protocol": PROTOCOL,
        "schema_version": SCHEMA_VERSION,
        "capabilities": CAPABILITIES,
        "methods": [of_method(method) for method in registry.methods.values()],
        "events": sorted({*PROCESS_EVENTS, *STREAM_EVENTS}),
        "errors": [{**msgspec.to_builtins(row), "doc_url": row.doc_url} for row in ERRORS.values()],
        "exit_codes": {str(code): meaning for code, meaning in EXIT_CODES.items()},
        "scopes": list(registry.scopes),
        "environment": [msgspec.to_builtins(variable) for variable in VARIABLES.values()],
        "profiles": list(profiles),
    }


def of_method(method: Method) -> dict[str, Any]:
    """One method: purpose, safety, params with their flags, result, errors, examples."""
    return {
        "name": method.name,
        "summary": method.summary,
        "when_to_use": method.when_to_use,
        "safety": {
            "read_only": method.kind == "read",
            "idempotent": method.idempotent,
            "destructive": method.kind == "destructive",
            "dry_run_supported": method.kind != "read",
        },
        "risk": None if method.kind == "read" else method.name,
        "scope": method.scope,
        "own_scope": method.own_scope,
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


def agents_md(registry: Registry) -> str:
    """Markdown for a project's AGENTS.md: how an agent uses kbproc from its shell."""
    lines = [
        "## Knowledge base (kbproc)",
        "",
        '`kbproc search "words or a question" --format json` finds passages; cite `source.title` '
        "with page or section. A best `score` under 0.2 means that the store knows nothing of it.",
        "",
        "| command | what |",
        "| --- | --- |",
    ]
    for method in registry.methods.values():
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
