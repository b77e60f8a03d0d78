"""Defines the interface of rerankers, and chooses a store's reranker by the settings of rerank.

A query and texts go in, a score for each text comes out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Protocol

import msgspec
from msgspec import Meta

from kbproc.base.errors import KbprocError
from kbproc.base.values import decoder

MOST_CANDIDATES = 200
# Settings that name neither endpoint nor folder.
BOUNDS = ("candidates", "max_tokens", "timeout_s", "budget_s")
CANDIDATES = 50
AUTOMATIC_S = 1.0  # The budget of a search in doubt, unless the settings name another one.


class UnusableReranker:
    """A stand-in for a reranker that can't be used; `problem`: the reason."""

    candidates = CANDIDATES
    is_ready = False
    budget_s = None

    def __init__(self, problem: KbprocError, name: str | None = None) -> None:
        self.problem = problem
        self.name = name

    def judge(self, query: str, texts: Sequence[str]) -> list[float]:
        raise self.problem

    def judge_within(self, query: str, texts: Sequence[str], seconds: float) -> list[float]:
        raise self.problem

    def prepare(self) -> None:
        """Does nothing, because there is nothing to prepare."""

    def close(self) -> None:
        """Does nothing, because nothing is open."""


class Reranker(Protocol):
    """A cross-encoder, which reads a query and a text together, for any number of threads at once.

    `name`: its name in the settings; None if none is configured. `candidates`: how many texts of a
    search it reads. `problem`: why it can't be used as it is configured. `budget_s`: the seconds
    that it may take of a search whose answer is in doubt; None: it reads no hits unasked.
    """

    @property
    def name(self) -> str | None: ...
    @property
    def candidates(self) -> int: ...
    @property
    def problem(self) -> KbprocError | None: ...
    @property
    def budget_s(self) -> float | None: ...
    @property
    def is_ready(self) -> bool:
        """False while a model has to be exported first."""

    def judge(self, query: str, texts: Sequence[str]) -> list[float]:
        """Returns how well each text answers, from 0 to 1. Raises model.unavailable.

        The score of a query and a text is the same whatever other texts there are.
        """
        ...

    def judge_within(self, query: str, texts: Sequence[str], seconds: float) -> list[float]:
        """Judges the first texts, as many as the time allows, at least one.

        Raises model.unavailable. An endpoint gets all texts at once; its timeout bounds it.
        """
        ...

    def prepare(self) -> None:
        """Does in advance what the first search would wait for. Raises nothing."""
        ...

    def close(self) -> None:
        """Stops an export that runs, and does not wait for its end."""
        ...


class RerankSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of a reranker: an endpoint's `url` and `model`, a `folder`, or a `model` alone.

    A `model` alone is one of the hub that was installed. `candidates`: how many texts of a search
    it reads. `timeout_s`: how long a search waits for it. `max_tokens`: how much of a text and its
    query an endpoint's model reads. `budget_s`: see Reranker.
    """

    url: str | None = None
    model: str | None = None
    folder: str | None = None
    api_key: str | None = None
    candidates: Annotated[int, Meta(ge=1, le=MOST_CANDIDATES)] = CANDIDATES
    max_tokens: Annotated[int, Meta(ge=16)] = 512
    timeout_s: Annotated[float, Meta(gt=0, le=600)] = 30.0
    budget_s: Annotated[float, Meta(gt=0, le=60)] | None = None

    def __repr__(self) -> str:
        return f"RerankSpec(model={self.model!r}, folder={self.folder!r})"


_decode = decoder(RerankSpec).decode


def reranker_of(settings: Mapping[str, Any], cache: Path) -> Reranker:
    """Returns the reranker of these settings; loads no model and calls no endpoint.

    `settings`: RerankSpec's members, or api_key_file in the place of the key. `cache`: the folder
    of exported models.
    """
    if not any(settings.get(name) for name in ("url", "folder", "model")):
        return not_configured()
    name = str(settings.get("model") or settings.get("folder") or settings["url"])
    try:
        return _reranker(_spec(settings), cache)
    except KbprocError as error:
        return UnusableReranker(error, name)


def _spec(settings: Mapping[str, Any]) -> RerankSpec:
    members = {name: value for name, value in settings.items() if name != "api_key_file"}
    if file := settings.get("api_key_file"):
        from kbproc.engine.models.endpoint import key_in

        members["api_key"] = key_in(str(file), _wrong)
    try:
        return _decode(msgspec.json.encode(members))
    except msgspec.ValidationError as error:
        raise _wrong(f"The settings of rerank are not valid: {error}.") from None


def _reranker(spec: RerankSpec, cache: Path) -> Reranker:
    if spec.url and spec.folder:
        raise _wrong("The settings of rerank name both a url and a folder.")
    if not spec.url:
        from kbproc.engine.models.reranking.crossencoder import CrossEncoder

        named = spec.folder or spec.model or ""
        return CrossEncoder(named, cache, spec.candidates, spec.timeout_s, spec.budget_s)
    if not spec.model:
        raise _wrong("The settings of rerank name a url, but no model.")
    from kbproc.engine.models.reranking.endpoint import EndpointReranker

    return EndpointReranker(
        url=spec.url or "",
        model=spec.model,
        api_key=spec.api_key,
        candidates=spec.candidates,
        max_tokens=spec.max_tokens,
        timeout_s=spec.timeout_s,
        budget_s=spec.budget_s,
    )


def _wrong(message: str) -> KbprocError:
    hint = (
        "Correct the settings of rerank: a url and a model, or a folder. Fusion blend needs none."
    )
    return KbprocError("model.unavailable", message, hint=hint, lasting=True)


def not_configured() -> UnusableReranker:
    return UnusableReranker(
        KbprocError(
            "model.unavailable",
            "Fusion rerank needs a cross-encoder, and none is configured.",
            hint="Install one: kbproc model install cross-encoder/ms-marco-MiniLM-L6-v2, and name "
            "it by KBPROC_RERANK_MODEL. KBPROC_RERANK_FOLDER is a cross-encoder's folder, "
            "KBPROC_RERANK_URL and KBPROC_RERANK_MODEL are an endpoint; or the table [rerank] of "
            "store.toml names one. Fusion blend needs none.",
            lasting=True,
        )
    )


def installed() -> list[str]:
    """Returns the names of the cross-encoders of the hub that a person has installed."""
    from kbproc.engine.models.hub import pins

    return sorted(name for name, pin in pins.pins().items() if pin.kind == "reranker")


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """How far an installed cross-encoder is. `is_ready`: it is exported.

    `cost_ms`: the milliseconds for a passage, as they were last measured here.
    """

    is_ready: bool = False
    cost_ms: float | None = None


def readiness(name: str, cache: Path) -> Readiness:
    """Returns how far an installed cross-encoder is. Raises model.unavailable."""
    from kbproc.engine.models.reranking import crossencoder

    exported = crossencoder.exported_folder(cache, crossencoder.located(name))
    meta = crossencoder.read_meta(exported)
    return Readiness() if meta is None else Readiness(is_ready=True, cost_ms=meta.cost_ms)


def prepared(name: str, cache: Path, cancelled: Callable[[], bool]) -> float:
    """Exports an installed cross-encoder; returns the milliseconds that a passage costs here.

    Raises model.unavailable, operation.cancelled, store.io.
    """
    from kbproc.engine.models.reranking import crossencoder

    source = crossencoder.located(name)
    target = crossencoder.exported_folder(cache, source)
    crossencoder.export(source, target, cancelled=cancelled)
    return crossencoder.measure(target)
