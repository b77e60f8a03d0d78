"""Makes the answers of handlers: the meta of every result, pages, lean items, and waits.

A page of a list begins after the last item that the client has; its cursor is opaque to clients. A
lean answer has only the members that `fields` names, and only as much as fits the budget. A wait
holds no thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, TypeVar

import msgspec
from msgspec import UNSET, Struct, UnsetType

from kbproc.base.budget import BYTES_PER_TOKEN, beginning, number_that_fits
from kbproc.base.errors import KbprocError
from kbproc.base.params import LeanParams, ListParams, Params, structs_in, type_at
from kbproc.base.suggest import nearest
from kbproc.engine.store.plan import Plan
from kbproc.engine.store.state import Freshness

if TYPE_CHECKING:
    from kbproc.engine.store.pipeline import Outcome
    from kbproc.knowledge.history.timeline import Timeline
    from kbproc.knowledge.search.params import Search
    from kbproc.knowledge.search.search import SearchAnswer


class Partial(Struct, kw_only=True, frozen=True):
    """Some items failed: the data says which; the rest is done, and nothing is undone.

    `exit_code`: what the shell ends with. `first`: the first failure, in words.
    """

    type: Literal["operation.partial"] = "operation.partial"
    exit_code: int = 3
    message: str
    first: str | UnsetType = UNSET


class Meta(Struct, kw_only=True, frozen=True, omit_defaults=True):
    """The meta members of every result. `lean`: members were left out, as requested."""

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
    """A handler's answer; only `data` is required."""

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
        """Returns the reply at a long write's end; reads at its `seq` or later see the write's
        effect.
        """
        return cls(data=outcome.data, seq=max(outcome.seq, seq))


class Answer(Struct, frozen=True, kw_only=True):
    """A result; `data` is None in a dry run."""

    data: Any
    meta: Meta


class Entered(Struct, frozen=True, kw_only=True):
    """A write that has its place in the order; `end` waits for its turn and answers.

    `end` must be called, because other writes wait with it. Raises KbprocError.
    """

    end: Callable[[], Answer]


class Tail(Struct, frozen=True, kw_only=True):
    """Turns a wait into a stream that never ends by itself: `ready` sends and stays false.

    `ready` must not block: it sends a bounded part, and only while the client is not `crowded`.
    `more` is true if it has stopped short; then it is called again as soon as there is room.
    `detail` goes into the error that ends the stream.
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
    """Returns the answer if it is ready, else a wait for it."""
    if ready():
        return answer()
    return Wait(ready=ready, resume=answer, timeout_ms=timeout_ms, expired=expired)


class Parked(Struct, frozen=True, kw_only=True):
    """A request that waits: it holds no thread and no place until `ready` is true.

    `ready` is called again whenever the store shows something new; it may emit progress, and raises
    KbprocError if waiting has become pointless. `cancel`: ends the work that the request waits for,
    which then comes to its end; without it the waiting ends at once. `lasts`: a client that has
    closed its input may still get it all.
    """

    ready: Callable[[], bool]
    resume: Callable[[], Answer | Parked | Entered]
    timeout_ms: int | None
    expired: Callable[[], KbprocError]
    tail: Tail | None = None
    cancel: Callable[[], None] | None = None
    lasts: bool = False

    def detail(self) -> dict[str, Any]:
        """Returns the detail of the error that ends the waiting."""
        return {} if self.tail is None else self.tail.detail()


# The member that holds the items, if an answer is more than a list.
_ITEMS = "results"

Tree = dict[str, "Tree"]


def is_lean(params: object) -> bool:
    """Returns whether the request leaves out members."""
    return isinstance(params, LeanParams) and bool(params.fields or params.left_out())


def check_fields(params: object, result: Any) -> None:
    """Raises input.invalid_params for a name that no member of the `result` type has."""
    if not isinstance(params, LeanParams) or not params.fields:
        return
    item = type_at(result, f".{_ITEMS}") or result
    for index, name in enumerate(params.fields):
        if type_at(item, f".{name}") is None:
            above, _, last = name.rpartition(".")
            names = _names(type_at(item, f".{above}") if above else item)
            near = nearest(last, names) or names[:20]
            raise KbprocError(
                "input.invalid_params",
                f"No item of the answer has a member {name!r}.",
                field=f"$.params.fields[{index}]",
                valid_values=[f"{above}.{other}" if above else other for other in near],
            )


def _names(annotation: Any) -> list[str]:
    return [name for struct in structs_in(annotation) for name in struct.__struct_fields__]


def lean(params: LeanParams, data: Any) -> Any:
    """Returns `data` with the requested members, except null ones."""
    value = msgspec.to_builtins(data)
    tree = _tree(params.fields) if params.fields else None
    if isinstance(value, dict) and isinstance(value.get(_ITEMS), list):
        return {**value, _ITEMS: _selected(value[_ITEMS], tree, params.left_out())}
    return _selected(value, tree, params.left_out())


def _tree(names: Iterable[str]) -> Tree:
    tree: Tree = {}
    for name in names:
        at = tree
        for step in name.split("."):
            at = at.setdefault(step, {})
    return tree


def _selected(value: Any, tree: Tree | None, left_out: frozenset[str]) -> Any:
    """Returns the value with the members of the tree; without one, with all but `left_out`."""
    if isinstance(value, list):
        return [_selected(item, tree, left_out) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        name: _selected(member, tree[name] or None if tree else None, frozenset())
        for name, member in value.items()
        if member is not None and (name in tree if tree else name not in left_out)
    }


def fitting(params: Params, budget: int | None, items: Sequence[Any]) -> int:
    """Returns how many of `items` fit a budget of tokens, at least one."""
    if budget is None:
        return len(items)
    if isinstance(params, LeanParams) and is_lean(params):
        items = [lean(params, item) for item in items]
    sizes = (len(msgspec.json.encode(item)) + len(",") for item in items)
    return max(number_that_fits(sizes, budget * BYTES_PER_TOKEN), min(1, len(items)))


def cut(text: str, budget: int | None) -> str:
    """Returns the beginning of `text` that fits a budget of tokens, at least one character."""
    if budget is None:
        return text
    return beginning(text, budget * BYTES_PER_TOKEN) or text[:1]


K = TypeVar("K", int, str)
R = TypeVar("R")


class Page(Generic[K]):
    """One page of a list that is ordered by a key.

    `after`: the key of the last item that the client has. `read_limit`: how many items to read, one
    more than the page holds, to tell whether others follow.
    """

    def __init__(self, params: ListParams, kind: type[K]) -> None:
        """Raises input.invalid_params for a cursor that no list has made."""
        self.after: K = decode_cursor(params.cursor, kind)
        self.params = params
        self.limit = params.limit
        self.read_limit = params.limit + 1

    def reply(
        self,
        rows: Sequence[R],
        show: Callable[[R], Any],
        *,
        key: Callable[[R], K],
        seq: int,
        total: int | None = None,
        notice: list[str] | None = None,
    ) -> Reply:
        """Returns the page; `rows` are at most `read_limit` items after `after`."""
        items = rows[: self.limit]
        data = [show(item) for item in items]
        count = fitting(self.params, self.params.budget_tokens, data)
        last = key(items[count - 1]) if len(rows) > count else None
        return page_reply(data[:count], last=last, seq=seq, total=total, notice=notice)


def page_reply(
    data: list[Any],
    *,
    last: int | str | None,
    seq: int,
    total: int | None = None,
    notice: list[str] | None = None,
) -> Reply:
    """Returns a page; `last` is the key after which others follow, None for the last page."""
    return Reply(
        data=data,
        seq=seq,
        count=len(data),
        total=total,
        has_more=last is not None,
        next_cursor=None if last is None else encode_cursor(last),
        notice=notice,
    )


def search_reply(params: Search, answer: SearchAnswer) -> Reply:
    """Returns a search's answer with its meta."""
    results = answer.results
    count = fitting(params, params.budget_tokens, results.results)
    page = msgspec.structs.replace(results, results=results.results[:count], returned=count)
    return Reply(
        data=page,
        seq=answer.freshness.seq,
        count=count,
        total=results.total_matches,
        has_more=answer.has_more or count < results.returned,
        hint=answer.hint,
        notice=answer.notice or None,
        freshness=answer.freshness,
    )


def history_reply(params: ListParams, timeline: Timeline, *, seq: int) -> Reply:
    """Returns a page of revisions, newest first; the next page holds earlier ones."""
    from kbproc.knowledge.history.revisions import revisions

    page = Page(params, int)
    return page.reply(
        revisions(timeline, before=page.after, most=page.read_limit),
        lambda revision: revision,
        key=lambda revision: revision.seq,
        seq=seq,
        total=len(timeline.touches),
    )


def encode_cursor(last: int | str) -> str:
    """Returns the cursor for the key of the last item."""
    from binascii import b2a_base64

    text = b2a_base64(msgspec.json.encode(last), newline=False).decode()
    return text.rstrip("=").translate(_FOR_URLS)


_FOR_URLS, _FROM_URLS = str.maketrans("+/", "-_"), str.maketrans("-_", "+/")


def decode_cursor(cursor: str | None, kind: type) -> Any:
    """Returns the key in a cursor; raises input.invalid_params for one that no list has made."""
    if cursor is None:
        return kind()
    from binascii import a2b_base64

    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        last: Any = msgspec.json.decode(a2b_base64(padded.translate(_FROM_URLS)))
        if type(last) is not kind or (isinstance(last, int) and not 0 <= last <= 2**53):
            raise ValueError
        return last
    except (msgspec.DecodeError, ValueError):
        raise KbprocError(
            "input.invalid_params",
            "cursor is not one that this list has given out.",
            field="$.params.cursor",
            hint="Leave it out to start at the beginning.",
        ) from None
