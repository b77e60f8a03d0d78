"""Repairs a store that no process has open.

The damaged originals are kept; a new log is written from the readable records and swapped in.
A process that ends at any moment leaves either the damaged log or the repaired one.

A repaired log is in `damaged/N/repaired` until it takes its place. Once it has that name, the
repair is decided: `finish`, which every opening calls, completes it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from sqlite3 import Error as DatabaseError
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, astuple

from kbproc.base import disk
from kbproc.base.durable import make_folder, remove_tree, rename, sync_folder
from kbproc.base.errors import KbprocError
from kbproc.base.failpoints import reach
from kbproc.base.host import Host
from kbproc.engine.events import codec
from kbproc.engine.events.event import NextIds
from kbproc.engine.events.upkeep import LogRepaired
from kbproc.engine.log import file
from kbproc.engine.log.file import FileLog
from kbproc.engine.log.interface import Survey
from kbproc.engine.log.record import START, Record, RecordDraft
from kbproc.engine.sources.blobs import Blobs
from kbproc.engine.store.folder import (
    check_links,
    is_read_only,
    read_settings,
    refusal,
    take_folder,
)
from kbproc.engine.store.place import fill_overlay
from kbproc.knowledge.app.health import recover
from kbproc.knowledge.app.health.recover import RewrittenRecord
from kbproc.knowledge.cluster.alone import LogKind
from kbproc.knowledge.cluster.choice import kind_of

if TYPE_CHECKING:
    from kbproc.engine.projections.catalog.catalog import Catalog

_FOLDER = "damaged"
_BATCH = 500
# Ids that one lost record may have assigned, where no catalog says how many.
_IDS_PER_RECORD = 10_000


class Damage(Struct, frozen=True, kw_only=True):
    """The damage of a store.

    `places`: each damaged line. `lost`: each lost stretch, and the objects that it concerned.
    `blobs`: sources whose bytes don't match their sha256, and packs with bytes of no source.
    """

    places: list[str]
    lost: list[str]
    blobs: list[str]

    @property
    def found(self) -> bool:
        return bool(self.places or self.lost or self.blobs)


class Repair(Struct, frozen=True, kw_only=True):
    """The result of a repair.

    `aside`: the folder of the damaged originals, below the store; None if nothing was damaged.
    `saved`: lost events that the projections still had, written again. `from_views`: True if
    projections could be read. `refill`: what comes from elsewhere when the store is opened, and a
    hint; see LogKind.drop_copy.
    """

    damage: Damage
    aside: str | None
    saved: list[str]
    from_views: bool
    refill: tuple[str, str] | None = None


def inspect(folder: Path, host: Host) -> Damage:
    """Returns the damage of the log and the sources. Raises store.locked, store.io."""
    check_links(folder)
    if is_read_only(folder):
        return _inspect_overlay(folder, host)
    with _Bench(folder, host) as bench:
        return bench.damage


def _inspect_overlay(folder: Path, host: Host) -> Damage:
    with tempfile.TemporaryDirectory(prefix="kbproc-") as place:
        try:
            fill_overlay(Path(place), folder)
        except OSError as error:
            raise KbprocError("store.io", f"The store can't be read: {error}.") from error
        with _Bench(Path(place), host, origin=folder) as bench:
            return bench.damage


def repair(folder: Path, host: Host) -> Repair:
    """Repairs the store as far as possible; an undamaged store stays as it is.

    Raises store.locked, store.io, store.incompatible.
    """
    check_links(folder)
    if is_read_only(folder):
        raise refusal(folder)
    with _Bench(folder, host) as bench:
        return bench.repair()


def finish(folder: Path) -> bool:
    """Completes a repair that was decided; returns True if there was one. Raises OSError."""
    for repaired in sorted((folder / _FOLDER).glob("[0-9]*/repaired")):
        aside, live = repaired.parent, folder / "log"
        # The projections hold lost records, so the next opening has to build them again.
        if (folder / "views").exists():
            disk.rename(folder / "views", aside / f"views-{len(list(aside.iterdir()))}")
        for views in aside.glob("views-*"):
            remove_tree(views)
        reach("salvage.views")
        if live.exists() and not (aside / "log").exists():
            disk.rename(live, aside / "log")
            sync_folder(aside)
        reach("salvage.aside")
        disk.rename(repaired, live)
        reach("salvage.swapped")
        sync_folder(folder)
        sync_folder(aside)
        return True
    return False


def tell_lost(survey: Survey, catalog: Catalog | None) -> list[str]:
    """Returns each lost stretch with the objects that it concerned, as far as a catalog knows."""
    descriptions = []
    for lost in survey.lost:
        try:
            objects = recover.concerned(catalog, lost.first, lost.last.seq) if catalog else []
        except DatabaseError:
            objects = []
        descriptions.append(f"{lost}: {', '.join(objects)}" if objects else str(lost))
    return descriptions


class _Bench:
    """A locked store whose damage has been found."""

    def __init__(self, folder: Path, host: Host, *, origin: Path | None = None) -> None:
        """`origin`: the store itself, if `folder` is an overlay of it."""
        self._folder = folder
        self._blobs = Blobs(origin or folder, read_only=origin is not None)
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
            remove_tree(unfinished)
        self._old = recover.open_copy(self._folder / "views", Path(self._scratch.name))
        position = self._old.position if self._old else START
        self._survey = file.survey_folder(self._folder / "log", position)
        places = [str(place) for place in self._survey.places]
        if not self._survey.holds(position):
            places.append(f"the views have applied a record {position.seq} that is not the log's")
            self._forget()
        self.damage = Damage(
            places=places,
            lost=tell_lost(self._survey, self._old),
            blobs=self._damaged_sources(),
        )

    def _forget(self) -> None:
        if self._old is not None:
            self._old.close()
            self._old = None

    def repair(self) -> Repair:
        """Repairs the store; see the function `repair`."""
        if not self.damage.found:
            return Repair(damage=self.damage, aside=None, saved=[], from_views=False)
        is_log = bool(self.damage.places or self.damage.lost)
        kind = _kind_of(self._folder) if is_log else None
        try:
            aside = _make_aside(self._folder)
            self._set_blobs_aside(aside)
            saved, refill = self._mend_log(aside, kind) if kind is not None else ([], None)
        except OSError as error:
            raise KbprocError("store.io", f"The store can't be repaired: {error}.") from error
        return Repair(
            damage=self.damage,
            aside=f"{_FOLDER}/{aside.name}",
            saved=saved,
            from_views=self._old is not None,
            refill=refill,
        )

    def _damaged_sources(self) -> list[str]:
        self._blobs.load()
        return self._blobs.damaged()

    def _set_blobs_aside(self, aside: Path) -> None:
        if self.damage.blobs:
            disk.make_folder(aside / "blobs", 0o700)
            self._blobs.set_aside(aside / "blobs")

    def _mend_log(self, aside: Path, kind: LogKind) -> tuple[list[str], tuple[str, str] | None]:
        """Returns the saved events, and what refills the log; see Repair."""
        if (refill := kind.drop_copy(self._folder)) is not None:
            disk.make_folder(aside / "making", 0o700)
            self._decide(aside)
            return [], refill
        recovered, ids = self._recovered()
        lost = [(part.first, part.last.seq) for part in self._survey.lost]
        mark = LogRepaired(lost=lost, aside=f"{_FOLDER}/{aside.name}", **asdict(ids))
        records = [RewrittenRecord("kbproc", "doctor", [mark]), *recovered]
        making = aside / "making"
        file.write_repaired(self._survey, making)
        self._write_again(records, making)
        self._decide(aside)
        return [event.summary() for record in recovered for event in record.events], None

    def _decide(self, aside: Path) -> None:
        reach("salvage.written")
        rename(aside / "making", aside / "repaired")
        reach("salvage.decided")
        finish(self._folder)

    def _recovered(self) -> tuple[list[RewrittenRecord], NextIds]:
        """Returns the records to write again, and the next ids."""
        from kbproc.engine.projections.catalog.catalog import Catalog

        new = Catalog(Path(self._scratch.name) / "afresh.sqlite")
        try:
            _fold(new, self._survey.records())
            ids = recover.next_ids(new)
            if self._old is not None:
                try:
                    _fold(self._old, self._survey.records())
                    ids = ids.and_by(recover.next_ids(self._old))
                    return list(recover.remainder(self._old, new)), ids
                except DatabaseError:
                    self._forget()
        finally:
            new.close()
        return [], self._ids_beyond_lost(ids)

    def _ids_beyond_lost(self, ids: NextIds) -> NextIds:
        """Returns ids beyond those that the lost records may have assigned."""
        count = sum(lost.last.seq - lost.first + 1 for lost in self._survey.lost)
        return NextIds(*(id + _IDS_PER_RECORD * count for id in astuple(ids)))

    def _write_again(self, records: Sequence[RewrittenRecord], folder: Path) -> None:
        """Appends to the repaired log, and verifies it: a wrong repair is worse than none."""
        log = FileLog.open(folder)
        try:
            now = max(self._host.now(), log.last_ts)
            rest = iter(records)
            while batch := list(islice(rest, _BATCH)):
                with log.batch() as writing:
                    writing.append([_draft(record, now, self._host.salt()) for record in batch])
                    writing.commit()
            log.verify()
        finally:
            log.close()


def _kind_of(folder: Path) -> LogKind:
    """Returns the kind of log that the store has. Raises store.*."""
    path = folder / "store.toml"
    settings = read_settings(path, None) if path.exists() else {}
    return kind_of(settings.get("log") or {})


def _draft(record: RewrittenRecord, ts: str, salt: str) -> RecordDraft:
    return RecordDraft(
        ts=ts,
        actor=record.actor,
        method=record.method,
        salt=record.salt or salt,
        events=codec.encode(record.events),
        token=record.token,
        params_hash=record.params_hash,
        result=msgspec.Raw(record.result.encode()),
    )


def _fold(catalog: Catalog, chain: Iterable[Record]) -> None:
    since = catalog.position.seq
    catalog.apply(record for record in chain if record.seq > since)
    catalog.commit()


def _make_aside(folder: Path) -> Path:
    """Makes a new folder for the damaged originals."""
    above = folder / _FOLDER
    make_folder(above)
    numbers = [int(path.name) for path in above.iterdir() if path.name.isdecimal()]
    aside = above / f"{max(numbers, default=0) + 1:06d}"
    make_folder(aside)
    return aside
