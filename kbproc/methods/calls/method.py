"""Declares methods as data."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from kbproc.base.settings.config import DEFAULT_KB
from kbproc.base.values import Decoder, decoder

if TYPE_CHECKING:
    from kbproc.base.layout import Layout
    from kbproc.base.params import Params
    from kbproc.engine.store.decision import Decide

Kind = Literal["read", "write", "destructive"]
# The columns of a table of its items, or `(data, params) -> Layout`.
PeopleLayout: TypeAlias = "tuple[str, ...] | Callable[[Any, dict[str, Any]], Layout]"
F = TypeVar("F", bound=Callable[..., Any])


class Example(Struct, frozen=True, kw_only=True):
    """A request that a test runs; `exit` is the shell's exit code."""

    params: dict[str, Any]
    what: str
    exit: int = 0
    positional: bool = False


class DistantExample(Example, frozen=True, kw_only=True):
    """A request that no test runs, because it needs a network."""


class Method(Struct, frozen=True, kw_only=True):
    """All facts about a method, in one place."""

    name: str
    params: type[Params]
    decoder: Decoder[Params]
    result: Any
    item: Any
    handler: Callable[..., Any]
    summary: str
    when_to_use: str
    kind: Kind
    undone_by: tuple[str, ...] | None
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
    also_needs: str | None
    plan: Callable[..., Decide] | None
    looks_first: bool
    layout: PeopleLayout | None
    from_log: bool
    looks_at_kb: bool

    @property
    def schema(self) -> str:
        """Returns the name of its result schema."""
        return f"{self.name}/1"

    @property
    def members(self) -> tuple[str, ...]:
        """Returns the names of its params."""
        return self.params.__struct_fields__

    @property
    def adds(self) -> bool:
        """Returns true if it adds to one knowledge base, and so needs one."""
        fields = {info.name: info for info in msgspec.structs.fields(self.params)}
        return "kb" in fields and fields["kb"].default == DEFAULT_KB

    @property
    def is_limited(self) -> bool:
        """Returns true if the chosen knowledge base narrows it: it does not concern the store."""
        return self.looks_at_kb and not self.whole

    @property
    def is_endless(self) -> bool:
        """Returns true if its stream ends only with its reader."""
        return self.streams and self.result is None

    @property
    def all_errors(self) -> tuple[str, ...]:
        """Returns the method's own errors and those of its kind."""
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
    undone_by: Iterable[str] | None = None,
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
    also_needs: str | None = None,
    plan: Callable[..., Decide] | None = None,
    looks_first: bool = False,
    item: Any = None,
    layout: PeopleLayout | None = None,
    from_log: bool = False,
    looks_at_kb: bool | None = None,
) -> Callable[[F], F]:
    """Declares the function below it as the method's handler.

    A read's handler is `(call, params) -> Reply`; a short write's is `(call, params) -> Decide`:
    slow work happens there, outside the lane. A long write's is `(call, params, write) -> Reply`,
    and it has a `plan`, `(call, params) -> Decide`: a dry run answers with it, and if the params
    can confirm, a person approves its events.

    `undone_by`: the methods that take a write back, the closest first; none if nothing does. Every
    write says so; a read has nothing to take back. `elsewhere`: it writes only outside of the
    store, so the store may be read-only. `whole`: it shows or changes the whole store, so a process
    bound to an agent can't call it. `also_needs`: a
    second scope without which it is refused. `own_scope`: the scope that an agent needs for its own
    things; the handler checks that they are. `result`: a type, or a tuple of possible types of its
    data. `item`: the type of one item of its stream. `looks_first`: the handler of a short write
    reads the state before its turn, so it waits for all earlier writes of the same client.
    `layout`: that of the result for people, by default all of it. `from_log`: its stream is kept in
    the log; it introduces itself, and the same token reads it again. `looks_at_kb`: the chosen
    knowledge base narrows it; by default only reads.
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
        "undone_by": None if undone_by is None else tuple(undone_by),
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
        "also_needs": also_needs,
        "plan": plan,
        "looks_first": looks_first,
        "layout": layout,
        "from_log": from_log,
        "looks_at_kb": kind == "read" if looks_at_kb is None else looks_at_kb,
    }

    def declare(handler: F) -> F:
        handler.method = Method(handler=handler, **declared)  # type: ignore[attr-defined]
        return handler

    return declare
