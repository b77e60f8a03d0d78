"""doc.download: return the stored source bytes, in parts, as base64."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from kbproc.base import paths
from kbproc.base.errors import KbprocError
from kbproc.base.params import PastParams
from kbproc.base.values import DocumentId
from kbproc.knowledge.documents import lookup
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.reply import Reply

DOWNLOAD_BYTES = 1 << 20


class Download(PastParams, kw_only=True, frozen=True):
    id: DocumentId
    offset: Annotated[int, Meta(ge=0, description="first byte")] = 0
    length: Annotated[int, Meta(ge=1, le=8 << 20, description="most bytes")] = DOWNLOAD_BYTES
    path: (
        Annotated[str, Meta(min_length=1, max_length=4096, description="write the whole to this")]
        | None
    ) = None


class Downloaded(Struct, kw_only=True, frozen=True):
    """`content` is base64; with `path` the bytes went to that file instead."""

    id: int
    name: str
    sha256: str
    size_bytes: int
    offset: int
    length: int
    content: str | None
    path: str | None


@method(
    "doc.download",
    params=Download,
    result=Downloaded,
    summary="Return the stored source bytes, in parts, as base64.",
    when_to_use="To get back the original file.",
    errors=["resource.not_found", "resource.already_exists", "path.outside_root"],
    positional=["id"],
    examples=[
        Example(params={"id": 1, "length": 64}, what="the first 64 bytes"),
        Example(params={"id": 1, "path": "copy.md"}, what="the whole, to a new file"),
    ],
)
def download(call: Call, params: Download) -> Reply:
    import base64

    with call.state(params) as state, state.reading() as snapshot:
        row = lookup.require(snapshot.queries, params.id)
        seq = snapshot.seq
    data = call.store.blobs.get(row.sha256)
    target = None if params.path is None else _target(call, params.path)
    part = data[params.offset : params.offset + params.length]
    if target is not None:
        paths.write_new(target, [data], field="$.params.path")
    result = Downloaded(
        id=row.id,
        name=Path(row.path).name if row.path else row.title,
        sha256=row.sha256,
        size_bytes=len(data),
        offset=0 if target else params.offset,
        length=len(data) if target else len(part),
        content=None if target else base64.b64encode(part).decode(),
        path=str(target) if target else None,
    )
    return Reply(
        data=result, seq=seq, has_more=not target and params.offset + len(part) < len(data)
    )


def _target(call: Call, path: str) -> Path:
    """Returns the file to write; only the shell and holders of the scope admin may name one."""
    if "admin" not in call.scopes:
        raise KbprocError(
            "auth.insufficient_scope",
            "Writing to a path needs the scope admin.",
            field="$.params.path",
            detail={"needed": "admin"},
            hint="Leave path out and read the bytes from content.",
        )
    return paths.locate(path, cwd=call.peer.cwd, root=call.peer.root, field="$.params.path")
