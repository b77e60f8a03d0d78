"""agent.delete: delete an agent and hide its notes; their files and its knowledge entries stay."""

from __future__ import annotations

from msgspec import Struct

from kbproc.base import paths
from kbproc.base.params import DestructiveParams
from kbproc.base.wording import plural
from kbproc.engine.events.agent import AgentDeleted
from kbproc.engine.events.document import DocDeleted
from kbproc.engine.events.event import Event
from kbproc.engine.store.decision import Decide, Decision, DecisionState
from kbproc.knowledge.agents import agent
from kbproc.knowledge.agents import folder as folder_
from kbproc.knowledge.documents.revision import MANY, targets_of
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method


class DeleteAgent(DestructiveParams, kw_only=True, frozen=True):
    slug: agent.AgentSlug


class DeletedAgent(Struct, kw_only=True, frozen=True):
    """`notes` are hidden in the store; their files stay in `notes_folder` if `files_kept`."""

    slug: str
    notes: int
    notes_folder: str
    files_kept: bool


@method(
    "agent.delete",
    kind="destructive",
    undone_by=("events.revert",),
    whole=True,
    params=DeleteAgent,
    result=DeletedAgent,
    summary="Delete an agent and hide its notes; files stay.",
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
    def decide(here: DecisionState) -> Decision:
        row = agent.require(here.queries, params.slug)
        notes = here.queries.notes(row.slug)
        folder = paths.printable(folder_.notes_folder(call.store, row))
        hidden: list[Event] = [DocDeleted(id=note.id) for note in notes]
        files = f"files in {folder} stay as they are"
        return Decision(
            events=[*hidden, AgentDeleted(slug=row.slug)],
            data=DeletedAgent(
                slug=row.slug, notes=len(notes), notes_folder=folder, files_kept=True
            ),
            targets=[agent.target_of(row), *targets_of(notes)],
            changes=[f"delete {row.slug} and hide its {plural(len(notes), 'note')}; {files}"],
            bound=[row.created_at],  # a new agent under the same slug is another one
            bulk=len(notes) >= MANY,
        )

    return decide
