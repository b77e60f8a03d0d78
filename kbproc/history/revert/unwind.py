"""How far records can be taken off the end of a line of them.

Owns: which records are undone, which have been undone already, and which one is in the way.
Refuses to know: whether the line is a document's, a link's or an agent's.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple, Protocol

from kbproc.history.timeline import BRINGS_BACK, Touch


class Line(Protocol):
    """What happened to one thing, oldest first."""

    touches: list[Touch]

    def alike(self, one: int, other: int) -> bool: ...


class Unwound(NamedTuple):
    """`to`: the touch to go back to, -1 for before the first. `already`: a touch, and the
    one that has undone it; `blocked`: by the touch at `to`, which stays."""

    to: int
    undone: list[Touch]
    already: list[tuple[Touch, Touch]]
    blocked: list[Touch]


def unwind(line: Line, seqs: Collection[int]) -> Unwound:
    """Takes records off the end, as long as they are among `seqs`."""
    at = len(line.touches) - 1
    undone: list[Touch] = []
    already: list[tuple[Touch, Touch]] = []
    while at >= 0:
        touch = line.touches[at]
        if touch.seq in seqs:
            undone.append(touch)
            at -= 1
            continue
        same = _alike_before(line, at)
        if same is None:
            break
        between = line.touches[same + 1 : at]
        already += [(other, touch) for other in between if other.seq in seqs]
        at = same
    return Unwound(at, undone, already, [t for t in line.touches[: at + 1] if t.seq in seqs])


def _alike_before(line: Line, at: int) -> int | None:
    """The state that this touch has only brought back, if that is what it did."""
    if line.touches[at].method not in BRINGS_BACK:
        return None
    return next((i for i in range(at - 1, -2, -1) if line.alike(i, at)), None)
