"""Calibrates models at export: the prompts before their texts, and the scale of their cosines.

With some models, texts that have nothing in common have a cosine of .7 and more. On the model's
scale cosines mean the same for all models: 0 is nothing in common, 1 is the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Cosines of models below this stay unscaled. The default model's value is .04.
_LOW = 0.35
# Texts that have nothing in common.
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
# A tokenizer that has words of this text, and not letters alone, knows more than one script.
_FAR = "东京是日本的首都，也是世界上人口最多的城市之一。"
_WORDS_OF_FAR = 0.75  # tokens a character


class Prompts(Struct, frozen=True, kw_only=True):
    """The texts that a model needs before a query and before a document's text."""

    query: str = ""
    document: str = ""

    @classmethod
    def of(cls, named: Mapping[str, Any] | None) -> Prompts:
        """Returns the prompts of a sentence-transformers model, given by their names."""
        texts = {name: text for name, text in (named or {}).items() if isinstance(text, str)}
        document = texts.get("document") or texts.get("passage") or ""
        return cls(query=texts.get("query") or "", document=document)


class Scale(Struct, frozen=True, kw_only=True):
    """A model's scale of cosines.

    `low`: the cosine of texts that have nothing in common; `span`: from there to 1.
    """

    low: float = 0.0
    span: float = 1.0

    def unscaled(self, value: float) -> float:
        """Returns the cosine that has this value on the scale; −inf for −1, the scale's end."""
        return self.low + self.span * value if value > -1 else -math.inf


UNSCALED = Scale()


def scale_of(vectors: Sequence[NDArray[np.float32]]) -> Scale:
    """Returns the scale of a model, from its unit vectors of the UNRELATED texts."""
    from statistics import fmean  # imported here, because it imports decimal, fractions and more

    low = round(fmean(float(a @ b) for a, b in combinations(vectors, 2)), 2)
    return UNSCALED if low < _LOW else Scale(low=low, span=round(1 - low, 2))


def knows_scripts(count: Callable[[str], int]) -> bool:
    """Returns whether a tokenizer has words of several scripts; `count`: tokens of a text."""
    return count(_FAR) < _WORDS_OF_FAR * len(_FAR)
