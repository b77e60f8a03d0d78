"""A client for kbproc: starts a server and talks to it over pipes.

Refuses to know: any other package.

Offers: asker · in_flight
May import: nothing
Light: yes
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .data import Event
    from .errors import (
        BadRequest,
        Cancelled,
        Closed,
        Conflict,
        Failed,
        KbprocError,
        LimitReached,
        NeedsPerson,
        NotAllowed,
        NotFound,
        Overloaded,
        Partial,
        ServerEnded,
        Timeout,
    )
    from .kbproc import AsyncKbproc, Kbproc
    from .streams import AsyncStream, Result, Stream

__all__ = [
    "AsyncKbproc",
    "AsyncStream",
    "BadRequest",
    "Cancelled",
    "Closed",
    "Conflict",
    "Event",
    "Failed",
    "Kbproc",
    "KbprocError",
    "LimitReached",
    "NeedsPerson",
    "NotAllowed",
    "NotFound",
    "Overloaded",
    "Partial",
    "Result",
    "ServerEnded",
    "Stream",
    "Timeout",
]

_MODULES = {
    "AsyncKbproc": "kbproc",
    "AsyncStream": "streams",
    "Event": "data",
    "Kbproc": "kbproc",
    "Result": "streams",
    "Stream": "streams",
}


def __getattr__(name: str) -> Any:
    """Imports a name's module late, because a store's processes need one module of the client."""
    from importlib import import_module

    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
    return getattr(import_module(f".{_MODULES.get(name, 'errors')}", __name__), name)
