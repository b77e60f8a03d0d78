"""store.purge: erase documents, entries and notes for good."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Annotated, NamedTuple

from msgspec import Meta, Struct

from kbproc.agents.agent import notes_folder
from kbproc.base import paths
from kbproc.base.errors import KbprocError
from kbproc.base.params import DestructiveParams
from kbproc.base.wording import there_is_no
from kbproc.calls.call import Call
from kbproc.calls.method import Example, method
from kbproc.calls.reply import Reply
from kbproc.documents import documents as docs
from kbproc.documents.chains import Chains
from kbproc.events.document import DocWritten
from kbproc.events.upkeep import DocPurged
from kbproc.history import purge as service
from kbproc.history.timeline import PastRecords
from kbproc.notefiles import edit
from kbproc.notefiles import folder as notefolder
from kbproc.notefiles.file import digest
from kbproc.store.decision import Decide, Decision, Here
from kbproc.store.pipeline import LongWrite
from kbproc.views.catalog.reader import NOTES
from kbproc.views.catalog.rows import AgentRow, DocumentRow

_MOST_NAMED = 10
BACKUPS = "Backups and exports made earlier still hold what was purged."


class Purge(DestructiveParams, kw_only=True, frozen=True):
    document_ids: Annotated[
        docs.DocumentIds, Meta(description="documents, entries and notes, deleted ones too")
    ]


class Purged(Struct, kw_only=True, frozen=True):
    """`records` of the log, `sources` and `vectors` that were erased."""

    purged: int
    ids: list[int]
    records: int
    sources: int
    vectors: int


def plan(call: Call, params: Purge) -> Decide:
    return lambda here: _decide(call, params, here)


@method(
    "store.purge",
    kind="destructive",
    whole=True,
    streams=True,
    params=Purge,
    result=Purged,
    plan=plan,
    summary="Erase documents, entries and notes from log, sources, vectors and views, for good.",
    when_to_use="When something must not be kept at all: a secret, personal data. To take a "
    "document or an entry out of search, deleting it is enough, and can be undone. Of a note "
    "the file goes, too; an entry that was superseded by what goes holds again.",
    errors=["resource.not_found", "resource.conflict"],
    positional=["document_ids"],
    examples=[
        Example(params={"document_ids": [1]}, what="without a person's approval", exit=10),
        Example(params={"document_ids": [1], "dry_run": True}, what="only the plan"),
    ],
)
def purge(call: Call, params: Purge, write: LongWrite) -> Reply:
    """What is purged already is passed over: a request that was cut off can be repeated."""
    with call.library.store.exclusive(call.check_cancelled):
        ids, hint = write.item(plan(call, params))
        erased = service.finish(call.library.reach(), lambda stage: _tell(call, stage))
    data = Purged(
        purged=len(ids),
        ids=ids,
        records=erased.records,
        sources=erased.sources,
        vectors=erased.vectors,
    )
    outcome = write.end(data)
    return Reply(data=outcome.data, seq=max(outcome.seq, call.store.seq), hint=hint)


def _hint(left: list[Path]) -> str:
    if not left:
        return BACKUPS
    more = len(left) - _MOST_NAMED
    names = ", ".join(paths.printable(path) for path in left[:_MOST_NAMED])
    named = names + (f" and {more} more" if more > 0 else "")
    return f"{BACKUPS} Look at {named}: that could hold some of it, and was left as it is."


def _decide(call: Call, params: Purge, here: Here) -> Decision:
    rows = here.queries.documents_by_id(params.document_ids)
    missing = [id for id in params.document_ids if id not in rows]
    if missing:
        raise KbprocError(
            "resource.not_found",
            there_is_no("document", missing),
            field="$.params.document_ids",
            detail={"missing": missing[:100]},
        )
    remaining = [row for id, row in sorted(rows.items()) if not docs.is_purged(row)]
    ids = [row.id for row in remaining]
    chains = Chains(here.queries, ids)
    chains.remove(ids)
    chains.settle()
    hidden = [row for row in remaining if row.deleted_at]
    left: list[Path] = []
    stray = {row.id: file for row in hidden if (file := _stray(call, here, row, ids, left))}
    freed = list(here.queries.documents_by_id(chains.changed).values())
    hint = _hint(left)
    return Decision(
        events=[*chains.events(), DocPurged(ids=ids)] if ids else [],
        data=(ids, hint),
        targets=docs.targets_of([*remaining, *freed]),
        changes=[_says(row, stray.get(row.id)) for row in remaining]
        + [_holds(row, chains.by(row.id)) for row in freed],
        bound=[f"{row.id} deleted" for row in hidden]
        + [f"{id} {file.path} {file.sha256}" for id, file in stray.items()]
        + [f"{row.id} superseded by {chains.by(row.id)}" for row in freed],
        bulk=any(
            docs.is_bulk(here, kb, sum(row.kb == kb and not row.deleted_at for row in remaining))
            for kb in {row.kb for row in remaining}
        ),
        effect=lambda: _discard_files(call, here, ids),
        hint=hint,
    )


def _says(row: DocumentRow, stray: _File | None) -> str:
    more = ", and the note's file" if row.type == "note" and not row.deleted_at else ""
    if stray is not None:
        more = f", and {paths.printable(stray.path)}, which holds its text"
    hidden = " (it is hidden already)" if row.deleted_at else ""
    return f"erase “{row.title}” for good, with all its revisions{hidden}{more}"


def _holds(row: DocumentRow, by: int | None) -> str:
    instead = "holds again" if by is None else f"is superseded by {by} instead"
    return f"entry {row.id} “{row.title}” {instead}"


# --------------------------------------------------------------------- files of notes


class _File(NamedTuple):
    """A note's file; `sha256` of what it holds, None if that is no note."""

    folder: Path
    slug: str
    sha256: str | None

    @property
    def path(self) -> Path:
        return self.folder / f"{self.slug}.md"


def _discard_files(call: Call, here: Here, ids: list[int]) -> None:
    """Before the log forgets the notes: the next sync would only read the files again.

    Raises resource.conflict, and Unavailable, before any is removed.
    """
    notes = [row for row in here.queries.documents_by_id(ids).values() if row.type == "note"]
    going: dict[Path, _File] = {}
    for row in notes:
        if row.deleted_at is None:
            file = _require_known(call, row)
        else:
            file = _stray(call, here, row, ids, [])
        if file is not None:
            going[file.path] = file
    for file in going.values():
        if file.sha256 is not None:
            edit.remove(file.folder, file.slug, file.sha256)


def _require_known(call: Call, row: DocumentRow) -> _File | None:
    """A live note's file. Raises resource.conflict if it holds what the log does not know."""
    file = _file(_agent(call, row), call, row)
    if file is not None and file.sha256 != row.sha256:
        raise KbprocError(
            "resource.conflict",
            f"{paths.printable(file.path)} was edited meanwhile.",
            hint="Nothing was purged. Run note.sync, read the note again, then repeat the purge.",
        )
    return file


def _stray(
    call: Call, here: Here, row: DocumentRow, ids: Collection[int], left: list[Path]
) -> _File | None:
    """A file that a hidden note has left behind, if it holds a text of it.

    `left` gets it if it stays, since it holds something else or another note's text.
    """
    if row.type != "note":
        return None
    agent = _agent(call, row)
    try:
        file = _file(agent, call, row)
    except KbprocError:  # the folder can't be looked at
        left.append(notes_folder(call.store, agent) / f"{row.source_id}.md")
        return None
    if file is None:
        return None
    known = file.sha256 in _texts(call, here, row)
    owners = _owners(call, here, file)
    if known and not owners:
        return file
    if not owners or (known and not owners <= set(ids)):
        left.append(file.path)
    return None


def _agent(call: Call, row: DocumentRow) -> AgentRow:
    """A deleted one, too: its files stay."""
    return call.store.published.roster.agents[row.kb.removeprefix(NOTES)]


def _file(agent: AgentRow, call: Call, row: DocumentRow) -> _File | None:
    """None if there is none, or nothing in it. Raises Unavailable, store.io."""
    folder, slug = notes_folder(call.store, agent), str(row.source_id)
    try:
        data = notefolder.read(folder, slug)
    except notefolder.Unavailable as error:
        if error.code != "missing":
            raise
        return None
    except KbprocError as error:
        if error.type == "resource.not_found" or error.detail.get("code") == "blank":
            return None
        if error.type != "operation.failed":
            raise
        return _File(folder, slug, None)
    return _File(folder, slug, digest(data))


def _texts(call: Call, here: Here, row: DocumentRow) -> set[str]:
    """By sha256, all that the note ever held."""
    records = PastRecords(call.store.log, call.store.seq)
    seqs = {e.seq for e in here.queries.events_of_document(row.id) if e.type == "doc.written"}
    written = [event for seq in sorted(seqs) for event in records.events(seq) or []]
    return {row.sha256} | {
        event.source_sha256
        for event in written
        if isinstance(event, DocWritten) and event.id == row.id
    }


def _owners(call: Call, here: Here, file: _File) -> set[int]:
    """The live notes whose file it is."""
    agents = call.store.published.roster.agents.values()
    at_home = [a for a in agents if not a.deleted_at and notes_folder(call.store, a) == file.folder]
    found = [here.queries.note(agent.slug, file.slug) for agent in at_home]
    return {note.id for note in found if note is not None}


def _tell(call: Call, stage: str) -> None:
    call.progress("purge", service.STAGES.index(stage), len(service.STAGES), stage, last=True)
