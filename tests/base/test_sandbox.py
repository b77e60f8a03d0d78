"""A child process: its environment, its limits, and its complete removal."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable

import pytest

from kbproc.base.host import ALONE
from kbproc.base.sandbox import Child, may_lack_memory, signal_name


def patience() -> float:
    return 60.0


def answer(child: Child, question: bytes) -> bytes:
    child.send(question + b"\n", patience)
    data = bytearray()
    while not data.endswith(b"\n"):
        data += child.receive(100, patience)
    return bytes(data)


@pytest.fixture
def child() -> Callable[..., Child]:
    return lambda *args: Child("tests.base.obedient", *args, environment={"KEY": "value"})


def test_it_gets_nothing_of_the_users(
    child: Callable[..., Child], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "told to nobody")
    with child() as running:
        expected = {"KEY", "LC_ALL", "HOME", "PYTHONPATH", "PYTHONWARNINGS", *ALONE}
        assert answer(running, b"sorted(os.environ)") == f"{sorted(expected)}\n".encode()
        assert answer(running, b"os.environ['HOME']") == b"'/dev/null'\n"
        assert answer(running, b"os.getcwd()") == b"'/'\n"
        assert answer(running, b"os.getsid(0) == os.getpid()") == b"True\n"
        assert answer(running, b"os.fstat(0).st_rdev == os.stat('/dev/null').st_rdev") == b"True\n"


def test_nothing_of_it_is_left(child: Callable[..., Child]) -> None:
    with child() as running:
        pid = running.process.pid
    assert running.process.returncode == -signal.SIGKILL
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert running.stdin.closed
    assert running.stdout.closed


def test_one_that_has_ended_is_told_from_one_that_is_slow(child: Callable[..., Child]) -> None:
    waits = iter([0.0, 0.0])

    def little() -> float:
        return next(waits)

    with child() as running:
        answer(running, b"1")
        with pytest.raises(StopIteration):
            running.receive(1, little)
        running.send(b"os._exit(3)\n", patience)
        with pytest.raises(EOFError):
            running.receive(1, patience)
        assert signal_name(running.process.wait()) == "exit 3"


def test_more_than_a_pipe_holds(child: Callable[..., Child]) -> None:
    with child() as running:
        assert answer(running, b"len('%s')" % (b"x" * 1_000_000)) == b"1000000\n"


@pytest.mark.skipif(sys.platform != "linux", reason="macOS knows no limit of the address space")
def test_it_keeps_to_its_limits(child: Callable[..., Child]) -> None:
    with child("limited") as running:
        assert answer(running, b"len(b'x' * (1 << 30))") == b"MemoryError\n"
        assert answer(running, b"open('/etc/passwd')") == b"OSError\n"
        assert answer(running, b"resource.getrlimit(resource.RLIMIT_FSIZE)") == b"(0, 0)\n"
        assert answer(running, b"resource.getrlimit(resource.RLIMIT_CORE)") == b"(0, 0)\n"
        remaining = b"resource.getrlimit(resource.RLIMIT_CPU)[0] - sum(resource.getrusage(0)[:2])"
        assert 1 < float(answer(running, remaining)) <= 3
        # The child lowers its limit, because the least that the program sets takes three seconds.
        lower = b"resource.setrlimit(resource.RLIMIT_CPU, (1, 9))"
        running.send(lower + b" or any(iter(int, 1))\n", patience)
        with pytest.raises(EOFError):
            running.receive(1, patience)
        assert signal_name(running.process.wait()) == "SIGXCPU"


def test_what_its_end_tells() -> None:
    assert signal_name(-signal.SIGSEGV) == "SIGSEGV"
    assert signal_name(1) == "exit 1"
    assert may_lack_memory(-signal.SIGKILL)
    assert not may_lack_memory(-signal.SIGSEGV)
