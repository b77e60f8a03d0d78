"""Moves an open store's log between its folder and a stream that several nodes share.

The folder `log` always stays: with a shared log it holds the node's copy.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct

from kbproc.base.errors import KbprocError
from kbproc.base.params import WriteParams
from kbproc.base.values import HTTP_URL, NATS_URL, Slug
from kbproc.base.wording import plural
from kbproc.engine.cluster.interface import ClusteredLog, clustered
from kbproc.engine.cluster.opening import open_shared
from kbproc.engine.events import codec
from kbproc.engine.events.document import DocWritten
from kbproc.engine.log.file import FileLog
from kbproc.engine.log.interface import Log
from kbproc.engine.log.record import START
from kbproc.engine.store import rebuild
from kbproc.engine.store.decision import Decide, Decision, DecisionState
from kbproc.engine.store.folder import write_settings
from kbproc.engine.store.store import Store
from kbproc.knowledge.cluster import joining
from kbproc.knowledge.cluster.alone import NodeLibrary
from kbproc.knowledge.cluster.choice import open_log
from kbproc.knowledge.history import forgotten, purge

if TYPE_CHECKING:
    from kbproc.engine.cluster.jetstream.refill import Standing
    from kbproc.engine.cluster.jetstream.stream import LogStream

Settings = dict[str, Any]
_BIRTH = 1  # records in a new store


Replicas = (
    Annotated[
        int,
        Meta(
            ge=1,
            le=5,
            description="how many servers keep each record; 3 where three are named, else 1",
        ),
    ]
    | None
)


class ServerParams(WriteParams, kw_only=True, frozen=True):
    """Params for access to the servers of a stream."""

    monitor: Annotated[
        list[Annotated[str, Meta(pattern=HTTP_URL)]],
        Meta(max_length=20, description="http://HOST:PORT of each, which tells whether it syncs"),
    ] = []
    unsafe_sync: Annotated[
        bool, Meta(description="take the loss of acknowledged writes in a power cut into account")
    ] = False
    credentials: (
        Annotated[
            str,
            Meta(
                max_length=4000,
                description="a .creds file of NATS, or a file with one line NAME:PASSWORD; mode "
                "0600",
            ),
        ]
        | None
    ) = None

    def settings_of(self, servers: list[str], stream: str, cwd: Path) -> Settings:
        """Returns the settings as store.toml has them; `cwd`: where relative paths start.

        Raises input.invalid_params.
        """
        if any("@" in server for server in servers):
            raise KbprocError(
                "input.invalid_params",
                "A name and a password are not taken in an address: lists of processes, histories "
                "of shells and store.toml show it.",
                hint="Put NAME:PASSWORD into a file of mode 0600 and name that as credentials.",
            )
        options = {name: getattr(self, name) for name in ("monitor", "unsafe_sync")}
        if self.credentials is not None:
            options["credentials"] = os.path.normpath(cwd / Path(self.credentials).expanduser())
        settings = {"servers": servers, "stream": stream, **options}
        return {"kind": "jetstream", **{k: v for k, v in settings.items() if v}}


class StreamParams(ServerParams, kw_only=True, frozen=True):
    """Params that name a stream and its servers."""

    servers: Annotated[
        list[Annotated[str, Meta(pattern=NATS_URL)]],
        Meta(min_length=1, max_length=20, description="nats://HOST:PORT of each"),
    ]
    stream: Annotated[Slug, Meta(description="what the nodes call the store that they share")]

    def settings(self, cwd: Path) -> Settings:
        return self.settings_of(self.servers, self.stream, cwd)


class Moved(Struct, kw_only=True, frozen=True):
    """The record that the log ends with where it is now, as where it was.

    `stream` is null for a log in the store's own folder.
    """

    stream: str | None
    seq: int
    hash: str


# -------------------------------------------------------------------------------- foreseen


def foresee_creation(library: NodeLibrary, stream: str) -> Decide:
    return _foreseen(
        library, lambda here: f"publish {plural(here.head.seq, 'record')} as the stream {stream}"
    )


def foresee_join(library: NodeLibrary, stream: str) -> Decide:
    return _foreseen(library, lambda here: f"follow the stream {stream}", check_blank)


def foresee_leave(library: NodeLibrary) -> Decide:
    change = "go on alone: what other nodes write from now on does not come here"
    changes = [change] if clustered(library.store.log) else []
    return lambda here: Decision(events=[], data=None, changes=changes)


def _foreseen(
    library: NodeLibrary, change: Callable[[DecisionState], str], *checks: Callable[[Store], None]
) -> Decide:
    def decide(here: DecisionState) -> Decision:
        _require_alone(library.store)
        for store_check in checks:
            store_check(library.store)
        return Decision(events=[], data=None, changes=[change(here)])

    return decide


# -------------------------------------------------------------------------------- done


def found(
    library: NodeLibrary, settings: Settings, replicas: int | None, tell: Callable[[int, int], None]
) -> Moved:
    """Publishes the store's log as a stream, and follows it; an interrupted call is resumed.

    `tell` gets the number of records in the stream, and in all. Raises store.io,
    store.incompatible, resource.conflict.
    """
    from kbproc.engine.cluster.jetstream.making import ask, fill
    from kbproc.engine.cluster.jetstream.settings import read
    from kbproc.engine.cluster.jetstream.stream import LogStream

    purge.finish(library.reach())
    with _locked(library) as store:
        stream_settings = read(settings)
        forgotten.keep(store.folder, forgotten.Forgotten(seq=store.log.head.seq))
        ask(stream_settings, partial(LogStream.create, replicas=replicas or stream_settings.copies))
        ask(stream_settings, partial(_put_sources, sources=_sound_sources(store)))
        fill(stream_settings, store.log, tell=lambda done: tell(done, store.log.head.seq))
        _adopt(library, {**settings, "node": store.host.salt()})
        return _moved(store)


def join(library: NodeLibrary, settings: Settings) -> Moved:
    """Makes a new store a node of the stream. Raises store.*, resource.conflict."""
    from kbproc.engine.cluster.jetstream.making import unusable

    with _locked(library) as store:
        check_blank(store)
        folder = store.folder / "log"
        beside = folder.with_name("log.joining")
        shutil.rmtree(beside, ignore_errors=True)
        with closing(open_shared(beside, settings=settings)) as log:
            if log.trouble is not None:  # there is nothing that the views could be made of
                raise unusable(settings["servers"], log.trouble)
        joining.begin(store.folder)
        forgotten.drop(store.folder)
        store.log.close()
        shutil.rmtree(folder)
        beside.rename(folder)
        _adopt(library, {**settings, "node": store.host.salt()})
        if not purge.forget_here(library.reach())[0]:
            rebuild.rebuild(store)
        joining.end(store.folder)
        return _moved(store)


def leave(library: NodeLibrary) -> Moved:
    """Returns the log to the store's own folder, with the records it has there.

    The stream need not be reachable. Raises store.io.
    """
    if library.store.read_only:
        library.store.check_writable()
    if clustered(library.store.log):
        with _locked(library, shared=True) as store:
            _detach(library, store)
    return _moved(library.store)


def fetch(library: NodeLibrary) -> Moved:
    """Returns the log to the store's own folder, with all records of the stream, each checked.

    Raises store.io where no server answers, store.corrupt.
    """
    from kbproc.engine.cluster.jetstream.making import compare
    from kbproc.engine.cluster.jetstream.settings import read

    if clustered(library.store.log):
        library.store.commit(lambda lane: None)  # every commit first applies new records
        with _locked(library, shared=True) as store:
            store.check_writable()
            store.log.verify()
            compare(read(store.settings["log"]), store.log)
            _detach(library, store)
    return _moved(library.store)


def _detach(library: NodeLibrary, store: Store) -> None:
    lost = (KbprocError,) if store.log.damage else ()
    for sha256 in _sources(store):
        with suppress(*lost):
            store.blobs.get(sha256)
    _adopt(library, {})


def _moved(store: Store) -> Moved:
    head, settings = store.log.head, store.settings.get("log") or {}
    return Moved(stream=settings.get("stream"), seq=head.seq, hash=head.hash)


def standing(store: Store) -> Standing:
    """Returns how the stream compares with this node's log. Raises store.*, resource.conflict.

    This node's log has to be complete.
    """
    from kbproc.engine.cluster.jetstream.refill import compare
    from kbproc.engine.cluster.jetstream.settings import read

    with _own(store) as own:
        return compare(read(store.settings["log"]), own)


def reseed(
    library: NodeLibrary, approved: Standing, replicas: int | None, tell: Callable[[int], None]
) -> int:
    """Makes the stream equal to this node's log; returns how many sources were put back.

    Raises resource.plan_stale where the stream differs from the approved state, store.io.
    """
    from kbproc.engine.cluster.jetstream.erasing import erase
    from kbproc.engine.cluster.jetstream.making import ask
    from kbproc.engine.cluster.jetstream.refill import put_sources, refill
    from kbproc.engine.cluster.jetstream.settings import read

    purge.forget_here(library.reach())
    with _locked(library, shared=True) as store:
        log, settings = require_shared(store), store.settings["log"]
        chosen = read(settings)
        if standing(store) != approved:
            raise KbprocError("resource.plan_stale", "The stream or the log has changed since.")
        with _own(store) as own:
            if approved.remedy != "nothing":
                refill(chosen, own, approved, replicas, tell)
            to_seq = log.erased_seq
            ask(chosen, partial(erase, log=own, sources=(), to_seq=to_seq))
        count = ask(chosen, partial(put_sources, sources=_sound_sources(store)))
        _adopt(library, settings)
        return count


def reseed_changes(stream: str, standing: Standing) -> list[str]:
    """Returns plan lines for a reseeding."""
    log, both = standing.log, standing.equal
    ours = f"record {log.seq} ({log.hash})"
    match standing.remedy:
        case "append":
            first = (
                f"publish {plural(log.seq - both.seq, 'record')} after record {both.seq} "
                f"({both.hash}), with which the stream {stream} ends"
            )
        case "replace" if standing.stream is None:
            first = f"make the stream {stream}, which is gone, of {plural(log.seq, 'record')}"
        case "replace":
            first = (
                f"delete the stream {stream} and make it anew of {plural(log.seq, 'record')}: both "
                f"are equal up to record {both.seq} ({both.hash}), it can be followed up to record "
                f"{standing.sound.seq} ({standing.sound.hash}), and ends at record "
                f"{_last(standing)}"
            )
        case _:
            return ["put back the sources that the servers lack"]
    changes = [first, f"the stream ends with this node's {ours}"]
    if standing.remedy == "replace" and standing.sound.seq > both.seq:
        lost = f"records {both.seq + 1} to {standing.sound.seq}"
        changes.append(f"the stream's {lost}, which are not this node's, are gone")
    return changes


def _last(standing: Standing) -> int:
    return 0 if standing.stream is None else standing.stream.last_seq


@contextmanager
def _own(store: Store) -> Iterator[Log]:
    """Opens this node's own log for publishing.

    Raises store.corrupt, and resource.conflict for a log that was repaired after a loss.
    """
    own = FileLog.open(store.folder / "log")
    try:
        own.verify()
        if any(record.first != record.seq for record in own.read(to_seq=own.head.seq)):
            raise KbprocError(
                "resource.conflict",
                "This node's log was repaired after a loss, and can't be published.",
                hint="Run kbproc cluster reseed on a node whose log is whole.",
            )
        yield own
    finally:
        own.close()


@contextmanager
def _locked(library: NodeLibrary, *, shared: bool = False) -> Iterator[Store]:
    """Excludes writers, and applies all records that were written."""
    store = library.store
    with store.exclusive(), store.lane():
        store.mend()
        if store.read_only or not shared:  # so that a node can leave a damaged stream
            store.check_writable()
        if shared:
            require_shared(store)
        else:
            _require_alone(store)
        yield store


def require_shared(store: Store) -> ClusteredLog:
    """Returns the log that the nodes share. Raises resource.conflict if it is the store's alone."""
    if (log := clustered(store.log)) is None:
        raise _wrong_place("in its own folder")
    return log


def _require_alone(store: Store) -> None:
    """Raises resource.conflict unless the log is the store's alone."""
    if clustered(store.log) is not None:
        raise _wrong_place("shared already")


def _wrong_place(where: str) -> KbprocError:
    return KbprocError(
        "resource.conflict",
        f"The store's log is {where}.",
        hint="kbproc cluster status tells where it is.",
    )


def check_blank(store: Store) -> None:
    """Raises resource.conflict for a store with records of its own."""
    if store.log.head.seq > _BIRTH:
        raise KbprocError(
            "resource.conflict",
            "The store holds records of its own, and a node holds the stream's only.",
            hint="Name a new folder with --store; store.export and store.import carry over what "
            "this one holds.",
        )


def _adopt(library: NodeLibrary, settings: Settings) -> None:
    """Replaces the store's log by the one in `settings`.

    Raises store.io, and what opening the log raises; then the old one stays in use.
    """
    store, old = library.store, library.store.log
    marks = store.folder / "views/log.seen"
    new = open_log(store.folder / "log", START, marks=marks, settings=settings)
    try:
        write_settings(store.folder / "store.toml", settings, "log")
    except OSError as error:
        new.close()
        raise KbprocError("store.io", f"store.toml was not written: {error.strerror}.") from error
    library.trust.add_log(store.origin, settings)  # naming the servers approves them
    store.settings["log"] = settings
    store.log = new
    store.blobs.elsewhere = new.shelf
    old.close()
    library.follow_log()


async def _put_sources(stream: LogStream, sources: Iterable[tuple[str, bytes]]) -> None:
    for name, data in sources:
        await stream.shelf.put(name, data)


def _sound_sources(store: Store) -> Iterator[tuple[str, bytes]]:
    """Yields the name and the bytes of each source that is stored here and not damaged."""
    for name in store.blobs.names():
        with suppress(KbprocError):
            yield name, store.blobs.get(name)


def _sources(store: Store) -> set[str]:
    """Returns the sources of all documents in the log, deleted ones, too."""
    return {
        event.source_sha256
        for record in store.log.read(to_seq=store.log.head.seq)
        for event in codec.decode(record.events)
        if isinstance(event, DocWritten) and event.forgotten is None
    }
