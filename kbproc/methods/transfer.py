"""The store as a whole, moved: store.backup, store.export, store.import."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from functools import partial
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from kbproc import __version__
from kbproc.base import paths
from kbproc.base.errors import KbprocError
from kbproc.base.params import ReadParams, WriteParams
from kbproc.base.values import KbSlug
from kbproc.base.wording import plural
from kbproc.calls.call import Call
from kbproc.calls.method import Example, method
from kbproc.calls.reply import Reply
from kbproc.documents import documents as docs
from kbproc.documents.ingest import progress
from kbproc.moving import backup as copying
from kbproc.moving import outgoing
from kbproc.moving.incoming import agents as importing_more
from kbproc.moving.incoming import contents as incoming
from kbproc.moving.incoming import incoming as incoming_
from kbproc.moving.incoming.contents import Imported
from kbproc.moving.place import NewPath, new_place
from kbproc.moving.portable import lines, reading
from kbproc.store.decision import Decision, Here
from kbproc.store.folder import FORMAT
from kbproc.store.pipeline import LongWrite
from kbproc.store.plan import plan_of
from kbproc.store.snapshot import Snapshot

# A line that is an event must fit a line of the wire, with room for what is around it.
_STREAM_BYTES = 8 << 20


class BackUp(WriteParams, kw_only=True, frozen=True):
    path: NewPath


class BackedUp(Struct, kw_only=True, frozen=True):
    """A copy of everything up to `seq`."""

    path: str
    seq: int
    files: int
    bytes: int


class Export(ReadParams, kw_only=True, frozen=True):
    path: NewPath | None = None
    kb: Annotated[docs.Kbs, Meta(description="one or several; all if left out")] | None = None
    sources: Annotated[bool, Meta(description="the original bytes as well")] = True


class Exported(Struct, kw_only=True):
    """Counts of what was exported, and of what was not; without `path` it went out as events.

    `entries` are among the `documents`.
    """

    path: str | None
    seq: int
    kbs: int = 0
    documents: int = 0
    bytes: int = 0
    sources_left_out: int = 0
    documents_left_out: int = 0
    entries: int = 0
    agents: int = 0
    notes: int = 0


class Import(WriteParams, kw_only=True, frozen=True):
    path: Annotated[
        str, Meta(min_length=1, max_length=4096, description="a file from store.export")
    ]
    kb: Annotated[KbSlug, Meta(description="put everything into this one")] | None = None
    replace: Annotated[
        bool, Meta(description="make a new revision of what is here with other content")
    ] = False


@method(
    "store.backup",
    kind="write",
    streams=True,
    scope="admin",
    params=BackUp,
    result=BackedUp,
    elsewhere=True,
    summary="Copy the whole store to a new folder, while writes go on.",
    when_to_use="Before an upgrade, and at regular times. Restoring is opening the copy; to move "
    "documents into another store use store.export.",
    errors=["resource.already_exists", "resource.not_found", "path.outside_root"],
    positional=["path"],
    examples=[
        Example(params={"path": "backup"}, what="to a new folder"),
        Example(params={"path": "backup", "dry_run": True}, what="what would be copied"),
        Example(params={"path": "docs"}, what="to a folder that is there already", exit=7),
    ],
)
def backup(call: Call, params: BackUp, write: LongWrite) -> Reply:
    peer, own = call.peer, call.store.origin
    target = new_place(params.path, cwd=peer.cwd, root=peer.root, outside=own)
    if not params.dry_run:
        _sync_notes(call)
    with call.store.exclusive(call.check_cancelled):
        stock = copying.take_stock(call.store, call.check_cancelled)
        if params.dry_run:
            said = f"copy {plural(len(stock.parts), 'file')}, {plural(stock.size, 'byte')}"
            planned = Decision(events=[], data=None, changes=[f"{said}, to {target}"])
            return Reply(data=None, seq=stock.seq, plan=plan_of(write.request, planned))
        damaged = copying.copy(
            stock,
            target,
            tell=lambda done, total, name: call.emit(
                "progress", progress("copy", done, total, name)
            ),
            check=call.check_cancelled,
        )
    copied = [part for part in stock.parts if part.sha256 not in damaged]
    data = BackedUp(
        path=str(target), seq=stock.seq, files=len(copied), bytes=sum(p.size for p in copied)
    )
    outcome = write.end(data)
    return Reply(
        data=outcome.data,
        seq=max(outcome.seq, data.seq),
        hint=_elsewhere(stock.elsewhere)
        + f"Restoring is opening it: kbproc --store {target} status",
        notice=_lost([*stock.missing, *damaged]),
    )


def _sync_notes(call: Call) -> None:
    """What was edited by hand and is not seen yet: the copy has the notes that the log knows."""
    for agent in call.store.published.roster.agents.values():
        if agent.deleted_at is None and not call.store.read_only:
            with contextlib.suppress(KbprocError):  # told on stderr; a backup is wanted anyway
                call.store.notebooks.book(agent).sync(check=call.check_cancelled)
    call.check_cancelled()


def _elsewhere(agents: list[str]) -> str:
    if not agents:
        return ""
    whose = ", ".join(agents[:10]) + (", …" if len(agents) > 10 else "")
    return f"The notes of {whose} lie elsewhere: the copy has their texts, not the files. "


def _lost(sources: list[str]) -> list[str] | None:
    if not sources:
        return None
    lost = plural(len(sources), "source is", "sources are")
    return [f"{lost} missing or damaged in the store, and so not in the copy. See kbproc doctor."]


@method(
    "store.export",
    streams=True,
    scope="admin",
    params=Export,
    result=Exported,
    summary="Write documents, entries, agents, notes and sources as portable NDJSON.",
    when_to_use="To move them into another store, or to read them with other programs. "
    "Without path each line is an event. Agents and notes come along unless kb is given.",
    errors=["resource.already_exists", "resource.not_found", "path.outside_root"],
    positional=["path"],
    examples=[
        Example(params={"path": "all.ndjson"}, what="everything, to a new file"),
        Example(params={"kb": "scratch", "sources": False}, what="one as events, texts only"),
        Example(params={"path": "nowhere/all.ndjson"}, what="a folder that is not there", exit=5),
    ],
)
def export(call: Call, params: Export) -> Reply:
    peer, own = call.peer, call.store.origin
    target = None
    if params.path is not None:
        target = new_place(params.path, cwd=peer.cwd, root=peer.root, outside=own)
    with call.store.reading() as snapshot:
        docs.require_kbs(snapshot.queries, params.kb)
        result = Exported(path=None if target is None else str(target), seq=snapshot.seq)
        made = _lines(call, params, snapshot, result)
        if target is not None:
            outgoing.write_new(target, (line.data for line in made))
        else:
            for line in made:
                call.emit("item", {"item": msgspec.to_builtins(line.line)})
    hint = None if target else "Name a path, or take the lines from the events of type item."
    return Reply(data=result, seq=result.seq, hint=hint, notice=_left_out(result))


def _lines(
    call: Call, params: Export, snapshot: Snapshot, result: Exported
) -> Iterator[outgoing.Made]:
    """Every line that goes out, counted."""
    from kbproc.views.catalog.filters import DocumentFilter

    wanted = DocumentFilter(kbs=docs.kbs_of(params.kb))
    total, seen = snapshot.queries.count(wanted), 0
    header = lines.Header(
        version=outgoing.version_of(snapshot.queries, wanted),
        seq=snapshot.seq,
        exported_at=call.now,
        store_format=FORMAT,
        kbproc=call.host.versions({"kbproc": __version__})["kbproc"],
    )
    in_file = params.path is not None
    stream = min(_STREAM_BYTES, call.max_line_bytes // 2)
    for made in outgoing.lines(
        call.store,
        snapshot.queries,
        header,
        wanted,
        sources=params.sources,
        hashed=in_file,
        most_bytes=reading.MAX_LINE_BYTES if in_file else stream,
    ):
        call.check_cancelled(documents=result.documents)
        _count(call, result, made)
        if made.id:
            seen += 1
            call.emit("progress", progress("export", seen, total, made.title))
        if made.line is not None:
            yield made


def _count(call: Call, result: Exported, made: outgoing.Made) -> None:
    result.bytes += len(made.data)
    result.kbs += isinstance(made.line, lines.Kb)
    if isinstance(made.line, lines.Document):
        result.documents += 1
        result.entries += made.line.entry is not None
    result.agents += isinstance(made.line, lines.Agent)
    result.notes += isinstance(made.line, lines.Note)
    result.sources_left_out += made.lacks_source
    if made.line is None:
        result.documents_left_out += 1
        call.emit("warning", {"message": f"Document {made.id} is lost, or too long for a line."})


def _left_out(result: Exported) -> list[str] | None:
    said = []
    if result.documents_left_out:
        left = plural(result.documents_left_out, "document is", "documents are")
        said.append(f"{left} lost or too long for a line, and left out.")
    if result.sources_left_out:
        left = plural(result.sources_left_out, "source is", "sources are")
        said.append(f"{left} lost or too long for a line; only the text was exported.")
    return said or None


@method(
    "store.import",
    kind="write",
    streams=True,
    scope="admin",
    idempotent=True,
    params=Import,
    result=Imported,
    summary="Bring in what store.export has written.",
    when_to_use="To bring documents, entries, agents and notes from another store; what is here "
    "already stays as it is, so importing twice changes nothing. Documents and entries get new "
    "ids; the answer maps them. Notes come in as files, which the next note.sync records.",
    errors=[
        "resource.not_found",
        "path.outside_root",
        "input.unsupported_type",
        "input.too_large",
        "store.incompatible",
    ],
    positional=["path"],
    examples=[
        Example(params={"path": "nowhere.ndjson"}, what="a file that does not exist", exit=5),
        Example(params={"path": "docs/git-admin.md"}, what="a file that is no export", exit=1),
    ],
)
def import_documents(call: Call, params: Import, write: LongWrite) -> Reply:
    path = paths.resolve(params.path, cwd=call.peer.cwd, root=call.peer.root, field="$.params.path")
    work = incoming.Import(kb=params.kb, replace=params.replace)
    with reading.open_file(path) as file:
        size = max(1, os.fstat(file.fileno()).st_size)

        def tell(stage: str, offset: int, message: str) -> None:
            call.emit("progress", progress(stage, offset, size, message))

        contents = incoming_.survey(file, partial(tell, "check"), call.check_cancelled)
        _check_agents(call, params, contents)
        if params.kb is None:
            agents = importing_more.housed(
                call.store, contents.agents, root=call.peer.root, emit=call.emit
            )
            contents = msgspec.structs.replace(contents, agents=agents)
        if params.dry_run:
            with call.store.reading() as snapshot:
                here = Here(snapshot.queries, call.now, snapshot.published.head)
                planned = incoming_.plan(file, contents, work, here)
                return Reply(data=None, seq=snapshot.seq, plan=plan_of(write.request, planned))
        result = incoming_.run(
            call.store,
            file,
            contents,
            work,
            write,
            tell=partial(tell, "import"),
            emit=call.emit,
            check=call.check_cancelled,
        )
    outcome = write.end(result)
    hints = _hints(result, params, contents)
    return Reply(data=outcome.data, seq=outcome.seq, hint=" ".join(hints) or None)


def _check_agents(call: Call, params: Import, contents: incoming.Contents) -> None:
    actor = call.peer.actor
    if params.kb is None and any(agent.slug == actor for agent in contents.agents):
        raise KbprocError(
            "input.invalid_params",
            f"The file holds an agent {actor!r}, and this very process acts under that name.",
            field="$.params.path",
            hint="It would be bound to that agent: import under another name.",
        )


def _hints(result: Imported, params: Import, contents: incoming.Contents) -> Iterator[str]:
    if result.conflicts:
        many = plural(result.conflicts, "document is", "documents are")
        yield (
            f"{many} twice in the file once everything is put into {params.kb}; the first won."
            if params.replace
            else f"{many} here with other content and stayed so; replace: true takes the file's."
        )
    if params.kb is not None and contents.agents:
        many = plural(len(contents.agents), "agent and its notes", "agents and their notes")
        yield f"{many} are left out, as everything goes into {params.kb}."
    if result.agents_kept:
        many = plural(result.agents_kept, "agent is", "agents are")
        yield f"{many} here with another description and stayed so."
    if result.notes_kept:
        many = plural(result.notes_kept, "note was", "notes were")
        yield f"{many} not written; the events of type warning say why."
    if result.notes_added:
        yield "Notes are in their folders now; note.sync records them."
