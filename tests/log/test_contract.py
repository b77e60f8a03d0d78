"""Every log and every lease keeps the same promises, wherever it is stored."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kbproc.base.errors import KbprocError
from kbproc.engine.cluster.jetstream.log import JetStreamLog
from kbproc.engine.log import file
from kbproc.engine.log import record as records
from kbproc.engine.log.file import FileLog
from kbproc.engine.log.interface import Log, LogFile
from kbproc.engine.log.lease import NOBODY, FileLease, Holder, Lease
from kbproc.engine.log.record import GENESIS, START, Record
from tests.kit.memory import MemoryLease, MemoryLog, Seat
from tests.kit.nats import shared
from tests.kit.patience import LONG
from tests.kit.records import commit, draft, write


def on_a_stream(folder: Path) -> Log:
    log = JetStreamLog.open(folder / "log")
    log.join(shared().stream())
    return log


LOGS: dict[str, Callable[[Path], Log]] = {
    "file": lambda folder: FileLog.open(folder / "log"),
    "memory": lambda folder: MemoryLog(),
    "jetstream": on_a_stream,
}


@pytest.fixture(params=[1000, file.SEGMENT_BYTES], ids=["small-segments", "one-segment"])
def segment_bytes(request: pytest.FixtureRequest) -> Iterator[int]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file, "SEGMENT_BYTES", request.param)
        yield request.param


@pytest.fixture(params=LOGS)
def log(request: pytest.FixtureRequest, segment_bytes: int, tmp_path: Path) -> Iterator[Log]:
    log = LOGS[request.param](tmp_path)
    yield log
    assert log.verify() == log.head.seq, "whatever a test has done, the chain holds"
    log.close()


# ------------------------------------------------------------------ numbers and the chain


def test_an_empty_log(log: Log) -> None:
    assert (log.head, log.last_ts) == (START, "")
    assert list(log.read()) == []
    assert log.verify() == 0
    assert log.as_files(0) == []
    assert not log.survey().damaged
    assert log.rewrite(lambda record: record, to_seq=0) == 0


def test_only_an_empty_log_is_begun(log: Log) -> None:
    log.begin(lambda: commit(log, [draft(1)]))
    log.begin(lambda: commit(log, [draft(2)]))
    assert [record.seq for record in log.read()] == [1]


def test_records_are_numbered_and_chained(log: Log) -> None:
    first, second = commit(log, [draft(1), draft(2)])
    [third] = commit(log, [draft(3)])
    assert [record.seq for record in (first, second, third)] == [1, 2, 3]
    assert [record.prev for record in (first, second, third)] == [GENESIS, first.hash, second.hash]
    assert len({GENESIS, first.hash, second.hash, third.hash}) == 4
    assert (log.head, log.last_ts) == (third.position, third.ts)
    assert log.verify() == 3


def test_a_record_holds_what_its_draft_held(log: Log) -> None:
    commit(log, [draft(1)])
    [record] = log.read()
    assert record == records.seal(draft(1), START)


def test_equal_events_have_other_hashes(log: Log) -> None:
    """Each record is salted, so that a hash does not help to guess erased text."""
    one, two = commit(log, [draft(1), msgspec.structs.replace(draft(1), salt="ff" * 16)])
    assert one.hash != two.hash


def test_reading_from_any_position_to_any(log: Log) -> None:
    written = write(log, 20)
    assert list(log.read()) == written
    for after in range(22):
        assert list(log.read(after)) == written[after:]
        for to in range(22):
            assert list(log.read(after, to)) == written[after:to]


# ---------------------------------------------------------------------------- batches


def test_a_batch_gives_numbers_at_once_and_is_there_once_committed(log: Log) -> None:
    write(log, 2)
    before, ts = log.head, log.last_ts
    with log.batch() as batch:
        assert (batch.head, batch.last_ts) == (before, ts)
        [third] = batch.append([draft(3)])
        assert (batch.head, batch.last_ts) == (third.position, third.ts)
        fourth, fifth = batch.append([draft(4), draft(5)])
        assert [record.seq for record in (third, fourth, fifth)] == [3, 4, 5]
        assert (log.head, log.last_ts) == (before, ts)
        assert list(log.read(2)) == [third, fourth, fifth], "its own thread can read them already"
        assert log.verify() == 2
        batch.commit()
        assert log.head == fifth.position
    assert (log.head, log.last_ts) == (fifth.position, fifth.ts)


def test_what_is_not_committed_is_taken_back(log: Log) -> None:
    written = write(log, 2)
    before = log.head, log.last_ts
    with log.batch() as batch:
        batch.append([draft(3), draft(4)])
        batch.append([draft(5)])
    assert list(log.read()) == written
    assert (log.head, log.last_ts) == before
    assert write(log, 1)[0].seq == 3


def test_an_error_takes_the_whole_batch_back(log: Log) -> None:
    written = write(log, 1)
    with pytest.raises(ZeroDivisionError), log.batch() as batch:
        batch.append([draft(2)])
        raise ZeroDivisionError
    assert list(log.read()) == written
    assert write(log, 1)[0].seq == 2


def test_only_what_came_after_the_commit_is_taken_back(log: Log) -> None:
    with log.batch() as batch:
        first = batch.append([draft(1), draft(2)])
        batch.commit()
        batch.append([draft(3)])
    assert list(log.read()) == first
    assert log.head == first[-1].position


def test_nothing_appended_is_nothing_written(log: Log) -> None:
    assert commit(log, []) == []
    with log.batch():
        pass
    assert (log.head, list(log.read())) == (START, [])


def test_batches_wait_for_one_another(log: Log) -> None:
    others: list[Record] = []
    with log.batch() as batch:
        threads = [
            threading.Thread(target=lambda: others.extend(commit(log, [draft(9), draft(9)])))
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        own = [record for number in range(8) for record in batch.append([draft(number)])]
        batch.commit()
    for thread in threads:
        thread.join()
    assert [record.seq for record in own] == list(range(1, 9))
    assert [record.seq for record in others] == list(range(9, 17))
    assert list(log.read()) == own + others


@given(
    st.lists(st.tuples(st.lists(st.integers(0, 3), max_size=4), st.booleans()), max_size=12),
    st.sampled_from(sorted(LOGS)),
    st.sampled_from([700, file.SEGMENT_BYTES]),
)
def test_any_batches(
    tmp_path_factory: pytest.TempPathFactory,
    batches: list[tuple[list[int], bool]],
    kind: str,
    segment_bytes: int,
) -> None:
    """The log holds exactly the committed records, in order."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file, "SEGMENT_BYTES", segment_bytes)
        log, expected = LOGS[kind](tmp_path_factory.mktemp("any")), list[Record]()
        for sizes, committed in batches:
            with log.batch() as batch:
                written = [
                    record
                    for size in sizes
                    for record in batch.append([draft(number, 50) for number in range(size)])
                ]
                if committed:
                    batch.commit()
                    expected += written
            assert list(log.read()) == expected
            assert log.head == (expected[-1].position if expected else START)
        assert log.verify() == len(expected)
        log.close()


def test_readers_see_a_prefix_while_batches_are_written(log: Log) -> None:
    """Each reader gets all records up to its head, however many batches run concurrently."""
    readings: list[list[Record]] = []
    written_all = threading.Event()

    def look() -> None:
        while not written_all.is_set():
            readings.append(list(log.read(to_seq=log.head.seq)))
            log.verify()

    readers = [threading.Thread(target=look) for _ in range(3)]
    for reader in readers:
        reader.start()
    written = []
    for number in range(60 if LONG else 20):
        written += write(log, 1)
        with log.batch() as batch:
            batch.append([draft(number), draft(number)])
    written_all.set()
    for reader in readers:
        reader.join()
    assert all(reading == written[: len(reading)] for reading in readings)


# ---------------------------------------------------------------------------- rewriting


def emptied(record: Record) -> Record:
    return records.redacted(record, events=b"[]", result=b"null")


def test_a_rewrite_keeps_the_chain(log: Log) -> None:
    written = write(log, 12)
    head = log.head
    changed = log.rewrite(lambda r: emptied(r) if r.seq in {2, 7, 12} else r, to_seq=12)
    assert changed == 3
    assert log.head == head
    assert log.verify() == 12
    rewritten = list(log.read())
    assert [r.position for r in rewritten] == [r.position for r in written]
    for one, other in zip(rewritten, written, strict=True):
        assert one == (emptied(other) if other.seq in {2, 7, 12} else other)
    [after] = write(log, 1)
    assert (after.seq, after.prev) == (13, head.hash)


def test_a_rewrite_ends_where_it_is_told_to(log: Log) -> None:
    written = write(log, 12)
    assert log.rewrite(emptied, to_seq=8) == 8
    assert [r.events for r in log.read(8)] == [r.events for r in written[8:]]
    assert {bytes(r.events) for r in log.read(0, 8)} == {b"[]"}


def test_batches_are_written_during_a_rewrite(log: Log) -> None:
    write(log, 6)

    def change(record: Record) -> Record:
        write(log, 1)
        return emptied(record)

    assert log.rewrite(change, to_seq=6) == 6
    assert log.verify() == 12
    assert [bytes(r.events) == b"[]" for r in log.read()] == [True] * 6 + [False] * 6


def test_what_would_break_the_chain_is_not_written(log: Log) -> None:
    written = write(log, 3)
    for wrong in (
        lambda record: msgspec.structs.replace(record, events=msgspec.Raw(b"[]")),
        lambda record: written[0] if record.seq == 2 else record,
        lambda record: records.seal(draft(1), written[0].position) if record.seq == 2 else record,
    ):
        with pytest.raises(ValueError, match="would break the chain"):
            log.rewrite(wrong, to_seq=3)
        assert list(log.read()) == written


# ------------------------------------------------------------------------ copy and survey


def put(files: list[LogFile], folder: Path) -> Path:
    folder.mkdir()
    for copied in files:
        with copied.open() as source:
            (folder / copied.name).write_bytes(source.read(copied.size))
    return folder


def test_a_copy_is_a_log_of_its_own(log: Log, tmp_path: Path) -> None:
    written = write(log, 12)
    for seq in (1, 5, 12):
        folder = put(log.as_files(seq), tmp_path / f"copy-{seq}")
        copy = FileLog.open(folder, written[seq - 1].position)
        assert list(copy.read()) == written[:seq]
        assert write(copy, 1)[0].seq == seq + 1
        assert copy.verify() == seq + 1
        copy.close()
    assert list(log.read()) == written


def test_a_copy_is_taken_while_batches_are_written(log: Log, tmp_path: Path) -> None:
    written = write(log, 6)
    files = log.as_files(5)
    write(log, 6)
    with log.batch() as batch:
        batch.append([draft(13)])
        copy = FileLog.open(put(files, tmp_path / "copy"))
    assert list(copy.read()) == written[:5]
    copy.close()


def test_a_sound_log_is_found_to_be_sound(log: Log, tmp_path: Path) -> None:
    written = write(log, 12)
    log.rewrite(lambda r: emptied(r) if r.seq == 4 else r, to_seq=12)
    survey = log.survey()
    assert not survey.damaged and survey.places == survey.lost == []
    assert all(survey.holds(record.position) for record in written)
    assert not survey.holds(replace(written[3].position, hash="f" * 32))
    assert list(survey.records()) == list(log.read())
    assert [first for first, _ in survey.lines()] == list(range(1, 13))
    file.write_repaired(survey, tmp_path / "again")
    again = FileLog.open(tmp_path / "again", log.head)
    assert list(again.read()) == list(log.read())
    again.close()
    log.look()
    assert log.damage is None


def test_a_log_in_memory_of_another_ones_records() -> None:
    """A log in memory may copy a repaired log, where one record stands for several lost ones."""
    log = MemoryLog()
    one, two, three, four = write(log, 4)
    lost = records.placeholder(first=2, last=three.position, prev=one.hash, ts=one.ts)
    copy = MemoryLog([one, lost, four])
    assert (copy.head, copy.last_ts) == (four.position, four.ts)
    assert list(copy.read(1)) == [lost, four] == list(copy.read(2))
    assert list(copy.read(3)) == list(copy.read(3, 4)) == [four]
    assert write(copy, 1)[0].seq == 5
    assert copy.verify() == 5
    for wrong in ([two], [one, three], [one, msgspec.structs.replace(two, actor="eve")]):
        with pytest.raises(KbprocError) as error:
            MemoryLog(wrong)
        assert error.value.type == "store.corrupt"


# ---------------------------------------------------------------------------- the lease

Applicant = Callable[[], Lease]


@pytest.fixture(params=["file", "memory"])
def applicant(request: pytest.FixtureRequest, tmp_path: Path) -> Applicant:
    """Makes leases on the same store."""
    seat = Seat(str(tmp_path))
    makes: dict[str, Applicant] = {
        "file": lambda: FileLease(tmp_path),
        "memory": lambda: MemoryLease(seat),
    }
    return makes[request.param]


def refusal(lease: Lease, pid: int) -> KbprocError:
    with pytest.raises(KbprocError) as error:
        lease.take(pid)
    return error.value


def test_a_lease_that_can_not_be_written_is_not_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed lease is released: else the process would wait for itself at its next attempt."""

    def refuse(*arguments: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as full:
        full.setattr("kbproc.base.disk.write_at", refuse)
        with pytest.raises(OSError, match="No space left"):
            FileLease(tmp_path).take(17)
    lease = FileLease(tmp_path)
    lease.take(18)
    assert lease.holder().pid == "18"
    lease.release()


def test_whoever_dies_leaves_a_trace(tmp_path: Path) -> None:
    one, two, three = FileLease(tmp_path), FileLease(tmp_path), FileLease(tmp_path)
    one.take(17)
    assert not one.was_abandoned, "nobody had it before"
    for fd in one._fds:
        os.close(fd)
    two.take(18)
    assert two.was_abandoned
    two.release()
    three.take(19)
    assert not three.was_abandoned
    three.release()


def test_one_at_a_time(applicant: Applicant, tmp_path: Path) -> None:
    one, two = applicant(), applicant()
    assert one.holder() == Holder("", None)
    one.take(17)
    for other in (one, two, applicant()):
        error = refusal(other, 18)
        assert (error.type, error.retry_after_ms) == ("store.locked", 1000)
        assert error.message == f"The store {tmp_path} is open in another process (pid 17)."
        assert other.holder() == Holder("17", None)
    one.release()
    two.take(18)
    assert refusal(one, 17).message.endswith("(pid 18).")
    two.release()


def test_where_the_holder_listens(applicant: Applicant, tmp_path: Path) -> None:
    one, two = applicant(), applicant()
    one.take(17)
    one.announce(tmp_path / "a.sock")
    assert two.holder() == Holder("17", tmp_path / "a.sock")
    one.announce(tmp_path / "longer-than-before.sock")
    one.announce(tmp_path / "b.sock")
    assert two.holder() == Holder("17", tmp_path / "b.sock")
    one.check()
    one.release()
    assert two.holder() == NOBODY, "a clean end leaves nothing to follow"
    two.take(18)
    assert one.holder() == Holder("18", None), "the next one has not said it yet"
    two.release()


def test_of_many_that_want_it_one_gets_it(applicant: Applicant) -> None:
    start, leases, refused = threading.Barrier(8), list[Any](), list[int]()

    def want(pid: int) -> None:
        lease = applicant()
        start.wait()
        try:
            lease.take(pid)
            leases.append(lease)
        except KbprocError:
            refused.append(pid)

    threads = [threading.Thread(target=want, args=(pid,)) for pid in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(leases), len(refused)) == (1, 7)
    leases[0].release()
