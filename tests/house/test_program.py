"""The `kbproc` that tests put on the PATH leaves nothing behind; see tests/kit/program.py."""

from __future__ import annotations

import marshal
import os
import select
import socket
from pathlib import Path

import pytest

from tests.kit.patience import PATIENCE
from tests.kit.program import program
from tests.kit.start import REPO

WAITS = ("-c", "import signal; signal.pause()")


@pytest.mark.parametrize("asks", [False, True], ids=["before it asks", "before it is told"])
def test_one_that_is_killed_at_once(tmp_path: Path, asks: bool) -> None:
    """The killed program leaves no open pipes, and no thread here raises."""
    request = {"argv": [], "cwd": str(tmp_path), "env": {"PYTHONPATH": str(REPO)}}
    with program(tmp_path / "kbproc", WAITS):
        ours, theirs = os.pipe()
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as control:
            control.connect(str(tmp_path / "kbproc.sock"))
            if asks:
                socket.send_fds(control, [marshal.dumps(request)], [theirs] * 3)
        os.close(theirs)
        assert select.select([ours], [], [], PATIENCE)[0]
        assert os.read(ours, 1) == b""
        os.close(ours)
