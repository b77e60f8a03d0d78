"""agent.update: change what an agent sees, may do or keep, or where its notes lie."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from kbproc.base.errors import KbprocError
from kbproc.base.params import WriteParams
from kbproc.engine.events.agent import AgentWritten
from kbproc.engine.projections.catalog.queries import Queries
from kbproc.engine.projections.catalog.rows import AgentRow
from kbproc.engine.store.decision import Decide, Decision, DecisionState
from kbproc.knowledge.agents import agent
from kbproc.knowledge.agents import folder as folder_
from kbproc.knowledge.agents.agent import Agent
from kbproc.knowledge.agents.quotas import quotas_of
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method

_SIDES = ("description", "kbs", "notes_folder", "scopes", "quotas", "instructions")


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


@method(
    "agent.update",
    kind="write",
    undone_by=("events.revert",),
    whole=True,
    idempotent=True,
    params=UpdateAgent,
    result=Agent,
    layout=agent.as_record,
    summary="Change what an agent sees, may do or keep, or its folder.",
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
    _check_changes(params)
    scopes = agent.check_scopes(params.scopes, call.registry.scopes)
    peer = call.peer
    folder = folder_.named_folder(params.notes_folder, cwd=peer.cwd, root=peer.root)

    def decide(here: DecisionState) -> Decision:
        row = agent.require(here.queries, params.slug)
        agent.check_revision(row, params.expected_revision)
        event = _new_state(call, here.queries, row, params, scopes=scopes, folder=folder)
        new = agent.row_of(event, created_at=row.created_at, now=here.ts)
        moved = new.folder != row.folder
        return Decision(
            events=[event],
            data=agent.agent_of(call.store, new),
            targets=[agent.target_of(row)],
            changes=agent.changes(agent.agent_of(call.store, row), agent.agent_of(call.store, new)),
            effect=folder_.making_folder(call.store, here.queries, new) if moved else None,
        )

    return decide


def _check_changes(params: UpdateAgent) -> None:
    """Raises input.invalid_params if nothing is to change, or a param is both given and cleared."""
    changes = [name for name in _SIDES if getattr(params, name) is not None]
    if not changes and not params.clear:
        raise KbprocError(
            "input.invalid_params",
            "There is nothing to change.",
            field="$.params",
            valid_values=[*_SIDES, "clear"],
        )
    names = {*changes, *(params.quotas.limits() if params.quotas is not None else {})}
    for index, name in enumerate(params.clear):
        if name in names:
            raise KbprocError(
                "input.invalid_params",
                f"{name} is given and to be cleared, too.",
                field=f"$.params.clear[{index}]",
                hint="Leave out one of the two.",
            )


def _new_state(
    call: Call,
    queries: Queries,
    row: AgentRow,
    params: UpdateAgent,
    *,
    scopes: list[str] | None,
    folder: Path | None,
) -> AgentWritten:
    """Returns the agent's new state.

    Knowledge bases that it had before may be gone; agent.check reports them.
    """
    new: dict[str, Any] = {
        "description": params.description,
        "instructions": params.instructions,
        "scopes": scopes,
        "kbs": None if params.kbs is None else agent.check_kbs(queries, params.kbs),
    }
    new = {name: value for name, value in new.items() if value is not None}
    if folder is not None:
        new["folder"] = folder_.folder_to_record(call.store, row.slug, folder)
    limits = {**quotas_of(row), **(params.quotas.limits() if params.quotas else {})}
    new["quotas"] = {name: n for name, n in limits.items() if name not in params.clear}
    opened = {"kbs": "kbs", "scopes": "scopes", "notes_folder": "folder"}
    new |= {opened[name]: None for name in params.clear if name in opened}
    return msgspec.structs.replace(agent.event_of(row), **new)
