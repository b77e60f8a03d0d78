"""Defines what an import knows of its file and its result, and matches documents and links.

A document from a path, url or source_id corresponds to the live document of that origin in its
knowledge base. A document without an origin corresponds to one with equal content, so that a file
that is imported twice is stored once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from hashlib import blake2b
from typing import Any, Literal

import msgspec
from msgspec import Struct

from kbproc.base.structs import batches
from kbproc.base.values import canonical
from kbproc.engine.events.document import ChunkText, parsed_facts_of, whole_text
from kbproc.engine.events.entry import LINK_TAGS, Anchor, EntryReplaces
from kbproc.engine.events.event import Event
from kbproc.engine.projections.catalog.queries import Queries
from kbproc.engine.projections.catalog.rows import DocumentRow
from kbproc.engine.sources.parse.formats import is_text
from kbproc.engine.store.decision import Decision, DecisionState
from kbproc.engine.store.pipeline import LongWrite
from kbproc.engine.store.state import SeenStore
from kbproc.knowledge.documents.content import PARSED_AS
from kbproc.knowledge.documents.entry import Chains
from kbproc.knowledge.documents.revision import Content
from kbproc.knowledge.transfer import portable
from kbproc.knowledge.transfer.outgoing import chunks_of

Emit = Callable[[str, dict[str, Any]], None]
Report = Callable[[int, str], None]


class Imported(Struct, kw_only=True):
    """Counts of documents; `ids`: the first 1,000, from the id in the file to the one here.

    `links`: entries that are superseded from now on, as in the file. `agents_kept` and
    `notes_kept` existed with other content, and stayed so. `vectors`: vectors of the file that
    this store's model need not make again. `folders_left`: agents that got the store's own
    folder, because the folder in the file was not approved. `in_review`: entries that wait for an
    approval here as they did there. `sources_left`: sources of entries and notes that are not in
    the file; `places_left`: files and commits among them that no person has vouched for.
    """

    added: int = 0
    updated: int = 0
    unchanged: int = 0
    conflicts: int = 0
    kbs_created: int = 0
    ids: dict[str, int] = {}
    links: int = 0
    agents_created: int = 0
    agents_kept: int = 0
    notes_added: int = 0
    notes_unchanged: int = 0
    notes_kept: int = 0
    folders_left: int = 0
    vectors: int = 0
    sessions_added: int = 0
    sessions_unchanged: int = 0
    watches_added: int = 0
    in_review: int = 0
    sources_left: int = 0
    places_left: int = 0


class Import(Struct, frozen=True, kw_only=True):
    """An import's params: `kb` takes everything, `replace` makes new revisions.

    `folders`: agents get the notes folders that the file names, wherever these lie.
    `keep_origins`: origins and verifications are those of the file.
    """

    kb: str | None = None
    replace: bool = False
    folders: bool = False
    keep_origins: bool = False


class Contents(Struct, kw_only=True):
    """The contents of a file whose lines are all valid.

    `links`: entry → its successor, by their ids in the file. `replaces`: entry in review → the
    entries that it supersedes once it is approved. `notes`: agent → number of notes.
    `vectors`: the model that made the file's vectors. `named`: documents that others name: by a
    link, as what an entry was derived from, or as what an answer refers to.
    """

    kbs: list[portable.KbLine] = []
    agents: list[portable.AgentLine] = []
    watches: list[portable.WatchLine] = []
    links: dict[int, int] = {}
    replaces: dict[int, list[int]] = {}
    notes: dict[str, int] = {}
    documents: int = 0
    sessions: int = 0
    size: int = 0
    vectors: portable.VectorsOf | None = None
    named: set[int] = set()

    def into(self, kb: str | None) -> Contents:
        """Returns what comes into the store; into a single knowledge base, only documents do."""
        if kb is None:
            return self
        return msgspec.structs.replace(self, kbs=[], agents=[], watches=[], notes={}, sessions=0)


# ------------------------------------------------------------------- documents

_BATCH_DOCUMENTS = 100
_BATCH_ROWS = 1000

Action = Literal["added", "updated", "unchanged", "conflict"]
Key = tuple[str, str, str | int]
_ENTRY = "entry"  # because an entry in review has no chunks that a key could count


class Match(Struct, frozen=True):
    """The action for a document; `id` is its id in this store, once it has one."""

    action: Action
    id: int | None


class Brought(Struct, frozen=True, kw_only=True):
    """The outcome of one document: its id in the file, and its id in this store."""

    old: int
    new: int | None
    action: Action


def key_of(kb: str, origin: Any, title: str, chunks: int, *, is_entry: bool) -> Key:
    """Returns the key under which corresponding documents are looked up.

    An origin selects one document; title and number of chunks select those that may be equal.
    """
    if is_entry:
        return kb, title, _ENTRY
    for name in ("path", "url", "source_id"):
        value = getattr(origin, name)
        if value is not None:
            return kb, name, value
    return kb, title, chunks


def fingerprint(
    title: str, tags: list[str], metadata: dict[str, Any], chunks: Any, facts: Any
) -> bytes:
    texts = [[c.text, c.page, c.section, c.overlap] for c in chunks]
    return blake2b(canonical([title, tags, metadata, texts, facts]), digest_size=16).digest()


def facts_of(entry: Any, created_by: str, sha256: str) -> list[Any] | None:
    """Returns what distinguishes entries of equal title; `entry` is a line's or a row's.

    `sha256`: of the entry's body, which stands for its chunks.
    """
    if entry is None:
        return None
    names = ("confidence", "source", "expires_at", "task_id", "task_kind")
    return [*(getattr(entry, name) for name in names), created_by, sha256]


class IncomingDocument:
    """A document of the file; its source is stored when it is first needed."""

    def __init__(self, document: portable.DocumentLine, kb: str, offset: int) -> None:
        self.document = document
        self.kb = kb
        self.offset = offset  # the file's bytes up to its end
        self.has_origin = document.source != portable.Origin()
        entry = document.entry
        self.key = key_of(
            kb,
            document.source,
            document.title,
            len(document.chunks),
            is_entry=entry is not None,
        )
        self.print = fingerprint(
            document.title,
            document.tags,
            document.metadata,
            document.chunks if entry is None else [],
            facts_of(entry, document.created_by, document.sha256),
        )
        self._content: Content | None = None

    def content(self, store: SeenStore) -> Content:
        if self._content is None:
            self._content = _content(store, self.document)
        return self._content


def _content(store: SeenStore, document: portable.DocumentLine) -> Content:
    """Returns the document's content; a missing source is replaced by the text of its chunks."""
    chunks = [ChunkText(**msgspec.structs.asdict(chunk)) for chunk in document.chunks]
    kind, data = str(document.doc_type), document.source_base64
    if data is None:
        data = whole_text(chunks).encode()
        kind = kind if is_text(PARSED_AS.get(kind, kind)) else "text"
    source = store.blobs.put(data)
    return Content(
        title=document.title,
        doc_type=kind,
        chunks=chunks,
        sha256=source.name,
        size_bytes=len(data),
        source=source,
        modified_at=document.modified_at,
        **parsed_facts_of(document),
    )


class Matches:
    """The live documents, and those that an import has already matched.

    `follow` updates it to the snapshot of `queries`, because other writers may be active.
    """

    def __init__(self, *, replace: bool) -> None:
        self._replace = replace
        self._seq = 0
        self._ids: dict[Key, list[int]] = {}
        self._keys: dict[int, Key] = {}
        self._sources: dict[int, str] = {}
        self._prints: dict[int, bytes] = {}
        self._reserved: set[int] = set()
        self._prints_by_key: dict[Key, bytes] = {}

    def follow(self, queries: Queries) -> None:
        touched = list(queries.touched_since(self._seq))
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
        is_entry = row.type == "knowledge"
        key = key_of(row.kb, row, row.title, row.chunk_count, is_entry=is_entry)
        self._keys[row.id] = key
        self._ids.setdefault(key, []).append(row.id)
        self._sources[row.id] = row.sha256

    def look_up(self, queries: Queries, items: list[IncomingDocument]) -> None:
        """Loads the fingerprints that `judge` needs for these items in batches."""
        ids = dict.fromkeys(id for item in items for id in self._ids.get(item.key, []))
        self._load(queries, [id for id in ids if id not in self._prints])

    def _load(self, queries: Queries, ids: list[int]) -> None:
        for first in range(0, len(ids), _BATCH_DOCUMENTS):
            batch = ids[first : first + _BATCH_DOCUMENTS]
            rows, chunks = queries.documents_by_id(batch), chunks_of(queries, batch)
            entries = queries.entries_by_id([i for i in rows if rows[i].type == "knowledge"])
            for id, row in rows.items():
                metadata = msgspec.json.decode(row.metadata)
                facts = facts_of(entries.get(id), row.created_by, row.sha256)
                texts = chunks.get(id, []) if facts is None else []
                self._prints[id] = fingerprint(row.title, row.tags, metadata, texts, facts)

    def _print(self, queries: Queries, id: int) -> bytes:
        if id not in self._prints:
            self._load(queries, [id])
        return self._prints[id]

    def judge(self, queries: Queries, item: IncomingDocument) -> Match:
        """Returns the action for the document in the current state; `take` applies it."""
        ids = self._ids.get(item.key, [])
        if not item.has_origin:
            free = (id for id in ids if id not in self._reserved)
            same = next((id for id in free if self._print(queries, id) == item.print), None)
            return Match("added" if same is None else "unchanged", same)
        id = ids[0] if ids else None
        if item.key in self._prints_by_key:  # two knowledge bases are put into one
            return Match(
                "unchanged" if self._prints_by_key[item.key] == item.print else "conflict", id
            )
        if id is None:
            return Match("added", None)
        if self._print(queries, id) == item.print and self.has_source(id, item):
            return Match("unchanged", id)
        return Match("updated" if self._replace else "conflict", id)

    def has_source(self, id: int, item: IncomingDocument) -> bool:
        """Returns True if the document has the item's source, or if the file lacks the source."""
        document = item.document
        return document.source_base64 is None or self._sources[id] == document.sha256

    def source_of(self, id: int | None) -> str:
        """Returns the digest of the source of a document that was here before; "" for another."""
        return self._sources.get(id or 0, "")

    def take(self, item: IncomingDocument, id: int | None) -> None:
        """Reserves this document, so that no other item matches it."""
        if item.has_origin:
            self._prints_by_key.setdefault(item.key, item.print)
        elif id is not None:
            self._reserved.add(id)


class NewIds:
    """The ids here of those documents of the file that others name."""

    def __init__(self, named: Collection[int]) -> None:
        self._named = named
        self._matches: dict[int, Match] = {}
        self._sources: dict[int, tuple[str, str]] = {}

    def note(self, old: int, outcome: Match, *, stated: str, here: str) -> None:
        """Notes a document. `stated`, `here`: the digests of its source in the file, and here."""
        if old in self._named and outcome.id is not None:
            self._matches[old] = outcome
            self._sources[old] = stated, stated if outcome.action == "conflict" else here

    def here(self, old: int | None) -> int | None:
        """Returns the id here; None for a document that comes later, or not at all."""
        match = self._matches.get(old or 0)
        return match.id if match is not None else None

    def were_here(self) -> set[int | None]:
        """Returns the ids here of documents that this import has not written."""
        return {match.id for match in self._matches.values() if match.action == "unchanged"}

    def anchor_here(self, anchor: Anchor, *, has_place: bool) -> Anchor | None:
        """Returns the source of an entry or a note as it is named here; None if it is not here.

        `has_place`: its file or repository counts. Without its source a document here has another
        digest, and can't be asked for lines. Its revisions have other numbers here.
        """
        stated, source = self._sources.get(anchor.document or 0, ("", ""))
        is_readable = anchor.start_line is None or stated == source
        document = self.here(anchor.document) if is_readable else None
        path = anchor.path if has_place else None
        if document is None and path is None:
            return None
        sha256 = source if stated and anchor.sha256 == stated else anchor.sha256
        return msgspec.structs.replace(
            anchor, document=document, revision=None, path=path, sha256=sha256
        )


class Omissions(Struct):
    """Counts of sources that an import leaves out; see Imported."""

    sources: int = 0
    places: int = 0

    def anchors_here(
        self, anchors: Sequence[Anchor], ids: NewIds, *, vouched: bool
    ) -> list[Anchor]:
        """Returns the sources of an entry or a note as they are named here.

        A file or a repository that a file of somebody else's names is looked at only if a person
        has `vouched` for that.
        """
        own = []
        for anchor in anchors:
            here = ids.anchor_here(anchor, has_place=vouched)
            if here is not None:
                own.append(here)
            if anchor.path is not None and not vouched:
                self.places += 1
            elif here is None:
                self.sources += 1
        return own

    def count(self, result: Imported) -> None:
        result.sources_left += self.sources
        result.places_left += self.places


# ----------------------------------------------------------------------- links


_BATCH_LINKS = 1000


def write_links(
    links: dict[int, int], ids: NewIds, write: LongWrite, check: Callable[..., None]
) -> int:
    """Writes the links in batches; returns their number."""
    pairs = ((ids.here(old), ids.here(by)) for old, by in links.items())
    here = ((id, by) for id, by in pairs if id is not None and by is not None)
    were_here, count = ids.were_here(), 0
    for batch in batches(here, lambda pair: 1, most=_BATCH_LINKS):
        check()
        count += write.item(partial(_linked, dict(batch), were_here))
    return count


def _linked(links: dict[int, int], were_here: set[int | None], here: DecisionState) -> Decision:
    chains = Chains(here.queries, {*links, *links.values()})
    chains.relink(
        {
            id: by
            for id, by in links.items()
            if chains.is_live(id)
            and chains.is_live(by)
            and id != by
            and chains.successor_of(id) is None
            and not (id in were_here and _was_linked(here, id))
        }
    )
    return Decision(events=chains.events(), data=len(chains.changed))


def _was_linked(here: DecisionState, id: int) -> bool:
    return any(row.type in LINK_TAGS for row in here.queries.events_of_document(id))


def write_replaced(
    replaces: dict[int, list[int]], ids: NewIds, write: LongWrite, check: Callable[..., None]
) -> None:
    """Notes in batches which entries those in review supersede once they are approved."""
    here = {
        id: [new for old in others if (new := ids.here(old)) is not None]
        for entry, others in replaces.items()
        if (id := ids.here(entry)) is not None
    }
    were_here = ids.were_here()
    for batch in batches(here.items(), lambda pair: 1, most=_BATCH_LINKS):
        check()
        write.item(partial(_replaced, dict(batch), were_here))


def _replaced(
    replaces: dict[int, list[int]], were_here: set[int | None], here: DecisionState
) -> Decision:
    rows = here.queries.entries_by_id(list(replaces))
    events: list[Event] = [
        EntryReplaces(id=id, replaces=replaces[id])
        for id, row in rows.items()
        if row.in_review
        and row.deleted_at is None
        and row.replaces != replaces[id]
        and not (id in were_here and _was_replacing(here, id))
    ]
    return Decision(events=events, data=len(events))


def _was_replacing(here: DecisionState, id: int) -> bool:
    tag = EntryReplaces.tag()
    return any(row.type == tag for row in here.queries.events_of_document(id))
