"""model.list: list the embedding models that can be used here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from kbproc.base.errors import KbprocError
from kbproc.base.layout import Table
from kbproc.base.params import ReadParams
from kbproc.engine.models.interface import Kind
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.reply import Reply

if TYPE_CHECKING:
    from pathlib import Path

    from kbproc.engine.models.catalogue import Measurement
    from kbproc.engine.models.interface import ModelSpec


class ListModels(ReadParams, kw_only=True, frozen=True):
    measure: Annotated[
        bool,
        Meta(
            description="run each model that is ready, and say how many texts a second it embeds, "
            "or how long a cross-encoder takes for one"
        ),
    ] = False


class ModelShown(Struct, kw_only=True, frozen=True):
    """`status`: ready, needs_export (it is prepared on first use), or why it can't be had.

    Of `none`: that only words are searched.

    `size_bytes`: of the model as exported. `texts_per_second`: on one core, to compare models by;
    `measured_here`: the same on this machine. `ndcg_at_10`: how well meaning alone finds, by
    collection of docs/search.md; null, with the `remark` that says so: not measured.

    `task`: an embedder gives vectors, a reranker is a cross-encoder, which reads the best hits
    again; `cost_ms` are the milliseconds that it took here for each of some passages.

    Of a model on the hub, what its card says: `languages`, `licence`, `pooling`, the prefixes of
    queries and documents, `download_bytes`, and shorter lengths that its vectors may be cut to
    (`matryoshka`).
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
    task: Literal["embedder", "reranker"] = "embedder"
    measured_here: float | None = None
    cost_ms: float | None = None
    remark: str | None = None
    languages: str | None = None
    licence: str | None = None
    pooling: str | None = None
    query_prefix: str | None = None
    document_prefix: str | None = None
    download_bytes: int | None = None
    matryoshka: list[int] = []


def _table(data: list[dict[str, Any]], params: dict[str, Any]) -> Table:
    """Returns models for people, with nDCG on English and on German questions."""
    rows = [
        {
            "name": row["name"],
            "task": row["task"],
            "status": _status(row["status"]),
            "this store's": row["current"],
            "dim": row["dim"],
            "tokens": row["max_tokens"],
            "size": _megabytes(row["size_bytes"] or row["download_bytes"]),
            "texts/s": row["measured_here"] or row["texts_per_second"],
            "ms/pair": row["cost_ms"],
            "nDCG en": (row["ndcg_at_10"] or {}).get("xquad/en"),
            "nDCG de": (row["ndcg_at_10"] or {}).get("xquad/de"),
            "languages": row["languages"],
            "licence": row["licence"],
        }
        for row in data
    ]
    return Table(rows=rows, columns=list(rows[0]))


def _status(status: str) -> str:
    """Returns a status for people; the hint says how to get a missing model."""
    return "not installed" if status.startswith(_MISSING) else status


def _megabytes(size: int | None) -> str | None:
    return f"{size / 1e6:.0f} MB" if size else None


_MISSING = "missing: "
_NOT_MEASURED = "not measured by us"


@method(
    "model.list",
    params=ListModels,
    result=list[ModelShown],
    summary="List the embedding models that can be used here, and some of the hub to choose from.",
    when_to_use="Before model.install and model.use, or to see which model a store searches with.",
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
    models += _of_hub(models, cache, spec, measured)
    models += _other_rerankers(cache)
    models = [_with_reader(model, call.store.reranker.name) for model in models]
    if params.measure:
        models = [_measured_here(model, cache, call) for model in models]
    return Reply(data=models, count=len(models), hint=hint)


def _of_hub(
    models: list[ModelShown], cache: Path, spec: ModelSpec, measured: dict[str, Measurement]
) -> list[ModelShown]:
    """Returns the models of the hub that people choose; takes them out of `models`."""
    from kbproc.engine.models.catalogue import available
    from kbproc.engine.models.hub.curated import cards
    from kbproc.engine.models.install import pin_of
    from kbproc.engine.models.interface import ModelSpec

    listed = []
    for name, card in cards().items():
        exported = next((model for model in models if model.name == name), None)
        if exported is not None:
            models.remove(exported)
        pin, figures = pin_of(name), measured.get(card.measured_as or "")
        status = "ready" if pin else f"{_MISSING}kbproc model install {name} brings it."
        cost_ms = None
        if pin is not None and card.kind == "embedder":
            status = available(ModelSpec(name=name), cache)
        elif pin is not None:
            status, cost_ms = _readiness(name, cache)
        listed.append(
            ModelShown(
                name=name,
                kind="onnx",
                dim=card.dim,
                max_tokens=exported.max_tokens if exported else card.max_tokens,
                status=status,
                current=(name, "onnx") == (spec.name, spec.kind),
                size_bytes=None,
                texts_per_second=figures.texts_per_second if figures else None,
                ndcg_at_10=figures.ndcg_at_10 if figures else None,
                task=card.kind,
                cost_ms=cost_ms,
                remark=f"measured with the weights of {card.measured_as}, in four bits"
                if figures
                else _NOT_MEASURED,
                languages=card.languages,
                licence=pin.licence if pin and pin.licence else card.licence,
                pooling=card.pooling or None,
                query_prefix=card.query,
                document_prefix=card.document,
                download_bytes=card.megabytes * 1_000_000 if card.megabytes else None,
                matryoshka=card.matryoshka,
            )
        )
    return listed


def _other_rerankers(cache: Path) -> list[ModelShown]:
    """Returns the installed cross-encoders that are on no list."""
    from kbproc.engine.models.hub.curated import cards
    from kbproc.engine.models.reranking.reranker import installed

    return [_other_reranker(name, cache) for name in installed() if name not in cards()]


def _other_reranker(name: str, cache: Path) -> ModelShown:
    from kbproc.engine.models.install import pin_of

    pin, (status, cost_ms) = pin_of(name), _readiness(name, cache)
    return ModelShown(
        name=name,
        kind="onnx",
        dim=None,
        max_tokens=None,
        status=status,
        current=False,
        size_bytes=None,
        texts_per_second=None,
        ndcg_at_10=None,
        task="reranker",
        cost_ms=cost_ms,
        remark=_NOT_MEASURED,
        licence=pin.licence if pin else None,
        download_bytes=pin.bytes if pin else None,
    )


def _with_reader(model: ModelShown, reader: str | None) -> ModelShown:
    """Returns the model; a cross-encoder as the current one if the store's has its name."""
    is_current = model.task == "reranker" and model.name == reader
    return replace(model, current=True) if is_current else model


def _readiness(name: str, cache: Path) -> tuple[str, float | None]:
    """Returns the status of an installed cross-encoder, and its cost as it was measured here."""
    from kbproc.engine.models.reranking.reranker import readiness

    try:
        now = readiness(name, cache)
    except KbprocError as error:
        return f"{_MISSING}{error.message}", None
    return "ready" if now.is_ready else "needs_export", now.cost_ms


def _measured_here(model: ModelShown, cache: Path, call: Call) -> ModelShown:
    """Returns the model with its speed on this machine."""
    from kbproc.engine.models.catalogue import speed
    from kbproc.engine.models.interface import ModelSpec
    from kbproc.engine.models.reranking.reranker import prepared

    call.check_cancelled()
    if (model.status, model.kind) != ("ready", "onnx"):
        return model
    if model.task == "reranker":
        return replace(model, cost_ms=prepared(model.name, cache, call.cancelled))
    return replace(model, measured_here=speed(ModelSpec(name=model.name), cache))
