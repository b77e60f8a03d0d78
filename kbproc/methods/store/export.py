"""store.export: write what a store holds as portable NDJSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from kbproc import __version__
from kbproc.base.params import ReadParams
from kbproc.base.wording import plural
from kbproc.calls.call import Call
from kbproc.calls.method import Example, method
from kbproc.calls.reply import Reply
from kbproc.documents import lookup, selection
from kbproc.moving import outgoing
from kbproc.moving.place import NewPath, new_place
from kbproc.moving.portable import file, lines
from kbproc.store.folder import FORMAT
from kbproc.store.snapshot import Snapshot
from kbproc.store.state import StoreModel
from kbproc.views.catalog.filters import DocumentFilter

# A line that is an event must fit a line of the wire, with room for what is around it.
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


@method(
    "store.export",
    streams=True,
    scope="admin",
    params=Export,
    result=Exported,
    item=lines.Line,
    summary="Write all that the store holds as portable NDJSON.",
    when_to_use="To move them into another store, or to read them with other programs. "
    "Without path each line is an event. Agents, notes and sessions come along unless kb is given.",
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
        lookup.require_kbs(snapshot.kbs, params.kb)
        result = Exported(path=None if target is None else str(target), seq=snapshot.seq)
        made = _lines(call, params, snapshot, result)
        if target is not None:
            outgoing.write_new(target, (line.data for line in made))
        else:
            for line in made:
                call.emit("item", {"item": msgspec.to_builtins(line.line)})
    hint = None if target else "Name a path, or take the lines from the events of type item."
    return Reply(
        data=result, seq=result.seq, hint=hint, notice=_left_out(result, params, call.store.model)
    )


def _lines(
    call: Call, params: Export, snapshot: Snapshot, result: Exported
) -> Iterator[outgoing.OutgoingLine]:
    """Every line that goes out, counted."""
    wanted = DocumentFilter(kbs=selection.kbs_of(params.kb))
    total, seen = snapshot.queries.count(wanted), 0
    vectors = outgoing.vectors_of(call.store.model) if params.vectors else None
    header = lines.Header(
        version=outgoing.version_of(snapshot.queries, wanted, vectors),
        seq=snapshot.seq,
        exported_at=call.now,
        store_format=FORMAT,
        kbproc=call.host.versions({"kbproc": __version__})["kbproc"],
        vectors=vectors,
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
        most_bytes=file.MAX_LINE_BYTES if in_file else stream,
    ):
        call.check_cancelled(documents=result.documents)
        _count(call, result, made)
        if made.id:
            seen += 1
            call.progress("export", seen, total, made.title)
        if made.line is not None:
            yield made


def _count(call: Call, result: Exported, made: outgoing.OutgoingLine) -> None:
    result.bytes += len(made.data)
    result.kbs += isinstance(made.line, lines.Kb)
    if isinstance(made.line, lines.Document):
        result.documents += 1
        result.entries += made.line.entry is not None
        vectors = made.line.vectors or []
        result.vectors += len(vectors) - vectors.count(None)
    result.agents += isinstance(made.line, lines.Agent)
    result.notes += isinstance(made.line, lines.Note)
    result.sessions += isinstance(made.line, lines.Session)
    result.sources_left_out += made.lacks_source
    if made.line is None:
        result.documents_left_out += 1
        what = f"Document {made.id}" if made.id else made.title.capitalize()
        call.emit("warning", {"message": f"{what} is lost, or too long for a line."})


def _left_out(result: Exported, params: Export, model: StoreModel) -> list[str] | None:
    said = []
    if params.vectors and model.fingerprint is None:
        said.append(f"No vectors were exported: the store's model is {model.state}.")
    elif params.vectors and not result.vectors:
        said.append("No vector is there yet: doc.wait waits for them.")
    if result.documents_left_out:
        left = plural(result.documents_left_out, "document is", "documents are")
        said.append(f"{left} lost or too long for a line, and left out.")
    if result.sources_left_out:
        left = plural(result.sources_left_out, "source is", "sources are")
        said.append(f"{left} lost or too long for a line; only the text was exported.")
    return said or None
