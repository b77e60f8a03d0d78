"""The passages that answer a question.

Owns: the question as it is searched for, with the words of earlier questions; dropping
near-duplicates; the budget of tokens; and the references to the passages.
Refuses to know: how the search finds and scores passages, and what an answerer does with them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePath

import msgspec
from msgspec import Struct

from kbproc.documents import indexed
from kbproc.documents.content import PARSED_AS, written_text
from kbproc.events.session import Detail, Reference
from kbproc.models.answering.interface import Passage, Prompt, Turn, about_tokens
from kbproc.search import search
from kbproc.search.hits import Hit
from kbproc.search.params import Search
from kbproc.search.support import SURE, Support
from kbproc.store.snapshot import Snapshot
from kbproc.store.state import SeenStore
from kbproc.text.analysis import words
from kbproc.text.likeness import unlike
from kbproc.text.query import parse_query
from kbproc.text.verbatim import html_blocks, markdown_blocks
from kbproc.views.catalog.rows import DocumentRow

MOST_PASSAGES = 8
BUDGET_TOKENS = 3000
_CANDIDATES = 24
_LONGEST_QUERY = 2000
_LONGEST_CITE = 64  # bytes, where no more is told than what is referred to
_EARLIER_TURNS = 3
_EARLIER_CHARS = 2000  # of an answer that was given before
_MOST_WORDS = 20  # of earlier questions
_FEW = 3
# A question with one of these is about what was said before.
_POINTS_BACK = frozenset(
    {"it", "its", "they", "them", "their", "he", "him", "his", "she", "her", "this", "that"}
    | {"these", "those", "one", "ones", "there", "then", "same", "other", "others", "also"}
    | {"else", "again", "former", "latter", "above"}
)
_DOUBT = "What was found is on the topic, but perhaps no answer: read the passages."
_TABLES = (".csv", ".tsv")
_BLOCKS = {"markdown": markdown_blocks, "html": html_blocks}
_LONGEST_SOURCE = 4 << 20  # bytes that are read again for their blocks of code
_SPACES = re.compile(r"\s+")


class Found(Struct, frozen=True, kw_only=True):
    """`is_known` False: by the chance of the best hit, the store seems to lack the topic;
    `hint` says so.

    `is_answered` False: what was found is on the topic only.
    """

    query: str
    passages: list[Passage]
    references: list[Reference]
    is_known: bool
    is_answered: bool
    hint: str | None
    notice: list[str]

    def prompt(self, wanted: Wanted, instructions: str) -> Prompt:
        return Prompt(
            question=wanted.question,
            passages=self.passages,
            query=self.query,
            earlier=[turn for turn in wanted.earlier if turn.answer],
            instructions=instructions,
            is_known=self.is_known,
            is_answered=self.is_answered,
        )


class Wanted(Struct, frozen=True, kw_only=True):
    """`kbs` None: all that may be seen."""

    question: str
    kbs: list[str] | None
    earlier: Sequence[Turn] = ()  # what was asked before, and the beginnings of the last answers
    detail: Detail = "indexes"
    budget_tokens: int = BUDGET_TOKENS


def find(state: SeenStore, wanted: Wanted, *, now: str) -> Found:
    """`state`: as far as the answer may see. Raises resource.not_found."""
    query = resolved(wanted.question, wanted.earlier)
    params = Search(query=query, kb=wanted.kbs, limit=_CANDIDATES)
    found = search.run(state, params, now=now, supported=True)
    hits = _within(_unlike(found.results.results), wanted.budget_tokens)
    return Found(
        query=query,
        passages=_passages(state, hits),
        references=[_reference(n, hit, wanted.detail) for n, hit in enumerate(hits, 1)],
        is_known=found.results.confidence != "none",
        is_answered=found.support is None or found.support.is_answer,
        hint=found.hint or _doubt(found.support),
        notice=found.notice,
    )


def _doubt(support: Support | None) -> str | None:
    return _DOUBT if support is not None and support.value < SURE else None


def resolved(question: str, earlier: Sequence[Turn]) -> str:
    """The question, and where it points back or says little, the words of those before.

    Where the one before points back, too, the words are sought further back.
    """
    query = _SPACES.sub(" ", question).strip()
    known = set(words(query))
    more: list[str] = []
    back = list(earlier)
    asked = question
    while back and _points_back(asked):
        asked = back.pop().question
        before = parse_query(asked)
        more += [word for word in before.terms if before.tells and word not in known]
        known.update(more)
    told = list(dict.fromkeys(more))[:_MOST_WORDS]
    return " ".join([query, *told])[:_LONGEST_QUERY]


def _points_back(question: str) -> bool:
    query = parse_query(question)
    says_little = not query.tells or len(query.terms) < _FEW
    return says_little or not _POINTS_BACK.isdisjoint(query.said)


def turns(said: Sequence[tuple[str, str]]) -> list[Turn]:
    """The last questions; the very last with the beginnings of their answers."""
    told = [Turn(asked, text[:_EARLIER_CHARS]) for asked, text in said if text]
    return [Turn(asked, "") for asked, _ in told[:-_EARLIER_TURNS]] + told[-_EARLIER_TURNS:]


def _unlike(hits: Sequence[Hit]) -> list[Hit]:
    """Without those that say nearly the same as a better one."""
    by_chunk = {hit.chunk_id: hit for hit in hits}
    kept = unlike(((id, hit.text) for id, hit in by_chunk.items()), {})
    return [by_chunk[id] for id in kept]


def _within(hits: Sequence[Hit], budget: int) -> list[Hit]:
    """The best ones that fit, one at least."""
    kept: list[Hit] = []
    left = budget
    for hit in hits[: 2 * MOST_PASSAGES]:
        size = about_tokens(hit.text)
        if len(kept) < MOST_PASSAGES and (size <= left or not kept):
            kept.append(hit)
            left -= size
    return kept


def _passages(state: SeenStore, hits: Sequence[Hit]) -> list[Passage]:
    with state.reading() as snapshot:
        ids = dict.fromkeys(hit.source.document_id for hit in hits)
        documents = {id: _document(snapshot, id) for id in ids}
    return [
        _passage(state, n, hit, documents[hit.source.document_id]) for n, hit in enumerate(hits, 1)
    ]


def _document(snapshot: Snapshot, id: int) -> DocumentRow | None:
    return indexed.document(snapshot, id) or snapshot.queries.document(id)


def _passage(state: SeenStore, n: int, hit: Hit, document: DocumentRow | None) -> Passage:
    passage = Passage(n, hit.source.document_id, hit.source.cite, hit.text, hit.score)
    if document is None:
        return passage
    kind = PARSED_AS.get(document.type, document.type)
    if kind == "code":
        language = msgspec.json.decode(document.metadata).get("language", "")
        return passage._replace(form="code", language=str(language))
    if kind == "text" and PurePath(document.path or "").suffix.lower() in _TABLES:
        return passage._replace(form="table")
    read = _BLOCKS.get(kind)
    if read is None or document.size_bytes > _LONGEST_SOURCE:
        return passage
    return passage._replace(blocks=tuple(read(written_text(state.blobs, document) or "")))


def _short(cite: str) -> str:
    """Its beginning and its end: so no title makes references cost more than they are worth."""
    head, tail = cite[: len(cite) // 2], cite[len(cite) // 2 :]
    if len(cite.encode()) <= _LONGEST_CITE:
        return cite
    while len(f"{head}…{tail}".encode()) > _LONGEST_CITE:
        if len(head.encode()) > len(tail.encode()):
            head = head[:-1]
        else:
            tail = tail[1:]
    return f"{head.rstrip()}…{tail.lstrip()}"


def _reference(n: int, hit: Hit, detail: Detail) -> Reference:
    told = Reference(
        n=n,
        chunk_id=hit.chunk_id,
        document_id=hit.source.document_id,
        cite=_short(hit.source.cite) if detail == "indexes" else hit.source.cite,
        score=round(hit.score, 2),
    )
    if detail == "snippets":
        return msgspec.structs.replace(told, snippet=hit.snippet)
    return msgspec.structs.replace(told, text=hit.text) if detail == "full" else told
