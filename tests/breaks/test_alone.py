"""A store's whole life opens no network connection and leaves only kbproc's own files."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit import life
from tests.kit.talk import REPO

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's filters are Linux's")


def test_whoever_calls_somebody_is_ended() -> None:
    """Shows that the guard works: without it, the test below would prove nothing."""
    call = "import socket, subprocess, sys; socket.socket(socket.{})"
    inner = f"subprocess.run([sys.executable, '-c', {call.format('AF_INET')!r}]).returncode"
    for code, end in (
        (call.format("AF_INET"), -signal.SIGSYS),
        (call.format("AF_INET6"), -signal.SIGSYS),
        (call.format("AF_UNIX"), 0),
        (f"import subprocess, sys; sys.exit({inner} == {-signal.SIGSYS})", 1),
    ):
        done = subprocess.run(life.alone(sys.executable, "-c", code), cwd=REPO, check=False)
        assert done.returncode == end, code


@pytest.mark.model
def test_a_stores_whole_life_calls_nobody(shared: Path) -> None:
    led = life.led(shared)
    led.check()
    home = Path(led.home)
    names = {
        str(p.relative_to(home)) for p in home.rglob("*") if len(p.relative_to(home).parts) < 4
    }
    assert {name for name in names if not name.startswith(("docs/", "copy/"))} == {
        *("docs", "copy", ".local", ".local/share"),
        *(".local/share/kbproc", ".local/share/kbproc-models"),
    }
