"""Whether the store knows an answer: what the best score says of it.

Owns: the three levels, their thresholds in each mode, and which hits are none.
Refuses to know: how scores come about.

The thresholds are for the default model: the benchmark of search prints how many questions reach
them, of those that a collection answers and of those of another. docs/search.md states them.
"""

from __future__ import annotations

from typing import Literal

from kbproc.search.fusion import Mode

Confidence = Literal["none", "related", "likely"]

RELATED: dict[Mode, float] = {"hybrid": 0.2, "fts": 0.2, "vector": 0.3}
LIKELY: dict[Mode, float] = {"hybrid": 0.35, "fts": 0.3, "vector": 0.45}
# Hits of less would be shown as 0.000.
LEAST_SCORE = 0.0005


def confidence(best: float, mode: Mode) -> Confidence:
    """`best`: the highest blended score of all that was found, 0 if nothing was."""
    if best < RELATED[mode]:
        return "none"
    return "related" if best < LIKELY[mode] else "likely"
