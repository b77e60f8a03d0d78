"""Sources: what `adding` has let through is whole and durable, and nothing else is stored."""

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

from kbproc.base import failpoints
from kbproc.base.errors import KbprocError
from kbproc.engine.sources import packs
from kbproc.engine.sources.blobs import Blobs, NewSource, digest
from tests.kit.faults import killed_at
from tests.kit.patience import PATIENCE
from tests.kit.sources import frame_of, harm, source_files

LARGE = (1 << 20) + 1
SIZES = pytest.mark.parametrize("size", [5, LARGE], ids=["small", "large"])


@pytest.fixture
def store(tmp_path: Path) -> Path:
    folder = tmp_path / "store"
    folder.mkdir()
    return folder


@pytest.fixture
def blobs(store: Path) -> Blobs:
    return opened(store)


def opened(store: Path, **options: Any) -> Blobs:
    """Opens the sources as a new process does."""
    blobs = Blobs(store, **options)
    blobs.load()
    return blobs


def stored(blobs: Blobs, *sources: bytes) -> list[str]:
    """Stores the sources as if one record named them; returns their sha256s."""
    new = [blobs.put(data) for data in sources]
    with blobs.adding(new):
        pass
    return [source.name for source in new]


def pack_of(store: Path) -> Path:
    [pack] = (store / "sources").glob("*.pack")
    return pack


def full(*args: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@given(sources=st.lists(st.binary(max_size=2000), max_size=5))
def test_round_trip(sources: list[bytes], tmp_path_factory: pytest.TempPathFactory) -> None:
    store = tmp_path_factory.mktemp("store")
    blobs = opened(store)
    names = [name for data in sources for name in stored(blobs, data)]
    for reader in (blobs, opened(store)):
        assert [reader.get(name) for name in names] == sources
        assert reader.names() == sorted(set(names))
    blobs.close()
    assert [opened(store).get(name) for name in names] == sources


def test_small_sources_share_a_pack_and_larger_ones_have_files(blobs: Blobs, store: Path) -> None:
    small = stored(blobs, b"one", b"two", bytes(packs.SMALL_BYTES))
    [large] = stored(blobs, bytes(packs.SMALL_BYTES + 1))
    assert sorted(source_files(store)) == ["sources/000001.pack", f"sources/large/{large}"]
    assert blobs.names() == sorted([*small, large])
    sizes = [source.size for name in (*small, large) if (source := blobs.stored(name))]
    assert sizes == [3, 3, packs.SMALL_BYTES, packs.SMALL_BYTES + 1]
    with blobs.stored(large).open() as file:  # type: ignore[union-attr]
        assert digest(file.read()) == large


@SIZES
def test_equal_bytes_are_stored_once(blobs: Blobs, store: Path, size: int) -> None:
    names = stored(blobs, bytes(size))
    before = source_files(store)
    assert stored(blobs, bytes(size)) == names
    with blobs.adding([blobs.put(bytes(size)), blobs.put(bytes(size))]):
        pass
    assert source_files(store) == before


def test_only_the_owner_may_look(blobs: Blobs, store: Path) -> None:
    stored(blobs, b"secret", bytes(LARGE))
    for path in (store / "sources").rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


@SIZES
def test_a_missing_and_a_damaged_source_are_told_apart(
    blobs: Blobs, store: Path, size: int
) -> None:
    [name] = stored(blobs, bytes(size))
    harm(store, name, lambda data: data[:-1] + b"x")
    with pytest.raises(KbprocError, match="damaged") as damaged:
        blobs.get(name)
    assert blobs.broken([name], deep=False) == []
    assert blobs.broken([name], deep=True) == [name]
    blobs.erase([name])
    with pytest.raises(KbprocError, match="missing") as missing:
        blobs.get(name)
    assert damaged.value.type == missing.value.type == "store.corrupt"
    assert missing.value.detail == damaged.value.detail == {"blob": name}
    assert blobs.broken([name], deep=False) == [name]


def test_a_pack_that_is_gone_is_missed(blobs: Blobs, store: Path) -> None:
    [name] = stored(blobs, b"hello")
    pack_of(store).unlink()
    with pytest.raises(KbprocError, match="missing"):
        blobs.get(name)
    assert blobs.broken([name], deep=False) == [name]


def test_a_link_is_no_source(blobs: Blobs, store: Path, tmp_path: Path) -> None:
    """Others may change the file that a link leads to."""
    data, elsewhere = bytes(LARGE), tmp_path / "elsewhere"
    elsewhere.write_bytes(data)
    link = store / "sources" / "large" / digest(data)
    link.parent.mkdir(parents=True)
    link.symlink_to(elsewhere)
    with pytest.raises(KbprocError) as refused:
        blobs.get(digest(data))
    assert refused.value.type == "store.io"
    stored(blobs, data)
    assert not link.is_symlink()
    assert link.read_bytes() == data


# ------------------------------------------------------------------ what is durable when


def test_small_sources_are_durable_for_one_sync(
    blobs: Blobs, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second write allocates room, so that later ones change neither size nor blocks."""
    stored(blobs, b"the first")
    first = pack_of(store).stat().st_size
    assert first < 200, "a process that writes once needs no room for more"
    stored(blobs, b"the second")
    synced: list[tuple[str, int]] = []

    def seen(fd: int) -> None:
        path = Path(f"/proc/self/fd/{fd}").readlink()
        synced.append((path.name, path.stat().st_size))

    size = pack_of(store).stat().st_size
    monkeypatch.setattr("kbproc.base.disk.sync", seen)
    monkeypatch.setattr("kbproc.base.disk.sync_data", seen)
    stored(blobs, *(b"%d" % number for number in range(10)))
    assert synced == [("000001.pack", size)]
    assert size > 1 << 20
    monkeypatch.undo()
    blobs.close()
    assert pack_of(store).stat().st_size < 1000, "the end returns the room"


def test_the_bytes_are_synced_before_the_name_and_the_name_before_a_record(
    blobs: Blobs, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored(blobs, bytes(LARGE))
    order: list[tuple[str, bool]] = []
    real, data = os.fsync, b"x" * LARGE
    target = store / "sources" / "large" / digest(data)

    def fsync(fd: int) -> None:
        kind = "folder" if stat.S_ISDIR(os.fstat(fd).st_mode) else "data"
        order.append((kind, target.exists()))
        real(fd)

    monkeypatch.setattr("kbproc.base.disk.sync", fsync)
    new = blobs.put(data)
    assert order == [("data", False)]
    with blobs.adding([new]):
        assert order == [("data", False), ("folder", True)]


def test_what_a_killed_process_left_is_durable_before_anybody_relies_on_it(
    blobs: Blobs, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process may be killed just before its sync, and equal bytes are not stored again."""
    names = stored(blobs, b"left")
    synced: list[str] = []
    monkeypatch.setattr(
        "kbproc.base.disk.sync_data",
        lambda fd: synced.append(Path(f"/proc/self/fd/{fd}").readlink().name),
    )
    after = opened(store)
    assert synced == ["000001.pack"]
    assert stored(after, b"left") == names
    assert synced == ["000001.pack"]


# ------------------------------------------------------------------ what no record names


@SIZES
def test_a_source_that_is_never_named_leaves_nothing(blobs: Blobs, store: Path, size: int) -> None:
    stored(blobs, b"another")
    before, new = source_files(store), blobs.put(bytes(size))
    assert blobs.names() == [digest(b"another")]
    del new
    gc.collect()
    assert source_files(store) == before


@SIZES
def test_a_record_that_is_refused_leaves_nothing(blobs: Blobs, store: Path, size: int) -> None:
    stored(blobs, b"another")
    before = source_files(store)
    with pytest.raises(ZeroDivisionError), blobs.adding([blobs.put(b"a secret" * size)]):
        assert blobs.names() != [digest(b"another")]
        raise ZeroDivisionError
    gc.collect()
    assert source_files(store) == before
    assert [blobs.get(name) for name in stored(blobs, b"a secret" * size)] == [b"a secret" * size]


def test_a_source_of_another_record_stays_when_one_is_refused(blobs: Blobs) -> None:
    [name] = stored(blobs, b"equal")
    with pytest.raises(ZeroDivisionError), blobs.adding([blobs.put(b"equal"), blobs.put(b"new")]):
        raise ZeroDivisionError
    assert blobs.names() == [name]
    assert blobs.get(name) == b"equal"


@pytest.mark.parametrize("call", ["write_at", "sync_data"])
@pytest.mark.parametrize("writes_before", [0, 1, 2])
def test_a_disk_that_refuses_a_small_source(
    blobs: Blobs, store: Path, monkeypatch: pytest.MonkeyPatch, writes_before: int, call: str
) -> None:
    """The source is stored the next time; no file has its bytes until then."""
    before = [name for n in range(writes_before) for name in stored(blobs, b"%d" % n)]
    new = blobs.put(b"a secret")
    with monkeypatch.context() as patch:
        patch.setattr(f"kbproc.base.disk.{call}", full)
        with pytest.raises(KbprocError) as refused, blobs.adding([new]):
            pass
    assert refused.value.type == "store.io"
    assert not any(b"a secret" in data for data in source_files(store).values())
    assert blobs.names() == sorted(before)
    with blobs.adding([new]):
        pass
    assert opened(store).get(new.name) == b"a secret"


def test_where_there_is_no_room_to_allocate_sources_are_stored_all_the_same(
    blobs: Blobs, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored(blobs, b"the first")
    real = os.pwrite

    def nearly_full(fd: int, data: Any, offset: int) -> int:
        if len(data) > 1000:
            real(fd, bytes(data)[:1000], offset)
            full()
        return real(fd, data, offset)

    monkeypatch.setattr("kbproc.base.disk.write_at", nearly_full)
    [name] = stored(blobs, b"the second")
    assert opened(store).get(name) == b"the second"
    assert pack_of(store).stat().st_size < 1000


@pytest.mark.parametrize("call", ["write", "fsync"])
def test_a_disk_that_refuses_a_large_source(
    blobs: Blobs, store: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    data = bytes(LARGE)
    stored(blobs, b"x" * LARGE)
    before = source_files(store)
    with monkeypatch.context() as patch:
        if call == "fsync":
            patch.setattr("kbproc.base.disk.sync", full)
        else:
            failpoints.arm(lambda name: full() if name == "blob.written" else None)
        with pytest.raises(KbprocError) as refused:
            blobs.put(data)
        failpoints.arm(None)
    assert refused.value.type == "store.io"
    assert source_files(store) == before
    assert blobs.get(*stored(blobs, data)) == data


def test_a_file_that_can_not_be_named_durably_is_taken_back(blobs: Blobs, store: Path) -> None:
    failpoints.arm(lambda name: full() if name == "blob.named" else None)
    with pytest.raises(KbprocError) as refused, blobs.adding([blobs.put(bytes(LARGE))]):
        pass
    failpoints.arm(None)
    assert refused.value.type == "store.io"
    assert source_files(store) == {}


# ------------------------------------------------------------------ several at once


def test_two_threads_may_store_the_same_bytes(blobs: Blobs) -> None:
    """Who adds what another is adding just now has it, even if the other is refused."""
    data, adding, goes_on = b"same", threading.Event(), threading.Event()

    def add_and_fail() -> None:
        with pytest.raises(ZeroDivisionError), blobs.adding([blobs.put(data)]):
            adding.set()
            assert goes_on.wait(PATIENCE)
            raise ZeroDivisionError

    first = threading.Thread(target=add_and_fail)
    first.start()
    assert adding.wait(PATIENCE)
    second = threading.Thread(target=stored, args=(blobs, data))
    second.start()
    goes_on.set()
    first.join()
    second.join()
    assert blobs.get(digest(data)) == data


def test_what_is_erased_after_a_large_source_was_put_is_told(blobs: Blobs) -> None:
    """Another document of the same bytes is purged before this one has its record."""
    data = bytes(LARGE)
    [name] = stored(blobs, data)
    new = blobs.put(data)
    assert blobs.erase([name]) == LARGE
    for _ in range(2):
        with (
            pytest.raises(KbprocError, match="while it was being added") as refused,
            blobs.adding([new]),
        ):
            pass
        assert refused.value.type == "store.io"
    assert blobs.get(*stored(blobs, data)) == data


def test_what_is_erased_after_a_small_source_was_put_is_stored_again(blobs: Blobs) -> None:
    [name] = stored(blobs, b"hello")
    new = blobs.put(b"hello")
    assert blobs.erase([name]) == 5
    with blobs.adding([new]):
        pass
    assert blobs.get(name) == b"hello"


def test_readers_do_not_wait_and_find_what_moves_meanwhile(blobs: Blobs) -> None:
    """One thread reads everything, while another has packs written anew again and again."""
    sources = [b"%d" % n * 50 for n in range(40)]
    names = stored(blobs, *sources)
    done, wrong = threading.Event(), list[object]()

    def read() -> None:
        while not done.is_set():
            wrong.extend(
                name for name, data in zip(names, sources, strict=True) if blobs.get(name) != data
            )

    thread = threading.Thread(target=read)
    thread.start()
    for n in range(40):
        blobs.erase(stored(blobs, b"short-lived %d" % n))
    done.set()
    thread.join()
    assert wrong == []


# ------------------------------------------------------------------ packs


@pytest.fixture
def small_packs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes packs full, and indexes due, after a few sources."""
    monkeypatch.setattr(packs, "PACK_BYTES", 1000)
    monkeypatch.setattr(packs, "_UNINDEXED_BYTES", 100)


@pytest.mark.usefixtures("small_packs")
def test_a_full_pack_is_followed_by_the_next(blobs: Blobs, store: Path) -> None:
    sources = [b"%03d" % n * 40 for n in range(30)]
    names = [name for data in sources for name in stored(blobs, data)]
    paths = packs.numbered(store / "sources")
    assert [path.name for path in paths] == [f"{n:06d}.pack" for n in range(1, 6)]
    assert all(path.stat().st_size < 1200 for path in paths[:-1])
    blobs.close()
    assert [path.with_suffix(".index").exists() for path in paths] == [True] * 5
    after = opened(store)
    assert [after.get(name) for name in names] == sources
    assert after.names() == sorted(names)
    assert after.broken([digest(b"unknown")], deep=False) == [digest(b"unknown")]


@pytest.mark.usefixtures("small_packs")
@pytest.mark.parametrize(
    "harmed",
    [lambda data: None, lambda data: data[:-1], lambda data: data[:-1] + b"\1", lambda data: b""],
    ids=["gone", "cut", "changed", "empty"],
)
def test_an_index_can_be_lost(
    blobs: Blobs, store: Path, harmed: Callable[[bytes], bytes | None]
) -> None:
    sources = [b"%03d" % n * 40 for n in range(30)]
    names = [name for data in sources for name in stored(blobs, data)]
    blobs.close()
    for index in (store / "sources").glob("*.index"):
        data = harmed(index.read_bytes())
        index.unlink() if data is None else index.write_bytes(data)
    after = opened(store)
    assert [after.get(name) for name in names] == sources
    [more] = stored(after, b"more")
    after.close()
    assert [opened(store).get(name) for name in [*names, more]] == [*sources, b"more"]


@pytest.mark.usefixtures("small_packs")
def test_killed_while_it_saves_an_index(blobs: Blobs, store: Path, tmp_path: Path) -> None:
    sources = [b"%d" % n * 40 for n in range(9)]
    names = stored(blobs, *sources[:5])
    blobs.tidy()
    names += stored(blobs, *sources[5:])
    with killed_at(["upkeep.indexed"], store, tmp_path):
        blobs.close()
    after = opened(tmp_path / "upkeep.indexed")
    after.sweep()
    assert [after.get(name) for name in names] == sources
    after.close()
    assert [opened(tmp_path / "upkeep.indexed").get(name) for name in names] == sources


@pytest.mark.usefixtures("small_packs")
def test_the_index_of_another_pack_is_not_used(blobs: Blobs, store: Path) -> None:
    names = stored(blobs, *(b"%d" % n * 40 for n in range(4)))
    blobs.close()
    index = pack_of(store).with_suffix(".index")
    old = index.read_bytes()
    blobs = opened(store)
    blobs.erase(names[:1])
    blobs.close()
    assert bytes.fromhex(names[0]) not in index.read_bytes()
    index.write_bytes(old)
    after = opened(store)
    assert [after.get(name) for name in names[1:]] == [b"%d" % n * 40 for n in range(1, 4)]
    assert after.broken(names, deep=True) == names[:1]


def test_a_tail_that_was_cut_off_is_overwritten(blobs: Blobs, store: Path) -> None:
    """The power failed before the last sync: some of the bytes are there, or none."""
    durable_names = stored(blobs, b"kept" * 9)
    end = pack_of(store).stat().st_size
    lost = stored(blobs, b"lost" * 99)
    blobs.close()
    whole = pack_of(store).read_bytes()
    for at in range(end, len(whole) - 1, 17):
        for tail in (b"", bytes(200), b"\xff" * 200):
            pack_of(store).write_bytes(whole[:at] + tail)
            after = opened(store)
            assert after.broken([*durable_names, *lost], deep=True) == lost
            [more] = stored(after, b"more")
            after.close()
            assert opened(store).get(more) == b"more"
            assert opened(store).damaged() == []


@pytest.mark.parametrize("change", ["replaced", "gone", "longer", "shorter"])
def test_a_pack_that_another_process_has_changed_takes_no_more(
    blobs: Blobs, store: Path, change: str
) -> None:
    stored(blobs, b"one")
    stored(blobs, b"two")
    pack, data = pack_of(store), pack_of(store).read_bytes()
    if change in {"replaced", "gone"}:
        pack.rename(store / "aside")
        if change == "replaced":
            pack.write_bytes(data)
    else:
        os.truncate(pack, len(data) + (9 if change == "longer" else -9))
    with pytest.raises(KbprocError) as refused:
        stored(blobs, b"three")
    assert refused.value.type == "store.io"
    if change != "gone":
        assert opened(store).get(digest(b"two")) == b"two"


@pytest.mark.parametrize("bit", range(0, 32, 5))
def test_a_flipped_bit_in_a_length_costs_one_source(blobs: Blobs, store: Path, bit: int) -> None:
    sources = [data * 9 for data in (b"one", b"two", b"three", b"four")]
    names = stored(blobs, *sources)
    blobs.close()
    pack, start, _ = frame_of(store, names[1])
    data = bytearray(pack.read_bytes())
    data[start - 36 + bit // 8] ^= 1 << bit % 8
    pack.write_bytes(data)
    after = opened(store)
    assert after.broken(names, deep=True) == [names[1]]
    assert after.damaged() == ["000001.pack"]
    aside = store / "aside"
    aside.mkdir()
    after.set_aside(aside)
    assert (aside / "000001.pack").read_bytes() == data
    stored(after, b"five" * 9)
    after.close()
    again = opened(store)
    assert again.damaged() == []
    assert [again.get(name) for name in names[2:]] == sources[2:]


@pytest.mark.parametrize("part", ["a source", "a sha256"])
def test_a_rotten_source_hides_none_behind_it(blobs: Blobs, store: Path, part: str) -> None:
    names = stored(blobs, *(data * 9 for data in (b"one", b"rotten", b"three")))
    blobs.close()
    pack, start, length = frame_of(store, names[1])
    data = bytearray(pack.read_bytes())
    data[start if part == "a source" else start - 1] ^= 1
    pack.write_bytes(data)
    named = names[1] if part == "a source" else bytes(data[start - 32 : start]).hex()
    for after in (opened(store), opened(store, read_only=True)):
        assert after.broken(names, deep=True) == [names[1]]
        assert after.damaged() == [named]
    aside = store / "aside"
    aside.mkdir()
    after = opened(store)
    after.set_aside(aside)
    assert (aside / named).read_bytes() == bytes(data[start : start + length])
    assert opened(store).damaged() == []
    assert opened(store).get(names[2]) == b"three" * 9


def test_a_header_that_is_damaged_costs_nothing(blobs: Blobs, store: Path) -> None:
    names = stored(blobs, b"one", b"two")
    blobs.close()
    data = bytearray(pack_of(store).read_bytes())
    data[3] ^= 1
    pack_of(store).write_bytes(data)
    after = opened(store)
    assert [after.get(name) for name in names] == [b"one", b"two"]
    assert after.damaged() == ["000001.pack"]
    (store / "aside").mkdir()
    after.set_aside(store / "aside")
    assert opened(store).damaged() == []
    assert [after.get(name) for name in names] == [b"one", b"two"]


def test_a_pack_without_a_whole_header_holds_nothing(blobs: Blobs, store: Path) -> None:
    """The power failed after its name was durable and before its bytes were."""
    (store / "sources").mkdir()
    (store / "sources" / "000001.pack").write_bytes(b"kbproc")
    after = opened(store)
    [name] = stored(after, b"hello")
    assert opened(store).get(name) == b"hello"


# ------------------------------------------------------------------ erasing


@SIZES
def test_nothing_remains_of_what_is_erased(blobs: Blobs, store: Path, size: int) -> None:
    other, secret = b"kept" * size, b"a secret" * size
    stored(blobs, other)
    [name] = stored(blobs, secret)
    assert blobs.erase([name, digest(b"unknown")]) == len(secret)
    for reader in (blobs, opened(store)):
        assert reader.names() == [digest(other)]
        assert reader.get(digest(other)) == other
    for path, data in source_files(store).items():
        assert not {b"a secret" in data, bytes.fromhex(name) in data, name in path} & {True}, path
    assert stored(blobs, secret) == [name]


def test_a_pack_that_is_left_empty_goes(blobs: Blobs, store: Path) -> None:
    blobs.erase(stored(blobs, b"one", b"two"))
    assert source_files(store) == {}
    [name] = stored(blobs, b"three")
    assert opened(store).get(name) == b"three"


def test_a_copy_under_a_damaged_name_is_erased_too(blobs: Blobs, store: Path) -> None:
    names = stored(blobs, b"kept", b"a secret")
    blobs.close()
    pack, start, _ = frame_of(store, names[1])
    data = bytearray(pack.read_bytes())
    data[start - 1] ^= 1
    pack.write_bytes(data)
    after = opened(store)
    stored(after, b"a secret")
    after.erase([names[1]])
    assert b"a secret" not in pack.read_bytes()


@pytest.mark.usefixtures("small_packs")
def test_killed_while_it_erases(blobs: Blobs, store: Path, tmp_path: Path) -> None:
    sources = [b"%03d" % n * 40 for n in range(30)]
    names = [name for data in sources for name in stored(blobs, data)]
    erased_names = names[::3]
    with killed_at(["blob.rewritten"], store, tmp_path / "killed"):
        blobs.erase(erased_names)
    after = opened(tmp_path / "killed" / "blob.rewritten")
    after.sweep()
    assert [after.get(name) for name in names] == sources, "the first of five packs was due"
    after.erase(erased_names)
    for erased in (blobs, after, opened(store)):
        assert erased.names() == sorted(set(names) - set(erased_names))
        assert erased.damaged() == []
    for data in source_files(tmp_path / "killed" / "blob.rewritten").values():
        assert not [name for name in erased_names if bytes.fromhex(name) in data]


def test_a_full_disk_erases_nothing_and_loses_nothing(blobs: Blobs) -> None:
    names = stored(blobs, b"one", b"two")
    failpoints.arm(lambda name: full() if name == "blob.rewritten" else None)
    with pytest.raises(OSError, match="No space"):
        blobs.erase(names[:1])
    failpoints.arm(None)
    assert [blobs.get(name) for name in names] == [b"one", b"two"]
    [more] = stored(blobs, b"three")
    assert blobs.erase(names[:1]) == 3
    assert blobs.names() == sorted([names[1], more])


# ------------------------------------------------------------------ compaction


def test_a_pack_is_written_anew_once_enough_is_dead(blobs: Blobs, store: Path) -> None:
    live, dead = [b"live %d" % n * 20 for n in range(20)], [b"dead %d" % n * 20 for n in range(20)]
    stored(blobs, *live, *dead[:3])
    named = [digest(data) for data in live]
    blobs.compact(named)
    assert len(blobs.names()) == 23, "too few are dead"
    stored(blobs, *dead)
    blobs.compact(named)
    for reader in (blobs, opened(store)):
        assert reader.names() == sorted(named)
        assert [reader.get(name) for name in named] == live
    [name] = stored(blobs, b"more")
    assert opened(store).get(name) == b"more"


@pytest.mark.parametrize("erases", [False, True], ids=["compact", "erase"])
def test_a_pack_whose_new_name_is_not_durable_is_the_one_that_is_used(
    blobs: Blobs, store: Path, monkeypatch: pytest.MonkeyPatch, erases: bool
) -> None:
    """The disk fails after the renaming: what is read and written next is in the new file."""
    names = stored(blobs, *(b"%d" % n * 20 for n in range(9)))
    with monkeypatch.context() as patch:
        patch.setattr("kbproc.base.durable.sync_folder", full)
        with pytest.raises(OSError, match="No space"):
            blobs.erase(names[3:]) if erases else blobs.compact(names[:3])
    names = names[:3] + stored(blobs, b"more")
    for reader in (blobs, opened(store)):
        assert reader.names() == sorted(names)
        assert reader.broken(names, deep=True) == reader.damaged() == []


def test_a_pack_with_damage_is_left_to_a_repair(blobs: Blobs, store: Path) -> None:
    names = stored(blobs, *(b"%d" % n * 20 for n in range(9)))
    harm(store, names[0], lambda data: b"rotten")
    before = source_files(store)
    blobs.compact(names[1:3])
    assert source_files(store) == before


def test_killed_while_it_compacts(blobs: Blobs, store: Path, tmp_path: Path) -> None:
    names = stored(blobs, *(b"%d" % n * 20 for n in range(9)))
    points = ["upkeep.compacting", "blob.rewritten"]
    with killed_at(points, store, tmp_path / "killed"):
        blobs.compact(names[:3])
    for point in points:
        after = opened(tmp_path / "killed" / point)
        after.sweep()
        assert after.broken(names[:3], deep=True) == []
        after.compact(names[:3])
        assert after.names() == sorted(names[:3])
    assert blobs.names() == sorted(names[:3])


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("elsewhere")])
def test_only_a_file_is_taken_for_a_pack(store: Path, make: Callable[[Path], None]) -> None:
    (store / "sources").mkdir()
    make(store / "sources" / "000001.pack")
    with pytest.raises(KbprocError) as refused:
        opened(store)
    assert refused.value.type == "store.io"


# ------------------------------------------------------------------ stores of others


def test_of_what_another_store_holds_nothing_is_changed(blobs: Blobs, store: Path) -> None:
    """A reader finds sources in a pack that the owner has written anew since."""
    names = stored(blobs, b"one", b"two", bytes(LARGE))
    reader = opened(store, read_only=True)
    before = source_files(store)
    assert [reader.get(name) for name in names] == [b"one", b"two", bytes(LARGE)]
    assert reader.put(b"new").data == reader.put(b"x" * LARGE).data[:0] + b"new"  # type: ignore[index]
    reader.tidy()
    reader.close()
    assert source_files(store) == before
    blobs.erase(names[:1])
    assert reader.get(names[1]) == b"two"
    with pytest.raises(KbprocError, match="missing"):
        reader.get(names[0])


def test_whoever_may_not_read_a_pack_reads_the_rest(
    blobs: Blobs, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = stored(blobs, b"small", bytes(LARGE))

    def denied(*args: Any, **more: Any) -> int:
        raise PermissionError(errno.EACCES, "no")

    with monkeypatch.context() as patch:
        patch.setattr(packs, "open_regular", denied)
        assert opened(store, read_only=True).get(names[1]) == bytes(LARGE)
        with pytest.raises(KbprocError, match="can't be read"):
            opened(store)


def test_a_folder_that_is_another_by_now_gets_no_files(tmp_path: Path) -> None:
    here = tmp_path / "here"

    def check() -> None:
        if not (here / "same").exists():
            raise KbprocError("store.io", "The folder is another one.")

    here.mkdir()
    (here / "same").touch()
    blobs = opened(here, check=check)
    names = stored(blobs, b"first", b"second")
    away = here.rename(here.with_name("away"))
    with pytest.raises(KbprocError):
        blobs.put(bytes(LARGE))
    with pytest.raises(KbprocError):
        blobs.erase(names)
    with pytest.raises(KbprocError):
        blobs.close()
    assert not here.exists()
    assert [opened(away).get(name) for name in names] == [b"first", b"second"]


def test_a_lost_source_is_healed_once(blobs: Blobs) -> None:
    blobs.heal(digest(b"hello"), b"hello")
    blobs.heal(digest(bytes(LARGE)), bytes(LARGE))
    assert blobs.get(digest(b"hello")) == b"hello"
    assert blobs.get(digest(bytes(LARGE))) == bytes(LARGE)
    blobs.erase([digest(b"hello")])
    blobs.being_purged = frozenset({digest(b"hello")})
    blobs.heal(digest(b"hello"), b"hello")
    assert blobs.names() == [digest(bytes(LARGE))]


def test_a_new_source_has_its_bytes_or_a_file(blobs: Blobs) -> None:
    small, large = blobs.put(b"small"), blobs.put(bytes(LARGE))
    assert (small.data, small.file) == (b"small", None)
    assert large.data is None and large.file is not None
    assert isinstance(large, NewSource)


def test_who_opens_closed_sources_reads_none_until_one_is_asked_for(
    blobs: Blobs, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [name] = stored(blobs, b"a small source")
    blobs.close()
    scanned = list[int]()
    scan = packs._scanned
    monkeypatch.setattr(packs, "_scanned", lambda *args: scanned.append(1) or scan(*args))
    closed = Blobs(store)
    closed.load(is_synced=True)
    closed.close()
    assert not scanned
    closed = Blobs(store)
    closed.load(is_synced=True)
    assert closed.get(name) == b"a small source" and scanned == [1]
    killed = Blobs(store)
    killed.load()
    assert scanned == [1, 1]
    for each in (closed, killed):
        each.close()
