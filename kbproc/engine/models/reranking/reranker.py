"""Which reranker a store has.

Owns: reading its settings.
Refuses to know: who has approved them, where the key lies, and what is searched for.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from kbproc.base.errors import KbprocError
from kbproc.base.values import decoder
from kbproc.models.keyfile import key_in
from kbproc.models.reranking.interface import CANDIDATES, Reranker, Unusable, not_configured

MOST_CANDIDATES = 200
# Settings that name neither endpoint nor folder.
BOUNDS = ("candidates", "max_tokens", "timeout_s")


class RerankSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A reranker as configured: an endpoint's `url` and `model`, or a `folder`.

    `candidates`: how many texts of a search it reads. `timeout_s`: how long a search waits for it.
    `max_tokens`: of a text and its query; what an endpoint's model reads.
    """

    url: str | None = None
    model: str | None = None
    folder: str | None = None
    api_key: str | None = None
    candidates: Annotated[int, Meta(ge=1, le=MOST_CANDIDATES)] = CANDIDATES
    max_tokens: Annotated[int, Meta(ge=16)] = 512
    timeout_s: Annotated[float, Meta(gt=0, le=600)] = 30.0

    def __repr__(self) -> str:
        return f"RerankSpec(model={self.model!r}, folder={self.folder!r})"


_decode = decoder(RerankSpec).decode


def reranker_of(settings: Mapping[str, Any], cache: Path) -> Reranker:
    """Returns the reranker of these settings; loads no model and calls no endpoint.

    `settings`: RerankSpec's members, or api_key_file in the place of the key. `cache`: the folder
    of exported models.
    """
    if not settings.get("url") and not settings.get("folder"):
        return not_configured()
    name = str(settings.get("model") or settings.get("folder") or settings["url"])
    try:
        return _reranker(_spec(settings), cache)
    except KbprocError as error:
        return Unusable(error, name)


def _spec(settings: Mapping[str, Any]) -> RerankSpec:
    members = {name: value for name, value in settings.items() if name != "api_key_file"}
    if file := settings.get("api_key_file"):
        members["api_key"] = key_in(str(file), _wrong)
    try:
        return _decode(msgspec.json.encode(members))
    except msgspec.ValidationError as error:
        raise _wrong(f"The settings of rerank are not valid: {error}.") from None


def _reranker(spec: RerankSpec, cache: Path) -> Reranker:
    if spec.url and spec.folder:
        raise _wrong("The settings of rerank name both a url and a folder.")
    if spec.folder:
        from kbproc.models.reranking.crossencoder import CrossEncoder

        return CrossEncoder(spec.folder, cache, spec.candidates, spec.timeout_s)
    if not spec.model:
        raise _wrong("The settings of rerank name a url, but no model.")
    from kbproc.models.reranking.endpoint import Endpoint

    return Endpoint(
        url=spec.url or "",
        model=spec.model,
        api_key=spec.api_key,
        candidates=spec.candidates,
        max_tokens=spec.max_tokens,
        timeout_s=spec.timeout_s,
    )


def _wrong(message: str) -> KbprocError:
    hint = (
        "Correct the settings of rerank: a url and a model, or a folder. Fusion blend needs none."
    )
    return KbprocError("model.unavailable", message, hint=hint, lasting=True)
