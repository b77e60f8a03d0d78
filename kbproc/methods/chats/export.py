"""chats.export: write the conversations to a file of JSON Lines."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from kbproc.base import paths
from kbproc.base.params import PastParams
from kbproc.engine.projections.catalog.filters import DocumentFilter
from kbproc.engine.sources.parse.conversation import LIST_OF_EXPORT
from kbproc.knowledge.documents.selection import Kbs, kbs_of
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.reply import Reply


class ExportChats(PastParams, kw_only=True, frozen=True):
    path: Annotated[str, Meta(min_length=1, max_length=4096, description="the new file")]
    kb: Annotated[Kbs, Meta(description="knowledge base, or several; all if left out")] | None = (
        None
    )


class ChatsExport(Struct, kw_only=True, frozen=True):
    path: str
    conversations: int
    size_bytes: int


@method(
    "chats.export",
    scope="admin",
    params=ExportChats,
    result=ChatsExport,
    summary="Write conversations as JSON Lines.",
    when_to_use="To move them elsewhere: doc.ingest reads the file, and docs/chats.md describes "
    "its lines.",
    errors=["resource.already_exists", "path.outside_root"],
    positional=["path"],
    examples=[Example(params={"path": "chats.jsonl"}, what="all conversations")],
)
def export_chats(call: Call, params: ExportChats) -> Reply:
    target = paths.locate(
        params.path, cwd=call.peer.cwd, root=call.peer.root, field="$.params.path"
    )
    with call.state(params) as state, state.reading() as snapshot:
        rows = snapshot.queries.documents(
            DocumentFilter(kbs=kbs_of(params.kb), types=["conversation"])
        )
        seq = snapshot.seq
    sources = [call.store.blobs.get(row.sha256) for row in rows if row.sha256]  # "": erased
    # The list of an export is no conversation; each of those that it lists is a row of its own.
    conversations = [source for source in sources if not LIST_OF_EXPORT.match(source)]
    data = b"".join(conversations)
    paths.write_new(target, data, field="$.params.path")
    result = ChatsExport(path=str(target), conversations=len(conversations), size_bytes=len(data))
    return Reply(data=result, seq=seq)
