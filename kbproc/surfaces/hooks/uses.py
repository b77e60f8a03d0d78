"""Finds in a session's log which of the quoted documents an agent has cited or opened."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct

_LEAST_WORDS = 3  # a shorter title counts as a citation in brackets only
_WORD = re.compile(r"\w+")
# Tools that show one document, entry or note by its id, whatever prefix a client gives them.
_OPENING_TOOL = re.compile(r"(?:doc_view|doc_get|knowledge_get|chunk_list|kb_call|kb_read)$")
_COMMAND = re.compile(r"\bkbproc\b[^\n;|&]*")


class QuotedDocument(Struct, frozen=True, kw_only=True):
    """A document that a hook has quoted, as an agent may name it. `noun`: document, entry, note."""

    id: int
    noun: str
    title: str
    path: str | None = None


def uses_in(
    messages: Iterable[tuple[str, str, str]], documents: Sequence[QuotedDocument]
) -> tuple[list[int], list[int]]:
    """Returns the documents that an agent has cited in its replies, and opened by its tools.

    `messages`: role, name of the tool, text.
    """
    cited, opened = set[int](), set[int]()
    for role, name, text in messages:
        if role == "assistant":
            reply = _plain(text)
            cited |= {one.id for one in documents if _cites(reply, one)}
        elif role == "call":
            opened |= {one.id for one in documents if _opens(name, text, one)}
    return sorted(cited), sorted(opened)


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


def _cites(text: str, document: QuotedDocument) -> bool:
    """Returns whether a reply names the document: in brackets, by its id, or by a long title."""
    title = _plain(document.title)
    if f"[{title}" in text or re.search(rf"\b{document.noun} {document.id}\b", text):
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
