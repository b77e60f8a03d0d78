"""A purge that is not at its end in the cluster, and goes on while nobody waits for it.

Owns: when this node does its part, which whoever decided the purge does at once.
Refuses to know: what there is to do (history/purge.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable

from kbproc.history import forgotten, purge
from kbproc.history.purge import Reach

# So long another node may take to end what it has decided.
_PATIENCE_S = 5.0
_LOOKS_S = 0.5


class Unended:
    def __init__(self, reach: Callable[[], Reach]) -> None:
        self._reach = reach
        self._since = (0, 0.0)

    def turn(self) -> float | None:
        """Does what is due. After how many seconds there may be more; None: nothing is left.

        Raises store.io.
        """
        reached = self._reach()
        store = reached.store
        left = forgotten.read(store.folder)
        if left is None or not left.due or not store.log.is_shared:
            return None
        if self._since[0] != left.due:
            self._since = (left.due, time.monotonic())
        is_patient = time.monotonic() < self._since[1] + _PATIENCE_S
        if is_patient and not purge.has_ended(store, left.due):
            return _LOOKS_S
        purge.forget_elsewhere(reached)
        return None
