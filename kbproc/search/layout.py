"""A search's results as people see them.

Owns: the line before the hits, and what is said of each beside its snippet.
Refuses to know: how hits are found, and terminals.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kbproc.base.host import Host
from kbproc.base.layout import Hit, Hits
from kbproc.base.wording import plural
from kbproc.documents.entry import standing


def as_hits(results: dict[str, Any], params: dict[str, Any]) -> Hits:
    first = int(params.get("offset", 0)) + 1
    return Hits(
        hits=[_hit(hit, params) for hit in results["results"]],
        head=_head(results, first),
        first=first,
    )


def _hit(hit: dict[str, Any], params: dict[str, Any]) -> Hit:
    source = hit["source"]
    tags = f" [{', '.join(source['tags'])}]" if source["tags"] else ""
    labels = f" [{source['type']}]{tags}"
    if source["type"] == "knowledge":
        labels += f" #{source['document_id']}, {', '.join(_facts(hit, params))}"
    return Hit(
        score=hit["score"],
        title=title_of(source),
        labels=labels,
        snippet=hit["snippet"],
        more=hit.get("explain") or {},
        where=_where(hit),
    )


def _where(hit: dict[str, Any]) -> str:
    """What to ask for next: the ids, and the file or page."""
    source = hit["source"]
    path = f"  {source['path']}" if source["path"] else ""
    return f"document {source['document_id']}, chunk {hit['chunk_id']}{path}"


def _facts(hit: dict[str, Any], params: dict[str, Any]) -> Iterator[str]:
    """Whether an entry had expired at a moment in the past is not said."""
    yield f"confidence {hit['confidence']}"
    now = "" if params.get("as_of") is not None else Host().now()
    yield from standing(hit, expired=str(hit["expires_at"]) <= now)


def _head(results: dict[str, Any], first: int) -> str:
    total, shown = results["total_matches"], len(results["results"])
    weak = "weak " if shown and results["confidence"] == "none" else ""
    matches = plural(total, f"{weak}match", f"{weak}matches")
    last = first + shown - 1
    showing = f"top {shown}" if first == 1 else f"{first}–{last}" if last > first else f"{last}"
    tail = f", showing {showing}" if shown else ""
    return f'Search: "{results["query"]}" ({matches}{tail})'


def title_of(source: dict[str, Any]) -> str:
    """With page and section, as it is cited."""
    page = ""
    if (first := source.get("page")) is not None:
        last = source.get("page_end", first)
        page = f" (p.{first})" if last == first else f" (p.{first}–{last})"
    section = f" §{source['section']}" if source["section"] else ""
    return f"{source['title']}{page}{section}"
