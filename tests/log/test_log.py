"""The log in files: acknowledged records stay, and damage is found."""

from __future__ import annotations

import errno
import itertools
import os
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbproc.base.errors import KbprocError
from kbproc.engine.log import file
from kbproc.engine.log import record as records
from kbproc.engine.log.file import FileLog, survey_folder
from kbproc.engine.log.record import START, Position
from kbproc.engine.log.segment import name_of, segments
from tests.kit.patience import PATIENCE
from tests.kit.records import commit, draft, write


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def log(folder: Path) -> Iterator[FileLog]:
    log = FileLog.open(folder)
    yield log
    log.close()


@pytest.fixture
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file, "SEGMENT_BYTES", 1000)


def refused(type: str, work: Callable[[], Any]) -> KbprocError:
    with pytest.raises(KbprocError) as error:
        work()
    assert error.value.type == type, error.value.message
    return error.value


# ------------------------------------------------------------------ lines and files


def test_a_line_is_one_json_object_with_known_members(log: FileLog, folder: Path) -> None:
    write(log, 1)
    line = (folder / "000000000001.ndjson").read_bytes()
    assert line.endswith(b"}\n")
    assert list(msgspec.json.decode(line)) == [
        "seq",
        "ts",
        "actor",
        "method",
        "token",
        "params_hash",
        "result",
        "salt",
        "events",
        "prev",
        "hash",
    ]


def test_reopening_goes_on(log: FileLog, folder: Path) -> None:
    write(log, 3)
    head = log.head
    log.close()
    again = FileLog.open(folder, head)
    assert (again.head, again.last_ts) == (head, log.last_ts)
    write(again, 2)
    assert again.verify() == 5
    again.close()


def test_only_the_owner_may_look(log: FileLog, folder: Path) -> None:
    write(log, 1)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()] == [0o600]


# ------------------------------------------------------------------------- segments


@pytest.mark.usefixtures("small_segments")
def test_segments_are_named_by_their_first_seq(log: FileLog, folder: Path) -> None:
    records = write(log, 20)
    names = sorted(path.name for path in folder.iterdir())
    assert len(names) > 3
    for name in names:
        first = msgspec.json.decode((folder / name).read_bytes().split(b"\n")[0])
        assert name == f"{first['seq']:012d}.ndjson"
    for after in range(21):
        assert list(log.read(after)) == records[after:]
    log.close()
    for position in (START, *(record.position for record in records)):
        again = FileLog.open(folder, position)
        assert again.head == records[-1].position
        again.close()


@pytest.mark.usefixtures("small_segments")
def test_a_batch_lies_in_one_segment(log: FileLog, folder: Path) -> None:
    write(log, 2)
    commit(log, [draft(n, 300) for n in range(3, 9)])
    assert len(list(folder.iterdir())) == 1
    assert log.verify() == 8


@pytest.mark.usefixtures("small_segments")
def test_a_lost_segment_is_found(log: FileLog, folder: Path) -> None:
    write(log, 20)
    paths = sorted(folder.iterdir())
    for path in paths:
        content = path.read_bytes()
        path.unlink()
        refused("store.corrupt", log.verify)
        refused("store.corrupt", lambda: FileLog.open(folder, log.head).verify())
        path.write_bytes(content)
    assert log.verify() == 20


@pytest.mark.usefixtures("small_segments")
def test_an_empty_last_segment_is_no_harm(log: FileLog, folder: Path) -> None:
    """A crash between making a segment and its first record leaves an empty segment."""
    write(log, 10)
    (folder / "000000000011.ndjson").touch()
    log.close()
    again = FileLog.open(folder, log.head)
    write(again, 1)
    assert again.verify() == 11
    again.close()


# ------------------------------------------------------------------------ torn tail


def last_line(path: Path) -> int:
    """Offset at which the last line begins."""
    return path.read_bytes().rstrip(b"\n").rfind(b"\n") + 1


def test_a_torn_last_line_is_cut_off_at_every_byte(log: FileLog, folder: Path) -> None:
    records = write(log, 3)
    log.close()
    path = folder / "000000000001.ndjson"
    data, start = path.read_bytes(), last_line(path)
    for size in range(start, len(data)):
        path.write_bytes(data[:size])
        again = FileLog.open(folder, records[1].position)
        assert again.head == records[1].position, size
        assert path.read_bytes() == data[:start], size
        assert write(again, 1)[0].seq == 3
        assert again.verify() == 3
        again.close()


def test_a_whole_unacknowledged_record_stays(log: FileLog, folder: Path) -> None:
    records = write(log, 3)
    log.close()
    again = FileLog.open(folder, records[1].position)
    assert again.head == records[2].position
    again.close()


def test_a_torn_only_line(log: FileLog, folder: Path) -> None:
    write(log, 1)
    log.close()
    path = folder / "000000000001.ndjson"
    path.write_bytes(path.read_bytes()[:40])
    again = FileLog.open(folder)
    assert again.head == START
    assert write(again, 1)[0].seq == 1
    assert again.verify() == 1
    again.close()


@pytest.mark.usefixtures("small_segments")
def test_a_torn_first_line_of_a_later_segment(log: FileLog, folder: Path) -> None:
    write(log, 10)
    log.close()
    path = folder / "000000000011.ndjson"
    path.write_bytes(b'{"seq":11,"ts":"20')
    again = FileLog.open(folder, log.head)
    assert again.head == log.head
    write(again, 1)
    assert again.verify() == 11
    again.close()


def test_what_a_view_has_applied_is_never_cut_off(log: FileLog, folder: Path) -> None:
    """A cut end of an applied record is no torn tail: it is damage, left for a salvage."""
    write(log, 3)
    log.close()
    path = folder / "000000000001.ndjson"
    data, start = path.read_bytes(), last_line(path)
    for size in {start + 1, (start + len(data)) // 2, len(data) - 1}:
        path.write_bytes(data[:size])
        refused("store.corrupt", lambda: FileLog.open(folder, log.head))
        assert path.read_bytes() == data[:size]
    path.write_bytes(data[:-1] + b"\x0b")
    refused("store.corrupt", lambda: FileLog.open(folder, log.head))
    assert path.read_bytes() == data[:-1] + b"\x0b"


# ---------------------------------------------------------- a hole in the last write


def with_hole(data: bytes, start: int, end: int) -> bytes:
    return data[:start] + bytes(end - start) + data[end:]


@pytest.mark.parametrize("torn", [b"", b'{"seq":7,"ts":"20'], ids=["whole", "torn"])
def test_a_write_with_a_hole_is_cut_off(log: FileLog, folder: Path, torn: bytes) -> None:
    """Pages of the last write reached the disk, and one before them did not."""
    synced = write(log, 2, size=500)
    before = whole(folder)
    later = commit(log, [draft(number, 700) for number in range(3, 7)])
    log.close()
    path = folder / "000000000001.ndjson"
    data = path.read_bytes()
    bounds = [len(before), *range((len(before) // 512 + 1) * 512, len(data), 512)]
    ends = [0, *(number + 1 for number, byte in enumerate(data) if byte == 10)]
    for start, end in itertools.combinations(bounds, 2):
        path.write_bytes(with_hole(data, start, end) + torn)
        intact = [*synced, *later][: sum(place <= start for place in ends[1:])]
        assert not survey_folder(folder, synced[-1].position).damaged
        again = FileLog.open(folder, synced[-1].position)
        assert list(again.read()) == intact and again.head == intact[-1].position
        assert path.read_bytes() == data[: ends[len(intact)]]
        assert write(again, 1)[0].seq == again.verify() == len(intact) + 1
        again.close()


@pytest.mark.usefixtures("small_segments")
def test_a_hole_at_the_start_of_a_segment(log: FileLog, folder: Path) -> None:
    position = write(log, 1, size=1000)[-1].position
    commit(log, [draft(2, 700), draft(3, 700)])
    log.close()
    path = folder / "000000000002.ndjson"
    path.write_bytes(with_hole(path.read_bytes(), 0, 512))
    assert not survey_folder(folder, position).damaged
    again = FileLog.open(folder, position)
    assert again.head == position and not path.exists()
    assert write(again, 1)[0].seq == again.verify() == 2
    again.close()


def test_a_hole_that_is_damage_stays(log: FileLog, folder: Path) -> None:
    """Zeros in the place of a record that somebody may know, and zeros that are no block."""
    first = write(log, 1, size=500)[-1].position
    _, middle, last = commit(log, [draft(number, 700) for number in range(2, 5)])
    log.close()
    path = folder / "000000000001.ndjson"
    lines = path.read_bytes().splitlines(keepends=True)

    def holed(lines: list[bytes], *, before: int = 0, after: int = 0) -> bytes:
        """Returns the lines with zeros in the block in which the last one begins."""
        start = sum(map(len, lines[:-1])) // 512 * 512
        return with_hole(b"".join(lines), start + before, start + 512 - after)

    flipped = [lines[0].replace(b"token-1", b"token-0"), *lines[1:]]
    damages = [
        (holed(lines), middle.position),  # a view has applied a record that the hole begins in
        (holed(lines), last.position),
        (holed(lines), START),  # such as a backup, which has no views
        (holed(lines, before=1), first),
        (holed(lines, after=1), first),
        (holed(flipped), first),
        (holed([lines[0], *lines[2:]]), first),
        (holed([lines[0], lines[2], lines[1], lines[3]]), first),
    ]
    for damaged, position in damages:
        path.write_bytes(damaged)
        refused("store.corrupt", lambda at=position: FileLog.open(folder, at))  # type: ignore[misc]
        assert path.read_bytes() == damaged
        assert survey_folder(folder, position).damaged


@pytest.mark.usefixtures("small_segments")
def test_a_hole_in_an_earlier_segment_is_damage(log: FileLog, folder: Path) -> None:
    first = write(log, 1, size=500)[-1].position
    write(log, 3, size=700)
    log.close()
    path = folder / "000000000001.ndjson"
    damaged = with_hole(path.read_bytes(), 1024, 1536)
    path.write_bytes(damaged)
    refused("store.corrupt", lambda: FileLog.open(folder, first))
    assert path.read_bytes() == damaged


# --------------------------------------------------------------------------- damage


def whole(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.iterdir()))


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A log of six records."""
    folder = tmp_path_factory.mktemp("sample")
    log = FileLog.open(folder)
    write(log, 6)
    log.close()
    return whole(folder)


def checked(folder: Path, data: bytes) -> int:
    """Number of records that verify in a log of these bytes, opened without a known position."""
    folder.mkdir(exist_ok=True)
    (folder / "000000000001.ndjson").write_bytes(data)
    log = FileLog.open(folder)
    try:
        return log.verify()
    finally:
        log.close()


@given(data=st.data())
def test_a_flipped_bit_anywhere_is_found(
    data: st.DataObject, sample: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    at = data.draw(st.integers(0, len(sample) - 2))  # the last newline would be a torn tail
    bit = data.draw(st.integers(0, 7))
    damaged = bytearray(sample)
    damaged[at] ^= 1 << bit
    refused("store.corrupt", lambda: checked(tmp_path_factory.mktemp("log"), bytes(damaged)))


def test_every_member_is_under_the_hash(sample: bytes, tmp_path: Path) -> None:
    lines = sample.splitlines()
    for member in msgspec.json.decode(lines[2]):
        changed = msgspec.json.decode(lines[2])
        changed[member] = 7 if member == "seq" else "00" * 16
        if member in {"events", "result"}:
            changed[member] = []
        data = b"\n".join([*lines[:2], msgspec.json.encode(changed), *lines[3:]]) + b"\n"
        refused("store.corrupt", lambda data=data: checked(tmp_path, data))  # type: ignore[misc]


@given(data=st.data())
def test_lost_repeated_and_swapped_lines_are_found(
    data: st.DataObject, sample: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    lines = sample.splitlines()
    kind = data.draw(st.sampled_from(["lost", "repeated", "swapped"]))
    at = data.draw(st.integers(0, len(lines) - 2))
    if kind == "lost":
        del lines[at]
    elif kind == "repeated":
        lines.insert(at, lines[data.draw(st.integers(0, len(lines) - 1))])
    else:
        other = data.draw(st.integers(at + 1, len(lines) - 1))
        lines[at], lines[other] = lines[other], lines[at]
    changed = b"\n".join(lines) + b"\n"
    refused("store.corrupt", lambda: checked(tmp_path_factory.mktemp("log"), changed))


def test_damage_is_located(log: FileLog, folder: Path) -> None:
    write(log, 3)
    path = folder / "000000000001.ndjson"
    path.write_bytes(path.read_bytes().replace(b"token-3", b"token-4"))
    error = refused("store.corrupt", log.verify)
    assert error.detail == {"segment": path.name, "line": 3, "seq": 3}


def test_a_log_cut_at_a_records_end_is_found(log: FileLog, folder: Path) -> None:
    write(log, 3)
    log.close()
    path = folder / "000000000001.ndjson"
    path.write_bytes(path.read_bytes()[: last_line(path)])
    error = refused("store.corrupt", lambda: FileLog.open(folder, log.head))
    assert error.detail == {"expected_seq": 3, "last_seq": 2}
    path.unlink()
    assert refused("store.corrupt", lambda: FileLog.open(folder, log.head)).detail == {
        "expected_seq": 3
    }


def test_a_replaced_record_is_found(log: FileLog, folder: Path) -> None:
    write(log, 3)
    log.close()
    refused("store.corrupt", lambda: FileLog.open(folder, Position(3, "ab" * 16)))


def test_opening_checks_only_what_the_views_have_not_seen(log: FileLog, folder: Path) -> None:
    """Opening a large store stays quick; `verify` checks all records."""
    write(log, 3)
    log.close()
    path = folder / "000000000001.ndjson"
    path.write_bytes(path.read_bytes().replace(b"token-1", b"token-9"))
    again = FileLog.open(folder, log.head)
    assert again.head == log.head
    refused("store.corrupt", again.verify)
    refused("store.corrupt", lambda: FileLog.open(folder))


# ---------------------------------------------------------------- rollback, failures


def test_no_byte_is_left_of_a_batch_that_is_not_committed(log: FileLog, folder: Path) -> None:
    write(log, 2)
    before = whole(folder)
    with log.batch() as batch:
        batch.append([draft(3), draft(4)])
        batch.append([draft(5)])
    assert whole(folder) == before
    assert (log.head.seq, log.last_ts) == (2, draft(2).ts)
    assert write(log, 1)[0].seq == 3
    assert log.verify() == 3


class Disk:
    """Passes system calls on, except where a test sets an error."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.write_fails_after: int | None = None
        self.sync_error: int | None = None
        self.truncate_error: int | None = None
        self._write, self._sync, self._truncate = os.write, os.fdatasync, os.ftruncate
        monkeypatch.setattr("kbproc.base.disk.write", self.write)
        monkeypatch.setattr("kbproc.base.disk.sync_data", self.fdatasync)
        monkeypatch.setattr("kbproc.base.disk.truncate", self.ftruncate)

    def write(self, fd: int, data: Any) -> int:
        if self.write_fails_after is None:
            return self._write(fd, data)
        if not self.write_fails_after:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        part, self.write_fails_after = bytes(data)[: self.write_fails_after], 0
        return self._write(fd, part)

    def fdatasync(self, fd: int) -> None:
        if self.sync_error:
            raise OSError(self.sync_error, os.strerror(self.sync_error))
        self._sync(fd)

    def ftruncate(self, fd: int, size: int) -> None:
        if self.truncate_error:
            raise OSError(self.truncate_error, os.strerror(self.truncate_error))
        self._truncate(fd, size)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


@pytest.mark.parametrize("written", [0, 1, 100])
def test_a_full_disk_leaves_nothing_behind(
    log: FileLog, folder: Path, disk: Disk, written: int
) -> None:
    write(log, 2)
    before, head = whole(folder), log.head
    disk.write_fails_after = written
    refused("store.io", lambda: commit(log, [draft(3)]))
    assert (whole(folder), log.head) == (before, head)
    assert log.verify() == 2
    disk.write_fails_after = None
    assert write(log, 1)[0].seq == 3
    assert log.verify() == 3


def test_a_short_write_is_continued(log: FileLog, disk: Disk) -> None:
    calls: list[int] = []
    real = disk._write

    def few(fd: int, data: Any) -> int:
        calls.append(1)
        return real(fd, bytes(data)[:7])

    disk._write = few
    write(log, 2)
    assert len(calls) > 50
    assert log.verify() == 2


def test_after_a_failed_fsync_the_log_goes_on_in_another_segment(
    log: FileLog, folder: Path, disk: Disk
) -> None:
    write(log, 2)
    before = whole(folder)
    disk.sync_error = errno.EIO
    for _ in range(3):
        refused("store.io", lambda: commit(log, [draft(3)]))
        assert log.verify() == 2, "reads go on"
    disk.sync_error = None
    assert write(log, 1)[0].seq == 3
    assert log.verify() == 3
    assert [path.name for path in segments(folder)] == [name_of(1), name_of(3)]
    assert segments(folder)[0].read_bytes() == before, "what was acknowledged, and nothing else"
    log.close()
    again = FileLog.open(folder, log.head)
    assert write(again, 1)[0].seq == 4
    again.close()


@pytest.mark.parametrize("since", [0, 1])
@pytest.mark.parametrize("after", [0, 1, 2], ids=["nothing", "a record", "two records"])
def test_nothing_is_acknowledged_in_a_segment_that_another_process_has_put_aside(
    log: FileLog, folder: Path, after: int, since: int
) -> None:
    write(log, 2)
    [segment] = segments(folder)
    with log.batch() as batch:
        for n in range(after):
            batch.append([draft(3 + n)])
        segment.rename(folder / "aside")
        segment.write_bytes((folder / "aside").read_bytes())

        def go_on() -> None:
            for n in range(since):
                batch.append([draft(9 + n)])
            batch.commit()

        if after or since:
            refused("store.io", go_on)
    segment.unlink()
    (folder / "aside").rename(segment)
    assert log.head.seq == log.verify() == 2


def test_what_a_failed_fsync_has_harmed_is_found_before_anything_is_acknowledged(
    log: FileLog, folder: Path, disk: Disk
) -> None:
    """After a failed fsync the kernel may mark a page clean that the disk never got."""
    write(log, 2)
    disk.sync_error = errno.EIO
    refused("store.io", lambda: commit(log, [draft(3)]))
    disk.sync_error = None
    segment = segments(folder)[0]
    sound = segment.read_bytes()
    with segment.open("rb+") as file:
        file.write(sound[:-20] + b"\0" * 20)
    for _ in range(2):
        refused("store.corrupt", lambda: commit(log, [draft(3)]))
    with segment.open("rb+") as file:
        file.write(sound)
    assert write(log, 1)[0].seq == 3


def test_what_can_not_be_taken_back_is_cut_off_before_the_next_write(
    log: FileLog, folder: Path, disk: Disk
) -> None:
    write(log, 2)
    before = whole(folder)
    disk.write_fails_after, disk.truncate_error = 10, errno.EIO
    for _ in range(2):
        refused("store.io", lambda: commit(log, [draft(3)]))
    disk.write_fails_after = disk.truncate_error = None
    assert write(log, 1)[0].seq == 3
    assert segments(folder)[0].read_bytes() == before
    assert log.verify() == 3


def test_a_new_segments_name_is_made_durable_before_anything_is_acknowledged(
    log: FileLog, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failed fsync of the folder, the next write tries it again."""
    synced: list[bool] = []
    real = os.fsync
    broken = [True]

    def fsync(fd: int) -> None:
        if broken:
            broken.clear()
            raise OSError(errno.EIO, "once")
        synced.append(stat.S_ISDIR(os.fstat(fd).st_mode))
        real(fd)

    monkeypatch.setattr("kbproc.base.disk.sync", fsync)
    refused("store.io", lambda: write(log, 1))
    write(log, 1)
    assert synced == [True]


def test_verify_does_not_stumble_over_a_record_that_is_being_written(
    log: FileLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(log, 3)
    real, half, verified = os.write, threading.Event(), threading.Event()

    def slow(fd: int, data: Any) -> int:
        if threading.current_thread().name != "writer" or half.is_set():
            return real(fd, data)
        written = real(fd, bytes(data)[:50])
        half.set()
        assert verified.wait(PATIENCE)
        return written

    monkeypatch.setattr("kbproc.base.disk.write", slow)
    writer = threading.Thread(target=write, args=(log, 1), name="writer")
    writer.start()
    assert half.wait(PATIENCE)
    try:
        assert log.verify() == 3
    finally:
        verified.set()
        writer.join()
    assert log.verify() == 4


def test_a_letter_made_large_is_damage(tmp_path: Path) -> None:
    """One flipped bit turns b into B: the same hexadecimal number, but other bytes."""
    log = FileLog.open(tmp_path)
    record = next(
        r for r in commit(log, [draft(n) for n in range(1, 41)]) if r.prev.upper() != r.prev
    )
    assert records.is_sound(record)
    assert not records.is_sound(msgspec.structs.replace(record, prev=record.prev.upper()))
    log.close()
