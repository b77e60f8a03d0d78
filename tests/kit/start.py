"""Starts kbproc processes for tests: as new interpreters, or forked from a template process.

Imports take most of the time of a short process. So each worker has one process that imports
everything (template.py), and tests fork their processes from it. A forked process has its own
pid, folder, environment and pipes, is a child of the test, and receives signals as usual.
`make test-long` starts new interpreters only; so does every test with the fixture `executed`,
which is for tests of the start, of lazy imports, or of parents that die.
"""

from __future__ import annotations

import atexit
import contextlib
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
MODULES = {"kbproc", "tests.kit.fixed", "tests.kit.minimal"}
_MOST = 1 << 17
# Variables that change how Python or a library starts, so they need a new interpreter.
_BEGINS = ("PYTHON", "LC_", "LANG", "LD_", "TZ", "MALLOC", "OMP", "OPENBLAS")
_BUT = {"PYTHONPATH", "PYTHONFAULTHANDLER"}
# Children of kbproc that are forked: module → the kind of template.
_CHILDREN = {
    "kbproc.engine.sources.parse.worker": "parser",
    "kbproc.engine.store.sql.worker": "sql",
}
# Keeps libraries from starting threads in the template.
_ENVIRONMENT = {"PYTHONPATH": str(REPO), "PATH": "/usr/bin:/bin", "OPENBLAS_NUM_THREADS": "1"}

_really = threading.Event()
if LONG or sys.platform != "linux":
    _really.set()


@contextlib.contextmanager
def executing() -> Iterator[None]:
    """Within the block, every started process is a new interpreter."""
    before = _really.is_set()
    _really.set()
    try:
        yield
    finally:
        if not before:
            _really.clear()


def start(
    argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], **options: Any
) -> subprocess.Popen[Any]:
    """Starts `python ARGV...`; `options` as for Popen. A new session owns stdin's terminal."""
    command, folder = [sys.executable, *argv], str(cwd)
    if _may_be_forked(argv, env, options):
        return _Forked(command, cwd=folder, env=env, **options)
    own = own_terminal if options.get("start_new_session") else None
    return subprocess.Popen(command, cwd=folder, env=env, preexec_fn=own, **options)  # noqa: PLW1509


def ran(argv: Sequence[str], *, cwd: Path, env: Mapping[str, str]) -> Any:
    """Runs `python ARGV...` to its end; returns a CompletedProcess with the bytes it wrote."""
    pipes = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
    with start(argv, cwd=cwd, env=env, stdin=subprocess.DEVNULL, **pipes) as process:
        out, err = process.communicate(timeout=PATIENCE)
    return subprocess.CompletedProcess(argv, process.returncode, out, err)


def _may_be_forked(argv: Sequence[str], env: Mapping[str, str], options: Mapping[str, Any]) -> bool:
    return (
        not _really.is_set()
        and (argv[0] == "-c" or (argv[0] == "-m" and argv[1] in MODULES))
        and {name for name in env if name.startswith(_BEGINS)} <= _BUT
        and env.get("PYTHONPATH") == str(REPO)
        and options.keys() <= {"stdin", "stdout", "stderr", "text", "start_new_session"}
        and sum(map(len, [*argv, *env, *env.values()])) < _MOST // 8
    )


def start_child(command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
    """Starts children for the sandbox; forks document readers and the processes that run SQL."""
    kind = _kind_of(command)
    if _really.is_set() or not kind or _has_other(kind, options["env"]):
        return subprocess.Popen(command, **options)
    return _Forked(command, **options)


def _kind_of(command: Sequence[str]) -> str:
    """Returns the kind of template for a child of kbproc; "" for any other command."""
    is_child = list(command[:3]) == [sys.executable, "-P", "-m"]
    return _CHILDREN.get(command[3], "") if is_child else ""


def _has_other(kind: str, env: Mapping[str, str]) -> bool:
    """Returns True if the kind's template has another environment."""
    return kind in TEMPLATES and dict(env) != TEMPLATES[kind].env


class _Forked(subprocess.Popen[Any]):
    """A forked process with the pipes, wait and end of a Popen."""

    def _execute_child(self, args: Any, *more: Any) -> None:
        cwd, env = more[4:6]
        ends, anew = more[9:15], more[20]
        streams = [fd if fd != -1 else own for own, fd in enumerate(ends[0:6:2])]
        streams[1:] = [fd if fd != -1 else own for own, fd in ((1, ends[3]), (2, ends[5]))]
        argv = list(args[1:])
        if kind := _kind_of(args):
            parent, argv = template(kind, ["-P"], env, cwd), argv[1:]
        else:
            kind = "minimal" if argv[1] == "tests.kit.minimal" else "kbproc"
            parent = template(kind, [], _ENVIRONMENT, str(REPO))
        request = {"argv": argv, "cwd": cwd, "env": dict(env), "start_new_session": anew}
        self.pid = parent.fork(request, streams)
        self._child_created = True
        self._close_pipe_fds(*ends)  # type: ignore[attr-defined]


class Template:
    """A process from which others are forked; it ends with this process."""

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

    def fork(self, request: Mapping[str, Any], streams: Sequence[int]) -> int:
        """Forks a child of this process; returns its pid."""
        message = json.dumps({**request, "umask": _umask()}).encode()
        with self._asking:
            socket.send_fds(self._control, [message], streams)
            pid = self._control.recv(20)
        assert pid, "the template has ended"
        return int(pid)

    def end(self) -> None:
        self._control.close()
        self.process.wait(PATIENCE)


TEMPLATES: dict[str, Template] = {}
_starting = threading.Lock()


def template(kind: str, flags: Sequence[str], env: Mapping[str, str], cwd: str) -> Template:
    """Returns the template of this kind; starts it on first use."""
    with _starting:
        if kind not in TEMPLATES:
            TEMPLATES[kind] = Template(kind, flags, env, cwd)
            atexit.register(TEMPLATES[kind].end)
        return TEMPLATES[kind]


def _umask() -> int:
    """Reads the umask without setting it, because other threads create files."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1], 8) for line in lines if line.startswith("Umask:"))
