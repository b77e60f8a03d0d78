"""agent.status: count an agent's notes and entries against its quotas; cheap."""

from __future__ import annotations

from msgspec import Struct

from kbproc.agents import agent, folder
from kbproc.agents.quotas import quotas_of, used
from kbproc.base import paths
from kbproc.base.params import ReadParams
from kbproc.calls.call import Call
from kbproc.calls.method import Example, method
from kbproc.calls.reply import Reply


class StatusOfAgent(ReadParams, kw_only=True, frozen=True):
    slug: agent.AgentSlug


class Quota(Struct, kw_only=True, frozen=True):
    """`used` is null for whoever may not see what is counted."""

    name: str
    limit: int
    used: int | None


class AgentStatus(Struct, kw_only=True, frozen=True):
    """Counts are null for whoever may not see what is counted.

    `entries`: that it has stored and that are not deleted; `kbs`: that are there and it sees.
    """

    slug: str
    notes: int | None
    entries: int | None
    quotas: list[Quota]
    kbs: list[str]
    notes_folder: str


@method(
    "agent.status",
    params=StatusOfAgent,
    result=AgentStatus,
    summary="Count an agent's notes and entries against its quotas; cheap.",
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
        counted = used(queries, row, call.scopes)
        known = queries.kb_slugs()
        data = AgentStatus(
            slug=row.slug,
            notes=counted.get("notes_stored"),
            entries=counted.get("knowledge_stored"),
            quotas=[
                Quota(name=name, limit=limit, used=counted.get(name))
                for name, limit in sorted(quotas_of(row).items())
            ],
            kbs=known if row.kbs is None else [slug for slug in row.kbs if slug in known],
            notes_folder=paths.printable(folder.notes_folder(call.store, row)),
        )
        return Reply(data=data, seq=snapshot.seq)
