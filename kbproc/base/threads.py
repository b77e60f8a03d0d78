"""Threads of background work.

Owns: their low priority.
Refuses to know: what the work is.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading

_NICE = 10


def lower_priority() -> None:
    """On Linux a thread has its own priority: searches get the processor first."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
