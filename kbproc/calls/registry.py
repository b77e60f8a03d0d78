"""The methods of a process, by name.

Owns: collecting what modules declare, and the answer to an unknown name.
Refuses to know: which methods there are (methods/all.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType

from kbproc.base.errors import KbprocError
from kbproc.base.suggest import closest, did_you_mean, nearest
from kbproc.calls.method import Method

_MOST_SHOWN = 100  # characters of what a client sent


class Registry:
    """The methods of one process, by name, in the order of their modules."""

    def __init__(self, methods: Iterable[Method]) -> None:
        self.methods: dict[str, Method] = {m.name: m for m in methods}

    @classmethod
    def of(cls, *modules: ModuleType) -> Registry:
        """Collects what the modules declare; importing them registers nothing."""
        return cls(
            value.method
            for module in modules
            for value in vars(module).values()
            if isinstance(getattr(value, "method", None), Method)
            and value.__module__ == module.__name__
        )

    def find(self, name: str) -> Method:
        """Raises input.unknown_method with the nearest names."""
        found = self.methods.get(name)
        if found is None:
            shown = name[:_MOST_SHOWN]
            near, meant = nearest(shown, self.methods), closest(shown, self.methods)
            raise KbprocError(
                "input.unknown_method",
                f"There is no method {shown!r}.",
                field="$.method",
                valid_values=near,
                hint=f"{did_you_mean(meant)}Call describe for the list of methods.",
            )
        return found

    @property
    def scopes(self) -> tuple[str, ...]:
        """Every scope there is."""
        named = ((m.scope, *m.more_scopes) for m in self.methods.values())
        return tuple(sorted({scope for scopes in named for scope in scopes}))
