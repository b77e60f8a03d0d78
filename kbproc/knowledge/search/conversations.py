"""Weighs passages of conversations by who speaks, and by what else was said in the session.

A reply repeats what a person has said, so the person's words count more. Where a query names a
speaker, it asks for what that one said. Who answers another's question does not repeat its words,
so the question counts for the answer, too. A turn is short, so the session's best passage counts
for it, and its words count more than its meaning, which the turns beside it share. Very short ones
and questions rarely answer, those with a number more often. The hits of the first page are
weighed, so that a hit has the same place for every page.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct

from kbproc.base.budget import byte_size
from kbproc.base.text.analysis import STOP_WORDS, folded, words
from kbproc.base.text.query import Query
from kbproc.engine.events.document import CONVERSATION
from kbproc.engine.events.origin import PERSON
from kbproc.engine.projections.catalog.rows import HitRow
from kbproc.knowledge.search.fusion import Ranked, ordered

# Chosen on two thirds of LoCoMo's questions: `python -m bench.conversations`.
_OF_QUESTION = 0.3  # the part of a question's score that is added to its answer's
_OF_SESSION = 0.4  # the part of the session's best score in the score of its passages
_OF_WORDS = 0.5  # the part of the score by words that is added once more
_WITH_WORDS = 1.3  # the greatest score with it, where words weigh 0.6
_SHORT, _LONG = 0.25, 130  # the part that an empty text loses; bytes of a text that loses nothing
_QUESTION, _NUMBER = 0.92, 1.08
_REPLY = 0.67
_ANOTHER = 0.8
# A best hit of another speaker than the query names answers one question in twenty.
_OTHERS_ANSWER = 0.05
# The least number of hits of the first page. More hits than a page has would bring half as much
# again, but cost 8 % of a search's time, because their numbers and rows are read for nothing else.
_FEWEST = 10
# A speaker stands before a message; see engine.sources.parse.conversation.
_SPEAKER = re.compile(r"(?:\A|\n\n)([^\n:]{1,60}): ")
RowsOf = Callable[[Iterable[int]], Mapping[int, HitRow]]
# A question's subject and a possessor: nothing else with a capital is so surely somebody. Of 1,540
# questions that LoCoMo answers, one has one that no text holds, and that is mistyped.
_SOMEBODY = re.compile(
    r"\b(?i:are|can|could|did|do|does|had|has|have|is|might|should|was|were|will|would) "
    r"([A-Z]\w++)(?! [A-Z])|\b([A-Z]\w+)['’]s\b"
)
_NOBODY = {
    *("anybody", "anyone", "everybody", "everyone", "nobody", "somebody", "someone"),
    *("here", "it", "let", "that", "there", "what", "who"),
    *("today", "tomorrow", "tonight", "yesterday"),
}
_USER, _ASSISTANT, _OUTPUT = "User", "Assistant", " output"
_ASKS = re.compile("[?？؟]")
_DIGIT = re.compile(r"\d")


class SpeechFactor(Struct, frozen=True, kw_only=True):
    """Why a passage of a conversation has another score.

    `question`: the score of the question that a person answers with it, else 0. `session`: the
    session's best score. `words`: the part of the passage's score by words; None where it has no
    part by meaning. `form`: a factor for its length, a question mark at its end and a number.
    `is_reply`: no person speaks. `is_of_another`: the query names a speaker, and others speak.
    """

    question: float
    session: float
    words: float | None
    form: float
    is_reply: bool
    is_of_another: bool

    def of(self, score: float) -> float:
        own = _answering(score, self.question)
        shared = own + _OF_SESSION * (self.session - own)
        if self.words is not None:
            shared = (shared + _OF_WORDS * self.words) / _WITH_WORDS
        speaker = (_REPLY if self.is_reply else 1) * (_ANOTHER if self.is_of_another else 1)
        return min(1.0, shared * self.form * speaker)


def _answering(score: float, question: float) -> float:
    """Returns the score of a passage with what the question before it adds."""
    return min(1.0, score + _OF_QUESTION * question)


class Conversations:
    """The factors of a search's hits that are passages of conversations."""

    def __init__(
        self, query: Query, limit: int, rows_of: RowsOf, *, names_stranger: bool = False
    ) -> None:
        """`limit`: the number of hits of a page. `rows_of`: the visible rows of chunks.

        `names_stranger`: the query is about a person whom no text names.
        """
        self._rows_of = rows_of
        self._names_stranger = names_stranger
        self.first_page = max(limit, _FEWEST)
        self._words = frozenset(query.all_words) - STOP_WORDS
        self.factors: dict[int, SpeechFactor] = {}

    def weighed(self, ranked: Ranked, rows: Mapping[int, HitRow]) -> Ranked:
        """Returns the hits in the order of their new scores. `rows`: those of the best hits.

        The others stay behind them, because a score without its factor compares with none.
        """
        turns = {id: row for id, row in rows.items() if row.type == CONVERSATION}
        if not turns:
            return ranked
        speakers = {id: _SPEAKER.findall(row.text) for id, row in turns.items()}
        query_speakers = self._query_speakers(turns, speakers)
        scores = {id: fused for id, fused in ranked if id in rows}
        replies = {
            id
            for id, row in turns.items()
            if row.origin != PERSON and _is_reply(row.text, speakers[id])
        }
        questions = {
            id: scores[id - 1].score
            for id in turns.keys() - replies
            if _is_answer(id, turns, speakers)
        }
        sessions: dict[int, float] = {}
        for id, row in turns.items():
            own = _answering(scores[id].score, questions.get(id, 0.0))
            sessions[row.document_id] = max(own, sessions.get(row.document_id, 0.0))
        for id, row in turns.items():
            factor = SpeechFactor(
                question=questions.get(id, 0.0),
                session=sessions[row.document_id],
                words=None if scores[id].vector is None else scores[id].fts,
                form=_form(row.text),
                is_reply=id in replies,
                is_of_another=bool(query_speakers and speakers[id])
                and query_speakers.isdisjoint(speakers[id]),
            )
            self.factors[id] = factor
            scores[id] = scores[id].times(factor.of(scores[id].score) / scores[id].score)
        return [*ordered(scores), *(entry for entry in ranked if entry[0] not in rows)]

    def chance(self, id: int, chance: float) -> float:
        """Returns the chance that a hit answers: a small one if only others speak than the query
        names, or no text names whom it is about.
        """
        if id not in self.factors:
            return chance
        is_of_another = self._names_stranger or self.factors[id].is_of_another
        return round(chance * _OTHERS_ANSWER, 3) if is_of_another else chance

    def _query_speakers(
        self, rows: Mapping[int, HitRow], speakers: Mapping[int, list[str]]
    ) -> frozenset[str]:
        """Returns the speakers that the query names, those of tools left out.

        Where a session's speakers are called User and Assistant, another word before a colon
        ("Error: …") is no name; a session's first chunk shows how they are called.
        """
        every = {name for names in speakers.values() for name in names}
        firsts = {
            id: names[0]
            for id, names in speakers.items()
            if _begins(rows[id].text, names)
            and names[0] + _OUTPUT not in every
            and not self._words.isdisjoint(words(names[0]))
        }
        nameless = {
            rows[id].document_id for id, names in speakers.items() if _is_nameless(names)
        } | self._nameless([rows[id] for id in firsts])
        return frozenset(
            name for id, name in firsts.items() if rows[id].document_id not in nameless
        )

    def _nameless(self, rows: Iterable[HitRow]) -> set[int]:
        """Returns the ids of sessions whose first chunk shows speakers without names."""
        openings = self._rows_of([row.chunk_id - row.idx for row in rows if row.idx])
        return {
            opening.document_id
            for opening in openings.values()
            if opening.idx == 0 and _is_nameless(_SPEAKER.findall(opening.text))
        }


def people_in(query: str) -> set[str]:
    """Returns the names of those whom a question in English is about, each as a folded word."""
    names = {
        "".join(folded(word).split()) for pair in _SOMEBODY.findall(query) for word in pair if word
    }
    return names - STOP_WORDS - _NOBODY


def _is_answer(id: int, turns: Mapping[int, HitRow], speakers: Mapping[int, Sequence[str]]) -> bool:
    """Returns whether a passage follows a question of another speaker that is a hit, too."""
    own, before = turns[id], turns.get(id - 1)
    if before is None or (before.document_id, before.idx) != (own.document_id, own.idx - 1):
        return False
    if not (speakers[id] and speakers[id - 1]) or speakers[id][0] == speakers[id - 1][-1]:
        return False
    last_message = before.text.rpartition(f"{speakers[id - 1][-1]}: ")[2]
    return _ASKS.search(last_message) is not None


def _form(text: str) -> float:
    """Returns the factor of a passage that does not depend on the query."""
    factor = 1 - _SHORT * max(0.0, 1 - byte_size(text) / _LONG)
    factor *= _QUESTION if _ASKS.match(text.rstrip()[-1:]) else 1
    return round(factor * (_NUMBER if _DIGIT.search(text) else 1), 3)


def _is_nameless(speakers: Iterable[str]) -> bool:
    return not {_USER, _ASSISTANT}.isdisjoint(speakers)


def _begins(text: str, speakers: Sequence[str]) -> bool:
    """Returns whether a text begins with the first speaker, and not within a message."""
    return bool(speakers) and text.startswith(speakers[0])


def _is_reply(text: str, speakers: Sequence[str]) -> bool:
    """Returns whether no person speaks; a text without a speaker goes on with a long reply."""
    if not _begins(text, speakers):
        return _USER not in speakers
    first = speakers[0]
    is_tool = first.endswith(_OUTPUT) or first + _OUTPUT in speakers
    return (is_tool or first == _ASSISTANT) and _USER not in speakers
