"""Which documents of an import are here already.

Owns: which live document, if any, each document of the file must be, or equals.
Refuses to know: what is written of it (run.py).

A document that comes from a path, url or source_id is the live one of that origin in its
knowledge base. A document without an origin is one of those that equal it: a file that is
imported twice is there once.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, Literal

import msgspec
from msgspec import Struct

from kbproc.base.values import canonical
from kbproc.documents.document import whole_text
from kbproc.documents.revision import Content
from kbproc.events.document import ChunkText
from kbproc.moving.outgoing import chunks_of
from kbproc.moving.portable import lines
from kbproc.moving.portable.lines import Document
from kbproc.store.state import SeenStore
from kbproc.views.catalog.queries.all import Queries
from kbproc.views.catalog.rows import DocumentRow

_BATCH_DOCUMENTS = 100
_BATCH_ROWS = 1000

Action = Literal["added", "updated", "unchanged", "conflict"]
Key = tuple[str, str, str | int]


class Match(Struct, frozen=True):
    """What becomes of a document; `id` is the one here, if it has one yet."""

    action: Action
    id: int | None


class Brought(Struct, frozen=True, kw_only=True):
    """What became of a document: its id in the file, and its id here."""

    old: int
    new: int | None
    action: Action


def key_of(kb: str, origin: Any, title: str, chunks: int) -> Key:
    """The key of the one document that it must be, or of those that it may equal."""
    for name in ("path", "url", "source_id"):
        value = getattr(origin, name)
        if value is not None:
            return kb, name, value
    return kb, title, chunks


def fingerprint(
    title: str, tags: list[str], metadata: dict[str, Any], chunks: Any, facts: Any
) -> bytes:
    said = [[c.text, c.page, c.section, c.overlap] for c in chunks]
    return blake2b(canonical([title, tags, metadata, said, facts]), digest_size=16).digest()


def facts_of(entry: Any, created_by: str) -> list[Any] | None:
    """What tells entries of one text apart; `entry` is a line's or a row's."""
    if entry is None:
        return None
    names = ("confidence", "source", "expires_at", "task_id", "task_kind")
    return [*(getattr(entry, name) for name in names), created_by]


class IncomingDocument:
    """A document of the file; its source is stored when it is first needed."""

    def __init__(self, document: Document, kb: str) -> None:
        self.document = document
        self.kb = kb
        self.has_origin = document.source != lines.Origin()
        self.key = key_of(kb, document.source, document.title, len(document.chunks))
        self.print = fingerprint(
            document.title,
            document.tags,
            document.metadata,
            document.chunks,
            facts_of(document.entry, document.created_by),
        )
        self._content: Content | None = None

    def content(self, store: SeenStore) -> Content:
        if self._content is None:
            self._content = _content(store, self.document)
        return self._content


def _content(store: SeenStore, document: Document) -> Content:
    """Where the source is missing, the text stands for it, as with a text that is added."""
    chunks = [ChunkText(**msgspec.structs.asdict(chunk)) for chunk in document.chunks]
    kind, data = str(document.doc_type), document.source_base64
    if data is None:
        data = whole_text(chunks).encode()
        kind = "text" if kind in {"pdf", "docx"} else kind
    source = store.blobs.put(data)
    return Content(
        title=document.title,
        doc_type=kind,
        chunks=chunks,
        sha256=source.name,
        size_bytes=len(data),
        pages=document.pages,
        source=source,
    )


class Matches:
    """The live documents, and which of them an import has already met.

    `follow` brings it to what `queries` see: another writer may have been faster.
    """

    def __init__(self, *, replace: bool) -> None:
        self._replace = replace
        self._seq = 0
        self._ids: dict[Key, list[int]] = {}
        self._keys: dict[int, Key] = {}
        self._sources: dict[int, str] = {}
        self._prints: dict[int, bytes] = {}
        self._taken: set[int] = set()
        self._met: dict[Key, bytes] = {}

    def follow(self, queries: Queries) -> None:
        touched = queries.touched_since(self._seq)
        for first in range(0, len(touched), _BATCH_ROWS):
            rows = queries.documents_by_id(touched[first : first + _BATCH_ROWS])
            for row in rows.values():
                self._forget(row.id)
                if row.deleted_at is None:
                    self._remember(row)
        self._seq = max(self._seq, queries.head().seq)

    def _forget(self, id: int) -> None:
        key = self._keys.pop(id, None)
        if key is not None:
            self._ids[key].remove(id)
        self._prints.pop(id, None)

    def _remember(self, row: DocumentRow) -> None:
        key = key_of(row.kb, row, row.title, row.chunk_count)
        self._keys[row.id] = key
        self._ids.setdefault(key, []).append(row.id)
        self._sources[row.id] = row.sha256

    def look_up(self, queries: Queries, items: list[IncomingDocument]) -> None:
        """Looks up at once what `judge` would look up one by one."""
        ids = dict.fromkeys(id for item in items for id in self._ids.get(item.key, []))
        self._load(queries, [id for id in ids if id not in self._prints])

    def _load(self, queries: Queries, ids: list[int]) -> None:
        for first in range(0, len(ids), _BATCH_DOCUMENTS):
            some = ids[first : first + _BATCH_DOCUMENTS]
            rows, chunks = queries.documents_by_id(some), chunks_of(queries, some)
            entries = queries.entries_by_id([i for i in rows if rows[i].type == "knowledge"])
            for id, row in rows.items():
                metadata = msgspec.json.decode(row.metadata)
                facts = facts_of(entries.get(id), row.created_by)
                self._prints[id] = fingerprint(
                    row.title, row.tags, metadata, chunks.get(id, []), facts
                )

    def _print(self, queries: Queries, id: int) -> bytes:
        if id not in self._prints:
            self._load(queries, [id])
        return self._prints[id]

    def judge(self, queries: Queries, item: IncomingDocument) -> Match:
        """What would become of the document now; `take` makes it so."""
        ids = self._ids.get(item.key, [])
        if not item.has_origin:
            free = (id for id in ids if id not in self._taken)
            same = next((id for id in free if self._print(queries, id) == item.print), None)
            return Match("added" if same is None else "unchanged", same)
        id = ids[0] if ids else None
        if item.key in self._met:  # two knowledge bases are put into one
            return Match("unchanged" if self._met[item.key] == item.print else "conflict", id)
        if id is None:
            return Match("added", None)
        if self._print(queries, id) == item.print and self.has_source(id, item):
            return Match("unchanged", id)
        return Match("updated" if self._replace else "conflict", id)

    def has_source(self, id: int, item: IncomingDocument) -> bool:
        """True as well if the file does not say what the source was."""
        document = item.document
        return document.source_base64 is None or self._sources[id] == document.sha256

    def take(self, item: IncomingDocument, id: int | None) -> None:
        """From now on no other item can be this document."""
        if item.has_origin:
            self._met.setdefault(item.key, item.print)
        elif id is not None:
            self._taken.add(id)
