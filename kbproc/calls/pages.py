"""Answers that are a part of something longer.

Owns: what a page of a search says of what is left out.
Refuses to know: what is listed or found.
"""

from __future__ import annotations

from kbproc.calls.reply import Reply
from kbproc.search.search import Found


def found_reply(found: Found) -> Reply:
    """What a search answers, with its meta."""
    results = found.results
    return Reply(
        data=results,
        seq=found.freshness.seq,
        count=results.returned,
        total=results.total_matches,
        has_more=found.has_more,
        hint=found.hint,
        notice=found.notice or None,
        freshness=found.freshness,
    )
