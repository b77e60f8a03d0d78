"""Answers that are a part of something longer.

Owns: keyset pages, which go on after the last item that a client has seen; their cursors,
opaque to clients; what a page of a search says of the rest.
Refuses to know: what is listed or found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from kbproc.base.errors import KbprocError
from kbproc.base.params import ListParams
from kbproc.calls.lean import fitting
from kbproc.calls.reply import Reply

if TYPE_CHECKING:
    from kbproc.search.params import Search
    from kbproc.search.search import Answer

K = TypeVar("K", int, str)
R = TypeVar("R")


class Page(Generic[K]):
    """One page of a list that is ordered by a key.

    `after`: the key of the last item that the client has seen. `wanted`: how many items
    to ask for: one more than the page holds tells whether others follow.
    """

    def __init__(self, params: ListParams, kind: type[K]) -> None:
        """Raises input.invalid_params for a cursor that no list has given out."""
        self.after: K = decode_cursor(params.cursor, kind)
        self.params = params
        self.limit = params.limit
        self.wanted = params.limit + 1

    def reply(
        self,
        found: Sequence[R],
        show: Callable[[R], Any],
        *,
        key: Callable[[R], K],
        seq: int,
        total: int | None = None,
        notice: list[str] | None = None,
    ) -> Reply:
        """`found`: at most `wanted` items after `after`."""
        items = found[: self.limit]
        data = [show(item) for item in items]
        count = fitting(self.params, self.params.budget_tokens, data)
        last = key(items[count - 1]) if len(found) > count else None
        return page_reply(data[:count], last=last, seq=seq, total=total, notice=notice)


def page_reply(
    data: list[Any],
    *,
    last: int | str | None,
    seq: int,
    total: int | None = None,
    notice: list[str] | None = None,
) -> Reply:
    """`last`: the key after which others follow; None if that is all."""
    return Reply(
        data=data,
        seq=seq,
        count=len(data),
        total=total,
        has_more=last is not None,
        next_cursor=None if last is None else encode_cursor(last),
        notice=notice,
    )


def found_reply(params: Search, found: Answer) -> Reply:
    """What a search answers, with its meta."""
    results = found.results
    count = fitting(params, params.budget_tokens, results.results)
    kept = msgspec.structs.replace(results, results=results.results[:count], returned=count)
    return Reply(
        data=kept,
        seq=found.freshness.seq,
        count=count,
        total=results.total_matches,
        has_more=found.has_more or count < results.returned,
        hint=found.hint,
        notice=found.notice or None,
        freshness=found.freshness,
    )


def encode_cursor(last: int | str) -> str:
    """`last`: the key of the last item."""
    import base64

    return base64.urlsafe_b64encode(msgspec.json.encode(last)).decode().rstrip("=")


def decode_cursor(cursor: str | None, kind: type) -> Any:
    """Raises input.invalid_params for a cursor that no list has given out."""
    import base64
    import binascii

    if cursor is None:
        return kind()
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        last: Any = msgspec.json.decode(base64.urlsafe_b64decode(padded))
        if type(last) is not kind or (isinstance(last, int) and not 0 <= last <= 2**53):
            raise ValueError
        return last
    except (msgspec.DecodeError, ValueError, binascii.Error):
        raise KbprocError(
            "input.invalid_params",
            "cursor is not one that this list has given out.",
            field="$.params.cursor",
            hint="Leave it out to start at the beginning.",
        ) from None
