"""store.import: bring in what store.export has written."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Annotated, Any, BinaryIO

import msgspec
from msgspec import UNSET, Meta, UnsetType

from kbproc.base import paths
from kbproc.base.errors import KbprocError
from kbproc.base.layout import LayoutPart, Report
from kbproc.base.params import WriteParams
from kbproc.base.values import KbSlug
from kbproc.base.wording import plural
from kbproc.engine.store.decision import Decide, Decision, DecisionState
from kbproc.engine.store.pipeline import LongWrite
from kbproc.knowledge.transfer import portable
from kbproc.knowledge.transfer.incoming import run
from kbproc.knowledge.transfer.incoming.agents import with_folders
from kbproc.knowledge.transfer.incoming.matching import Brought, Contents, Import, Imported
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.reply import Reply


class ImportFile(WriteParams, kw_only=True, frozen=True):
    path: Annotated[
        str, Meta(min_length=1, max_length=4096, description="a file from store.export")
    ]
    kb: Annotated[KbSlug, Meta(description="put everything into this one")] | None = None
    replace: Annotated[
        bool, Meta(description="make a new revision of what is here with other content")
    ] = False
    folders: Annotated[
        bool,
        Meta(
            description="let new agents have the notes folders that the file names; else the "
            "store's own"
        ),
    ] = False
    keep_origins: (
        Annotated[
            bool,
            Meta(
                description="take over the origins and verifications that the file states, which a "
                "person vouches for; else all that comes in counts as import"
            ),
        ]
        | UnsetType
    ) = UNSET


def plan(call: Call, params: ImportFile) -> Decide:
    work = _work(params)

    def decide(here: DecisionState) -> Decision:
        with _open(call, params) as file:
            return run.plan(call.store, file, _survey(call, params, file), work, here)

    return decide


def _work(params: ImportFile) -> Import:
    return Import(
        kb=params.kb,
        replace=params.replace,
        folders=params.folders,
        keep_origins=params.keep_origins is True,
    )


def _open(call: Call, params: ImportFile) -> BinaryIO:
    peer, field = call.peer, "$.params.path"
    path = paths.resolve(params.path, cwd=peer.cwd, root=peer.root, field=field)
    return portable.open_file(path, within=peer.root)


def _survey(call: Call, params: ImportFile, file: BinaryIO) -> Contents:
    """Returns the file's contents, and the folders for its agents' notes."""
    contents = run.survey(file, _reporter(call, "check", file), call.check_cancelled)
    _check_agents(call, params, contents)
    if params.kb is not None or not params.folders:
        return contents
    agents = with_folders(call.store, contents.agents, root=call.peer.root, emit=call.emit)
    return msgspec.structs.replace(contents, agents=agents)


def _reporter(call: Call, stage: str, file: BinaryIO) -> Callable[[int, str], None]:
    size = max(1, os.fstat(file.fileno()).st_size)

    def tell(offset: int, message: str) -> None:
        call.progress(stage, offset, size, message)

    return tell


def as_report(data: dict[str, Any], params: dict[str, Any]) -> Report:
    """Returns the answer for people, with the ids as a detail and no counts of 0."""
    ids = [f"{before} → {now}" for before, now in data["ids"].items()]
    counts = {name: n for name, n in data.items() if name == "added" or (n and name != "ids")}
    heading = "Ids in the file, and the ids here"
    return Report(parts=[LayoutPart(heading=heading, lines=ids, brief=0)], counts=counts)


@method(
    "store.import",
    kind="write",
    undone_by=("events.revert",),
    streams=True,
    scope="admin",
    idempotent=True,
    params=ImportFile,
    result=Imported,
    item=Brought,
    plan=plan,
    summary="Bring in what store.export has written.",
    when_to_use="To bring documents, entries, agents, notes and sessions from another store; what "
    "is here already stays as it is, so importing twice changes nothing. Documents, entries and "
    "sessions get new ids; the answer maps those of documents and entries. Notes come in "
    "with their files.",
    errors=[
        "resource.not_found",
        "path.outside_root",
        "input.unsupported_type",
        "input.too_large",
        "store.incompatible",
    ],
    positional=["path"],
    layout=as_report,
    examples=[
        Example(params={"path": "nowhere.ndjson"}, what="a file that does not exist", exit=5),
        Example(params={"path": "docs/git-admin.md"}, what="a file that is no export", exit=1),
    ],
)
def import_documents(call: Call, params: ImportFile, write: LongWrite) -> Reply:
    work = _work(params)
    with _open(call, params) as file:
        contents = _survey(call, params, file)
        result = run.run(
            call.store,
            file,
            contents,
            work,
            write,
            sight=call.review_sight,
            intake=call.library.intake,
            report=_reporter(call, "import", file),
            emit=call.emit,
            check=call.check_cancelled,
        )
    outcome = write.end(result)
    hints = _hints(result, params, contents, call.store.model.fingerprint)
    return Reply(data=outcome.data, seq=outcome.seq, hint=" ".join(hints) or None)


def _check_agents(call: Call, params: ImportFile, contents: Contents) -> None:
    actor = call.peer.actor
    if params.kb is None and any(agent.slug == actor for agent in contents.agents):
        raise KbprocError(
            "input.invalid_params",
            f"The file holds an agent {actor!r}, and this very process acts under that name.",
            field="$.params.path",
            hint="It would be bound to that agent: import under another name.",
        )


def _hints(
    result: Imported, params: ImportFile, contents: Contents, fingerprint: str | None
) -> Iterator[str]:
    """Yields hints; `fingerprint` is that of the store's model."""
    if result.conflicts:
        many = plural(result.conflicts, "document is", "documents are")
        yield (
            f"{many} twice in the file once everything is put into {params.kb}; the first won."
            if params.replace
            else f"{many} here with other content and stayed so; replace: true takes the file's."
        )
    if params.kb is not None and contents.agents:
        many = plural(len(contents.agents), "agent and its notes", "agents and their notes")
        yield f"{many} are left out, as everything goes into {params.kb}."
    if params.kb is not None and contents.sessions:
        many = plural(contents.sessions, "session is", "sessions are")
        yield f"{many} left out, as everything goes into {params.kb}."
    if result.watches_added:
        many = plural(result.watches_added, "watched folder is", "watched folders are")
        yield f"{many} listed and not read before you add it here: watch.add."
    if contents.vectors is not None and contents.vectors.fingerprint != fingerprint:
        yield (
            f"The file's vectors are of another model ({contents.vectors.model}): what came in is "
            "embedded here."
        )
    if result.agents_kept:
        many = plural(result.agents_kept, "agent is", "agents are")
        yield f"{many} here with another description and stayed so."
    if result.folders_left:
        many = plural(result.folders_left, "agent has its", "agents have their")
        yield (
            f"{many} notes in the store's own folder and not where the file says; "
            "agent.update names another folder."
        )
    if result.in_review:
        many = plural(result.in_review, "entry waits", "entries wait")
        yield f"{many} for an approval, as in the file: review.list."
    if result.places_left:
        many = plural(
            result.places_left, "source is a file or a commit", "sources are files or commits"
        )
        yield f"{many}, which keep_origins: true takes over: you vouch for the file then."
    if result.sources_left:
        many = plural(result.sources_left, "source is", "sources are")
        yield f"{many} not in the file: what was derived from it won't be marked as changed."
    if result.notes_kept:
        many = plural(result.notes_kept, "note was", "notes were")
        yield f"{many} not written; the events of type warning say why."
