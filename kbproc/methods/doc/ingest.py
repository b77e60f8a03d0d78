"""doc.ingest: read files and folders into a knowledge base."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from kbproc.base import paths as files
from kbproc.base.errors import KbprocError, Retry
from kbproc.base.layout import LayoutPart, Report
from kbproc.base.params import DestructiveParams
from kbproc.base.settings.config import DEFAULT_KB
from kbproc.base.values import OCR_LANGUAGE, Metadata, Tags, check_metadata, clean_tags
from kbproc.base.wording import failure_in_words
from kbproc.engine.events.origin import PERSON, Origin
from kbproc.engine.sources.parse import ocr, unread
from kbproc.engine.sources.parse.formats import OCR_LANGUAGES, ReadOptions
from kbproc.engine.store.decision import Decide, Decision, DecisionState
from kbproc.engine.store.pipeline import LongWrite
from kbproc.knowledge.documents import ingest, lookup
from kbproc.knowledge.documents.ingest import IngestResult
from kbproc.knowledge.documents.selection import ToKb
from kbproc.knowledge.documents.trust import StatedOrigin, check_stated
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.reply import Reply
from kbproc.methods.calls.run import reply_of, who_gives

MAX_FILE_BYTES = 64 << 20
_MOST_ODD = 10  # files of unsupported types that are named without --verbose
Pattern = Annotated[str, Meta(min_length=1, max_length=500, description="such as *.md or docs/**")]


Language = Annotated[str, Meta(pattern=OCR_LANGUAGE)]


class Ingest(DestructiveParams, kw_only=True, frozen=True):
    paths: Annotated[
        list[Annotated[str, Meta(min_length=1, max_length=4096)]],
        Meta(min_length=1, max_length=1000, description="files and folders"),
    ]
    kb: ToKb = DEFAULT_KB
    recursive: Annotated[bool, Meta(description="go into folders within folders")] = True
    glob: Annotated[Pattern, Meta(description="only files whose name or path matches")] | None = (
        None
    )
    exclude: Annotated[
        list[Pattern], Meta(max_length=100, description="patterns to leave out")
    ] = []
    tags: Tags = []
    metadata: Metadata = {}
    origin: StatedOrigin | UnsetType = UNSET  # a token's older requests keep their hash
    prune: Annotated[bool, Meta(description="remove documents whose files are gone")] = False
    all_files: Annotated[
        bool,
        Meta(description="read what git ignores, dependencies, build results and lock files, too"),
    ] = False
    archives: Annotated[
        bool, Meta(description="read the files in ZIP and TAR archives, each as a document")
    ] = False
    ocr: Annotated[
        bool,
        Meta(description="recognise the text of pictures and scanned pages, by tesseract"),
    ] = False
    ocr_languages: Annotated[
        list[Language], Meta(max_length=8, description="as tesseract names them, such as eng, deu")
    ] = []
    max_file_bytes: Annotated[
        int, Meta(ge=1, le=1 << 30, description="larger files are failures")
    ] = MAX_FILE_BYTES


def plan(call: Call, params: Ingest) -> Decide:
    """Returns a dry run's outcome; else only the removals of `prune`, which a person approves."""
    work = _work(call, params)

    def decide(here: DecisionState) -> Decision:
        lookup.require_kb(here, work.kb)
        if params.dry_run:
            return ingest.plan(
                call.store,
                call.library.intake,
                work,
                here,
                tell=partial(call.progress, "parse"),
                check=call.check_cancelled,
            )
        rows = ingest.without_file(here, work) if work.prune else []
        if rows and "admin" not in call.scopes:
            raise KbprocError(
                "auth.insufficient_scope",
                "prune would remove documents and needs the scope admin.",
                field="$.params.prune",
                hint=who_gives(call, "admin"),
                detail={"needed": "admin"},
            )
        return ingest.removal(here, work.kb, rows)

    return decide


def _work(call: Call, params: Ingest) -> ingest.IngestWork:
    root = call.peer.root
    starts = [_start(call, params, index) for index in range(len(params.paths))]
    check_metadata(params.metadata)
    check_stated(call.origin, _origin(params))
    return ingest.IngestWork(
        kb=params.kb,
        starts=starts,
        root=root,
        named=frozenset(starts),
        recursive=params.recursive,
        glob=params.glob,
        exclude=params.exclude,
        max_file_bytes=params.max_file_bytes,
        tags=clean_tags(params.tags),
        metadata=dict(params.metadata),
        origin=_origin(params),
        prune=params.prune,
        all_files=params.all_files,
        runtime=call.peer.runtime,
        options=ReadOptions(parts=True, archives=params.archives, ocr=_languages(call, params)),
        named_by_person=frozenset(starts if _is_persons(call) else ()),
    )


def _is_persons(call: Call) -> bool:
    """Returns True if a person names the files; a hook names those of a client's events."""
    return call.origin == PERSON and call.peer.surface != "hook"


def _origin(params: Ingest) -> Origin | None:
    return None if params.origin is UNSET else params.origin


def _languages(call: Call, params: Ingest) -> str:
    """Returns the languages of text recognition; "" without recognition.

    Those of the store's settings are the default, else English. Raises input.invalid_params for
    languages that tesseract lacks, or if it is not installed.
    """
    if not params.ocr:
        return ""
    if ocr.program() is None:
        raise KbprocError(
            "input.invalid_params",
            f"Text recognition needs the program {ocr.PROGRAM}, which is not installed.",
            field="$.params.ocr",
            hint=f"Install {ocr.PACKAGE} (Debian, Ubuntu) or {ocr.PROGRAM} (Homebrew).",
        )
    setting = call.library.store.settings.get(OCR_LANGUAGES, [])
    languages = params.ocr_languages or [
        str(each) for each in (setting if isinstance(setting, list) else str(setting).split("+"))
    ]
    installed = ocr.languages()
    for index, language in enumerate(languages):
        if language not in installed:
            place = "" if params.ocr_languages else f" store.toml asks for it in {OCR_LANGUAGES}."
            raise KbprocError(
                "input.invalid_params",
                f"{ocr.PROGRAM} has no language {language!r}.{place}",
                field=f"$.params.ocr_languages[{index}]",
                valid_values=installed,
                hint=f"On Debian and Ubuntu, install {ocr.PACKAGE}-{language.replace('_', '-')}.",
            )
    return "+".join(languages) or "eng"


def _start(call: Call, params: Ingest, index: int) -> Path:
    """Returns the path; it need not exist for `prune`.

    Raises resource.not_found, input.invalid_params.
    """
    field, peer, path = f"$.params.paths[{index}]", call.peer, params.paths[index]
    _refuse_no_path(params, path, peer.cwd, field)
    full = files.locate(path, cwd=peer.cwd, root=peer.root, field=field)
    if full.is_relative_to(call.store.origin):
        raise KbprocError(
            "input.invalid_params",
            f"{full} lies within the store itself.",
            field=field,
            hint="Notes are found by note.search and search as they are.",
        )
    return full if params.prune else files.resolve(path, cwd=peer.cwd, root=peer.root, field=field)


def _refuse_no_path(params: Ingest, path: str, cwd: Path, field: str) -> None:
    """Raises input.invalid_params for a web address and for stdin, with the method to use
    instead.
    """
    if re.match(r"https?://", path, re.I):
        raise KbprocError(
            "input.invalid_params",
            f"{path} is a web address, and doc.ingest reads files and folders.",
            field=field,
            hint="Use doc.fetch, which fetches a page or file by its address.",
            retry=_fetching(params) if len(params.paths) == 1 else None,
        )
    if path == "-" and not (cwd / path).exists():
        raise KbprocError(
            "input.invalid_params",
            "- is no file, and doc.ingest reads files and folders.",
            field=field,
            hint="Use doc.create for a text; in a shell --text - takes it from stdin: "
            "kbproc doc create --title TITLE --text -",
        )


def _fetching(params: Ingest) -> Retry:
    labels = {"kb": params.kb, "tags": params.tags, "metadata": params.metadata}
    more: dict[str, Any] = {name: value for name, value in labels.items() if value}
    dry_run = {"dry_run": True} if params.dry_run else {}
    return Retry(method="doc.fetch", params={"url": params.paths[0], **more, **dry_run})


def as_report(data: dict[str, Any], params: dict[str, Any]) -> Report:
    """Returns the answer for people: paths below the folder, no counts of 0."""
    short = partial(_short, typed=params["paths"])
    written = [f"{short(row['path'])} ({row['action']})" for row in data["documents"]]
    left_out = [f"{short(row['path'])}: {row['reason']}" for row in data["skipped_links"]]
    odd = [short(path) for path in data["unsupported_paths"]]
    failed = [
        failure_in_words(row["path"], row["message"], short(row["path"]))
        for row in data["failures"]
    ]
    total = data["added"] + data["updated"] + data["moved"]
    counts = {
        name: value
        for name, value in data.items()
        if name == "added" or (value and not isinstance(value, list) and name != "left_out_tags")
    }
    if data["failed"] and counts.pop("failed_before", None) == data["failed"]:
        counts["failed"] = f"{data['failed']}, as before"
    elif data.get("failed_before"):
        counts["failed"] = f"{data['failed']}, {data['failed_before']} of them as before"
    return Report(
        parts=[
            LayoutPart.cut("Documents", written, total, brief=0),
            LayoutPart.cut("Files of unsupported types", odd, data["unsupported"], brief=_MOST_ODD),
            LayoutPart(heading="Links that were not followed", lines=left_out),
            LayoutPart.cut("Could not be read", failed, data["failed"]),
        ],
        counts={
            **counts,
            "skipped": ", ".join(f"{rule} ({count})" for rule, count in data["skipped"].items()),
            "unread": unread.in_words(data["unread"]),
            "unsupported_kinds": ", ".join(
                f"{kind} ({count})" for kind, count in data.get("unsupported_kinds", {}).items()
            ),
        },
    )


def _short(path: str, typed: Sequence[str]) -> str:
    """Returns the path below the only named folder; else as it is typed in the working folder."""
    with contextlib.suppress(ValueError, OSError, KbprocError):
        start = files.locate(typed[0], cwd=files.working_folder(), root=None, field="paths")
        if len(typed) == 1 and str(start) != path:
            return str(Path(path).relative_to(start))
    return files.from_here(Path(path))


@method(
    "doc.ingest",
    kind="write",
    undone_by=("events.revert",),
    streams=True,
    idempotent=True,
    params=Ingest,
    result=IngestResult,
    plan=plan,
    summary="Read files and folders into a knowledge base.",
    when_to_use="To add files, or to bring a knowledge base up to date: unchanged files cost "
    "nothing, and one bad file never stops the rest.",
    errors=[
        "operation.partial",
        "path.outside_root",
        "resource.not_found",
        "input.confirmation_required",
        "resource.plan_stale",
    ],
    alias="add",
    positional=["paths"],
    layout=as_report,
    examples=[
        Example(params={"paths": ["docs"]}, what="a folder"),
        Example(params={"paths": ["docs"], "dry_run": True}, what="what would be read"),
        Example(params={"paths": ["nowhere"]}, what="a path that does not exist", exit=5),
        Example(params={"paths": ["broken"]}, what="a folder with a damaged PDF", exit=3),
    ],
)
def ingest_files(call: Call, params: Ingest, write: LongWrite) -> Reply:
    work = msgspec.structs.replace(_work(call, params), approved=write.approved.deleted)
    result = ingest.run(
        call.store,
        call.library.intake,
        work,
        write,
        tell=partial(call.progress, "parse"),
        cancelled=call.cancelled,
    )
    outcome = write.end(result, partial=ingest.failure_summary(result))
    return msgspec.structs.replace(
        reply_of(outcome), hint=ingest.hint(result), notice=ingest.notices(result)
    )
