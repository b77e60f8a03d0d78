"""Finds the passages that answer a question.

The query is the question with words of earlier questions. Near-duplicates are dropped, and the
best passages within a budget of tokens are returned with references to them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from kbproc.base.text.analysis import words
from kbproc.base.text.likeness import unlike
from kbproc.base.text.query import parse_query
from kbproc.base.text.verbatim import CodeBlock, Form, html_blocks, markdown_blocks
from kbproc.engine.events.session import Detail, Reference
from kbproc.engine.models.answering.interface import (
    Closeness,
    Prompt,
    PromptPassage,
    Turn,
    about_tokens,
)
from kbproc.engine.projections.catalog.rows import DocumentRow
from kbproc.engine.store.state import SeenStore
from kbproc.knowledge.documents.anchors import Sources
from kbproc.knowledge.documents.content import PARSED_AS, written_text
from kbproc.knowledge.search import search
from kbproc.knowledge.search.hits import SECTION, Hit, HitSource
from kbproc.knowledge.search.params import Search

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MOST_PASSAGES = 8
BUDGET_TOKENS = 3000
_CANDIDATES = 24
_LONGEST_QUERY = 2000
_LONGEST_WORD = 16  # characters: a word as long as that is cut within
LONGEST_CITE = 64  # bytes, in references without text
_EARLIER_TURNS = 3
_EARLIER_CHARS = 2000  # limit for the text of an earlier answer
_MOST_WORDS = 20  # limit for words from earlier questions
_FEW = 3
# A question with one of these words refers to an earlier turn.
_POINTS_BACK = frozenset(
    {"it", "its", "they", "them", "their", "he", "him", "his", "she", "her", "this", "that"}
    | {"these", "those", "one", "ones", "there", "then", "same", "other", "others", "also"}
    | {"else", "again", "former", "latter", "above"}
)
_TABLES = (".csv", ".tsv")
_BLOCKS = {"markdown": markdown_blocks, "html": html_blocks}
_LONGEST_SOURCE = 1 << 20  # bytes that are read again for their blocks of code
_SPACES = re.compile(r"\s+")


class Retrieval(Struct, frozen=True, kw_only=True):
    """The passages for a question.

    `is_known` False: by the chance of the best hit, the store seems to lack the topic; `hint`
    says so. `is_answered` False: it has the topic and probably no answer. `is_sure` False: the
    passages are on the topic, and may hold the answer or not.
    """

    query: str
    passages: list[PromptPassage]
    references: list[Reference]
    is_known: bool
    is_answered: bool
    is_sure: bool
    closeness: Closeness | None
    hint: str | None
    notice: list[str]

    def prompt(self, request: RetrievalRequest, instructions: str) -> Prompt:
        return Prompt(
            question=request.question,
            # Without passages for an unknown topic, so that the answer quotes none.
            passages=self.passages if self.is_known else [],
            query=self.query,
            earlier=[turn for turn in request.earlier if turn.answer],
            instructions=instructions,
            is_known=self.is_known,
            is_answered=self.is_answered,
            is_sure=self.is_sure,
            closeness=self.closeness,
        )


class RetrievalRequest(Struct, frozen=True, kw_only=True):
    """A question to search for; `kbs` None: all knowledge bases that the caller may see."""

    question: str
    kbs: list[str] | None
    earlier: Sequence[Turn] = ()  # earlier questions, the last with the beginnings of their answers
    detail: Detail = "indexes"
    budget_tokens: int = BUDGET_TOKENS


def find(state: SeenStore, request: RetrievalRequest, *, now: str) -> Retrieval:
    """Searches for the passages. `state`: the part of the store that the answer may see.

    Raises resource.not_found.
    """
    query = resolved(request.question, request.earlier)
    params = Search(query=query, kb=request.kbs, limit=_CANDIDATES)
    sources = partial(Sources, source_of=state.blobs.get)
    result = search.run(state, params, now=now, sources=sources)
    hits = _within(_unlike(result.results.results), request.budget_tokens)
    confidence = result.results.confidence
    return Retrieval(
        query=query,
        passages=_passages(state, hits),
        references=[_reference(n, hit, request.detail) for n, hit in enumerate(hits, 1)],
        is_known=confidence != "none",
        is_answered=not result.evidence.lacks_answer,
        is_sure=confidence == "likely",
        closeness=_closeness(state, result.vector),
        hint=result.hint,
        notice=result.notice,
    )


def _closeness(state: SeenStore, vector: NDArray[np.float32] | None) -> Closeness | None:
    if vector is None:
        return None
    model = state.model

    def closeness(texts: list[str]) -> list[float]:
        with model.searching():
            return model.cosines(vector, texts)

    return closeness


def resolved(question: str, earlier: Sequence[Turn]) -> str:
    """Returns the query: the question, with words of earlier ones if it points back or is short.

    Words are taken from earlier questions as long as these point back, too.
    """
    query = _SPACES.sub(" ", question).strip()
    present = set(words(query))
    earlier_words: list[str] = []
    back = list(earlier)
    last = question
    while back and _points_back(last):
        last = back.pop().question
        before = parse_query(last)
        earlier_words += [word for word in before.terms if before.tells and word not in present]
        present.update(earlier_words)
    added = list(dict.fromkeys(earlier_words))[:_MOST_WORDS]
    return " ".join([query, *added])[:_LONGEST_QUERY]


def _points_back(question: str) -> bool:
    query = parse_query(question)
    says_little = not query.tells or len(query.terms) < _FEW
    return says_little or not _POINTS_BACK.isdisjoint(query.all_words)


def turns(exchanges: Sequence[tuple[str, str]]) -> list[Turn]:
    """Returns the earlier turns; only the last ones have the beginnings of their answers."""
    answered = [Turn(question, text[:_EARLIER_CHARS]) for question, text in exchanges if text]
    return [Turn(question, "") for question, _ in answered[:-_EARLIER_TURNS]] + answered[
        -_EARLIER_TURNS:
    ]


def _unlike(hits: Sequence[Hit]) -> list[Hit]:
    """Returns the hits without near-duplicates of better ones."""
    by_chunk = {hit.chunk_id: hit for hit in hits}
    ids = unlike(((id, hit.text) for id, hit in by_chunk.items()), {})
    return [by_chunk[id] for id in ids]


def _within(hits: Sequence[Hit], budget: int) -> list[Hit]:
    """Returns the best hits that fit in the budget, at least one."""
    best: list[Hit] = []
    remaining = budget
    for hit in hits[: 2 * MOST_PASSAGES]:
        size = about_tokens(hit.text)
        if len(best) < MOST_PASSAGES and (size <= remaining or not best):
            best.append(hit)
            remaining -= size
    return best


class _SourceForm(Struct, frozen=True, kw_only=True):
    """The form of a passage's source; see text.verbatim."""

    form: Form = "prose"
    language: str = ""
    blocks: tuple[CodeBlock, ...] = ()


def _passages(state: SeenStore, hits: Sequence[Hit]) -> list[PromptPassage]:
    with state.reading() as snapshot:
        ids = dict.fromkeys(hit.source.document_id for hit in hits)
        documents = snapshot.queries.documents_by_id(ids)
    sources = {id: _source(state, documents.get(id)) for id in ids}
    return [_passage(n, hit, sources[hit.source.document_id]) for n, hit in enumerate(hits, 1)]


def _source(state: SeenStore, document: DocumentRow | None) -> _SourceForm:
    if document is None:
        return _SourceForm()
    kind = PARSED_AS.get(document.type, document.type)
    if kind == "code":
        language = msgspec.json.decode(document.metadata).get("language", "")
        return _SourceForm(form="code", language=str(language))
    is_table = kind == "text" and PurePath(document.path or "").suffix.lower() in _TABLES
    if kind == "table" or is_table:
        return _SourceForm(form="table")
    read = _BLOCKS.get(kind)
    if read is None or document.size_bytes > _LONGEST_SOURCE:
        return _SourceForm()
    return _SourceForm(blocks=tuple(read(written_text(state.blobs, document) or "")))


def _passage(n: int, hit: Hit, source: _SourceForm) -> PromptPassage:
    where = hit.source
    own = (source.form, source.language, source.blocks)
    return PromptPassage(n, where.document_id, where.cite, hit.text, hit.score, *own)


def _short(source: HitSource) -> str:
    """Returns the cite with the middle of a long section cut, and then that of a long title.

    So long titles don't make references expensive. Pages and lines are never cut, because often
    they alone distinguish the passages of a document.
    """
    if len(source.cite.encode()) <= LONGEST_CITE:
        return source.cite
    place, section = source.cite.removeprefix(source.title), ""
    mark = f", {SECTION}"
    if source.section is not None and place.startswith(f"{mark}{source.section}"):
        place, section = place.removeprefix(f"{mark}{source.section}"), source.section
    room = LONGEST_CITE - len(place.encode())
    if section:
        room -= len(mark.encode())
        section = _cut(section, max(room - len(source.title.encode()), room // 3))
        room -= len(section.encode())
        section = f"{mark}{section}"
    return f"{_cut(source.title, room)}{section}{place}"


def _cut(text: str, most: int) -> str:
    """Returns the text in at most `most` bytes; a longer one with an ellipsis for its middle."""
    data = text.encode()
    if len(data) <= most:
        return text
    room = most - len("…".encode())
    head = data[: (room + 1) // 2].decode(errors="ignore")
    # A short word is cut only where nothing else remains.
    word = _word_at(text, len(head))
    if len(word) < _LONGEST_WORD:
        head = text[: word.start].rstrip() or head
    tail = data[-(room - len(head.encode())) :].decode(errors="ignore")
    word = _word_at(text, len(text) - len(tail))
    if len(word) < _LONGEST_WORD:
        tail = text[word.stop :].lstrip() or tail
    return f"{head.rstrip()}…{tail.lstrip()}"


def _word_at(text: str, at: int) -> range:
    """Returns the range of the word that a cut before character `at` divides; empty without one."""
    start = text.rfind(" ", 0, at) + 1
    stop = text.find(" ", at)
    is_divided = start < at != stop
    return range(start, len(text) if stop < 0 else stop) if is_divided else range(at, at)


def _reference(n: int, hit: Hit, detail: Detail) -> Reference:
    reference = Reference(
        n=n,
        chunk_id=hit.chunk_id,
        document_id=hit.source.document_id,
        cite=_short(hit.source) if detail == "indexes" else hit.source.cite,
        score=round(hit.score, 2),
    )
    if detail == "snippets":
        return msgspec.structs.replace(reference, snippet=hit.snippet)
    return msgspec.structs.replace(reference, text=hit.text) if detail == "full" else reference
