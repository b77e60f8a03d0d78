"""Chooses when Python looks for cycles of garbage.

A start makes up to 60,000 objects and no garbage, and a look at them takes five milliseconds.
"""

from __future__ import annotations

import gc

# New objects until Python looks: more than a start makes, and for a process that goes on.
_DURING_A_START, _LATER = 100_000, 25_000


def wait_with_garbage() -> None:
    """Lets a start go by without a look for garbage."""
    gc.set_threshold(_DURING_A_START)


def look_for_garbage() -> None:
    """Begins to look for garbage among the objects that are made from now on.

    Modules, classes and an open store live as long as the process, so no look visits them again.
    Only the first call has an effect, because later there may be garbage, which must not be kept.
    """
    if gc.get_threshold()[0] == _DURING_A_START:
        gc.freeze()
        gc.set_threshold(_LATER)
