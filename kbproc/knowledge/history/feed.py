"""Shows the log to clients: pages of records, and subscriptions to new ones.

Defines how a record looks, the filters, how much is read at once, and the position from which a
reader continues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from kbproc.base.budget import number_that_fits
from kbproc.base.errors import KbprocError
from kbproc.base.layout import TextLines
from kbproc.base.suggest import nearest
from kbproc.base.values import decoder
from kbproc.engine.events import codec
from kbproc.engine.events.event import Event
from kbproc.engine.log.interface import Log
from kbproc.engine.log.record import Record
from kbproc.engine.store.state import SeenStore
from kbproc.knowledge.history.chain import cut_off

Types = Annotated[
    list[Annotated[str, Meta(max_length=64)]],
    Meta(min_length=1, max_length=50, description="only events of these types"),
]
Actor = Annotated[str, Meta(max_length=200, description="only what this actor wrote")]
Full = Annotated[bool, Meta(description="with the events as they stand in the log, texts included")]

TYPES = tuple(codec.KINDS)

MOST_BYTES = 4 << 20  # limit for one shown record, and for a page of records
_ENVELOPE_BYTES = 2048  # room for the id, which may be long, and the envelope of a record
_TURN_RECORDS = 100
_TURN_BYTES = 1 << 20
_NEAR = 8  # records: reading over them costs less than finding the next one

Emit = Callable[[str, dict[str, Any]], None]

_encode = msgspec.json.Encoder().encode
_decode = decoder(list[dict[str, Any]]).decode


class ShownEvent(Struct, kw_only=True, frozen=True, omit_defaults=True):
    """One event. `document_id`, `kb` and `revision` are null where it concerns none;
    `session_id` and `message_id` are there where it concerns one.

    `data`, only with `full`: the event as it stands in the log. `left_out`: what of
    `data` is missing, since the record would be too long for a line.
    """

    type: str
    summary: str
    document_id: int | None
    kb: str | None
    revision: int | None
    session_id: int | UnsetType = UNSET
    message_id: int | UnsetType = UNSET
    data: dict[str, Any] | UnsetType = UNSET
    left_out: Literal["chunks", "data"] | UnsetType = UNSET

    def without_chunks(self) -> ShownEvent:
        if self.data is UNSET or "chunks" not in self.data:
            return self
        data = {name: value for name, value in self.data.items() if name != "chunks"}
        return msgspec.structs.replace(self, data=data, left_out="chunks")

    def without_data(self) -> ShownEvent:
        if self.data is UNSET:
            return self
        return msgspec.structs.replace(self, data=UNSET, left_out="data")


class ShownRecord(Struct, kw_only=True, frozen=True, omit_defaults=True):
    """One step of the log, which happened as a whole.

    `events` holds those that the filters let through. `lost`: the records from there
    to `seq` could not be read any more and were given up. `more_events`: how many
    did not fit on a line.
    """

    seq: int
    ts: str
    actor: str
    method: str
    events: list[ShownEvent]
    token: str | None
    lost: int | UnsetType = UNSET
    more_events: int | UnsetType = UNSET

    def shortened(self, most_bytes: int) -> ShownRecord:
        """Leaves out chunks, then all data, then events, until the record is short enough."""
        record = self
        for leave_out in (ShownEvent.without_chunks, ShownEvent.without_data):
            if len(_encode(record)) <= most_bytes:
                return record
            record = msgspec.structs.replace(
                record, events=[leave_out(event) for event in record.events]
            )
        bare = msgspec.structs.replace(record, events=[], more_events=2**53)
        room = most_bytes - len(_encode(bare))
        count = number_that_fits((len(_encode(event)) + 1 for event in record.events), room)
        omitted = len(record.events) - count
        return msgspec.structs.replace(
            record, events=record.events[:count], more_events=omitted or UNSET
        )


class Filters(Struct, kw_only=True, frozen=True):
    """The filters of a reader; None lets everything through.

    `since`, `until`: from that moment on, and before that one. `most_bytes` is how long one
    shown record may be as JSON.
    """

    since: str | None = None
    until: str | None = None
    types: tuple[str, ...] | None = None
    actor: str | None = None
    document_id: int | None = None
    full: bool = False
    most_bytes: int = MOST_BYTES

    @property
    def by_event(self) -> bool:
        return self.types is not None or self.document_id is not None

    @property
    def all(self) -> bool:
        return not self.by_event and self.actor is None

    def fits(self, event: Event) -> bool:
        if self.types is not None and event.tag() not in self.types:
            return False
        return self.document_id is None or self.document_id in event.concerns().documents


def check_types(types: Sequence[str] | None) -> tuple[str, ...] | None:
    """Raises input.invalid_params that names the first unknown type."""
    for index, name in enumerate(types or ()):
        if name not in TYPES:
            near = nearest(name, TYPES)
            raise KbprocError(
                "input.invalid_params",
                f"There is no event type {name!r}.",
                field=f"$.params.types[{index}]",
                valid_values=near,
                hint=f"Did you mean {near[0]}?",
            )
    return None if types is None else tuple(types)


def bytes_in_a_line(max_line_bytes: int) -> int:
    """Returns how many bytes a record, or a page of them, may take in a line of that length."""
    return max(0, min(MOST_BYTES, max_line_bytes - _ENVELOPE_BYTES))


# -------------------------------------------------------------------- one record


def as_lines(records: list[dict[str, Any]], params: dict[str, Any]) -> TextLines:
    """Returns one line per record, for people."""
    return TextLines(lines=[_line(record) for record in records])


def _line(record: dict[str, Any]) -> str:
    summary = "; ".join(event["summary"] for event in record["events"]) or record["method"]
    return f"{record['seq']}  {record['ts']}  {record['actor']}  {summary}"


def show(record: Record, filters: Filters) -> ShownRecord | None:
    """Returns the record as clients see it; None if the filters exclude it.

    Raises store.incompatible.
    """
    if record.lost is not UNSET:
        return _record(record, [], lost=record.lost) if filters.all else None
    if filters.actor is not None and filters.actor != record.actor:
        return None
    if filters.since is not None and record.ts < filters.since:
        return None
    events = codec.decode(record.events)
    indices = [index for index, event in enumerate(events) if filters.fits(event)]
    if not indices and filters.by_event:
        return None
    data = _decode(record.events) if filters.full else []
    shown_events = [_event(events[i], data[i] if filters.full else UNSET) for i in indices]
    return _record(record, shown_events).shortened(filters.most_bytes)


def _record(record: Record, events: list[ShownEvent], **more: Any) -> ShownRecord:
    return ShownRecord(
        seq=record.seq,
        ts=record.ts,
        actor=record.actor,
        method=record.method,
        events=events,
        token=record.token,
        **more,
    )


def _event(event: Event, data: dict[str, Any] | UnsetType) -> ShownEvent:
    concerned = event.concerns()
    return ShownEvent(
        type=event.tag(),
        summary=event.summary(),
        document_id=concerned.document,
        kb=concerned.kb or concerned.within,
        revision=concerned.revision,
        session_id=UNSET if concerned.session is None else concerned.session,
        message_id=UNSET if concerned.message is None else concerned.message,
        data=data,
    )


# ------------------------------------------------------------------- some records


class FeedPage(Struct, frozen=True, kw_only=True):
    """All matching records up to the position `scanned`; `more`: readers see records beyond it."""

    records: list[ShownRecord]
    scanned: int
    seq: int

    @property
    def more(self) -> bool:
        return self.scanned < self.seq


def scan(
    store: SeenStore, after_seq: int, filters: Filters, *, limit: int, most_bytes: int
) -> FeedPage:
    """Returns at most `limit` matching records after `after_seq`, at least one if there is one.

    With a filter, the catalog selects the records to read, so that a rare event of a long log is
    found without reading the whole log.
    """
    seq, upto, records = candidates(store, after_seq, filters, rows=2 * limit + 100)
    page: list[ShownRecord] = []
    scanned, size = after_seq, 0
    for record in records:
        if filters.until is not None and record.ts >= filters.until:
            return FeedPage(records=page, scanned=seq, seq=seq)
        item = show(record, filters)
        if item is not None:
            size += len(_encode(item))
            if page and (len(page) == limit or size > most_bytes):
                return FeedPage(records=page, scanned=scanned, seq=seq)
            page.append(item)
        scanned = record.seq
    if filters.all and scanned < upto:
        raise cut_off(scanned, upto)
    return FeedPage(records=page, scanned=max(upto, after_seq), seq=seq)


def candidates(
    store: SeenStore, after_seq: int, filters: Filters, *, rows: int
) -> tuple[int, int, Iterator[Record]]:
    """Returns the readers' seq, the seq up to which candidates were selected, and the candidates.

    A record takes one of the `rows` for each of its events, so there may be few candidates.
    """
    if filters.all:
        seq = store.seq
        return seq, seq, store.log.read(after_seq, seq) if after_seq < seq else iter(())
    with store.reading() as snapshot:
        seqs = snapshot.queries.matching_records(
            after_seq, rows, filters.types, filters.actor, filters.document_id
        )
        seq = snapshot.seq
    upto = seqs[-1] if len(seqs) == rows else seq
    return seq, upto, _picked(store.log, sorted(set(seqs)))


def _picked(log: Log, seqs: list[int]) -> Iterator[Record]:
    for stretch in _stretches(seqs):
        stretch_seqs = set(stretch)
        for record in log.read(stretch[0] - 1, stretch[-1]):
            if record.seq in stretch_seqs:
                yield record


def _stretches(seqs: Iterable[int]) -> Iterator[list[int]]:
    """Groups the seqs into stretches whose neighbours are at most `_NEAR` apart."""
    stretch: list[int] = []
    for seq in seqs:
        if stretch and seq > stretch[-1] + _NEAR:
            yield stretch
            stretch = []
        stretch.append(seq)
    if stretch:
        yield stretch


class Subscription:
    """Sends matching records, some with each call of `turn`.

    `seq`: every matching record up to there has been sent. `more`: the last turn stopped short.
    """

    def __init__(
        self,
        store: SeenStore,
        filters: Filters,
        *,
        after_seq: int,
        emit: Emit,
        crowded: Callable[[], bool],
    ) -> None:
        self.seq = after_seq
        self.more = False
        self._store = store
        self._filters = filters
        self._emit = emit
        self._crowded = crowded

    def turn(self) -> None:
        """Sends the next records until the client is crowded.

        Raises store.corrupt, store.incompatible.
        """
        self.more = False
        if self.seq >= self._store.seq:
            return
        page = scan(
            self._store, self.seq, self._filters, limit=_TURN_RECORDS, most_bytes=_TURN_BYTES
        )
        for item in page.records:
            if self._crowded():
                self.more = True
                return
            self._emit("item", {"item": item})
            self.seq = item.seq
        self.seq, self.more = page.scanned, page.more
