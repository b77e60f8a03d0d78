"""How a test starts a kbproc of its own: really, or forked from one that has imported it all.

An import takes most of the time that a short life takes. So one process a worker imports
everything (template.py), and what tests start is forked from it: a process with its own pid,
folder, environment and pipes, a child of whoever starts it, that signals reach like any other.
`make test-long` starts all of them really; so does every test that uses the fixture `executed`,
being about the start, about what is loaded when, or about parents that die.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.kit.patience import LONG, PATIENCE
from tests.kit.template import own_terminal

REPO = Path(__file__).parents[2]
MODULES = {"kbproc", "tests.kit.broken", "tests.kit.fixed"}
_MOST = 1 << 17
# These change how Python or a library begins: so it must really begin.
_BEGINS = ("PYTHON", "LC_", "LANG", "LD_", "TZ", "MALLOC", "OMP", "OPENBLAS")
_BUT = {"PYTHONPATH", "PYTHONFAULTHANDLER"}
_PARSER = ["-P", "-m", "kbproc.sources.parse.worker"]
# No library has a thread of its own there.
_ENVIRONMENT = {"PYTHONPATH": str(REPO), "PATH": "/usr/bin:/bin", "OPENBLAS_NUM_THREADS": "1"}
_PR_SET_CHILD_SUBREAPER = 36

_really = threading.Event()
if LONG or sys.platform != "linux":
    _really.set()


@contextlib.contextmanager
def executing() -> Iterator[None]:
    """What is started meanwhile is an interpreter of its own."""
    before = _really.is_set()
    _really.set()
    try:
        yield
    finally:
        if not before:
            _really.clear()


def start(
    argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], **given: Any
) -> subprocess.Popen[Any]:
    """`python ARGV...`; `given` as for Popen. A new session has stdin's terminal for its own."""
    command, folder = [sys.executable, *argv], str(cwd)
    if _may_be_forked(argv, env, given):
        return _Forked(command, cwd=folder, env=env, **given)
    own = own_terminal if given.get("start_new_session") else None
    return subprocess.Popen(command, cwd=folder, env=env, preexec_fn=own, **given)  # noqa: PLW1509


def _may_be_forked(argv: Sequence[str], env: Mapping[str, str], given: Mapping[str, Any]) -> bool:
    return (
        not _really.is_set()
        and (argv[0] == "-c" or (argv[0] == "-m" and argv[1] in MODULES))
        and {name for name in env if name.startswith(_BEGINS)} <= _BUT
        and env.get("PYTHONPATH") == str(REPO)
        and given.keys() <= {"stdin", "stdout", "stderr", "text", "start_new_session"}
        and sum(map(len, [*argv, *env, *env.values()])) < _MOST // 8
    )


def start_child(command: Sequence[str], **given: Any) -> subprocess.Popen[Any]:
    """What the sandbox starts children with: readers of documents are forked, no others."""
    if _really.is_set() or list(command) != [sys.executable, *_PARSER] or _other(given["env"]):
        return subprocess.Popen(command, **given)
    return _Forked(command, **given)


def _other(env: Mapping[str, str]) -> bool:
    return "parser" in TEMPLATES and dict(env) != TEMPLATES["parser"].env


class _Forked(subprocess.Popen[Any]):
    """Its pipes, its waiting and its end are those of any Popen."""

    def _execute_child(self, args: Any, *more: Any) -> None:
        cwd, env = more[4:6]
        ends, anew = more[9:15], more[20]
        streams = [given if given != -1 else own for own, given in enumerate(ends[0:6:2])]
        streams[1:] = [given if given != -1 else own for own, given in ((1, ends[3]), (2, ends[5]))]
        argv = list(args[1:])
        if argv == _PARSER:
            parent, argv = template("parser", ["-P"], env, cwd), argv[1:]
        else:
            parent = template("kbproc", [], _ENVIRONMENT, str(REPO))
        asked = {"argv": argv, "cwd": cwd, "env": dict(env), "start_new_session": anew}
        self.pid = parent.fork(asked, streams)
        self._child_created = True
        self._close_pipe_fds(*ends)  # type: ignore[attr-defined]


class Template:
    """A process that is forked from; it ends with this one."""

    def __init__(self, kind: str, flags: Sequence[str], env: Mapping[str, str], cwd: str) -> None:
        self.env = dict(env)
        self._asking = threading.Lock()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.settimeout(PATIENCE)
        with theirs:
            fd = theirs.fileno()
            self.process = subprocess.Popen(
                [sys.executable, *flags, "-m", "tests.kit.template", str(fd), kind],
                cwd=cwd,
                env=env,
                pass_fds=[fd],
                stdin=subprocess.DEVNULL,
            )

    def fork(self, asked: Mapping[str, Any], streams: Sequence[int]) -> int:
        """The pid of a child of this process."""
        told = json.dumps({**asked, "umask": _umask()}).encode()
        with self._asking, _reaping():
            socket.send_fds(self._control, [told], streams)
            pid = self._control.recv(20)
        assert pid, "the template has ended"
        return int(pid)

    def end(self) -> None:
        self._control.close()
        self.process.wait(PATIENCE)


TEMPLATES: dict[str, Template] = {}
_starting = threading.Lock()


def template(kind: str, flags: Sequence[str], env: Mapping[str, str], cwd: str) -> Template:
    """The one of that kind."""
    with _starting:
        if kind not in TEMPLATES:
            TEMPLATES[kind] = Template(kind, flags, env, cwd)
            atexit.register(TEMPLATES[kind].end)
        return TEMPLATES[kind]


@contextlib.contextmanager
def _reaping() -> Iterator[None]:
    """A grandchild whose parent ends meanwhile is a child of this process from then on."""
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def _umask() -> int:
    """Without setting it, as other threads make files."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1], 8) for line in lines if line.startswith("Umask:"))
