"""The log as it is shown outside: pages of records, and the tail.

Owns: what a record looks like, filters, how much is read at once, where a reader
that comes back goes on.
Refuses to know: requests, connections, threads, and what events do to the views.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from kbproc.base.errors import KbprocError
from kbproc.base.layout import Lines
from kbproc.base.suggest import nearest
from kbproc.base.values import decoder
from kbproc.events import codec
from kbproc.events.event import Event
from kbproc.history.chain import cut_off
from kbproc.log.interface import Log
from kbproc.log.record import Record
from kbproc.store.state import SeenStore

Types = Annotated[
    list[Annotated[str, Meta(max_length=64)]],
    Meta(min_length=1, max_length=50, description="only events of these types"),
]
Actor = Annotated[str, Meta(max_length=200, description="only what this actor wrote")]
Full = Annotated[bool, Meta(description="with the events as they stand in the log, texts included")]

TYPES = tuple(codec.KINDS)

MOST_BYTES = 4 << 20  # of one record as it is shown, and of a page of them
_LEFT_FOR_THE_LINE = 2048  # the id, which may be long, and what stands around a record
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


class Wanted(Struct, kw_only=True, frozen=True):
    """What a reader asks for; None lets everything through.

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
    """How long a record, or a page of them, may be where a line holds that much."""
    return max(0, min(MOST_BYTES, max_line_bytes - _LEFT_FOR_THE_LINE))


# -------------------------------------------------------------------- one record


def as_lines(records: list[dict[str, Any]], params: dict[str, Any]) -> Lines:
    """A line each, for people."""
    return Lines(lines=[_line(record) for record in records])


def _line(record: dict[str, Any]) -> str:
    said = "; ".join(event["summary"] for event in record["events"]) or record["method"]
    return f"{record['seq']}  {record['ts']}  {record['actor']}  {said}"


def show(record: Record, wanted: Wanted) -> ShownRecord | None:
    """None for what is not wanted. Raises store.incompatible."""
    if record.lost is not UNSET:
        return _record(record, [], lost=record.lost) if wanted.all else None
    if wanted.actor is not None and wanted.actor != record.actor:
        return None
    if wanted.since is not None and record.ts < wanted.since:
        return None
    events = codec.decode(record.events)
    kept = [index for index, event in enumerate(events) if wanted.fits(event)]
    if not kept and wanted.by_event:
        return None
    data = _decode(record.events) if wanted.full else []
    shown = [_event(events[i], data[i] if wanted.full else UNSET) for i in kept]
    return shortened(_record(record, shown), wanted.most_bytes)


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
    about = event.concerns()
    return ShownEvent(
        type=event.tag(),
        summary=event.summary(),
        document_id=about.document,
        kb=about.kb or about.within,
        revision=about.revision,
        session_id=UNSET if about.session is None else about.session,
        message_id=UNSET if about.message is None else about.message,
        data=data,
    )


def shortened(shown: ShownRecord, most_bytes: int) -> ShownRecord:
    """Leaves out chunks, then all data, then events, until it is short enough."""
    for leave_out in (_without_chunks, _without_data):
        if len(_encode(shown)) <= most_bytes:
            return shown
        shown = msgspec.structs.replace(shown, events=[leave_out(event) for event in shown.events])
    left = most_bytes - len(_encode(msgspec.structs.replace(shown, events=[], more_events=2**53)))
    sizes = itertools.accumulate(len(_encode(event)) + 1 for event in shown.events)
    kept = sum(size <= left for size in sizes)
    more = len(shown.events) - kept
    return msgspec.structs.replace(shown, events=shown.events[:kept], more_events=more or UNSET)


def _without_chunks(event: ShownEvent) -> ShownEvent:
    if event.data is UNSET or "chunks" not in event.data:
        return event
    data = {name: value for name, value in event.data.items() if name != "chunks"}
    return msgspec.structs.replace(event, data=data, left_out="chunks")


def _without_data(event: ShownEvent) -> ShownEvent:
    if event.data is UNSET:
        return event
    return msgspec.structs.replace(event, data=UNSET, left_out="data")


# ------------------------------------------------------------------- some records


class Page(Struct, frozen=True, kw_only=True):
    """All that is wanted up to the position `scanned`; `more`: readers see beyond it."""

    records: list[ShownRecord]
    scanned: int
    seq: int

    @property
    def more(self) -> bool:
        return self.scanned < self.seq


def scan(store: SeenStore, after_seq: int, wanted: Wanted, *, limit: int, most_bytes: int) -> Page:
    """At most `limit` records after `after_seq`, one at least if there is one.

    Where something is filtered the catalog says which records to read, so that a
    rare event of a long log is found without reading it all.
    """
    seq, upto, records = candidates(store, after_seq, wanted, rows=2 * limit + 100)
    found: list[ShownRecord] = []
    scanned, size = after_seq, 0
    for record in records:
        if wanted.until is not None and record.ts >= wanted.until:
            return Page(records=found, scanned=seq, seq=seq)
        shown = show(record, wanted)
        if shown is not None:
            size += len(_encode(shown))
            if found and (len(found) == limit or size > most_bytes):
                return Page(records=found, scanned=scanned, seq=seq)
            found.append(shown)
        scanned = record.seq
    if wanted.all and scanned < upto:
        raise cut_off(scanned, upto)
    return Page(records=found, scanned=max(upto, after_seq), seq=seq)


def candidates(
    store: SeenStore, after_seq: int, wanted: Wanted, *, rows: int
) -> tuple[int, int, Iterator[Record]]:
    """What readers see, up to where it was looked for candidates, and these.

    A record with many events takes as many of the `rows`, so there may be few.
    """
    if wanted.all:
        seq = store.seq
        return seq, seq, store.log.read(after_seq, seq) if after_seq < seq else iter(())
    with store.reading() as snapshot:
        found = snapshot.queries.matching_records(
            after_seq, rows, wanted.types, wanted.actor, wanted.document_id
        )
        seq = snapshot.seq
    upto = found[-1] if len(found) == rows else seq
    return seq, upto, _picked(store.log, sorted(set(found)))


def _picked(log: Log, seqs: list[int]) -> Iterator[Record]:
    for stretch in _stretches(seqs):
        wanted = set(stretch)
        for record in log.read(stretch[0] - 1, stretch[-1]):
            if record.seq in wanted:
                yield record


def _stretches(seqs: Iterable[int]) -> Iterator[list[int]]:
    """Those that lie near each other."""
    stretch: list[int] = []
    for seq in seqs:
        if stretch and seq > stretch[-1] + _NEAR:
            yield stretch
            stretch = []
        stretch.append(seq)
    if stretch:
        yield stretch


class Subscription:
    """Sends record after record, a part at a time; whoever calls `turn` says when.

    `seq`: everything up to there that was wanted has been sent. `more`: the last
    turn stopped short.
    """

    def __init__(
        self,
        store: SeenStore,
        wanted: Wanted,
        *,
        after_seq: int,
        emit: Emit,
        crowded: Callable[[], bool],
    ) -> None:
        self.seq = after_seq
        self.more = False
        self._store = store
        self._wanted = wanted
        self._emit = emit
        self._crowded = crowded

    def turn(self) -> None:
        """Raises store.corrupt, store.incompatible."""
        self.more = False
        if self.seq >= self._store.seq:
            return
        page = scan(
            self._store, self.seq, self._wanted, limit=_TURN_RECORDS, most_bytes=_TURN_BYTES
        )
        for shown in page.records:
            if self._crowded():
                self.more = True
                return
            self._emit("item", {"item": shown})
            self.seq = shown.seq
        self.seq, self.more = page.scanned, page.more
