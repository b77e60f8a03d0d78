"""model.list: list the embedding models that can be used here."""

from __future__ import annotations

from msgspec import Struct

from kbproc.base.params import ReadParams
from kbproc.calls.call import Call
from kbproc.calls.method import Example, method
from kbproc.calls.reply import Reply
from kbproc.models.interface import Kind


class ListModels(ReadParams, kw_only=True, frozen=True):
    pass


class ModelShown(Struct, kw_only=True, frozen=True):
    """`status`: ready, needs_export (it is prepared on first use), or why it can't be had.

    Of `none`: that only words are searched.
    """

    name: str
    kind: Kind
    dim: int | None
    max_tokens: int | None
    status: str
    current: bool


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

    embedding = call.library.embedding
    cache, spec, problem = embedding.models_folder, embedding.spec, embedding.problem
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
                status=f"missing: {problem.message}" if problem else available(spec, cache),
                current=True,
            )
        )
    shown.append(
        ModelShown(
            name="none",
            kind="none",
            dim=None,
            max_tokens=None,
            status="words only",
            current=spec.kind == "none",
        )
    )
    return Reply(data=shown, count=len(shown))
