"""Salvage: reports the damage exactly, keeps sound records, and names the lost ones."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from kbproc.base import failpoints
from kbproc.base.errors import KbprocError
from kbproc.engine.events.agent import AgentDeleted
from kbproc.engine.events.watch import FolderWatched
from kbproc.engine.log import file
from kbproc.engine.log import record as records
from kbproc.engine.log.file import survey_folder as survey
from kbproc.engine.log.interface import Lost
from kbproc.engine.log.record import Position, RecordDraft
from kbproc.engine.projections.catalog.filters import DocumentFilter
from kbproc.knowledge.app.health import salvage
from kbproc.knowledge.app.library import Library
from kbproc.knowledge.watching import watch
from tests.conftest import OpenSession
from tests.kit import knowledge
from tests.kit.faults import flip, lines_of
from tests.kit.fixed import FixedHost
from tests.kit.patience import all_or
from tests.kit.records import put, split
from tests.kit.sources import harm
from tests.kit.talk import Session

# ------------------------------------------------------------------------- the repair


def fill(session: Session) -> None:
    session.data("kb.create", slug="other", description="Another one.")
    for number in range(6):
        session.data(
            "doc.create",
            title=f"Title {number}",
            text=f"words and word{number}",
            kb="other" if number % 2 else "default",
            tags=["git"],
            metadata={"n": number},
            client_token=f"token-{number}",
        )
    session.data("doc.update", id=3, text="changed words")
    confirmed(session, "doc.delete", ids=[4])
    session.data("doc.update", id=5, title="Renamed")
    session.embedded()
    session.library.compact()


def confirmed(session: Session, method: str, **params: Any) -> Any:
    plan = session.error(method, **params)["plan"]
    return session.data(method, **params, confirm=plan["plan_hash"])


@pytest.fixture(scope="module")
def closed_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed store: records 1 and 2 create the kbs, 3 to 8 the documents 1 to 6."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file, "SEGMENT_BYTES", 1500)
        session = Session(folder / "store", cwd=folder)
        fill(session)
        session.close()
    return folder / "store"


@pytest.fixture(scope="module")
def before(closed_store: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The documents and knowledge bases of the closed store."""
    folder = shutil.copytree(closed_store, tmp_path_factory.mktemp("before") / "store")
    session = Session(folder, cwd=folder)
    result = documents(session)
    session.close()
    return result


@pytest.fixture
def folder(closed_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(file, "SEGMENT_BYTES", 1500)
    return Path(shutil.copytree(closed_store, tmp_path / "store"))


def drop(folder: Path, *seqs: int) -> None:
    for segment in (folder / "log").iterdir():
        lines = [line for line in split(segment) if records.seq_of(line) not in seqs]
        put(lines, segment)


def documents(session: Session) -> list[dict[str, Any]]:
    """All documents and knowledge bases, without their time of change."""
    rows = [
        session.data("doc.get", id=doc["id"], text=True) for doc in session.data("doc.list")
    ] + session.data("kb.list")
    for doc in rows:
        del doc["updated_at"]
    return rows


def mend(folder: Path) -> salvage.Repair:
    done = salvage.repair(folder, FixedHost())
    if done.aside is not None:
        assert not salvage.inspect(folder, FixedHost()).found
    return done


def test_an_undamaged_store_is_left_alone(folder: Path) -> None:
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert mend(folder) == salvage.Repair(
        damage=salvage.Damage(places=[], lost=[], blobs=[]), aside=None, saved=[], from_views=False
    )
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


SEQS = [(2,), (3,), (5,), (4, 9), (9,), (10,), (11,), (1, 2, 3), (8, 11)]


@pytest.mark.parametrize("seqs", all_or([(4, 9), (10,), (1, 2, 3), (8, 11)], SEQS))
def test_what_the_views_know_is_written_again(
    open_session: OpenSession, folder: Path, before: list[dict[str, Any]], seqs: tuple[int, ...]
) -> None:
    sound = [line for _, _, line in lines_of(folder / "log")]
    head = records.decode(sound[-1]).position
    drop(folder, *seqs)
    done = mend(folder)
    assert len(done.damage.lost) == len({seq - i for i, seq in enumerate(seqs)})
    assert done.from_views
    two = open_session(folder)
    assert documents(two) == before
    lines = {line for _, _, line in lines_of(folder / "log")}
    assert {line for line in sound if records.seq_of(line) not in seqs} <= lines
    assert next(two.store.log.read(head.seq - 1, head.seq)).position == head
    assert two.data("doc.create", title="New", text="x")["id"] == 7
    repeated = two.ask(
        "doc.create",
        title="Title 2",
        text="words and word2",
        kb="default",
        tags=["git"],
        metadata={"n": 2},
        client_token="token-2",
    )
    assert repeated["result"]["meta"]["duplicate"] is True
    assert two.data("doctor", deep=True)["healthy"]


def learn(session: Session) -> list[Any]:
    """Adds 4 entries, 3 links (one undone), 2 agents (one deleted), a note and a watched
    folder; returns the ids.
    """
    store = session.store
    ids = [
        knowledge.entry(
            store,
            f"Entry {n}",
            actor=f"actor{n % 2}",
            confidence=10 * n,
            source="a talk",
            task_id="T",
            task_kind="produced",
        )
        for n in range(4)
    ]
    knowledge.supersede(store, ids[0], ids[1])
    knowledge.supersede(store, ids[1], ids[2])
    knowledge.revive(store, ids[1], ids[2])
    knowledge.supersede(store, ids[1], ids[3])
    knowledge.agent(store, "gitea", description="first", quotas={"notes_stored": 3})
    knowledge.agent(store, "gitea", description="second", revision=2, kbs=["default"])
    knowledge.agent(store, "gone")
    knowledge.put(store, AgentDeleted(slug="gone"), method="agent.delete")
    knowledge.note(store, "gitea", "hooks", "# Hooks\n")
    watched = FolderWatched(machine="there", path="/docs", kb="default", exclude=["*.log"])
    knowledge.put(store, watched, method="watch.add")
    return ids


def lives(session: Session) -> list[Any]:
    """All entries, agents and notes, without their time of change."""
    with session.store.reading() as snapshot:
        queries = snapshot.queries
        agents = [
            (row.slug, row.description, row.kbs, row.quotas, row.revision, row.deleted_at is None)
            for row in queries.roster().agents.values()
        ]
        notes = [(row.source_id, row.sha256, row.kb) for row in queries.notes("gitea")]
        watches = [watch.event_of(row) for row in queries.watches()]
        return [queries.entries(DocumentFilter()), agents, notes, watches]


# The quick profile loses several at once.
FEW_LOST = [(0, 5), (6,), (1, 4, 5, 6), (8, 9), (10, 11), (3, 7, 12, 13), tuple(range(14))]
LOST = [
    (0,),
    (1,),
    (3,),
    (4,),
    (5,),
    (6,),
    (7,),
    (1, 4, 5, 6),
    (8,),
    (9,),
    (8, 9),
    (10,),
    (11,),
    (10, 11),
    (12,),
    (13,),
    tuple(range(14)),
]


class Learned(NamedTuple):
    folder: Path
    first: int  # seq of the first record of `learn`
    lives: list[Any]
    links: Any


@pytest.fixture(scope="module")
def learned(closed_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Learned:
    """A closed store with the records of `learn`."""
    folder = shutil.copytree(closed_store, tmp_path_factory.mktemp("learned") / "store")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file, "SEGMENT_BYTES", 1500)
        one = Session(folder, cwd=folder)
        first = one.store.seq + 1
        learn(one)
        one.data("doc.create", title="Last", text="last")
        one.embedded()
        one.library.compact()
        result = Learned(folder, first, lives(one), knowledge.check(one))
        one.close()
    return result


@pytest.mark.parametrize("lost", all_or(FEW_LOST, LOST))
def test_entries_notes_and_agents_are_written_again(
    open_session: OpenSession, learned: Learned, folder: Path, lost: tuple[int, ...]
) -> None:
    shutil.rmtree(folder)
    shutil.copytree(learned.folder, folder)
    drop(folder, *(learned.first + n for n in lost))
    assert mend(folder).from_views
    two = open_session(folder)
    assert lives(two) == learned.lives
    assert knowledge.check(two) == learned.links
    assert two.data("doctor", deep=True)["healthy"]


def test_what_is_lost_is_named(folder: Path) -> None:
    drop(folder, 2, 5)
    damage = salvage.inspect(folder, FixedHost())
    assert [text.split(": ", 1)[1] for text in damage.lost] == [
        "kb.created",
        "document 3 “Title 2”",
    ]


def test_without_views_what_is_lost_is_gone_and_nothing_else(
    open_session: OpenSession, folder: Path, before: list[dict[str, Any]]
) -> None:
    drop(folder, 8)
    shutil.rmtree(folder / "views")
    done = mend(folder)
    assert (done.saved, done.from_views) == ([], False)
    two = open_session(folder)
    assert documents(two) == [doc for doc in before if doc.get("id") != 6]
    assert two.data("doc.create", title="New", text="x")["id"] > 6
    assert two.data("doctor", deep=True)["healthy"]


def test_a_lost_end_without_views_gives_no_id_away_twice(
    open_session: OpenSession, folder: Path
) -> None:
    shutil.rmtree(folder / "views")
    segment = sorted((folder / "log").iterdir())[-1]
    lines = split(segment)
    put([*lines[:-1], b"rot\n"], segment)
    assert mend(folder).damage.lost
    two = open_session(folder)
    assert two.data("doc.create", title="New", text="x")["id"] > 1000


def test_the_originals_are_kept(folder: Path) -> None:
    drop(folder, 5)
    before = {path.name: path.read_bytes() for path in (folder / "log").iterdir()}
    aside = folder / str(mend(folder).aside)
    assert {path.name: path.read_bytes() for path in (aside / "log").iterdir()} == before
    drop(folder, 7)
    assert mend(folder).aside == "damaged/000002"


def test_the_log_says_what_was_given_up(open_session: OpenSession, folder: Path) -> None:
    drop(folder, 5, 6)
    mend(folder)
    store = open_session(folder).store
    repaired = [r for r in store.log.read() if b"log.repaired" in bytes(r.events)]
    assert [msgspec.json.decode(r.events)[0]["lost"] for r in repaired] == [[[5, 6]]]
    assert [(r.first, r.seq) for r in store.log.read() if r.lost is not msgspec.UNSET] == [(5, 6)]


def test_repaired_twice(
    open_session: OpenSession, folder: Path, before: list[dict[str, Any]]
) -> None:
    for seq in (5, 6, 5):
        drop(folder, seq, 6)
        mend(folder)
        two = open_session(folder)
        assert documents(two) == before
        two.close()


def test_views_of_another_log_are_given_up(open_session: OpenSession, folder: Path) -> None:
    """Views whose last record differs from the log's are rebuilt: the log is the truth."""
    segment = sorted((folder / "log").iterdir())[-1]
    *lines, last = split(segment)
    record = records.decode(last)
    again = records.seal(
        RecordDraft(ts=record.ts, actor="a", method="m", salt="00" * 16, events=msgspec.Raw(b"[]")),
        Position(record.seq - 1, record.prev),
    )
    put([*lines, records.encode(again) + b"\n"], segment)
    assert refused(folder).type == "store.corrupt"
    assert "that is not the log's" in mend(folder).damage.places[0]
    assert open_session(folder).data("doctor", deep=True)["healthy"]


def refused(folder: Path) -> KbprocError:
    with pytest.raises(KbprocError) as error:
        Library.open(folder, host=FixedHost(), cache=folder.parent / "cache").close()
    return error.value


def test_damaged_blobs_are_set_aside(open_session: OpenSession, folder: Path) -> None:
    one = open_session(folder)
    sha256 = one.data("doc.get", id=1)["sha256"]
    one.close()
    harmed = harm(folder, sha256, lambda data: flip(data, 0.5))
    assert salvage.inspect(folder, FixedHost()).blobs == [sha256]
    done = mend(folder)
    assert (folder / str(done.aside) / "blobs" / sha256).read_bytes() == harmed
    two = open_session(folder)
    findings = {f["name"]: f for f in two.data("doctor")["findings"]}
    assert findings["blobs"]["status"] == "fail"
    assert "document 1 “Title 0”" in findings["blobs"]["message"]
    two.data("doc.create", title="Again", text="words and word0")
    assert {f["name"]: f["status"] for f in two.data("doctor", deep=True)["findings"]}[
        "blobs"
    ] == "pass", "equal bytes heal it"


class Killed(BaseException):
    pass


@pytest.mark.parametrize(
    "place",
    ["salvage.written", "salvage.decided", "salvage.views", "salvage.aside", "salvage.swapped"],
)
def test_killed_in_the_middle_of_a_repair(
    open_session: OpenSession, folder: Path, before: list[dict[str, Any]], place: str
) -> None:
    """After a kill the store has either the damaged log or the repaired one."""
    drop(folder, 5)

    def die(name: str) -> None:
        if name == place:
            raise Killed

    failpoints.arm(die)
    try:
        with pytest.raises(Killed):
            salvage.repair(folder, FixedHost())
    finally:
        failpoints.arm(None)
    decided = salvage.finish(folder)
    assert decided == (place not in {"salvage.written", "salvage.swapped"})
    mend(folder)
    two = open_session(folder)
    assert documents(two) == before
    assert two.data("doctor", deep=True)["healthy"]
    assert not list((folder / "damaged").glob("*/making"))
    assert not list((folder / "damaged").glob("*/views*"))


def test_the_next_opening_ends_a_repair_that_was_cut_off(
    open_session: OpenSession, folder: Path, before: list[dict[str, Any]]
) -> None:
    drop(folder, 5)

    def die(name: str) -> None:
        if name == "salvage.aside":
            raise Killed

    failpoints.arm(die)
    try:
        with pytest.raises(Killed):
            salvage.repair(folder, FixedHost())
    finally:
        failpoints.arm(None)
    assert not (folder / "log").exists(), "an opening that starts a new log here loses everything"
    two = open_session(folder)
    assert documents(two) == before
    assert two.data("doctor", deep=True)["healthy"]


def test_a_store_in_use_is_not_touched(open_session: OpenSession, folder: Path) -> None:
    open_session(folder)
    with pytest.raises(KbprocError) as error:
        salvage.repair(folder, FixedHost())
    assert error.value.type == "store.locked"


def test_a_placeholder_is_a_lost_stretch(folder: Path) -> None:
    """A repaired log is sound: the records that it lost are not reported again."""
    drop(folder, 5)
    mend(folder)
    report = survey(folder / "log")
    assert not report.damaged
    assert not any(isinstance(part, Lost) for part in report.chain)
