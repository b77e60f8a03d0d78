"""Makes documents from files and folders: doc.ingest, its plan and its result.

Each file is new, changed, moved, unchanged, gone or unreadable. A few files are parsed ahead, and
the documents are gathered into records of the log.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import (
    Callable,
    Collection,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from kbproc.base import paths as files
from kbproc.base.errors import KbprocError
from kbproc.base.settings.purged_files import PurgedFiles
from kbproc.base.text.secrets import redactions
from kbproc.base.threads import map_ahead
from kbproc.base.values import MOST_TAGS
from kbproc.base.wording import failure_in_words, few, plural
from kbproc.engine.events.document import (
    CONVERSATION,
    DocChanged,
    DocDeleted,
    DocWritten,
    FileCleared,
    FileFailed,
)
from kbproc.engine.events.event import Event
from kbproc.engine.events.origin import Origin, least_of
from kbproc.engine.projections.catalog.queries import Queries
from kbproc.engine.projections.catalog.rows import DocumentRow
from kbproc.engine.sources import gitignore, walk
from kbproc.engine.sources.blobs import digest
from kbproc.engine.sources.parse import unread
from kbproc.engine.sources.parse.formats import (
    TAIL_BYTES,
    ReadOptions,
    conversion_hint,
    detection,
)
from kbproc.engine.store.decision import Decision, DecisionState, PartialSuccess
from kbproc.engine.store.pipeline import LongWrite
from kbproc.engine.store.state import SeenStore
from kbproc.knowledge.documents.content import (
    ENDS_ALL,
    Intake,
    NothingToRead,
    RawSource,
    UnderWay,
    emptied,
    options_of,
    read_some,
    with_holder,
)
from kbproc.knowledge.documents.document import Unread
from kbproc.knowledge.documents.file_dates import FileDates
from kbproc.knowledge.documents.lookup import require_kb
from kbproc.knowledge.documents.moves import FormerFiles, holders, is_gone, lies_below, stamp_of
from kbproc.knowledge.documents.resumed import (
    RESUMED_FROM,
    ResumedSessions,
    has_lost_beginning,
)
from kbproc.knowledge.documents.revision import (
    Content,
    Ids,
    Labels,
    document_written,
    fills_record,
    is_bulk,
    labels_of,
    origin_with,
    targets_of,
)

_READERS = 8
# Files that are read and parsed together, because each round trip to the parsers costs as much as
# parsing a short file.
_MOST_TOGETHER = 16
_BYTES_TOGETHER = 64 << 10
_MOST_LISTED = 100
# The error of a document whose archive or mail is there, and its file no longer in it.
_NO_LONGER_HELD = "resource.not_found"

WriteAction = Literal["added", "updated", "moved"]
Action = WriteAction | Literal["unchanged", "empty", "failed", "removed", "unsupported", "mended"]


class FileOutcome(Struct, frozen=True, kw_only=True):
    """The outcome of one file; `content` if a document is to be written.

    `former`: the document that a new file continues. `relabels`: the file is unchanged, and the
    tags or metadata of the request are new. `kind`: what an unsupported file is, in words. `note`:
    a sentence for the reader of the answer. The action `mended`: a folder or link, which can be
    looked at now and could not be before. `left_out_tags`: those of the request that an unchanged
    file's document can't have.
    """

    path: str
    action: Action
    content: Content | None = None
    error: KbprocError | None = None
    sha256: str | None = None
    former: DocumentRow | None = None
    relabels: bool = False
    left_out_tags: list[str] = []
    kind: str | None = None
    note: str | None = None

    @property
    def is_removal(self) -> bool:
        """True if a document is to be deleted."""
        return self.action == "removed"

    @property
    def is_write(self) -> bool:
        """True if a document is to be written."""
        return self.content is not None or self.relabels


class IngestWork(Struct, frozen=True, kw_only=True):
    """An ingest's params, resolved."""

    kb: str
    starts: list[Path]
    root: Path | None
    named: frozenset[Path]
    recursive: bool
    glob: str | None
    exclude: Sequence[str]
    max_file_bytes: int
    tags: list[str]
    metadata: dict[str, Any]
    prune: bool
    all_files: bool = False
    runtime: Path | None = None  # the folder of sockets, logs and secrets, which is never read
    options: ReadOptions = ReadOptions(parts=True)
    approved: frozenset[int] = frozenset()  # documents whose removal was confirmed
    origin: Origin | None = None
    only_type: str | None = None  # files of other types count as unsupported
    # Files that a person has named: these are read, even if their documents were purged.
    named_by_person: frozenset[Path] = frozenset()


class FoundFiles(NamedTuple):
    """The files of an ingest, and the paths that are not read.

    `paths`: each file with the folder that it has to lie in. `failures`: paths that can't be looked
    at. `mended`: paths that failed before and can be looked at now. `left_out`: excluded by rules.
    `folders`: those that were listed. `other_files`: files that are there and need not be read.
    """

    paths: dict[Path, Path]
    failures: list[FileOutcome]
    mended: list[FileOutcome]
    left_out: walk.Omissions
    folders: list[Path]
    other_files: Collection[Path] = ()


def find_files(
    store: SeenStore, work: IngestWork, failed_before: Collection[str], check: Callable[[], None]
) -> FoundFiles:
    """Returns every file once, in the order of the params, and never kbproc's own files.

    `check` may raise between two files.
    """
    folders: dict[Path, Path] = {}
    failures: dict[str, FileOutcome] = {}
    mended: set[str] = set()
    listed_folders: list[Path] = []
    left_out = walk.Omissions()

    def note_failure(path: Path, why: KbprocError) -> None:
        name = files.printable(path)
        failures[name] = FileOutcome(path=name, action="failed", error=why)

    def note_mended(path: Path) -> None:
        if (name := files.printable(path)) in failed_before:
            mended.add(name)

    for start in work.starts:
        if work.prune and files.is_gone(start):
            continue
        for path in walk.walk(
            start,
            root=work.root,
            recursive=work.recursive,
            glob=work.glob,
            exclude=work.exclude,
            all_files=work.all_files,
            on_error=note_failure,
            on_visit=note_mended,
            on_folder=listed_folders.append,
            left_out=left_out,
            check=check,
        ):
            folders[path] = work.root or (start.parent if path == start else start)
    own = tuple(
        f"{place.resolve()}/" for place in (store.origin, work.runtime) if place is not None
    )
    paths = {path: start for path, start in folders.items() if not f"{path}/".startswith(own)}
    mended_outcomes = [
        FileOutcome(path=path, action="mended") for path in sorted(mended - failures.keys())
    ]
    return FoundFiles(paths, list(failures.values()), mended_outcomes, left_out, listed_folders)


def run(
    store: SeenStore,
    intake: Intake,
    work: IngestWork,
    write: LongWrite,
    *,
    tell: Callable[[int, int, str], None],
    cancelled: Callable[[], bool],
    listing: FoundFiles | None = None,
    on_unread: Callable[[str, str], None] = lambda path, message: None,
) -> IngestResult:
    """Ingests the files; each batch is durable when the next begins. Raises operation.cancelled.

    `tell` gets how many files were read, of how many, and the last file's name; while a large file
    is read, that file's name and progress. `listing`: the files, if they were looked for already.
    `on_unread` gets each path that the system refused to read, with the message.
    """
    before = _known_files(store, work.kb)
    documents, failed_before = before.files, before.failed
    _require_starts(work, {**documents, **failed_before})
    resumed, result = write.written(), IngestResult(kb=work.kb)
    batch: list[FileOutcome] = []
    chunk_count = 0

    def check() -> None:
        if cancelled():
            raise _stopped(result, read, total)

    read = total = 0
    listing = listing or find_files(store, work, failed_before, check)
    passing, listing = _passing(intake, work, listing, result)
    paths = listing.paths
    total = len(paths)

    def report(message: str) -> None:
        tell(read, total, message)

    outcomes = _examine_all(intake, work, paths, documents, keep=True, tell=report)
    items = passing.others(outcomes)
    no_files = [*listing.failures, *listing.mended]
    for number, examined in enumerate(chain(no_files, items), 1 - len(no_files)):
        item = _with_former(examined, before.former)
        if refusal := _refusal(work, item):
            items.close()
            raise refusal
        _count(result, item, documents, resumed)
        is_news = _failure_is_news(item, failed_before)
        _list_failure(result, item, is_known=not (resumed or is_news), on_unread=on_unread)
        if item.is_write or item.is_removal or is_news:
            batch.append(item)
            chunk_count += len(item.content.chunks) if item.content else 0
        if fills_record(len(batch), chunk_count):
            _commit(write, work, batch, before, result)
            batch, chunk_count = [], 0
        if number > 0:
            read = min(number, total)
            tell(read, total, item.path.rpartition("/")[2])
        if cancelled():
            items.close()
            _commit(write, work, batch, before, result)
            check()
    _commit(write, work, batch, before, result)
    passing.end(result)
    return _with_gone(result, write, work, before, {*paths, *listing.other_files})


def _with_gone(
    result: IngestResult,
    write: LongWrite,
    work: IngestWork,
    before: KnownFiles,
    present: Collection[Path],
) -> IngestResult:
    """Returns the result with the documents whose files are gone; these are removed by `prune`."""
    pruned = write.item(lambda here: prune(here, work)).removed if work.prune else 0
    result.removed += pruned
    result.gone = _count_gone(before, work, present) - pruned
    return result


def _stopped(result: IngestResult, read: int, total: int) -> KbprocError:
    """Returns the error of an ingest that was stopped after `read` files; its documents stay."""
    written = [
        f"{count:,} {action}"
        for action in ("added", "updated", "moved")
        if (count := getattr(result, action))
    ]
    hint = f"{read:,} of {plural(total, 'file')} were read, and nothing was added."
    if written:
        hint = (
            f"{read:,} of {total:,} files were read: {', '.join(written)}. These stay, found by "
            "words until a later command embeds them; the same command goes on with the other "
            "files."
        )
    message = "The client cancelled the ingest."
    return KbprocError("operation.cancelled", message, hint=hint, detail=counts(result))


def _passing(
    intake: Intake, work: IngestWork, listing: FoundFiles, result: IngestResult
) -> tuple[_Passing, FoundFiles]:
    """Returns the filter of purged files, and the files to read; lists the omissions."""
    passing = _Passing(intake.purged_files, work)
    _list_left_out(result, listing.left_out)
    return passing, passing.without(listing)


class _Passing:
    """The files that this ingest passes over, because their documents were purged."""

    def __init__(self, purged_files: PurgedFiles, work: IngestWork) -> None:
        self._purged_files = purged_files
        self._is_held = purged_files.check()
        self._named = {str(path) for path in work.named_by_person}
        self._paths: list[str] = []
        self._released: list[str] = []

    def without(self, listing: FoundFiles) -> FoundFiles:
        """Returns the files to read; the held ones are there and are not read."""
        if self._is_held is None:
            return listing
        paths = {path: top for path, top in listing.paths.items() if not self.holds(str(path))}
        passed_over = listing.paths.keys() - paths.keys()
        return listing._replace(paths=paths, other_files=[*listing.other_files, *passed_over])

    def holds(self, path: str) -> bool:
        """Returns True if the file is held, and no person has named it or a file around it."""
        if self._is_held is None or not self._is_held(path):
            return False
        is_named = not self._named.isdisjoint([path, *holders(path)])
        (self._released if is_named else self._paths).append(path)
        return not is_named

    def others(self, items: Generator[FileOutcome]) -> Generator[FileOutcome]:
        """Yields the outcomes of files that are not held."""
        with contextlib.closing(items):
            yield from (item for item in items if not self.holds(item.path))

    def end(self, result: IngestResult) -> None:
        """Lists the held files, and releases those that a person has named. Raises store.io."""
        self.tell(result)
        if self._released:
            self._purged_files.release(self._released)

    def tell(self, result: IngestResult) -> None:
        if self._paths:
            names = [files.printable(Path(path)) for path in dict.fromkeys(self._paths)]
            result.purged_files = names[:_MOST_LISTED]


def _with_former(item: FileOutcome, former: FormerFiles) -> FileOutcome:
    """Returns the outcome with the document that its new file continues, if any."""
    if item.action != "added" or item.content is None:
        return item
    row = former.take(item.path, item.content.sha256)
    if row is None:
        return item
    return replace(item, action="added" if row.path == item.path else "moved", former=row)


def _count_gone(before: KnownFiles, work: IngestWork, paths: Collection[Path]) -> int:
    """Returns how many documents below the given paths have lost their files, and were not moved.

    It uses the rows from before the ingest, because a query now would make the catalog fold in
    everything that the ingest wrote.
    """
    present = set(map(str, paths))
    return sum(
        1
        for path, row in before.files.items()
        if path not in present
        and row.id not in before.former.continued_ids
        and lies_below(path, work.starts)
        and _has_lost_file(path, before.failed)
    )


def _has_lost_file(path: str, failed: Mapping[str, tuple[str, str, str | None]]) -> bool:
    """Returns True if the document's file is gone, or its archive or mail no longer holds it."""
    return is_gone(path) or (path in failed and failed[path][0] == _NO_LONGER_HELD)


class KnownFiles(Struct):
    """A knowledge base's files as they were at `seq`; only this ingest has written since.

    `failed`: by path, the error's type and message and the digest of the file that failed.
    """

    files: dict[str, DocumentRow]
    failed: dict[str, tuple[str, str, str | None]]
    former: FormerFiles
    seq: int


def _known_files(store: SeenStore, kb: str) -> KnownFiles:
    with store.reading() as snapshot:
        queries = snapshot.queries
        live = queries.paths(kb)
        former = FormerFiles(live.values(), queries.pruned(kb))
        return KnownFiles(live, queries.failures(kb), former, snapshot.seq)


def _examine_all(
    intake: Intake,
    work: IngestWork,
    paths: dict[Path, Path],
    documents: dict[str, DocumentRow],
    *,
    keep: bool,
    tell: Callable[[str], None],
) -> Generator[FileOutcome]:
    """Yields the outcome of each file, in order. `keep` False: a preview, which stores nothing.

    `tell` gets the progress of a large file, as long as no other file is done.
    """
    under_way, sessions = UnderWay(), ResumedSessions(intake.blobs, documents)
    parts = _parts_by_holder(documents)
    dates = FileDates(paths, work.root)

    def report_progress() -> None:
        if message := under_way.news():
            tell(message)

    def examine(group_paths: list[Path]) -> list[FileOutcome | _ReadFile]:
        rows = [documents.get(str(path)) for path in group_paths]
        with contextlib.closing(files.PathReading()) as reading:
            inspections = [
                _inspect(
                    intake,
                    work,
                    path,
                    partial(reading.read, path, within=paths[path]),
                    row,
                    parts.get(str(path), {}),
                    keep,
                )
                for path, row in zip(group_paths, rows, strict=True)
            ]
        sources = [inspected for inspected in inspections if isinstance(inspected, RawSource)]
        contents = iter(read_some(intake, sources, under_way, keep=keep))
        return [
            _ReadFile(path, row, inspected, next(contents))
            if isinstance(inspected, RawSource)
            else inspected
            for path, row, inspected in zip(group_paths, rows, inspections, strict=True)
        ]

    def outcomes(file: FileOutcome | _ReadFile) -> list[FileOutcome]:
        if isinstance(file, FileOutcome):
            return [file]
        content = _without_copies(intake, sessions, file, under_way, keep=keep)
        if isinstance(content, NothingToRead):
            return [_emptied(intake, file.path, file.row, file.source, keep=keep)]
        if keep and isinstance(content, Content):
            content = _dated(content, dates.of(file.path, file.source.stamp, file.source.data))
        return _read_outcomes(file.path, file.row, file.source, content, work, documents)

    groups = map_ahead(
        examine, _groups(paths), threads=_READERS, name="ingest", while_waiting=report_progress
    )
    with contextlib.closing(groups):
        for group in groups:
            for file in group:
                yield from outcomes(file)


class _ReadFile(NamedTuple):
    """A file, the document that it has, its bytes, and what was read of them."""

    path: Path
    row: DocumentRow | None
    source: RawSource
    content: Content | KbprocError


def _without_copies(
    intake: Intake,
    sessions: ResumedSessions,
    file: _ReadFile,
    under_way: UnderWay,
    *,
    keep: bool,
) -> Content | KbprocError:
    """Returns a session's content without the messages that its client copied from another log.

    It is called for one file after another, in the order of the files.
    """
    path, source, content = str(file.path), file.source, file.content
    if isinstance(content, KbprocError) or not content.messages:
        return content
    copied, log = sessions.copies(path, content.messages)
    if copied:
        options = replace(source.options, earlier=copied)
        [content] = read_some(intake, [source._replace(options=options)], under_way, keep=keep)
        if isinstance(content, KbprocError):
            return content
        content = replace(content, metadata={**content.metadata, RESUMED_FROM: log})
    sessions.note(path, content.messages)
    return content


def _dated(content: Content, modified_at: str | None) -> Content:
    """Returns the content with the date of its file, which is that of the files within it, too."""
    parts = [
        (name, sha256, _dated(part, modified_at) if isinstance(part, Content) else part)
        for name, sha256, part in content.parts
    ]
    return replace(content, modified_at=modified_at, parts=parts)


def _parts_by_holder(documents: dict[str, DocumentRow]) -> dict[str, dict[str, DocumentRow]]:
    """Returns path → the documents of files within that file, by their paths there."""
    parts: dict[str, dict[str, DocumentRow]] = {}
    for path, row in documents.items():
        holder, within, name = path.partition(files.WITHIN)
        if within:
            parts.setdefault(holder, {})[name] = row
    return parts


def _groups(paths: Collection[Path]) -> Iterator[list[Path]]:
    """Yields short files in groups, if there are many; a long file is a group of its own."""
    most = min(_MOST_TOGETHER, len(paths) // (4 * _READERS))
    group, room = list[Path](), _BYTES_TOGETHER
    for path in paths:
        size = _size(path)
        if group and (len(group) >= most or size > room):
            yield group
            group, room = [], _BYTES_TOGETHER
        group.append(path)
        room -= size
    if group:
        yield group


def _size(path: Path) -> int:
    """Returns the file's size; 0 if it can't be looked at, because reading it raises the error."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _inspect(
    intake: Intake,
    work: IngestWork,
    path: Path,
    read: Callable[[int], bytes],
    earlier: DocumentRow | None,
    parts: dict[str, DocumentRow],
    keep: bool,
) -> FileOutcome | RawSource:
    """Returns the file's bytes if they are to be parsed, else its outcome.

    `parts`: the documents of files within the file.
    """
    name, sha256, stamp = files.printable(path), None, stamp_of(path)
    try:
        if name != str(path):
            raise KbprocError("operation.failed", f"The name {name} is not UTF-8.")
        stamps = {row.stamp for row in (earlier, *parts.values()) if row is not None}
        is_known = earlier is not None and bool(stamp) and stamp in stamps
        if earlier is not None and is_known and not has_lost_beginning(earlier):
            return _unchanged(name, earlier, work)
        data = read(work.max_file_bytes)
        sha256 = digest(data)
        again = earlier is not None and _is_to_be_recognised(earlier, work.options)
        if earlier is not None and earlier.sha256 == sha256 and not again:
            if keep:
                intake.blobs.heal(sha256, data)
            return _unchanged(name, earlier, work)
        options = _options_for(work, earlier)
        detected = detection(path.name, data[:4096], options, data[-TAIL_BYTES:])
        if detected.type is None or work.only_type not in (None, detected.type):
            return _unsupported(path, path in work.named, detected.kind)
        source = RawSource(data, detected.type, path.name, options, detected.note, stamp)
        if not data.strip():
            return _emptied(intake, path, earlier, source, keep=keep)
        if detected.type == CONVERSATION:
            digests = {name: row.sha256 for name, row in parts.items()}
            return source._replace(options=replace(options, digests=digests))
        return source
    except KbprocError as error:
        if error.type in ENDS_ALL:
            raise
        return FileOutcome(path=name, action="failed", error=error, sha256=sha256)


def _unchanged(name: str, row: DocumentRow, work: IngestWork) -> FileOutcome:
    """Returns the outcome of a file whose document has its content, but maybe not the labels."""
    if _labels_differ(work, row):
        return FileOutcome(path=name, action="updated", sha256=row.sha256, relabels=True)
    left_out = _all_tags(row, work)[MOST_TAGS:]
    return FileOutcome(path=name, action="unchanged", sha256=row.sha256, left_out_tags=left_out)


def _is_to_be_recognised(row: DocumentRow, options: ReadOptions) -> bool:
    """Returns True if the document has pages without text, which OCR has not been tried on."""
    return bool(options.ocr) and "pages_without_text" in row.unread and not options_of(row).ocr


def _options_for(work: IngestWork, earlier: DocumentRow | None) -> ReadOptions:
    """Returns the options of the request, with those by which the file was read last."""
    if earlier is None:
        return work.options
    last = options_of(earlier)
    return replace(
        work.options,
        archives=work.options.archives or last.archives,
        ocr=work.options.ocr or last.ocr,
    )


def _labels_differ(work: IngestWork, row: DocumentRow) -> bool:
    """Returns True if the tags and metadata of the request change those of the document."""
    return (_all_tags(row, work)[:MOST_TAGS], _metadata_with(row, work)) != (
        list(row.tags),
        msgspec.json.decode(row.metadata),
    )


def _all_tags(row: DocumentRow, work: IngestWork) -> list[str]:
    """Returns the document's tags and those of the request, of which it has at most MOST_TAGS."""
    return list(dict.fromkeys([*row.tags, *work.tags]))


def _metadata_with(row: DocumentRow, work: IngestWork) -> dict[str, Any]:
    return {**msgspec.json.decode(row.metadata), **work.metadata}


def _read_outcomes(
    path: Path,
    earlier: DocumentRow | None,
    source: RawSource,
    content: Content | KbprocError,
    work: IngestWork,
    documents: Mapping[str, DocumentRow],
) -> list[FileOutcome]:
    """Returns the outcome of a file, then those of the files within it."""
    outcome = _read_outcome(path, earlier, source.data, content, work)
    outcomes = [replace(outcome, note=source.note)]
    prefix = f"{path}{files.WITHIN}"
    if isinstance(content, Content):
        outcomes += (
            _part_outcome(prefix, name, sha256, part, documents.get(f"{prefix}{name}"), work)
            for name, sha256, part in content.parts
        )
    if isinstance(content, Content) and earlier is not None:
        paths = {outcome.path for outcome in outcomes}
        outcomes += (
            _no_longer_held(path, row)
            for name, row in documents.items()
            if name.startswith(prefix) and name not in paths
        )
    return outcomes


def _part_outcome(
    prefix: str,
    name: str,
    sha256: str,
    content: Content | KbprocError | None,
    earlier: DocumentRow | None,
    work: IngestWork,
) -> FileOutcome:
    """Returns the outcome of a file within another; its metadata names the file that holds it.

    `content`: None if the file was read before, so that `earlier` has the same digest.
    """
    path = f"{prefix}{name}"
    if isinstance(content, KbprocError):
        if isinstance(content, NothingToRead):
            return _empty_part(path, earlier, content)
        return FileOutcome(path=path, action="failed", error=content, sha256=sha256)
    if earlier is not None and earlier.sha256 == sha256:
        relabels = _labels_differ(work, earlier)
        action: Action = "updated" if relabels else "unchanged"
        return FileOutcome(path=path, action=action, sha256=sha256, relabels=relabels)
    assert content is not None  # noqa: S101  only what is known has none
    return FileOutcome(
        path=path,
        action="updated" if earlier else "added",
        content=with_holder(content, path),
    )


def _no_longer_held(holder: Path, row: DocumentRow) -> FileOutcome:
    """Returns the outcome of a part that is gone: a failure, because it may have been all there is.

    A segment of a session is removed, because the session's log was cut back.
    """
    from kbproc.engine.sources.parse.conversation import segment_number

    name = (row.path or "").rpartition("/")[2]
    if row.type == CONVERSATION and segment_number(name) is not None:
        return FileOutcome(path=row.path or "", action="removed", sha256=row.sha256)
    error = KbprocError(
        _NO_LONGER_HELD,
        f"{holder.name} no longer holds {name}; document {row.id} keeps its earlier text.",
    )
    return FileOutcome(path=row.path or "", action="failed", error=error, sha256=row.sha256)


def _read_outcome(
    path: Path,
    earlier: DocumentRow | None,
    data: bytes,
    content: Content | KbprocError,
    work: IngestWork,
) -> FileOutcome:
    if isinstance(content, KbprocError):
        return FileOutcome(path=str(path), action="failed", error=content, sha256=digest(data))
    if content.stamp and earlier is not None and earlier.sha256 == content.sha256:
        return _unchanged(str(path), earlier, work)
    return FileOutcome(path=str(path), action="updated" if earlier else "added", content=content)


def _unsupported(path: Path, named: bool, kind: str | None) -> FileOutcome:
    """Returns the outcome of a file that no parser reads: a failure if the request named it."""
    if not named:
        return FileOutcome(path=files.printable(path), action="unsupported", kind=kind)
    error = KbprocError(
        "input.unsupported_type",
        f"No parser reads {path.name}{f': it is {kind}' if kind else ''}.",
        hint=conversion_hint(path.name, kind),
    )
    return FileOutcome(path=str(path), action="failed", error=error)


def _emptied(
    intake: Intake, path: Path, earlier: DocumentRow | None, source: RawSource, *, keep: bool
) -> FileOutcome:
    """Returns the outcome of a file without any text, which has a document only if it had some."""
    if earlier is None:
        return FileOutcome(path=str(path), action="empty")
    back = f"doc.restore with revision {earlier.revision} of document {earlier.id} brings it back"
    return FileOutcome(
        path=str(path),
        action="updated",
        content=emptied(intake, source, keep=keep),
        note=f"{path.name} is empty now, and its earlier text is not searched: {back}.",
    )


def _empty_part(path: str, earlier: DocumentRow | None, error: KbprocError) -> FileOutcome:
    """Returns the outcome of an empty file within another: a failure if it had a text before."""
    if earlier is None:
        return FileOutcome(path=path, action="empty")
    name = path.rpartition("/")[2]
    message = f"{name} is empty now; document {earlier.id} keeps its earlier text."
    return FileOutcome(path=path, action="failed", error=KbprocError(error.type, message))


def _count(
    result: IngestResult,
    item: FileOutcome,
    documents: dict[str, DocumentRow],
    resumed: dict[int, int],
) -> None:
    """Counts the outcome in `result`.

    Files that an earlier, unfinished run of this command wrote count as written now.
    """
    if item.note is not None and item.error is None:
        notes = [] if result.notes is UNSET else result.notes
        result.notes = [*notes, item.note][:_MOST_LISTED]
    row = documents.get(item.path)
    if item.action == "unchanged" and row is not None and row.id in resumed:
        action: WriteAction = "added" if resumed[row.id] == 1 else "updated"
        _list_changed(result, row.id, item.path, action, row.unread)
        result.chunks += row.chunk_count
    elif item.action == "unchanged":
        result.unchanged += 1
        _list_left_out_tags(result, item.path, item.left_out_tags)
    elif item.action == "empty":
        result.empty += 1
    elif item.action == "unsupported":
        _count_unsupported(result, item)


def _count_unsupported(result: IngestResult, item: FileOutcome) -> None:
    result.unsupported += 1
    if item.kind is not None:
        kinds = {} if result.unsupported_kinds is UNSET else result.unsupported_kinds
        result.unsupported_kinds = {**kinds, item.kind: kinds.get(item.kind, 0) + 1}
    if len(result.unsupported_paths) < _MOST_LISTED:
        result.unsupported_paths.append(item.path)


def _list_failure(
    result: IngestResult,
    item: FileOutcome,
    *,
    is_known: bool,
    on_unread: Callable[[str, str], None],
) -> None:
    """Lists new failures before those that failed in the same way before."""
    if item.error is None:
        return
    if item.error.retryable and item.sha256 is None:
        on_unread(item.path, item.error.message)
    failure = FileFailure(path=item.path, type=item.error.type, message=item.error.message)
    place = len(result.failures) if is_known else result.failed - result.failed_before
    result.failures.insert(place, failure)
    del result.failures[_MOST_LISTED:]
    result.failed += 1
    result.failed_before += is_known


def _refusal(work: IngestWork, item: FileOutcome) -> KbprocError | None:
    """Returns the error of the whole request if its only path is a file that no parser reads."""
    if item.error is None or item.error.type != "input.unsupported_type":
        return None
    if work.starts != [Path(item.path)]:
        return None
    return KbprocError(
        item.error.type, item.error.message, field="$.params.paths[0]", hint=item.error.hint
    )


def _list_changed(
    result: IngestResult, id: int, path: str, action: WriteAction, unread_counts: dict[str, int]
) -> None:
    setattr(result, action, getattr(result, action) + 1)
    result.unread = unread.total([result.unread, unread_counts])
    if len(result.documents) < _MOST_LISTED:
        change = Changed(id=id, path=path, action=action, unread=unread_counts or UNSET)
        result.documents.append(change)


def _list_left_out_tags(result: IngestResult, path: str, tags: list[str]) -> None:
    if tags:
        listed = {} if result.left_out_tags is UNSET else result.left_out_tags
        result.left_out_tags = listed
        if len(listed) < _MOST_LISTED:
            listed[path] = tags


def _list_left_out(result: IngestResult, left_out: walk.Omissions) -> None:
    result.skipped = dict(sorted(left_out.by_rule.items()))
    result.skipped_links = [
        LinkSkipped(
            path=files.printable(link.path), target=files.printable(link.target), reason=link.reason
        )
        for link in left_out.links[:_MOST_LISTED]
    ]


def _failure_is_news(item: FileOutcome, before: dict[str, tuple[str, str, str | None]]) -> bool:
    if item.error is None:
        return item.action != "unsupported" and item.path in before
    return before.get(item.path) != (item.error.type, item.error.message, item.sha256)


def _commit(
    write: LongWrite,
    work: IngestWork,
    batch: list[FileOutcome],
    before: KnownFiles,
    result: IngestResult,
) -> None:
    if not batch:
        return
    written, is_alone = write.item(lambda here: _batch(here, work, batch, before))
    if is_alone:
        before.seq = write.seq
    # A file that another writer ingested first counts as unchanged.
    result.unchanged += sum(item.is_write for item in batch) - len(written)
    result.removed += sum(item.is_removal for item in batch)
    for item, event, left_out_tags in written:
        _list_left_out_tags(result, item.path, left_out_tags)
        counts = item.content.unread if item.content else {}
        _list_changed(result, event.id, item.path, _action_of(item, event), counts)
        if isinstance(event, DocWritten):
            result.chunks += len(event.chunks)


class _WrittenFile(NamedTuple):
    """A file, the event that updates its document, and tags that the document can't have."""

    item: FileOutcome
    event: DocWritten | DocChanged
    left_out_tags: list[str]


def _batch(
    here: DecisionState,
    work: IngestWork,
    batch: list[FileOutcome],
    before: KnownFiles,
) -> Decision:
    """Returns the decision that writes the batch.

    If others have written since, the documents are looked up again, because another writer may
    have ingested the same files first.
    """
    require_kb(here, work.kb)
    is_alone, documents = here.head.seq == before.seq, before.files
    if not is_alone:
        documents = here.queries.documents_at(work.kb, [item.path for item in batch])
    ids = Ids(here)
    events: list[Event] = []
    written: list[_WrittenFile] = []
    for item in batch:
        existing = documents.get(item.path)
        if item.error is not None:
            events.append(_failure_event(work.kb, item, item.error))
            continue
        if item.path in before.failed:
            events.append(FileCleared(kb=work.kb, path=item.path))
        if item.is_removal and existing is not None and existing.sha256 == item.sha256:
            events.append(DocDeleted(id=existing.id))
        file = _written_file(here, work, item, existing, ids, is_alone=is_alone)
        if file is not None:
            events.append(file.event)
            written.append(file)
    return Decision(events=events, data=(written, is_alone))


def _action_of(item: FileOutcome, event: DocWritten | DocChanged) -> WriteAction:
    """Returns the action that `event` stands for.

    It may differ from the item's action, because another writer may have been faster.
    """
    if isinstance(event, DocChanged):
        return "updated"
    if event.moved_from is not None:
        return "moved"
    is_back = item.former is not None and item.former.id == event.id
    return "added" if event.revision == 1 or is_back else "updated"


def _failure_event(kb: str, item: FileOutcome, error: KbprocError) -> FileFailed:
    return FileFailed(
        kb=kb, path=item.path, error=error.type, message=error.message, sha256=item.sha256
    )


def _written_file(
    here: DecisionState,
    work: IngestWork,
    item: FileOutcome,
    existing: DocumentRow | None,
    ids: Ids,
    *,
    is_alone: bool,
) -> _WrittenFile | None:
    """Returns the file with its event; None if the document is up to its file already."""
    if item.relabels and existing is not None and existing.sha256 == item.sha256:
        return _relabelled_file(here, work, item, existing)
    content = item.content
    if content is None:
        return None
    is_same = existing is not None and existing.sha256 == content.sha256
    if is_same and not (existing and _is_to_be_recognised(existing, work.options)):
        return None
    former = item.former if existing is None else None
    if former is not None and not is_alone:
        former = _unless_changed(here, former)
    row = existing or former
    labels = labels_of(content, row, work.tags, work.metadata)
    event = _file_event(here, work, item.path, content, row, ids, labels)
    return _WrittenFile(item, event, labels.left_out_tags)


def _relabelled_file(
    here: DecisionState, work: IngestWork, item: FileOutcome, row: DocumentRow
) -> _WrittenFile | None:
    if not _labels_differ(work, row):
        return None
    all_tags, metadata = _all_tags(row, work), _metadata_with(row, work)
    origin = origin_with(here, row, title=row.title, metadata=metadata)
    event = DocChanged(
        id=row.id,
        revision=row.revision + 1,
        title=row.title,
        tags=all_tags[:MOST_TAGS],
        metadata=metadata,
        origin=origin if origin != row.origin else None,
    )
    return _WrittenFile(item, event, all_tags[MOST_TAGS:])


def _unless_changed(here: DecisionState, row: DocumentRow) -> DocumentRow | None:
    """Returns the document; None if another writer has changed it since it was chosen."""
    now = here.queries.document(row.id)
    return row if now is not None and now.touched == row.touched else None


def _file_event(
    here: DecisionState,
    work: IngestWork,
    path: str,
    content: Content,
    existing: DocumentRow | None,
    ids: Ids,
    labels: Labels,
) -> DocWritten:
    """Returns the event of the file's new revision."""
    before = None if existing is None else existing.origin
    return document_written(
        here,
        content,
        kb=work.kb,
        existing=existing,
        ids=ids,
        tags=labels.tags,
        metadata=labels.metadata,
        source_facts=labels.source_facts,
        origin=work.origin or least_of(before, content.origin),
        moved_from=existing.path if existing and existing.path != path else None,
        path=path,
    )


# --------------------------------------------------------------------------- prune


class PruneCount(Struct, frozen=True):
    removed: int


def without_file(here: DecisionState, work: IngestWork) -> list[DocumentRow]:
    """Returns the documents below the given paths whose files do not exist any more."""
    failed = here.queries.failures(work.kb)
    return [
        row
        for path, row in sorted(here.queries.paths(work.kb).items())
        if lies_below(path, work.starts) and _has_lost_file(path, failed)
    ]


def count_below(queries: Queries, work: IngestWork) -> int:
    """Returns the number of documents below the given paths."""
    return sum(lies_below(path, work.starts) for path in queries.paths(work.kb))


def removal(
    here: DecisionState, kb: str, rows: list[DocumentRow], moved: Collection[int] = ()
) -> Decision:
    """Returns the decision that a person approves before prune removes `rows`.

    `moved`: documents that stay because new files continue them.
    """
    return Decision(
        events=[DocDeleted(id=row.id) for row in rows],
        data=None,
        targets=targets_of(rows),
        changes=[f"removed: {row.path}" for row in rows if row.id not in moved],
        bulk=is_bulk(here, kb, len(rows)) if rows else False,
        destructive=bool(rows),
    )


def _require_starts(work: IngestWork, known_paths: Iterable[str]) -> None:
    """Raises resource.not_found for a path that is not there and has never been read."""
    for index, start in enumerate(work.starts):
        if files.is_gone(start) and not any(
            Path(path).is_relative_to(start) for path in known_paths
        ):
            raise KbprocError(
                "resource.not_found",
                f"There is no file or folder {start}.",
                field=f"$.params.paths[{index}]",
            )


def prune(here: DecisionState, work: IngestWork) -> Decision:
    """Returns the decision that removes the approved documents whose files are still gone."""
    rows = [row for row in without_file(here, work) if row.id in work.approved]
    failed = here.queries.failures(work.kb)
    failures = [
        path for path in failed if lies_below(path, work.starts) and _has_lost_file(path, failed)
    ]
    events: list[Event] = [DocDeleted(id=row.id) for row in rows]
    events += [FileCleared(kb=work.kb, path=path) for path in failures]
    return Decision(events=events, data=PruneCount(len(rows)), targets=targets_of(rows))


def plan(
    store: SeenStore,
    intake: Intake,
    work: IngestWork,
    here: DecisionState,
    *,
    tell: Callable[[int, int, str], None],
    check: Callable[[], None],
) -> Decision:
    """Returns the plan of an ingest. Every file is read as an ingest reads it; nothing is stored.

    `check` may raise between two files.
    """
    documents, failed_before = here.queries.paths(work.kb), here.queries.failures(work.kb)
    former = FormerFiles(documents.values(), here.queries.pruned(work.kb))
    _require_starts(work, {**documents, **failed_before})
    planned_files, result = list[str](), IngestResult(kb=work.kb)
    listing = find_files(store, work, failed_before, check)
    passing, (paths, failures, *_) = _passing(intake, work, listing, result)
    size = read = 0

    def report(message: str) -> None:
        tell(read, len(paths), message)

    outcomes = _examine_all(intake, work, paths, documents, keep=False, tell=report)
    with contextlib.closing(passing.others(outcomes)) as items:
        for number, examined in enumerate(chain(failures, items), 1 - len(failures)):
            item = _with_former(examined, former)
            if refusal := _refusal(work, item):
                raise refusal
            _count_planned(result, item)
            size += item.content.size_bytes if item.content else 0
            if item.action in _LISTED_IN_PLAN and len(planned_files) < _MOST_LISTED:
                planned_files.append(f"{item.action}: {item.path}{_reason(item)}")
            read = min(max(number, 0), len(paths))
            tell(read, len(paths), item.path.rpartition("/")[2])
            check()
    passing.tell(result)
    gone_rows = without_file(here, work)
    # The targets are those of the real ingest, which does not know yet which files were moved.
    decision = removal(here, work.kb, gone_rows if work.prune else [], moved=former.continued_ids)
    gone_count = sum(row.id not in former.continued_ids for row in gone_rows)
    result.removed += gone_count if work.prune else 0
    result.gone = 0 if work.prune else gone_count
    numbers = {name: count for name, count in counts(result).items() if name != "chunks"}
    summary = ", ".join(f"{count} {name}" for name, count in numbers.items())
    return replace(
        decision,
        changes=[
            summary,
            *_secrets_in_words(result),
            *_left_out_in_words(result),
            *_purged_in_words(result),
            *decision.changes,
            *_unsupported_in_words(result),
            *planned_files,
        ],
        counts={**numbers, "bytes": size, **redactions(result.unread)},
    )


_LISTED_IN_PLAN = frozenset({"added", "updated", "moved", "removed", "failed"})


def _reason(item: FileOutcome) -> str:
    if item.error is not None:
        return f" ({item.error.message})"
    if item.former is not None:
        return f" (from {item.former.path})"
    if item.content is not None and item.content.unread:
        return f" (not read: {unread.in_words(item.content.unread)})"
    return ""


def _secrets_in_words(result: IngestResult) -> list[str]:
    secrets = redactions(result.unread)
    return [f"not stored: {unread.in_words(secrets)}"] if secrets else []


def _purged_in_words(result: IngestResult) -> list[str]:
    paths = [] if result.purged_files is UNSET else result.purged_files
    return [f"not read, because its document was purged: {path}" for path in paths]


def _left_out_in_words(result: IngestResult) -> list[str]:
    rules = [f"skipped: {rule}" for rule in result.skipped]
    links = [f"skipped link: {link.path} ({link.reason})" for link in result.skipped_links]
    return [*rules, *links]


def _unsupported_in_words(result: IngestResult) -> list[str]:
    names = [path.rpartition("/")[2] for path in result.unsupported_paths]
    return [f"unsupported: {few(names, result.unsupported)}"] if names else []


def _count_planned(result: IngestResult, item: FileOutcome) -> None:
    if item.action == "unsupported":
        _count_unsupported(result, item)
        return
    setattr(result, item.action, getattr(result, item.action) + 1)
    if item.content is not None:
        result.unread = unread.total([result.unread, item.content.unread])


class FileFailure(Struct, frozen=True, kw_only=True):
    path: str
    type: str
    message: str


class Changed(Struct, frozen=True, kw_only=True):
    """A document that was written; `unread` only where its file was not read as a whole."""

    id: int
    path: str
    action: WriteAction
    unread: Unread | UnsetType = UNSET


class LinkSkipped(Struct, frozen=True, kw_only=True):
    """A symlink that was not followed; `target` can be named in its place."""

    path: str
    target: str
    reason: str


class IngestResult(Struct, kw_only=True):
    """Counts of files; the lists have the first hundred.

    `moved`: new files that go on with the document of a file that is gone. `gone`: documents
    whose files do not exist any more. `empty`: files without any text, which are no failures.
    `failed_before`: how many of the failed files failed in the same way before; `failures` lists
    them last. `left_out_tags`: file → tags that its document can't have because it has 16 others.
    `unsupported`: found in folders, of types that no parser reads; `unsupported_kinds`: what they
    are, where their bytes tell. `notes`: sentences on files that are of another kind than their
    names say. `skipped`: the rules that left something out, with how many files and folders each.
    `unread`: parts of the files that were read now which are not in the text, by kind.
    `purged_files`: not read, because their documents were purged, and no person named them.
    """

    kb: str
    added: int = 0
    updated: int = 0
    moved: int = 0
    unchanged: int = 0
    removed: int = 0
    gone: int = 0
    empty: int = 0
    failed: int = 0
    failed_before: int = 0
    unsupported: int = 0
    chunks: int = 0
    documents: list[Changed] = []
    failures: list[FileFailure] = []
    unsupported_paths: list[str] = []
    unsupported_kinds: dict[str, int] | UnsetType = UNSET
    skipped: dict[str, int] = {}
    skipped_links: list[LinkSkipped] = []
    unread: Unread = {}
    left_out_tags: dict[str, list[str]] | UnsetType = UNSET
    notes: list[str] | UnsetType = UNSET
    purged_files: list[str] | UnsetType = UNSET


_COUNTS = (
    *("added", "updated", "moved", "unchanged", "removed", "gone"),
    *("empty", "failed", "unsupported", "chunks"),
)
_READ = ("added", "updated", "moved", "unchanged", "empty", "failed")


def counts(result: IngestResult) -> dict[str, Any]:
    return {name: getattr(result, name) for name in _COUNTS}


def failure_summary(result: IngestResult) -> PartialSuccess | None:
    """Returns how many files failed, and the first; None if all failures are as before."""
    if result.failed == result.failed_before:
        return None
    total = sum(getattr(result, name) for name in _READ)
    rest = f", {result.failed_before} of them as before" if result.failed_before else ""
    first = result.failures[0]
    return PartialSuccess(
        message=f"{result.failed} of {plural(total, 'file')} could not be read{rest}.",
        first=failure_in_words(first.path, first.message, Path(first.path).name),
    )


def notices(result: IngestResult) -> list[str] | None:
    """Returns sentences about labels that were not kept and files that were purged; None without
    any.
    """
    sentences = []
    if result.purged_files is not UNSET:
        sentences.append(purged_in_words(result.purged_files))
    if result.left_out_tags is not UNSET:
        lines = [f"{path} without {', '.join(tags)}" for path, tags in result.left_out_tags.items()]
        sentences.append(f"A document has at most {MOST_TAGS} tags. Written were: {few(lines)}.")
    return sentences or None


def purged_in_words(paths: Sequence[str]) -> str:
    """Returns a sentence about files that are not read, because their documents were purged."""
    are, they, were = ("is", "its", "was") if len(paths) == 1 else ("are", "their", "were")
    documents = "document" if len(paths) == 1 else "documents"
    return (
        f"{few(paths)} {are} not read, because {they} {documents} {were} purged. To have one read, "
        f"a person names it: kbproc add {shlex.quote(paths[0])}"
    )


def hint(result: IngestResult) -> str | None:
    """Returns sentences for the reader of the result: what to know or do next; None for none."""
    sentences = [*_hints(result)]
    return " ".join(sentences) or None


_EXCLUDED = "Some files were excluded ({}); all_files: true includes them."


def _hints(result: IngestResult) -> Iterator[str]:
    if not any(getattr(result, name) for name in (*_READ, "removed")):
        yield "No readable file was found there."
        if result.skipped:
            rules = ", ".join(list(result.skipped)[:3])
            yield _EXCLUDED.format(rules)
    elif rules := ", ".join(rule for rule in result.skipped if not gitignore.is_gits(rule)):
        yield _EXCLUDED.format(rules)
    if result.skipped_links:
        yield "To read the target of a skipped link, name that target."
    for kind in result.unsupported_kinds or ():
        if advice := conversion_hint("", kind):
            yield advice
    if result.gone:
        documents = "document" if result.gone == 1 else "documents"
        yield (
            f"{result.gone} {documents} came from files that are gone; prune: true removes them."
        )
    if result.notes:
        yield result.notes[0]
    if result.unread:
        yield f"The text does not include: {unread.in_words(result.unread)}."
        if advice := unread.advice(result.unread):
            yield advice
    if result.failed > _MOST_LISTED:
        yield (
            f"failures has the first {_MOST_LISTED} of {result.failed}; the view failures of "
            "sql.query has all of them."
        )
