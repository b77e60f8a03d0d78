"""The registry of all methods.

A method's module is imported on first use, so that a command loads only its own. A server imports
all of them before its first request. Help, completion and command lines need no module: they read
the outlines.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path

import msgspec

from kbproc.base.settings.config import SCOPES
from kbproc.base.values import decoder
from kbproc.methods.calls.flags import Outline, outline_in
from kbproc.methods.calls.method import Method
from kbproc.methods.calls.registry import Names, Registry, declared_in

# methods/doc/get.py is doc.get. The order is that of `describe` and the docs.
_METHODS = (
    "ping",
    "version",
    "describe",
    "schema",
    "status",
    "store.backup",
    "store.export",
    "store.import",
    "store.compact",
    "store.purge",
    "doctor",
    "index.rebuild",
    "store.move",
    "cluster.init",
    "cluster.join",
    "cluster.leave",
    "cluster.reseed",
    "cluster.status",
    "model.install",
    "model.list",
    "model.use",
    "sql.query",
    "kb.create",
    "kb.list",
    "kb.get",
    "kb.update",
    "kb.delete",
    "kb.status",
    "kb.check",
    "doc.ingest",
    "chats.add",
    "chats.export",
    "doc.create",
    "doc.fetch",
    "doc.reparse",
    "doc.list",
    "doc.get",
    "doc.update",
    "doc.delete",
    "doc.download",
    "doc.wait",
    "doc.history",
    "doc.restore",
    "events.revert",
    "plan.list",
    "plan.approve",
    "plan.refuse",
    "watch.add",
    "watch.list",
    "watch.remove",
    "chunk.list",
    "chunk.get",
    "chunk.map",
    "chunk.delete",
    "tag.list",
    "search",
    "knowledge.store",
    "knowledge.search",
    "knowledge.get",
    "knowledge.list",
    "knowledge.supersede",
    "knowledge.unsupersede",
    "knowledge.verify",
    "knowledge.duplicates",
    "knowledge.delete",
    "review.list",
    "review.approve",
    "review.edit",
    "review.reject",
    "note.search",
    "note.get",
    "note.list",
    "note.put",
    "note.delete",
    "note.sync",
    "note.history",
    "agent.create",
    "agent.list",
    "agent.get",
    "agent.update",
    "agent.delete",
    "agent.status",
    "agent.check",
    "agent.invoke",
    "chat",
    "session.create",
    "session.list",
    "session.search",
    "session.get",
    "session.ask",
    "session.resume",
    "session.stop",
    "session.delete",
    "events.read",
    "events.verify",
    "events.subscribe",
)


class _MethodsOnDemand(Mapping[str, Method]):
    def __init__(self) -> None:
        self._loaded: dict[str, Method] = {}

    def __getitem__(self, name: str) -> Method:
        if name not in self._loaded:
            if name not in _METHODS:
                raise KeyError(name)
            words = name.replace("import", "import_")  # a Python keyword can't name a module
            (self._loaded[name],) = declared_in(import_module(f"kbproc.methods.{words}"))
        return self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in _METHODS

    def __iter__(self) -> Iterator[str]:
        return iter(_METHODS)

    def __len__(self) -> int:
        return len(_METHODS)


@cache
def registry() -> Registry:
    return Registry(_MethodsOnDemand(), SCOPES, outlines)


class _OutlinesOnDemand(Mapping[str, Outline]):
    def __init__(self, rows: dict[str, msgspec.Raw]) -> None:
        self._rows = rows
        self._decoded: dict[str, Outline] = {}

    def __getitem__(self, name: str) -> Outline:
        if name not in self._decoded:
            self._decoded[name] = outline_in(msgspec.json.decode(self._rows[name]))
        return self._decoded[name]

    def __contains__(self, name: object) -> bool:
        return name in self._rows

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


class _OutlinesFile(msgspec.Struct):
    """Alias → method, and method → outline, in which members that have their default are left
    out.
    """

    aliases: dict[str, str]
    outlines: dict[str, msgspec.Raw]


_decode_file = decoder(_OutlinesFile).decode


@cache
def outlines() -> Names[Outline]:
    """Returns the outlines of all methods, without importing any.

    `make generate` writes their file.
    """
    file = _decode_file(Path(__file__).with_name("outlines.json").read_bytes())
    return Names(_OutlinesOnDemand(file.outlines), file.aliases)
