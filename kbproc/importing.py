"""Portable documents on their way in.

Owns: which of them are new, changed, there already or in conflict; gathering
what is written into records; the plan of an import.
Refuses to know: lines and their limits (portable.py), how records are written
(commit.py).

A document that comes from a path, url or source_id is the one of that origin in
its knowledge base. One without is there already as often as its like is there:
what is imported twice is there once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

import msgspec
from msgspec import Struct

from kbproc import events as ev
from kbproc import portable
from kbproc.commit import Decision, Here, LongWrite
from kbproc.documents import require_kb, whole_text
from kbproc.exporting import chunks_of
from kbproc.model import canonical
from kbproc.portable import Document
from kbproc.revision import Content, Ids, written
from kbproc.words import plural

if TYPE_CHECKING:
    from kbproc.store import Store
    from kbproc.views.queries import DocumentRow, Queries

_BATCH_DOCUMENTS = 100
_BATCH_CHUNKS = 1000
_BATCH_BYTES = 64 << 20
_BATCH_ROWS = 1000
_AT_ONCE = 8
_MOST_IDS = 1000
_MOST_CHANGES = 100

Action = Literal["added", "updated", "unchanged", "conflict"]
Key = tuple[str, str, str | int]
Emit = Callable[[str, dict[str, Any]], None]
Tell = Callable[[int, str], None]


class Imported(Struct, kw_only=True):
    """Counts of documents; `ids`: the first 1,000, from the id in the file to the one here."""

    added: int = 0
    updated: int = 0
    unchanged: int = 0
    conflicts: int = 0
    kbs_created: int = 0
    ids: dict[str, int] = {}


class Import(Struct, frozen=True, kw_only=True):
    """An import's params: `kb` takes everything, `replace` makes new revisions."""

    kb: str | None = None
    replace: bool = False


class Outcome(Struct, frozen=True):
    """What becomes of a document; `id` is the one here, if it has one yet."""

    action: Action
    id: int | None


class Contents(Struct, frozen=True, kw_only=True):
    """What a file holds, once every line of it has been found good."""

    kbs: list[portable.Kb]
    documents: int
    size: int


def survey(file: BinaryIO, tell: Tell, check: Callable[[], None]) -> Contents:
    """Reads it all; `tell` gets the bytes read. Raises what portable.read raises."""
    kbs, documents, size = [], 0, 0
    for _, line, size in portable.read(file):
        check()
        tell(size, plural(documents, "document"))
        if isinstance(line, portable.Kb):
            kbs.append(line)
        documents += isinstance(line, Document)
    return Contents(kbs=kbs, documents=documents, size=size)


# ------------------------------------------------------------------- what is there


def key_of(kb: str, origin: Any, title: str, chunks: int) -> Key:
    """Of the one document that it must be, or of those that it may equal."""
    for name in ("path", "url", "source_id"):
        value = getattr(origin, name)
        if value is not None:
            return kb, name, value
    return kb, title, chunks


def fingerprint(title: str, tags: list[str], metadata: dict[str, Any], chunks: Any) -> bytes:
    said = [[c.text, c.page, c.section, c.overlap] for c in chunks]
    return blake2b(canonical([title, tags, metadata, said]), digest_size=16).digest()


class Item:
    """A document of the file; its source is stored when it is first needed."""

    def __init__(self, document: Document, kb: str) -> None:
        self.document = document
        self.kb = kb
        self.has_origin = document.source != portable.Origin()
        self.key = key_of(kb, document.source, document.title, len(document.chunks))
        self.print = fingerprint(document.title, document.tags, document.metadata, document.chunks)
        self._content: Content | None = None

    def content(self, store: Store) -> Content:
        if self._content is None:
            self._content = _content(store, self.document)
        return self._content


def _content(store: Store, document: Document) -> Content:
    """Without its source the text stands for it, as it does for a text that is added."""
    chunks = [
        ev.ChunkText(text=c.text, page=c.page, section=c.section, overlap=c.overlap)
        for c in document.chunks
    ]
    kind, data = str(document.doc_type), document.source_base64
    if data is None:
        data = whole_text(chunks).encode()  # type: ignore[arg-type]
        kind = "text" if kind in {"pdf", "docx"} else kind
    return Content(
        title=document.title,
        doc_type=kind,
        chunks=chunks,
        sha256=store.blobs.put(data),
        size_bytes=len(data),
        pages=document.pages,
    )


class Known:
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

    def look_up(self, queries: Queries, items: list[Item]) -> None:
        """At once what `judge` would look up one by one."""
        ids = dict.fromkeys(id for item in items for id in self._ids.get(item.key, []))
        self._load(queries, [id for id in ids if id not in self._prints])

    def _load(self, queries: Queries, ids: list[int]) -> None:
        for first in range(0, len(ids), _BATCH_DOCUMENTS):
            some = ids[first : first + _BATCH_DOCUMENTS]
            rows, chunks = queries.documents_by_id(some), chunks_of(queries, some)
            for id, row in rows.items():
                metadata = msgspec.json.decode(row.metadata)
                self._prints[id] = fingerprint(row.title, row.tags, metadata, chunks.get(id, []))

    def _print(self, queries: Queries, id: int) -> bytes:
        if id not in self._prints:
            self._load(queries, [id])
        return self._prints[id]

    def judge(self, queries: Queries, item: Item) -> Outcome:
        """What would become of it now; `take` makes it so."""
        ids = self._ids.get(item.key, [])
        if not item.has_origin:
            free = (id for id in ids if id not in self._taken)
            same = next((id for id in free if self._print(queries, id) == item.print), None)
            return Outcome("added" if same is None else "unchanged", same)
        id = ids[0] if ids else None
        if item.key in self._met:  # two knowledge bases are put into one
            return Outcome("unchanged" if self._met[item.key] == item.print else "conflict", id)
        if id is None:
            return Outcome("added", None)
        if self._print(queries, id) == item.print and self.has_source(id, item):
            return Outcome("unchanged", id)
        return Outcome("updated" if self._replace else "conflict", id)

    def has_source(self, id: int, item: Item) -> bool:
        """True as well if the file does not say what the source was."""
        document = item.document
        return document.source_base64 is None or self._sources[id] == document.sha256

    def take(self, item: Item, id: int | None) -> None:
        """From now on no other item can be this document."""
        if item.has_origin:
            self._met.setdefault(item.key, item.print)
        elif id is not None:
            self._taken.add(id)


# ------------------------------------------------------------------ what is written


def run(
    store: Store,
    file: BinaryIO,
    contents: Contents,
    work: Import,
    write: LongWrite,
    *,
    tell: Tell,
    emit: Emit,
    check: Callable[..., None],
) -> Imported:
    """Imports; each batch is durable when the next begins. Raises operation.cancelled."""
    result = Imported(kbs_created=len(write.item(lambda here: _new_kbs(here, contents, work))))
    known, resumed = Known(replace=work.replace), write.written()
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="import") as pool:
        for batch, offset in _batches(file, work):
            check(**counts(result))
            _prepare(store, known, batch, pool)
            outcomes = write.item(partial(_batch, store, known, batch))
            for item, outcome in zip(batch, outcomes, strict=True):
                _count(result, item.document, _resumed(outcome, resumed), emit)
            tell(offset, batch[-1].document.title)
    return result


def _batches(file: BinaryIO, work: Import) -> Iterator[tuple[list[Item], int]]:
    """The documents, some at a time, and how far into the file they reach."""
    batch: list[Item] = []
    chunks = start = 0
    for _, line, offset in portable.read(file):
        if isinstance(line, Document):
            batch.append(Item(line, work.kb or line.kb))
            chunks += len(line.chunks)
        many = len(batch) >= _BATCH_DOCUMENTS or chunks >= _BATCH_CHUNKS
        if batch and (many or offset - start > _BATCH_BYTES or isinstance(line, portable.End)):
            yield batch, offset
            batch, chunks, start = [], 0, offset


def _prepare(store: Store, known: Known, batch: list[Item], pool: Executor) -> None:
    """Whatever is slow, outside the lane; sources are stored some at once."""
    with store.reading() as snapshot:
        known.follow(snapshot.queries)
        known.look_up(snapshot.queries, batch)
        likely = [known.judge(snapshot.queries, item) for item in batch]

    def store_source(item: Item, outcome: Outcome) -> None:
        source = item.document.source_base64
        if outcome.action in {"added", "updated"}:
            item.content(store)
        elif source is not None and outcome.id is not None and known.has_source(outcome.id, item):
            store.blobs.heal(item.document.sha256, source)

    for _ in pool.map(store_source, batch, likely):
        continue  # raises what storing raised


def _new_kbs(here: Here, contents: Contents, work: Import) -> Decision:
    if work.kb is not None:
        require_kb(here, work.kb)
        return Decision(events=[], data=[])
    there = set(here.queries.kb_slugs())
    events: list[ev.Event] = [
        ev.KbCreated(slug=kb.slug, name=kb.name, description=kb.description)
        for kb in contents.kbs
        if kb.slug not in there
    ]
    return Decision(events=events, data=events)


def _batch(store: Store, known: Known, batch: list[Item], here: Here) -> Decision:
    """Looks again at what is there. An outcome's id is final, a new document's too."""
    for kb in {item.kb for item in batch}:
        require_kb(here, kb)
    known.follow(here.queries)
    ids = Ids(here)
    events: list[ev.Event] = []
    outcomes: list[Outcome] = []
    for item in batch:
        outcome = known.judge(here.queries, item)
        if outcome.action in {"added", "updated"}:
            event = _written(store, here, item, outcome.id, ids)
            events.append(event)
            outcome = Outcome(outcome.action, event.id)
        known.take(item, outcome.id)
        outcomes.append(outcome)
    return Decision(events=events, data=outcomes)


def _written(store: Store, here: Here, item: Item, id: int | None, ids: Ids) -> ev.DocWritten:
    document = item.document
    event = written(
        here,
        item.content(store),
        kb=item.kb,
        existing=None if id is None else here.queries.document(id),
        ids=ids,
        tags=document.tags,
        metadata=document.metadata,
        path=document.source.path,
        url=document.source.url,
        source_id=document.source.source_id,
    )
    created_at = document.created_at if id is None else None
    return msgspec.structs.replace(event, parser=document.parser, created_at=created_at)


# --------------------------------------------------------------------- what is told


def counts(result: Imported) -> dict[str, int]:
    names = ("added", "updated", "unchanged", "conflicts", "kbs_created")
    return {name: getattr(result, name) for name in names}


def _resumed(outcome: Outcome, resumed: dict[int, int]) -> Outcome:
    """What an earlier, unfinished run of this command has written counts as its own."""
    if outcome.action != "unchanged" or outcome.id not in resumed:
        return outcome
    return Outcome("added" if resumed[outcome.id] == 1 else "updated", outcome.id)


def _count(result: Imported, document: Document, outcome: Outcome, emit: Emit) -> None:
    name = "conflicts" if outcome.action == "conflict" else outcome.action
    setattr(result, name, getattr(result, name) + 1)
    if outcome.action != "conflict" and outcome.id is not None and len(result.ids) < _MOST_IDS:
        result.ids[str(document.id)] = outcome.id
    emit("item", {"item": {"old": document.id, "new": outcome.id, "action": outcome.action}})


def plan(file: BinaryIO, contents: Contents, work: Import, here: Here) -> Decision:
    """What an import would do: a line of counts, then what is not there yet."""
    result, known = Imported(), Known(replace=work.replace)
    known.follow(here.queries)
    changes = [f"create knowledge base {kb.slug}" for kb in _new_kbs(here, contents, work).data]
    for batch, _ in _batches(file, work):
        known.look_up(here.queries, batch)
        for item in batch:
            outcome = known.judge(here.queries, item)
            known.take(item, outcome.id)
            _count(result, item.document, outcome, lambda name, fields: None)
            if outcome.action != "unchanged" and len(changes) < _MOST_CHANGES:
                changes.append(f"{outcome.action}: {item.document.title}")
    summary = f"{result.added} added, {result.updated} updated, {result.unchanged} unchanged"
    first = f"{summary}, {result.conflicts} in conflict"
    return Decision(events=[], data=None, changes=[first, *changes])
