"""Methods as data.

Owns: the Method declaration and the explicit registry.
Refuses to know: how a request runs (run.py), pipes, flags, tools: surfaces read
the declarations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct

from kbproc.base.layout import Layout
from kbproc.base.params import Params
from kbproc.base.values import decoder
from kbproc.store.decision import Decide

Kind = Literal["read", "write", "destructive"]
# The columns of a table of its items, or `(data, params) -> Layout`.
Shown = tuple[str, ...] | Callable[[Any, dict[str, Any]], Layout]
F = TypeVar("F", bound=Callable[..., Any])


class Example(Struct, frozen=True, kw_only=True):
    """A request that a test runs; `exit` is what the shell ends with."""

    params: dict[str, Any]
    what: str
    exit: int = 0
    positional: bool = False


class Method(Struct, frozen=True, kw_only=True):
    """Everything there is to know of a method, in one place."""

    name: str
    params: type[Params]
    decoder: msgspec.json.Decoder[Params]
    result: Any
    item: Any
    handler: Callable[..., Any]
    summary: str
    when_to_use: str
    kind: Kind
    streams: bool
    scope: str
    own_scope: str | None
    errors: tuple[str, ...]
    examples: tuple[Example, ...]
    alias: str | None
    positional: tuple[str, ...]
    needs_store: bool
    elsewhere: bool
    idempotent: bool
    whole: bool
    more_scopes: tuple[str, ...]
    also_needs: str | None
    plan: Callable[..., Decide] | None
    looks_first: bool
    shown: Shown | None
    from_log: bool
    looks_at_kb: bool

    @property
    def schema(self) -> str:
        """The name of its result schema."""
        return f"{self.name}/1"

    @property
    def all_errors(self) -> tuple[str, ...]:
        """Its own, and those that come with its kind."""
        common = [
            "input.invalid_params",
            "auth.insufficient_scope",
            "operation.cancelled",
            "input.too_large",
            "internal.error",
        ]
        if self.needs_store:
            common += ["store.io", "store.corrupt", "operation.timeout"]
        if self.kind != "read":
            common += ["resource.conflict"]
        if self.kind == "destructive":
            common += ["input.confirmation_required", "resource.plan_stale"]
        return tuple(sorted({*common, *self.errors}))


def method(
    name: str,
    *,
    params: type[Params],
    result: Any,
    summary: str,
    when_to_use: str,
    examples: Iterable[Example],
    kind: Kind = "read",
    streams: bool = False,
    scope: str | None = None,
    own_scope: str | None = None,
    errors: Iterable[str] = (),
    alias: str | None = None,
    positional: Iterable[str] = (),
    needs_store: bool = True,
    elsewhere: bool = False,
    idempotent: bool | None = None,
    whole: bool | None = None,
    more_scopes: Iterable[str] = (),
    also_needs: str | None = None,
    plan: Callable[..., Decide] | None = None,
    looks_first: bool = False,
    item: Any = None,
    shown: Shown | None = None,
    from_log: bool = False,
    looks_at_kb: bool | None = None,
) -> Callable[[F], F]:
    """Declares the function below it as the method's handler.

    A read's handler is `(call, params) -> Reply`; a short write's is
    `(call, params) -> Decide`: slow work happens there, outside the lane. A long write's
    is `(call, params, write) -> Reply`, and it has a `plan`, `(call, params) -> Decide`: a dry
    run answers it, and where the params can confirm, its events are what a person approves.

    `elsewhere`: it writes outside of the store only, so that the store may be read-only.
    `whole`: it shows or changes the whole store, so that a process bound to an agent can't
    call it; `more_scopes` allow more within it, and without `also_needs` it is refused.
    `own_scope`: all that an agent needs for what is its own; the handler looks whether it is.
    `result`: a type, or a tuple of those that its data may have. `item`: the type of one item of
    its stream. `looks_first`: the handler of a
    short write reads the state before it has its turn, so that it waits for all writes that the
    same client has sent before. `shown`: what people see of the result, if not simply all of it.
    `from_log`: its stream is kept in the log. It introduces itself, and the same token reads it
    once more. `looks_at_kb`: a knowledge base that was chosen narrows it; reads are, writes are not
    unless it is said.
    """
    noun = name.split(".", maxsplit=1)[0]
    default_scope = f"{noun}:{'read' if kind == 'read' else 'write'}"
    declared = {
        "name": name,
        "params": params,
        "decoder": decoder(params),
        "result": result,
        "item": item,
        "summary": summary,
        "when_to_use": when_to_use,
        "kind": kind,
        "streams": streams,
        "scope": "admin" if kind == "destructive" else scope or default_scope,
        "own_scope": own_scope,
        "errors": tuple(errors),
        "examples": tuple(examples),
        "alias": alias,
        "positional": tuple(positional),
        "needs_store": needs_store,
        "elsewhere": elsewhere,
        "idempotent": kind == "read" if idempotent is None else idempotent,
        "whole": scope == "admin" if whole is None else whole,
        "more_scopes": tuple(more_scopes),
        "also_needs": also_needs,
        "plan": plan,
        "looks_first": looks_first,
        "shown": shown,
        "from_log": from_log,
        "looks_at_kb": kind == "read" if looks_at_kb is None else looks_at_kb,
    }

    def declare(handler: F) -> F:
        handler.method = Method(handler=handler, **declared)  # type: ignore[attr-defined]
        return handler

    return declare
