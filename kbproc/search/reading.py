"""How a query is read against what a store holds.

Owns: which phrases bind, and which dashes leave a word out.
Refuses to know: how candidates are found and scored.
"""

from __future__ import annotations

import re
from dataclasses import replace

from kbproc.search.candidates import everything
from kbproc.store.snapshot import Snapshot
from kbproc.text.query import Query
from kbproc.views.restriction import Restriction

# Of those that a dash would leave out, the best are looked at.
_LOOKED_AT = 20


def read(snapshot: Snapshot, query: Query, within: Restriction) -> tuple[Query, list[str]]:
    """The query as it is searched, and what to say of how it was read.

    `within`: what is searched.
    """
    for option in query.options:
        if _is_option(snapshot, query, option):
            query = query.with_words(option)
    if not query.phrases:
        return query, []
    return _loosened(snapshot, query, within)


def _is_option(snapshot: Snapshot, query: Query, option: str) -> bool:
    """Whether a text that would be left out has the option as it was typed, dash and all."""
    asked = query.with_words(option)
    held = replace(asked, phrases=((*asked.terms[len(query.terms) :],),), excluded=())
    best = snapshot.fulltext.search(held, _LOOKED_AT, restriction=everything(snapshot))
    typed = re.compile(rf"(?<![\w-])-{re.escape(option)}(?![\w-])")
    rows = snapshot.fulltext.rows(best.chunk_ids).values()
    return any(typed.search(row.text) for row in rows)


def _loosened(snapshot: Snapshot, query: Query, within: Restriction) -> tuple[Query, list[str]]:
    """Phrases bind where a text that is searched holds them all; else their words count."""
    holds = snapshot.fulltext.holds
    kept = tuple(p for p in query.phrases if holds(Query(p, (p,)), within))
    lost = [quoted(phrase) for phrase in query.phrases if phrase not in kept]
    said = []
    if lost:
        phrases = ", nor ".join(lost)
        said.append(f"No chunk that is searched holds the phrase {phrases}: its words count.")
    if len(kept) > 1 and not holds(Query(kept[0], kept), within):
        together = " and ".join(map(quoted, kept))
        said.append(f"No chunk holds {together} together: their words count.")
        kept = ()
    return replace(query, phrases=kept), said


def quoted(words: tuple[str, ...]) -> str:
    return f"“{' '.join(words)}”"
