"""model.list: list the embedding models that can be used here."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from kbproc.base.layout import Table
from kbproc.base.params import ReadParams
from kbproc.engine.models.interface import Kind
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.reply import Reply


class ListModels(ReadParams, kw_only=True, frozen=True):
    pass


class ModelShown(Struct, kw_only=True, frozen=True):
    """`status`: ready, needs_export (it is prepared on first use), or why it can't be had.

    Of `none`: that only words are searched.

    `size_bytes`: of the model as exported. `texts_per_second`: on one core, to compare models by.
    `ndcg_at_10`: how well meaning alone finds, by collection of docs/search.md. Null: not measured.
    """

    name: str
    kind: Kind
    dim: int | None
    max_tokens: int | None
    status: str
    current: bool
    size_bytes: int | None
    texts_per_second: float | None
    ndcg_at_10: dict[str, float] | None


def _table(data: list[dict[str, Any]], params: dict[str, Any]) -> Table:
    """Returns models for people, with nDCG on English and on German questions."""
    rows = [
        {
            "name": row["name"],
            "status": row["status"].split(":")[0],  # the hint says how to get a missing one
            "current": row["current"],
            "size": row["size_bytes"] and f"{row['size_bytes'] / 1e6:.0f} MB",
            "texts/s": row["texts_per_second"],
            "nDCG en": (row["ndcg_at_10"] or {}).get("xquad/en"),
            "nDCG de": (row["ndcg_at_10"] or {}).get("xquad/de"),
        }
        for row in data
    ]
    return Table(rows=rows, columns=list(rows[0]))


_MISSING = "missing: "


@method(
    "model.list",
    params=ListModels,
    result=list[ModelShown],
    summary="List the embedding models that can be used here.",
    when_to_use="Before model.use, or to see which model a store searches with.",
    scope="admin",
    examples=[Example(params={}, what="all models")],
    layout=_table,
)
def list_models(call: Call, params: ListModels) -> Reply:
    from kbproc.engine.models.catalogue import available, known_models, measurements
    from kbproc.engine.models.interface import ModelSpec

    embedding = call.library.embedding
    cache, spec, problem = embedding.models_folder, embedding.spec, embedding.problem
    measured = measurements()

    def entry(
        name: str, kind: Kind, status: str, dim: int | None, max_tokens: int | None
    ) -> ModelShown:
        figures = measured.get(name) if kind == "onnx" else None
        return ModelShown(
            name=name,
            kind=kind,
            dim=dim or None,
            max_tokens=max_tokens or None,
            status=status,
            current=(name, kind) == (spec.name, spec.kind),
            size_bytes=figures.size_bytes if figures else None,
            texts_per_second=figures.texts_per_second if figures else None,
            ndcg_at_10=figures.ndcg_at_10 if figures else None,
        )

    models = [
        entry(
            info.name,
            info.kind,
            "ready" if info.fingerprint else available(ModelSpec(name=info.name), cache),
            info.dim,
            info.max_tokens,
        )
        for info in known_models(cache)
    ]
    if spec.kind != "none" and not any(model.current for model in models):
        status = f"missing: {problem.message}" if problem else available(spec, cache)
        models.append(entry(spec.name, spec.kind, status, embedding.dim, embedding.max_tokens))
    models.append(entry("none", "none", "words only", None, None))
    missing = [model.status for model in models if model.status.startswith(_MISSING)]
    hint = " ".join(status.removeprefix(_MISSING) for status in missing) or None
    return Reply(data=models, count=len(models), hint=hint)
