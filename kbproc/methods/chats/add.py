"""chats.add: read the session logs of the coding agents on this machine."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import msgspec
from msgspec import Meta

from kbproc.base import paths as files
from kbproc.base.host import environment
from kbproc.base.params import DestructiveParams
from kbproc.base.settings.config import DEFAULT_KB
from kbproc.base.values import Metadata, Tags, check_metadata, clean_tags
from kbproc.engine.events.document import CONVERSATION
from kbproc.engine.sources.parse.formats import ReadOptions
from kbproc.engine.store.decision import Decide, Decision, DecisionState
from kbproc.engine.store.pipeline import LongWrite
from kbproc.knowledge.documents import chats, ingest, lookup
from kbproc.knowledge.documents.chats import ChatPlace, Client
from kbproc.knowledge.documents.ingest import IngestResult
from kbproc.knowledge.documents.moves import lies_below
from kbproc.knowledge.documents.selection import ToKb
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.reply import Reply
from kbproc.methods.calls.run import reply_of
from kbproc.methods.doc.ingest import as_report

MAX_FILE_BYTES = 512 << 20


class AddChats(DestructiveParams, kw_only=True, frozen=True):
    clients: Annotated[
        list[Client], Meta(max_length=5, description="whose session logs; all if left out")
    ] = []
    project: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=4096,
                description="only sessions that ran in this folder or below it",
            ),
        ]
        | None
    ) = None
    kb: ToKb = DEFAULT_KB
    tags: Tags = []
    metadata: Metadata = {}


def plan(call: Call, params: AddChats) -> Decide:
    """Returns a dry run's outcome; else the places that are read for the first time.

    A person approves these, because what somebody said to one agent need not be for others.
    """
    places = _places(call, params)
    work = _work(call, params, places)

    def decide(here: DecisionState) -> Decision:
        lookup.require_kb(here, work.kb)
        paths = list(here.queries.paths(work.kb))
        new = [each for each in places if not any(lies_below(path, each.starts) for path in paths)]
        if params.dry_run:
            outcome = ingest.plan(
                call.store,
                call.library.intake,
                work,
                here,
                tell=partial(call.progress, "parse"),
                check=call.check_cancelled,
            )
        else:
            outcome = Decision(events=[], data=None)
        return msgspec.structs.replace(
            outcome,
            destructive=bool(new),
            bound=[str(start) for place in new for start in place.starts],
            changes=[*(f"read {place.in_words()}" for place in new), *outcome.changes],
        )

    return decide


def _places(call: Call, params: AddChats) -> list[ChatPlace]:
    """Returns the clients' places. Raises resource.not_found, path.outside_root."""
    cwd, root, project = call.peer.cwd, call.peer.root, None
    if params.project is not None:
        field = "$.params.project"
        project = files.resolve(params.project, cwd=cwd, root=root, field=field)
    places = chats.places(params.clients, environment(), project)
    for place in places:
        field = "$.params.clients"
        files.locate(str(place.path), cwd=cwd, root=root, field=field)
    return places


def _work(call: Call, params: AddChats, places: list[ChatPlace]) -> ingest.IngestWork:
    check_metadata(params.metadata)
    return ingest.IngestWork(
        kb=params.kb,
        starts=[start for place in places for start in place.starts],
        root=call.peer.root,
        named=frozenset(),
        recursive=True,
        glob=None,
        exclude=(),
        max_file_bytes=MAX_FILE_BYTES,
        tags=clean_tags(params.tags),
        metadata=dict(params.metadata),
        prune=False,
        all_files=True,
        runtime=call.peer.runtime,
        options=ReadOptions(parts=True),
        only_type=CONVERSATION,
    )


@method(
    "chats.add",
    kind="write",
    undone_by=("events.revert",),
    streams=True,
    idempotent=True,
    scope="doc:write",
    params=AddChats,
    result=IngestResult,
    plan=plan,
    summary="Read session logs of coding agents.",
    when_to_use="To search what was said to Claude Code, Codex, Gemini CLI, opencode or pi; again "
    "for what was said since. Secrets are redacted before anything is stored.",
    errors=[
        "operation.partial",
        "path.outside_root",
        "resource.not_found",
        "input.confirmation_required",
        "resource.plan_stale",
    ],
    positional=["clients"],
    layout=lambda data, params: as_report(data, {"paths": [""]}),
    examples=[
        Example(params={"clients": ["pi"]}, what="a client without any logs here", exit=5),
    ],
)
def add_chats(call: Call, params: AddChats, write: LongWrite) -> Reply:
    result = ingest.run(
        call.store,
        call.library.intake,
        _work(call, params, _places(call, params)),
        write,
        tell=partial(call.progress, "parse"),
        cancelled=call.cancelled,
    )
    outcome = write.end(result, partial=ingest.failure_summary(result))
    return msgspec.structs.replace(
        reply_of(outcome), hint=ingest.hint(result), notice=ingest.notices(result)
    )
