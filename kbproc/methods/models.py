"""Embedding models: model.list, model.use."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from kbproc.base.params import ReadParams, WriteParams
from kbproc.base.wording import plural
from kbproc.calls.call import Call
from kbproc.calls.method import Example, method
from kbproc.calls.reply import Reply
from kbproc.documents import ingest
from kbproc.events.upkeep import ModelUsed
from kbproc.library import switch
from kbproc.models.interface import Kind
from kbproc.store.decision import Decision
from kbproc.store.pipeline import LongWrite
from kbproc.store.plan import plan_of


class ListModels(ReadParams, kw_only=True, frozen=True):
    pass


class ModelShown(Struct, kw_only=True, frozen=True):
    """`status`: ready, needs_export (it is prepared on first use), or why it can't be had."""

    name: str
    kind: Kind
    dim: int | None
    max_tokens: int | None
    status: str
    current: bool


class UseModel(WriteParams, kw_only=True, frozen=True):
    name: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=500,
            description="a name of model.list, a folder, or what the endpoint calls its model",
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


@method(
    "model.list",
    params=ListModels,
    result=list[ModelShown],
    summary="List the embedding models that can be used here.",
    when_to_use="Before model.use, or to see which model a store searches with.",
    scope="admin",
    examples=[Example(params={}, what="all models")],
)
def list_models(call: Call, params: ListModels) -> Reply:
    from kbproc.models.catalogue import available, known_models

    embedding = call.store.embedding
    cache, spec = embedding.models_folder, embedding.spec
    shown = [
        ModelShown(
            name=info.name,
            kind=info.kind,
            dim=info.dim or None,
            max_tokens=info.max_tokens or None,
            status="ready" if info.fingerprint else "needs_export",
            current=(info.name, info.kind) == (spec.name, spec.kind),
        )
        for info in known_models(cache)
    ]
    if spec.kind != "none" and not any(model.current for model in shown):
        shown.append(
            ModelShown(
                name=spec.name,
                kind=spec.kind,
                dim=embedding.dim,
                max_tokens=embedding.max_tokens,
                status=available(spec, cache),
                current=True,
            )
        )
    shown.append(
        ModelShown(
            name="none",
            kind="none",
            dim=None,
            max_tokens=None,
            status="ready",
            current=spec.kind == "none",
        )
    )
    return Reply(data=shown, count=len(shown))


@method(
    "model.use",
    kind="write",
    streams=True,
    scope="admin",
    idempotent=True,
    params=UseModel,
    result=Used,
    summary="Embed everything with another model and search with it from then on.",
    when_to_use="To change models. Searches go on with the old one until the new one is ready; "
    "chunks stay as they were cut: doc.reparse cuts them to the new model's length.",
    errors=["model.unavailable"],
    positional=["name"],
    examples=[
        Example(params={"name": "hash", "kind": "hash"}, what="one that needs no download"),
        Example(params={"name": "/nowhere"}, what="one that does not exist", exit=2),
    ],
)
def use(call: Call, params: UseModel, write: LongWrite) -> Reply:
    from kbproc.models.catalogue import spec_of

    names = ("kind", "name", "url", "api_key", "dim", "max_tokens")
    given = {name: getattr(params, name) for name in names}
    settings: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    store, spec = call.store, spec_of(settings)
    changed = spec != store.embedding.spec
    if params.dry_run:
        chunks = plural(store.chunks, "chunk")
        planned = Decision(
            events=[ModelUsed(kind=spec.kind, name=spec.name)] if changed else [],
            data=None,
            changes=[f"embed {chunks} with {spec.name}, then search with it"] if changed else [],
        )
        return Reply(data=None, plan=plan_of(write.request, planned))

    def tell(done: int, total: int) -> None:
        call.check_cancelled(embedded=done)
        if total:
            call.emit("progress", ingest.progress("embed", done, total, "chunks"))

    with store.exclusive(call.check_cancelled):
        changed = spec != store.embedding.spec
        embedded, pending = store.chunks - store.embedding.pending_count, 0
        if changed:
            embedded, pending = switch.use(store, settings, tell)
            write.item(
                lambda here: Decision(events=[ModelUsed(kind=spec.kind, name=spec.name)], data=None)
            )
    data = Used(name=spec.name, kind=spec.kind, changed=changed, embedded=embedded, pending=pending)
    outcome = write.end(data)
    return Reply(data=outcome.data, seq=max(outcome.seq, store.seq))
