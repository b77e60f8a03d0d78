"""Agents: create, list, get, update, delete, status, check."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta, Struct

from kbproc.agents import agent
from kbproc.agents import check as agentcheck
from kbproc.agents.agent import Agent
from kbproc.agents.check import Finding
from kbproc.agents.quotas import quotas_of, used
from kbproc.base import paths
from kbproc.base.errors import KbprocError
from kbproc.base.paging import decode_cursor, encode_cursor, page
from kbproc.base.params import DestructiveParams, ListParams, ReadParams, WriteParams
from kbproc.base.values import clean_name
from kbproc.base.wording import plural
from kbproc.calls.call import Call
from kbproc.calls.method import Example, method
from kbproc.calls.reply import Reply
from kbproc.documents.documents import targets_of
from kbproc.events.agent import AgentDeleted, AgentWritten
from kbproc.events.document import DocDeleted
from kbproc.events.event import Event
from kbproc.store.decision import Decide, Decision, Here

if TYPE_CHECKING:
    from kbproc.views.catalog.queries.queries import Queries
    from kbproc.views.catalog.rows import AgentRow

_SIDES = ("description", "kbs", "notes_folder", "scopes", "quotas", "instructions")


class CreateAgent(WriteParams, kw_only=True, frozen=True):
    slug: agent.AgentSlug
    description: agent.Description = ""
    kbs: agent.KbList | None = None
    notes_folder: agent.Folder | None = None
    scopes: agent.Scopes | None = None
    quotas: agent.Limits | None = None
    instructions: agent.Instructions | None = None


class ListAgents(ListParams, kw_only=True, frozen=True):
    pass


class GetAgent(ReadParams, kw_only=True, frozen=True):
    slug: agent.AgentSlug


class StatusOfAgent(ReadParams, kw_only=True, frozen=True):
    slug: agent.AgentSlug


class CheckAgent(ReadParams, kw_only=True, frozen=True):
    slug: agent.AgentSlug


class UpdateAgent(WriteParams, kw_only=True, frozen=True):
    slug: agent.AgentSlug
    description: agent.Description | None = None
    kbs: agent.KbList | None = None
    notes_folder: agent.Folder | None = None
    scopes: agent.Scopes | None = None
    quotas: agent.Limits | None = None
    instructions: agent.Instructions | None = None
    clear: agent.Opened = []
    expected_revision: Annotated[int, Meta(ge=1, description="fail if it has changed")] | None = (
        None
    )


class DeleteAgent(DestructiveParams, kw_only=True, frozen=True):
    slug: agent.AgentSlug


class DeletedAgent(Struct, kw_only=True, frozen=True):
    """`notes` are hidden in the store; their files stay in `notes_folder` if `files_kept`."""

    slug: str
    notes: int
    notes_folder: str
    files_kept: bool


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


class AgentCheck(Struct, kw_only=True, frozen=True):
    """`healthy`: nothing failed; warnings do not count."""

    slug: str
    healthy: bool
    findings: list[Finding]


@method(
    "agent.create",
    kind="write",
    whole=True,
    params=CreateAgent,
    result=Agent,
    summary="Create an agent: what it sees, may do and may keep, and where its notes lie.",
    when_to_use="Before a process is started for an agent with --agent, to give it notes of its "
    "own and to narrow what it sees. The notes folder is made if it does not exist.",
    errors=["resource.already_exists", "resource.not_found", "path.outside_root"],
    positional=["slug"],
    examples=[
        Example(
            params={"slug": "backups", "kbs": ["default"], "quotas": {"notes_stored": 200}},
            what="an agent that sees one knowledge base",
        ),
        Example(params={"slug": "user"}, what="a name that is reserved", exit=1),
        Example(
            params={"slug": "backups", "kbs": ["gitee"]}, what="a kb that is not there", exit=5
        ),
    ],
)
def create(call: Call, params: CreateAgent) -> Decide:
    clean_name(params.slug, field="$.params.slug")  # the pattern's $ lets a newline follow
    agent.check_slug(params.slug, call.peer.actor)
    scopes = agent.check_scopes(params.scopes, call.registry.scopes)
    peer = call.peer
    folder = agent.located(params.notes_folder, cwd=peer.cwd, root=peer.root)

    def decide(here: Here) -> Decision:
        agent.refuse_taken(here.queries, params.slug)
        event = AgentWritten(
            slug=params.slug,
            revision=1,
            description=params.description,
            kbs=None if params.kbs is None else agent.check_kbs(here.queries, params.kbs),
            folder=agent.placed(call.store, params.slug, folder),
            scopes=scopes,
            quotas={} if params.quotas is None else params.quotas.given(),
            instructions=params.instructions or "",
        )
        row = agent.row_of(event, created_at=here.now, now=here.now)
        return Decision(
            events=[event],
            data=agent.shown(call.store, row),
            effect=agent.folder_made(call.store, here.queries, row),
        )

    return decide


@method(
    "agent.list",
    params=ListAgents,
    result=list[Agent],
    summary="List the agents by slug.",
    when_to_use="To learn which agents there are and what each may see and do. A process that "
    "is bound to an agent sees only that one.",
    examples=[Example(params={}, what="all of them")],
)
def list_agents(call: Call, params: ListAgents) -> Reply:
    after = decode_cursor(params.cursor, str)
    with call.store.reading() as snapshot:
        if call.agent is None:
            found = snapshot.queries.agents(after, params.limit + 1)
        else:
            found = [call.agent] if call.agent.slug > after else []
        rows, more = page(found, params.limit)
        return Reply(
            data=[agent.shown(call.store, row) for row in rows],
            seq=snapshot.seq,
            count=len(rows),
            has_more=more,
            next_cursor=encode_cursor(rows[-1].slug) if more else None,
        )


@method(
    "agent.get",
    params=GetAgent,
    result=Agent,
    summary="Show one agent.",
    when_to_use="To read its instructions, its revision, or where its notes lie.",
    errors=["resource.not_found"],
    positional=["slug"],
    examples=[
        Example(params={"slug": "gitea"}, what="what it sees and may do"),
        Example(params={"slug": "nobody"}, what="one that does not exist", exit=5),
    ],
)
def get(call: Call, params: GetAgent) -> Reply:
    with call.store.reading() as snapshot:
        row = agent.require(snapshot.queries, params.slug, only=call.agent)
        return Reply(data=agent.shown(call.store, row), seq=snapshot.seq)


@method(
    "agent.update",
    kind="write",
    whole=True,
    idempotent=True,
    params=UpdateAgent,
    result=Agent,
    summary="Change what an agent sees, may do or keep, or where its notes lie.",
    when_to_use="What is given replaces what was there, quotas one by one; clear opens a side "
    "again. It holds from each process's next request on. Files stay in the old notes folder: "
    "move them to a new one before.",
    errors=["resource.not_found", "resource.already_exists", "path.outside_root"],
    positional=["slug"],
    examples=[
        Example(params={"slug": "gitea", "quotas": {"notes_stored": 50}}, what="a quota"),
        Example(params={"slug": "nobody", "kbs": []}, what="one that does not exist", exit=5),
        Example(params={"slug": "nobody"}, what="nothing to change", exit=1),
    ],
)
def update(call: Call, params: UpdateAgent) -> Decide:
    given = _given(params)
    scopes = agent.check_scopes(params.scopes, call.registry.scopes)
    peer = call.peer
    folder = agent.located(params.notes_folder, cwd=peer.cwd, root=peer.root)

    def decide(here: Here) -> Decision:
        row = agent.require(here.queries, params.slug)
        agent.check_revision(row, params.expected_revision)
        event = _changed(call, here.queries, row, params, scopes=scopes, folder=folder)
        new = agent.row_of(event, created_at=row.created_at, now=here.now)
        moved = new.folder != row.folder
        return Decision(
            events=[event],
            data=agent.shown(call.store, new),
            targets=[agent.target_of(row)],
            changes=[f"new {name}" for name in given] + [f"clear {name}" for name in params.clear],
            effect=agent.folder_made(call.store, here.queries, new) if moved else None,
        )

    return decide


def _given(params: UpdateAgent) -> list[str]:
    """Raises input.invalid_params if nothing is, or what is to be cleared is given, too."""
    given = [name for name in _SIDES if getattr(params, name) is not None]
    if not given and not params.clear:
        raise KbprocError(
            "input.invalid_params",
            "There is nothing to change.",
            field="$.params",
            valid_values=[*_SIDES, "clear"],
        )
    told = {*given, *(params.quotas.given() if params.quotas is not None else {})}
    for index, name in enumerate(params.clear):
        if name in told:
            raise KbprocError(
                "input.invalid_params",
                f"{name} is given and to be cleared, too.",
                field=f"$.params.clear[{index}]",
                hint="Leave out one of the two.",
            )
    return given


def _changed(
    call: Call,
    queries: Queries,
    row: AgentRow,
    params: UpdateAgent,
    *,
    scopes: list[str] | None,
    folder: Path | None,
) -> AgentWritten:
    """Knowledge bases that it had before may be gone meanwhile: agent.check tells."""
    new: dict[str, Any] = {
        "description": params.description,
        "instructions": params.instructions,
        "scopes": scopes,
        "kbs": None if params.kbs is None else agent.check_kbs(queries, params.kbs),
    }
    new = {name: value for name, value in new.items() if value is not None}
    if folder is not None:
        new["folder"] = agent.placed(call.store, row.slug, folder)
    limits = {**quotas_of(row), **(params.quotas.given() if params.quotas else {})}
    new["quotas"] = {name: n for name, n in limits.items() if name not in params.clear}
    opened = {"kbs": "kbs", "scopes": "scopes", "notes_folder": "folder"}
    new |= {opened[name]: None for name in params.clear if name in opened}
    return msgspec.structs.replace(agent.event_of(row), **new)


@method(
    "agent.delete",
    kind="destructive",
    whole=True,
    params=DeleteAgent,
    result=DeletedAgent,
    summary="Delete an agent and hide its notes; their files and its knowledge entries stay.",
    when_to_use="When an agent has ended its work. A process that is bound to it can do nothing "
    "any more; a new agent of the same name takes its notes up again from their files.",
    errors=["resource.not_found"],
    positional=["slug"],
    examples=[
        Example(params={"slug": "gitea", "dry_run": True}, what="only the plan"),
        Example(params={"slug": "nobody"}, what="one that does not exist", exit=5),
    ],
)
def delete(call: Call, params: DeleteAgent) -> Decide:
    def decide(here: Here) -> Decision:
        row = agent.require(here.queries, params.slug)
        notes = here.queries.notes(row.slug)
        folder = paths.shown(agent.notes_folder(call.store, row))
        gone: list[Event] = [DocDeleted(id=note.id) for note in notes]
        kept = f"files in {folder} stay as they are"
        return Decision(
            events=[*gone, AgentDeleted(slug=row.slug)],
            data=DeletedAgent(
                slug=row.slug, notes=len(notes), notes_folder=folder, files_kept=True
            ),
            targets=[agent.target_of(row), *targets_of(notes)],
            changes=[f"delete {row.slug} and hide its {plural(len(notes), 'note')}; {kept}"],
            bound=[row.created_at],  # a new one under the same slug is another one
            bulk=bool(notes),
        )

    return decide


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
            notes_folder=paths.shown(agent.notes_folder(call.store, row)),
        )
        return Reply(data=data, seq=snapshot.seq)


@method(
    "agent.check",
    params=CheckAgent,
    result=AgentCheck,
    summary="Look into an agent's notes folder, scopes, knowledge bases and quotas.",
    when_to_use="When an agent misses notes or knowledge, or before relying on it: files that are "
    "skipped or not synchronised yet are named.",
    errors=["resource.not_found"],
    positional=["slug"],
    examples=[
        Example(params={"slug": "gitea"}, what="whether all is well with it"),
        Example(params={"slug": "nobody"}, what="one that does not exist", exit=5),
    ],
)
def check(call: Call, params: CheckAgent) -> Reply:
    with call.store.reading() as snapshot:
        row = agent.require(snapshot.queries, params.slug, only=call.agent)
        found = agentcheck.examine(
            call.store,
            snapshot.queries,
            row,
            scopes=call.registry.scopes,
            used=used(snapshot.queries, row, call.scopes),
            notes="note:read" in call.scopes,
            alone=call.agent is not None,
        )
        findings = list(found)
        healthy = all(finding.status != "fail" for finding in findings)
        data = AgentCheck(slug=row.slug, healthy=healthy, findings=findings)
        return Reply(data=data, seq=snapshot.seq)
