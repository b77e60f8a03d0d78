"""The methods of a process, by name.

Owns: collecting what modules declare, and the answer to an unknown name.
Refuses to know: which methods there are (methods/all.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import ModuleType

from kbproc.base.errors import KbprocError
from kbproc.base.suggest import closest, did_you_mean, nearest
from kbproc.calls.method import Method

_MOST_SHOWN = 100  # characters of what a client sent
# What other programs call the same verb: in the shell both can be typed.
ALIASES = {
    "view": "get",
    "show": "get",
    "edit": "update",
    "upload": "ingest",
    "add": "ingest",
    "rm": "delete",
    "remove": "delete",
    "ls": "list",
    "knowledge.add": "knowledge.store",
}


def declared_in(module: ModuleType) -> Iterable[Method]:
    return [
        value.method
        for value in vars(module).values()
        if isinstance(getattr(value, "method", None), Method)
        and value.__module__ == module.__name__
    ]


class Registry:
    """The methods of one process, by name, in the order of their modules."""

    def __init__(
        self, methods: Mapping[str, Method], scopes: Collection[str] | None = None
    ) -> None:
        """`scopes`: what those of the methods come to, where they are imported on demand."""
        self.methods = methods
        self._scopes = scopes

    @classmethod
    def of(cls, *modules: ModuleType) -> Registry:
        """Collects what the modules declare; importing them registers nothing."""
        return cls({m.name: m for module in modules for m in declared_in(module)})

    def loaded(self) -> Registry:
        """None of the methods has to be imported any more."""
        for _ in self.methods.values():
            pass
        return self

    def find(self, name: str) -> Method:
        """Raises input.unknown_method with the nearest names."""
        found = self.methods.get(name)
        if found is None:
            shown = name[:_MOST_SHOWN]
            meant, near = self.meant(shown), nearest(shown, self.methods)
            if meant is not None:
                near = [meant, *(other for other in near if other != meant)]
            raise KbprocError(
                "input.unknown_method",
                f"There is no method {shown!r}.",
                field="$.method",
                valid_values=near,
                hint=f"{did_you_mean(meant)}Call describe for the list of methods.",
            )
        return found

    def by_alias(self, name: str) -> str | None:
        """The method that `name` means in the words of other programs."""
        noun, _, verb = name.partition(".")
        known = ALIASES.get(name) or f"{noun}.{ALIASES.get(verb, '')}"
        return known if name not in self.methods and known in self.methods else None

    def meant(self, name: str) -> str | None:
        """The method that an unknown name probably means."""
        shown = name[:_MOST_SHOWN]
        short = {method.alias: method.name for method in self.methods.values() if method.alias}
        return self.by_alias(shown) or short.get(shown) or closest(shown, self.methods)

    @property
    def scopes(self) -> tuple[str, ...]:
        """Every scope there is."""
        if self._scopes is not None:
            return tuple(sorted(self._scopes))
        named = ((m.scope, *m.more_scopes) for m in self.methods.values())
        return tuple(sorted({scope for scopes in named for scope in scopes}))
