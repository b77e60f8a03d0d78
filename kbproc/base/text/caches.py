"""Caches of functions over words and texts, which a purge empties."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_CLEARS: list[Callable[[], None]] = []


def cached(most: int) -> Callable[[Callable[..., T]], functools._lru_cache_wrapper[T]]:
    """Returns a decorator that caches the results of the function's last `most` arguments."""

    def decorate(function: Callable[..., T]) -> functools._lru_cache_wrapper[T]:
        cache = functools.lru_cache(most)(function)
        _CLEARS.append(cache.cache_clear)
        return cache

    return decorate


def empty_caches() -> None:
    """Empties all of them, because arguments and results may hold what is purged."""
    for clear in _CLEARS:
        clear()
