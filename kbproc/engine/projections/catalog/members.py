"""Codes the members of a document's metadata as the filters of lists and searches name them."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import msgspec

from kbproc.base.hashes import sha256

_LONGEST_VALUE = 100  # characters; of longer values the index has a digest
_decode = msgspec.json.Decoder().decode


def members_of(metadata: str) -> Iterator[tuple[str, str, str]]:
    """Yields key, kind and value of each member of a JSON object that a filter can name."""
    for key, value in _decode(metadata).items():
        if (coded := coded_value(value)) is not None:
            yield key, *coded


def coded_value(value: Any) -> tuple[str, str] | None:
    """Returns kind and text of a value; None for one that no filter can name.

    Integers and fractions are two kinds, because doubles would confuse integers beyond 2**53 with
    their neighbours.
    """
    match value:
        case None:
            return "null", ""
        case bool():
            return "bool", str(value)
        case str():
            if len(value) > _LONGEST_VALUE:
                return "long", sha256(value.encode()).hexdigest()
            return "text", value
        case int():
            return "int", str(value)
        case float():
            return "float", repr(value + 0.0)
        case _:
            return None


def coded_values(value: Any) -> list[tuple[str, str]]:
    """Returns every coding of a value that a filter names: 1 and 1.0 are one number."""
    codings = [coded_value(value)]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and math.isfinite(value) and value == int(value):
        codings = [coded_value(int(value))]
        with contextlib.suppress(OverflowError):
            codings.append(coded_value(float(value)))
    return [coding for coding in codings if coding is not None]
