"""agent.delete: delete an agent and hide its notes; their files and its knowledge entries stay."""

from __future__ import annotations

from msgspec import Struct

from kbproc.agents import agent
from kbproc.agents import folder as folder_
from kbproc.base import paths
from kbproc.base.params import DestructiveParams
from kbproc.base.wording import plural
from kbproc.calls.call import Call
from kbproc.calls.method import Example, method
from kbproc.documents.deletion import MANY, targets_of
from kbproc.events.agent import AgentDeleted
from kbproc.events.document import DocDeleted
from kbproc.events.event import Event
from kbproc.store.decision import Decide, Decision, Here


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
        folder = paths.printable(folder_.notes_folder(call.store, row))
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
            bulk=len(notes) >= MANY,
        )

    return decide
