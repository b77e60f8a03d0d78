"""What a model asks for beside a text, and what its cosines mean: measured when it is exported.

Owns: prompts, the scale of cosines, and the texts by which both are told.
Refuses to know: how a model computes.

Of some models texts that have nothing in common have a cosine of .7 and more. A cosine on a scale
of its own means as much as another model's: 0 is nothing in common, 1 is the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Below, cosines are taken as they are: so they are of the default model, whose value is .04.
_LOW = 0.35
# Nothing in common.
UNRELATED = (
    "The cat slept on the warm windowsill all afternoon.",
    "Interest rates rose by a quarter of a point in March.",
    "def parse(line): return line.strip().split(',')",
    "She boiled the pasta and grated some cheese over it.",
    "The treaty ended thirty years of war between the two kingdoms.",
    "Photosynthesis turns light into chemical energy.",
    "Press the red button twice to reset the router.",
    "He scored the winning goal in extra time.",
    "The violin concerto has three movements.",
    "Passports must be valid for six months after arrival.",
)
# A tokenizer that has words of it, and not letters alone, knows more than one script.
_FAR = "东京是日本的首都，也是世界上人口最多的城市之一。"
_WORDS_OF_FAR = 0.75  # tokens a character


class Prompts(Struct, frozen=True, kw_only=True):
    """What is put before a query, and before a text that is searched."""

    query: str = ""
    document: str = ""

    @classmethod
    def of(cls, model: Any) -> Prompts:
        """Of a sentence-transformers model."""
        told: dict[str, str] = getattr(model, "prompts", None) or {}
        document = told.get("document") or told.get("passage") or ""
        return cls(query=told.get("query") or "", document=document)


class Scale(Struct, frozen=True, kw_only=True):
    """`low`: the cosine of texts that have nothing in common; `span`: from there to 1."""

    low: float = 0.0
    span: float = 1.0

    def unscaled(self, value: float) -> float:
        """The cosine that has this value on the scale; below the scale none has."""
        return self.low + self.span * value if value > -1 else -math.inf


AS_IT_IS = Scale()


def scale_of(vectors: Sequence[NDArray[np.float32]]) -> Scale:
    """By unit vectors of the UNRELATED."""
    from statistics import fmean  # which half of what Python has for numbers comes with

    low = round(fmean(float(one @ other) for one, other in combinations(vectors, 2)), 2)
    return AS_IT_IS if low < _LOW else Scale(low=low, span=round(1 - low, 2))


def knows_scripts(count: Callable[[str], int]) -> bool:
    """`count`: tokens of a text."""
    return count(_FAR) < _WORDS_OF_FAR * len(_FAR)
