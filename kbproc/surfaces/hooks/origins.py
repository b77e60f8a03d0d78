"""Decides which texts a hook may quote, by where each came from.

A page from the web, or another store's export, may hold an instruction that somebody planted for
an agent. A hook adds texts to a prompt without a request for them, so it quotes those only where
a setting says so.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from kbproc.engine.events.origin import FOREIGN


def may_quote(item: Mapping[str, Any], allowed: Collection[str]) -> bool:
    """Returns True if a hit or an item of a list may be quoted; False for one without an origin."""
    origin = item.get("origin")
    return origin is not None and (origin not in FOREIGN or origin in allowed)
