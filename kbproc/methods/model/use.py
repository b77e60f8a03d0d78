"""model.use: embed everything with another model and search with it from then on."""

from __future__ import annotations

import os
from typing import Annotated, Any

from msgspec import Meta, Struct

from kbproc.base.params import WriteParams
from kbproc.base.wording import change, plural
from kbproc.calls.call import Call
from kbproc.calls.method import Example, method
from kbproc.calls.reply import Reply
from kbproc.events.upkeep import ModelUsed
from kbproc.library import switch
from kbproc.models.interface import Kind
from kbproc.store.decision import Decide, Decision, Here
from kbproc.store.pipeline import LongWrite


class UseModel(WriteParams, kw_only=True, frozen=True):
    name: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=500,
            description="a name of model.list, a folder (/… or ./…), or what the endpoint "
            "calls its model",
        ),
    ]
    kind: Annotated[
        Kind, Meta(description="onnx: exported once, then fast; openai: an HTTP endpoint")
    ] = "onnx"
    url: Annotated[str, Meta(max_length=2000, description="of an OpenAI-compatible endpoint")] | (
        None
    ) = None
    api_key: Annotated[str, Meta(max_length=1000, description="for that endpoint")] | None = None
    dim: Annotated[int, Meta(ge=1, le=65_536, description="dimensions, if they can't be asked")] | (
        None
    ) = None
    max_tokens: Annotated[int, Meta(ge=16, le=1 << 20, description="longest text it takes")] | (
        None
    ) = None


class Used(Struct, kw_only=True, frozen=True):
    """`embedded` chunks have a vector under the model that is used now, `pending` have none."""

    name: str
    kind: Kind
    changed: bool
    embedded: int
    pending: int


def plan(call: Call, params: UseModel) -> Decide:
    from kbproc.models.catalogue import inspect, spec_of

    spec, embedding = spec_of(_settings(call, params)), call.library.embedding
    if spec.kind != "none":
        inspect(spec, embedding.models_folder)

    def decide(here: Here) -> Decision:
        if spec == embedding.spec:
            return Decision(events=[], data=None)
        chunks = plural(call.store.chunks, "chunk")
        effect = f"embed {chunks} with {spec.name}, then search with it"
        if spec.kind == "none":
            effect = "search by words only"
        return Decision(
            events=[ModelUsed(kind=spec.kind, name=spec.name)],
            data=None,
            changes=[*change("model", embedding.spec.name, spec.name), effect],
            counts={"chunks": call.store.chunks},
        )

    return decide


def _settings(call: Call, params: UseModel) -> dict[str, Any]:
    """Only what is given; the model's own defaults hold otherwise."""
    names = ("kind", "name", "url", "api_key", "dim", "max_tokens")
    given = {name: getattr(params, name) for name in names}
    if params.name.startswith("."):
        given["name"] = os.path.normpath(call.peer.cwd / params.name)
    if params.name == "none":  # as model.list names it
        given["kind"] = "none"
    return {name: value for name, value in given.items() if value is not None}


@method(
    "model.use",
    kind="write",
    streams=True,
    scope="admin",
    idempotent=True,
    params=UseModel,
    result=Used,
    plan=plan,
    summary="Switch to another embedding model.",
    when_to_use="To change models. Searches go on with the old one until the new one is ready; "
    "chunks stay as they were cut: doc.reparse cuts them to the new model's length.",
    errors=["model.unavailable"],
    positional=["name"],
    examples=[
        Example(
            params={"name": "hash", "kind": "hash", "dry_run": True},
            what="what it would take",
        ),
        Example(params={"name": "hash", "kind": "hash"}, what="one that needs no download"),
        Example(params={"name": "/nowhere"}, what="one that does not exist", exit=2),
    ],
)
def use(call: Call, params: UseModel, write: LongWrite) -> Reply:
    from kbproc.models.catalogue import spec_of

    settings = _settings(call, params)
    library, store, spec = call.library, call.library.store, spec_of(settings)

    def tell(done: int, total: int) -> None:
        call.check_cancelled(embedded=done)
        if total:
            call.progress("embed", done, total, "chunks")

    with store.exclusive(call.check_cancelled):
        changed = spec != library.embedding.spec or library.embedding.problem is not None
        if changed:
            switch.use(library, settings, tell)
            write.item(
                lambda here: Decision(events=[ModelUsed(kind=spec.kind, name=spec.name)], data=None)
            )
    pending = library.embedding.pending_count
    embedded = 0 if spec.kind == "none" else store.chunks - pending
    data = Used(name=spec.name, kind=spec.kind, changed=changed, embedded=embedded, pending=pending)
    outcome = write.end(data)
    return Reply(data=outcome.data, seq=max(outcome.seq, store.seq))
