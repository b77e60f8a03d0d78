"""watch.add: keep a folder's documents in step with its files from now on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from kbproc.base import paths as files
from kbproc.base.errors import KbprocError
from kbproc.base.params import WriteParams
from kbproc.base.settings.config import DEFAULT_KB
from kbproc.base.values import Tags, clean_tags
from kbproc.engine.events.watch import FolderWatched
from kbproc.engine.projections.catalog.rows import WatchRow, watch_row
from kbproc.engine.store.decision import Decide, Decision, DecisionState
from kbproc.engine.store.target import Target
from kbproc.knowledge.documents import lookup
from kbproc.knowledge.documents.selection import ToKb
from kbproc.knowledge.watching import watch
from kbproc.knowledge.watching.watch import MOST_FOLDERS, Prune, State, Watch, WatchProgress
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.run import who_gives
from kbproc.methods.doc.ingest import MAX_FILE_BYTES, Pattern


class AddWatch(WriteParams, kw_only=True, frozen=True):
    folder: Annotated[str, Meta(min_length=1, max_length=4096)]
    kb: ToKb = DEFAULT_KB
    glob: Annotated[Pattern, Meta(description="only files whose name or path matches")] | None = (
        None
    )
    exclude: Annotated[
        list[Pattern], Meta(max_length=100, description="patterns to leave out")
    ] = []
    tags: Tags = []
    prune: Annotated[
        Prune,
        Meta(description="documents whose files are gone: removed by hand, by themselves or never"),
    ] = "ask"
    all_files: Annotated[
        bool,
        Meta(description="read what git ignores, dependencies, build results and lock files, too"),
    ] = False
    poll: Annotated[
        bool, Meta(description="look every few seconds, where changes are not reported")
    ] = False
    max_file_bytes: Annotated[
        int, Meta(ge=1, le=1 << 30, description="larger files are failures")
    ] = MAX_FILE_BYTES


def _folder(call: Call, named: str) -> Path:
    """Returns the folder. Raises resource.not_found, input.invalid_params, path.outside_root."""
    field, peer = "$.params.folder", call.peer
    folder = files.resolve(named, cwd=peer.cwd, root=peer.root, field=field)
    why = ""
    if folder.is_relative_to(call.store.origin):
        why = "lies within the store itself"
    elif not folder.is_dir():
        why = "is no folder"
    elif files.printable(folder) != str(folder):
        why = "has a name that is not UTF-8"
    if why:
        raise KbprocError(
            "input.invalid_params",
            f"{files.printable(folder)} {why}.",
            field=field,
            hint="Name a folder of files; doc.ingest reads single files.",
        )
    return folder


def _check_scope(call: Call, params: AddWatch) -> None:
    if params.prune == "auto" and "admin" not in call.scopes:
        raise KbprocError(
            "auth.insufficient_scope",
            "prune auto removes documents later and needs the scope admin.",
            field="$.params.prune",
            hint=who_gives(call, "admin"),
            detail={"needed": "admin"},
        )


@method(
    "watch.add",
    kind="write",
    undone_by=("watch.remove",),
    whole=True,
    scope="doc:write",
    idempotent=True,
    params=AddWatch,
    result=Watch,
    summary="Keep documents in step with a folder.",
    when_to_use="Instead of doc.ingest, for a folder whose files change: the process that has the "
    "store open reads new and changed files by itself. A folder that is watched already gets the "
    "new rules.",
    errors=["resource.not_found", "path.outside_root"],
    positional=["folder"],
    examples=[
        Example(params={"folder": "docs", "glob": "*.md"}, what="the Markdown files of a folder"),
        Example(params={"folder": "nowhere"}, what="a folder that does not exist", exit=5),
    ],
)
def add(call: Call, params: AddWatch) -> Decide:
    _check_scope(call, params)
    folder, root = _folder(call, params.folder), call.peer.root
    event = FolderWatched(
        machine=call.host.machine(),
        path=str(folder),
        kb=params.kb,
        root=None if root is None else str(root),
        glob=params.glob,
        exclude=params.exclude,
        tags=clean_tags(params.tags),
        prune=params.prune,
        all_files=params.all_files,
        max_file_bytes=params.max_file_bytes,
        poll=params.poll,
        origin=call.origin,
    )

    def decide(here: DecisionState) -> Decision:
        lookup.require_kb(here, params.kb)
        rows = here.queries.watches()
        present = next(
            (r for r in rows if (r.machine, r.path) == (event.machine, event.path)), None
        )
        is_same = present is not None and watch.event_of(present) == event
        if present is None:
            _refuse_more(rows, event.machine)
        row = watch_row(event, added_at=here.ts, added_by=call.peer.actor)
        row = present if present and is_same else row
        verb = "watch as before" if is_same else "watch"
        return Decision(
            events=[] if is_same else [event],
            data=watch.watch_of(row, None if is_same else WatchProgress(state=_state(call))),
            targets=[Target(kind="folder", id=event.path, name=event.path)],
            changes=[f"{verb}: {event.path} for {event.kb}"],
            effect=_approving(call, event),
        )

    return decide


def _state(call: Call) -> State:
    return "starting" if call.library.watches.is_started else "idle"


def _refuse_more(rows: list[WatchRow], machine: str) -> None:
    if sum(row.machine == machine for row in rows) >= MOST_FOLDERS:
        raise KbprocError(
            "input.invalid_params",
            f"{MOST_FOLDERS} folders are watched, and no more can be.",
            field="$.params.folder",
            hint="Watch a folder above several of them, with glob and exclude; or end one: "
            "watch.remove.",
        )


def _approving(call: Call, event: FolderWatched) -> Callable[[], None]:
    def approve() -> None:
        watch.approve(call.library.trust, call.store.origin, event)
        call.library.watches.refresh()

    return approve
