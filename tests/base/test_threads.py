"""Work done ahead of its consumer, and memory returned to the system."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbproc.base.threads import map_ahead, return_pages
from tests.kit.patience import PATIENCE


@pytest.mark.parametrize(("threads", "ahead"), [(1, 1), (2, 2), (5, 5), (50, 20)])
def test_so_many_are_begun_ahead_and_come_in_order(threads: int, ahead: int) -> None:
    begun: list[int] = []

    def items() -> Iterator[int]:
        for n in range(20):
            begun.append(n)
            yield n

    squares = map_ahead(lambda n: n * n, items(), threads=threads, name="test")
    assert next(squares) == 0
    assert len(begun) == ahead
    assert list(squares) == [n * n for n in range(1, 20)]


def test_whoever_waits_for_a_result_is_called_meanwhile() -> None:
    may_end, here = threading.Event(), threading.get_ident()
    callers: list[int] = []

    def meanwhile() -> None:
        callers.append(threading.get_ident())
        may_end.set()

    def work(n: int) -> bool:
        return n == 0 or may_end.wait(PATIENCE)

    assert all(map_ahead(work, range(3), threads=2, name="test", while_waiting=meanwhile))
    assert set(callers) == {here}


def test_what_has_not_begun_is_not_done_once_nobody_takes_it() -> None:
    may_end, done = threading.Event(), list[int]()

    def work(n: int) -> int:
        assert n == 0 or may_end.wait(PATIENCE)
        done.append(n)
        return n

    results = map_ahead(work, range(20), threads=2, name="test")
    assert next(results) == 0
    threading.Timer(0, may_end.set).start()
    results.close()
    assert set(done) <= {0, 1}, "no more than the two that were ahead"


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's")
def test_memory_that_was_freed_goes_back() -> None:
    """A block above the freed ones keeps the heap from shrinking by itself."""
    code = (
        "from kbproc.base.threads import return_memory\n"
        "def resident(): return int(open('/proc/self/statm').read().split()[1]) * 4096\n"
        "parts = [bytes(60_000) for _ in range(3000)]\n"
        "last = parts.pop()\n"
        "parts.clear()\n"
        "before = resident()\n"
        "return_memory()\n"
        "print(before - resident())\n"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=PATIENCE
    )
    assert int(process.stdout) > 100 << 20


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's")
def test_threads_share_heaps() -> None:
    code = (
        "import ctypes, os, sys, threading\n"
        "from kbproc.base.threads import share_heaps\n"
        "if sys.argv[1] == 'shared': share_heaps()\n"
        "libc = ctypes.CDLL(None)\n"
        "libc.malloc.restype = ctypes.c_void_p\n"
        "meet = threading.Barrier(8)\n"
        "def allocate(): meet.wait(); libc.malloc(5000); meet.wait()\n"
        "threads = [threading.Thread(target=allocate) for _ in range(8)]\n"
        "for thread in threads: thread.start()\n"
        "for thread in threads: thread.join()\n"
        "libc.fdopen.restype = ctypes.c_void_p\n"
        "out = ctypes.c_void_p(libc.fdopen(1, b'w'))\n"
        "libc.malloc_info(0, out)\n"
        "libc.fflush(out)\n"
    )

    def heaps(how: str) -> int:
        argv = [sys.executable, "-c", code, how]
        return subprocess.run(
            argv, check=True, capture_output=True, text=True, timeout=PATIENCE
        ).stdout.count("<heap ")

    assert heaps("shared") <= 2 < heaps("each its own")


@pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")
def test_pages_that_are_mapped_go_back_and_come_again(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    inside, outside = tmp_path / "in" / "a file", tmp_path / "outside"
    maps = []
    for path in (inside, outside):
        path.write_bytes(os.urandom(4 << 20))
        with path.open("rb") as file:
            maps.append(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))

    def resident(path: Path) -> int:
        mapping = Path("/proc/self/smaps").read_text().split(str(path))[1]
        return int(mapping.split("Rss:")[1].split()[0]) << 10

    read = [bytes(one) for one in maps]
    assert resident(inside) == resident(outside) == 4 << 20
    return_pages(tmp_path / "in")
    assert (resident(inside), resident(outside)) == (0, 4 << 20)
    assert [bytes(one) for one in maps] == read
