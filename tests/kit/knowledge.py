"""Writes entries, notes and agents directly to the log; reads their links from the catalog."""

from __future__ import annotations

import hashlib
from typing import Any

from kbproc.engine.events.agent import AgentWritten
from kbproc.engine.events.document import ChunkText, DocWritten
from kbproc.engine.events.entry import EntryFacts, EntryRevived, EntrySuperseded
from kbproc.engine.events.event import Event
from kbproc.engine.sources.blobs import digest
from kbproc.engine.store.store import Store
from tests.kit.talk import Session

Links = dict[int, tuple[int | None, int]]


def put(store: Store, *events: Event, actor: str = "ann", method: str = "knowledge.test") -> int:
    """Appends the events as one record; returns its seq."""
    return store.commit(lambda lane: lane.append(list(events), actor=actor, method=method))


def written(
    store: Store, title: str, text: str, *, kb: str, doc_type: str, **more: Any
) -> DocWritten:
    """Returns the event for a new document of one chunk, with the next ids."""
    with store.reading() as snapshot:
        head = snapshot.queries.head()
    data = text.encode()
    store.blobs.heal(digest(data), data)
    return DocWritten(
        id=head.next_document,
        kb=kb,
        revision=1,
        title=title,
        doc_type=doc_type,
        source_sha256=digest(data),
        size_bytes=len(data),
        first_chunk=head.next_chunk,
        chunks=[ChunkText(text=text)],
        parser=1,
        **{"origin": "agent", **more},
    )


def entry(
    store: Store,
    title: str = "Entry",
    text: str = "",
    *,
    kb: str = "default",
    actor: str = "ann",
    tags: list[str] | None = None,
    **facts: Any,
) -> int:
    """Stores an entry; returns its id."""
    facts_of_entry = EntryFacts(**{"confidence": 80, "source": "", **facts})
    document = written(
        store,
        title,
        text or f"body of {title}",
        kb=kb,
        doc_type="knowledge",
        entry=facts_of_entry,
        tags=tags or [],
    )
    put(store, document, actor=actor, method="knowledge.store")
    return document.id


def supersede(store: Store, id: int, by: int, *, actor: str = "ann") -> int:
    event = EntrySuperseded(id=id, by=by)
    return put(store, event, actor=actor, method="knowledge.supersede")


def revive(store: Store, id: int, was: int, *, actor: str = "ann") -> int:
    event = EntryRevived(ids=[id], was=was)
    return put(store, event, actor=actor, method="knowledge.unsupersede")


def agent(store: Store, slug: str, **more: Any) -> int:
    fields: dict[str, Any] = {
        "description": "",
        "kbs": None,
        "folder": None,
        "scopes": None,
        "quotas": {},
        "instructions": "",
        "revision": 1,
        **more,
    }
    return put(store, AgentWritten(slug=slug, **fields), method="agent.create")


def note(store: Store, agent: str, slug: str, text: str, *, title: str = "") -> int:
    """Writes a note to log and folder, atomically for the watcher; returns the document's id."""
    with store.lane():
        document = written(
            store, title or slug, text, kb=f"notes/{agent}", doc_type="note", source_id=slug
        )
        folder = store.folder / "notes" / agent
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        (folder / f"{slug}.md").write_bytes(text.encode())
        put(store, document, actor=agent, method="note.put")
    return document.id


def links(session: Session) -> Links:
    """Returns, for each live entry, its successor and its head."""
    with session.store.reading() as snapshot:
        from kbproc.engine.projections.catalog.filters import DocumentFilter

        rows = snapshot.queries.entries(DocumentFilter())
    return {row.id: (row.superseded_by, row.head) for row in rows}


def check(session: Session) -> Links:
    """Returns the links; asserts that each head ends its chain and is live."""
    chains = links(session)
    for id, (_, head) in chains.items():
        at, steps = id, 0
        while (by := chains[at][0]) is not None:
            at, steps = by, steps + 1
            assert steps <= len(chains), f"{id} stands in a circle"
        assert at == head, f"the head of {id}"
    return chains


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
