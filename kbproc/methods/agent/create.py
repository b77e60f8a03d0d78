"""agent.create: create an agent: what it sees, may do and may keep, and where its notes lie."""

from __future__ import annotations

from kbproc.base.params import WriteParams
from kbproc.engine.events.agent import AgentWritten
from kbproc.engine.store.decision import Decide, Decision, DecisionState
from kbproc.knowledge.agents import agent
from kbproc.knowledge.agents import folder as folder_
from kbproc.knowledge.agents.agent import Agent
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method


class CreateAgent(WriteParams, kw_only=True, frozen=True):
    slug: agent.AgentSlug
    description: agent.Description = ""
    kbs: agent.KbList | None = None
    notes_folder: agent.Folder | None = None
    scopes: agent.Scopes | None = None
    quotas: agent.Limits | None = None
    instructions: agent.Instructions | None = None


@method(
    "agent.create",
    kind="write",
    undone_by=("events.revert",),
    whole=True,
    params=CreateAgent,
    result=Agent,
    layout=agent.as_record,
    summary="Create an agent: what it sees, may do and may keep.",
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
    agent.check_slug(params.slug, call.peer.actor)
    scopes = agent.check_scopes(params.scopes, call.registry.scopes)
    peer = call.peer
    folder = folder_.named_folder(params.notes_folder, cwd=peer.cwd, root=peer.root)

    def decide(here: DecisionState) -> Decision:
        agent.refuse_taken(here.queries, params.slug)
        event = AgentWritten(
            slug=params.slug,
            revision=1,
            description=params.description,
            kbs=None if params.kbs is None else agent.check_kbs(here.queries, params.kbs),
            folder=folder_.folder_to_record(call.store, params.slug, folder),
            scopes=scopes,
            quotas={} if params.quotas is None else params.quotas.limits(),
            instructions=params.instructions or "",
        )
        row = agent.row_of(event, created_at=here.ts, now=here.ts)
        created = agent.agent_of(call.store, row)
        return Decision(
            events=[event],
            data=created,
            changes=agent.changes(None, created),
            effect=folder_.making_folder(call.store, here.queries, row),
        )

    return decide
