"""Runs a program without a network: a process that opens a network socket is killed.

Run as `python -m tests.kit.alone PROGRAM ARGUMENT...`. A seccomp filter applies to the program and
to its children. It kills with SIGSYS, so that no library can swallow the error.
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
_NUMBER, _FIRST_ARGUMENT = 0, 16  # offsets in struct seccomp_data
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _FILTER = 38, 22, 2

# (operation, value, jump if equal, jump if not)
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
    """Installs the filter in this process and its future children. Raises OSError."""
    program = b"".join(struct.pack("HBBI", code, yes, no, k) for code, k, yes, no in _PROGRAM)
    filter_program = _Filter(len(_PROGRAM), program)
    libc = ctypes.CDLL(None, use_errno=True)
    for option, *more in (
        (_PR_SET_NO_NEW_PRIVS, 1, None),
        (_PR_SET_SECCOMP, _FILTER, ctypes.byref(filter_program)),
    ):
        rest = [ctypes.c_ulong(more[0]), more[1], None, None]
        if libc.prctl(option, *rest) != 0:
            raise OSError(ctypes.get_errno(), "no filter could be set")


if __name__ == "__main__":
    be_alone()
    os.execvp(sys.argv[1], sys.argv[1:])
