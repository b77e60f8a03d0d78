"""chats.export: write the conversations to a file of JSON Lines."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from kbproc.base import paths
from kbproc.base.params import PastParams
from kbproc.engine.events.document import CONVERSATION
from kbproc.engine.projections.catalog.filters import DocumentFilter
from kbproc.engine.projections.catalog.rows import DocumentRow
from kbproc.engine.sources.parse.conversation import LIST_OF_EXPORT, segment_number
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
            DocumentFilter(kbs=kbs_of(params.kb), types=[CONVERSATION])
        )
        seq = snapshot.seq
    sources = [(row, call.store.blobs.get(row.sha256)) for row in rows if row.sha256]  # "": erased
    conversations = _conversations(sources)
    data = b"".join(conversations)
    paths.write_new(target, [data], field="$.params.path")
    result = ChatsExport(path=str(target), conversations=len(conversations), size_bytes=len(data))
    return Reply(data=result, seq=seq)


def _conversations(sources: Iterable[tuple[DocumentRow, bytes]]) -> list[bytes]:
    """Returns the lines of each conversation; the segments of a long session are one again."""
    by_session: dict[tuple[str, str, Any], list[tuple[int, bytes]]] = {}
    for row, source in sources:
        # The list of an export is no conversation; each of those that it lists has a row.
        if LIST_OF_EXPORT.match(source):
            continue
        holder, _, name = (row.path or "").partition(paths.WITHIN)
        number = segment_number(name) if name else 1
        session = msgspec.json.decode(row.metadata).get("session")
        is_session = row.path is not None and number is not None and session is not None
        key = (row.kb, holder, session) if is_session else (row.kb, "", row.id)
        by_session.setdefault(key, []).append((number or 1, source))
    return [_joined([source for _, source in sorted(some)]) for some in by_session.values()]


def _joined(segments: list[bytes]) -> bytes:
    """Returns the first segment, and the messages of the others, which follow their first line."""
    first, *others = segments
    return first + b"".join(segment.partition(b"\n")[2] for segment in others)
