"""What txtai calls for vectors: a function that it finds by name. No model, they are ready."""

from __future__ import annotations

from typing import Any

import numpy as np

_ANY = np.eye(384, dtype=np.float32)[0]
ready: dict[str, Any] = {}


def vectors_of(texts: list[str]) -> Any:
    """Searching by words alone asks for the query's, too, and weighs it 0."""
    return np.stack([ready.get(text, _ANY) for text in texts])
