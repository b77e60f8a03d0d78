"""Reads in a session's log which documents an agent has found, cited and opened."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

from kbproc.base.budget import byte_size
from kbproc.surfaces.hooks.reference import SHORT_TITLE

_LEAST_WORDS = 3  # a shorter title counts as a citation in brackets only
_WORD = re.compile(r"\w+")
# Tools that show one document, entry or note by its id, whatever prefix a client gives them.
_OPENING_TOOL = re.compile(r"(?:doc_view|doc_get|knowledge_get|chunk_list|kb_call|kb_read)$")
# Tools that search, with any prefix, and the documents in their answers.
_SEARCHING_TOOL = re.compile(
    r"(?:search_knowledge|search_chunks|knowledge_search|chat|session_ask)$"
)
_ANSWER = '{"data":'
_FOUND = re.compile(r'"document_id":\s?([1-9]\d*)')
_FOUND_ENTRY = re.compile(r'"id":\s?([1-9]\d*)')
_COMMAND = re.compile(r"\bkbproc\b[^\n;|&]*")


class QuotedDocument(Struct, frozen=True, kw_only=True):
    """A document that a hook has quoted, as an agent may name it. `noun`: document, entry, note."""

    id: int
    noun: str
    title: str
    path: str | None = None


class ToolAnswer(Struct, frozen=True, kw_only=True):
    """An answer of a search over MCP. `place`: of the message. `ids`: documents that it found."""

    place: int
    size: int
    ids: list[int]


def answers_in(messages: Sequence[tuple[str, str, str]]) -> list[ToolAnswer]:
    """Returns the answers of kbproc's searches that a session's log holds."""
    return [
        ToolAnswer(
            place=place,
            size=byte_size(text),
            ids=_found(name, text),
        )
        for place, (role, name, text) in enumerate(messages)
        if role == "result" and _SEARCHING_TOOL.search(name) and text.startswith(_ANSWER)
    ]


def _found(tool: str, answer: str) -> list[int]:
    pattern = _FOUND_ENTRY if tool.endswith("knowledge_search") else _FOUND
    return list(dict.fromkeys(int(id) for id in pattern.findall(answer)))


def uses_in(
    messages: Sequence[tuple[str, str, str]],
    documents: Sequence[QuotedDocument],
    since: Mapping[int, int] | None = None,
) -> tuple[list[int], list[int]]:
    """Returns the documents that an agent has cited in its replies, and opened by its tools.

    `messages`: role, name of the tool, text. `since`: the message after which each document counts.
    """
    cited, opened = set[int](), set[int]()
    for place, (role, name, text) in enumerate(messages):
        if role not in {"assistant", "call"}:
            continue
        earlier = [one for one in documents if since is None or since.get(one.id, place) < place]
        if role == "assistant":
            reply = _plain(text)
            cited |= {one.id for one in earlier if _cites(reply, one)}
        else:
            opened |= {one.id for one in earlier if _opens(name, text, one)}
    return sorted(cited), sorted(opened)


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


def _cites(text: str, document: QuotedDocument) -> bool:
    """Returns whether a reply names the document: in brackets, by its id, or by a long title."""
    title = _plain(document.title)
    if f"[{title[: SHORT_TITLE - 1].rstrip()}" in text or re.search(
        rf"\b{document.noun} {document.id}\b", text
    ):
        return True
    if document.path is not None and _plain(document.path) in text:
        return True
    return len(_WORD.findall(title)) >= _LEAST_WORDS and title in text


def _opens(tool: str, arguments: str, document: QuotedDocument) -> bool:
    """Returns whether a call of a tool reads the document, or the file that it came from."""
    if document.path is not None and document.path in arguments:
        return True
    number = re.compile(rf"(?<![\w.]){document.id}(?![\w.])")
    if _OPENING_TOOL.search(tool):
        return bool(number.search(arguments))
    return any(number.search(command) for command in _COMMAND.findall(arguments))
