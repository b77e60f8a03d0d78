"""Methods as attributes: kb.doc.create(title=...) asks doc.create.

Owns: which names are methods and nouns, and which of a call's arguments are params.
Refuses to know: how waiting is done (streams.py), and types, which methods.pyi tells.
"""

from __future__ import annotations

from typing import Any, Generic, Protocol, TypeVar

from .facts import METHODS

Mode = TypeVar("Mode")


class Waits:
    """The mode of Kbproc: a call returns when it is answered."""


class Awaits:
    """The mode of AsyncKbproc: a call is awaited."""


class Asks(Protocol):
    """A client."""

    def call(self, method: str, params: Any = None, /, **more: Any) -> Any: ...
    def stream(self, method: str, params: Any = None, /, **more: Any) -> Any: ...


class Noun(Generic[Mode]):
    """The methods of one noun, or all of them and the nouns; bound to a client."""

    def __init__(self, asks: Asks, noun: str = "") -> None:
        self._asks = asks
        self._noun = noun

    def __getattr__(self, name: str) -> Any:
        if name in _names(self.__dict__.get("_noun")):
            full = f"{self._noun}.{name}".strip("._")
            return Call(self._asks, full) if full in METHODS else Noun[Any](self._asks, full)
        raise AttributeError(f"kbproc has no method {name!r} here", name=name, obj=self)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *_names(self._noun)]


def _names(noun: str | None) -> list[str]:
    """Those of its methods; of no noun, those of the nouns, too. A keyword has a line behind it."""
    if noun is None:  # not made yet
        return []
    if noun == "":
        return list(dict.fromkeys(name.partition(".")[0] for name in METHODS))
    within = [name.partition(".")[2] for name in METHODS if name.startswith(f"{noun}.")]
    return ["import_" if name == "import" else name for name in within]


class Call:
    """One method of one client."""

    def __init__(self, asks: Asks, method: str) -> None:
        self._asks = asks
        self.method = method
        _, self._places, self.__doc__ = METHODS[method]

    def __repr__(self) -> str:
        return f"<{self.method}: {self.__doc__}>"

    def __call__(self, *args: Any, **params: Any) -> Any:
        """Its answer."""
        return self._asks.call(self.method, self._named(args, params))

    def stream(self, *args: Any, **params: Any) -> Any:
        """Its events as they come, and then its answer."""
        return self._asks.stream(self.method, self._named(args, params))

    def _named(self, args: tuple[Any, ...], params: dict[str, Any]) -> dict[str, Any]:
        """By the names that the wire has."""
        if len(args) > len(self._places):
            takes = ", ".join(self._places) or "none"
            raise TypeError(f"{self.method} takes these arguments by place: {takes}; name the rest")
        given = dict(zip(self._places, args, strict=False))
        if twice := given.keys() & params.keys():
            raise TypeError(f"{self.method} got two values for {', '.join(sorted(twice))}")
        return {**given, **params}
