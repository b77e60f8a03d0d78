"""Stores that are copied, moved, or named by another path: each has its own owner."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kit.faults import as_killed
from tests.kit.patience import until
from tests.kit.processes import Client, Crowd, Said, holders, titles

pytestmark = pytest.mark.skipif(not Path("/proc/locks").exists(), reason="needs /proc")

Copy = Callable[[Path, Path], None]


@pytest.fixture
def crowd(tmp_path: Path) -> Iterator[Crowd]:
    with Crowd(tmp_path) as crowd:
        yield crowd


def join_at(crowd: Crowd, store: Path) -> Client:
    client = Client(store, cwd=crowd.folder, real=1)
    crowd.clients.append(client)
    return client.ready()


def run(crowd: Crowd, store: Path | str, *argv: str, cwd: Path | None = None) -> Said:
    return crowd.run(*argv, "--no-wait", cwd=cwd, KBPROC_STORE=str(store), KBPROC_FORMAT="json")


def created(crowd: Crowd, store: Path | str, title: str, cwd: Path | None = None) -> None:
    done = run(crowd, store, "doc", "create", "--title", title, "--text", "words", cwd=cwd)
    assert done.code == 0, done


def titles_in(crowd: Crowd, store: Path | str, cwd: Path | None = None) -> list[str]:
    done = crowd.run("call", "doc.list", "{}", cwd=cwd, KBPROC_STORE=str(store))
    assert done.code == 0, done
    return sorted(document["title"] for document in json.loads(done.out)["data"])


def copied(how: str, old: Path, new: Path) -> None:
    """Copies a store; only files that the owner removes during the copy may be missing."""
    env = {"PATH": os.environ["PATH"], "LC_ALL": "C"}
    command = ["cp", how, str(old), str(new)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=env)
    left_out = [line for line in done.stderr.splitlines() if "No such file" not in line]
    assert new.is_dir() and left_out == []


def tree(old: Path, new: Path) -> None:
    copied("-r", old, new)


def without_links(old: Path, new: Path) -> None:
    """Copies a store like a program that does not support sockets."""
    as_killed(old, new, "kbproc.sock")


@pytest.mark.parametrize("copy", [tree, without_links])
def test_a_copy_made_while_the_store_is_in_use(crowd: Crowd, copy: Copy) -> None:
    owner = crowd.join()
    owner.answer(owner.create("before"))
    other = crowd.folder / "copy"
    copy(crowd.store, other)
    created(crowd, other, "of the copy")
    assert titles_in(crowd, other) == ["before", "of the copy"]
    assert titles(owner) == {"before": 1}
    assert titles(join_at(crowd, other)) == {"before": 1, "of the copy": 1}
    owner.answer(owner.create("of the original"))
    assert titles_in(crowd, crowd.store) == ["before", "of the original"]


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL])
def test_a_copy_of_a_store_whose_owner_has_ended(crowd: Crowd, signum: int) -> None:
    """The copied lock names a socket on which no process listens for the copy."""
    first = crowd.join()
    first.answer(first.create("before"))
    first.kill(signum)
    first.gone()
    other = crowd.folder / "copy"
    tree(crowd.store, other)
    owner = crowd.join()
    created(crowd, other, "of the copy")
    assert titles(owner) == {"before": 1}
    assert titles_in(crowd, other) == ["before", "of the copy"]


def test_a_clean_end_leaves_nothing_to_follow(crowd: Crowd) -> None:
    assert crowd.join().end() == 0
    assert (crowd.store / "lock").read_bytes() == b""


def test_a_copy_of_links_is_refused(crowd: Crowd) -> None:
    """The copy and the original would append to one log."""
    owner = crowd.join()
    owner.answer(owner.create("before"))
    other = crowd.folder / "copy"
    copied("-al", crowd.store, other)
    done = run(crowd, other, "doc", "create", "--title", "x", "--text", "words")
    assert done.code == 2, done
    assert json.loads(done.err)["error"]["type"] == "store.io"
    assert "hard link" in done.err
    assert titles(owner) == {"before": 1}


def test_a_store_with_a_relative_name(crowd: Crowd) -> None:
    """A command in another folder reaches the same owner."""
    (crowd.folder / "elsewhere").mkdir()
    owner = join_at(crowd, Path("store"))
    owner.answer(owner.create("here"))
    created(crowd, "../store", "from elsewhere", cwd=crowd.folder / "elsewhere")
    assert titles_in(crowd, crowd.store) == ["from elsewhere", "here"]
    assert titles(owner) == {"here": 1, "from elsewhere": 1}
    assert holders(crowd.store) == [owner.pid]


def test_a_store_that_is_moved_while_it_is_in_use(crowd: Crowd) -> None:
    """Reads at the new place reach the old owner, which refuses writes because the store moved."""
    owner = crowd.join()
    owner.answer(owner.create("before"))
    moved = crowd.folder / "moved"
    crowd.store.rename(moved)
    assert titles_in(crowd, moved) == ["before"]
    error = owner.error("doc.create", title="lost?", text="words")
    assert error["type"] == "store.io"
    assert "moved" in error["message"]
    owner.end()
    created(crowd, moved, "after")
    assert titles_in(crowd, moved) == ["after", "before"]


def test_another_store_in_the_place_of_one_in_use(crowd: Crowd) -> None:
    owner = crowd.join()
    owner.answer(owner.create("before"))
    crowd.store.rename(crowd.folder / "moved")
    created(crowd, crowd.store, "of another")
    assert titles_in(crowd, crowd.store) == ["of another"]
    assert owner.error("doc.create", title="lost?", text="words")["type"] == "store.io"
    assert titles(owner) == {"before": 1}


# ----------------------------------------------------------------------- removed files


def test_a_lock_that_is_removed_makes_no_second_owner(crowd: Crowd) -> None:
    owner = crowd.join(look_ms=100)
    for n in range(3):
        for name in ("lock", "kbproc.sock"):
            (crowd.store / name).unlink(missing_ok=True)
        other = crowd.spawn()
        other.answer(other.create(f"{n}"))
        owner.answer(owner.create(f"own {n}"))
    assert titles(owner) == {f"{n}": 1 for n in range(3)} | {f"own {n}": 1 for n in range(3)}


def test_a_socket_that_is_removed_is_made_again(crowd: Crowd) -> None:
    owner = crowd.join()
    (crowd.store / "kbproc.sock").unlink()
    created(crowd, crowd.store, "in spite of it")
    assert titles(owner) == {"in spite of it": 1}
    until((crowd.store / "kbproc.sock").is_socket, "the socket")


def test_a_lock_that_is_a_link_is_not_followed(crowd: Crowd) -> None:
    crowd.join().end()
    precious = crowd.folder / "precious"
    precious.write_text("keep me\n")
    (crowd.store / "lock").unlink()
    (crowd.store / "lock").symlink_to(precious)
    done = run(crowd, crowd.store, "doc", "create", "--title", "x", "--text", "words")
    assert (done.code, json.loads(done.err)["error"]["type"]) == (2, "store.io"), done
    assert precious.read_text() == "keep me\n"


# ------------------------------------------------------- a log that other programs change


def foreign_line(segment: Path) -> None:
    with segment.open("ab") as log:
        log.write(b"not of this process\n")


def cut(segment: Path) -> None:
    os.truncate(segment, segment.stat().st_size - 10)


def replaced(segment: Path) -> None:
    beside = segment.with_suffix(".other")
    shutil.copyfile(segment, beside)
    beside.rename(segment)


@pytest.mark.parametrize("change", [foreign_line, cut, replaced])
def test_a_log_that_another_has_changed(crowd: Crowd, change: Callable[[Path], None]) -> None:
    """The owner neither appends to the log nor truncates it, so that a repair finds every byte."""
    owner = crowd.join()
    owner.answer(owner.create("before"))
    segment = crowd.store / "log" / "000000000001.ndjson"
    change(segment)
    content = segment.read_bytes()
    for title in ("one", "two"):
        error = owner.error("doc.create", title=title, text="words")
        assert error["type"] == "store.io", error
        assert "changed" in error["message"]
    assert segment.read_bytes() == content
    assert titles(owner) == {"before": 1}, "reads go on"
