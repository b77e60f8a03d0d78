"""Checks the log's chain of records, as readers see it.

The result describes a sound log; for a damaged one the error names the affected documents.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import UNSET, Struct

from kbproc.base.errors import KbprocError
from kbproc.engine.store.state import SeenStore

_MOST_AFFECTED = 10_000  # records whose documents an error names
_MOST_DOCUMENTS = 100

_REPAIR = (
    "Stop kbproc and run kbproc doctor --repair: it keeps every record that can be read and "
    "sets the damaged file aside. A backup may still hold what is lost."
)


# ---------------------------------------------------------------------- the chain


class ChainHead(Struct, kw_only=True, frozen=True):
    seq: int
    hash: str


class Stretch(Struct, kw_only=True, frozen=True):
    """A range of records that were given up, both ends included."""

    first_seq: int
    last_seq: int


class Verified(Struct, kw_only=True, frozen=True):
    """The result of a check: `records` can be read, `erased` of them lost something to a purge."""

    records: int
    segments: int
    head: ChainHead
    first_ts: str | None
    last_ts: str | None
    erased: int
    lost: list[Stretch]


def verify(store: SeenStore, check_cancelled: Callable[[], None]) -> Verified:
    """Checks every record that readers see. Raises store.corrupt.

    The error's detail names segment, line, seq and the affected documents.
    """
    head = store.published.head
    reached, count, erased, first_ts, last = 0, 0, 0, None, None
    lost: list[Stretch] = []
    try:
        for record in store.log.read(0, head.seq):
            check_cancelled()
            reached, last = record.seq, record
            first_ts = first_ts or record.ts
            if record.lost is UNSET:
                count, erased = count + 1, erased + (record.body is not UNSET)
            else:
                lost.append(Stretch(first_seq=record.lost, last_seq=record.seq))
        if last is None or last.position != head.position:
            raise cut_off(reached, head.seq)
    except KbprocError as error:
        if error.type == "store.corrupt":
            _explain(store, error, reached)
            with contextlib.suppress(KbprocError):
                store.log.verify()  # so that the log marks itself damaged and refuses writes
        raise
    store.log.look()
    return Verified(
        records=count,
        segments=len(store.log.as_files(head.seq)),
        head=ChainHead(seq=head.seq, hash=head.hash),
        first_ts=first_ts,
        last_ts=head.ts,
        erased=erased,
        lost=lost,
    )


def cut_off(seq: int, expected: int) -> KbprocError:
    return KbprocError(
        "store.corrupt",
        f"The log ends at record {seq}, but not with record {expected} as the views know it.",
        detail={"expected_seq": expected, "last_seq": seq},
    )


def _explain(store: SeenStore, error: KbprocError, reached: int) -> None:
    """Adds the hint and the affected documents: those of the records after `reached`.

    The unreadable record comes after `reached`, the last record that could be read.
    """
    seq = max(error.detail.get("seq", 0), reached + 1)
    affected = range(reached + 1, seq + 1)[:_MOST_AFFECTED]
    error.hint = _REPAIR
    error.detail |= {"seq": seq, "documents": _documents_in(store, affected)}


def _documents_in(store: SeenStore, seqs: Sequence[int]) -> list[dict[str, Any]]:
    """Returns id and title of the documents that these records changed, as the catalog has them."""
    with store.reading() as snapshot:
        rows = snapshot.queries.events_of_records(seqs)
        ids = sorted({row.document_id for row in rows if row.document_id is not None})
        documents = snapshot.queries.documents_by_id(ids[:_MOST_DOCUMENTS])
    return [{"id": id, "title": row.title} for id, row in sorted(documents.items())]
