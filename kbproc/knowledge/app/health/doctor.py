"""Runs the checks of kbproc doctor and yields their findings."""

from __future__ import annotations

import contextlib
import platform
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Sized
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from kbproc.base.errors import Finding, KbprocError
from kbproc.base.host import Host
from kbproc.base.libraries import LIBRARIES, library_versions
from kbproc.base.times import rfc3339
from kbproc.base.wording import few, plural
from kbproc.engine.log.record import START, Position
from kbproc.engine.projections.catalog.filters import DocumentFilter
from kbproc.engine.projections.catalog.queries import Queries
from kbproc.engine.projections.catalog.rows import IndexRow
from kbproc.engine.store.folder import require_store
from kbproc.engine.store.hook_log import FOLDER as HOOKS
from kbproc.engine.store.hook_log import failures
from kbproc.engine.store.lane import ahead
from kbproc.engine.store.store import Store
from kbproc.knowledge.app.health import salvage
from kbproc.knowledge.app.health.indexes import (
    differing_chunks,
    fulltext_problems,
    vector_differences,
)
from kbproc.knowledge.app.health.salvage import Damage
from kbproc.knowledge.app.health.secrets import secrets
from kbproc.knowledge.app.upkeep import damaged_views

if TYPE_CHECKING:
    from kbproc.engine.projections.catalog.catalog import Catalog
    from kbproc.engine.projections.fulltext.search import FullTextSnapshot

_LOW_DISK = 1 << 30
_LOOKS = 5
_HOOK_DAYS = 7
_REPAIR = (
    "Stop every kbproc that has the store open and run kbproc doctor --repair: it salvages what "
    "can be salvaged and keeps the damaged original; or restore a backup."
)
_REBUILD = "Run kbproc index rebuild."
_INGEST = "Search still works; ingest those files again."


def examine(
    host: Host,
    open_store: Callable[[], Store],
    *,
    deep: bool,
    folder: Path | None = None,
    repair: bool = False,
    look_for_secrets: bool = False,
    check: Callable[[], None] = lambda: None,
    node_findings: Callable[[], Iterable[Finding]] = tuple,
) -> Iterator[Finding]:
    """Yields one finding after another.

    `check` is called while secrets are looked for; it may raise. `node_findings`: yields those of
    the store's node, once it is open. `folder`: the store's, if this process may read it while no
    process has it open. It is needed for `repair`, which salvages damaged parts before the store is
    opened.
    """
    yield _libraries(host)
    if repair and folder is not None:
        finding = _repair(folder, host)
        yield finding
        if finding.status == "fail":
            return
    try:
        if folder is not None:
            require_store(folder)
        store = open_store()
    except KbprocError as error:
        yield Finding("store", "fail", error.message, error.hint)
        if folder is not None:
            yield from _hooks(folder, host)
        if folder is not None and error.type == "store.corrupt":
            yield from _inspect(folder, host)
        return
    opens = "opens read-only" if store.read_only else "opens"
    yield Finding("store", "pass", f"{store.origin} {opens}; format {store.settings['format']}")
    yield _permissions(store)
    yield _log(store)
    yield from node_findings()
    yield from _clock(store, host)
    yield _blobs(store, deep)
    yield from _views(store, deep)
    yield from _pack(store)
    yield _model(store)
    yield from _installed_models()
    yield from _reranker(store)
    yield _disk(store)
    yield from _hooks(store.origin, host)
    if look_for_secrets:
        yield secrets(store, check)


def _repair(folder: Path, host: Host) -> Finding:
    try:
        done = salvage.repair(folder, host)
    except KbprocError as error:
        return Finding("repair", "fail", error.message, error.hint)
    if done.aside is None:
        return Finding("repair", "pass", "nothing is damaged, so there was nothing to repair")
    parts = [
        f"the damaged originals are kept in {folder / done.aside}",
        *_descriptions(done.damage),
    ]
    if done.refill is not None:
        what, hint = done.refill
        return Finding("repair", "warn", "; ".join([*parts, what]), hint)
    if done.saved:
        parts.append(f"{few(done.saved)} written again from the old catalog")
    elif done.damage.lost:
        could = "had to be" if done.from_views else "could be"
        parts.append(f"nothing {could} written again from the old catalog")
    return Finding(
        "repair", "warn", "; ".join(parts), "Compare with a backup to see what was lost."
    )


def _inspect(folder: Path, host: Host) -> Iterator[Finding]:
    """Yields the damage of a store that does not open, line by line."""
    try:
        damage = salvage.inspect(folder, host)
    except KbprocError as error:
        yield Finding("log", "fail", error.message, error.hint)
        return
    if damage.found:
        yield Finding("log", "fail", "; ".join(_descriptions(damage)), _REPAIR)


def _descriptions(damage: Damage) -> list[str]:
    parts = [few(damage.places)] if damage.places else []
    parts += [few(damage.lost)] if damage.lost else []
    if damage.blobs:
        parts.append(f"{_sources(damage.blobs)} damaged: {few(damage.blobs)}")
    return parts


def _libraries(host: Host) -> Finding:
    versions = library_versions()
    missing = [name for name in LIBRARIES if name not in versions]
    if missing:
        return Finding(
            "libraries", "fail", f"missing: {', '.join(missing)}", "Install kbproc again with pip."
        )
    host_versions = host.versions({"python": platform.python_version()})
    return Finding(
        "libraries", "pass", f"Python {host_versions['python']}; all libraries are installed"
    )


def _permissions(store: Store) -> Finding:
    mode = stat.S_IMODE(store.origin.stat().st_mode)
    if mode & 0o077:
        return Finding(
            "permissions",
            "warn",
            f"others can read the store ({mode:o})",
            f"chmod 700 {store.origin}",
        )
    return Finding("permissions", "pass", "only you can read the store")


def _log(store: Store) -> Finding:
    try:
        count = store.log.verify()
    except KbprocError as error:
        if error.type != "store.corrupt":
            return Finding("log", "fail", error.message, error.hint)
        return Finding("log", "fail", _log_damage(store, error.message), _REPAIR)
    message = f"{plural(count, 'record')}; the chain verifies"
    if strangers := store.log.strangers:
        return Finding(
            "log",
            "warn",
            f"{message}; files in its folder that are not part of it: {few(strangers)}",
            f"Check them, and move them out of {store.origin / 'log'}. Use a store on one "
            "computer; store.export and store.import carry it to another.",
        )
    return Finding("log", "pass", message)


def _clock(store: Store, host: Host) -> Iterator[Finding]:
    """Yields a finding only if the log's last record has a date in the future."""
    if dated := ahead(store.published.head.ts, host.now()):
        yield Finding(
            "clock",
            "warn",
            dated,
            "Set this machine's clock if it is wrong. Otherwise no action is needed: entries "
            "expire by this clock, and dates are right again once it has passed that date.",
        )


def _log_damage(store: Store, message: str) -> str:
    """Returns every damaged line, and every lost stretch with the documents that it concerned."""
    survey = store.log.survey()
    parts = [str(place) for place in survey.places], salvage.tell_lost(survey, store.catalog)
    return "; ".join(few(part) for part in parts if part) or message


def _blobs(store: Store, deep: bool) -> Finding:
    names_by_source: dict[str, list[str]] = {}
    try:
        with store.reading() as snapshot:
            for row in snapshot.queries.documents(DocumentFilter()):
                name = f"document {row.id} “{row.title}”"
                names_by_source.setdefault(row.sha256, []).append(name)
    except KbprocError as error:
        return Finding("blobs", "warn", f"not compared with the catalog: {error.message}", _REBUILD)
    broken = {
        sha256: names_by_source[sha256] for sha256 in store.blobs.broken(names_by_source, deep=deep)
    }
    if not broken:
        return Finding("blobs", "pass", f"{_sources(names_by_source)} there")
    missing = [sha256 for sha256 in broken if store.blobs.stored(sha256) is None]
    listed = few([f"{sha256[:12]}… of {', '.join(names)}" for sha256, names in broken.items()])
    if len(missing) == len(broken):
        return Finding("blobs", "fail", f"{_sources(missing)} missing: {listed}", _INGEST)
    return Finding("blobs", "fail", f"{_sources(broken)} damaged or missing: {listed}", _REPAIR)


def _sources(sources: Sized) -> str:
    return plural(len(sources), "source is", "sources are")


def _views(store: Store, deep: bool) -> Iterator[Finding]:
    try:
        problems = compare(store) if deep else positions(store)
    except KbprocError as error:
        if error.type != "store.corrupt":
            raise
        problems = {}  # because `damaged_views` finds what is damaged
    for name in damaged_views(store):
        problems.setdefault(name, []).insert(0, "is damaged on disk")
    for name in ("catalog", "fulltext", "vectors"):
        wrong = problems.get(name, [])
        if wrong:
            more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
            yield Finding(name, "fail", wrong[0] + more, _REBUILD)
        else:
            yield Finding(name, "pass", "agrees with the log")


def _pack(store: Store) -> Iterator[Finding]:
    """Yields a finding for each damaged record of the pack; these are skipped and made again."""
    pack = store.model.pack
    for wrong in pack.check() if pack is not None else ():
        yield Finding("pack", "warn", wrong, "No action is needed: they are embedded again.")


def positions(store: Store) -> dict[str, list[str]]:
    """Returns projection → problems, from positions and the projections' own checks; quick."""
    written = store.log.head  # a writer may not have published it yet
    store.wait_for(written.seq, 1.0)
    with store.searching() as snapshot:
        chunks, fulltext = snapshot.queries.chunk_total(), snapshot.fulltext
        head, miscounted = snapshot.published.head, snapshot.queries.miscounted()
        is_whole = not snapshot.unindexed
    folder = store.folder / "views" / "fulltext"
    problems: dict[str, list[str]] = {"fulltext": fulltext_problems(fulltext, folder)}
    if head.seq < written.seq <= store.log.head.seq:
        problems["catalog"] = [f"has applied record {head.seq} of {written.seq}"]
    elif _record_at(store, head.seq) != head.position:
        problems["catalog"] = [f"has applied a record {head.seq} that is not the log's"]
    if miscounted:
        problems.setdefault("catalog", []).append("has counters that differ from its documents")
    if store.index_problem is not None:
        problems["fulltext"].append(store.index_problem.message)
    elif is_whole and fulltext.num_docs != chunks:
        problems["fulltext"].append(
            f"holds {plural(fulltext.num_docs, 'chunk')} where the catalog has {chunks}"
        )
    return problems


def _record_at(store: Store, seq: int) -> Position | None:
    record = next(store.log.read(seq - 1), None)
    return None if record is None else record.position


def compare(store: Store, bench: Catalog | None = None) -> dict[str, list[str]]:
    """Returns projection → differences from one that is built anew from the log.

    Writers may continue: their new records are ignored on both sides. `bench` is a catalog to
    empty and build again, for callers that compare often, because making a new file takes as long
    as all the rest.
    """
    import tempfile

    problems = positions(store)
    with (
        tempfile.TemporaryDirectory(prefix="kbproc-") as folder,
        _emptied(bench, Path(folder)) as rebuilt,
        contextlib.closing(rebuilt.cursor()) as cursor,
    ):
        with store.searching() as snapshot:  # no longer, so that the WAL can be copied
            fulltext = snapshot.fulltext
            live, position = snapshot.queries.digest(), snapshot.published.head.position
        rebuilt.apply(takewhile(lambda record: record.seq <= position.seq, store.log.read()))
        rebuilt.commit()
        queries = Queries(cursor)
        if live != queries.digest():
            problems.setdefault("catalog", []).append("differs from the log")
        rows = list(queries.all_index_rows())
        differing = _fulltext(fulltext, rows, Path(folder))
        problems["fulltext"] += [
            f"chunk {id} is indexed differently from the log" for id in differing
        ]
        problems["vectors"] = _vectors(store, rows, position)
    return problems


@contextlib.contextmanager
def _emptied(bench: Catalog | None, folder: Path) -> Iterator[Catalog]:
    from kbproc.engine.projections.catalog.catalog import Catalog

    if bench is not None:
        bench.reset()
        yield bench
        return
    with contextlib.closing(Catalog(folder / "catalog.sqlite")) as catalog:
        yield catalog


def _fulltext(live: FullTextSnapshot, rows: list[IndexRow], folder: Path) -> list[int]:
    from kbproc.engine.projections.fulltext.index import FullText
    from kbproc.engine.projections.fulltext.search import FullTextSnapshot

    (folder / "fulltext").mkdir()
    built = FullText(folder / "fulltext").build(rows, START).search_index
    built.reload()
    return differing_chunks(live, FullTextSnapshot(built.schema, built.searcher()))


def _vectors(store: Store, rows: list[IndexRow], position: Position) -> list[str]:
    """Returns the differences; none if a writer has continued since `position`."""
    vectors = store.vectors
    if vectors is None:
        return []
    for _ in range(_LOOKS):  # because a write is published a moment before this index has it
        if vectors.position.seq >= position.seq:
            break
        store.wait_for_change(0.2)
    else:
        return [f"has applied record {vectors.position.seq} of {position.seq}"]
    wrong = vector_differences(vectors, rows)
    for _ in range(_LOOKS):  # because a vector is in the pack a moment before its chunk has it
        if not wrong:
            break
        store.wait_for_change(0.2)
        again = set(vector_differences(vectors, rows))
        wrong = [problem for problem in wrong if problem in again]
    return wrong if vectors.position == position else []


def _model(store: Store) -> Finding:
    model = store.model
    if model.state == "off":
        return Finding("model", "warn", "no model is configured: searches use words only")
    if model.problem is not None:
        return Finding("model", "warn", model.problem.message, model.problem.hint)
    if model.state != "ready":
        return Finding(
            "model",
            "warn",
            f"{model.model_name} is not ready yet",
            "It is prepared when the first document is embedded.",
        )
    _, silent = model.query_vector("Does it answer?")
    if silent is not None:
        return Finding("model", "warn", silent, "Until it answers, searches use words only.")
    pending = model.pending_count
    message = f"{model.model_name}, {model.dim} dimensions; {plural(pending, 'chunk')} pending"
    return Finding("model", "pass", message)


def _installed_models() -> Iterator[Finding]:
    """Yields a finding for the installed models, if there are any, and for each damaged one."""
    from kbproc.engine.models.install import is_sound
    from kbproc.engine.models.weights import CARRIERS, install_command, installed_folder

    folders = {name: installed_folder(name) for name in CARRIERS if installed_folder(name).exists()}
    for name, folder in list(folders.items()):
        if not is_sound(name):
            del folders[name]
            message = f"{folder} is not what was exported"
            hint = f"Install {name} again: {install_command(name)}."
            yield Finding("models", "warn", message, hint)
    sizes = {
        name: sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        for name, folder in folders.items()
    }
    if sizes:
        listed = ", ".join(f"{name} ({size / 1e6:.0f} MB)" for name, size in sizes.items())
        parent = next(iter(folders.values())).parent
        yield Finding("models", "pass", f"in {parent}, as they were exported: {listed}")


def _reranker(store: Store) -> Iterator[Finding]:
    """Yields a finding only if a cross-encoder is configured."""
    reranker = store.reranker
    if reranker.name is None:
        return
    if (problem := reranker.problem) is not None:
        yield Finding("rerank", "warn", problem.message, problem.hint)
    elif not reranker.is_ready:
        hint = "It is prepared shortly after the start of kbproc serve, or by the first search."
        yield Finding("rerank", "warn", f"{reranker.name} is not ready yet", hint)
    else:
        try:
            reranker.judge("Does it answer?", ["It does."])
        except KbprocError as error:
            yield Finding("rerank", "warn", error.message, error.hint)
        else:
            message = f"{reranker.name} reads the best {plural(reranker.candidates, 'hit')}"
            yield Finding("rerank", "pass", message)


def _hooks(folder: Path, host: Host) -> Iterator[Finding]:
    """Yields a finding only if hooks of agents have failed in the last days."""
    since = rfc3339(host.now_ms() - _HOOK_DAYS * 86_400_000)
    recent = [failure for failure in failures(folder) if failure.ts >= since]
    if recent:
        last = recent[-1]
        yield Finding(
            "hooks",
            "warn",
            f"{plural(len(recent), 'hook')} of agents ended without output in {_HOOK_DAYS} days; "
            f"the last one, {last.event}, at {last.ts}: {last.problem}",
            f"{folder / HOOKS} keeps the log. Agents went on without what the store knows.",
        )


def _disk(store: Store) -> Finding:
    free = shutil.disk_usage(store.folder).free
    if free < _LOW_DISK:
        return Finding("disk", "warn", f"only {free >> 20} MiB are free", "Make room.")
    return Finding("disk", "pass", "there is enough room")
