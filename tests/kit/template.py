"""A process that has imported kbproc once, and forks a kbproc on request.

start.py runs it as `python -m tests.kit.template FD KIND`. A forked process has its own folder,
environment, arguments and descriptors, and none of this process's; its parent is the process
that sent the request, as if that process had started it.
"""

from __future__ import annotations

import ctypes
import faulthandler
import fcntl
import gc
import importlib
import json
import os
import pkgutil
import signal
import socket
import sys
import termios
import time
import types
from pathlib import Path
from typing import Any, NoReturn

import kbproc
from kbproc.base.host import stay_alone
from kbproc.base.patterns import LazyPattern
from kbproc.base.pipes import leave
from kbproc.base.values import Decoder

MOST = 1 << 17  # bytes that a request may have
STREAMS = 3
# Functions of glibc, called with the interpreter's lock held, as os.fork calls fork().
_GLIBC = ctypes.PyDLL(None, use_errno=True)
_GLIBC.syscall.restype = ctypes.c_long
_PR_GET_TID_ADDRESS = 40  # linux/prctl.h
_CLONE_PARENT, _CLONE_CHILD_CLEARTID, _CLONE_CHILD_SETTID = 0x8000, 0x200000, 0x1000000
_FLAGS = ctypes.c_long(_CLONE_PARENT | _CLONE_CHILD_CLEARTID | _CLONE_CHILD_SETTID | signal.SIGCHLD)
_CLONE = {"x86_64": 56, "aarch64": 220}  # asm/unistd.h
# Modules that the kit's minimal server imports.
MINIMAL = ("base64", "difflib", "hashlib", "json", "re", "select", "signal", "time", "datetime")
# Modules that a serve or command, a document reader, or a process for SQL imports lazily, beside
# kbproc itself, of which a serve or command has everything.
LOADED = {
    "kbproc": (
        "duckdb",
        "httpx",
        "jsonschema_rs",
        "nats",
        "numpy.ma",
        "rich.console",
        "tests.kit.fixed",
        "tomllib",
        "watchfiles",
    ),
    "minimal": ("tests.kit.minimal", *MINIMAL),
    "parser": (
        "kbproc.engine.sources.parse.html",
        "kbproc.engine.sources.parse.json_values",
        "kbproc.engine.sources.parse.markdown",
        "kbproc.engine.sources.parse.pdf",
        "kbproc.engine.sources.parse.text",
        "kbproc.engine.sources.parse.worker",
    ),
    "sql": (
        "duckdb",
        "kbproc.engine.projections.catalog.tables",
        "kbproc.engine.store.sql.tables",
        "kbproc.engine.store.sql.worker",
        "sqlite3",
    ),
}
# Programs for `-m NAME`: the module and its function.
MODULES = {
    "kbproc": ("kbproc.__main__", "main"),
    "tests.kit.fixed": ("tests.kit.fixed", "main"),
    "tests.kit.minimal": ("tests.kit.minimal", "main"),
    "kbproc.engine.sources.parse.worker": ("kbproc.engine.sources.parse.worker", "main"),
    "kbproc.engine.store.sql.worker": ("kbproc.engine.store.sql.worker", "main"),
}


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    for name in LOADED[sys.argv[2]]:
        importlib.import_module(name)
    if sys.argv[2] == "kbproc":
        import_kbproc()
        compile_validators()
    if sys.argv[2] == "parser":
        read_each_type()
    learn_types_and_patterns()
    threads = list(Path("/proc/self/task").iterdir())
    assert len(threads) == 1, "a thread that runs here would be missing in what is forked"
    gc.collect()
    gc.freeze()
    while True:
        data, streams, _, _ = socket.recv_fds(control, MOST, STREAMS)
        if not data:  # the test process has ended
            os._exit(0)
        control.send(b"%d" % born(json.loads(data), streams))
        for fd in streams:
            os.close(fd)


def import_kbproc() -> None:
    """Imports every module of kbproc."""
    for module in pkgutil.walk_packages(kbproc.__path__, "kbproc."):
        importlib.import_module(module.name)


def compile_validators() -> None:
    """Imports all methods, and compiles what a server checks its messages with."""
    from kbproc.methods.all import registry
    from kbproc.methods.calls.checker import Checker
    from kbproc.methods.calls.messages import PROCESS_EVENTS, STREAM_EVENTS

    checker = Checker()
    checker.error({})
    for event in {**PROCESS_EVENTS, **STREAM_EVENTS}:
        checker.event(event, {})
    for method in registry().methods.values():
        checker.result(method, {})


def learn_types_and_patterns() -> None:
    """Prepares what a process otherwise learns or compiles on first use."""
    for thing in gc.get_objects():
        if isinstance(thing, Decoder):
            thing.learn()
        elif isinstance(thing, LazyPattern):
            thing.match  # noqa: B018


def read_each_type() -> None:
    """Reads a short text of each type, because readers import and compile on first use."""
    from kbproc.engine.sources.parse import worker

    setup = worker.Setup(
        tokenizer=None, max_tokens=256, overlap=32, memory_bytes=0, timeout_s=60, parent=0
    )
    for type in ("markdown", "html", "text", "code"):
        job = worker.ParserJob(data=b"<p>text</p>", type=type, name="name", title=None)
        parsed = worker.read(job, setup, worker.count_words)
        worker.frame(worker.ParseAnswers(answers=[worker.ParseAnswer(parsed=parsed)]))


def born(request: dict[str, Any], streams: list[int]) -> int:
    """Forks the new process; returns its pid."""
    pid = _fork_for_parent()
    if pid == 0:
        become(request, streams)
    return pid


def _fork_for_parent() -> int:
    """Forks as os.fork does, but for this process's parent, which can wait for the child then.

    See clone(2), CLONE_PARENT. glibc has no function for it that returns in the child; the child's
    thread keeps its number where glibc looks for it, as after fork(). Raises OSError.
    """
    place = ctypes.c_void_p()
    _check(_GLIBC.prctl(_PR_GET_TID_ADDRESS, ctypes.byref(place), 0, 0, 0))
    ctypes.pythonapi.PyOS_BeforeFork()
    # The last two arguments are (thread's number, storage), in an order that differs by processor.
    pid: int = _GLIBC.syscall(_CLONE[os.uname().machine], _FLAGS, None, None, place, place)
    if pid == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
    else:
        ctypes.pythonapi.PyOS_AfterFork_Parent()
        _check(pid)
    return pid


def _check(result: int) -> None:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def become(request: dict[str, Any], streams: list[int]) -> NoReturn:
    """Runs the requested program as a new Python interpreter would."""
    for number, fd in enumerate(streams):
        os.dup2(fd, number)
    os.closerange(STREAMS, os.sysconf("SC_OPEN_MAX"))
    if request["start_new_session"]:
        os.setsid()
        own_terminal()
    os.umask(request["umask"])
    os.chdir(request["cwd"])
    coerced = {name: os.environ[name] for name in ("LC_CTYPE",) if name in os.environ}
    os.environ.clear()
    os.environ.update({**coerced, **request["env"]})
    stay_alone()  # the libraries are imported, so their variables are set as well
    time.tzset()
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        setattr(sys, name, _stream(getattr(sys, name), mode))
        setattr(sys, f"__{name}__", getattr(sys, name))
    if "PYTHONFAULTHANDLER" in request["env"]:
        faulthandler.enable()
    sys.excepthook = _fail
    try:
        _run(*request["argv"])
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        leave(end.code if isinstance(end.code, int) else int(end.code is not None))
    leave(0)


def own_terminal() -> None:
    """Makes stdin's terminal the controlling one, so that Ctrl-C sends a signal."""
    if os.isatty(0):
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _fail(*error: Any) -> NoReturn:
    sys.__excepthook__(*error)
    leave(1)


def _stream(like: Any, mode: str) -> Any:
    fd = like.fileno()
    return open(
        fd,
        mode,
        buffering=1 if os.isatty(fd) or fd == sys.__stderr__.fileno() else -1,
        encoding=like.encoding,
        errors=like.errors,
        closefd=False,
    )


def _run(how: str, what: str, *more: str) -> None:
    if how == "-c":
        sys.path[0] = ""
        sys.argv = ["-c", *more]
        program = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(what, "<string>", "exec"), vars(program))
        return
    module, name = MODULES[what]
    if not sys.flags.safe_path:
        sys.path[0] = str(Path.cwd())
    sys.argv = [str(sys.modules[module].__file__), *more]
    leave(getattr(sys.modules[module], name)())


if __name__ == "__main__":
    main()
