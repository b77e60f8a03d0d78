"""What a handler answers, and what becomes of it.

Owns: replies, the meta of every answer, and waits that hold no thread.
Refuses to know: how a request runs (run.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from kbproc.base.errors import KbprocError
from kbproc.store.pipeline import Outcome
from kbproc.store.plan import Plan
from kbproc.store.state import Freshness


class Partial(Struct, kw_only=True, frozen=True):
    """Some items failed: the data says which; the rest is done, and nothing is undone.

    `exit_code`: what the shell ends with.
    """

    type: Literal["operation.partial"] = "operation.partial"
    exit_code: int = 3
    message: str


class Meta(Struct, kw_only=True, frozen=True, omit_defaults=True):
    """What every result says of itself. `lean`: members were left out, as was asked for."""

    schema: str
    seq: int
    count: int | UnsetType = UNSET
    total: int | UnsetType = UNSET
    has_more: bool | UnsetType = UNSET
    next_cursor: str | UnsetType = UNSET
    took_ms: Annotated[float, msgspec.Meta(ge=0)] | UnsetType = UNSET
    dry_run: bool | UnsetType = UNSET
    plan: Plan | UnsetType = UNSET
    hint: str | UnsetType = UNSET
    duplicate: bool | UnsetType = UNSET
    notice: list[str] | UnsetType = UNSET
    partial: Partial | UnsetType = UNSET
    freshness: Freshness | UnsetType = UNSET
    lean: bool | UnsetType = UNSET


class Reply(Struct, frozen=True, kw_only=True):
    """What a handler answers; only `data` is a must."""

    data: Any
    seq: int | None = None
    count: int | None = None
    total: int | None = None
    has_more: bool | None = None
    next_cursor: str | None = None
    hint: str | None = None
    notice: list[str] | None = None
    freshness: Freshness | None = None
    plan: Plan | None = None
    duplicate: bool | None = None
    partial: Partial | None = None

    @classmethod
    def ending(cls, outcome: Outcome, seq: int) -> Reply:
        """Of a long write that has come to its end, and reads at `seq` or later see what it did."""
        return cls(data=outcome.data, seq=max(outcome.seq, seq))


class Answer(Struct, frozen=True, kw_only=True):
    """`data` is None in a dry run."""

    data: Any
    meta: Meta


class Entered(Struct, frozen=True, kw_only=True):
    """A write that has its place among the others; `end` waits for its turn and answers.

    `end` must be called: others wait with it. Raises KbprocError.
    """

    end: Callable[[], Answer]


class Tail(Struct, frozen=True, kw_only=True):
    """What makes a wait a stream that never ends by itself: `ready` sends and stays false.

    `ready` must not block: it sends a bounded part and only while the client is
    not `crowded`. `more` is true if it has stopped short: then it is asked again as
    soon as there is room. `detail` goes into the error that ends it.
    """

    more: Callable[[], bool]
    detail: Callable[[], dict[str, Any]]


class Wait(Struct, frozen=True, kw_only=True):
    """A handler's way to wait; see `Parked`."""

    ready: Callable[[], bool]
    resume: Callable[[], Reply]
    timeout_ms: int | None
    expired: Callable[[], KbprocError]
    tail: Tail | None = None
    cancel: Callable[[], None] | None = None
    lasts: bool = False


def once(
    ready: Callable[[], bool],
    answer: Callable[[], Reply],
    *,
    timeout_ms: int | None,
    expired: Callable[[], KbprocError],
) -> Reply | Wait:
    """The answer, at once if it can be given now."""
    if ready():
        return answer()
    return Wait(ready=ready, resume=answer, timeout_ms=timeout_ms, expired=expired)


class Parked(Struct, frozen=True, kw_only=True):
    """A request that waits: it holds no thread and no place until `ready` is true.

    `ready` is asked again whenever the store shows something new; it may emit
    progress, and raises KbprocError if waiting has become pointless.

    `cancel`: what a client's cancelling does to what is waited for, which then comes to its end;
    without it the waiting ends at once. `lasts`: a client that sends no more may get it all.
    """

    ready: Callable[[], bool]
    resume: Callable[[], Answer | Parked]
    timeout_ms: int | None
    expired: Callable[[], KbprocError]
    tail: Tail | None = None
    cancel: Callable[[], None] | None = None
    lasts: bool = False

    def detail(self) -> dict[str, Any]:
        """Of the error that ends the waiting."""
        return {} if self.tail is None else self.tail.detail()
