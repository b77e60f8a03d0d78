"""A server beside a command is awaited, and ends with the block whatever happens in it."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kbproc.base.errors import KbprocError
from kbproc.surfaces.shell.following import watching

READY = b'{"jsonrpc":"2.0","method":"event","params":{"type":"ready","seq":3}}\n'
INIT = b'{"jsonrpc":"2.0","method":"event","params":{"type":"init"}}\n'


class FakeProcess:
    """A process that writes these lines; with `hangs` it does not end with its stdin."""

    lines = b""
    hangs = False
    instances: list[FakeProcess] = []

    def __init__(self, command: list[str], **options: Any) -> None:
        self.command = command
        self.stdin, self.stdout = io.BytesIO(), io.BytesIO(self.lines)
        self.steps: list[str] = []
        FakeProcess.instances.append(self)

    def __enter__(self) -> FakeProcess:
        return self

    def __exit__(self, *error: object) -> None:
        self.steps.append("exit")

    def wait(self, timeout: float) -> int:
        self.steps.append("wait" if self.stdin.closed else "wait with open stdin")
        if self.hangs:
            raise subprocess.TimeoutExpired(self.command, timeout)
        return 0

    def kill(self) -> None:
        self.steps.append("kill")


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> type[FakeProcess]:
    monkeypatch.setattr(subprocess, "Popen", FakeProcess)
    monkeypatch.setattr(FakeProcess, "instances", [])
    return FakeProcess


def test_the_block_runs_once_the_server_is_ready(
    process: type[FakeProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "lines", INIT + READY)
    with watching(Path("/kb")):
        (one,) = process.instances
        assert one.steps == []
        assert not one.stdin.closed
    assert one.command == [sys.executable, "-P", "-m", "kbproc", "serve", "--store", "/kb"]
    assert one.steps == ["wait", "exit"]


def test_a_server_that_hangs_is_killed_also_after_an_error_in_the_block(
    process: type[FakeProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "lines", READY)
    monkeypatch.setattr(process, "hangs", True)
    with pytest.raises(ZeroDivisionError), watching(Path("/kb")):
        raise ZeroDivisionError
    assert process.instances[0].steps == ["wait", "kill", "exit"]


@pytest.mark.parametrize(
    ("lines", "type", "message"),
    [
        (
            INIT + b'{"params":{"type":"error","error":{"type":"store.locked","message":"Busy."}}}',
            "store.locked",
            "Busy.",
        ),
        (INIT, "internal.error", "kbproc serve ended before it was ready."),
        (b"", "internal.error", "kbproc serve ended before it was ready."),
    ],
)
def test_the_error_that_the_server_begins_with_is_raised(
    process: type[FakeProcess],
    monkeypatch: pytest.MonkeyPatch,
    lines: bytes,
    type: str,
    message: str,
) -> None:
    monkeypatch.setattr(process, "lines", lines)
    with pytest.raises(KbprocError) as error, watching(Path("/kb")):
        raise AssertionError("the block does not run")
    assert (error.value.type, error.value.message) == (type, message)
    assert process.instances[0].steps == ["wait", "exit"]
