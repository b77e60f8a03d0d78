"""kb.check: look for failed, changed, missing and partly read files."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

from msgspec import Struct

from kbproc.base.layout import LayoutPart, Report
from kbproc.base.params import ReadParams
from kbproc.base.paths import from_here
from kbproc.base.values import KbSlug
from kbproc.base.wording import failure_in_words, plural
from kbproc.engine.sources.parse import unread
from kbproc.knowledge.documents import moves
from kbproc.knowledge.documents.document import Unread
from kbproc.knowledge.documents.kb import require
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.reply import Reply

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


def as_report(data: dict[str, Any], params: dict[str, Any]) -> Report:
    """Returns the check for people: problems, then the counts."""
    failed = [
        failure_in_words(file["path"], file["message"], _short(file["path"]))
        for file in data["failed_files"]
    ]
    stale = [f"{_short(file['path'])} ({file['state']})" for file in data["stale_files"]]
    partly = [
        f"{row['document_id']} {row['title']}: {unread.in_words(row['unread'])}"
        for row in data["partly_read_documents"]
    ]
    counts = {name: value for name, value in data.items() if not isinstance(value, list)}
    return Report(
        parts=[
            LayoutPart.cut("Could not be read", failed, data["failed"]),
            LayoutPart.cut("Changed or gone since they were added", stale, data["stale"]),
            LayoutPart.cut(
                "Documents that lack a part of their source", partly, data["partly_read"]
            ),
        ],
        counts={**counts, "unread": unread.in_words(data["unread"])},
    )


def _short(path: str) -> str:
    return from_here(Path(path))


@method(
    "kb.check",
    params=CheckKb,
    result=KbCheck,
    summary="Look for failed, changed, missing and partly read files.",
    when_to_use="Before relying on a knowledge base, or when an answer looks outdated.",
    errors=["resource.not_found"],
    positional=["slug"],
    layout=as_report,
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
    stale, stamps = [], defaultdict[str, set[str]](set)
    for path, document in rows.items():
        stamps[_file_of(path)].add(document.stamp)
    for path, document in rows.items():
        call.check_cancelled()
        if state := moves.state_of_file(document, stamps[_file_of(path)]):
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
        return (
            "Run doc.ingest again on their folder, with prune to remove the documents whose files "
            "are gone."
        )
    if check.failed:
        first = Path(check.failed_files[0].path).name
        others = plural(check.failed - 1, "other file", "other files")
        files, its = (first, "its") if check.failed == 1 else (f"{first} and {others}", "their")
        return f"Repair or replace {files}, then run doc.ingest again on {its} folder."
    if check.stale:
        return "Run doc.ingest again on their folder."
    return unread.advice(check.unread)


def _file_of(path: str) -> str:
    """Returns the file that the path, or the file within another, lies in."""
    return next(iter(moves.holders(path)), path)
