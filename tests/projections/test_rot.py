"""A catalog whose bits flip, or whose last writes a power failure lost, serves nothing wrong."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kbproc.engine.events.document import DocChanged, DocDeleted
from kbproc.engine.events.entry import EntryFacts, EntrySuperseded
from kbproc.engine.events.event import Event
from kbproc.engine.events.kb import KbCreated
from kbproc.engine.log.record import START, Record, seal_all
from kbproc.engine.projections.catalog.catalog import Catalog, DatabaseError
from kbproc.engine.projections.catalog.checks import is_damage
from kbproc.engine.projections.catalog.files import COPIED, WAL, beside, catalogs
from kbproc.engine.projections.catalog.filters import DocumentFilter
from kbproc.engine.projections.catalog.queries import Queries
from kbproc.engine.projections.catalog.writer import derived_rows
from kbproc.engine.store.follow import open_catalog
from tests.kit.crashes import SECTOR
from tests.kit.patience import LONG
from tests.kit.records import draft_of, written

COUNT = 30  # documents


def records(changes: int = 0) -> list[Record]:
    """Returns records of documents and entries, then of so many changes."""
    events: list[Event] = [KbCreated(slug="team", name="Team", description="x")]
    for id in range(1, COUNT + 1):
        facts = EntryFacts(confidence=60, source="me") if id % 5 == 0 else None
        events.append(
            written(
                id,
                kb=("default", "team", "notes/ann")[id % 3],
                tags=["all", f"tag {id % 7}"],
                metadata={"number": id % 4, "who": f"person {id % 3}"},
                path=f"/folder/{id}.md" if id % 2 else None,
                doc_type="knowledge" if facts else "text",
                entry=facts,
            )
        )
    events += [EntrySuperseded(id=5, by=10), DocDeleted(id=7)]
    for number in range(changes):
        id, facts = 1 + number * 3 % COUNT, {"number": number % 4}
        events.append(
            DocChanged(
                id=id if id % 5 and id != 7 else 1,
                title=f"Changed {number}",
                tags=[f"tag {number % 7}"],
                metadata=facts,
                revision=number + 2,
            )
        )
    return list(seal_all([draft_of(number, event) for number, event in enumerate(events)], START))


def rows_of(queries: Queries) -> list[str]:
    """Returns all rows that lists and searches show."""
    documents = queries.documents(DocumentFilter())
    return [*map(repr, documents), *map(repr, queries.index_rows([row.id for row in documents]))]


@contextlib.contextmanager
def files_at(path: Path, data: bytes, wal: bytes = b"", note: bytes = b"") -> Iterator[Path]:
    """Writes a catalog's files for the block."""
    path.parent.mkdir(exist_ok=True)
    for suffix, content in (("", data), (WAL, wal), (COPIED, note)):
        if content:
            beside(path, suffix).write_bytes(content)
    try:
        yield path
    finally:
        for file in path.parent.iterdir():
            file.unlink()


def flipped(data: bytes, at: int, bit: int) -> bytes:
    harmed = bytearray(data)
    harmed[at] ^= 1 << bit
    return bytes(harmed)


def test_no_flipped_bit_is_served(tmp_path: Path) -> None:
    """A read refuses a damaged row, and the check in a quiet moment finds all other damage."""
    path, chance = tmp_path / "sound.sqlite", random.Random(1)
    with contextlib.closing(Catalog(path)) as catalog:
        catalog.apply(records())
        catalog.commit()
        rows, digest = rows_of(catalog.queries), catalog.queries.digest()
    data = path.read_bytes()
    places = [at for at, byte in enumerate(data) if byte or at % 40 == 0]  # most pages have room
    outcomes: Counter[str] = Counter()
    for at in places if LONG else chance.sample(places, 180):
        harmed = flipped(data, at, chance.randrange(8))
        with files_at(tmp_path / "harmed" / "one.sqlite", harmed) as other:
            outcome = outcome_of(other, rows, digest)
            assert outcome, f"byte {at} of the file"
            outcomes[outcome] += 1
    assert outcomes.keys() >= {"refused", "found", "harmless"}, outcomes


def outcome_of(path: Path, rows: list[str], digest: str) -> str:
    """Returns what became of a damaged catalog; "" if it serves something wrong."""
    try:
        with contextlib.closing(Catalog(path)) as catalog:
            if catalog.position == START:
                return "made afresh"
            damaged = catalog.damaged()
            if not set(rows_of(catalog.queries)) <= set(rows):
                return ""
            if damaged:
                return "found"
            with catalog.savepoint():  # refuses a file that can only be read
                pass
            return "harmless" if catalog.queries.digest() == digest else ""
    except DatabaseError as error:
        return "refused" if is_damage(error) or found_by_doctor(path) else ""


def found_by_doctor(path: Path) -> bool:
    with contextlib.closing(Catalog(path)) as catalog:
        return bool(catalog.damaged())


def test_writes_beside_a_check_are_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with contextlib.closing(Catalog(tmp_path / "one.sqlite")) as catalog:
        first, *rest = records()
        catalog.apply([first, *rest[:9]])
        catalog.commit()

        def write(row: Any) -> Any:
            if later := rest[catalog.position.seq - 1 :]:
                catalog.apply(later[:1])
                catalog.commit()
            return derived_rows(row)

        monkeypatch.setattr("kbproc.engine.projections.catalog.checks.derived_rows", write)
        assert catalog.damaged() == []
        assert catalog.position.seq > 15


# ------------------------------------------------------------------------ with a WAL


class Disk(NamedTuple):
    """The bytes of a catalog's files in the midst of a course, and those that are surely durable.

    `seq`, `digest`: of the catalog.
    """

    data: bytes
    wal: bytes
    note: bytes
    synced_data: bytes
    synced_wal: bytes
    seq: int
    digest: str


def course(path: Path, records: list[Record], chance: random.Random) -> Iterator[Disk]:
    """Folds records in one by one, among checkpoints and readers of older states.

    SQLite syncs the WAL before a checkpoint, the file after one that copied everything, and the
    head of a WAL that begins anew.
    """
    with contextlib.closing(Catalog(path)) as catalog:
        synced_data = synced_wal = b""
        reader, note = Queries(catalog.cursor()), beside(path, COPIED)

        def disk() -> Disk:
            copied = note.read_bytes() if note.exists() else b""
            files = path.read_bytes(), wal, copied, synced_data, synced_wal
            return Disk(*files, record.seq, catalog.queries.digest())

        for record in records:
            catalog.apply([record])
            catalog.commit()
            wal = beside(path, WAL).read_bytes()
            synced_wal = wal[:32] + synced_wal[32:]
            what = chance.random()
            if what < 0.3:
                reader.end()
            elif what < 0.5:
                reader.end()
                reader.begin()
            elif what < 0.7:
                catalog.checkpoint()
                synced_wal = wal
                yield disk()  # the checkpoint has not ended
                ((_, frames, copied),) = catalog._db.execute("pragma wal_checkpoint").fetchall()
                if frames == copied:
                    synced_data = path.read_bytes()
            yield disk()


def torn(new: bytes, synced: bytes, chance: random.Random) -> bytes:
    """Returns what a power failure leaves: of what was not synced, any sector may be there."""
    share, old = chance.choice((0.1, 0.5, 0.9)), synced.ljust(len(new), b"\0")
    data = b"".join(
        (new if chance.random() < share else old)[at : at + SECTOR]
        for at in range(0, len(new), SECTOR)
    )
    return data if chance.random() < 0.5 else data[: max(len(synced), chance.randrange(len(new)))]


def caught_up(views: Path, disk: Disk, records: list[Record]) -> str:
    """Opens a catalog, has it follow the log, and returns how far behind it was."""
    with contextlib.closing(open_catalog(views)) as catalog:
        position = catalog.position
        assert position == START or position == records[position.seq - 1].position
        catalog.apply(records[position.seq : disk.seq])
        catalog.commit()
        assert catalog.queries.digest() == disk.digest
        assert catalog.damaged() == []
    if position.seq == disk.seq:
        return "current"
    return "behind" if position.seq else "made afresh"


@pytest.mark.parametrize(
    ("harm", "expected"),
    [
        ("power", {"current", "behind"}),
        ("flip", {"current", "behind", "made afresh"}),
    ],
)
def test_a_catalog_that_lost_writes_follows_the_log_or_is_made_afresh(
    tmp_path: Path, harm: str, expected: set[str]
) -> None:
    """After a power failure, or a flipped bit in the WAL of a process that was killed."""
    log, views, outcomes = records(40), tmp_path / "views", Counter[str]()
    for seed in range(25 if LONG else 1):
        chance = random.Random(f"{harm} {seed}")
        for disk in chance.sample([*course(tmp_path / f"{seed}.sqlite", log, chance)], 40):
            if harm == "power":
                data = torn(disk.data, disk.synced_data, chance)
                data = data if disk.synced_data or chance.random() < 0.5 else b""
                wal = torn(disk.wal, disk.synced_wal, chance)
                note = chance.choice((disk.note, b""))
            else:
                at = chance.randrange(len(disk.wal))
                wal = flipped(disk.wal, at, chance.randrange(8))
                data, note = disk.data, disk.note
            with files_at(views / "catalog-000001.sqlite", data, wal, note):
                outcomes[caught_up(views, disk, log)] += 1
                assert len(catalogs(views)) == 1
    assert outcomes.keys() >= expected, outcomes
