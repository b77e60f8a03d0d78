"""Holds the methods of a process by name, or their outlines."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from types import ModuleType
from typing import Generic, TypeVar

from kbproc.base.errors import KbprocError
from kbproc.base.suggest import closest, did_you_mean, nearest
from kbproc.methods.calls.flags import Described, Outline, outline_of
from kbproc.methods.calls.method import Method

_MOST_SHOWN = 100  # characters shown of a client's text
# Other programs' names for a verb or method, which can be typed in the shell, too.
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


M_co = TypeVar("M_co", bound=Described, covariant=True)


class Names(Generic[M_co]):
    """Methods or their outlines, by name, in the order of `describe` and the docs."""

    def __init__(
        self, methods: Mapping[str, M_co], aliases: Mapping[str, str] | None = None
    ) -> None:
        """`aliases`: those of the methods, where these are read on demand."""
        self.methods = methods
        self._aliases = aliases

    @property
    def aliases(self) -> Mapping[str, str]:
        """Returns alias → method."""
        if self._aliases is not None:
            return self._aliases
        return {method.alias: name for name, method in self.methods.items() if method.alias}

    def find(self, name: str) -> M_co:
        """Returns a method; raises input.unknown_method with the nearest names."""
        method = self.methods.get(name)
        if method is None:
            text = name[:_MOST_SHOWN]
            closest_name, near = self.meant(text), nearest(text, self.methods)
            if closest_name is not None:
                near = [closest_name, *(other for other in near if other != closest_name)]
            raise KbprocError(
                "input.unknown_method",
                f"There is no method {text!r}.",
                field="$.method",
                valid_values=near,
                hint=f"{did_you_mean(closest_name)}Call describe for the list of methods.",
            )
        return method

    def by_alias(self, name: str) -> str | None:
        """Returns the method for another program's name of it."""
        noun, _, verb = name.partition(".")
        method = ALIASES.get(name) or f"{noun}.{ALIASES.get(verb, '')}"
        return method if name not in self.methods and method in self.methods else None

    def meant(self, name: str) -> str | None:
        """Returns the method that an unknown name probably means."""
        text = name[:_MOST_SHOWN]
        return self.by_alias(text) or self.aliases.get(text) or closest(text, self.methods)


class Registry(Names[Method]):
    """The methods of one process."""

    def __init__(
        self,
        methods: Mapping[str, Method],
        scopes: Collection[str] | None = None,
        read_outlines: Callable[[], Names[Outline]] | None = None,
    ) -> None:
        """`scopes`: those of all methods, and `read_outlines`: returns the outlines of all, given
        if the methods are imported on demand.
        """
        super().__init__(methods)
        self._scopes = scopes
        self._read_outlines = read_outlines

    @property
    def outlines(self) -> Names[Outline]:
        """Returns the outlines of all methods."""
        if self._read_outlines is not None:
            return self._read_outlines()
        return Names({name: outline_of(method) for name, method in self.methods.items()})

    def meant(self, name: str) -> str | None:
        return self.outlines.meant(name)

    @classmethod
    def of(cls, *modules: ModuleType) -> Registry:
        """Returns the methods that the modules declare; importing them registers nothing."""
        return cls({m.name: m for module in modules for m in declared_in(module)})

    def loaded(self) -> Registry:
        """Imports all methods."""
        for _ in self.methods.values():
            pass
        return self

    @property
    def scopes(self) -> tuple[str, ...]:
        """Returns every scope that methods need."""
        return tuple(sorted(self._scopes or {m.scope for m in self.methods.values()}))
