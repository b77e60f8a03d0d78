"""Decodes JSON of which a single value can't be held: a number out of range, half a character."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec

from kbproc.base.values import check_depth

_MOST_DIGITS = 4000  # Python refuses longer integers


def decode(data: bytes | str) -> Any:
    """Returns the value of a JSON text.

    A number out of range becomes its text, and half of a pair of surrogates U+FFFD.
    Raises msgspec.DecodeError, UnicodeDecodeError and RecursionError.
    """
    # UTF-16 has a NUL there, and the bytes of brackets in other characters.
    if isinstance(data, str) or b"\0" not in data[:4]:
        check_depth(data)
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError:
        try:
            decoded = json.loads(
                data, parse_int=_integer, parse_float=_float, parse_constant=_refuse
            )
            return _whole(decoded)
        except (ValueError, RecursionError):
            pass
        raise


def _integer(written: str) -> int | str:
    return int(written) if len(written) <= _MOST_DIGITS else written


def _float(written: str) -> float | str:
    number = float(written)
    return number if math.isfinite(number) else written


def _refuse(name: str) -> Any:
    """Raises ValueError, because JSON has no NaN."""
    raise ValueError(name)


def _whole(value: Any) -> Any:
    """Returns the value without halves of pairs of surrogates."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_whole(each) for each in value]
    if isinstance(value, dict):
        return {_whole(name): _whole(each) for name, each in value.items()}
    return value
