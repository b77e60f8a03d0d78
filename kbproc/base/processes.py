"""Reads what the system knows of a process."""

from __future__ import annotations

import os
import sys
import time

_START = 19  # the place of the start among the fields


def fields(pid: int | str) -> list[str]:
    """Returns the fields of Linux's /proc/PID/stat after the name: the state's letter first.

    Raises OSError.
    """
    with open(f"/proc/{pid}/stat", errors="replace") as file:  # noqa: PTH123  pathlib takes long
        return file.read().rpartition(")")[2].split()


def start_of(pid: int | str) -> str:
    """Returns when the process began on Linux, in ticks since the machine's start.

    Raises OSError, IndexError.
    """
    return fields(pid)[_START]


def asked_of_ps(pid: int, column: str) -> str:
    """Returns what `ps` says of a process on systems without /proc; "" if there is none."""
    import subprocess  # imported late, because only other systems than Linux need it

    argv = ["/bin/ps", "-o", f"{column}=", "-p", str(pid)]
    return subprocess.run(argv, check=False, capture_output=True, text=True).stdout.strip()


def own_age() -> float:
    """Returns the seconds since this process was started.

    A busy machine may need most of a second until its code runs. Where the system does not tell
    its start, only the time that it computed counts.
    """
    if sys.platform != "linux":
        return time.process_time()
    try:
        began = int(start_of("self")) / os.sysconf("SC_CLK_TCK")
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - began)
    except (OSError, IndexError, ValueError):
        return time.process_time()
