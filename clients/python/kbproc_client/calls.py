"""Methods as attributes: kb.doc.create(title=...) calls doc.create."""

from __future__ import annotations

from typing import Any, Generic, Protocol, TypeVar

from .facts import METHODS

Mode = TypeVar("Mode")


class Waits:
    """The mode of Kbproc: a call returns the answer."""


class Awaits:
    """The mode of AsyncKbproc: a call is awaited."""


class Caller(Protocol):
    """A client, as its methods see it."""

    def call(self, method: str, params: Any = None, /, **more: Any) -> Any: ...
    def stream(self, method: str, params: Any = None, /, **more: Any) -> Any: ...


class Noun(Generic[Mode]):
    """The methods of one noun, or all methods and nouns; bound to a client."""

    def __init__(self, caller: Caller, noun: str = "") -> None:
        self._caller = caller
        self._noun = noun

    def __getattr__(self, name: str) -> Any:
        if name in _names(self.__dict__.get("_noun")):
            method = f"{self._noun}.{name}".strip("._")
            return (
                Call(self._caller, method) if method in METHODS else Noun[Any](self._caller, method)
            )
        raise AttributeError(f"kbproc has no method {name!r} here", name=name, obj=self)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *_names(self._noun)]


def _names(noun: str | None) -> list[str]:
    """Returns the names of a noun's methods; without a noun those of methods and nouns.

    A name that is a Python keyword ends with an underscore.
    """
    if noun is None:  # not made yet
        return []
    if noun == "":
        return list(dict.fromkeys(name.partition(".")[0] for name in METHODS))
    within = [name.partition(".")[2] for name in METHODS if name.startswith(f"{noun}.")]
    return ["import_" if name == "import" else name for name in within]


class Call:
    """One method of one client."""

    def __init__(self, caller: Caller, method: str) -> None:
        self._caller = caller
        self.method = method
        _, self._places, self.__doc__ = METHODS[method]

    def __repr__(self) -> str:
        return f"<{self.method}: {self.__doc__}>"

    def __call__(self, *args: Any, **params: Any) -> Any:
        """Calls the method and returns its result."""
        return self._caller.call(self.method, self._named(args, params))

    def stream(self, *args: Any, **params: Any) -> Any:
        """Calls the method and returns a stream of its events, which ends with its result."""
        return self._caller.stream(self.method, self._named(args, params))

    def _named(self, args: tuple[Any, ...], params: dict[str, Any]) -> dict[str, Any]:
        """Returns the params under the names of the wire."""
        if len(args) > len(self._places):
            takes = ", ".join(self._places) or "none"
            raise TypeError(f"{self.method} takes these arguments by place: {takes}; name the rest")
        named = dict(zip(self._places, args, strict=False))
        if repeated := named.keys() & params.keys():
            raise TypeError(f"{self.method} got two values for {', '.join(sorted(repeated))}")
        return {**named, **params}
