"""The end of a process whose pipes are closed, files, or full; signals; and unfinished work."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from tests.kit.patience import LIVES, PATIENCE, until
from tests.kit.processes import Crowd, held_at, holders, holding, titles
from tests.kit.shell import environment
from tests.kit.start import start as start_python
from tests.kit.talk import as_bytes, request

pytestmark = pytest.mark.skipif(not Path("/proc/locks").exists(), reason="needs /proc")


@pytest.fixture
def crowd(tmp_path: Path) -> Iterator[Crowd]:
    with Crowd(tmp_path) as crowd:
        yield crowd


def start(folder: Path, *argv: str, **pipes: Any) -> subprocess.Popen[bytes]:
    options: dict[str, Any] = {
        "stdin": subprocess.PIPE,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        **pipes,
    }
    env = {"PATH": "/usr/bin:/bin", **environment(folder)}
    if "preexec_fn" in options:  # closes a descriptor, which a forked process would have
        command = [sys.executable, "-m", "kbproc", *argv]
        return subprocess.Popen(command, cwd=folder, env=env, **options)
    return start_python(["-m", "kbproc", *argv], cwd=folder, env=env, **options)


def lines_until(stream: IO[bytes], type: str) -> list[Any]:
    lines = []
    for line in stream:
        lines.append(json.loads(line))
        if lines[-1].get("params", {}).get("type") == type:
            return lines
    raise AssertionError(f"{type} did not come: {lines}")


# ------------------------------------------------------------------ readers that close


@pytest.mark.parametrize("attached", [False, True])
def test_nobody_reads_the_answers_any_more(crowd: Crowd, attached: bool) -> None:
    """The process ends although another process keeps its stdin open."""
    if attached:
        crowd.join()
    with start(crowd.folder, "serve") as serve:
        assert serve.stdin and serve.stdout and serve.stderr
        lines_until(serve.stdout, "ready")
        serve.stdout.close()
        assert serve.wait(PATIENCE) == 0
        assert b"Traceback" not in serve.stderr.read()


@pytest.mark.parametrize("attached", [False, True])
def test_a_subscription_whose_reader_has_enough(crowd: Crowd, attached: bool) -> None:
    """The command ends without an error, as in `kbproc events subscribe | head -1`."""
    if attached:
        crowd.join()
    with start(crowd.folder, "events", "subscribe", "--after-seq", "0") as command:
        assert command.stdout and command.stderr
        assert command.stdout.readline()
        command.stdout.close()
        assert command.wait(PATIENCE) == 0
        assert command.stderr.read() == b""


@pytest.mark.usefixtures("executed")
def test_the_parent_dies_while_another_keeps_stdin_open(crowd: Crowd) -> None:
    reader, writer = os.pipe()
    parent = (
        "import os, subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-m', 'kbproc', 'serve'])\n"
        "print(child.pid, file=sys.stderr, flush=True)\n"
        "os.read(int(sys.argv[1]), 1)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", parent, str(reader)],
        cwd=crowd.folder,
        env={"PATH": "/usr/bin:/bin", **environment(crowd.folder)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=[reader],
    ) as process:
        assert process.stdout and process.stderr
        pid = int(process.stderr.readline())
        lines_until(process.stdout, "ready")
        assert holders(crowd.store) == [pid]
        process.kill()
        until(lambda: holders(crowd.store) == [], "the end of an orphan")
    os.close(reader)
    os.close(writer)


# ----------------------------------------------------------------------------- signals


@pytest.mark.parametrize("signum", [signal.SIGHUP, signal.SIGTERM])
def test_what_is_in_flight_is_answered_first(crowd: Crowd, signum: int) -> None:
    with holding(crowd) as is_held:
        (crowd.folder / "hold").unlink()
        owner = crowd.spawn(program=held_at("log.sync")).ready()
        (crowd.folder / "hold").touch()
        created = owner.create("in flight")
        until(is_held, "a write at the disk")
        owner.kill(signum)
    assert "result" in owner.answer(created)
    assert owner.gone() == 0
    assert titles(crowd.join()) == {"in flight": 1}


@pytest.mark.parametrize("attached", [False, True])
def test_a_second_signal_hastens(crowd: Crowd, attached: bool) -> None:
    with holding(crowd) as is_held:
        (crowd.folder / "hold").unlink()
        owner = crowd.spawn(program=held_at("log.sync"), patience=0.1).ready()
        client = crowd.join() if attached else owner
        (crowd.folder / "hold").touch()
        client.create("never told")
        until(is_held, "a write at the disk")
        client.kill(signal.SIGTERM)
        client.kill(signal.SIGTERM)  # a signal at the same moment does not count as a second one
        until(lambda: _second(client.pid, client.alive), "the end")
        assert client.gone() == 0


def _second(pid: int, alive: bool) -> bool:
    if alive:
        os.kill(pid, signal.SIGTERM)
    return not alive


# --------------------------------------------------------------- files instead of pipes


def answered(out: bytes) -> list[Any]:
    return [json.loads(line) for line in out.splitlines()]


@pytest.mark.parametrize("err", ["pipe", "file", "closed"])
def test_answers_into_a_file(crowd: Crowd, err: str) -> None:
    line = as_bytes(request(1, "ping")) + b"\n"
    out = crowd.folder / "out"
    with out.open("wb") as stdout, (crowd.folder / "err").open("wb") as stderr:
        more: dict[str, Any] = {"stderr": stderr} if err == "file" else {}
        if err == "closed":
            more = {"stderr": None, "preexec_fn": lambda: os.close(2)}
        serve = start(crowd.folder, "serve", stdout=stdout, **more)
        _, errors = serve.communicate(line, PATIENCE)
    assert serve.returncode == 0, errors
    assert [m.get("id", m.get("params", {}).get("type")) for m in answered(out.read_bytes())] == [
        "init",
        "ready",
        1,
    ]
    assert b"Traceback" not in (errors or b"") + (crowd.folder / "err").read_bytes()


@pytest.mark.parametrize(
    "argv", [["call", "ping", "{}"], ["status"], ["--version"], ["doc", "list", "--format", "json"]]
)
def test_a_full_disk_for_the_answer(crowd: Crowd, argv: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        command = start(crowd.folder, *argv, stdout=full)
        _, errors = command.communicate(b"", PATIENCE)
    assert command.returncode == 2, errors
    assert b"Traceback" not in errors
    assert b"No space left" in errors


@pytest.mark.parametrize("fd", [0, 1, 2])
@pytest.mark.parametrize("argv", [["call", "ping", "{}"], ["status"], ["serve"], ["--version"]])
def test_a_closed_descriptor(crowd: Crowd, argv: list[str], fd: int) -> None:
    names = ("stdin", "stdout", "stderr")
    command = start(crowd.folder, *argv, preexec_fn=lambda: os.close(fd), **{names[fd]: None})
    out, err = command.communicate(None if fd == 0 else b"", PATIENCE)
    assert b"Traceback" not in (err or b"")
    if fd == 1 and argv != ["serve"]:
        assert command.returncode == 2
        assert b"Bad file descriptor" in err
    else:
        assert command.returncode == 0, (out, err)
    for segment in crowd.store.glob("log/*"):
        assert all(json.loads(line) for line in segment.read_text().splitlines())


# ----------------------------------------------------------------------- unfinished work

# An owner whose vectors are never stored while the file `hold` exists; a join would hang.
KEEPS_FOR_EVER = f"""
from kbproc.engine.embedding import background
background._END_SECONDS = {LIVES}
{held_at("pack.write")}
"""


@pytest.mark.parametrize("signum", [None, signal.SIGTERM])
def test_work_that_goes_on_keeps_no_owner(crowd: Crowd, signum: int | None) -> None:
    """The next owner gets the store although the work of the first has not ended."""
    with holding(crowd) as is_held:
        owner = crowd.join(program=KEEPS_FOR_EVER, patience=0.1)
        owner.answer(owner.create("one"))
        until(is_held, "a vector that is about to be kept")
        if signum is None:
            assert owner.end() == 0
        else:
            owner.kill(signum)
            assert owner.gone() == 0
        following = crowd.join()
        assert titles(following) == {"one": 1}
        following.data("doc.wait")
