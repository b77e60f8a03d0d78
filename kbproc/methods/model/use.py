"""model.use: embed everything with another model and search with it from then on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct

from kbproc.base.errors import KbprocError
from kbproc.base.params import WriteParams
from kbproc.base.wording import change, plural
from kbproc.engine.events.upkeep import ModelUsed
from kbproc.engine.models.interface import Kind, ModelSpec, spec_of
from kbproc.engine.store.decision import Decide, Decision, DecisionState
from kbproc.engine.store.pipeline import LongWrite
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.reply import Reply

if TYPE_CHECKING:
    from kbproc.knowledge.app.library import Library


class UseModel(WriteParams, kw_only=True, frozen=True):
    name: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=500,
                description="a name of model.list, a folder (/… or ./…), or what the endpoint "
                "calls its model",
            ),
        ]
        | None
    ) = None
    kind: Annotated[
        Kind, Meta(description="onnx: exported once, then fast; openai: an HTTP endpoint")
    ] = "onnx"
    url: Annotated[str, Meta(max_length=2000, description="of an OpenAI-compatible endpoint")] | (
        None
    ) = None
    api_key: (
        Annotated[
            str,
            Meta(max_length=1000, description="refused, since others may see it: use api_key_file"),
        ]
        | None
    ) = None
    api_key_file: (
        Annotated[
            str,
            Meta(max_length=1000, description="file of mode 0600 that holds the endpoint's key"),
        ]
        | None
    ) = None
    dim: Annotated[int, Meta(ge=1, le=65_536, description="dimensions, if they can't be asked")] | (
        None
    ) = None
    max_tokens: Annotated[int, Meta(ge=16, le=1 << 20, description="longest text it takes")] | (
        None
    ) = None
    undo: Annotated[
        bool,
        Meta(
            description="end a change that is under way, and remove its vectors; without one, "
            "take the model before"
        ),
    ] = False


class Used(Struct, kw_only=True, frozen=True):
    """`embedded` chunks have a vector under the model that is used now, `pending` have none.

    `changed`: another model is used, or a change was ended.
    """

    name: str
    kind: Kind
    changed: bool
    embedded: int
    pending: int


def plan(call: Call, params: UseModel) -> Decide:
    from kbproc.engine.models.catalogue import inspect, key_of

    library = call.library
    spec, embedding = spec_of(_settings(call, params)), library.embedding
    dropped = _dropped(library, params, spec)
    if spec.kind == "openai":
        key_of(spec)  # raises before anything is done
    downloads = _downloads(spec, embedding.models_folder)
    if spec.kind != "none" and not downloads:
        inspect(spec, embedding.models_folder)

    def decide(here: DecisionState) -> Decision:
        if spec == embedding.spec:
            return Decision(events=[], data=None, changes=dropped)
        chunks = plural(call.store.chunks, "chunk")
        effect = f"embed {chunks} with {spec.name}, then search with it"
        if spec.kind == "none":
            effect = "search by words only"
        model = change("model", embedding.spec.name, spec.name)
        return Decision(
            events=[ModelUsed(kind=spec.kind, name=spec.name)],
            data=None,
            changes=[*dropped, *downloads, *model, effect],
            counts={"chunks": call.store.chunks},
        )

    return decide


def _dropped(library: Library, params: UseModel, spec: ModelSpec) -> list[str]:
    """Returns what becomes of a change that has not ended, as lines of a plan."""
    settings = library.switch.next_settings
    if settings is None or (spec_of(settings) == spec and not params.undo):
        return []
    return [f"end the change to {spec_of(settings).name} and remove its vectors"]


def _downloads(spec: ModelSpec, models: Path) -> list[str]:
    """Returns the downloads that the model needs before it can be used, as lines of a plan."""
    from kbproc.engine.models import install
    from kbproc.engine.models.catalogue import inspect

    if spec.kind != "onnx" or not install.is_known(spec.name):
        return []
    try:
        inspect(spec, models)
    except KbprocError:  # the model or its runtime is not here
        return install.effects(spec.name)
    return []


def _settings(call: Call, params: UseModel) -> dict[str, Any]:
    """Returns the given settings; the model's defaults hold for the others.

    To undo: those of the model that is used afterwards. Raises input.invalid_params,
    resource.not_found.
    """
    if params.undo == (params.name is not None):
        raise KbprocError(
            "input.invalid_params",
            "Name the model to use, or say undo.",
            field="$.params.name",
            hint="kbproc model use NAME changes the model; kbproc model use --undo takes it back.",
        )
    if params.name is None:
        undone: dict[str, Any] = call.library.switch.settings_undone()
        return undone
    if params.api_key is not None:
        raise KbprocError(
            "input.invalid_params",
            "A key is not taken as a param: lists of processes and histories of shells show it.",
            field="$.params.api_key",
            hint="Put it into a file of mode 0600 and name that as api_key_file, or set "
            "KBPROC_MODEL_API_KEY where kbproc runs.",
        )
    names = ("kind", "name", "url", "api_key_file", "dim", "max_tokens")
    settings = {name: getattr(params, name) for name in names}
    if params.name.startswith("."):
        settings["name"] = os.path.normpath(call.peer.cwd / params.name)
    if params.api_key_file and not params.api_key_file.startswith("~"):
        settings["api_key_file"] = os.path.normpath(call.peer.cwd / params.api_key_file)
    if params.name == "none":  # the name in model.list
        settings["kind"] = "none"
    return {name: value for name, value in settings.items() if value is not None}


@method(
    "model.use",
    kind="write",
    undone_by=("model.use",),
    streams=True,
    scope="admin",
    idempotent=True,
    params=UseModel,
    result=Used,
    plan=plan,
    summary="Switch to another embedding model.",
    when_to_use="To change models; one of model.list that is missing is downloaded first. Searches "
    "go on with the old one until the new one is ready: status tells how far it is. A change that "
    "was stopped goes on with the next server, or with the same request; undo ends it, or goes "
    "back. Chunks stay as they were cut: doc.reparse cuts them to the new model's length.",
    errors=["model.unavailable", "network.failed", "resource.not_found"],
    positional=["name"],
    examples=[
        Example(
            params={"name": "hash", "kind": "hash", "dry_run": True},
            what="what it would take",
        ),
        Example(params={"name": "hash", "kind": "hash"}, what="one that needs no download"),
        Example(params={"name": "/nowhere"}, what="one that does not exist", exit=2),
        Example(params={"undo": True}, what="the way back, if another model was used", exit=5),
    ],
)
def use(call: Call, params: UseModel, write: LongWrite) -> Reply:
    settings = _settings(call, params)
    library, store, spec = call.library, call.library.store, spec_of(settings)

    def tell(stage: str, done: int, total: int | None) -> None:
        call.check_cancelled(embedded=done)
        if total != 0:
            call.progress(stage, done, total, "chunks" if total else "")

    if _downloads(spec, library.embedding.models_folder):
        from kbproc.engine.models import install

        install.install(spec.name, tell=call.progress, cancelled=call.cancelled)
    is_same = spec == library.embedding.spec
    if params.undo or (is_same and library.switch.next_settings is not None):
        is_used, changed = library.switch.undo(tell, call.check_cancelled), True
    else:
        is_used = changed = library.switch.use(settings, tell, call.check_cancelled)
    if is_used:
        write.item(
            lambda here: Decision(events=[ModelUsed(kind=spec.kind, name=spec.name)], data=None)
        )
    pending = library.embedding.pending_count
    embedded = 0 if spec.kind == "none" else store.chunks - pending
    data = Used(name=spec.name, kind=spec.kind, changed=changed, embedded=embedded, pending=pending)
    outcome = write.end(data)
    return Reply(data=outcome.data, seq=max(outcome.seq, store.seq))
