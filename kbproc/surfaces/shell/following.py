"""Runs a `serve` beside a command, so that folders are watched while the command runs."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from kbproc.base.errors import KbprocError
from kbproc.surfaces.sharing.link import refusal

_ENDS_IN_S = 10


@contextlib.contextmanager
def watching(store: Path) -> Iterator[None]:
    """Runs `kbproc serve` until the block ends. Raises the error that it begins with.

    Beside another owner it attaches, and the owner watches. It ends with its stdin, so that it
    never outlives this process; Ctrl-C does not reach it.
    """
    command = [sys.executable, "-P", "-m", "kbproc", "serve", "--store", str(store)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        try:
            _wait_until_ready(process)
            yield
        finally:
            assert process.stdin  # noqa: S101  it is a PIPE
            process.stdin.close()
            try:
                process.wait(_ENDS_IN_S)
            except subprocess.TimeoutExpired:
                process.kill()


def _wait_until_ready(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout  # noqa: S101  it is a PIPE
    for line in process.stdout:
        event = msgspec.json.decode(line).get("params", {})
        if event.get("type") == "error":
            raise refusal(event["error"])
        if event.get("type") == "ready":
            return
    raise KbprocError("internal.error", "kbproc serve ended before it was ready.")
