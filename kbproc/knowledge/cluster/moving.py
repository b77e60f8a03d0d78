"""Where a store's log is: in its folder, or in a stream that several nodes share.

Owns: moving it from one to the other and back, and joining a stream, while the store is open.
Refuses to know: who asks for it, and how a stream is reached.

Whatever moves, the folder `log` stays as it is: in a shared log it is the node's copy.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct

from kbproc.base.errors import KbprocError
from kbproc.base.params import WriteParams
from kbproc.base.values import HTTP_URL, NATS_URL, Slug
from kbproc.base.wording import plural
from kbproc.events import codec
from kbproc.events.document import DocWritten
from kbproc.history import forgotten, purge
from kbproc.library import joining
from kbproc.library.library import Library
from kbproc.log.choice import open_log
from kbproc.log.file import FileLog
from kbproc.log.interface import Log
from kbproc.store import rebuild
from kbproc.store.decision import Decide, Decision, Here
from kbproc.store.folder import write_settings
from kbproc.store.store import Store

if TYPE_CHECKING:
    from kbproc.log.jetstream.refill import Standing
    from kbproc.log.jetstream.stream import Stream

Settings = dict[str, Any]
_BIRTH = 1  # so many records has a store that nobody has written to


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


class Reached(WriteParams, kw_only=True, frozen=True):
    """How servers are spoken to."""

    monitor: Annotated[
        list[Annotated[str, Meta(pattern=HTTP_URL)]],
        Meta(max_length=20, description="http://HOST:PORT of each, which tells whether it syncs"),
    ] = []
    unsafe_sync: Annotated[
        bool, Meta(description="take the loss of acknowledged writes in a power cut into account")
    ] = False
    credentials: Annotated[str, Meta(max_length=4000, description="a file of NATS")] | None = None

    def settings_of(self, servers: list[str], stream: str) -> Settings:
        """As store.toml keeps them."""
        given = {name: getattr(self, name) for name in ("monitor", "unsafe_sync", "credentials")}
        said = {"servers": servers, "stream": stream, **given}
        return {"kind": "jetstream", **{k: v for k, v in said.items() if v}}


class Where(Reached, kw_only=True, frozen=True):
    """Which stream, on which servers."""

    servers: Annotated[
        list[Annotated[str, Meta(pattern=NATS_URL)]],
        Meta(min_length=1, max_length=20, description="nats://HOST:PORT of each"),
    ]
    stream: Annotated[Slug, Meta(description="what the nodes call the store that they share")]

    def settings(self) -> Settings:
        return self.settings_of(self.servers, self.stream)


class Moved(Struct, kw_only=True, frozen=True):
    """The record that the log ends with where it is now, as where it was.

    `stream` is null for a log in the store's own folder.
    """

    stream: str | None
    seq: int
    hash: str


# -------------------------------------------------------------------------------- foreseen


def foresee_found(library: Library, stream: str) -> Decide:
    return _foreseen(
        library, lambda here: f"publish {plural(here.head.seq, 'record')} as the stream {stream}"
    )


def foresee_join(library: Library, stream: str) -> Decide:
    return _foreseen(library, lambda here: f"follow the stream {stream}", check_blank)


def foresee_leave(library: Library) -> Decide:
    told = "go on alone: what other nodes write from now on does not come here"
    changes = [told] if library.store.log.is_shared else []
    return lambda here: Decision(events=[], data=None, changes=changes)


def _foreseen(
    library: Library, says: Callable[[Here], str], *checks: Callable[[Store], None]
) -> Decide:
    def decide(here: Here) -> Decision:
        check(library.store, shared=False)
        for each in checks:
            each(library.store)
        return Decision(events=[], data=None, changes=[says(here)])

    return decide


# -------------------------------------------------------------------------------- done


def found(
    library: Library, settings: Settings, replicas: int | None, tell: Callable[[int, int], None]
) -> Moved:
    """Makes a stream of the store's log, and follows it. What was cut off goes on.

    `tell` gets how many records the stream has by now, of how many. Raises store.io,
    store.incompatible, resource.conflict.
    """
    from kbproc.log.jetstream.making import ask, fill
    from kbproc.log.jetstream.settings import read
    from kbproc.log.jetstream.stream import Stream

    purge.finish(library.reach())
    with _held(library) as store:
        chosen = read(settings)
        forgotten.keep(store.folder, forgotten.Forgotten(seq=store.log.head.seq))
        ask(chosen, partial(Stream.create, replicas=replicas or chosen.copies))
        store.blobs.sync()
        ask(chosen, partial(_put_sources, paths=store.blobs.paths()))
        fill(chosen, store.log, tell=lambda done: tell(done, store.log.head.seq))
        _adopt(library, {**settings, "node": store.host.salt()})
        return _moved(store)


def join(library: Library, settings: Settings) -> Moved:
    """A store that nobody has written to becomes a node. Raises store.*, resource.conflict."""
    with _held(library) as store:
        check_blank(store)
        folder = store.folder / "log"
        beside = folder.with_name("log.joining")
        shutil.rmtree(beside, ignore_errors=True)
        open_log(beside, settings=settings).close()
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


def leave(library: Library) -> Moved:
    """The store goes on alone, with what it has; whatever has become of the stream.

    Raises store.io.
    """
    if library.store.read_only:
        library.store.check_writable()
    if library.store.log.is_shared:
        with _held(library, shared=True) as store:
            _part(library, store)
    return _moved(library.store)


def fetch(library: Library) -> Moved:
    """The store goes on alone, with all that the stream holds, each record of which is checked.

    Raises store.io where no server tells, store.corrupt.
    """
    from kbproc.log.jetstream.making import compare
    from kbproc.log.jetstream.settings import read

    if library.store.log.is_shared:
        library.store.commit(lambda lane: None)  # whoever has the lane takes in what has come
        with _held(library, shared=True) as store:
            store.check_writable()
            store.log.verify()
            compare(read(store.settings["log"]), store.log)
            _part(library, store)
    return _moved(library.store)


def _part(library: Library, store: Store) -> None:
    lost = (KbprocError,) if store.log.damage else ()
    for sha256 in _sources(store):
        with suppress(*lost):
            store.blobs.get(sha256)
    _adopt(library, {})


def _moved(store: Store) -> Moved:
    head, settings = store.log.head, store.settings.get("log") or {}
    return Moved(stream=settings.get("stream"), seq=head.seq, hash=head.hash)


def standing(store: Store) -> Standing:
    """The stream beside this node's log, which is whole. Raises store.*, resource.conflict."""
    from kbproc.log.jetstream.refill import compare
    from kbproc.log.jetstream.settings import read

    with _own(store) as own:
        return compare(read(store.settings["log"]), own)


def reseed(
    library: Library, approved: Standing, replicas: int | None, tell: Callable[[int], None]
) -> int:
    """The stream holds what this node's log holds; returns how many sources were put back.

    Raises resource.plan_stale where the stream is not what was approved, store.io.
    """
    from kbproc.log.jetstream.erasing import erase
    from kbproc.log.jetstream.making import ask
    from kbproc.log.jetstream.refill import put_sources, refill
    from kbproc.log.jetstream.settings import read

    purge.forget_here(library.reach())
    with _held(library, shared=True) as store:
        settings = store.settings["log"]
        chosen = read(settings)
        if standing(store) != approved:
            raise KbprocError("resource.plan_stale", "The stream or the log has changed since.")
        with _own(store) as own:
            if approved.remedy != "nothing":
                refill(chosen, own, approved, replicas, tell)
            to_seq = store.log.erased_seq
            ask(chosen, partial(erase, log=own, sources=(), to_seq=to_seq))
        store.blobs.sync()
        count = ask(chosen, partial(put_sources, paths=store.blobs.paths()))
        _adopt(library, settings)
        return count


def told(stream: str, found: Standing) -> list[str]:
    """What reseeding would do."""
    log, both = found.log, found.equal
    ours = f"record {log.seq} ({log.hash})"
    match found.remedy:
        case "append":
            first = (
                f"publish {plural(log.seq - both.seq, 'record')} after record {both.seq} "
                f"({both.hash}), with which the stream {stream} ends"
            )
        case "replace" if found.stream is None:
            first = f"make the stream {stream}, which is gone, of {plural(log.seq, 'record')}"
        case "replace":
            first = (
                f"delete the stream {stream} and make it anew of {plural(log.seq, 'record')}: both "
                f"are equal up to record {both.seq} ({both.hash}), it can be followed up to record "
                f"{found.sound.seq} ({found.sound.hash}), and ends at record {_last(found)}"
            )
        case _:
            return ["put back the sources that the servers lack"]
    told = [first, f"the stream ends with this node's {ours}"]
    if found.remedy == "replace" and found.sound.seq > both.seq:
        gone = f"records {both.seq + 1} to {found.sound.seq}"
        told.append(f"the stream's {gone}, which are not this node's, are gone")
    return told


def _last(found: Standing) -> int:
    return 0 if found.stream is None else found.stream.last_seq


@contextmanager
def _own(store: Store) -> Iterator[Log]:
    """What lies in this node's folder, and can be published. Raises store.corrupt."""
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


def facts(store: Store) -> dict[str, Any]:
    """What a node tells of itself: see methods/cluster/status.py."""
    log, settings = store.log, store.settings.get("log") or {}
    shared = log.is_shared
    return {
        "shared": shared,
        "stream": settings.get("stream"),
        "servers": settings.get("servers") or [],
        "seq": log.head.seq,
        "hash": log.head.hash,
        "stream_seq": log.known_seq,
        "connected": shared and log.trouble is None,
        "problem": log.damage or log.trouble,
    }


@contextmanager
def _held(library: Library, *, shared: bool = False) -> Iterator[Store]:
    """Nobody writes, and all that was written is there."""
    store = library.store
    with store.exclusive(), store.lane():
        store.mend()
        if store.read_only or not shared:  # a damaged stream keeps nobody in it
            store.check_writable()
        check(store, shared=shared)
        yield store


def check(store: Store, *, shared: bool) -> None:
    """Raises resource.conflict for a log that is elsewhere than it has to be."""
    if store.log.is_shared != shared:
        where = "in its own folder" if shared else "shared already"
        raise KbprocError(
            "resource.conflict",
            f"The store's log is {where}.",
            hint="kbproc cluster status tells where it is.",
        )


def check_blank(store: Store) -> None:
    """Raises resource.conflict for a store that somebody has written to."""
    if store.log.head.seq > _BIRTH:
        raise KbprocError(
            "resource.conflict",
            "The store holds records of its own, and a node holds the stream's only.",
            hint="Name a new folder with --store; store.export and store.import carry over what "
            "this one holds.",
        )


def _adopt(library: Library, settings: Settings) -> None:
    """Raises store.io, and what opening the log raises; then the old one stays in use."""
    store, old = library.store, library.store.log
    new = _opened(store, settings)
    new.erased_seq = old.erased_seq
    try:
        write_settings(store.folder / "store.toml", settings, "log")
    except OSError as error:
        new.close()
        raise KbprocError("store.io", f"store.toml was not written: {error.strerror}.") from error
    library.trust.add_log(store.origin, settings)  # whoever names the servers approves them
    store.settings["log"] = settings
    store.log = new
    store.blobs.elsewhere = new.shelf
    old.close()
    library.follow_others()


async def _put_sources(stream: Stream, paths: list[Path]) -> None:
    for path in paths:
        await stream.shelf.put(path.name, path.read_bytes())


def _sources(store: Store) -> set[str]:
    """Of all documents, whatever has become of them."""
    return {
        event.source_sha256
        for record in store.log.read(to_seq=store.log.head.seq)
        for event in codec.decode(record.events)
        if isinstance(event, DocWritten) and event.forgotten is None
    }


def _opened(store: Store, settings: Settings) -> Log:
    return open_log(store.folder / "log", marks=store.folder / "views/log.seen", settings=settings)
