"""store.export: write what a store holds as portable NDJSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from kbproc import __version__
from kbproc.base import paths
from kbproc.base.layout import LayoutRecord
from kbproc.base.params import ReadParams
from kbproc.base.wording import plural
from kbproc.engine.projections.catalog.filters import DocumentFilter
from kbproc.engine.store.folder import FORMAT
from kbproc.engine.store.snapshot import Snapshot
from kbproc.engine.store.state import StoreModel
from kbproc.knowledge.documents import lookup, selection
from kbproc.knowledge.transfer import outgoing, portable
from kbproc.knowledge.transfer.outgoing import NewPath, new_place
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.reply import Reply

# A line sent as an event must fit a line of the wire, with room for the members around it.
_STREAM_BYTES = 8 << 20


class Export(ReadParams, kw_only=True, frozen=True):
    path: NewPath | None = None
    kb: Annotated[selection.Kbs, Meta(description="one or several; all if left out")] | None = None
    sources: Annotated[bool, Meta(description="the original bytes as well")] = True
    vectors: Annotated[
        bool,
        Meta(description="vectors as well: a store with the same model need not embed again"),
    ] = False


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
    vectors: int = 0
    sessions: int = 0
    watches: int = 0


@method(
    "store.export",
    streams=True,
    scope="admin",
    params=Export,
    result=Exported,
    item=portable.Line,
    summary="Write all that the store holds as portable NDJSON.",
    when_to_use="To move them into another store, or to read them with other programs. "
    "Without path each line is an event. Agents, notes and sessions come along unless kb is given.",
    errors=["resource.already_exists", "resource.not_found", "path.outside_root"],
    positional=["path"],
    layout=lambda data, params: LayoutRecord.labelled(data, {"sessions": "question sessions"}),
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
    with call.store.reading_as(call.review_sight) as snapshot:
        lookup.require_kbs(snapshot.kbs, params.kb)
        result = Exported(path=None if target is None else str(target), seq=snapshot.seq)
        outgoing_lines = _lines(call, params, snapshot, result)
        if target is not None:
            paths.write_new(target, (line.data for line in outgoing_lines), field="$.params.path")
        else:
            for line in outgoing_lines:
                call.emit("item", {"item": msgspec.to_builtins(line.line)})
    hint = None if target else "Name a path, or take the lines from the events of type item."
    return Reply(
        data=result, seq=result.seq, hint=hint, notice=_left_out(result, params, call.store.model)
    )


def _lines(
    call: Call, params: Export, snapshot: Snapshot, result: Exported
) -> Iterator[outgoing.OutgoingLine]:
    """Yields the lines of the export, and counts them."""
    filter = DocumentFilter(kbs=selection.kbs_of(params.kb))
    total, done = snapshot.queries.count(filter), 0
    vectors = outgoing.vectors_of(call.store.model) if params.vectors else None
    header = portable.Header(
        version=portable.VERSION,
        seq=snapshot.seq,
        exported_at=call.now,
        store_format=FORMAT,
        kbproc=call.host.versions({"kbproc": __version__})["kbproc"],
        vectors=vectors,
    )
    in_file = params.path is not None
    stream = min(_STREAM_BYTES, call.max_line_bytes // 2)
    for line in outgoing.lines(
        call.store,
        snapshot.queries,
        header,
        filter,
        sources=params.sources,
        hashed=in_file,
        most_bytes=portable.MAX_LINE_BYTES if in_file else stream,
    ):
        call.check_cancelled(documents=result.documents)
        _count(call, result, line)
        if line.id:
            done += 1
            call.progress("export", done, total, line.title)
        if line.line is not None:
            yield line


def _count(call: Call, result: Exported, line: outgoing.OutgoingLine) -> None:
    result.bytes += len(line.data)
    if name := portable.COUNTS.get(type(line.line)):
        setattr(result, name, getattr(result, name) + 1)
    if isinstance(line.line, portable.DocumentLine):
        result.entries += line.line.entry is not None
        vectors = line.line.vectors or []
        result.vectors += len(vectors) - vectors.count(None)
    result.sources_left_out += line.lacks_source
    if line.line is None:
        result.documents_left_out += 1
        subject = f"Document {line.id}" if line.id else line.title.capitalize()
        call.emit("warning", {"message": f"{subject} is lost, or too long for a line."})


def _left_out(result: Exported, params: Export, model: StoreModel) -> list[str] | None:
    notices = []
    if params.vectors and model.fingerprint is None:
        notices.append(f"No vectors were exported: the store's model is {model.state}.")
    elif params.vectors and not result.vectors:
        notices.append("No vector is there yet: doc.wait waits for them.")
    if result.documents_left_out:
        count = plural(result.documents_left_out, "document is", "documents are")
        notices.append(f"{count} lost or too long for a line, and left out.")
    if result.sources_left_out:
        count = plural(result.sources_left_out, "source is", "sources are")
        notices.append(f"{count} lost or too long for a line; only the text was exported.")
    return notices or None
