"""The tools of one process: those of the sets and names that were asked for, within its scopes.

Owns: reading what `kbproc gen` has kept, choosing, and what a call of a tool means as a request
on the wire.
Refuses to know: how requests are sent, and how tools are made (declared.py).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from kbproc.base.errors import KbprocError
from kbproc.base.suggest import closest, did_you_mean, nearest
from kbproc.base.values import decoder
from kbproc.mcp.coercion import coerced, snake, takes_null, text_as_object

_FOLDER = Path(__file__).parent
_SEARCHES = ("search", "note.search")
_MOST_SHOWN = 100  # characters of what a client sent
ALL = "all"


class Mistake(Exception):
    """An argument that cannot be; the tool says so, and the model may correct itself."""


class Wanted(Struct, frozen=True):
    """A call as a request on the wire. `added`: params that the caller did not write."""

    method: str
    params: dict[str, Any]
    added: frozenset[str] = frozenset()

    def adding(self, **params: Any) -> Wanted:
        """The request with more params, which the caller did not write."""
        added = self.added | params.keys()
        return Wanted(self.method, {**self.params, **params}, frozenset(added))


class Tool(Struct, frozen=True, kw_only=True):
    """One tool, as it was kept; `tool` is what a client gets to see. See declared.py.

    `reads_only` and `reach`: of a tool for any method. `reach`: what it can do → scopes of which
    one is needed for that.
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
        """Returns what a client with these scopes sees. `own`: it is an agent."""
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

    def wanted(self, arguments: dict[str, Any]) -> Wanted:
        """Raises Mistake."""
        if not self.method:
            return _any(arguments, reads_only=self.reads_only)
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
        params = _as_asked(method, params)
        if isinstance(params.get("task_ref"), dict):
            params["task_ref"] = _renamed(params["task_ref"], snake)
        preset = self.preset if method == self.method else {}
        missing = {name: value for name, value in preset.items() if name not in params}
        return Wanted(method, params).adding(**missing)

    def _takes_null(self, argument: str) -> bool:
        """Returns whether null may be a value; else it means that the argument is left out."""
        published = self.tool["inputSchema"]["properties"].get(argument)
        return published is None or takes_null(published)

    def _param(self, argument: str) -> str:
        return self.arguments.get(argument) or snake(argument)

    def argument(self, param: str) -> str:
        """The name by which the caller knows a param."""
        names = {own: name for name, own in self.arguments.items()}
        return names.get(param, param)


def _renamed(members: dict[str, Any], rename: Callable[[str], str]) -> dict[str, Any]:
    """The members under other names. Raises Mistake where two names mean one with two values."""
    renamed: dict[str, Any] = {}
    for name, value in members.items():
        if renamed.setdefault(rename(name), value) != value:
            raise Mistake(f"{name} has two values: give it once.")
    return renamed


def _is_nothing(value: Any) -> bool:
    """True for what clients send for an argument that they leave out."""
    return value in (None, "", "[]", [])


_NO_CONFIRM = "Only a person approves a plan: leave confirm out, and the client asks."


# Names under which models write the object that is called params.
_OTHER_NAMES = frozenset({"arguments", "args", "input", "parameters"})
_MOST_TRIED = 2_000  # characters
# Params by which a method that reads changes something beside the store.
_CHANGE_FILES = ("path", "repair")


def _any(arguments: dict[str, Any], *, reads_only: bool) -> Wanted:
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
    return Wanted(method, _as_asked(method, params))


def _dotted(method: str) -> str:
    """doc_list → doc.list: tools are named so, and models take their names for methods."""
    dotted = method.replace("_", ".", 1)
    known = _kept().params
    return dotted if method not in known and dotted in known else method


def _try_within(method: str, params: dict[str, Any], outside: dict[str, Any]) -> str:
    """What is meant, where that is short: arguments for params, or params beside them."""
    for name, value in outside.items():
        members = text_as_object(value)
        is_whole = name in _OTHER_NAMES and isinstance(members, dict)
        params = {**params, **(members if is_whole else {name: value})}
    meant = msgspec.json.encode({"method": method, "params": params}).decode()
    return f"\nTry: {meant}" if len(meant) <= _MOST_TRIED else ""


def _as_asked(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Returns the params as the method asks for them. Raises Mistake for a confirmation."""
    if params.get("confirm") not in (None, ""):
        raise Mistake(_NO_CONFIRM)
    params = {name: value for name, value in params.items() if name != "confirm"}
    return coerced(params, params_schema(method), clears=method in writes())


@functools.cache
def params_schema(method: str) -> dict[str, Any]:
    """The kinds of a method's params; empty for a method that is not known."""
    schema: dict[str, Any] = msgspec.json.decode(_kept().params.get(method, b"{}"))
    return schema


class _Kept(Struct, frozen=True):
    """`params`: method → the kinds of its params as JSON, which few processes need of few."""

    sets: dict[str, list[str]]
    tools: dict[str, Tool]
    writes: frozenset[str]
    long: frozenset[str]
    params: dict[str, msgspec.Raw]


@functools.cache
def _kept() -> _Kept:
    return decoder(_Kept).decode((_FOLDER / "tools.json").read_bytes())


@functools.cache
def _methods() -> dict[str, Tool]:
    """Every method as a tool; making them takes half a second, which only they who ask wait for."""
    from kbproc.mcp import declared
    from kbproc.methods.all import registry

    made = msgspec.json.encode(declared.methods(registry()))
    return decoder(dict[str, Tool]).decode(made)


def writes() -> frozenset[str]:
    """The methods that change something."""
    return _kept().writes


def long_ones() -> frozenset[str]:
    """The methods that may take long and, under a token, go on where they were cut off."""
    return _kept().long


class Toolbox:
    """The tools that were asked for, in the order of asking."""

    def __init__(self, asked: str) -> None:
        """`asked`: names of sets and of tools, with commas. Raises input.invalid_params."""
        self._tools: dict[str, Tool] = {}
        for name in filter(None, (part.strip() for part in asked.split(","))):
            for tool in _named(name):
                self._tools.setdefault(tool.tool["name"], tool)

    def within(self, scopes: frozenset[str], *, own: bool = False) -> list[dict[str, Any]]:
        """Returns what a client with these scopes sees. `own`: it is an agent."""
        tools = [tool for tool in self._tools.values() if tool.is_within(scopes)]
        return [tool.published(scopes, own=own) for tool in tools]

    def lacks_search(self, scopes: frozenset[str]) -> str | None:
        """The scope for the searches that were asked for, if these scopes allow none of them."""
        needed = [tool.scope for tool in self._tools.values() if tool.method in _SEARCHES]
        return needed[0] if needed and scopes.isdisjoint(needed) else None

    def find(self, name: Any, scopes: frozenset[str]) -> Tool | None:
        tool = self._tools.get(name) if isinstance(name, str) else None
        return tool if tool is not None and tool.is_within(scopes) else None

    def none_of(self, name: Any, scopes: frozenset[str]) -> str:
        """What to say of a tool that is not there, with the one that was probably meant."""
        there = [tool["name"] for tool in self.within(scopes)]
        meant = closest(name, there) if isinstance(name, str) else None
        return f"There is no tool {str(name)[:_MOST_SHOWN]!r}. {did_you_mean(meant)}".rstrip()


def _named(name: str) -> list[Tool]:
    """Raises input.invalid_params for what is neither a set nor a tool."""
    kept = _kept()
    if name == ALL:
        return list(_methods().values())
    if name in kept.sets:
        return [kept.tools[member] for member in kept.sets[name]]
    tool = kept.tools.get(name) or _methods().get(name)
    if tool is not None:
        return [tool]
    known = [*kept.sets, ALL, *kept.tools, *_methods()]
    raise KbprocError(
        "input.invalid_params",
        f"There is no tool and no set of tools {name!r}.",
        field="--tools",
        valid_values=nearest(name, known),
        hint=f"{did_you_mean(closest(name, known))}Sets are {', '.join([*kept.sets, ALL])}.",
    )
