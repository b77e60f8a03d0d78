"""The registry of all methods.

Owns: which methods there are, and that each is imported when it is first asked for: whoever calls
one needs no other. A server imports all of them before it is asked anything.
Refuses to know: what they do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module

from kbproc.calls.method import Method
from kbproc.calls.registry import Registry, declared_in
from kbproc.settings.config import SCOPES

# methods/doc/get.py is doc.get. In the order in which `describe` and the docs tell of them.
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
    "chunk.list",
    "chunk.get",
    "chunk.delete",
    "tag.list",
    "search",
    "knowledge.store",
    "knowledge.search",
    "knowledge.get",
    "knowledge.list",
    "knowledge.supersede",
    "knowledge.unsupersede",
    "knowledge.delete",
    "note.search",
    "note.get",
    "note.list",
    "note.put",
    "note.delete",
    "note.sync",
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
    "session.get",
    "session.ask",
    "session.resume",
    "session.stop",
    "session.delete",
    "events.read",
    "events.verify",
    "events.subscribe",
)


class _OnDemand(Mapping[str, Method]):
    def __init__(self) -> None:
        self._made: dict[str, Method] = {}

    def __getitem__(self, name: str) -> Method:
        if name not in self._made:
            if name not in _METHODS:
                raise KeyError(name)
            words = name.replace("import", "import_")  # what Python keeps for itself
            (self._made[name],) = declared_in(import_module(f"kbproc.methods.{words}"))
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_METHODS)

    def __len__(self) -> int:
        return len(_METHODS)


@cache
def registry() -> Registry:
    return Registry(_OnDemand(), SCOPES)
