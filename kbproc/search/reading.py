"""How a query is read against what a store holds.

Owns: which phrases bind, which dashes leave a word out, which words are mistyped, and which are
written as one or in parts.
Refuses to know: how candidates are found and scored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec.structs import replace

from kbproc.search.candidates import everything
from kbproc.search.vocabulary import Vocabulary
from kbproc.store.snapshot import Snapshot
from kbproc.text.query import Query
from kbproc.text.typos import may_be_mistyped
from kbproc.views.restriction import Restriction

# In a text of more words quotes are quotations: nobody types so much to have it bind.
LONG = 30
# Of those that a dash would leave out, the best are looked at.
_LOOKED_AT = 20


def read(snapshot: Snapshot, query: Query, within: Restriction) -> tuple[Query, list[str]]:
    """The query as it is searched, and what to say of how it was read.

    `within`: what is searched.
    """
    for option in query.options:
        if _is_option(snapshot, query, option):
            query = query.with_words(option)
    query, said = _loosened(snapshot, query, within) if query.phrases else (query, [])
    vocabulary = Vocabulary(snapshot.fulltext, everything(snapshot))
    joined = tuple(filter(vocabulary.knows_joined, query.neighbours()))
    names = tuple(name for name in query.names if vocabulary.knows_name(name))
    instead = tuple(_instead(query, vocabulary, (*joined, *names)))
    nearly = ", ".join(f"{other} for {word}" for word, other in instead)
    said += [f"No chunk holds these words, so others were searched: {nearly}."] if nearly else []
    in_parts = tuple(filter(vocabulary.is_in_parts, dict.fromkeys((*query.terms, *names))))
    query = replace(query, joined=joined, instead=instead, names=names, in_parts=in_parts)
    return query, said


def without_exclusions(
    snapshot: Snapshot, query: Query, within: Restriction
) -> tuple[Query, str] | None:
    """The query that leaves nothing out, and what to say of it, if every match was left out."""
    everything_matching = replace(query, excluded=(), options=())
    if not query.excluded or snapshot.fulltext.search(query, 1, restriction=within).total:
        return None
    if not snapshot.fulltext.search(everything_matching, 1, restriction=within).total:
        return None
    excluded = " or ".join(map(quoted, query.excluded))
    return everything_matching, f"All that matches holds {excluded}, so nothing is left out."


def _instead(
    query: Query, vocabulary: Vocabulary, wholes: tuple[str, ...]
) -> Iterator[tuple[str, str]]:
    """Words that no text holds, and those that are spelt nearly so."""
    for word in dict.fromkeys(query.terms):
        if may_be_mistyped(word) and not vocabulary.knows(word):
            if any(word in whole for whole in wholes):
                continue  # a part of a word that is written as one
            other = vocabulary.nearest(word)
            if other is not None:
                yield word, other


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
    if len(query.said) > LONG:
        why = "In a text as long as this a phrase need not be there word by word: its words count."
        return replace(query, phrases=()), [why]

    def found(*phrases: tuple[str, ...]) -> int:
        asked = Query(phrases[0], phrases)
        return snapshot.fulltext.search(asked, 1, restriction=within).total

    kept = tuple(phrase for phrase in query.phrases if found(phrase))
    lost = [quoted(phrase) for phrase in query.phrases if phrase not in kept]
    said = []
    if lost:
        phrases = ", nor ".join(lost)
        said.append(f"No chunk that is searched holds the phrase {phrases}: its words count.")
    if len(kept) > 1 and not found(*kept):
        together = " and ".join(map(quoted, kept))
        said.append(f"No chunk holds {together} together: their words count.")
        kept = ()
    return replace(query, phrases=kept), said


def quoted(words: tuple[str, ...]) -> str:
    return f"“{' '.join(words)}”"
