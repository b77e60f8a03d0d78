"""Exports of Evernote (ENEX): the notes of a notebook, with their titles as sections.

A note's attachments are counted and not read: they are written as base64 among the words.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from typing import Any

from kbproc.base.errors import KbprocError
from kbproc.engine.sources.parse.blocks import PATH, Block, Headings, Parsed, Scalar, clean_title
from kbproc.engine.sources.parse.cards import moment
from kbproc.engine.sources.parse.html import BlockReader, PageView
from kbproc.engine.sources.parse.packed import children, local

_TODO = re.compile(r"<en-todo\b([^<>]*)/?>(?:\s*</en-todo>)?")
_DONE = re.compile(r"checked\s*=\s*[\"']true")
_MEDIA = re.compile(r"<en-media\b[^<>]*>(?:\s*</en-media>)?")
_LOCKED = re.compile(r"<en-crypt\b[^<]*+</en-crypt>")
_ABOUT = {"created": "Created", "updated": "Updated", "author": "Author", "source-url": "Source"}


def parse(data: bytes, name: str) -> Parsed:
    """Returns the blocks of all notes; one note's title, tags and dates are the document's.

    Raises `operation.failed` for a file that is damaged or no such export.
    """
    from lxml import etree

    notes: list[_EvernoteNote] = []
    unread: Counter[str] = Counter()
    options: dict[str, Any] = {"resolve_entities": False, "no_network": True, "huge_tree": True}
    try:
        for _, element in etree.iterparse(io.BytesIO(data), tag="note", load_dtd=False, **options):
            notes.append(_EvernoteNote(element, unread))
            element.clear()
    except etree.XMLSyntaxError as error:
        unread["damaged_pages"] += 1
        if not notes:
            message = f"{name} is damaged or no export of Evernote: {error}."
            raise KbprocError("operation.failed", message) from error
    blocks = [block for note in notes for block in note.blocks]
    if len(notes) != 1:
        return Parsed(blocks=blocks, unread=dict(+unread))
    (note,) = notes
    metadata: dict[str, Scalar] = dict(note.facts)
    return Parsed(
        title=note.title, blocks=blocks, tags=note.tags, metadata=metadata, unread=dict(+unread)
    )


class _EvernoteNote:
    def __init__(self, element: Any, unread: Counter[str]) -> None:
        texts = {
            local(each): " ".join((each.text or "").split())
            for each in element.iter()
            if local(each) in ("title", *_ABOUT)
        }
        self.title = clean_title(texts.get("title"))
        self.tags = [each.text for each in children(element, "tag") if each.text]
        self.facts = {key: moment(texts[key]) for key in _ABOUT if texts.get(key)}
        files = []
        for each in children(element, "resource"):
            kind, file = _resource(each)
            unread["pictures" if kind.startswith("image/") else "attachments"] += 1
            files += [f"Attachment: {file}"] if file else []
        head = [self.title or "", *(f"{_ABOUT[key]}: {fact}" for key, fact in self.facts.items())]
        head += [f"Tags: {', '.join(self.tags)}"] if self.tags else []
        content = "".join(each.text or "" for each in children(element, "content"))
        self.blocks = [
            Block(text="\n".join(filter(None, [*head, *files])), section=self.title),
            *self._content(content, unread),
        ]

    def _content(self, content: str, unread: Counter[str]) -> list[Block]:
        """Returns the blocks of a note's page; passages under a password are counted."""
        from selectolax.lexbor import LexborHTMLParser

        content, count = _LOCKED.subn("", content)
        unread["hidden_passages"] += count
        content = _MEDIA.sub(" ", content)
        content = _TODO.sub(lambda todo: "☑ " if _DONE.search(todo[1]) else "☐ ", content)
        start = content.find("<en-note")
        tree = LexborHTMLParser(content[max(0, start) :])
        page = PageView()
        reader = BlockReader(page, Headings())
        if tree.body is not None:
            reader.read(tree.body)
        unread.update(page.unread)
        return [
            Block(text=block.text, section=self._within(block.section), kind=block.kind)
            for block in reader.blocks
        ]

    def _within(self, section: str | None) -> str | None:
        return PATH.join(filter(None, (self.title, section))) or None


def _resource(element: Any) -> tuple[str, str]:
    """Returns the type and the name of an attachment."""
    texts = {
        local(each): each.text or ""
        for each in element.iter()
        if local(each) in ("mime", "file-name")
    }
    return texts.get("mime", ""), texts.get("file-name", "")
