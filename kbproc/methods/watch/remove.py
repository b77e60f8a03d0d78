"""watch.remove: end watching a folder; its documents stay."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from kbproc.base import paths as files
from kbproc.base.params import WriteParams
from kbproc.engine.store.decision import Decide, Decision, DecisionState
from kbproc.engine.store.target import Target
from kbproc.knowledge.watching import watch
from kbproc.knowledge.watching.watch import Watch
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method


class RemoveWatch(WriteParams, kw_only=True, frozen=True):
    folder: Annotated[str, Meta(min_length=1, max_length=4096)]
    machine: (
        Annotated[str, Meta(min_length=1, max_length=256, description="where the folder is")] | None
    ) = None


@method(
    "watch.remove",
    kind="write",
    undone_by=("watch.add",),
    whole=True,
    scope="doc:write",
    params=RemoveWatch,
    result=Watch,
    summary="End watching a folder.",
    when_to_use="When a folder's files shall no longer change the documents. doc.delete removes "
    "the documents.",
    errors=["resource.not_found"],
    positional=["folder"],
    examples=[
        Example(params={"folder": "nowhere"}, what="a folder that is not watched", exit=5),
    ],
)
def remove(call: Call, params: RemoveWatch) -> Decide:
    peer = call.peer
    path = str(files.locate(params.folder, cwd=peer.cwd, root=peer.root, field="$.params.folder"))

    def decide(here: DecisionState) -> Decision:
        rows = here.queries.watches()
        row = watch.require(rows, path, params.machine, call.host.machine())
        return Decision(
            events=[watch.end_of(row)],
            data=watch.watch_of(row),
            targets=[Target(kind="folder", id=row.path, name=row.path)],
            changes=[f"end watching {row.path}; its documents stay"],
            effect=lambda: watch.withdraw(call.library.trust, call.store.origin, row),
        )

    return decide
