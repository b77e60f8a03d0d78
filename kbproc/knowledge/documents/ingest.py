"""From files and texts to documents.

Owns: what is new, changed, moved, unchanged, gone or unreadable; parsing a few files
ahead; gathering them into records; the plan of an ingest; its answer.
Refuses to know: how a source is read (content.py), which document a renamed file goes on with
(moves.py), how records are written (store/pipeline.py).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from kbproc.base import paths as files
from kbproc.base.errors import KbprocError
from kbproc.base.threads import map_ahead
from kbproc.base.wording import plural
from kbproc.documents.content import ENDS_ALL, Intake, NothingToRead, Source, read_some
from kbproc.documents.deletion import is_bulk, targets_of
from kbproc.documents.document import Unread
from kbproc.documents.lookup import require_kb
from kbproc.documents.moves import FormerFiles
from kbproc.documents.revision import Content, Ids, fills_record, labels_of, written
from kbproc.documents.under_way import UnderWay
from kbproc.events.document import DocChanged, DocDeleted, DocWritten, FileCleared, FileFailed
from kbproc.events.event import Event
from kbproc.sources import gitignore, walk
from kbproc.sources.blobs import digest
from kbproc.sources.parse import unread
from kbproc.sources.parse.formats import detect
from kbproc.store.decision import Decision, Here
from kbproc.store.pipeline import LongWrite
from kbproc.store.state import SeenStore
from kbproc.views.catalog.rows import DocumentRow

_READERS = 8
# Files that are read and parsed together: each way to the parsers and back costs as much as
# parsing a short one.
_MOST_TOGETHER = 16
_BYTES_TOGETHER = 64 << 10
_MOST_LISTED = 100

Written = Literal["added", "updated", "moved"]
Action = Written | Literal["unchanged", "empty", "failed", "unsupported", "mended"]


class FileOutcome(Struct, frozen=True, kw_only=True):
    """What became of one file; `content` where there is something to write.

    `former`: the document that a new file goes on with. `relabels`: the file is as it was, and
    the tags or metadata of the request are new. `mended`: no file to read, but a folder or link
    that failed before.
    """

    path: str
    action: Action
    content: Content | None = None
    error: KbprocError | None = None
    sha256: str | None = None
    former: DocumentRow | None = None
    relabels: bool = False

    @property
    def is_write(self) -> bool:
        """True if a document is to be written."""
        return self.content is not None or self.relabels


class Work(Struct, frozen=True, kw_only=True):
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
    approved: frozenset[int] = frozenset()  # documents whose removal was confirmed


class Found(NamedTuple):
    """What an ingest means: files, each with the folder that it has to lie in; the paths that
    can't be looked at; those of `failed_before` that can be by now; and what a rule left out.
    """

    paths: dict[Path, Path]
    missed: list[FileOutcome]
    mended: list[FileOutcome]
    left_out: walk.LeftOut


def find_files(
    store: SeenStore, work: Work, failed_before: Collection[str], check: Callable[[], None]
) -> Found:
    """Every file once, in the order of the params; never the store's own. `check` may raise."""
    found: dict[Path, Path] = {}
    missed: dict[str, FileOutcome] = {}
    mended: set[str] = set()
    left_out = walk.LeftOut()

    def miss(path: Path, why: KbprocError) -> None:
        shown = files.printable(path)
        missed[shown] = FileOutcome(path=shown, action="failed", error=why)

    def look(path: Path) -> None:
        if (shown := files.printable(path)) in failed_before:
            mended.add(shown)

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
            missed=miss,
            looked=look,
            left_out=left_out,
            check=check,
        ):
            found[path] = work.root or (start.parent if path == start else start)
    own = store.origin.resolve()
    kept = {path: within for path, within in found.items() if not path.is_relative_to(own)}
    by_now = [FileOutcome(path=path, action="mended") for path in sorted(mended - missed.keys())]
    return Found(kept, list(missed.values()), by_now, left_out)


def run(
    store: SeenStore,
    intake: Intake,
    work: Work,
    write: LongWrite,
    *,
    tell: Callable[[int, int, str], None],
    cancelled: Callable[[], bool],
) -> IngestResult:
    """Ingests; each batch is durable when the next begins. Raises operation.cancelled.

    `tell` gets how many files were read, of how many, and the last one's name; while a large one
    is read, its name and how far it is.
    """
    before = _known(store, work.kb)
    known, failed_before = before.files, before.failed
    _require_starts(work, {**known, **failed_before})
    resumed = write.written()
    result = IngestResult(kb=work.kb)
    batch: list[FileOutcome] = []

    def check() -> None:
        if cancelled():
            raise KbprocError(
                "operation.cancelled", "The client cancelled the ingest.", detail=counts(result)
            )

    paths, missed, mended, left_out = find_files(store, work, failed_before, check)
    _list_left_out(result, left_out)

    read = 0
    items = _examine_all(
        intake, work, paths, known, keep=True, tell=lambda message: tell(read, len(paths), message)
    )
    no_files = [*missed, *mended]
    for number, examined in enumerate(chain(no_files, items), 1 - len(no_files)):
        item = _with_former(examined, before.former)
        _count(result, item, known, resumed)
        if item.is_write or _failure_is_news(item, failed_before):
            batch.append(item)
        if fills_record(len(item.content.chunks) if item.content else 0 for item in batch):
            _commit(write, work, batch, before, result)
            batch = []
        if number > 0:
            read = number
            tell(read, len(paths), item.path.rpartition("/")[2])
        if cancelled():
            items.close()
            _commit(write, work, batch, before, result)
            check()
    _commit(write, work, batch, before, result)
    if work.prune:
        result.removed = write.item(lambda here: _prune(here, work)).removed
    result.gone = _count_gone(before, work, paths) - result.removed
    return result


def _with_former(item: FileOutcome, former: FormerFiles) -> FileOutcome:
    """A new file may go on with the document of a file that is gone; see moves.py."""
    if item.action != "added" or item.content is None:
        return item
    row = former.take(item.path, item.content.sha256)
    if row is None:
        return item
    return replace(item, action="added" if row.path == item.path else "moved", former=row)


def _count_gone(before: Known, work: Work, paths: Collection[Path]) -> int:
    """How many documents below the given paths have lost their files, and were not moved.

    What was known before tells: to ask the catalog now would have it fold in what was written.
    """
    rows = ((Path(path), row) for path, row in before.files.items())
    return sum(
        1
        for path, row in rows
        if path not in paths
        and row.id not in before.former.taken
        and _lies_below(path, work.starts)
        and files.is_gone(path)
    )


def _lies_below(path: Path, starts: Iterable[Path]) -> bool:
    return any(path.is_relative_to(start) for start in starts)


class Known(Struct):
    """What was known of a knowledge base's files at `seq`; only this ingest has written since."""

    files: dict[str, DocumentRow]
    failed: dict[str, tuple[str, str, str | None]]
    former: FormerFiles
    seq: int


def _known(store: SeenStore, kb: str) -> Known:
    with store.reading() as snapshot:
        queries = snapshot.queries
        live = queries.paths(kb)
        former = FormerFiles(live.values(), queries.pruned(kb))
        return Known(live, queries.failures(kb), former, snapshot.seq)


def _examine_all(
    intake: Intake,
    work: Work,
    paths: dict[Path, Path],
    known: dict[str, DocumentRow],
    *,
    keep: bool,
    tell: Callable[[str], None],
) -> Generator[FileOutcome]:
    """In order. `keep` False: for a preview, which leaves nothing behind.

    `tell` gets how far a large file is, while no file is at its end.
    """
    under_way = UnderWay()

    def meanwhile() -> None:
        if message := under_way.news():
            tell(message)

    def examine(some: list[Path]) -> list[FileOutcome]:
        earlier = [known.get(str(path)) for path in some]
        with contextlib.closing(files.Reading()) as reading:
            looked = [
                _look(
                    intake, work, path, partial(reading.read, path, within=paths[path]), row, keep
                )
                for path, row in zip(some, earlier, strict=True)
            ]
        sources = [one for one in looked if isinstance(one, Source)]
        read = iter(read_some(intake, sources, under_way, keep=keep))
        return [
            _read(path, row, one.data, next(read)) if isinstance(one, Source) else one
            for path, row, one in zip(some, earlier, looked, strict=True)
        ]

    groups = map_ahead(
        examine, _together(paths), threads=_READERS, name="ingest", meanwhile=meanwhile
    )
    with contextlib.closing(groups):
        for group in groups:
            yield from group


def _together(paths: Collection[Path]) -> Iterator[list[Path]]:
    """Short files in groups, if there are many; a long one is a group of its own."""
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
    """Whoever reads it says what is wrong with it."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _look(
    intake: Intake,
    work: Work,
    path: Path,
    read: Callable[[int], bytes],
    earlier: DocumentRow | None,
    keep: bool,
) -> FileOutcome | Source:
    """Its bytes, where they are to be parsed."""
    shown, sha256 = files.printable(path), None
    try:
        if shown != str(path):
            raise KbprocError("operation.failed", f"The name {shown} is not UTF-8.")
        data = read(work.max_file_bytes)
        sha256 = digest(data)
        if earlier is not None and earlier.sha256 == sha256:
            if keep:
                intake.blobs.heal(sha256, data)
            if _labels_differ(work, earlier):
                return FileOutcome(path=shown, action="updated", sha256=sha256, relabels=True)
            return FileOutcome(path=shown, action="unchanged", sha256=sha256)
        doc_type = detect(path.name, data[:4096])
        if doc_type is None:
            return _unsupported(path, path in work.named)
        if not data.strip():
            return _empty(path, earlier)
        return Source(data, doc_type, path.name)
    except KbprocError as error:
        if error.type in ENDS_ALL:
            raise
        return FileOutcome(path=shown, action="failed", error=error, sha256=sha256)


def _labels_differ(work: Work, row: DocumentRow) -> bool:
    """True if the tags and metadata of the request change those of the document."""
    return (_tags_with(row, work), _metadata_with(row, work)) != (
        list(row.tags),
        msgspec.json.decode(row.metadata),
    )


def _tags_with(row: DocumentRow, work: Work) -> list[str]:
    return list(dict.fromkeys([*row.tags, *work.tags]))[:16]


def _metadata_with(row: DocumentRow, work: Work) -> dict[str, Any]:
    return {**msgspec.json.decode(row.metadata), **work.metadata}


def _read(
    path: Path, earlier: DocumentRow | None, data: bytes, content: Content | KbprocError
) -> FileOutcome:
    if isinstance(content, NothingToRead):
        return _empty(path, earlier)
    if isinstance(content, KbprocError):
        return FileOutcome(path=str(path), action="failed", error=content, sha256=digest(data))
    return FileOutcome(path=str(path), action="updated" if earlier else "added", content=content)


def _unsupported(path: Path, named: bool) -> FileOutcome:
    """In a folder such files are passed over; one that was named is a failure."""
    if not named:
        return FileOutcome(path=files.printable(path), action="unsupported")
    error = KbprocError("input.unsupported_type", f"No parser reads {path.name}.")
    return FileOutcome(path=str(path), action="failed", error=error)


def _empty(path: Path, earlier: DocumentRow | None) -> FileOutcome:
    """Nothing is wrong with such a file, unless it had a text before."""
    if earlier is None:
        return FileOutcome(path=str(path), action="empty")
    error = KbprocError(
        "operation.failed",
        f"{path.name} is empty now; document {earlier.id} keeps the text that it had.",
    )
    return FileOutcome(path=str(path), action="failed", error=error)


def _count(
    result: IngestResult, item: FileOutcome, known: dict[str, DocumentRow], resumed: dict[int, int]
) -> None:
    """Files that an earlier, unfinished run of this command has written count as written now."""
    row = known.get(item.path)
    if item.action == "unchanged" and row is not None and row.id in resumed:
        action: Written = "added" if resumed[row.id] == 1 else "updated"
        _list_changed(result, row.id, item.path, action, row.unread)
        result.chunks += row.chunk_count
    elif item.action == "unchanged":
        result.unchanged += 1
    elif item.action == "empty":
        result.empty += 1
    elif item.action == "unsupported":
        result.unsupported += 1
        if len(result.unsupported_paths) < _MOST_LISTED:
            result.unsupported_paths.append(item.path)
    elif item.error is not None:
        result.failed += 1
        if len(result.failures) < _MOST_LISTED:
            failure = FileFailure(path=item.path, type=item.error.type, message=item.error.message)
            result.failures.append(failure)


def _list_changed(
    result: IngestResult, id: int, path: str, action: Written, unread_counts: dict[str, int]
) -> None:
    setattr(result, action, getattr(result, action) + 1)
    result.unread = unread.total([result.unread, unread_counts])
    if len(result.documents) < _MOST_LISTED:
        change = Changed(id=id, path=path, action=action, unread=unread_counts or UNSET)
        result.documents.append(change)


def _list_left_out(result: IngestResult, left_out: walk.LeftOut) -> None:
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
    work: Work,
    batch: list[FileOutcome],
    before: Known,
    result: IngestResult,
) -> None:
    if not batch:
        return
    events, is_alone = write.item(lambda here: _batch(here, work, batch, before))
    if is_alone:
        before.seq = write.seq
    # A file that another writer has brought in meanwhile counts as unchanged.
    result.unchanged += sum(item.is_write for item in batch) - len(events)
    for item, event in events:
        counts = item.content.unread if item.content else {}
        _list_changed(result, event.id, item.path, _done(item, event), counts)
        if isinstance(event, DocWritten):
            result.chunks += len(event.chunks)


def _batch(
    here: Here,
    work: Work,
    batch: list[FileOutcome],
    before: Known,
) -> Decision:
    """Looks again at what is there where another has written: it may have been faster."""
    require_kb(here, work.kb)
    is_alone, known = here.head.seq == before.seq, before.files
    if not is_alone:
        known = here.documents_at(work.kb, [item.path for item in batch])
    ids = Ids(here)
    events: list[Event] = []
    written: list[tuple[FileOutcome, DocWritten | DocChanged]] = []
    for item in batch:
        existing = known.get(item.path)
        if item.error is not None:
            events.append(_failed(work.kb, item, item.error))
            continue
        if item.path in before.failed:
            events.append(FileCleared(kb=work.kb, path=item.path))
        event = _document_event(here, work, item, existing, ids, is_alone=is_alone)
        if event is not None:
            events.append(event)
            written.append((item, event))
    return Decision(events=events, data=(written, is_alone))


def _done(item: FileOutcome, event: DocWritten | DocChanged) -> Written:
    """The action that `event` stands for; another writer may have been faster than this one."""
    if isinstance(event, DocChanged):
        return "updated"
    if event.moved_from is not None:
        return "moved"
    is_back = item.former is not None and item.former.id == event.id
    return "added" if event.revision == 1 or is_back else "updated"


def _failed(kb: str, item: FileOutcome, error: KbprocError) -> FileFailed:
    return FileFailed(
        kb=kb, path=item.path, error=error.type, message=error.message, sha256=item.sha256
    )


def _document_event(
    here: Here,
    work: Work,
    item: FileOutcome,
    existing: DocumentRow | None,
    ids: Ids,
    *,
    is_alone: bool,
) -> DocWritten | DocChanged | None:
    """The event that makes the document as its file is; None where it is so already."""
    if item.relabels and existing is not None and existing.sha256 == item.sha256:
        return _relabelled(work, existing)
    content = item.content
    if content is None or (existing is not None and existing.sha256 == content.sha256):
        return None
    former = item.former if existing is None else None
    if former is not None and not is_alone:
        former = _unless_changed(here, former)
    return _file_written(here, work, item.path, content, existing or former, ids)


def _relabelled(work: Work, row: DocumentRow) -> DocChanged | None:
    if not _labels_differ(work, row):
        return None
    return DocChanged(
        id=row.id,
        revision=row.revision + 1,
        title=row.title,
        tags=_tags_with(row, work),
        metadata=_metadata_with(row, work),
    )


def _unless_changed(here: Here, row: DocumentRow) -> DocumentRow | None:
    """The document, unless another writer has changed it since it was chosen."""
    now = here.queries.document(row.id)
    return row if now is not None and now.touched == row.touched else None


def _file_written(
    here: Here, work: Work, path: str, content: Content, existing: DocumentRow | None, ids: Ids
) -> DocWritten:
    """A new revision keeps what was given by hand."""
    labels = labels_of(content, existing, work.tags, work.metadata)
    return written(
        here,
        content,
        kb=work.kb,
        existing=existing,
        ids=ids,
        tags=labels.tags,
        metadata=labels.metadata,
        source_facts=labels.source_facts,
        moved_from=existing.path if existing and existing.path != path else None,
        path=path,
    )


# --------------------------------------------------------------------------- prune


class Pruned(Struct, frozen=True):
    removed: int


def without_file(here: Here, work: Work) -> list[DocumentRow]:
    """Documents below the given paths whose files do not exist any more."""
    return [
        row
        for path, row in sorted(here.queries.paths(work.kb).items())
        if _lies_below(Path(path), work.starts) and files.is_gone(Path(path))
    ]


def removal(here: Here, kb: str, rows: list[DocumentRow], moved: Collection[int] = ()) -> Decision:
    """The decision that a person approves before prune removes `rows`.

    `moved`: documents with which new files go on, so that they stay.
    """
    return Decision(
        events=[DocDeleted(id=row.id) for row in rows],
        data=None,
        targets=targets_of(rows),
        changes=[f"removed: {row.path}" for row in rows if row.id not in moved],
        bulk=is_bulk(here, kb, len(rows)) if rows else False,
        destructive=bool(rows),
    )


def _require_starts(work: Work, known: Iterable[str]) -> None:
    """Raises resource.not_found for a path that is not there and has never been read."""
    for index, start in enumerate(work.starts):
        if files.is_gone(start) and not any(Path(path).is_relative_to(start) for path in known):
            raise KbprocError(
                "resource.not_found",
                f"There is no file or folder {start}.",
                field=f"$.params.paths[{index}]",
            )


def _prune(here: Here, work: Work) -> Decision:
    """Removes what was approved and is still gone."""
    rows = [row for row in without_file(here, work) if row.id in work.approved]
    failures = [
        path
        for path in here.queries.failures(work.kb)
        if _lies_below(Path(path), work.starts) and files.is_gone(Path(path))
    ]
    events: list[Event] = [DocDeleted(id=row.id) for row in rows]
    events += [FileCleared(kb=work.kb, path=path) for path in failures]
    return Decision(events=events, data=Pruned(len(rows)), targets=targets_of(rows))


def plan(
    store: SeenStore,
    intake: Intake,
    work: Work,
    here: Here,
    *,
    tell: Callable[[int, int, str], None],
    check: Callable[[], None],
) -> Decision:
    """What an ingest would do: every file is read as the ingest reads it, and nothing is kept.

    `check` may raise between two files.
    """
    known, failed_before = here.queries.paths(work.kb), here.queries.failures(work.kb)
    former = FormerFiles(known.values(), here.queries.pruned(work.kb))
    _require_starts(work, {**known, **failed_before})
    paths, missed, _, left_out = find_files(store, work, failed_before, check)

    foreseen, result = list[str](), IngestResult(kb=work.kb)
    _list_left_out(result, left_out)
    size = read = 0
    every = _examine_all(
        intake, work, paths, known, keep=False, tell=lambda message: tell(read, len(paths), message)
    )
    with contextlib.closing(every) as items:
        for number, examined in enumerate(chain(missed, items), 1 - len(missed)):
            item = _with_former(examined, former)
            _foresee(result, item)
            size += item.content.size_bytes if item.content else 0
            if item.action in _FORESEEN and len(foreseen) < _MOST_LISTED:
                foreseen.append(f"{item.action}: {item.path}{_why(item)}")
            read = max(number, 0)
            tell(read, len(paths), item.path.rpartition("/")[2])
            check()
    lost_rows = without_file(here, work)
    # The same targets as when the ingest is asked to run, before it knows what was moved.
    removed = removal(here, work.kb, lost_rows if work.prune else [], moved=former.taken)
    lost = sum(row.id not in former.taken for row in lost_rows)
    result.removed, result.gone = (lost, 0) if work.prune else (0, lost)
    numbers = {name: count for name, count in counts(result).items() if name != "chunks"}
    first = ", ".join(f"{count} {name}" for name, count in numbers.items())
    return replace(
        removed,
        changes=[first, *_left_out_in_words(result), *removed.changes, *foreseen],
        counts={**numbers, "bytes": size},
    )


_FORESEEN = frozenset({"added", "updated", "moved", "failed"})


def _why(item: FileOutcome) -> str:
    if item.error is not None:
        return f" ({item.error.message})"
    if item.former is not None:
        return f" (from {item.former.path})"
    if item.content is not None and item.content.unread:
        return f" (not read: {unread.in_words(item.content.unread)})"
    return ""


def _left_out_in_words(result: IngestResult) -> list[str]:
    rules = [f"skipped: {rule}" for rule in result.skipped]
    links = [f"skipped link: {link.path} ({link.reason})" for link in result.skipped_links]
    return [*rules, *links]


def _foresee(result: IngestResult, item: FileOutcome) -> None:
    setattr(result, item.action, getattr(result, item.action) + 1)


class FileFailure(Struct, frozen=True, kw_only=True):
    path: str
    type: str
    message: str


class Changed(Struct, frozen=True, kw_only=True):
    """A document that was written; `unread` only where its file was not read as a whole."""

    id: int
    path: str
    action: Written
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
    `unsupported`: found in folders, of types that no parser reads. `skipped`: the rules that left
    something out, with how many files and folders each. `unread`: parts of the files that were
    read now which are not in the text, by kind.
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
    unsupported: int = 0
    chunks: int = 0
    documents: list[Changed] = []
    failures: list[FileFailure] = []
    unsupported_paths: list[str] = []
    skipped: dict[str, int] = {}
    skipped_links: list[LinkSkipped] = []
    unread: Unread = {}


_COUNTS = (
    *("added", "updated", "moved", "unchanged", "removed", "gone"),
    *("empty", "failed", "unsupported", "chunks"),
)
_READ = ("added", "updated", "moved", "unchanged", "empty", "failed")


def counts(result: IngestResult) -> dict[str, Any]:
    return {name: getattr(result, name) for name in _COUNTS}


def what_failed(result: IngestResult) -> str | None:
    """None if every file could be read."""
    if not result.failed:
        return None
    total = sum(getattr(result, name) for name in _READ)
    first = result.failures[0]
    name = Path(first.path).name
    where = "" if name in first.message else f"{name}: "  # most messages name the file
    return (
        f"{result.failed} of {plural(total, 'file')} could not be read. First: "
        f"{where}{first.message}"
    )


def hint(result: IngestResult) -> str | None:
    """Sentences for the reader of the answer: what to know or do next; None: nothing."""
    sentences = [*_hints(result)]
    return " ".join(sentences) or None


def _hints(result: IngestResult) -> Iterator[str]:
    if not any(getattr(result, name) for name in (*_READ, "removed")):
        yield "No file was found there that can be read."
        if result.skipped:
            rules = ", ".join(list(result.skipped)[:3])
            yield f"Left out by {rules}; with all_files it is read."
    elif rules := ", ".join(rule for rule in result.skipped if not gitignore.is_gits(rule)):
        yield f"Left out: {rules}; with all_files they are read."
    if result.skipped_links:
        yield "To read what a skipped link leads to, name its target."
    if result.gone:
        documents = "document" if result.gone == 1 else "documents"
        yield (
            f"{result.gone} {documents} came from files that are gone; with prune they are removed."
        )
    if result.unread:
        yield f"Not in the text: {unread.in_words(result.unread)}."
        if advice := unread.advice(result.unread):
            yield advice
    lists = {
        "documents": result.added + result.updated + result.moved,
        "failures": result.failed,
        "unsupported_paths": result.unsupported,
    }
    cut = [
        f"{name} the first {_MOST_LISTED} of {n}" for name, n in lists.items() if n > _MOST_LISTED
    ]
    if cut:
        yield (
            f"Listed are: {', '.join(cut)}. doc.list lists all documents, kb.check all failures."
        )
