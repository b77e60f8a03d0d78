"""agent.status: count an agent's notes and entries against its quotas; cheap."""

from __future__ import annotations

import contextlib

from msgspec import Struct

from kbproc.base import paths
from kbproc.base.params import ReadParams
from kbproc.knowledge.agents import agent, folder
from kbproc.knowledge.agents.notes import files as notefiles
from kbproc.knowledge.agents.notes.files import Unavailable
from kbproc.knowledge.agents.quotas import quotas_of, usage
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.reply import Reply


class StatusOfAgent(ReadParams, kw_only=True, frozen=True):
    slug: agent.AgentSlug


class Quota(Struct, kw_only=True, frozen=True):
    """A limit; `used` is null for a caller that may not see the counted things."""

    name: str
    limit: int
    used: int | None


class AgentStatus(Struct, kw_only=True, frozen=True):
    """Counts of an agent; a count is null for a caller that may not see the counted things.

    `entries`: those that it has stored and that are not deleted; `kbs`: those that exist and it
    sees. `misnamed_files`, `files_in_folders`: Markdown in its notes folder that is no note,
    because of its name or because it lies in a sub-folder; null also if the folder can't be read or
    its sub-folders hold too much to count.
    """

    slug: str
    notes: int | None
    entries: int | None
    quotas: list[Quota]
    kbs: list[str]
    notes_folder: str
    misnamed_files: int | None = None
    files_in_folders: int | None = None


@method(
    "agent.status",
    params=StatusOfAgent,
    result=AgentStatus,
    summary="Count an agent's notes and entries against its quotas.",
    when_to_use="To see how much it keeps and may still keep, and what it sees.",
    errors=["resource.not_found"],
    positional=["slug"],
    examples=[
        Example(params={"slug": "gitea"}, what="how much it keeps"),
        Example(params={"slug": "nobody"}, what="one that does not exist", exit=5),
    ],
)
def status(call: Call, params: StatusOfAgent) -> Reply:
    with call.store.reading() as snapshot:
        queries = snapshot.queries
        row = agent.require(queries, params.slug, only=call.agent)
        counted = usage(queries, row, call.scopes)
        kb_slugs, seq = queries.kb_slugs(), snapshot.seq
    where = folder.notes_folder(call.store, row)
    others = None
    if "note:read" in call.scopes:
        with contextlib.suppress(Unavailable):
            others = notefiles.count_non_notes(where)
    data = AgentStatus(
        slug=row.slug,
        notes=counted.get("notes_stored"),
        entries=counted.get("knowledge_stored"),
        quotas=[
            Quota(name=name, limit=limit, used=counted.get(name))
            for name, limit in sorted(quotas_of(row).items())
        ],
        kbs=kb_slugs if row.kbs is None else [slug for slug in row.kbs if slug in kb_slugs],
        notes_folder=paths.printable(where),
        misnamed_files=None if others is None else others.misnamed,
        files_in_folders=None if others is None else others.in_folders,
    )
    return Reply(data=data, seq=seq)
