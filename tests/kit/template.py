"""A process that has imported kbproc once, and becomes a kbproc whenever it is asked.

Run as `python -m tests.kit.template FD KIND` by start.py. What it forks has its own folder,
environment, arguments and descriptors, and none of this process's; its parent is whoever
asked, as if that one had started it.
"""

from __future__ import annotations

import faulthandler
import fcntl
import gc
import importlib
import json
import os
import socket
import sys
import termios
import time
import types
from pathlib import Path
from typing import Any, NoReturn

from kbproc.base.pipes import leave
from kbproc.base.sandbox import stay_alone

MOST = 1 << 17  # bytes that a request may have
STREAMS = 3
# What is loaded on the way by a serve or a command, and by a reader of documents.
LOADED = {
    "kbproc": (
        "duckdb",
        "kbproc.__main__",
        "kbproc.client",
        "kbproc.methods.all",
        "jsonschema_rs",
        "kbproc.library.library",
        "kbproc.models.catalogue",
        "kbproc.sharing.alone",
        "kbproc.sharing.attached",
        "kbproc.sharing.coprocess",
        "kbproc.sharing.relay",
        "kbproc.sharing.takeover",
        "kbproc.shell.cli",
        "kbproc.shell.fastpath",
        "kbproc.shell.run",
        "kbproc.sources.parse.pool",
        "kbproc.views.catalog.catalog",
        "kbproc.views.fulltext.index",
        "kbproc.views.vectors.view",
        "kbproc.wire.logs",
        "numpy.ma",
        "rich.console",
        "tests.kit.broken",
        "tests.kit.fixed",
        "watchfiles",
    ),
    "parser": (
        "kbproc.sources.parse.html",
        "kbproc.sources.parse.markdown",
        "kbproc.sources.parse.text",
        "kbproc.sources.parse.worker",
    ),
}
# What can be run, as `-m NAME`: the module and what it calls.
MODULES = {
    "kbproc": ("kbproc.__main__", "main"),
    "tests.kit.broken": ("tests.kit.broken", "main"),
    "tests.kit.fixed": ("tests.kit.fixed", "main"),
    "kbproc.sources.parse.worker": ("kbproc.sources.parse.worker", "main"),
}


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    for name in LOADED[sys.argv[2]]:
        importlib.import_module(name)
    if (methods := sys.modules.get("kbproc.methods.all")) is not None:
        methods.registry().loaded()
    threads = list(Path("/proc/self/task").iterdir())
    assert len(threads) == 1, "a thread that runs here would be missing in what is forked"
    gc.collect()
    gc.freeze()
    while True:
        data, streams, _, _ = socket.recv_fds(control, MOST, STREAMS)
        if not data:  # whoever asks has gone
            os._exit(0)
        control.send(b"%d" % born(control, json.loads(data), streams))
        for fd in streams:
            os.close(fd)


def born(control: socket.socket, asked: dict[str, Any], streams: list[int]) -> int:
    """The new process's pid.

    One between forks it and ends: so whoever asked, being a subreaper, gets it for a child.
    """
    told, tell = os.pipe()
    waits, go = os.pipe()
    between = os.fork()
    if between == 0:
        pid = os.fork()
        if pid:
            os.write(tell, b"%d" % pid)
            os._exit(0)
        os.close(go)
        os.read(waits, 1)  # until the one between is gone
        become(asked, streams)
    os.waitpid(between, 0)
    pid = int(os.read(told, 20))
    for fd in (told, tell, waits, go):
        os.close(fd)
    return pid


def become(asked: dict[str, Any], streams: list[int]) -> NoReturn:
    """Runs what is asked for, as a Python that has just started would."""
    for number, fd in enumerate(streams):
        os.dup2(fd, number)
    os.closerange(STREAMS, os.sysconf("SC_OPEN_MAX"))
    if asked["start_new_session"]:
        os.setsid()
        own_terminal()
    os.umask(asked["umask"])
    os.chdir(asked["cwd"])
    coerced = {name: os.environ[name] for name in ("LC_CTYPE",) if name in os.environ}
    os.environ.clear()
    os.environ.update({**coerced, **asked["env"]})
    stay_alone()  # as the libraries are imported, which it is for
    time.tzset()
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        setattr(sys, name, _stream(getattr(sys, name), mode))
        setattr(sys, f"__{name}__", getattr(sys, name))
    if "PYTHONFAULTHANDLER" in asked["env"]:
        faulthandler.enable()
    sys.excepthook = _fail
    try:
        _run(*asked["argv"])
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        leave(end.code if isinstance(end.code, int) else int(end.code is not None))
    leave(0)


def own_terminal() -> None:
    """What is typed at the terminal of stdin reaches this process as signals, too."""
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
