"""A program that may talk to nobody: opening a socket that could reach the network ends it.

Run as `python -m tests.kit.alone PROGRAM ARGUMENT...`: the kernel holds the program and all that
it starts to that. Whoever tries is ended by SIGSYS, so that no library can try and be silent.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import sys

_SOCKET = {"x86_64": 41, "aarch64": 198}[os.uname().machine]
_LOAD, _IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_KILL_PROCESS, _ALLOW = 0x80000000, 0x7FFF0000
_NUMBER, _FIRST_ARGUMENT = 0, 16  # where they stand in what a filter looks at
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _FILTER = 38, 22, 2

# (what, value, steps over if equal, steps over if not)
_PROGRAM = [
    (_LOAD, _NUMBER, 0, 0),
    (_IF_EQUAL, _SOCKET, 0, 3),
    (_LOAD, _FIRST_ARGUMENT, 0, 0),
    (_IF_EQUAL, socket.AF_UNIX, 1, 0),
    (_RETURN, _KILL_PROCESS, 0, 0),
    (_RETURN, _ALLOW, 0, 0),
]


class _Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("program", ctypes.c_char_p))


def be_alone() -> None:
    """From here on, in this process and all that it starts. Raises OSError."""
    program = b"".join(struct.pack("HBBI", code, yes, no, k) for code, k, yes, no in _PROGRAM)
    given = _Filter(len(_PROGRAM), program)
    libc = ctypes.CDLL(None, use_errno=True)
    for option, *more in (
        (_PR_SET_NO_NEW_PRIVS, 1, None),
        (_PR_SET_SECCOMP, _FILTER, ctypes.byref(given)),
    ):
        rest = [ctypes.c_ulong(more[0]), more[1], None, None]
        if libc.prctl(option, *rest) != 0:
            raise OSError(ctypes.get_errno(), "no filter could be set")


if __name__ == "__main__":
    be_alone()
    os.execvp(sys.argv[1], sys.argv[1:])
