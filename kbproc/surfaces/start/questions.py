"""Finds questions that the texts just read raise themselves, and answers them by search.

A question is what a person asked in a past session, a heading that asks, or else a heading. Only
one whose best hit probably answers it is shown, so that the first look is at what works.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

from kbproc.engine.events.document import CONVERSATION
from kbproc.surfaces.start.steps import Ask

MOST = 3
_MOST_DOCUMENTS, _MOST_CHUNKS, _MOST_ASKED = 24, 20, 24
_LEAST_WORDS, _MOST_WORDS = 2, 14
_ASKS = re.compile(r"(?:how|what|why|when|where|which|who|can|does|is|are)\b.*", re.I)
# Headings of many texts, which say nothing about this one.
_COMMON = frozenset(
    {
        *("overview", "introduction", "contents", "table of contents", "changelog", "license"),
        *("getting started", "usage", "examples", "see also", "further reading", "references"),
    }
)


class Answer(Struct, frozen=True, kw_only=True):
    """A question with the passage that answers it."""

    question: str
    text: str
    cite: str


def answered(ask: Ask, kb: str) -> list[Answer]:
    """Returns at most three questions, each answered by another document."""
    answers: list[Answer] = []
    documents: set[int] = set()
    for number, question in enumerate(_questions(ask, kb)):
        if len(answers) == MOST or number == _MOST_ASKED:
            break
        params = {"query": question, "kb": kb, "limit": 1, "only": "answers"}
        hits = ask("search", params)["data"]["results"]
        source = hits[0]["source"] if hits else {}
        if not hits or source["document_id"] in documents:
            continue
        documents.add(source["document_id"])
        text = _without_headings(hits[0]["snippet"])
        answers.append(Answer(question=question, text=text, cite=source["cite"]))
    return answers


def _questions(ask: Ask, kb: str) -> Iterator[str]:
    """Yields questions, those that somebody asked first, each once."""
    rows = ask("doc.list", {"kb": kb, "limit": _MOST_DOCUMENTS})["data"]
    titles = [row["title"] for row in rows if row["type"] == CONVERSATION]
    headings = [
        (row["title"], heading)
        for row in rows
        if row["type"] != CONVERSATION
        for heading in _headings(ask, row["id"])
    ]
    asking = [heading for _, heading in headings if _ASKS.fullmatch(heading)]
    others = [_with_title(*pair) for pair in headings if not _ASKS.fullmatch(pair[1])]
    candidates = [*asking, *[title for title in titles if "?" in title][:MOST], *others]
    for question in dict.fromkeys(candidates):
        if _LEAST_WORDS <= len(question.split()) <= _MOST_WORDS:
            yield question


def _headings(ask: Ask, document: int) -> list[str]:
    """Returns the innermost headings of a document's chunks, in their order."""
    params = {"document_id": document, "limit": _MOST_CHUNKS, "text": False}
    sections = [row.get("section") for row in ask("chunk.list", params)["data"]]
    headings = [str(section).rpartition(" > ")[2].strip() for section in sections if section]
    return [each for each in dict.fromkeys(headings) if each.lower() not in _COMMON]


def _with_title(title: str, heading: str) -> str:
    """Returns a heading as a query; one of a single word needs the title beside it."""
    return heading if len(heading.split()) > 1 else f"{title} {heading}"


def _without_headings(snippet: str) -> str:
    """Returns a snippet without the headings that it begins with.

    It has two spaces for an empty line.
    """
    paragraphs = snippet.split("  ")
    while len(paragraphs) > 1 and paragraphs[0].startswith("#"):
        paragraphs.pop(0)
    return " ".join(" ".join(paragraphs).split())
