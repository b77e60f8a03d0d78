"""store.purge: erase documents, entries and notes for good."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from kbproc.base import paths
from kbproc.base.errors import KbprocError
from kbproc.base.layout import LayoutRecord
from kbproc.base.params import DestructiveParams
from kbproc.base.wording import plural, there_is_no
from kbproc.engine.events.event import Event
from kbproc.engine.events.session import SessionPurged
from kbproc.engine.events.upkeep import DocPurged
from kbproc.engine.projections.catalog.rows import DocumentRow, SessionRow
from kbproc.engine.store.decision import Decide, Decision, DecisionState
from kbproc.engine.store.pipeline import LongWrite
from kbproc.knowledge.documents import lookup, revision, selection
from kbproc.knowledge.documents.entry import Chains
from kbproc.knowledge.documents.moves import is_gone
from kbproc.knowledge.history import purge as service
from kbproc.knowledge.history.note_files import NoteFile, NoteFiles
from kbproc.knowledge.sessions import session as sessions
from kbproc.knowledge.sessions.session import SessionId
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.reply import Reply

_MOST_NAMED = 10
_LABELS = {"records": "records of the log", "sessions": "question sessions"}
BACKUPS = "Backups and exports made earlier still hold what was purged."


class Purge(DestructiveParams, kw_only=True, frozen=True):
    document_ids: (
        Annotated[
            selection.DocumentIds,
            Meta(description="documents, entries and notes, deleted ones too"),
        ]
        | None
    ) = None
    session_ids: (
        Annotated[
            list[SessionId],
            Meta(min_length=1, max_length=1000, description="sessions, deleted ones too"),
        ]
        | None
    ) = None


class Purged(Struct, kw_only=True, frozen=True):
    """`records` of the log, `sources` and `vectors` that were erased."""

    purged: int
    ids: list[int]
    records: int
    sources: int
    vectors: int
    sessions: int = 0


def plan(call: Call, params: Purge) -> Decide:
    return lambda here: _decide(call, params, here)


@method(
    "store.purge",
    kind="destructive",
    undone_by=(),
    whole=True,
    streams=True,
    params=Purge,
    result=Purged,
    plan=plan,
    summary="Erase documents, entries, notes and sessions for good.",
    when_to_use="When something must not be kept at all: a secret, personal data. To take a "
    "document or an entry out of search, deleting it is enough, and can be undone. Of a note "
    "the file goes, too; an entry that was superseded by what goes holds again. What answers may "
    "have repeated of a document goes with it.",
    errors=["resource.not_found", "resource.conflict"],
    positional=["document_ids"],
    layout=lambda data, params: LayoutRecord.labelled(data, _LABELS),
    examples=[
        Example(params={"document_ids": [1]}, what="without a person's approval", exit=10),
        Example(params={"document_ids": [1], "dry_run": True}, what="only the plan"),
    ],
)
def purge(call: Call, params: Purge, write: LongWrite) -> Reply:
    """Purges; skips what is purged already, so that an interrupted request can be repeated."""
    with call.library.store.exclusive(call.check_cancelled):
        ids, erased_sessions, hint = write.item(plan(call, params))
        erased = service.finish(
            call.library.reach(),
            lambda stage: call.progress(*service.progress_of(stage), last=True),
        )
    data = Purged(
        purged=len(ids),
        ids=ids,
        records=erased.records,
        sources=erased.sources,
        vectors=erased.vectors,
        sessions=erased_sessions,
    )
    outcome = write.end(data)
    return Reply(data=outcome.data, seq=max(outcome.seq, call.store.seq), hint=hint)


def _hint(files: list[Path], rules: service.PurgeRules) -> str:
    hint = BACKUPS + rules.hint
    if not files:
        return hint
    more = len(files) - _MOST_NAMED
    names = ", ".join(paths.printable(path) for path in files[:_MOST_NAMED])
    named = names + (f" and {more} more" if more > 0 else "")
    return f"{hint} Look at {named}: that could hold some of it, and was left as it is."


def _decide(call: Call, params: Purge, here: DecisionState) -> Decision:
    """Decides on documents and what goes with them, then on sessions."""
    if params.document_ids is None and params.session_ids is None:
        raise KbprocError(
            "input.invalid_params",
            "Say what is to be erased.",
            field="$.params",
            valid_values=["document_ids", "session_ids"],
        )
    of_documents = _documents(call, params.document_ids or [], here)
    session_rows = [_session(here, id) for id in dict.fromkeys(params.session_ids or [])]
    rows = [row for row in session_rows if not row.purged]
    session_events: list[Event] = [SessionPurged(session=row.id) for row in rows]
    if session_events or of_documents.events:
        _refuse_while_answering(here)
    ids, hint = of_documents.data
    return msgspec.structs.replace(
        of_documents,
        events=[*of_documents.events, *session_events],
        data=(ids, len(rows), hint),
        targets=[*of_documents.targets, *map(sessions.target_of, rows)],
        changes=[*of_documents.changes, *(_erases(row) for row in rows)],
    )


def _session(here: DecisionState, id: int) -> SessionRow:
    """Returns the session, a deleted one too."""
    row = here.queries.session(id)
    if row is None:
        raise KbprocError(
            "resource.not_found", f"There is no session {id}.", field="$.params.session_ids"
        )
    return row


def _refuse_while_answering(here: DecisionState) -> None:
    """Raises resource.conflict, because an answer in progress may repeat what is to be erased."""
    for session, message in here.queries.being_answered():
        raise KbprocError(
            "resource.conflict",
            f"The answer to message {message} in session {session} is being made, and may repeat "
            "what is to be erased.",
            hint="Wait until it has ended, or end it with session.stop.",
            detail={"session_id": session, "message_id": message},
            passing=True,
        )


def _erases(row: SessionRow) -> str:
    hidden = " (it is hidden already)" if row.deleted_at else ""
    messages = plural(row.message_count, "message")
    return f"erase session {row.id} “{row.title}” with {messages} for good{hidden}"


def _documents(call: Call, requested_ids: list[int], here: DecisionState) -> Decision:
    rows = here.queries.documents_by_id(requested_ids)
    missing = [id for id in requested_ids if id not in rows]
    if missing:
        raise KbprocError(
            "resource.not_found",
            there_is_no("document", missing),
            field="$.params.document_ids",
            detail={"missing": missing[:100]},
        )
    remaining = [row for id, row in sorted(rows.items()) if not lookup.is_purged(row)]
    ids = [row.id for row in remaining]
    chains = Chains(here.queries, ids)
    chains.remove(ids)
    chains.settle()
    hidden = [row for row in remaining if row.deleted_at]
    files = NoteFiles(call.store, here.queries, remaining)
    freed = list(here.queries.documents_by_id(chains.changed).values())
    hint = _hint(files.remaining, call.library.node.purges)
    purged_files = call.library.purged_files
    held_paths = _held_paths(here, remaining) if purged_files.can_hold else frozenset()
    standing = [path for path in sorted(held_paths) if not is_gone(path)]

    def remove() -> None:
        if held_paths:
            purged_files.hold(held_paths)
        files.remove()

    return Decision(
        events=[*chains.events(), DocPurged(ids=ids)] if ids else [],
        data=(ids, hint),
        targets=revision.targets_of([*remaining, *freed]),
        changes=[_says(row, files.strays.get(row.id), standing) for row in remaining]
        + [_holds(row, chains.successor_of(row.id)) for row in freed],
        bound=[f"{row.id} deleted" for row in hidden]
        + [f"{id} {file.path} {file.sha256}" for id, file in files.strays.items()]
        + [f"{row.id} superseded by {chains.successor_of(row.id)}" for row in freed],
        bulk=any(
            revision.is_bulk(
                here, kb, sum(row.kb == kb and not row.deleted_at for row in remaining)
            )
            for kb in {row.kb for row in remaining}
        ),
        effect=remove,
        hint=hint,
    )


def _held_paths(here: DecisionState, rows: list[DocumentRow]) -> frozenset[str]:
    """Returns the files that are not to be read again: not those of other documents, too."""
    purged = {row.id for row in rows}
    paths = [row.path for row in rows if row.path is not None]
    in_use = {
        path
        for kb in (here.queries.kbs() if paths else ())
        for path, row in here.queries.documents_at(kb.slug, paths).items()
        if row.id not in purged
    }
    return frozenset(paths) - in_use


def _says(row: DocumentRow, stray: NoteFile | None, standing: list[str]) -> str:
    more = ", and the note's file" if row.type == "note" and not row.deleted_at else ""
    if stray is not None:
        more = f", and {paths.printable(stray.path)}, which holds its text"
    hidden = " (it is hidden already)" if row.deleted_at else ""
    stays = (
        f"; {row.path} still stands and is not read again, unless a person names it"
        if row.path in standing
        else ""
    )
    return f"erase “{row.title}” for good, with all its revisions{hidden}{more}{stays}"


def _holds(row: DocumentRow, by: int | None) -> str:
    instead = "holds again" if by is None else f"is superseded by {by} instead"
    return f"entry {row.id} “{row.title}” {instead}"
