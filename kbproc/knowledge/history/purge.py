"""Forgetting for good.

Owns: what of the log, the sources, the pack and the views belongs to a document, to an earlier
content of it or to a session, and erasing it so that no file of the store holds it any more. What
an answer may have repeated of a document goes with that.
Refuses to know: who may purge, and the plan that a person approves.

First a record says what is purged; then everything is erased, in steps that can
be repeated; then a record says that it is done. A store that finds the first
record without the second ends the work before it answers anything.

Where several nodes share the log each erases its own folder (`forget_here`), and marks there how
far it has come; one or more of them erase what the servers hold (`forget_elsewhere`).
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from kbproc.base.errors import KbprocError
from kbproc.base.failpoints import reach
from kbproc.embedding.background import Embedding
from kbproc.events import codec
from kbproc.events.document import DocChanged, DocWritten, FileCleared, FileFailed
from kbproc.events.event import Event
from kbproc.events.session import AnswerReferred, AnswerSaid, OfSession, SessionPurged
from kbproc.events.upkeep import ContentForgotten, DocPurged, Erased, PurgeEnded
from kbproc.history import forgotten, note_files
from kbproc.log import record as records
from kbproc.log.record import Record
from kbproc.store import rebuild
from kbproc.store.lane import Lane
from kbproc.store.sql import query
from kbproc.store.store import Store
from kbproc.views.catalog.queries.all import Queries

Tell = Callable[[str], None]
_ALL = 1 << 31
_STAGES = ("trace", "sources", "vectors", "log", "views")
_TokenKey = tuple[str, str, str | None]
_Embedded = tuple[str, str | None, str]  # title, section, text


def told(stage: str) -> tuple[str, int, int, str]:
    """Its progress: stage, current, total, message."""
    return "purge", _STAGES.index(stage), len(_STAGES), stage


class Erasure(Struct, kw_only=True):
    """What was found and erased; `bytes`: of log and sources."""

    records: int = 0
    sources: int = 0
    vectors: int = 0
    bytes: int = 0


class Forgets(NamedTuple):
    """The record that takes away what a document held before its revision `kept`."""

    kept: int
    seq: int


class Trace:
    """What the log holds of documents that are purged, and of contents that are forgotten."""

    def __init__(
        self,
        purges: Mapping[int, int],
        forgets: Mapping[int, Forgets],
        sessions: Mapping[int, int],
    ) -> None:
        """`purges`: document id → the record that purges it; `forgets`: by document id.

        `sessions`: session id → the record that purges it.
        """
        self.purges = purges
        self.sessions = sessions
        self._referred: dict[int, set[int]] = {}  # message → documents that it may quote
        self._forgets = forgets
        self.sources: set[str] = set()
        self.other_sources: set[str] = set()
        self.strings: set[_Embedded] = set()
        self.other_strings: set[_Embedded] = set()  # of the same documents
        self.files: dict[tuple[str, str], int] = {}
        self.tokens: dict[_TokenKey, int] = {}
        self.askers: set[_TokenKey] = set()  # tokens of requests whose params may tell of them
        self.names: set[bytes] = set()
        self.notes: dict[bytes, int] = {}  # what outcomes of note.* may call them
        self.texts: dict[tuple[str, str], set[str]] = {}  # kb and slug of a note → what it held
        self.kept: set[int] = set()  # records that are not changed
        self._written: dict[int, DocWritten] = {}

    def follow(self, record: Record) -> None:
        for event in codec.decode(record.events):
            self._note_asker(record, event)
            if isinstance(event, AnswerReferred):
                quoted = {one.document_id for one in event.references if one.document_id}
                self._referred.setdefault(event.message, set()).update(quoted)
            if not isinstance(event, DocWritten | DocChanged):
                continue
            if event.id in self.purges:
                self._mark(record, event)
            if event.id in self.purges or event.id in self._forgets:
                self._note_content(event)
            elif isinstance(event, DocWritten):
                self.other_sources.add(event.source_sha256)

    @property
    def gone(self) -> list[str]:
        """Sources that nothing else holds."""
        return [sha256 for sha256 in sorted(self.sources - self.other_sources) if sha256]

    def _note_content(self, event: DocWritten | DocChanged) -> None:
        if isinstance(event, DocWritten):
            self._written[event.id] = event
        written = self._written.get(event.id)
        if written is None:
            return
        goes = self.stand_in(written) is not None
        sources, strings = (
            (self.sources, self.strings) if goes else (self.other_sources, self.other_strings)
        )
        sources.add(written.source_sha256)
        strings.update((event.title, chunk.section, chunk.text) for chunk in written.chunks)

    def _note_asker(self, record: Record, event: Event) -> None:
        """Whoever purges gives ids, and nothing that could be guessed."""
        concerned = not self.purges.keys().isdisjoint(event.concerns().documents)
        if concerned and record.token is not None and not isinstance(event, DocPurged):
            self.askers.add((record.actor, record.method, record.token))

    def _mark(self, record: Record, event: DocWritten | DocChanged) -> None:
        if record.token is not None:
            self.tokens[record.actor, record.method, record.token] = self.purges[event.id]
        self.names.add(_inside(event.title))
        if isinstance(event, DocWritten):
            if event.source_id is not None:
                self.names.add(_inside(event.source_id))
                if event.doc_type == "note":
                    self.notes[_inside(event.source_id)] = self.purges[event.id]
                    held = self.texts.setdefault((event.kb, event.source_id), set())
                    held.add(event.source_sha256)
            if event.path is not None:
                self.files[event.kb, event.path] = self.purges[event.id]
                self.names.add(_inside(event.path))

    def stand_in(self, event: Event) -> Event | None:
        """What takes the event's place; None if it stays."""
        if (purge := self.purge_of(event)) is not None:
            if isinstance(event, AnswerReferred) and event.session not in self.sessions:
                left = [one for one in event.references if one.document_id not in self.purges]
                return replace(event, references=left)
            return _erased(event, purge, of_session=_session_of(event) in self.sessions)
        forgets = self._forgets.get(event.id) if isinstance(event, DocWritten) else None
        if isinstance(event, DocWritten) and forgets and event.revision < forgets.kept:
            return event.without_content(event.forgotten or forgets.seq)
        return None

    def purge_of(self, event: Event) -> int | None:
        """The record that takes this event away."""
        if isinstance(event, DocWritten | DocChanged):
            return self.purges.get(event.id)
        if isinstance(event, FileFailed | FileCleared):
            return self.files.get((event.kb, event.path))
        if (session := _session_of(event)) in self.sessions:
            return None if isinstance(event, SessionPurged) else self.sessions[session]
        return next((self.purges[id] for id in self._quoted(event) if id in self.purges), None)

    def _quoted(self, event: Event) -> Iterable[int]:
        """Documents whose words it may repeat."""
        if isinstance(event, AnswerReferred):
            return [one.document_id for one in event.references if one.document_id]
        if not isinstance(event, AnswerSaid):
            return ()
        known = self._referred.get(event.message, set())
        return known if event.documents is None else event.documents

    def purge_told(self, record: Record) -> int | None:
        """The same for the outcome of a request that wrote, or only showed, such a document,
        if it names it."""
        if not any(name in bytes(record.result) for name in self.names):
            return None
        told = self.tokens.get((record.actor, record.method, record.token))
        return told or self.purges.get(_id_told(bytes(record.result))) or self._note_told(record)

    def asks(self, record: Record) -> bool:
        """Whether its params may tell of such a document: then they must not be guessed."""
        return (record.actor, record.method, record.token) in self.askers and record.salt != ""

    def _note_told(self, record: Record) -> int | None:
        """A sync names every note that it found, and writes them under no token."""
        if not record.method.startswith("note."):
            return None
        named = (purge for name, purge in self.notes.items() if name in bytes(record.result))
        return next(named, None)


def _session_of(event: Event) -> int:
    return event.session if isinstance(event, OfSession) else 0


def _id_told(result: bytes) -> int:
    """Of the one document that an outcome shows; 0 if it shows none, or several."""
    told = msgspec.json.decode(result)
    data = told.get("data") if isinstance(told, dict) else None
    id = data.get("id") if isinstance(data, dict) else None
    return id if isinstance(id, int) else 0


def _inside(text: str) -> bytes:
    """As it stands within a JSON string."""
    return msgspec.json.encode(text)[1:-1]


class Reach(Struct, frozen=True, kw_only=True):
    """Whatever else keeps what a purge erases: see library/library.py.

    `past_closed`: while it is entered, nothing of the past is open or on disk.
    `forget_answers`: what is kept in memory of answers that have ended goes.
    `forget_vectors`: those under these keys of the pack leave the cluster.
    """

    store: Store
    embedding: Embedding
    past_closed: Callable[[], AbstractContextManager[None]]
    forget_answers: Callable[[], object]
    forget_vectors: Callable[[Collection[bytes]], object]


def finish(reached: Reach, tell: Tell = lambda stage: None) -> Erasure:
    """Erases what the log says is purged or forgotten and is not marked as erased; marks it.

    Raises store.io; then the store, opened again, begins anew.
    """
    store = reached.store
    begun, found = forget_here(reached, tell)
    if store.log.is_shared:
        forget_elsewhere(reached)
    elif begun:
        _end(store, begun[-1].seq)
    return found


def forget_here(reached: Reach, tell: Tell = lambda stage: None) -> tuple[list[Record], Erasure]:
    """What this folder holds; and the records that purge it. Raises store.io."""
    store = reached.store
    with store.exclusive():
        begun, found = _begun(store), Erasure()
        try:
            if begun:
                reach("purge.recorded")
                _erase(reached, begun, found, tell)
                store.changed()  # whoever waits for what others wrote has it now
            if (done := forgotten.read(store.folder)) is not None:
                store.log.erased_seq = done.seq
        except OSError as error:
            raise KbprocError(
                "store.io",
                f"The purge could not be brought to its end: {error.strerror}.",
                hint="Nothing of it is shown any more. Make room, then restart kbproc: it goes on.",
            ) from error
    return begun, found


def forget_elsewhere(reached: Reach) -> None:
    """What the stream and its shelves hold, and the mark in the log that it has gone.

    Several nodes may do it, each what it knows of. Raises store.io.
    """
    store = reached.store
    with store.exclusive():
        left = forgotten.read(store.folder)
        if left is None or not left.due or left.seq < left.due or not store.log.is_shared:
            return
        keys = [bytes.fromhex(key) for key in left.keys]
        try:
            reached.forget_vectors(keys)
            store.log.forget(_unnamed(store, left.sources), left.seq)
            reached.forget_vectors(keys)  # what was being embedded meanwhile
            _end(store, left.due)
        except KbprocError as error:
            raise KbprocError(
                error.type,
                f"This node has forgotten it, the cluster may not have yet: {error.message}",
                hint="It goes on by itself once the servers can be reached.",
            ) from error
        _settled(store, left.due)


def has_ended(store: Store, purge: int) -> bool:
    """Whether some node has recorded that the cluster has forgotten it."""
    with store.reading() as snapshot:
        return _is_ended(snapshot.queries, store, purge)


def _is_ended(queries: Queries, store: Store, purge: int) -> bool:
    """Purges may be decided while another is not at its end: so its mark names it."""
    return any(
        isinstance(event, PurgeEnded) and event.purge >= purge
        for seq in queries.matching_records(purge, _ALL, [PurgeEnded.tag()], None, None)
        for record in store.log.read(seq - 1, seq)
        for event in codec.decode(record.events)
    )


def _end(store: Store, purge: int) -> None:
    [record] = store.log.read(purge - 1, purge)

    def turn(lane: Lane) -> None:
        if not _is_ended(lane.queries, store, purge):
            lane.append([PurgeEnded(purge=purge)], actor=record.actor, method="store.purge")

    store.commit(turn)


def _settled(store: Store, due: int) -> None:
    left = forgotten.read(store.folder)
    if left is not None and left.due == due:
        forgotten.keep(store.folder, forgotten.Forgotten(seq=left.seq))


def _unnamed(store: Store, sources: list[str]) -> list[str]:
    """Those of them that no document has come to hold again."""
    if not sources:
        return []
    named = {
        event.source_sha256
        for record in store.log.read(to_seq=store.log.head.seq)
        for event in codec.decode(record.events)
        if isinstance(event, DocWritten)
    }
    return [sha256 for sha256 in sources if sha256 not in named]


def _begun(store: Store) -> list[Record]:
    """The records of purges that have not come to their end, in this folder."""
    done = forgotten.read(store.folder)
    after = 0 if done is None else done.seq
    with store.reading() as snapshot:
        if done is None and not store.log.is_shared:
            seqs = set(snapshot.queries.unfinished_purges())
        else:
            seqs = set(snapshot.queries.purges_after(after))
    unseen = store.log.read(max(after, store.seq), store.log.head.seq)
    seqs |= {record.seq for record in unseen if codec.purges(record.events)}
    return [next(store.log.read(seq - 1, seq)) for seq in sorted(seqs)]


def _trace_of(begun: list[Record]) -> Trace:
    purges: dict[int, int] = {}
    forgets: dict[int, Forgets] = {}
    sessions: dict[int, int] = {}
    for record in begun:
        for event in codec.decode(record.events):
            if isinstance(event, DocPurged):
                purges |= dict.fromkeys(event.ids, record.seq)
            elif isinstance(event, ContentForgotten):
                forgets[event.id] = Forgets(event.kept, record.seq)
            elif isinstance(event, SessionPurged):
                sessions[event.session] = record.seq
    return Trace(purges, forgets, sessions)


def _erase(reached: Reach, begun: list[Record], found: Erasure, tell: Tell) -> None:
    store, trace = reached.store, _trace_of(begun)
    tell("trace")
    last = store.log.head.seq  # nobody sees the documents now, so later records hold none of them
    if store.log.is_shared:  # every node makes the same of every record
        last = begun[-1].seq - 1
        trace.kept = {record.seq for record in begun}
    for record in store.log.read(to_seq=last):
        trace.follow(record)
    # The log comes last: until then it tells what belongs to the documents.
    with reached.past_closed():
        tell("sources")
        with store.lane():
            for record in store.log.read(last, store.log.head.seq):
                trace.follow(record)  # another document may have come to hold the same source
            _remember(reached, trace, begun[-1].seq)
            _erase_sources(store, trace, found)
        reach("purge.sources")
        tell("vectors")
        with reached.embedding.gate.closed():
            found.vectors = _erase_vectors(reached, trace)
        reach("purge.vectors")
        tell("log")
        store.log.rewrite(partial(_rewritten, trace=trace, found=found), to_seq=last)
        reach("purge.log")
    tell("views")
    _erase_views(store, trace, begun[-1].seq)
    if reached.embedding.pack is not None:
        reached.embedding.pack.release()
    reached.forget_answers()
    _erase_sources(store, trace, Erasure())  # whoever saw the past may have fetched one again
    store.blobs.going = frozenset()
    reach("purge.views")
    if (done := forgotten.read(store.folder)) is not None:
        forgotten.keep(store.folder, replace(done, seq=begun[-1].seq))


def _rewritten(record: Record, trace: Trace, found: Erasure) -> Record:
    """Without what concerns the documents, and without what its params could be guessed from."""
    left = _without(record, trace)
    if left is not record:
        found.records += 1
        found.bytes += len(records.encode(record)) - len(records.encode(left))
    bare = trace.asks(left) and left.seq not in trace.kept
    return records.salt_params(records.unsalted(left) if bare else left)


def _without(record: Record, trace: Trace) -> Record:
    """The record without what concerns the documents; itself if nothing does."""
    events = codec.decode(record.events)
    purge = next(filter(None, map(trace.purge_of, events)), None) or trace.purge_told(record)
    stand_ins = [trace.stand_in(event) for event in events]
    if purge is None and not any(stand_ins):
        return record
    raws: list[msgspec.Raw] = msgspec.json.decode(record.events, type=list[msgspec.Raw])
    kept = msgspec.json.encode([new or raw for new, raw in zip(stand_ins, raws, strict=True)])
    result = bytes(record.result)
    if purge is None:  # what a request was answered still holds, and so does what it had asked
        return records.redacted(record, events=kept, result=result, salt=record.salt)
    return records.redacted(
        record, events=kept, result=result if result == b"null" else _outcome(purge)
    )


def _erased(event: Event, purge: int, *, of_session: bool) -> Erased:
    """`of_session`: nothing is left of the session that it belongs to, so its answer has no piece
    in the place of this one.
    """
    about = event.concerns()
    return Erased(
        was=event.tag(),
        purge=purge,
        document_id=about.document,
        session_id=about.session,
        message_id=None if of_session else about.message,
        **event.gives()._asdict(),
    )


def _outcome(purge: int) -> bytes:
    """What a repeated client_token is answered from now on."""
    error = {
        "type": "resource.not_found",
        "message": "What this request wrote was purged.",
        "detail": {"purged_by": purge},
    }
    return msgspec.json.encode({"error": error})


def _remember(reached: Reach, trace: Trace, due: int) -> None:
    """What is to leave the cluster, too: once the log is rewritten nobody here could tell."""
    store = reached.store
    done = forgotten.read(store.folder)
    if not store.log.is_shared:
        return
    before = done or forgotten.Forgotten()
    keys = {key.hex() for key in _keys(reached, trace)}
    left = forgotten.Forgotten(
        seq=before.seq,
        due=due,
        sources=sorted({*before.sources, *trace.gone}),
        keys=sorted({*before.keys, *keys}),
    )
    forgotten.keep(store.folder, left)


def _erase_sources(store: Store, trace: Trace, found: Erasure) -> None:
    gone = trace.gone
    store.blobs.going = frozenset(gone)
    for sha256 in gone:
        found.bytes += store.blobs.erase(sha256)
    found.sources = len(gone)
    if trace.purges:
        shutil.rmtree(store.folder / "damaged", ignore_errors=True)  # what repairs have set aside


def _erase_vectors(reached: Reach, trace: Trace) -> int:
    """From the pack in use; packs of other models are caches and go as a whole."""
    pack = reached.embedding.pack
    if trace.purges:
        for path in (reached.store.folder / "vectors").glob("*"):
            if pack is None or path != pack.path:
                path.unlink()
    return 0 if pack is None else pack.erase(_keys(reached, trace))


def _keys(reached: Reach, trace: Trace) -> list[bytes]:
    """Of the pack in use."""
    pack, string = reached.embedding.pack, reached.embedding.string_of
    gone = trace.strings - trace.other_strings
    return [] if pack is None else [pack.key(string(*parts)) for parts in sorted(gone, key=repr)]


def _erase_views(store: Store, trace: Trace, purge: int) -> None:
    """Nobody takes a note's file for a new one: in the lane none is read, nor written back."""
    with store.lane() if store.log.is_shared and trace.texts else contextlib.nullcontext():
        if store.log.is_shared:
            store.log.erased_seq = purge
            note_files.remove_left(store, trace.texts, trace.purges)
        rebuild.rebuild(store)
    query.remove_copies(store.folder)  # of the old catalog; nobody can copy that any more


def resume(reached: Reach) -> None:
    """Brings to its end what was cut off, in this folder. Raises store.*.

    Of a read-only store the overlay's log alone: so the past does not tell of it either.
    """
    store = reached.store
    if not store.read_only and store.log.is_shared:
        forget_here(reached)
    elif not store.read_only:
        finish(reached)
    elif begun := _begun(store):
        trace = _trace_of(begun)
        for record in store.log.read():
            trace.follow(record)
        found = Erasure()
        store.log.rewrite(partial(_rewritten, trace=trace, found=found), to_seq=store.log.head.seq)
