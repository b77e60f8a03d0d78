"""Repairing a store that no process has open.

Owns: the damaged originals kept aside, a log written anew from what is left, and
swapping it in so that a death at any moment leaves the damaged log or the repaired one.
Refuses to know: how damage in a log is found, and what the views remember (recover.py).

A repaired log lies in `damaged/N/repaired` until it takes its place. Once it has that
name the repair is decided: `finish`, which every opening calls, brings it to its end.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from kbproc.base.checksums.journal import Journal
from kbproc.base.durable import rename, sync_folder
from kbproc.base.errors import KbprocError
from kbproc.base.failpoints import reach
from kbproc.base.host import Host
from kbproc.events import codec
from kbproc.events.event import Given
from kbproc.events.upkeep import LogRepaired
from kbproc.history import forgotten
from kbproc.library.health import recover
from kbproc.library.health.recover import Said
from kbproc.log import file
from kbproc.log.file import FileLog
from kbproc.log.interface import Survey
from kbproc.log.record import START, Draft, Record
from kbproc.sources import blobs
from kbproc.store import overlay
from kbproc.store.folder import check_links, is_read_only, read_settings, refusal, take_folder

if TYPE_CHECKING:
    from kbproc.views.catalog.catalog import Catalog

_FOLDER = "damaged"
_BATCH = 500
# Ids that one lost record may have given away, where nobody is left to say.
_IDS_A_RECORD = 10_000


class Damage(Struct, frozen=True, kw_only=True):
    """`places`: each damaged line. `lost`: each lost stretch, and what it concerned.

    `blobs`: sources that are not what their names say, by sha256.
    """

    places: list[str]
    lost: list[str]
    blobs: list[str]

    @property
    def found(self) -> bool:
        return bool(self.places or self.lost or self.blobs)


class Repair(Struct, frozen=True, kw_only=True):
    """`aside`: where the damaged originals lie, below the store; None if nothing was damaged.

    `saved`: what the log had lost and the views still knew, written again. `from_views`:
    whether there were views that could be asked. `is_shared`: other nodes have the log, too, and
    the store takes it in anew when it is opened.
    """

    damage: Damage
    aside: str | None
    saved: list[str]
    from_views: bool
    is_shared: bool = False


def inspect(folder: Path, host: Host) -> Damage:
    """What is damaged in the log and the sources. Raises store.locked, store.io."""
    check_links(folder)
    if is_read_only(folder):
        return _inspect_overlay(folder, host)
    with _Bench(folder, host) as bench:
        return bench.damage


def _inspect_overlay(folder: Path, host: Host) -> Damage:
    with tempfile.TemporaryDirectory(prefix="kbproc-") as place:
        try:
            overlay.fill(Path(place), folder)
        except OSError as error:
            raise KbprocError("store.io", f"The store can't be read: {error}.") from error
        with _Bench(Path(place), host) as bench:
            return bench.damage


def repair(folder: Path, host: Host) -> Repair:
    """Salvages what can be salvaged; an undamaged store is left as it is.

    Raises store.locked, store.io, store.incompatible.
    """
    check_links(folder)
    if is_read_only(folder):
        raise refusal(folder)
    with _Bench(folder, host) as bench:
        return bench.repair()


def finish(folder: Path) -> bool:
    """Brings a repair that was decided to its end; True if there was one. Raises OSError."""
    for repaired in sorted((folder / _FOLDER).glob("[0-9]*/repaired")):
        aside, live = repaired.parent, folder / "log"
        # The views have applied what is lost; the ones that the next opening makes have not.
        if (folder / "views").exists():
            (folder / "views").rename(aside / f"views-{len(list(aside.iterdir()))}")
        for views in aside.glob("views-*"):
            shutil.rmtree(views)
        reach("salvage.views")
        if live.exists() and not (aside / "log").exists():
            live.rename(aside / "log")
            sync_folder(aside)
        reach("salvage.aside")
        repaired.rename(live)
        reach("salvage.swapped")
        sync_folder(folder)
        sync_folder(aside)
        return True
    return False


def tell_lost(survey: Survey, catalog: Catalog | None) -> list[str]:
    """Each lost stretch, and what it concerned as far as a catalog knows."""
    import duckdb

    told = []
    for lost in survey.lost:
        try:
            about = recover.concerned(catalog, lost.first, lost.last.seq) if catalog else []
        except duckdb.Error:
            about = []
        told.append(f"{lost}: {', '.join(about)}" if about else str(lost))
    return told


class _Bench:
    """A locked store with its damage laid open."""

    def __init__(self, folder: Path, host: Host) -> None:
        self._folder = folder
        self._host = host
        self._old: Catalog | None = None

    def __enter__(self) -> _Bench:
        self._lease = take_folder(self._folder, self._host.pid())
        self._scratch = tempfile.TemporaryDirectory(prefix="kbproc-")
        try:
            self._look()
        except OSError as error:
            self.__exit__()
            raise KbprocError("store.io", f"The store can't be read: {error}.") from error
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *raised: object) -> None:
        self._forget()
        self._scratch.cleanup()
        self._lease.release()

    def _look(self) -> None:
        finish(self._folder)
        for unfinished in (self._folder / _FOLDER).glob("[0-9]*/making"):
            shutil.rmtree(unfinished)
        self._old = recover.open_copy(self._folder / "views", Path(self._scratch.name))
        known = self._old.position if self._old else START
        self._survey = file.survey_folder(self._folder / "log", known)
        places = [str(place) for place in self._survey.places]
        if not self._survey.holds(known):
            places.append(f"the views have applied another record {known.seq} than the log holds")
            self._forget()
        self.damage = Damage(
            places=places,
            lost=tell_lost(self._survey, self._old),
            blobs=[path.name for path in blobs_that_lie(self._folder / "blobs")],
        )

    def _forget(self) -> None:
        if self._old is not None:
            self._old.close()
            self._old = None

    def repair(self) -> Repair:
        """See the function of this name."""
        if not self.damage.found:
            return Repair(damage=self.damage, aside=None, saved=[], from_views=False)
        is_log = bool(self.damage.places or self.damage.lost)
        is_shared = is_log and _is_shared(self._folder)
        try:
            aside = _aside(self._folder)
            self._set_blobs_aside(aside)
            saved = self._mend_log(aside, is_shared) if is_log else []
        except OSError as error:
            raise KbprocError("store.io", f"The store can't be repaired: {error}.") from error
        return Repair(
            damage=self.damage,
            aside=f"{_FOLDER}/{aside.name}",
            saved=saved,
            from_views=self._old is not None,
            is_shared=is_shared,
        )

    def _set_blobs_aside(self, aside: Path) -> None:
        for sha256 in self.damage.blobs:
            path = blobs.Blobs(self._folder / "blobs").path(sha256)
            (aside / "blobs").mkdir(exist_ok=True, mode=0o700)
            rename(path, aside / "blobs" / sha256)

    def _mend_log(self, aside: Path, is_shared: bool) -> list[str]:
        if is_shared:
            self._let_go(aside)
            return []
        again, ids = self._remembered()
        lost = [(part.first, part.last.seq) for part in self._survey.lost]
        mark = LogRepaired(lost=lost, aside=f"{_FOLDER}/{aside.name}", **ids._asdict())
        said = [Said("kbproc", "doctor", [mark]), *again]
        making = aside / "making"
        file.write_repaired(self._survey, making)
        self._write_again(said, making)
        self._decide(aside)
        return [event.summary() for one in again for event in one.events]

    def _let_go(self, aside: Path) -> None:
        """The cluster has all of it; a record of this node's own would be a fork."""
        forgotten.drop(self._folder)  # what comes again may hold what was purged here
        (aside / "making").mkdir(mode=0o700)
        self._decide(aside)

    def _decide(self, aside: Path) -> None:
        reach("salvage.written")
        rename(aside / "making", aside / "repaired")
        reach("salvage.decided")
        finish(self._folder)

    def _remembered(self) -> tuple[list[Said], Given]:
        """What to write again, and the next ids."""
        import duckdb

        from kbproc.views.catalog.catalog import Catalog

        new = Catalog(Path(self._scratch.name) / "afresh.duckdb")
        try:
            _fold(new, self._survey.records())
            ids = recover.next_ids(new)
            if self._old is not None:
                try:
                    _fold(self._old, self._survey.records())
                    ids = ids.and_by(recover.next_ids(self._old))
                    return list(recover.remainder(self._old, new)), ids
                except duckdb.Error:
                    self._forget()
        finally:
            new.close()
        return [], self._guarded(ids)

    def _guarded(self, ids: Given) -> Given:
        """Past what the lost records may have given away."""
        count = sum(lost.last.seq - lost.first + 1 for lost in self._survey.lost)
        return Given(*(id + _IDS_A_RECORD * count for id in ids))

    def _write_again(self, said: Sequence[Said], folder: Path) -> None:
        """Appends to the repaired log, and reads it all: a wrong repair is worse than none."""
        log = FileLog.open(folder)
        try:
            now = max(self._host.now(), log.last_ts)
            rest = iter(said)
            while batch := list(islice(rest, _BATCH)):
                with log.batch() as writing:
                    writing.append([_draft(one, now, self._host.salt()) for one in batch])
                    writing.commit()
            log.verify()
        finally:
            log.close()


def _is_shared(folder: Path) -> bool:
    """Whether other nodes have the log, too. Raises store.*."""
    path = folder / "store.toml"
    log = (read_settings(path, None).get("log") if path.exists() else None) or {}
    return bool(log) and log.get("kind") != "file"


def blobs_that_lie(folder: Path) -> list[Path]:
    """Blobs whose bytes are not what their names say, and that no journal holds; reads them all.

    Raises OSError.
    """
    journal = Journal(folder.with_name(f"{folder.name}.journal"))
    waiting = {blobs.digest(source) for source in journal.read()}  # their files are made again
    found = (path for path in blobs.Blobs(folder).paths() if path.name not in waiting)
    return [path for path in found if blobs.digest(path.read_bytes()) != path.name]


def _draft(said: Said, ts: str, salt: str) -> Draft:
    return Draft(
        ts=ts,
        actor=said.actor,
        method=said.method,
        salt=said.salt or salt,
        events=codec.encode(said.events),
        token=said.token,
        params_hash=said.params_hash,
        result=msgspec.Raw(said.result.encode()),
    )


def _fold(catalog: Catalog, chain: Iterable[Record]) -> None:
    since = catalog.position.seq
    rest = (record for record in chain if record.seq > since)
    while batch := list(islice(rest, _BATCH)):
        catalog.apply(batch)
    catalog.commit()


def _aside(folder: Path) -> Path:
    """A new folder for what is damaged."""
    above = folder / _FOLDER
    above.mkdir(exist_ok=True, mode=0o700)
    taken = [int(path.name) for path in above.iterdir() if path.name.isdecimal()]
    aside = above / f"{max(taken, default=0) + 1:06d}"
    aside.mkdir(mode=0o700)
    sync_folder(above)
    sync_folder(folder)
    return aside
