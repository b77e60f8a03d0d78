"""doc.ingest: read files and folders into a knowledge base."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from kbproc.base import paths as files
from kbproc.base.errors import KbprocError
from kbproc.base.layout import Record
from kbproc.base.params import DestructiveParams
from kbproc.base.values import Metadata, Tags, check_metadata, clean_tags
from kbproc.calls.call import Call
from kbproc.calls.method import Example, method
from kbproc.calls.reply import Reply
from kbproc.calls.run import reply_of, who_gives
from kbproc.documents import ingest, lookup
from kbproc.documents.ingest import IngestResult
from kbproc.documents.selection import ToKb
from kbproc.settings.config import DEFAULT_KB
from kbproc.sources.parse import unread
from kbproc.store.decision import Decide, Decision, Here
from kbproc.store.pipeline import LongWrite

MAX_FILE_BYTES = 64 << 20
Pattern = Annotated[str, Meta(min_length=1, max_length=500, description="such as *.md or docs/**")]


class Ingest(DestructiveParams, kw_only=True, frozen=True):
    paths: Annotated[
        list[Annotated[str, Meta(min_length=1, max_length=4096)]],
        Meta(min_length=1, max_length=1000, description="files and folders"),
    ]
    kb: ToKb = DEFAULT_KB
    recursive: Annotated[bool, Meta(description="go into folders within folders")] = True
    glob: Annotated[Pattern, Meta(description="only files whose name or path matches")] | None = (
        None
    )
    exclude: Annotated[
        list[Pattern], Meta(max_length=100, description="patterns to leave out")
    ] = []
    tags: Tags = []
    metadata: Metadata = {}
    prune: Annotated[bool, Meta(description="remove documents whose files are gone")] = False
    all_files: Annotated[
        bool,
        Meta(description="read what git ignores, dependencies, build results and lock files, too"),
    ] = False
    max_file_bytes: Annotated[
        int, Meta(ge=1, le=1 << 30, description="larger files are failures")
    ] = MAX_FILE_BYTES


def plan(call: Call, params: Ingest) -> Decide:
    """Before anything is read, only what `prune` would remove: a person approves that."""
    work = _work(call, params)

    def decide(here: Here) -> Decision:
        lookup.require_kb(here, work.kb)
        if params.dry_run:
            return ingest.plan(
                call.store,
                call.library.intake,
                work,
                here,
                tell=partial(call.progress, "parse"),
                check=call.check_cancelled,
            )
        rows = ingest.without_file(here, work) if work.prune else []
        if rows and "admin" not in call.scopes:
            raise KbprocError(
                "auth.insufficient_scope",
                "prune would remove documents and needs the scope admin.",
                field="$.params.prune",
                hint=who_gives(call, "admin"),
                detail={"needed": "admin"},
            )
        return ingest.removal(here, work.kb, rows)

    return decide


def _work(call: Call, params: Ingest) -> ingest.Work:
    root = call.peer.root
    starts = [_start(call, path, params.prune, i) for i, path in enumerate(params.paths)]
    check_metadata(params.metadata)
    return ingest.Work(
        kb=params.kb,
        starts=starts,
        root=root,
        named=frozenset(starts),
        recursive=params.recursive,
        glob=params.glob,
        exclude=params.exclude,
        max_file_bytes=params.max_file_bytes,
        tags=clean_tags(params.tags),
        metadata=dict(params.metadata),
        prune=params.prune,
        all_files=params.all_files,
    )


def _start(call: Call, path: str, prune: bool, index: int) -> Path:
    """What prune removes need not exist. Raises resource.not_found, input.invalid_params."""
    field, peer = f"$.params.paths[{index}]", call.peer
    full = files.locate(path, cwd=peer.cwd, root=peer.root, field=field)
    if full.is_relative_to(call.store.origin):
        raise KbprocError(
            "input.invalid_params",
            f"{full} lies within the store itself.",
            field=field,
            hint="Notes are found by note.search and search as they are.",
        )
    return full if prune else files.resolve(path, cwd=peer.cwd, root=peer.root, field=field)


def as_record(data: dict[str, Any], params: dict[str, Any]) -> Record:
    """The answer as people see it: without counts of nothing, and with unread parts in words."""
    members = {name: value for name, value in data.items() if value != 0 or name == "added"}
    return Record(members={**members, "unread": unread.in_words(data["unread"])})


@method(
    "doc.ingest",
    kind="write",
    streams=True,
    idempotent=True,
    params=Ingest,
    result=IngestResult,
    plan=plan,
    summary="Read files and folders into a knowledge base.",
    when_to_use="To add files, or to bring a knowledge base up to date: unchanged files cost "
    "nothing, and one bad file never stops the rest.",
    errors=[
        "operation.partial",
        "path.outside_root",
        "resource.not_found",
        "input.confirmation_required",
        "resource.plan_stale",
    ],
    alias="add",
    positional=["paths"],
    shown=as_record,
    examples=[
        Example(params={"paths": ["docs"]}, what="a folder"),
        Example(params={"paths": ["docs"], "dry_run": True}, what="what would be read"),
        Example(params={"paths": ["nowhere"]}, what="a path that does not exist", exit=5),
        Example(params={"paths": ["broken"]}, what="a folder with a damaged PDF", exit=3),
    ],
)
def ingest_files(call: Call, params: Ingest, write: LongWrite) -> Reply:
    work = msgspec.structs.replace(_work(call, params), approved=write.approved.deleted)
    result = ingest.run(
        call.store,
        call.library.intake,
        work,
        write,
        tell=partial(call.progress, "parse"),
        cancelled=call.cancelled,
    )
    outcome = write.end(result, partial=ingest.what_failed(result))
    return msgspec.structs.replace(reply_of(outcome), hint=ingest.hint(result))
