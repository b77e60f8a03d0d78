"""Presentations of the older format (PPT, PowerPoint 97 to 2003): a page each, with its notes.

[MS-PPT] describes it. The document lists its slides; a table that each save renews tells where they
lie, so that slides of earlier saves are not read.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from kbproc.base.errors import KbprocError
from kbproc.engine.sources.parse import ole
from kbproc.engine.sources.parse.blocks import Block, Parsed, Scalar, clean_title
from kbproc.engine.sources.parse.titles import real_title

_DOCUMENT, _SLIDE, _NOTES = 1000, 1006, 1008
_SLIDE_ATOM, _NOTES_ATOM, _SLIDE_INFO = 1007, 1009, 1017
_SLIDE_LIST, _PERSIST = 4080, 1011
_TEXT_HEADER, _TEXT_WIDE, _TEXT_NARROW = 3999, 4000, 4008
_USER_EDIT, _PERSIST_TABLE = 4085, 6002
_PICTURE = 0xF00A  # the head of a shape
_HIDDEN = 4
# Kinds of text: 0 and 6 are titles.
_TITLES = frozenset({0, 6})
_MOST_EDITS, _MOST_DEPTH, _MOST_RECORDS = 1_000, 30, 500_000
# Texts of a master that every slide repeats.
_FURNITURE = frozenset({"*"})


class _BinaryRecord(NamedTuple):
    """A record: its instance, kind and content; a container holds other records."""

    instance: int
    kind: int
    is_container: bool
    start: int
    end: int


class _SlideText(NamedTuple):
    kind: int
    text: str


def parse(data: bytes, name: str) -> Parsed:
    """Returns the blocks of a presentation; `page` is the number of the slide.

    Raises `operation.failed` for one that is damaged, needs a password or is older.
    """
    file = ole.opened(data, name)
    try:
        if "EncryptedSummary" in file.streams:
            raise KbprocError("operation.failed", f"{name} needs a password: save it without one.")
        return _BinaryPresentation(file).parsed()
    except (struct.error, IndexError, KeyError, ole.OleError) as error:
        message = f"{name} is damaged or no presentation of PowerPoint 97 or later."
        hint = "Save it as PPTX or PDF."
        raise KbprocError("operation.failed", message, hint=hint) from error


class _BinaryPresentation:
    def __init__(self, file: ole.CompoundFile) -> None:
        self._file = file
        self._data = file.read("PowerPoint Document")
        self._records = 0
        self._document, self._places = self._persisted(file.read("Current User"))

    def parsed(self) -> Parsed:
        document = self._at(self._places[self._document])
        if document.kind != _DOCUMENT:
            raise IndexError
        lists = {
            record.instance: record
            for record in self._within(document)
            if record.kind == _SLIDE_LIST
        }
        notes = self._notes(lists.get(2))
        blocks: list[Block] = []
        slides = list(self._listed(lists[0])) if 0 in lists else []
        for number, (place, slide_id, outline) in enumerate(slides, 1):
            texts = [*outline, *self._texts(place)]
            title = clean_title(next((text for kind, text in texts if kind in _TITLES), None))
            hidden = " (hidden)" if self._is_hidden(place) else ""
            section = f"{title or ''}{hidden}".strip() or None
            words = [text for _, text in texts if text.strip() not in _FURNITURE]
            words += [f"Notes: {note}" for note in notes.get(slide_id, [])]
            blocks += (Block(text=text, page=number, section=section) for text in words)
        facts = ole.summary(self._file)
        author = clean_title(facts.get("author"))
        metadata: dict[str, Scalar] = {"author": author} if author else {}
        first = next((block.section for block in blocks if block.section), None)
        return Parsed(
            title=real_title(facts.get("title")) or first,
            blocks=blocks,
            metadata=metadata,
            pages=len(slides),
            unread={"pictures": int("Pictures" in self._file.streams)},
        )

    def _persisted(self, user: bytes) -> tuple[int, dict[int, int]]:
        """Returns the number of the document, and the place of each numbered record."""
        (edit,) = struct.unpack_from("<I", user, 16)
        places: dict[int, int] = {}
        document = None
        for _ in range(_MOST_EDITS):
            record = self._at(edit)
            if record.kind != _USER_EDIT:
                raise IndexError
            earlier, table, number = struct.unpack_from("<III", self._data, record.start + 8)
            document = number if document is None else document
            for number, place in self._table(self._at(table)):
                places.setdefault(number, place)
            if not earlier or earlier >= edit:
                break
            edit = earlier
        return document or 0, places

    def _table(self, record: _BinaryRecord) -> Iterator[tuple[int, int]]:
        if record.kind != _PERSIST_TABLE:
            raise IndexError
        at = record.start
        while at + 4 <= record.end:
            (head,) = struct.unpack_from("<I", self._data, at)
            first, count = head & 0xFFFFF, head >> 20
            places = struct.unpack_from(f"<{count}I", self._data, at + 4)
            yield from enumerate(places, first)
            at += 4 + 4 * count

    def _at(self, place: int) -> _BinaryRecord:
        self._records += 1
        if self._records > _MOST_RECORDS:
            raise IndexError
        head, kind, size = struct.unpack_from("<HHI", self._data, place)
        start = place + 8
        end = min(start + size, len(self._data))
        return _BinaryRecord(head >> 4, kind, head & 0xF == 0xF, start, end)

    def _within(self, outer: _BinaryRecord) -> Iterator[_BinaryRecord]:
        at = outer.start
        while at + 8 <= outer.end:
            record = self._at(at)
            yield record
            at = record.end

    def _all(self, outer: _BinaryRecord, depth: int = 0) -> Iterator[_BinaryRecord]:
        """Yields the records within a container, at any depth."""
        for record in self._within(outer):
            yield record
            # The head of a client's text box does not say that it is a container.
            if (record.is_container or record.kind == 0xF00D) and depth < _MOST_DEPTH:
                yield from self._all(record, depth + 1)

    def _listed(
        self, slides: _BinaryRecord
    ) -> Iterator[tuple[_BinaryRecord, int, list[_SlideText]]]:
        """Yields each slide's record and id, and the texts that the list has of it."""
        current: tuple[_BinaryRecord, int] | None = None
        texts: list[_SlideText] = []
        kind = -1
        for record in self._within(slides):
            if record.kind == _PERSIST:
                if current:
                    yield (*current, texts)
                number, _, _, id = struct.unpack_from("<IIiI", self._data, record.start)
                current, texts = (self._at(self._places[number]), id), []
            elif record.kind == _TEXT_HEADER:
                (kind,) = struct.unpack_from("<I", self._data, record.start)
            elif (text := self._text(record)) is not None:
                texts.append(_SlideText(kind, text))
        if current:
            yield (*current, texts)

    def _texts(self, slide: _BinaryRecord) -> Iterator[_SlideText]:
        kind = -1
        for record in self._all(slide):
            if record.kind == _TEXT_HEADER:
                (kind,) = struct.unpack_from("<I", self._data, record.start)
            elif (text := self._text(record)) is not None:
                yield _SlideText(kind, text)

    def _text(self, record: _BinaryRecord) -> str | None:
        raw = self._data[record.start : record.end]
        if record.kind == _TEXT_WIDE:
            text = raw[: len(raw) // 2 * 2].decode("utf-16-le", "replace")
        elif record.kind == _TEXT_NARROW:
            text = raw.decode("latin-1")
        else:
            return None
        text = text.replace("\r", "\n").replace("\x0b", "\n").strip()
        return text or None

    def _notes(self, listed: _BinaryRecord | None) -> dict[int, list[str]]:
        """Returns the speaker's notes by the ids of their slides."""
        notes: dict[int, list[str]] = {}
        for place, _, _ in self._listed(listed) if listed else ():
            atom = next((each for each in self._within(place) if each.kind == _NOTES_ATOM), None)
            if atom is not None:
                (id,) = struct.unpack_from("<I", self._data, atom.start)
                texts = [text for _, text in self._texts(place) if text not in _FURNITURE]
                notes.setdefault(id, []).extend(texts)
        return notes

    def _is_hidden(self, slide: _BinaryRecord) -> bool:
        info = next((each for each in self._within(slide) if each.kind == _SLIDE_INFO), None)
        if info is None or info.end - info.start < 12:
            return False
        (flags,) = struct.unpack_from("<H", self._data, info.start + 10)
        return bool(flags & _HIDDEN)
