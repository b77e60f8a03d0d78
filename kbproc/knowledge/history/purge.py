"""Erases documents, earlier contents and sessions for good.

A purge finds everything in the log, the sources, the pack and the projections that belongs to a
document, to an earlier content of it or to a session, and erases it, so that no file of the store
holds it any more. Text that an answer may have quoted from a document is erased with it.

First a record says what is purged; then everything is erased, in steps that can be repeated; then
a record says that the erasure is complete. A store that finds the first record without the second
completes the erasure before it answers any request.

`forget_here` erases this folder. `PurgeRules` says what else a purge needs where other folders
hold the log, too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from kbproc.base import disk, durable
from kbproc.base.errors import KbprocError
from kbproc.base.failpoints import reach
from kbproc.base.text.caches import empty_caches
from kbproc.engine.embedding.background import Embedding
from kbproc.engine.embedding.model import StoredModel
from kbproc.engine.events import codec
from kbproc.engine.events.document import DocChanged, DocWritten, FileCleared, FileFailed
from kbproc.engine.events.entry import Anchor, EntryReviewed
from kbproc.engine.events.event import Event
from kbproc.engine.events.session import AnswerReferred, AnswerSaid, OfSession, SessionPurged
from kbproc.engine.events.upkeep import ContentForgotten, DocPurged, Erased, PurgeEnded
from kbproc.engine.log import record as records
from kbproc.engine.log.record import Record
from kbproc.engine.projections.catalog.queries import Queries
from kbproc.engine.store import hook_counts, rebuild
from kbproc.engine.store.lane import Lane
from kbproc.engine.store.sql import query
from kbproc.engine.store.store import Store
from kbproc.knowledge.history import forgotten
from kbproc.knowledge.history.forgotten import Forgotten

Tell = Callable[[str], None]
_ALL = 1 << 31
_STAGES = ("trace", "sources", "vectors", "log", "views")
_TokenKey = tuple[str, str, str | None]
_Embedded = tuple[str, str | None, str]  # title, section, text


class PurgeProgress(NamedTuple):
    """The progress of a purge, as a request reports it."""

    stage: str
    current: int
    total: int
    message: str


def progress_of(stage: str) -> PurgeProgress:
    """Returns the progress of a purge at this stage."""
    return PurgeProgress("purge", _STAGES.index(stage), len(_STAGES), stage)


class Erasure(Struct, kw_only=True):
    """Counts of what a purge erased; `bytes`: of log and sources."""

    records: int = 0
    sources: int = 0
    vectors: int = 0
    bytes: int = 0


class Forgets(NamedTuple):
    """The record `seq` that forgets a document's contents before its revision `first_retained`."""

    first_retained: int
    seq: int


class Trace:
    """Everything in the log that belongs to purged documents and sessions, or forgotten contents.

    `follow` gathers it from one record after another.
    """

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
        self.other_strings: set[_Embedded] = set()  # retained strings of the same documents
        self.files: dict[tuple[str, str], int] = {}
        self.tokens: dict[_TokenKey, int] = {}
        self.asking_tokens: set[_TokenKey] = set()  # requests whose params may describe them
        self.names: set[bytes] = set()
        self.notes: dict[bytes, int] = {}  # name of a note in outcomes of note.* → its purge
        self.texts: dict[tuple[str, str], set[str]] = {}  # kb and slug of a note → its sha256s
        self.fixed_seqs: frozenset[int] = frozenset()  # see RewriteExtent
        self._written: dict[int, DocWritten] = {}

    def follow(self, record: Record) -> None:
        """Adds what the record holds of the documents."""
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
    def unused_sources(self) -> list[str]:
        """Sources that no other document holds."""
        return [sha256 for sha256 in sorted(self.sources - self.other_sources) if sha256]

    @property
    def unused_strings(self) -> set[_Embedded]:
        """Strings that no document holds any more."""
        return self.strings - self.other_strings

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
        """Adds the request's token if the event concerns a purged document.

        The purge itself is exempt: its params are ids, with no text that could be guessed.
        """
        concerned = not self.purges.keys().isdisjoint(event.concerns().documents)
        if concerned and record.token is not None and not isinstance(event, DocPurged):
            self.asking_tokens.add((record.actor, record.method, record.token))

    def _mark(self, record: Record, event: DocWritten | DocChanged) -> None:
        if record.token is not None:
            self.tokens[record.actor, record.method, record.token] = self.purges[event.id]
        self.names.add(_json_bytes(event.title))
        if isinstance(event, DocWritten):
            if event.source_id is not None:
                self.names.add(_json_bytes(event.source_id))
                if event.doc_type == "note":
                    self.notes[_json_bytes(event.source_id)] = self.purges[event.id]
                    sha256s = self.texts.setdefault((event.kb, event.source_id), set())
                    sha256s.add(event.source_sha256)
            if event.path is not None:
                self.files[event.kb, event.path] = self.purges[event.id]
                self.names.add(_json_bytes(event.path))

    def stand_in(self, event: Event) -> Event | None:
        """Returns the event that replaces this one; None if it stays."""
        if (purge := self.purge_of(event)) is not None:
            if isinstance(event, AnswerReferred) and event.session not in self.sessions:
                references = [one for one in event.references if one.document_id not in self.purges]
                return replace(event, references=references)
            return _erased(event, purge, of_session=_session_of(event) in self.sessions)
        stripped = self._without_anchors(event)
        retained = stripped or event
        forgets = self._forgets.get(retained.id) if isinstance(retained, DocWritten) else None
        if (
            isinstance(retained, DocWritten)
            and forgets
            and retained.revision < forgets.first_retained
        ):
            return retained.without_content(retained.forgotten or forgets.seq)
        return stripped

    def _without_anchors(self, event: Event) -> Event | None:
        """Returns an entry's or a note's event without the digests of purged documents and of their
        files, because a short text could be guessed from its digest; None if it has none.
        """
        if isinstance(event, DocWritten) and event.entry is not None:
            anchors = self._other_anchors(event.entry.anchors)
            return (
                None
                if anchors is None
                else replace(event, entry=replace(event.entry, anchors=anchors))
            )
        if isinstance(event, DocWritten):
            anchors = self._other_anchors(event.anchors)
            return None if anchors is None else replace(event, anchors=anchors)
        if isinstance(event, EntryReviewed) and event.anchors is not None:
            anchors = self._other_anchors(event.anchors)
            return None if anchors is None else replace(event, anchors=anchors)
        return None

    def _other_anchors(self, anchors: list[Anchor]) -> list[Anchor] | None:
        """Returns the anchors, of which those of purged documents and files say only that they
        were there; None if all are retained.
        """
        paths = {path for _, path in self.files}
        erased = [
            Anchor(document=one.document)
            if one.document in self.purges or one.path in paths
            else one
            for one in anchors
        ]
        return None if erased == anchors else list(dict.fromkeys(erased))

    def purge_of(self, event: Event) -> int | None:
        """Returns the seq of the record that purges this event; None if it stays."""
        if isinstance(event, DocWritten | DocChanged):
            return self.purges.get(event.id)
        if isinstance(event, FileFailed | FileCleared):
            return self.files.get((event.kb, event.path))
        if (session := _session_of(event)) in self.sessions:
            return None if isinstance(event, SessionPurged) else self.sessions[session]
        return next((self.purges[id] for id in self._quoted(event) if id in self.purges), None)

    def _quoted(self, event: Event) -> Iterable[int]:
        """Returns the documents whose text the event may quote."""
        if isinstance(event, AnswerReferred):
            return [one.document_id for one in event.references if one.document_id]
        if not isinstance(event, AnswerSaid):
            return ()
        referred = self._referred.get(event.message, set())
        return referred if event.documents is None else event.documents

    def purge_of_outcome(self, record: Record) -> int | None:
        """Returns the seq of the record that purges the outcome in this record; None if it stays.

        An outcome goes if it names a purged document that its request wrote or showed.
        """
        if not any(name in bytes(record.result) for name in self.names):
            return None
        purge = self.tokens.get((record.actor, record.method, record.token))
        return (
            purge or self.purges.get(_document_id(bytes(record.result))) or self._note_purge(record)
        )

    def has_guessable_params(self, record: Record) -> bool:
        """Returns True if the params may describe a purged document, so that they need hiding.

        The params' hash would let a reader test guesses.
        """
        key = record.actor, record.method, record.token
        return key in self.asking_tokens and record.salt != ""

    def _note_purge(self, record: Record) -> int | None:
        """Returns the purge of a note that a sync's outcome names.

        A sync names every note that it found, and its writes have no token.
        """
        if not record.method.startswith("note."):
            return None
        named = (purge for name, purge in self.notes.items() if name in bytes(record.result))
        return next(named, None)


def _session_of(event: Event) -> int:
    return event.session if isinstance(event, OfSession) else 0


def _document_id(result: bytes) -> int:
    """Returns the id of the one document that an outcome shows; 0 if it shows none, or several."""
    outcome = msgspec.json.decode(result)
    data = outcome.get("data") if isinstance(outcome, dict) else None
    id = data.get("id") if isinstance(data, dict) else None
    return id if isinstance(id, int) else 0


def _json_bytes(text: str) -> bytes:
    """Returns the text's bytes as they stand within a JSON string."""
    return msgspec.json.encode(text)[1:-1]


class RewriteExtent(NamedTuple):
    """Records up to `to_seq` are rewritten; those in `fixed_seqs` keep their params' hash."""

    to_seq: int
    fixed_seqs: frozenset[int] = frozenset()


class PurgeRules:
    """The rules of a purge whose folder alone has the log.

    A node of a cluster has other rules; see knowledge/cluster/purging.py.
    """

    hint = ""  # a sentence about other folders, for the end of a hint

    def unfinished(self, queries: Queries, position: Forgotten | None) -> Collection[int]:
        """Returns the seqs of the published purges that this folder has not completed.

        `position`: the one that this folder stores.
        """
        if position is None:
            return queries.unfinished_purges()
        return queries.purges_after(position.seq)

    def extent(self, purges: list[Record], head_seq: int) -> RewriteExtent:
        """Returns which records are rewritten: all, since later ones hold none of the documents."""
        return RewriteExtent(head_seq)

    def store_due(self, parts: PurgeParts, trace: Trace, due: int) -> None:
        """Stores what other folders must erase: nothing. In the lane."""

    def replacing_views(
        self, store: Store, trace: Trace, purge: int
    ) -> AbstractContextManager[object]:
        """Returns a context in which the projections are rebuilt."""
        return contextlib.nullcontext()

    def erased_here(self, store: Store, seq: int) -> None:
        """Notes that this folder lacks what the records up to `seq` purge."""

    def end(self, parts: PurgeParts, purges: list[Record]) -> None:
        """Ends the purges that this folder has completed, with a record."""
        if purges:
            record_end(parts.store, purges[-1].seq)

    def resume(self, parts: PurgeParts) -> None:
        """Completes interrupted purges while the store is opened."""
        finish(parts)


class PurgeParts(Struct, frozen=True, kw_only=True):
    """The parts of the application that may hold data a purge erases; see knowledge/app/library.py.

    `past_closed`: while it is entered, no snapshot of the past is open or on disk.
    `other_models`: yields the models beside the one in use whose vectors stay; while it is entered,
    none is added. `forget_answers`: drops ended answers from memory. `rules`: the store's.
    """

    store: Store
    embedding: Embedding
    past_closed: Callable[[], AbstractContextManager[None]]
    other_models: Callable[[], AbstractContextManager[list[StoredModel]]]
    forget_answers: Callable[[], object]
    rules: PurgeRules


def finish(parts: PurgeParts, tell: Tell = lambda stage: None) -> Erasure:
    """Completes every purge in the log that has no end record yet, and appends that record.

    Raises store.io; then the erasure starts again when the store is next opened.
    """
    purges, counts = forget_here(parts, tell)
    parts.rules.end(parts, purges)
    return counts


def forget_here(parts: PurgeParts, tell: Tell = lambda stage: None) -> tuple[list[Record], Erasure]:
    """Erases purged data from this folder; returns the purge records and the counts.

    Raises store.io.
    """
    store = parts.store
    with store.exclusive():
        purges, counts = _unfinished(parts), Erasure()
        try:
            if purges:
                reach("purge.recorded")
                _erase(parts, purges, counts, tell)
                store.changed()  # wakes readers that wait for records of other processes
            if (position := forgotten.read(store.folder)) is not None:
                parts.rules.erased_here(store, position.seq)
        except OSError as error:
            raise KbprocError(
                "store.io",
                f"The purge could not be completed: {error.strerror}.",
                hint="The purged data is hidden from every read. Make room, then restart kbproc: "
                "the purge continues.",
            ) from error
    return purges, counts


def has_ended(store: Store, purge: int) -> bool:
    """Returns True if some node has recorded the end of this purge for the whole cluster."""
    with store.reading() as snapshot:
        return _is_ended(snapshot.queries, store, purge)


def _is_ended(queries: Queries, store: Store, purge: int) -> bool:
    """Returns True if the log has an end record of this purge or of a later one.

    An end record names its purge, because a purge may be decided while another is in progress.
    """
    return any(
        isinstance(event, PurgeEnded) and event.purge >= purge
        for seq in queries.matching_records(purge, _ALL, [PurgeEnded.tag()], None, None)
        for record in store.log.read(seq - 1, seq)
        for event in codec.decode(record.events)
    )


def record_end(store: Store, purge: int) -> None:
    """Appends the record that ends this purge, unless the log has it. Raises store.io."""
    [record] = store.log.read(purge - 1, purge)

    def turn(lane: Lane) -> None:
        if not _is_ended(lane.queries, store, purge):
            lane.append([PurgeEnded(purge=purge)], actor=record.actor, method="store.purge")

    store.commit(turn)


def _unfinished(parts: PurgeParts) -> list[Record]:
    """Returns the records of the purges that this folder has not completed."""
    store, position = parts.store, forgotten.read(parts.store.folder)
    after = 0 if position is None else position.seq
    with store.reading() as snapshot:
        seqs = set(parts.rules.unfinished(snapshot.queries, position))
    unpublished = store.log.read(max(after, store.seq), store.log.head.seq)
    seqs |= {record.seq for record in unpublished if codec.purges(record.events)}
    return [next(store.log.read(seq - 1, seq)) for seq in sorted(seqs)]


def _trace_of(purge_records: list[Record]) -> Trace:
    purges: dict[int, int] = {}
    forgets: dict[int, Forgets] = {}
    sessions: dict[int, int] = {}
    for record in purge_records:
        for event in codec.decode(record.events):
            if isinstance(event, DocPurged):
                purges |= dict.fromkeys(event.ids, record.seq)
            elif isinstance(event, ContentForgotten):
                forgets[event.id] = Forgets(event.kept, record.seq)
            elif isinstance(event, SessionPurged):
                sessions[event.session] = record.seq
    return Trace(purges, forgets, sessions)


def _erase(parts: PurgeParts, purges: list[Record], counts: Erasure, tell: Tell) -> None:
    store, trace = parts.store, _trace_of(purges)
    tell("trace")
    last, trace.fixed_seqs = parts.rules.extent(purges, store.log.head.seq)
    for record in store.log.read(to_seq=last):
        trace.follow(record)
    # The log is rewritten last, because it is the only index of what belongs to the documents.
    with parts.past_closed():
        tell("sources")
        with store.lane():
            for record in store.log.read(last, store.log.head.seq):
                trace.follow(record)  # a new document may hold the same source
            parts.rules.store_due(parts, trace, purges[-1].seq)
            _erase_sources(store, trace, counts)
        reach("purge.sources")
        tell("vectors")
        with parts.embedding.gate.closed(), parts.other_models() as others:
            counts.vectors = _erase_vectors(parts, others, trace)
        reach("purge.vectors")
        tell("log")
        store.log.rewrite(partial(_rewritten, trace=trace, counts=counts), to_seq=last)
        reach("purge.log")
    tell("views")
    with parts.rules.replacing_views(store, trace, purges[-1].seq):
        rebuild.rebuild(store)
    query.remove_tables(store.folder)  # they hold what the old catalog held
    hook_counts.forget(store.folder, trace.purges)
    if parts.embedding.pack is not None:
        parts.embedding.pack.release()
    parts.forget_answers()
    empty_caches()
    _erase_sources(store, trace, Erasure())  # again: a reader of the past may have fetched one
    store.blobs.being_purged = frozenset()
    reach("purge.views")
    if (position := forgotten.read(store.folder)) is not None:
        forgotten.keep(store.folder, replace(position, seq=purges[-1].seq))


def _rewritten(record: Record, trace: Trace, counts: Erasure) -> Record:
    """Returns the record without the documents' data, and with nothing to test guessed params on.

    Adds the difference to the counts.
    """
    stripped = _without_documents(record, trace)
    if stripped is not record:
        counts.records += 1
        counts.bytes += len(records.encode(record)) - len(records.encode(stripped))
    is_guessable = trace.has_guessable_params(stripped) and stripped.seq not in trace.fixed_seqs
    return records.salt_params(records.unsalted(stripped) if is_guessable else stripped)


def _without_documents(record: Record, trace: Trace) -> Record:
    """Returns the record without the documents' data; the record itself if it has none."""
    events = codec.decode(record.events)
    purge = next(filter(None, map(trace.purge_of, events)), None) or trace.purge_of_outcome(record)
    stand_ins = [trace.stand_in(event) for event in events]
    if purge is None and not any(stand_ins):
        return record
    raws: list[msgspec.Raw] = msgspec.json.decode(record.events, type=list[msgspec.Raw])
    events_json = msgspec.json.encode(
        [new or raw for new, raw in zip(stand_ins, raws, strict=True)]
    )
    result = bytes(record.result)
    if purge is None:  # the outcome and the params of the request remain true
        return records.redacted(record, events=events_json, result=result, salt=record.salt)
    return records.redacted(
        record, events=events_json, result=result if result == b"null" else _outcome(purge)
    )


def _erased(event: Event, purge: int, *, of_session: bool) -> Erased:
    """Returns the event that replaces an erased one.

    `of_session`: its session is purged, too, so the event names no message whose answer would
    miss a piece.
    """
    concerned = event.concerns()
    return Erased(
        was=event.tag(),
        purge=purge,
        document_id=concerned.document,
        session_id=concerned.session,
        message_id=None if of_session else concerned.message,
        **asdict(event.gives()),
    )


def _outcome(purge: int) -> bytes:
    """Returns the outcome that a repeated client_token gets from now on."""
    error = {
        "type": "resource.not_found",
        "message": "What this request wrote was purged.",
        "detail": {"purged_by": purge},
    }
    return msgspec.json.encode({"error": error})


def _erase_sources(store: Store, trace: Trace, counts: Erasure) -> None:
    sha256s = trace.unused_sources
    store.blobs.being_purged = frozenset(sha256s)
    counts.bytes += store.blobs.erase(sha256s)
    counts.sources = len(sha256s)
    if trace.purges:
        durable.remove_tree(store.folder / "damaged")  # files that repairs set aside


def _erase_vectors(parts: PurgeParts, others: Sequence[StoredModel], trace: Trace) -> int:
    """Erases vectors from the packs of the model in use and of the others; removes further packs.

    These are caches. Returns the number of vectors erased.
    """
    packs = {
        model.pack.path: (model.pack, keys_of(model, trace))
        for model in (parts.embedding, *others)
        if model.pack is not None
    }
    if trace.purges or trace.unused_strings:
        folder = parts.store.folder / "vectors"
        for path in folder.glob("*"):
            if path not in packs:
                disk.unlink(path)
        if folder.is_dir():
            durable.sync_folder(folder)
    return sum(pack.erase(keys) for pack, keys in packs.values())


def keys_of(model: StoredModel, trace: Trace) -> list[bytes]:
    """Returns the keys, in the model's pack, of the strings that no document holds any more."""
    pack, string = model.pack, model.string_of
    unused = sorted(trace.unused_strings, key=repr)
    return [] if pack is None else [pack.key(string(*fields)) for fields in unused]


def resume(parts: PurgeParts) -> None:
    """Completes interrupted purges in this folder. Raises store.*.

    In a read-only store only the overlay's log is rewritten, so that reads of the past don't show
    purged data either.
    """
    store = parts.store
    if not store.read_only:
        parts.rules.resume(parts)
    elif purges := _unfinished(parts):
        trace = _trace_of(purges)
        for record in store.log.read():
            trace.follow(record)
        counts = Erasure()
        store.log.rewrite(
            partial(_rewritten, trace=trace, counts=counts), to_seq=store.log.head.seq
        )
