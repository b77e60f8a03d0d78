"""Says whether what an entry or a note was derived from is still as it was then.

An anchor names a document and its revision, a file or lines of it, or a commit. A file is looked at
only when somebody reads the entry: its bytes are read where its size or a time differs from that of
the last look. Lines count as unchanged wherever in the file they stand now, because an edit above
them moves them and changes nothing that the entry says.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Protocol

from msgspec import Meta, Struct
from msgspec.structs import replace

from kbproc.base import changes, git, paths
from kbproc.base.errors import KbprocError
from kbproc.base.text.caches import cached
from kbproc.base.values import DocumentId
from kbproc.base.wording import plural
from kbproc.engine.events.document import CONVERSATION
from kbproc.engine.events.entry import Anchor
from kbproc.engine.events.origin import IMPORT
from kbproc.engine.projections.catalog.filters import DocumentFilter
from kbproc.engine.projections.catalog.queries import Queries
from kbproc.engine.projections.catalog.rows import DocumentRow, anchors_of
from kbproc.engine.sources.blobs import digest
from kbproc.knowledge.documents import moves
from kbproc.knowledge.documents.document import Change, SourceChange

MOST_SOURCES = 100
_MOST_BYTES = 64 << 20
_FIELD = "$.params.derived_from"
# A file may change again with the same size and times this soon after it has changed.
UNSETTLED_MS = 2_000
_MOST_LOOKS = 4096
_LINES = re.compile(
    r"(?P<path>.+)(?::|#L)(?P<first>[1-9]\d{0,8})(?:-L?(?P<last>[1-9]\d{0,8}))?", re.DOTALL
)
_ID = re.compile(r"[1-9]\d{0,9}")
_NAME = re.compile(r"[\w.+@-]+")
_MOST_EDITED = 3  # files that an entry may be about that names none
_COMMIT = re.compile(r"commit:(?P<name>[0-9a-fA-F]{4,64})")

SourcePlace = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=4200,
        description="a file, PATH; lines of it, PATH:LINE, PATH:FIRST-LAST or PATH#L3-L9; or "
        "commit:HASH",
    ),
]
DerivedFrom = Annotated[
    list[DocumentId | SourcePlace],
    Meta(
        max_length=MOST_SOURCES,
        description="what it was made from: documents, entries and notes, by id; files, PATH or "
        "PATH:FIRST-LAST; commits, commit:HASH. Its origin is the least of theirs, and it is "
        "marked once one of them has changed",
    ),
]


class Anchored(Protocol):
    """A row of an entry or a note, or of a hit in one. `anchors`: see rows.DocumentRow."""

    @property
    def anchors(self) -> str | None: ...


class Sources:
    """The documents, files and commits that entries were derived from, as they are now."""

    def __init__(
        self,
        queries: Queries,
        source_of: Callable[[str], bytes],
        *,
        now_ms: Callable[[], int] | None = None,
    ) -> None:
        """`source_of`: returns a stored source. `now_ms`: the clock for looks at files; None looks
        at none: a state of the past, and a store whose files may be another machine's.
        """
        self._queries = queries
        self._source_of = source_of
        self._now_ms = now_ms
        self._remote: tuple[Path, ...] | None = None

    def changes(self, rows: Mapping[int, Anchored]) -> dict[int, list[SourceChange]]:
        """Returns the changed sources of each row that has any."""
        anchors = {id: anchors_of(row.anchors) for id, row in rows.items() if row.anchors}
        if not anchors:
            return {}
        ids = {one.document for some in anchors.values() for one in some if one.document}
        documents = self._queries.documents_by_id(ids)
        entry_ids = [id for id, row in documents.items() if row.type == "knowledge"]
        superseded = {
            id for id, row in self._queries.entries_by_id(entry_ids).items() if row.superseded_by
        }
        results = {
            id: [
                change_of(one, what, documents.get(one.document or 0))
                for one in some
                if (what := self._change(one, documents, superseded)) is not None
            ]
            for id, some in anchors.items()
        }
        return {id: some for id, some in results.items() if some}

    def _change(
        self, anchor: Anchor, documents: Mapping[int, DocumentRow], superseded: set[int]
    ) -> Change | None:
        if anchor.is_purged:
            return "gone"
        if anchor.commit is not None:
            return self._of_commit(anchor) if self._now_ms else None
        row = documents.get(anchor.document or 0)
        path = _path_of(anchor, row)
        state = self._of_file(path, anchor) if self._now_ms and path else "unknown"
        if state in {"same", "changed"}:
            return "changed" if state == "changed" else None
        if row is None:  # no document, or one that the caller may not see
            return "gone" if state == "gone" else None
        if row.id in superseded and row.deleted_at is None:
            return "superseded"
        return self._of_document(row, anchor) or ("gone" if state == "gone" else None)

    def _of_document(self, row: DocumentRow, anchor: Anchor) -> Change | None:
        if row.deleted_at is not None:
            return "gone"
        # A conversation only grows, and its earlier turns stay as they were.
        if row.type == CONVERSATION or row.revision == anchor.revision or not row.sha256:
            return None
        if anchor.start_line is None:
            return None if row.sha256 == anchor.sha256 else "changed"
        return None if _holds(self._source_of(row.sha256), anchor) else "changed"

    def _of_file(self, path: str, anchor: Anchor) -> str:
        """Returns "same", "changed", "gone", or "unknown" for a file that can't be looked at."""
        if self._remote is None:
            self._remote = changes.remote_points()
        if any(Path(path).is_relative_to(point) for point in self._remote):
            return "unknown"  # because a server may hang
        try:
            status = os.stat(path)  # noqa: PTH116  a Path takes several times as long
        except (FileNotFoundError, NotADirectoryError):
            return "gone" if moves.vanished([path]) else "unknown"
        except OSError:
            return "unknown"
        if not stat.S_ISREG(status.st_mode):
            return "unknown"
        if status.st_size > _MOST_BYTES:
            return "changed"
        look = _look_again if self._is_settled(status) else _look_again.__wrapped__
        return look(path, _stamp_of(status), anchor)

    def _of_commit(self, anchor: Anchor) -> Change | None:
        top = Path(anchor.path or "")
        try:
            status = os.stat(git.head_log(top))  # noqa: PTH116
        except OSError:
            return _look_at_history.__wrapped__(str(top), (), str(anchor.commit))
        look = _look_at_history if self._is_settled(status) else _look_at_history.__wrapped__
        return look(str(top), _stamp_of(status), str(anchor.commit))

    def _is_settled(self, status: os.stat_result) -> bool:
        newest_ms = max(status.st_mtime_ns, status.st_ctime_ns) // 1_000_000
        return self._now_ms is not None and self._now_ms() - newest_ms >= UNSETTLED_MS

    def all_changed(self, filter: DocumentFilter) -> dict[int, list[SourceChange]]:
        """Returns the changed sources of all entries that pass the filter and have any."""
        rows = self._queries.entries(filter)
        return self.changes({row.id: row for row in rows})


def _stamp_of(status: os.stat_result) -> tuple[int, ...]:
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def _path_of(anchor: Anchor, row: DocumentRow | None) -> str | None:
    """Returns the file to look at: that of the document, which may have moved, if it has one.

    A path out of an imported file may name anything: only one that was named here counts.
    """
    if row is None or row.deleted_at is not None or row.path is None or row.origin == IMPORT:
        return anchor.path
    is_plain = not row.stamp and not moves.is_held(row.path)
    return row.path if is_plain else None


@cached(_MOST_LOOKS)
def _look_again(path: str, stamp: tuple[int, ...], anchor: Anchor) -> str:
    """Reads a file. `stamp`: by which the cache knows that the file has not changed since."""
    data = _data_of(path)
    if data is None:
        return "unknown"
    return "same" if _holds(data, anchor) else "changed"


@cached(_MOST_LOOKS)
def _look_at_history(top: str, stamp: tuple[int, ...], commit: str) -> Change | None:
    state = git.state_of_commit(Path(top), commit)
    return state if state in {"gone", "reverted"} else None


def _holds(data: bytes, anchor: Anchor) -> bool:
    """Returns whether the bytes are those of the anchor, or have its lines somewhere."""
    if anchor.start_line is None or anchor.end_line is None:
        return digest(data) == anchor.sha256
    return _place_of(_lines(data), anchor) is not None


def _place_of(lines: Sequence[bytes], anchor: Anchor) -> int | None:
    """Returns where the anchor's lines stand now, from 0; None if they are no longer there."""
    first, last = (anchor.start_line or 1) - 1, anchor.end_line or 0
    count = last - first
    places = [first, *(place for place in range(len(lines) - count + 1) if place != first)]
    return next(
        (place for place in places if digest_of_lines(lines, place, count) == anchor.sha256), None
    )


def _lines(data: bytes) -> list[bytes]:
    """Returns the lines of a file, whichever way they end."""
    return data.replace(b"\r\n", b"\n").split(b"\n")


def digest_of_lines(lines: Sequence[bytes], first: int, count: int) -> str:
    return digest(b"\n".join(lines[first : first + count]))


# ---------------------------------------------------------------------- words


def change_of(anchor: Anchor, change: Change, row: DocumentRow | None) -> SourceChange:
    if anchor.is_purged:
        cite = "a file" if anchor.document is None else f"document {anchor.document}"
        return SourceChange(change=change, cite=cite)
    path = anchor.path if row is None or row.path is None else row.path
    return SourceChange(
        change=change,
        cite=_cite(anchor, row, change),
        document_id=None if row is None else row.id,
        was_revision=anchor.revision,
        revision=None if row is None else row.revision,
        path=path,
        start_line=anchor.start_line,
        end_line=anchor.end_line,
        commit=anchor.commit,
    )


def _cite(anchor: Anchor, row: DocumentRow | None, change: Change) -> str:
    if anchor.commit is not None:
        return f"commit {anchor.commit[:10]}"
    cite = Path(anchor.path).name if row is None and anchor.path else str(row and row.title)
    if anchor.start_line is not None:
        is_one = anchor.end_line == anchor.start_line
        lines = f"line {anchor.start_line}" if is_one else f"lines {anchor.start_line}–"
        cite = f"{cite}, {lines}{'' if is_one else anchor.end_line}"
    if row is None or change != "changed" or anchor.revision in {None, row.revision}:
        return cite
    return f"{cite}, revision {row.revision} instead of {anchor.revision}"


# ---------------------------------------------------------------------- making


class NamedSources(Struct, frozen=True, kw_only=True):
    """The sources of a new entry or note. `places`: files and commits. `is_stated`: by its writer,
    else only files that the store knows count, and none lowers the entry's origin. `unknown`: names
    that stand for nothing.
    """

    ids: list[int] = []
    places: list[Anchor] = []
    is_stated: bool = True
    unknown: list[str] = []


def named(items: Sequence[int | str], *, cwd: Path, root: Path | None) -> NamedSources:
    """Returns the sources, of files with the digest of what they hold now.

    Raises input.invalid_params, resource.not_found, path.outside_root, operation.failed.
    """
    ids = dict.fromkeys(item for item in items if isinstance(item, int))
    places = [
        _place(item, cwd, root, field=f"{_FIELD}[{index}]")
        for index, item in enumerate(items)
        if isinstance(item, str)
    ]
    return NamedSources(ids=list(ids), places=list(dict.fromkeys(places)))


def edited(files: Iterable[str], text: str, *, cwd: Path, root: Path | None) -> NamedSources:
    """Returns the files below the caller's folder that the text of an entry names; if it names
    none, the first few.
    """
    own = [Path(file) for file in files if Path(file).is_relative_to(cwd)]
    names = {name.strip(".") for name in _NAME.findall(text)}
    best = [file for file in own if file.name in names] or own[:_MOST_EDITED]
    places = []
    for file in best[:MOST_SOURCES]:
        with contextlib.suppress(KbprocError):  # a file that is gone, or outside of the root
            places.append(_place(str(file), cwd, root, field=_FIELD))
    return NamedSources(places=places, is_stated=False)


def mentioned(
    items: Sequence[str], folders: Sequence[Path], root: Path | None, *, before: Iterable[Anchor]
) -> NamedSources:
    """Returns the sources that a note names.

    `folders`: where relative paths may begin, besides the folders from which the note's earlier
    sources, `before`, were named.
    """
    ids: list[int] = []
    places: list[Anchor] = []
    unknown: list[str] = []
    bases = dict.fromkeys([*_bases(items, before), *folders])
    for item in items[:MOST_SOURCES]:
        place = next(_places_at(item, bases, root), None)
        if place is not None:
            places.append(place)
        elif _ID.fullmatch(item):
            ids.append(int(item))
        else:
            unknown.append(item)
    unknown += items[MOST_SOURCES:]
    return NamedSources(ids=ids, places=list(dict.fromkeys(places)), unknown=unknown)


def _bases(items: Iterable[str], before: Iterable[Anchor]) -> Iterator[Path]:
    """Yields the folders from which these names stand for the files and commits of `before`."""
    names = {match["path"] if (match := _LINES.fullmatch(item)) else item for item in items}
    for anchor in before:
        if anchor.path is not None and anchor.commit is not None:
            yield Path(anchor.path)
        for name in names if anchor.path is not None and anchor.commit is None else ():
            if str(anchor.path).endswith(f"/{name}"):
                yield Path(str(anchor.path).removesuffix(name))


def _places_at(item: str, folders: Iterable[Path], root: Path | None) -> Iterator[Anchor]:
    remote = changes.remote_points()
    for folder in folders:
        if any((folder / item).is_relative_to(point) for point in remote):
            continue  # because a server may hang
        with contextlib.suppress(KbprocError):  # no such file, or none that may be read
            yield _place(item, folder, root, field=_FIELD)


def _place(text: str, cwd: Path, root: Path | None, *, field: str) -> Anchor:
    if match := _COMMIT.fullmatch(text):
        return _commit(match["name"].lower(), cwd, root, field=field)
    match = _LINES.fullmatch(text)
    first = last = None
    if match and not os.path.lexists(cwd / text):
        text, first = match["path"], int(match["first"])
        last = int(match["last"] or first)
    path = paths.resolve(text, cwd=cwd, root=root, field=field)
    try:
        data = paths.read_file(path, _MOST_BYTES)
    except KbprocError as error:
        raise KbprocError(error.type, error.message, field=field, hint=error.hint) from None
    if first is None or last is None:
        return Anchor(path=str(path), sha256=digest(data))
    return _of_lines(path, _lines(data), first, last, field=field)


def _of_lines(path: Path, lines: list[bytes], first: int, last: int, *, field: str) -> Anchor:
    total = len(lines) - (lines[-1] == b"")
    if not first <= last <= total:
        raise KbprocError(
            "input.invalid_params",
            f"{field} names lines {first}–{last}, and {path.name} has {plural(total, 'line')}.",
            field=field,
            hint="Write PATH:FIRST-LAST, counted from 1.",
        )
    sha256 = digest_of_lines(lines, first - 1, last - first + 1)
    return Anchor(path=str(path), start_line=first, end_line=last, sha256=sha256)


def _commit(name: str, cwd: Path, root: Path | None, *, field: str) -> Anchor:
    folder = paths.locate(".", cwd=cwd, root=root, field=field)
    top = git.worktree_around(folder)
    commit = None if top is None else git.commit_named(top, name)
    if top is None or commit is None:
        where = f"in the repository at {top}" if top else f"because {cwd} is in no repository"
        raise KbprocError(
            "resource.not_found",
            f"There is no commit {name} {where}.",
            field=field,
            hint="git log names the commits; start kbproc in a folder of their repository.",
        )
    return Anchor(path=str(top), commit=commit)


def with_documents(queries: Queries, sources: NamedSources) -> tuple[list[int], list[Anchor]]:
    """Returns the ids of all documents among the sources, and the anchors of all sources.

    A file that the store knows is the document of that path, too.
    """
    rows_at: dict[str, DocumentRow] = {}
    for path in {one.path for one in sources.places if one.path and one.commit is None}:
        if at_path := queries.documents(DocumentFilter(path=path), limit=1):
            rows_at[path] = at_path[0]
    places = [
        one
        if (row := rows_at.get(one.path or "")) is None or one.commit is not None
        else _with_document(one, row)
        for one in sources.places
    ]
    rows = queries.documents_by_id(sources.ids)
    documents = [
        Anchor(document=id, revision=rows[id].revision, sha256=rows[id].sha256)
        for id in sources.ids
        if id in rows
    ]
    if not sources.is_stated:
        return [], [one for one in places if one.document]
    ids = dict.fromkeys([*sources.ids, *(one.document for one in places if one.document)])
    return list(ids), [*documents, *places]


def _with_document(place: Anchor, row: DocumentRow) -> Anchor:
    return Anchor(
        document=row.id,
        revision=row.revision,
        path=place.path,
        start_line=place.start_line,
        end_line=place.end_line,
        sha256=place.sha256,
    )


def renewed(queries: Queries, anchors: Iterable[Anchor], *, sees_files: bool) -> list[Anchor]:
    """Returns the sources as they are now; those that are gone are left out."""
    anchors = list(anchors)
    rows = queries.documents_by_id([one.document for one in anchors if one.document])
    now = [_as_now(one, rows.get(one.document or 0), sees_files=sees_files) for one in anchors]
    return [one for one in now if one is not None]


def _as_now(anchor: Anchor, row: DocumentRow | None, *, sees_files: bool) -> Anchor | None:
    if anchor.commit is not None:
        state = git.state_of_commit(Path(anchor.path or ""), anchor.commit) if sees_files else None
        return None if state in {"gone", "reverted"} else anchor
    if row is not None and row.deleted_at is not None:
        row = None
    path = _path_of(anchor, row)
    data = _data_of(path) if path and sees_files else None
    if data is None and row is None:
        is_gone = anchor.path is None or (sees_files and bool(moves.vanished([anchor.path])))
        return None if is_gone else anchor
    now = replace(anchor, document=row and row.id, revision=row and row.revision)
    if data is None or anchor.start_line is None or anchor.end_line is None:
        is_whole = anchor.start_line is None
        sha256 = digest(data) if data is not None else row.sha256 if row and is_whole else None
        return replace(now, sha256=sha256 or anchor.sha256, path=anchor.path and path)
    lines = _lines(data)
    count = min(anchor.end_line - anchor.start_line + 1, len(lines))
    first = _place_of(lines, anchor)
    if first is None:  # the person has seen what stands there now
        first = min(anchor.start_line - 1, len(lines) - count)
    sha256 = digest_of_lines(lines, first, count)
    return replace(now, start_line=first + 1, end_line=first + count, sha256=sha256, path=path)


def _data_of(path: str) -> bytes | None:
    try:
        return paths.read_file(Path(path), _MOST_BYTES)
    except KbprocError:
        return None
