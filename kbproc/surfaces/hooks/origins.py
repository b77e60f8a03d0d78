"""Decides which texts a hook may quote, by where each came from.

A page from the web, or another store's export, may hold an instruction that somebody planted for
an agent. A hook adds texts to a prompt without a request for them, so it quotes those only where
a setting says so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from kbproc.surfaces.hooks.asking import HookQuestion, Request

FOREIGN = ("web", "import")  # origins that need a setting
_URL = ("http://", "https://")
_IMPORT = "store.import"
_MOST_REVISIONS = 50


def quotable(
    asking: HookQuestion, items: Iterable[Mapping[str, Any]], allowed: Collection[str]
) -> set[int]:
    """Returns the ids of documents, entries and notes that may be quoted.

    `items`: hits' sources, or items of a list. Where an item names its `origin`, that decides;
    else its URL, and how the document came into the store. One whose history can't be read is not
    quoted. Raises the errors of `HookQuestion`.
    """
    ids: set[int] = set()
    unclear: dict[int, str] = {}
    for item in items:
        id = int(item.get("document_id") or item["id"])
        origin = item.get("origin") or ("web" if _has_url(item) else None)
        if origin is None:
            unclear[id] = str(item.get("type", "knowledge"))
        elif origin not in FOREIGN or origin in allowed:
            ids.add(id)
    if set(FOREIGN) <= set(allowed):
        return ids | set(unclear)
    return ids | _judged(asking, unclear, allowed)


def _has_url(item: Mapping[str, Any]) -> bool:
    source = item.get("source")
    places = [item.get("path"), source, source.get("url") if isinstance(source, dict) else None]
    return any(isinstance(place, str) and place.startswith(_URL) for place in places)


def _judged(asking: HookQuestion, unclear: Mapping[int, str], allowed: Collection[str]) -> set[int]:
    """Returns those ids whose history, and for an entry its source, names no foreign origin."""
    entries = [id for id, type in unclear.items() if type == "knowledge"]
    requests: list[Request] = [
        ("doc.history", {"id": id, "limit": _MOST_REVISIONS, "fields": ["method"]})
        for id in unclear
    ]
    requests += [("knowledge.get", {"id": id, "fields": ["source"]}) for id in entries]
    responses = asking.responses(requests) if requests else []
    ids = set()
    for id, response in zip(unclear, responses, strict=False):
        revisions = response.get("result", {}).get("data", [])
        is_import = any(revision.get("method") == _IMPORT for revision in revisions)
        if revisions and (not is_import or "import" in allowed):
            ids.add(id)
    for id, response in zip(entries, responses[len(unclear) :], strict=True):
        entry = response.get("result", {}).get("data")
        if entry is None or (_has_url(entry) and "web" not in allowed):
            ids.discard(id)
    return ids
