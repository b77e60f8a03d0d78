"""Blobs: a name that can be seen stands for whole, durable bytes."""

from __future__ import annotations

import errno
import gc
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbproc.base import durable
from kbproc.base.checksums.journal import ROOM, Journal
from kbproc.base.errors import KbprocError
from kbproc.sources.blobs import Blobs, digest, sweep
from tests.kit.patience import PATIENCE

LARGE = (1 << 20) + 1


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    return opened(tmp_path / "blobs")


def opened(folder: Path, **how: Any) -> Blobs:
    """As by a process that begins."""
    blobs = Blobs(folder, **how)
    blobs.recall()
    return blobs


def stored(blobs: Blobs, data: bytes) -> str:
    """Its sha256, once a record may have named it."""
    held = blobs.put(data)
    blobs.settle([held.name])
    blobs.named([held.name])
    return held.name


def all_files(blobs: Blobs) -> list[Path]:
    return [path for path in blobs.folder.rglob("*") if path.is_file()]


@given(data=st.binary(max_size=2000))
def test_round_trip(data: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    blobs = opened(tmp_path_factory.mktemp("blobs"))
    assert blobs.get(stored(blobs, data)) == data


def test_equal_bytes_are_stored_once(blobs: Blobs) -> None:
    first = stored(blobs, b"hello")
    [path] = all_files(blobs)
    before = path.stat()
    assert stored(blobs, b"hello") == first == digest(b"hello")
    assert path.stat() == before
    assert path == blobs.path(first)
    assert path.relative_to(blobs.folder).parts == (first[:2], first)


def test_stores_of_before_have_them_one_folder_deeper(blobs: Blobs) -> None:
    sha256 = stored(blobs, b"hello")
    [path] = all_files(blobs)
    older = path.with_name(sha256[2:4]) / sha256
    older.parent.mkdir()
    path.rename(older)
    half = older.with_suffix(".tmp")
    half.write_bytes(b"half")
    sweep(blobs.folder)
    blobs = opened(blobs.folder)
    assert not half.exists()
    assert stored(blobs, b"hello") == sha256
    assert blobs.paths() == all_files(blobs) == [older]
    assert blobs.path(sha256) == older
    assert blobs.get(sha256) == b"hello"
    assert blobs.erase(sha256) == 5
    assert all_files(blobs) == []


def test_a_link_is_no_source(blobs: Blobs, journal: Path, tmp_path: Path) -> None:
    """What it leads to may be changed by others: the bytes take its place."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(b"hello")
    link = blobs.path(digest(b"hello"))
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(elsewhere)
    assert blobs.path(stored(blobs, b"hello")) == link
    blobs.sync()
    assert not link.is_symlink()
    assert link.read_bytes() == b"hello"


def test_only_the_owner_may_look(blobs: Blobs) -> None:
    path = blobs.path(stored(blobs, b"secret"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_missing_and_a_damaged_blob_are_told_apart(blobs: Blobs) -> None:
    sha256 = stored(blobs, b"hello")
    blobs.path(sha256).write_bytes(b"hellp")
    with pytest.raises(KbprocError, match="damaged") as damaged:
        blobs.get(sha256)
    blobs.path(sha256).unlink()
    with pytest.raises(KbprocError, match="missing") as missing:
        blobs.get(sha256)
    assert damaged.value.type == missing.value.type == "store.corrupt"
    assert missing.value.detail == {"blob": sha256}


def test_a_full_disk_leaves_nothing_behind(blobs: Blobs, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write

    def full(fd: int, data: Any) -> int:
        if len(data) <= 10:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, bytes(data)[:-10])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(KbprocError) as refused:
        stored(blobs, b"x" * 100)
    assert refused.value.type == "store.io"
    assert all_files(blobs) == []
    monkeypatch.setattr(os, "write", real)
    assert blobs.get(stored(blobs, b"x" * 100)) == b"x" * 100


def test_a_failed_fsync_names_nothing(blobs: Blobs, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(fd: int) -> None:
        raise OSError(errno.EIO, "no")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(KbprocError):
        stored(blobs, b"hello")
    assert not blobs.path(digest(b"hello")).exists()


def test_the_bytes_are_synced_before_the_name_and_the_name_before_it_is_told(
    blobs: Blobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored(blobs, b"another")
    blobs = opened(blobs.folder)
    order: list[tuple[str, bool]] = []
    real, target = os.fsync, blobs.path(digest(b"hello"))

    def fsync(fd: int) -> None:
        kind = "folder" if stat.S_ISDIR(os.fstat(fd).st_mode) else "data"
        order.append((kind, target.exists()))
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    stored(blobs, b"hello")
    assert ("data", True) not in order
    assert order.index(("data", False)) < order.index(("folder", True))


def test_two_threads_may_store_the_same_bytes(
    blobs: Blobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who puts what another is writing just now has it durable all the same."""
    data, real = b"same" * 1000, os.write
    writing, goes_on = threading.Event(), threading.Event()

    def slow(fd: int, part: Any) -> int:
        writing.set()
        assert goes_on.wait(PATIENCE)
        return real(fd, part)

    monkeypatch.setattr(os, "write", slow)
    first = threading.Thread(target=stored, args=(blobs, data))
    first.start()
    assert writing.wait(PATIENCE)
    there: list[bool] = []

    def put() -> None:
        there.append(blobs.path(stored(blobs, data)).exists())

    second = threading.Thread(target=put)
    second.start()
    goes_on.set()
    first.join()
    second.join()
    assert there == [True]
    assert blobs.get(digest(data)) == data
    assert all_files(blobs) == [blobs.path(digest(data))]


def test_what_could_not_be_stored_is_stored_the_next_time(
    blobs: Blobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write that found the same bytes held counts on them."""
    held = blobs.put(b"hello")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(KbprocError):
            blobs.settle([held.name])
    another = blobs.put(b"hello")
    del held
    blobs.settle([another.name])
    assert blobs.get(digest(b"hello")) == b"hello"


def test_what_is_erased_after_a_large_source_was_put_is_told(blobs: Blobs) -> None:
    """Another document of the same bytes is purged before this one has its record."""
    data = bytes(LARGE)
    sha256 = stored(blobs, data)
    held, another = blobs.put(data), blobs.put(data)
    assert held is another
    blobs.settle([digest(b"another")])
    assert blobs.erase(sha256) == LARGE
    for _ in range(2):
        with pytest.raises(KbprocError, match="erased meanwhile") as refused:
            blobs.settle([sha256])
        assert refused.value.type == "store.io"
    del held, another, refused
    blobs.settle([sha256])  # a record of the past, whose source is lost, may name it
    assert blobs.get(stored(blobs, data)) == data


def test_what_is_erased_after_a_small_source_was_put_is_stored_again(blobs: Blobs) -> None:
    sha256 = stored(blobs, b"hello")
    held = blobs.put(b"hello")
    assert blobs.erase(sha256) == 5
    blobs.settle([held.name])
    assert blobs.get(sha256) == b"hello"


# ------------------------------------------------------------ what no record names


def test_a_small_source_is_nowhere_until_it_is_settled(blobs: Blobs, journal: Path) -> None:
    before, held = blobs.paths(), blobs.put(b"a secret")
    assert blobs.paths() == before
    del held
    stored(blobs, b"the third")
    assert b"a secret" not in journal.read_bytes()
    assert len(blobs.paths()) == len(before) + 1


@pytest.mark.parametrize("how", ["large", "with others", "settled"])
def test_what_no_record_has_named_goes_with_who_holds_it(
    blobs: Blobs, journal: Path, how: str
) -> None:
    data, before = b"a secret" * (LARGE if how == "large" else 1), blobs.paths()
    one, another = blobs.put(data), blobs.put(data)
    if how == "with others":
        blobs.settle([])
    elif how == "settled":
        blobs.settle([one.name])
    del one
    assert blobs.get(digest(data)) == data, "another holds it"
    del another
    assert blobs.paths() == before
    assert b"a secret" not in journal.read_bytes()


def test_what_ends_in_any_line_of_a_thread_waits_for_nobody(blobs: Blobs, journal: Path) -> None:
    """A collector of garbage may run where a lock is held that making files needs."""
    small, large = [blobs.put(b"a secret")], [blobs.put(b"a secret" * LARGE)]
    blobs.settle([])
    before, kept = all_files(blobs), journal.read_bytes()
    small.clear()
    large.clear()
    assert (all_files(blobs), journal.read_bytes()) == (before, kept)
    blobs.sync()
    assert b"a secret" not in b"".join(path.read_bytes() for path in [journal, *all_files(blobs)])


@pytest.mark.parametrize("size", [5, (1 << 20) + 1])
def test_what_a_record_has_named_stays(blobs: Blobs, size: int) -> None:
    """Whoever else holds it."""
    held = blobs.put(bytes(size))
    stored(blobs, bytes(size))
    del held
    held = blobs.put(bytes(size))
    del held
    assert blobs.get(digest(bytes(size))) == bytes(size)


def test_what_another_has_stored_and_named_meanwhile_stays(
    blobs: Blobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two store the same large source; the second, which comes to nothing, waits for the first."""
    data, waits = b"x" * LARGE, threading.Event()
    real, storing = os.fsync, threading.Event()

    def slow(fd: int) -> None:
        storing.set()
        assert waits.wait(PATIENCE)
        real(fd)

    first = threading.Thread(target=stored, args=(blobs, data))
    second = threading.Thread(target=blobs.put, args=(data,))
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", slow)
        first.start()
        assert storing.wait(PATIENCE)
        second.start()
        waits.set()
        first.join()
        second.join()
    assert blobs.get(digest(data)) == data


def test_what_was_lost_and_is_healed_meanwhile_stays(blobs: Blobs) -> None:
    held = blobs.put(b"hello")
    blobs.settle([])
    blobs.heal(held.name, b"hello")
    sha256 = held.name
    del held
    assert blobs.get(sha256) == b"hello"


def test_what_is_let_go_while_another_stores_goes_after_it(
    blobs: Blobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored(blobs, b"another")
    held, real = [blobs.put(b"x" * LARGE)], os.fsync

    def let_go(fd: int) -> None:
        held.clear()
        real(fd)

    monkeypatch.setattr(os, "fsync", let_go)
    stored(blobs, b"y" * LARGE)
    assert not held
    assert len(all_files(blobs)) == 2


def test_what_another_has_named_between_a_look_and_waiting_stays(
    blobs: Blobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever puts the same bytes may see that they have no file just before they get one."""
    real = Blobs._is_stored

    def late(self: Blobs, sha256: str) -> bool:
        found = real(self, sha256)
        monkeypatch.undo()
        stored(blobs, b"hello")  # another's, from end to end
        return found

    monkeypatch.setattr(Blobs, "_is_stored", late)
    held = blobs.put(b"hello")
    blobs.settle(())
    name = held.name
    del held
    gc.collect()
    blobs.settle(())
    blobs.sync()
    assert blobs.get(name) == b"hello"


def test_a_large_source_does_not_wait(blobs: Blobs) -> None:
    data = bytes(LARGE)
    held = blobs.put(data)
    assert blobs.get(held.name) == data


def test_many_share_their_folders_syncs(blobs: Blobs, monkeypatch: pytest.MonkeyPatch) -> None:
    stored(blobs, b"another")
    blobs = opened(blobs.folder)
    synced: list[str] = []
    real = os.fsync

    def fsync(fd: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{fd}").readlink()))
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    sources = [b"%d" % number for number in range(100)]
    held = [blobs.put(data) for data in sources]
    blobs.settle([one.name for one in held])
    assert [blobs.get(digest(data)) for data in sources] == sources
    folders = [path for path in synced if not path.endswith(".tmp")]
    assert len(synced) - len(folders) == len(sources)
    assert len(folders) == len(set(folders))
    assert {blobs.path(digest(data)).parent for data in sources} <= set(map(Path, folders))


def full(fd: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


# ------------------------------------------------------------ durable before their files are


@pytest.fixture
def journal(blobs: Blobs) -> Path:
    """There from the second write on."""
    stored(blobs, b"the first")
    stored(blobs, b"the second")
    return blobs.folder.with_name("blobs.journal")


def test_one_write_makes_no_journal(blobs: Blobs) -> None:
    stored(blobs, b"hello")
    blobs.close()
    assert sorted(path.name for path in blobs.folder.parent.iterdir()) == ["blobs"]


def test_what_waits_is_durable_for_one_sync(
    blobs: Blobs, journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No new file, no name: what is synced had its room on the disk."""
    synced: list[tuple[str, int]] = []

    def seen(fd: int) -> None:
        path = Path(f"/proc/self/fd/{fd}").readlink()
        synced.append((path.name, path.stat().st_size))

    monkeypatch.setattr(os, "fsync", seen)
    monkeypatch.setattr(os, "fdatasync", seen)
    held = [blobs.put(b"%d" % number) for number in range(10)]
    blobs.settle([one.name for one in held])
    assert synced == [("blobs.journal", ROOM)]
    assert journal.stat().st_mode & 0o777 == 0o600


def test_what_waits_has_no_file_before_somebody_looks_for_it(blobs: Blobs, journal: Path) -> None:
    before, names = all_files(blobs), [stored(blobs, b"%d" % number) for number in range(10)]
    assert all_files(blobs) == before
    assert [blobs.get(name) for name in names] == [b"%d" % number for number in range(10)]
    told = [blobs.stored(name) for name in names]
    assert [(one.size, one.open().read()) for one in told if one] == [
        (1, b"%d" % n) for n in range(10)
    ]
    blobs.sync()
    assert [blobs.path(name).read_bytes() for name in names] == [b"%d" % n for n in range(10)]
    assert not journal.read_bytes().strip(b"\0")


def test_files_that_can_not_be_made_are_made_later(
    blobs: Blobs, journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk what was acknowledged is read on, and outlives the process."""
    name = stored(blobs, b"hello")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(KbprocError) as refused:
            blobs.sync()
        assert refused.value.type == "store.io"
        assert blobs.get(name) == b"hello"
    after = opened(blobs.folder)
    assert after.get(name) == b"hello"
    blobs.sync()
    assert blobs.path(name).read_bytes() == b"hello"


@pytest.mark.parametrize("many", [40, 80])
@pytest.mark.parametrize("left", [None, b"", b"ot", b"anothes"])
def test_a_power_failure_takes_no_source(
    blobs: Blobs, journal: Path, left: bytes | None, many: int
) -> None:
    """Of a file that was not synced nothing may be there, or a part, or what was there before."""
    sources = [b"another", *(b"%d" % number for number in range(many))]
    for data in sources:
        stored(blobs, data)
    if left is not None:  # it died while their files were made
        for data in sources:
            path = blobs.folder / digest(data)[:2] / digest(data)
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(left)
    after = opened(blobs.folder)
    assert [after.get(digest(data)) for data in sources] == sources
    after.close()
    assert not journal.exists()
    assert [after.path(digest(data)).read_bytes() for data in sources] == sources


def test_a_frame_that_was_torn_ends_the_journal(blobs: Blobs, journal: Path) -> None:
    lost, kept = stored(blobs, b"lost" * 9), digest(b"the second")
    data = journal.read_bytes()
    assert b"lostlost" in data
    journal.write_bytes(data.replace(b"lostlost", b"lostlos\0", 1))
    after = opened(blobs.folder)
    assert after.get(kept) == b"the second"
    with pytest.raises(KbprocError):
        after.get(lost)


def test_a_full_journal_is_emptied(blobs: Blobs, journal: Path) -> None:
    """Whatever it held has its file, which is synced; nothing of it is left."""
    sources = [b"%06d" % number * 9000 for number in range(60)]
    names = [stored(blobs, data) for data in sources]
    assert journal.stat().st_size == ROOM
    assert sum(data in journal.read_bytes() for data in sources) < 20
    assert [blobs.get(name) for name in names] == sources


def test_nothing_is_left_of_what_is_erased(blobs: Blobs, journal: Path) -> None:
    sha256 = stored(blobs, b"a secret")
    assert b"a secret" in journal.read_bytes()
    assert blobs.erase(sha256) == 8
    assert not journal.read_bytes().strip(b"\0")
    assert opened(blobs.folder).paths() == blobs.paths()
    assert not blobs.path(sha256).exists()


def test_nothing_is_left_of_what_the_journal_could_not_take(
    blobs: Blobs, journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(fd: int) -> None:
        raise OSError(errno.EIO, "bad")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", refused)
        sha256 = stored(blobs, b"a secret")
    assert b"a secret" in journal.read_bytes()
    assert blobs.erase(sha256) == 8
    assert b"a secret" not in journal.read_bytes()


def test_the_end_leaves_files_only(blobs: Blobs, journal: Path) -> None:
    stored(blobs, b"hello")
    blobs.sync()
    assert not journal.read_bytes().strip(b"\0")
    stored(blobs, b"world")
    blobs.close()
    assert not journal.exists()
    assert blobs.get(digest(b"world")) == b"world"


def test_files_that_can_not_be_synced_are_written_again(
    blobs: Blobs, journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel may have dropped what it could not write, and say that all is well now."""
    sha256, real = stored(blobs, b"hello"), os.fsync
    path = blobs.folder / sha256[:2] / sha256

    def refused(fd: int) -> None:
        if Path(f"/proc/self/fd/{fd}").readlink() == path:
            path.write_bytes(b"")
            raise OSError(errno.EIO, "bad")
        real(fd)

    monkeypatch.setattr(os, "fsync", refused)
    blobs.sync()
    assert blobs.get(sha256) == b"hello"


ONE_SYNC = pytest.mark.skipif(
    not durable.syncs_filesystem("."), reason="only Linux syncs a whole file system and tells"
)


@ONE_SYNC
def test_many_files_are_made_with_one_sync(
    blobs: Blobs, journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [stored(blobs, b"%d" % number) for number in range(100)]
    left = list[bytes]()

    def synced(fd: int) -> None:
        left.append(journal.read_bytes().strip(b"\0"))
        assert [blobs.path(name).read_bytes() for name in names] == sources
        real(fd)

    sources, real = [b"%d" % number for number in range(100)], durable.sync_filesystem
    monkeypatch.setattr(durable, "sync_filesystem", synced)
    blobs.sync()
    assert all(left)  # the journal holds them until then
    assert len(left) == 1
    assert not journal.read_bytes().strip(b"\0")


@ONE_SYNC
def test_many_that_can_not_be_synced_are_written_again(
    blobs: Blobs, journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [stored(blobs, b"%d" % number) for number in range(100)]

    def refused(fd: int) -> None:
        for path in all_files(blobs):
            path.write_bytes(b"")
        raise OSError(errno.EIO, "bad")

    monkeypatch.setattr(durable, "sync_filesystem", refused)
    blobs.sync()
    assert not journal.read_bytes().strip(b"\0")
    assert [blobs.path(name).read_bytes() for name in names] == [b"%d" % n for n in range(100)]


def test_where_no_journal_can_be_written_files_are_synced(
    blobs: Blobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "blobs.journal").mkdir()
    synced: list[str] = []
    monkeypatch.setattr(
        os, "fsync", lambda fd: synced.append(Path(f"/proc/self/fd/{fd}").readlink().suffix)
    )
    for number in range(3):
        assert blobs.get(stored(blobs, b"%d" % number)) == b"%d" % number
    assert synced.count(".tmp") == 3


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("elsewhere")])
def test_only_a_file_is_taken_for_a_journal(
    blobs: Blobs, tmp_path: Path, make: Callable[[Path], None]
) -> None:
    make(tmp_path / "blobs.journal")
    for number in range(3):
        stored(blobs, b"%d" % number)
    assert not (tmp_path / "elsewhere").exists()
    with pytest.raises(KbprocError, match="journal of sources can't be read"):
        opened(blobs.folder)


def test_a_full_disk_keeps_nobody_from_what_was_left(
    blobs: Blobs, journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is written before somebody writes; what has its file can be erased."""
    filed = stored(blobs, b"filed")
    blobs.sync()
    left = stored(blobs, b"left")
    with monkeypatch.context() as patch:
        patch.setattr("kbproc.base.durable.write_all", lambda fd, data: full(fd))
        after = opened(blobs.folder)
        assert (after.get(left), after.broken([left, filed], deep=True)) == (b"left", [])
        assert after.erase(filed) == 5
        with pytest.raises(KbprocError):
            after.sync()
    stored(after, b"more")
    assert [source for source in (b"left", b"more") if source in journal.read_bytes()]
    after.close()
    assert after.path(left).read_bytes() == b"left"


def test_of_what_another_store_holds_nothing_is_changed(blobs: Blobs, journal: Path) -> None:
    """Whoever reads a store of somebody else's has its sources, too, and their journal stays."""
    name, before = stored(blobs, b"theirs"), journal.read_bytes()
    place = blobs.folder.parent / "place"
    place.mkdir()
    (place / "blobs").symlink_to(blobs.folder)
    reader = opened(place / "blobs", origin=blobs.folder.parent)
    assert reader.get(name) == b"theirs"
    reader.sync()
    reader.close()
    assert journal.read_bytes() == before
    assert not blobs.path(name).exists()


def test_what_was_left_is_durable_before_anybody_relies_on_it(
    blobs: Blobs, journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever wrote it may have been killed just before its sync."""
    stored(blobs, b"left")
    synced: list[str] = []
    monkeypatch.setattr(
        os, "fdatasync", lambda fd: synced.append(Path(f"/proc/self/fd/{fd}").readlink().name)
    )
    after = opened(blobs.folder)
    assert synced == ["blobs.journal"]
    assert after.get(stored(after, b"left")) == b"left"


def test_whoever_has_not_looked_into_a_journal_leaves_it_alone(blobs: Blobs, journal: Path) -> None:
    name, before = stored(blobs, b"left"), journal.read_bytes()
    another = Blobs(blobs.folder)
    for data in (b"one", b"two"):
        assert another.get(stored(another, data)) == data
    another.close()
    assert journal.read_bytes() == before
    assert opened(blobs.folder).get(name) == b"left"


def test_a_rotten_frame_hides_none_behind_it(blobs: Blobs, journal: Path) -> None:
    names = [stored(blobs, data * 9) for data in (b"one", b"rotten", b"three")]
    journal.write_bytes(journal.read_bytes().replace(b"rotten", b"rottem", 1))
    after = opened(blobs.folder)
    assert after.broken(names, deep=True) == [names[1]]
    after.close()
    assert after.path(names[2]).read_bytes() == b"three" * 9


def test_whoever_may_not_read_a_journal_reads_the_rest(
    blobs: Blobs, journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filed = stored(blobs, b"filed")
    blobs.sync()
    place = blobs.folder.parent / "place"
    place.mkdir()
    (place / "blobs").symlink_to(blobs.folder)

    def denied(self: Journal) -> list[bytes]:
        raise PermissionError(errno.EACCES, "no")

    monkeypatch.setattr(Journal, "read", denied)
    assert opened(place / "blobs", origin=blobs.folder.parent).get(filed) == b"filed"
    with pytest.raises(KbprocError):
        opened(blobs.folder)


def test_a_folder_that_is_another_by_now_gets_no_files(blobs: Blobs, journal: Path) -> None:
    def check() -> None:
        if blobs.folder.parent.name != "here" or not (blobs.folder.parent / "same").exists():
            raise KbprocError("store.io", "The folder is another one.")

    here = blobs.folder.parent / "here"
    here.mkdir()
    (here / "same").touch()
    blobs = opened(here / "blobs", check=check)
    names = [stored(blobs, data) for data in (b"first", b"second")]
    away = here.rename(here.with_name("away"))
    with pytest.raises(KbprocError):
        blobs.close()
    assert not here.exists()
    with pytest.raises(KbprocError):
        blobs.put(bytes(LARGE))
    with pytest.raises(KbprocError):
        blobs.erase(names[0])
    assert not here.exists()
    after = opened(away / "blobs")
    assert [after.get(name) for name in names] == [b"first", b"second"]
