"""A `kbproc` on the PATH of programs that are not Python; this process forks it.

The program hands its pipes to this process, forwards signals, and ends as the forked process ends.
If the program is killed, so is the forked process.
"""

from __future__ import annotations

import contextlib
import marshal
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.kit.start import start

_MOST = 1 << 17
# Imports only what is compiled into Python: `socket`, `signal` and `json` would double its start.
_PROGRAM = """#!{python} -IS
import _signal, _socket, marshal, os, sys
control = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
control.connect({path!r})
asked = dict(argv=sys.argv[1:], cwd=os.getcwd(), env=dict(os.environ))
asked["env"].pop("LC_CTYPE", None)  # which this Python has added
streams = b"".join(fd.to_bytes(4, sys.byteorder) for fd in (0, 1, 2))
control.sendmsg([marshal.dumps(asked)], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
pid = int(control.recv(20))
for number in (_signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP):
    _signal.signal(number, lambda number, frame: os.kill(pid, number))
os.closerange(0, 2)
code = int(control.recv(20))
if code < 0:
    _signal.signal(-code, _signal.SIG_DFL)
    os.kill(os.getpid(), -code)
os._exit(code)
"""


@contextlib.contextmanager
def program(path: Path, begins: Sequence[str] = ("-m", "kbproc")) -> Iterator[None]:
    """Writes the program to `path` and serves its requests. `begins`: Python's first arguments."""
    place = path.with_suffix(".sock")
    path.write_text(_PROGRAM.format(python=sys.executable, path=str(place)))
    path.chmod(0o755)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(place))
        listener.listen()
        accepting = threading.Thread(target=_accept, args=(listener, begins))
        accepting.start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            accepting.join()


def _accept(listener: socket.socket, begins: Sequence[str]) -> None:
    serving = []
    with contextlib.suppress(OSError):  # the listener is closed
        while True:
            control, _ = listener.accept()
            serving.append(threading.Thread(target=_serve, args=(control, begins)))
            serving[-1].start()
    for thread in serving:
        thread.join()


def _end_with(control: socket.socket, kill: Callable[[], None]) -> None:
    """Kills the forked process once the program has ended."""
    with contextlib.suppress(ConnectionResetError):  # the program was killed
        control.recv(1)
    kill()


def _serve(control: socket.socket, begins: Sequence[str]) -> None:
    with control:
        data, streams, _, _ = socket.recv_fds(control, _MOST, 3)
        if data:  # else it was killed before it asked
            _run(control, marshal.loads(data), streams, begins)


def _run(
    control: socket.socket, request: dict[str, Any], streams: list[int], begins: Sequence[str]
) -> None:
    process = start(
        [*begins, *request["argv"]],
        cwd=Path(request["cwd"]),
        env=request["env"],
        stdin=streams[0],
        stdout=streams[1],
        stderr=streams[2],
    )
    for fd in streams:
        os.close(fd)
    with contextlib.suppress(BrokenPipeError):
        control.send(b"%d" % process.pid)
    ending = threading.Thread(target=_end_with, args=(control, process.kill))
    ending.start()
    code = process.wait()
    with contextlib.suppress(OSError):
        control.send(b"%d" % code)
    ending.join()
