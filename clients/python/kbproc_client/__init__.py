"""Speaks to a kbproc from outside: it starts one and asks it, over pipes.

Refuses to know: any other room.

Offers: contract.command · contract.kit
May import: nothing
Light: yes
"""

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
