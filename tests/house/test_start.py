"""A forked process behaves like a started one; see tests/kit/start.py."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kbproc.base.host import ALONE
from tests.kit.patience import LONG, PATIENCE, until
from tests.kit.start import REPO, TEMPLATES, executing, start

pytestmark = pytest.mark.skipif(
    LONG or sys.platform != "linux", reason="everything is really started"
)

LOOKS = """
import json, os, random, signal, sys, threading
from pathlib import Path
status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
streams = (sys.stdin, sys.stdout, sys.stderr, sys.__stdout__)
print(json.dumps({
    "arguments": sys.argv,
    "path": sys.path,
    "module": __name__,
    "folder": os.getcwd(),
    "environment": dict(os.environ),
    "descriptors": sorted(os.listdir("/proc/self/fd"))[:-1],
    "inheritable": [os.get_inheritable(fd) for fd in range(3)],
    "streams": [[s.fileno(), s.encoding, s.errors, s.line_buffering] for s in streams],
    "parent": os.getppid(),
    "group": os.getpgrp(),
    "session": os.getsid(0),
    "threads": status["Threads"],
    "mask": status["Umask"],
    "signals": [status[name] for name in ("SigBlk", "SigIgn")],
    "interrupt": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
    "main": threading.current_thread() is threading.main_thread(),
    "priority": os.getpriority(os.PRIO_PROCESS, 0),
}))
"""


def environment(folder: Path) -> dict[str, str]:
    return {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(REPO), "HOME": str(folder)}


def begun(folder: Path, *argv: str, **streams: Any) -> subprocess.Popen[Any]:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return start(argv, cwd=folder, env=environment(folder), text=True, **{**pipes, **streams})


def both(folder: Path, *argv: str) -> list[tuple[int, str, str]]:
    """Returns exit code, stdout and stderr of the forked process and of the started one."""
    results = []
    for how in (contextlib.nullcontext(), executing()):
        with how:
            process = begun(folder, *argv)
        out, err = process.communicate(timeout=PATIENCE)
        results.append((process.returncode, out, err))
    return results


def test_it_finds_what_one_that_is_started_finds(tmp_path: Path) -> None:
    (code, forked, _), (_, started, _) = both(tmp_path, "-c", LOOKS, "one", "two words")
    surroundings, expected = json.loads(forked), json.loads(started)
    for name in ALONE:  # set before the libraries are imported
        del surroundings["environment"][name]
    assert (code, surroundings) == (0, expected)
    assert (surroundings["parent"], surroundings["folder"]) == (os.getpid(), str(tmp_path))


@pytest.mark.parametrize("end", ["sys.exit()", "sys.exit(7)", "sys.exit('why')", "os._exit(9)"])
def test_its_end_is_told(tmp_path: Path, end: str) -> None:
    forked, started = both(tmp_path, "-c", f"import os, sys; print('said'); {end}")
    assert forked == started


def test_a_command_answers_the_same(tmp_path: Path) -> None:
    forked, started = both(tmp_path, "-m", "kbproc", "--store", "none", "kb", "list")
    assert forked == started and forked[0] == 5


def test_a_failure_is_told(tmp_path: Path) -> None:
    forked, started = both(tmp_path, "-c", "raise ValueError('why')")
    assert forked[0] == started[0] == 1
    assert forked[2].splitlines()[-1] == started[2].splitlines()[-1] == "ValueError: why"


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM, signal.SIGABRT])
def test_signals_reach_it(tmp_path: Path, signum: int) -> None:
    with begun(tmp_path, "-c", "print('there', flush=True); input()") as process:
        assert process.stdout and process.stdout.readline() == "there\n"
        assert process.poll() is None
        process.send_signal(signum)
        assert process.wait(PATIENCE) == -signum
    assert TEMPLATES["kbproc"].process.poll() is None


def test_two_have_different_chances(tmp_path: Path) -> None:
    """Two processes never make the same token or name."""
    code = "import random, secrets, uuid; print(random.random(), secrets.token_hex(), uuid.uuid4())"
    outputs = {begun(tmp_path, "-c", code).communicate(timeout=PATIENCE)[0] for _ in range(3)}
    words = [line.split() for line in outputs]
    assert [len(set(column)) for column in zip(*words, strict=True)] == [3, 3, 3]


ENDS = """
import os, signal, subprocess, sys
from pathlib import Path
from tests.kit.start import REPO, TEMPLATES, start
env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(REPO)}
child = start(["-m", "kbproc", "--store", "new", "serve"], cwd=Path.cwd(), env=env,
              stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.readline()
print(TEMPLATES["kbproc"].process.pid, child.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL) if sys.argv[1] == "killed" else os._exit(0)
"""


@pytest.mark.parametrize("how", ["left", "killed"])
def test_nothing_outlives_whoever_started_it(tmp_path: Path, how: str) -> None:
    command = [sys.executable, "-c", ENDS, how]
    env = environment(tmp_path)
    done = subprocess.run(
        command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True, check=False
    )
    pids = done.stdout.split()
    assert len(pids) == 2
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "the end of both")
