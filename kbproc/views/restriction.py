"""What every view shares: the position it has applied, and what a search is restricted to.

Refuses to know: how any view stores or searches.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Restriction:
    """What a search may see; None leaves that side open.

    `kbs`: only what is labelled so, `without`: not so; see filters. `documents`: only
    these, `exclude`: not these; both sorted.
    """

    kbs: tuple[str, ...] | None = None
    without: tuple[str, ...] = ()
    documents: NDArray[np.int64] | None = None
    exclude: NDArray[np.int64] | None = None
