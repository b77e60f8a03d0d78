"""kb.check: look for failed, changed, missing and partly read files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec import Struct

from kbproc.base import paths
from kbproc.base.errors import KbprocError
from kbproc.base.layout import Record
from kbproc.base.params import ReadParams
from kbproc.base.values import KbSlug
from kbproc.calls.call import Call
from kbproc.calls.method import Example, method
from kbproc.calls.reply import Reply
from kbproc.documents.document import Unread
from kbproc.documents.kb import require
from kbproc.sources.parse import unread

_MOST_LISTED = 100


class CheckKb(ReadParams, kw_only=True, frozen=True):
    slug: KbSlug


class FailedFile(Struct, kw_only=True, frozen=True):
    path: str
    type: str
    message: str


class StaleFile(Struct, kw_only=True, frozen=True):
    """A document whose file has changed or is gone."""

    document_id: int
    path: str
    state: str


class PartlyRead(Struct, kw_only=True, frozen=True):
    """A document whose source was not read as a whole."""

    document_id: int
    title: str
    path: str | None
    unread: Unread


class KbCheck(Struct, kw_only=True, frozen=True):
    """Counts are whole; the lists hold the first hundred.

    `partly_read`: documents whose sources hold more than their texts; `unread`: what that is, of
    all of them, by kind.
    """

    slug: str
    documents: int
    pending: int
    failed: int
    stale: int
    failed_files: list[FailedFile]
    stale_files: list[StaleFile]
    partly_read: int
    unread: Unread
    partly_read_documents: list[PartlyRead]


def as_record(data: dict[str, Any], params: dict[str, Any]) -> Record:
    """The check as people see it, with what is unread in words."""
    rows = [
        {**row, "unread": unread.in_words(row["unread"])} for row in data["partly_read_documents"]
    ]
    return Record(
        members={
            **data,
            "unread": unread.in_words(data["unread"]),
            "partly_read_documents": rows,
        }
    )


@method(
    "kb.check",
    params=CheckKb,
    result=KbCheck,
    summary="Look for failed, changed, missing and partly read files.",
    when_to_use="Before relying on a knowledge base, or when an answer looks outdated.",
    errors=["resource.not_found"],
    positional=["slug"],
    shown=as_record,
    examples=[Example(params={"slug": "default"}, what="failures, pending and stale files")],
)
def check(call: Call, params: CheckKb) -> Reply:
    with call.store.reading() as snapshot:
        row = require(snapshot.queries, params.slug)
        failures = snapshot.queries.failures(row.slug)
        documents = snapshot.queries.kb_counts([row.slug]).get(row.slug, (0, 0, 0))[0]
        rows = snapshot.queries.paths(row.slug)
        partly_read = snapshot.queries.with_unread(row.slug)
        seq = snapshot.seq
    stale = []
    for path, document in rows.items():
        call.check_cancelled()
        if state := _state(Path(path), document.size_bytes, document.sha256):
            stale.append(StaleFile(document_id=document.id, path=path, state=state))
    pending = sum(call.store.model.status_of(r.id) == "pending" for r in rows.values())
    data = KbCheck(
        slug=row.slug,
        documents=documents,
        pending=pending,
        failed=len(failures),
        stale=len(stale),
        failed_files=[
            FailedFile(path=path, type=kind, message=message)
            for path, (kind, message, _) in list(failures.items())[:_MOST_LISTED]
        ],
        stale_files=stale[:_MOST_LISTED],
        partly_read=len(partly_read),
        unread=unread.total(document.unread for document in partly_read),
        partly_read_documents=[
            PartlyRead(
                document_id=document.id,
                title=document.title,
                path=document.path,
                unread=document.unread,
            )
            for document in partly_read[:_MOST_LISTED]
        ],
    )
    return Reply(data=data, seq=seq, hint=_hint(data, any(file.state == "gone" for file in stale)))


def _hint(check: KbCheck, any_gone: bool) -> str | None:
    if any_gone:
        return "Run doc.ingest again on their folder; with prune it removes what is gone."
    if check.stale or check.failed:
        return "Run doc.ingest again on their folder."
    return unread.advice(check.unread)


def _state(path: Path, size: int, sha256: str) -> str | None:
    """None if the file is as it was."""
    from kbproc.sources.blobs import digest

    try:
        if path.stat().st_size != size:
            return "changed"
        return None if digest(paths.read_file(path, size)) == sha256 else "changed"
    except FileNotFoundError:
        return "gone"
    except (OSError, KbprocError):
        return "unreadable"
