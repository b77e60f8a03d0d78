"""A check of the chain counts what readers see, and names the documents that damage took."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from kbproc.base.errors import KbprocError
from kbproc.engine.log.record import START, Record, RecordDraft, seal_all
from kbproc.engine.store.state import SeenStore
from kbproc.knowledge.history.chain import ChainHead, Stretch, Verified, cut_off, verify


def records_of(count: int) -> list[Record]:
    drafts = [
        RecordDraft(
            ts=f"2026-01-0{number}T00:00:00.000Z",
            actor="ann",
            method="test",
            salt="0" * 32,
            events=msgspec.Raw(b"[]"),
        )
        for number in range(1, count + 1)
    ]
    return seal_all(drafts, START)


class FakeLog:
    """A log of these records, which raises `fault` after the last one."""

    def __init__(self, records: list[Record], fault: KbprocError | None = None) -> None:
        self.records = records
        self.fault = fault
        self.verified = 0

    def read(self, after_seq: int = 0, to_seq: int | None = None) -> Iterator[Record]:
        for record in self.records:
            if after_seq < record.seq and (to_seq is None or record.seq <= to_seq):
                yield record
        if self.fault is not None:
            raise self.fault

    def verify(self) -> int:
        self.verified += 1
        raise KbprocError("store.corrupt", "It marks itself as damaged.")

    def look(self) -> None:
        """Finds nothing: the folder is as it was."""

    def as_files(self, seq: int) -> list[str]:
        return ["000000000001.ndjson"]


def store_of(log: FakeLog, head: Record) -> SeenStore:
    rows = [SimpleNamespace(document_id=id) for id in (3, None, 2, 3)]
    documents = {id: SimpleNamespace(title=f"D{id}") for id in (2, 3)}
    queries = SimpleNamespace(
        events_of_records=lambda seqs: rows if list(seqs) == [3] else [],
        documents_by_id=lambda ids: {id: documents[id] for id in ids},
    )

    class Reading:
        def __enter__(self) -> Any:
            return SimpleNamespace(queries=queries)

        def __exit__(self, *error: object) -> None:
            """Has nothing to close."""

    published = SimpleNamespace(head=head)
    store = SimpleNamespace(log=log, published=published, reading=Reading)
    return cast(SeenStore, store)


def test_a_sound_chain_is_counted_up_to_what_readers_see() -> None:
    records = records_of(3)
    checks: list[None] = []
    result = verify(store_of(FakeLog(records), records[1]), lambda: checks.append(None))
    assert result == Verified(
        records=2,
        segments=1,
        head=ChainHead(seq=2, hash=records[1].hash),
        first_ts="2026-01-01T00:00:00.000Z",
        last_ts="2026-01-02T00:00:00.000Z",
        erased=0,
        lost=[],
    )
    assert len(checks) == 2


def test_given_up_records_are_a_stretch_and_no_error() -> None:
    first, second, third = records_of(3)
    lost = msgspec.structs.replace(second, lost=2)
    result = verify(store_of(FakeLog([first, lost, third]), third), lambda: None)
    assert (result.records, result.lost) == (2, [Stretch(first_seq=2, last_seq=2)])


def test_a_cut_chain_names_the_documents_of_what_is_missing() -> None:
    records = records_of(3)
    log = FakeLog(records[:2])
    with pytest.raises(KbprocError) as error:
        verify(store_of(log, records[2]), lambda: None)
    assert error.value.type == "store.corrupt"
    assert error.value.message == cut_off(2, 3).message
    assert error.value.detail == {
        "expected_seq": 3,
        "last_seq": 2,
        "seq": 3,
        "documents": [{"id": 2, "title": "D2"}, {"id": 3, "title": "D3"}],
    }
    assert error.value.hint is not None and "kbproc doctor --repair" in error.value.hint
    assert log.verified == 1, "so that the log refuses writes"


def test_an_unreadable_record_is_the_one_after_the_last_that_was_read() -> None:
    records = records_of(3)
    fault = KbprocError("store.corrupt", "Bad line.", detail={"line": 3})
    with pytest.raises(KbprocError) as error:
        verify(store_of(FakeLog(records[:2], fault), records[2]), lambda: None)
    assert error.value is fault
    assert (error.value.detail["line"], error.value.detail["seq"]) == (3, 3)
    assert cut_off(0, 3).detail == {"expected_seq": 3, "last_seq": 0}


def test_another_error_is_passed_on_as_it_is() -> None:
    records = records_of(1)
    fault = KbprocError("store.io", "The disk is away.")
    log = FakeLog([], fault)
    with pytest.raises(KbprocError) as error:
        verify(store_of(log, records[0]), lambda: None)
    assert (error.value.type, error.value.detail, log.verified) == ("store.io", {}, 0)
