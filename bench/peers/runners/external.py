"""Gives txtai, which finds the function by name, precomputed vectors without a model."""

from __future__ import annotations

from typing import Any

import numpy as np

_ANY = np.eye(384, dtype=np.float32)[0]
ready: dict[str, Any] = {}


def vectors_of(texts: list[str]) -> Any:
    """Returns the texts' vectors; a search by words asks for one, too, and weighs it 0."""
    return np.stack([ready.get(text, _ANY) for text in texts])
