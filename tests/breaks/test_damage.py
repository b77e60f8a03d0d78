"""Damage anywhere in a store is found, reported exactly and mended; answers stay right."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from kbproc.base import durable
from kbproc.base.errors import KbprocError
from kbproc.engine.log import file, record
from kbproc.engine.log.marks import Marks
from kbproc.engine.projections import soundness
from kbproc.engine.projections.catalog import catalog
from kbproc.engine.projections.catalog.catalog import Catalog
from kbproc.engine.sources.blobs import Blobs
from kbproc.knowledge.app.health import salvage
from kbproc.knowledge.app.library import Library
from kbproc.knowledge.app.upkeep import damaged_views
from tests.conftest import OpenSession
from tests.kit.catalogs import alter
from tests.kit.courses import Client
from tests.kit.faults import as_killed, cut, faults_of, flip, lines_of, note, zero
from tests.kit.fixed import FixedHost
from tests.kit.patience import all_or
from tests.kit.shell import in_process
from tests.kit.sources import frame_of, harm
from tests.kit.talk import Session

faults = faults_of("damage", thinned=True)

WORDS = ("git", "backup", "mirror", "repository", "install", "archive", "nightly", "branch")
QUESTIONS: list[dict[str, Any]] = [
    {"query": "git backup", "limit": 20},
    {"query": '"git backup" -merged', "mode": "fts", "explain": True},
    {"query": "mirror the repository", "mode": "vector"},
    {"query": "nightly unique3", "kb": "other"},
]
DOCUMENTS = 10


def fill(session: Session) -> None:
    session.data("kb.create", slug="other")
    for number in range(DOCUMENTS):
        text = " ".join(WORDS[number * k % len(WORDS)] for k in range(1, 25 + number))
        session.data(
            "doc.create",
            title=f"Title {number}",
            text=f"{text} unique{number}",
            kb="other" if number % 2 else "default",
        )
    session.embedded()  # so that the pack has vectors of what is replaced and deleted
    for id in (1, 4, 7):
        session.data("doc.update", id=id, text=f"git branch number {id} was merged")
    plan = session.error("doc.delete", ids=[2, 5])["plan"]
    session.data("doc.delete", ids=[2, 5], confirm=plan["plan_hash"])
    session.embedded()
    session.library.compact()


def answers(session: Session) -> list[str]:
    """All answers about the documents, except when they were last changed."""
    session.embedded()
    results = [session.data("search", **question) for question in QUESTIONS]
    documents = [
        session.data("doc.get", id=doc["id"], text=True) for doc in session.data("doc.list")
    ]
    for doc in documents:
        del doc["updated_at"]
    results += [documents, session.data("tag.list")]
    return [json.dumps(answer) for answer in results]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A closed store of several segments, and its answers."""
    folder = tmp_path_factory.mktemp("sound")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file, "SEGMENT_BYTES", 3000)
        session = Session(folder / "store", cwd=folder)
        fill(session)
        expected = answers(session)
        session.close()
    assert len(list((folder / "store" / "log").iterdir())) >= 3
    return folder / "store", expected


@pytest.fixture
def store(sound: tuple[Path, list[str]], tmp_path: Path) -> Path:
    """A copy of the store that a test may damage."""
    return Path(shutil.copytree(sound[0], tmp_path / "store"))


def first_error(folder: Path) -> KbprocError | None:
    """Returns the error of opening the store or reading its whole log; None if both succeed."""
    try:
        opened = Library.open(folder, host=FixedHost(), cache=folder.parent / "cache")
    except KbprocError as error:
        return error
    try:
        opened.store.log.verify()
    except KbprocError as error:
        return error
    finally:
        opened.close()
    return None


# ---------------------------------------------------------------------------- the log

Lines = list[tuple[Path, int, bytes]]


def write(lines: list[tuple[Path, bytes]], log: Path) -> None:
    for segment in log.iterdir():
        segment.write_bytes(b"".join(line for path, line in lines if path == segment))


def drop_line(log: Path, at: int) -> None:
    lines = lines_of(log)
    write([(path, line) for i, (path, _, line) in enumerate(lines) if i != at], log)


def repeat_line(log: Path, at: int) -> None:
    write(
        [
            (path, line)
            for i, (path, _, line) in enumerate(lines_of(log))
            for _ in range(1 + (i == at))
        ],
        log,
    )


def swap_lines(log: Path, at: int) -> None:
    lines = lines_of(log)
    order = [*range(at), at + 1, at, *range(at + 2, len(lines))]
    write([(lines[i][0], lines[j][2]) for i, j in enumerate(order)], log)


def cut_at_record(log: Path, at: int) -> None:
    write([(path, line) for path, _, line in lines_of(log)[:at]], log)


def cut_in_record(log: Path, at: int) -> None:
    """Removes the end of the last line."""
    segment = sorted(log.iterdir())[-1]
    segment.write_bytes(segment.read_bytes()[:-20])


def flip_in_line(log: Path, at: int) -> None:
    segment, number, line = lines_of(log)[at]
    lines = segment.read_bytes().splitlines(keepends=True)
    lines[number - 1] = line.replace(b'"prev":"', b'"prev":"0', 1)[:-3] + b"}\n"
    segment.write_bytes(b"".join(lines))


def lose_sector(log: Path, at: int) -> None:
    segment, _, line = lines_of(log)[at]
    data = segment.read_bytes()
    start = data.index(line)
    segment.write_bytes(zero(data, (start + 40) / len(data)))


def lose_segment(log: Path, at: int) -> None:
    lines_of(log)[at][0].unlink()


def lose_all(log: Path, at: int) -> None:
    shutil.rmtree(log)


LOG = {
    "log: a record's bytes are changed": (flip_in_line, (15, 0, 6)),
    "log: a record is dropped": (drop_line, (0, 6)),
    "log: a record is repeated": (repeat_line, (6, 15)),
    "log: two records are swapped": (swap_lines, (6,)),
    "log: a sector is zeroed": (lose_sector, (9,)),
    "log: a segment is gone": (lose_segment, (0, 8)),
    "log: cut off at a record's end": (cut_at_record, (14,)),
    "log: cut off within its last record": (cut_in_record, (15,)),
    "log: gone": (lose_all, (0,)),
}


@pytest.mark.parametrize(
    ("fault", "at"),
    all_or(
        [(fault, places[0]) for fault, (_, places) in LOG.items()],
        [(fault, at) for fault, (_, places) in LOG.items() for at in places],
    ),
)
def test_a_damaged_log(
    open_session: OpenSession, sound: tuple[Path, list[str]], store: Path, fault: str, at: int
) -> None:
    before = lines_of(store / "log")
    assert len(before) == 16
    LOG[fault][0](store / "log", at)
    error = first_error(store)
    assert error is not None and error.type == "store.corrupt", error
    assert "kbproc doctor" in error.hint
    lost_lines = {line for *_, line in before} - {line for *_, line in lines_of(store / "log")}
    damage = salvage.inspect(store, FixedHost())
    assert_told(damage, {record.seq_of(line) for line in lost_lines})
    done = salvage.repair(store, FixedHost())
    after = [line for *_, line in lines_of(store / "log")]
    assert [line for *_, line in before if line not in lost_lines] == [
        line for line in after if line in {line for *_, line in before}
    ], "what is sound stays, byte for byte and in order"
    session = open_session(store)
    assert answers(session) == sound[1]
    assert session.data("doctor", deep=True)["healthy"]
    assert (store / str(done.aside) / "log").exists() or fault == "log: gone"
    if damage.lost:
        note(
            "damage",
            fault,
            "refused with what is lost, named to the record; after the repair "
            "the same answers, from what the views knew",
        )
    else:
        note(
            "damage",
            fault,
            "refused with segment, line and seq; after the repair nothing is "
            "lost and the answers are the same",
        )


def assert_told(damage: salvage.Damage, lost: set[int | None]) -> None:
    """Checks that exactly these records are named as lost and that each damage has a place."""
    named = set[int]()
    for text in damage.lost:
        words = text.partition(" (")[0].split()
        assert ".ndjson, line " in text or "the log, line" in text
        numbers = [int(word) for word in words if word.isdecimal()]
        named |= set(range(numbers[0], numbers[-1] + 1))
    assert named == lost
    assert damage.places or lost
    for text in damage.places:
        assert ".ndjson, line " in text


@settings(max_examples=4)
@given(where=st.floats(0, 1, exclude_max=True))
def test_any_bit_of_the_log(
    sound: tuple[Path, list[str]], tmp_path_factory: pytest.TempPathFactory, where: float
) -> None:
    store = Path(shutil.copytree(sound[0], tmp_path_factory.mktemp("flipped") / "store"))
    segments = sorted((store / "log").iterdir())
    sizes = list(itertools.accumulate(segment.stat().st_size for segment in segments))
    offset = int(where * sizes[-1])
    number = next(i for i, end in enumerate(sizes) if offset < end)
    segment, start = segments[number], sizes[number - 1] if number else 0
    data = segment.read_bytes()
    segment.write_bytes(flip(data, (offset - start + where * sizes[-1] % 1) / len(data)))
    line = data[: offset - start].count(b"\n") + 1
    error = first_error(store)
    assert error is not None and error.type == "store.corrupt"
    places = salvage.inspect(store, FixedHost()).places
    assert any(f"{segment.name}, line {line}:" in place for place in places), places
    salvage.repair(store, FixedHost())
    session = Session(store, cwd=store.parent)
    try:
        assert answers(session) == sound[1]
    finally:
        session.close()
        shutil.rmtree(store.parent)
    note(
        "damage",
        "log: any one bit is flipped",
        "refused with segment, line and seq; after the repair the same answers",
    )


def test_a_damaged_log_without_views(
    open_session: OpenSession, sound: tuple[Path, list[str]], store: Path
) -> None:
    drop_line(store / "log", 4)  # seq 5: the document 3
    shutil.rmtree(store / "views")
    error = first_error(store)
    assert error is not None and error.type == "store.corrupt"
    done = salvage.repair(store, FixedHost())
    assert not done.from_views
    session = open_session(store)
    before = [doc for doc in json.loads(sound[1][len(QUESTIONS)]) if doc["id"] != 3]
    assert json.loads(answers(session)[len(QUESTIONS)]) == before
    note(
        "damage",
        "log: a record is dropped and the views are gone",
        "refused; after the repair its document is gone, every other one is there",
    )


# ----------------------------------------------------------------------------- views

Harm = Callable[[bytes, float], bytes]
HARMS: dict[str, Harm] = {"a bit is flipped": flip, "cut": cut, "a sector is zeroed": zero}


def damaged_in_use(session: Session) -> list[str]:
    return damaged_views(session.store)


def files_of(views: Path, view: str) -> list[Path]:
    """Files of the view that are read: no lock files, and not tantivy's own list of files."""
    if view == "catalog":
        return list(views.glob("catalog*.sqlite"))
    if view == "vectors":
        return [views / "vectors.manifest"]
    paths = [path for path in (views / "fulltext").rglob("*") if path.is_file()]
    return sorted(path for path in paths if not path.name.startswith("."))


def digest_of(catalog: Path) -> str:
    with contextlib.closing(Catalog(catalog)) as opened:
        return opened.queries.digest()


@given(data=st.data())
def test_any_harm_to_a_file_of_the_views(
    sound: tuple[Path, list[str]], tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    view = data.draw(st.sampled_from(["catalog", "fulltext", "vectors"]))
    harm = data.draw(st.sampled_from(sorted(HARMS)))
    where = data.draw(st.floats(0, 1, exclude_max=True))
    views = tmp_path_factory.mktemp("harmed") / "views"
    shutil.copytree(sound[0] / "views", views)
    path = data.draw(st.sampled_from(files_of(views, view)))
    before = path.read_bytes()
    path.write_bytes(HARMS[harm](before, where))
    damaged, same = soundness.damaged_files(views), path.read_bytes() == before
    # Tantivy uses the rest of meta.json only to write, and reports it when it does not fit.
    # A page of the catalog has bytes that no row uses.
    harmless = same or path.name == "meta.json"
    if view == "catalog" and not damaged:
        harmless = digest_of(path) == digest_of(files_of(sound[0] / "views", view)[0])
    shutil.rmtree(views.parent)
    assert damaged == [view] or (harmless and not damaged)


@pytest.mark.parametrize("harm", [*HARMS, "gone"])
@pytest.mark.parametrize("view", ["catalog", "fulltext", "vectors"])
def test_a_damaged_view(
    open_session: OpenSession, sound: tuple[Path, list[str]], store: Path, view: str, harm: str
) -> None:
    for path in files_of(store / "views", view):
        if harm == "gone":
            path.unlink()
        else:
            path.write_bytes(HARMS[harm](path.read_bytes(), 0.5))
    session = open_session(store)
    assert answers(session) == sound[1]
    assert session.data("doctor", deep=True)["healthy"]
    note("damage", f"{view}: {harm}", "made again when the store is opened; the same answers")


@pytest.fixture
def read_whole(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files that are read whole from now on, for their checksums or rows."""
    read: list[str] = []
    is_sound = durable.SoundFiles.is_sound
    is_sound_catalog = catalog.is_sound

    def noted_catalog(path: Path) -> bool:
        read.append(path.name)
        return is_sound_catalog(path)

    monkeypatch.setattr(catalog, "is_sound", noted_catalog)

    def noted(self: durable.SoundFiles, file: Path, check: Callable[[Path], bool]) -> bool:
        def reading(path: Path) -> bool:
            read.append(path.name)
            return check(path)

        return is_sound(self, file, reading)

    monkeypatch.setattr(durable.SoundFiles, "is_sound", noted)
    return read


def test_views_that_nobody_has_touched_are_not_read_again(
    open_session: OpenSession, store: Path, read_whole: list[str]
) -> None:
    one = open_session(store)
    one.close()
    assert {path.name for path in files_of(store / "views", "fulltext")} & set(read_whole)
    read_whole.clear()
    two = open_session(store)
    assert two.data("search", query="git backup")["results"]
    two.close()
    assert read_whole == []
    before = {path.name for path in files_of(store / "views", "fulltext")}
    three = open_session(store)
    three.data("doc.create", title="More", text="text")
    three.embedded()
    three.close()
    assert not [name for name in read_whole if name.startswith("catalog")]
    assert read_whole and not before & set(read_whole), "only what is new, when it is closed"
    read_whole.clear()
    open_session(store)
    assert read_whole == []


def test_what_harms_a_view_and_hides_itself_is_found(
    open_session: OpenSession, sound: tuple[Path, list[str]], store: Path
) -> None:
    """The damaged file has the same size and the same mtime as before."""
    soundness.look(store / "views")
    for view in ("catalog", "fulltext", "vectors"):
        for path in files_of(store / "views", view):
            times, data = path.stat(), path.read_bytes()
            # A page of the catalog may be unused where the middle of the file is.
            where = data.index(b"unique") / len(data) if view == "catalog" else 0.5
            path.write_bytes(flip(data, where))
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert soundness.look(store / "views") == ["catalog", "fulltext", "vectors"]
    session = open_session(store)
    assert answers(session) == sound[1]


def test_views_that_rot_in_use_are_made_again_when_they_are_opened_next(
    open_session: OpenSession, sound: tuple[Path, list[str]], store: Path
) -> None:
    """A process that closes damaged views does not record them as sound."""
    open_session(store).close()  # a copy's vectors are saved anew, since its pack is another file
    one = open_session(store)
    for view in ("fulltext", "vectors"):
        for path in files_of(store / "views", view):
            path.write_bytes(flip(path.read_bytes(), 0.5))
    one.close()
    assert soundness.look(store / "views") == ["fulltext", "vectors"]
    two = open_session(store)
    assert answers(two) == sound[1]
    assert two.data("doctor", deep=True)["healthy"]


def test_doctor_tells_chunks_that_are_indexed_otherwise(session: Session) -> None:
    fill(session)
    store = session.store
    with store.reading() as snapshot:
        rows = list(snapshot.queries.all_index_rows())
    other = [
        *rows[:3],
        structs.replace(rows[3], text=rows[3].text.replace("git", "svn")),
        structs.replace(rows[4], label="elsewhere"),
        structs.replace(rows[5], document_id=99),
        *rows[6:],
    ]
    store.adopt(store.fulltext.build(other, store.fulltext.position))
    finding = {f["name"]: f for f in session.data("doctor", deep=True)["findings"]}["fulltext"]
    assert finding["status"] == "fail"
    assert finding["message"].startswith(f"chunk {rows[3].chunk_id} is indexed differently")
    assert finding["message"].endswith("and 2 more")
    session.library.rebuild()


def test_no_view_is_damaged(session: Session) -> None:
    fill(session)
    views = session.store.folder / "views"
    assert damaged_in_use(session) == []
    session.close()
    assert soundness.damaged_files(views) == soundness.drop_damaged(views) == []


def test_views_that_rot_while_they_are_in_use(session: Session) -> None:
    fill(session)
    session.store.vectors.save()  # type: ignore[union-attr]
    views = session.store.folder / "views"
    for view in ("fulltext", "vectors"):
        for path in files_of(views, view):
            path.write_bytes(flip(path.read_bytes(), 0.5))
    assert damaged_in_use(session) == ["fulltext", "vectors"]
    statuses = {f["name"]: f["status"] for f in session.data("doctor")["findings"]}
    assert (statuses["fulltext"], statuses["vectors"]) == ("fail", "fail")
    session.library.rebuild()
    session.store.vectors.save()  # type: ignore[union-attr]
    assert damaged_in_use(session) == []
    note(
        "damage",
        "fulltext, vectors: a bit is flipped in use",
        "found by doctor; index.rebuild makes them again",
    )


# ------------------------------------------------------------------- pack and sources


PACK: dict[str, Callable[[bytes], bytes]] = {
    "a bit of a record is flipped": lambda data: flip(data, 0.5),
    "a bit of its head is flipped": lambda data: flip(data, 0.001),
    "cut within a record": lambda data: data[:-7],
    "cut in the middle": lambda data: cut(data, 0.5),
    "a sector is zeroed": lambda data: zero(data, 0.5),
    "empty": lambda data: b"",
}


def catalog_of(store: Path) -> Path:
    [path] = (store / "views").glob("catalog-*.sqlite")
    return path


def test_a_catalog_that_was_closed_has_no_wal(sound: tuple[Path, list[str]]) -> None:
    names = {path.name for path in (sound[0] / "views").glob("catalog*")}
    assert names == {"catalog-000001.sqlite", "catalog.closed"}


def test_the_catalog_of_a_process_that_died_is_kept_and_not_read_whole(
    open_session: OpenSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, copy = open_session(), tmp_path / "killed"
    fill(session)
    as_killed(session.store.folder, copy)
    monkeypatch.setattr("kbproc.engine.projections.catalog.catalog.is_sound", lambda path: False)
    assert soundness.damaged_files(copy / "views") == []
    again = open_session(copy)
    assert again.data("doc.list") == session.data("doc.list")
    assert len(list((copy / "views").glob("catalog-*.sqlite"))) == 1


def test_a_row_that_rots_in_use_is_refused_and_the_catalog_made_afresh(
    session: Session,
) -> None:
    fill(session)
    alter(session.store.catalog, "update documents set title = 'Rotten' where id = 3")
    error = session.error("doc.list")
    assert (error["type"], "damaged" in error["message"]) == ("store.corrupt", True)
    assert session.data("doc.get", id=1)["title"] == "Title 0", "a sound row is served"
    session.library.tidy()
    assert session.data("doc.get", id=3)["title"] == "Title 2"
    note("damage", "catalog: a row rots in use", "refused, and made again in a quiet moment")


def test_what_no_read_verifies_is_found_in_a_quiet_moment(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counters, and the lists of tags and metadata; each day anew."""
    session.data("doc.create", title="T", text="x", tags=["sea"], metadata={"depth": 3})
    session.embedded()
    expected = session.data("tag.list"), session.data("doc.list", tags=["sea"])
    for statement in (
        "update counts set documents = documents + 1",
        "update tag_counts set documents = 7",
        "delete from tags",
        "update metadata set value = '4'",
        "drop index documents_kb",
    ):
        alter(session.store.catalog, statement)
        findings = {f["name"]: f["status"] for f in session.data("doctor")["findings"]}
        assert findings["catalog"] == "fail", statement
        session.library.tidy()
        monkeypatch.setattr("kbproc.knowledge.app.upkeep.CHECK_SECONDS", 0.0)
        answers = session.data("tag.list"), session.data("doc.list", tags=["sea"])
        assert answers == expected, statement
        assert session.store.catalog.damaged() == []
    note(
        "damage",
        "catalog: an index, a counter, a tag or a member of the metadata rots in use",
        "found by doctor, and made again in a quiet moment; each day once where nobody asks",
    )


@pytest.mark.parametrize(
    "statement",
    [
        "delete from head",
        "insert into agents(slug, checksum) values('x', 1)",
        "update documents set title = 'x' where id = 1",  # the log changes it once more
        "update chunks set text = 'x'",  # the vectors need it, which are opened last
    ],
)
def test_a_store_opens_whose_catalog_proves_to_be_damaged(tmp_path: Path, statement: str) -> None:
    """The catalog of a killed process is not read whole before it is used."""
    client, killed = Client(tmp_path / "one"), tmp_path / "two"
    client.ask("doc.create", title="One", text="words")
    client.embed()
    client.library.store.catch_up()
    as_killed(client.folder / "store", killed / "store")
    is_late = "chunks" in statement
    if not is_late:
        client.ask("doc.update", id=1, title="Two")
        log = client.folder / "store" / "log"
        shutil.copytree(log, killed / "store" / "log", dirs_exist_ok=True)
    with contextlib.closing(Catalog(catalog_of(killed / "store"))) as catalog:
        alter(catalog, statement)
        as_killed(killed / "store", tmp_path / "three" / "store")
    client.close()
    if is_late:
        with pytest.raises(KbprocError, match="a row of chunks is damaged"):
            Client(tmp_path / "three")
    again = Client(tmp_path / "three")
    assert [document.title for document in again.ask("doc.list")] == ["One" if is_late else "Two"]
    assert damaged_views(again.library.store) == []
    again.close()
    note(
        "damage",
        "catalog: a row rots that the opening reads",
        "made again by this opening or the next; the same answers",
    )


@pytest.mark.parametrize("harm", [*PACK, "records are swapped", "gone"])
def test_a_damaged_pack(
    open_session: OpenSession, sound: tuple[Path, list[str]], store: Path, harm: str
) -> None:
    [path] = (store / "vectors").glob("*.pack")
    if harm == "gone":
        path.unlink()
    elif harm == "records are swapped":
        path.write_bytes(_swapped(path.read_bytes()))
    else:
        path.write_bytes(PACK[harm](path.read_bytes()))
    session = open_session(store)
    assert answers(session) == sound[1]
    assert session.data("doctor", deep=True)["healthy"]
    note(
        "damage",
        f"embeddings: {harm}",
        "what is damaged is left out and embedded again; the same answers",
    )


def _swapped(data: bytes) -> bytes:
    """Swaps the records among one another: each is sound in itself, but in the wrong place."""
    from kbproc.engine.models.pack import HEADER_BYTES

    size = 32 + 2 * 64 + 4
    assert (len(data) - HEADER_BYTES) % size == 0
    records = [data[at : at + size] for at in range(HEADER_BYTES, len(data), size)]
    assert len(set(records)) == len(records) > DOCUMENTS
    return data[:HEADER_BYTES] + b"".join(records[::-1])


SOURCES: dict[str, Callable[[bytes], bytes]] = {
    "a bit is flipped": lambda data: flip(data, 0.5),
    "cut": lambda data: cut(data, 0.5),
}


@pytest.mark.parametrize("fault", [*SOURCES, "gone"])
def test_a_damaged_source(
    open_session: OpenSession, sound: tuple[Path, list[str]], store: Path, fault: str
) -> None:
    documents = json.loads(sound[1][len(QUESTIONS)])
    sha256 = next(doc["sha256"] for doc in documents if doc["id"] == 3)
    if fault == "gone":
        blobs = Blobs(store)
        blobs.load()
        blobs.erase([sha256])
    else:
        harmed = harm(store, sha256, SOURCES[fault])
    one = open_session(store)
    assert answers(one) == sound[1], "the text is in the log"
    [notice] = one.ask("doc.get", id=3, text=True)["result"]["meta"]["notice"]
    assert "damaged or missing" in notice
    assert one.error("doc.download", id=3)["type"] == "store.corrupt"
    finding = {f["name"]: f for f in one.data("doctor", deep=True)["findings"]}["blobs"]
    assert finding["status"] == "fail"
    assert sha256[:12] in finding["message"] and "document 3 “Title 2”" in finding["message"]
    one.close()
    if fault != "gone":
        aside = salvage.repair(store, FixedHost()).aside
        assert (store / str(aside) / "blobs" / sha256).read_bytes() == harmed
    two = open_session(store)
    two.data("doc.create", title="Again", text=two.data("doc.get", id=3, text=True)["text"])
    assert two.data("doc.download", id=3)["sha256"] == sha256
    note(
        "damage",
        f"source: {fault}",
        "named with its documents; search as before; the same bytes ingested again heal it",
    )


@pytest.mark.parametrize("fault", ["a pack is cut off", "a pack is gone"])
def test_a_damaged_source_pack(
    open_session: OpenSession, sound: tuple[Path, list[str]], store: Path, fault: str
) -> None:
    documents = json.loads(sound[1][len(QUESTIONS)])
    sha256 = next(doc["sha256"] for doc in documents if doc["id"] == 3)
    pack, start, _ = frame_of(store, sha256)
    places = {doc["sha256"]: frame_of(store, doc["sha256"])[1] for doc in documents}
    lost = {name for name, at in places.items() if fault == "a pack is gone" or at >= start}
    if fault == "a pack is gone":
        pack.unlink()
    else:
        os.truncate(pack, start + 9)
    one = open_session(store)
    assert answers(one) == sound[1], "the text is in the log"
    finding = {f["name"]: f for f in one.data("doctor", deep=True)["findings"]}["blobs"]
    assert finding["status"] == "fail"
    assert finding["message"].startswith(f"{len(lost)} sources are missing: ")
    names = [doc["sha256"] for doc in documents]
    assert set(one.store.blobs.broken(names, deep=True)) == lost
    for doc in documents:
        text = one.data("doc.get", id=doc["id"], text=True)["text"]
        one.data("doc.create", title="Again", text=text)
    assert one.store.blobs.broken(names, deep=True) == []
    note(
        "damage",
        f"source: {fault}",
        "each lost source is named with its documents; search as before; the same bytes ingested "
        "again heal them",
    )


# ---------------------------------------------------------------------------- doctor


def test_doctor_tells_line_record_and_document_of_an_open_store(session: Session) -> None:
    fill(session)
    [segment] = (session.store.folder / "log").iterdir()
    whole = segment.read_bytes()
    drop_line(session.store.folder / "log", 4)
    finding = {f["name"]: f for f in session.data("doctor")["findings"]}["log"]
    assert finding["status"] == "fail"
    assert (
        "record 5 is lost (000000000001.ndjson, line 5): document 3 “Title 2”" in finding["message"]
    )
    assert "kbproc doctor --repair" in finding["hint"]
    assert session.error("doctor", repair=True)["type"] == "resource.conflict"
    segment.write_bytes(whole)


def test_a_damaged_log_behind_whole_views_is_told_and_not_written(store: Path) -> None:
    log, create = store / "log", {"title": "x", "text": "x"}
    flip_in_line(log, 3)
    session = Session(store, cwd=store.parent)
    for method, params in (("search", {"query": "git"}), ("status", {}), ("doc.list", {})):
        [notice] = session.ask(method, **params)["result"]["meta"]["notice"]
        assert "000000000001.ndjson" in notice and "kbproc doctor --repair" in notice
    seq = session.data("ping")["seq"]
    error = session.error("doc.create", **create)
    assert error["type"] == "store.corrupt" and "kbproc doctor" in error["hint"]
    assert session.data("ping")["seq"] == seq
    session.close()
    again = Session(store, cwd=store.parent)  # the damage is known from the start
    assert again.error("doc.create", **create)["type"] == "store.corrupt"
    again.close()
    salvage.repair(store, FixedHost())
    mended = Session(store, cwd=store.parent)
    assert "notice" not in mended.ask("status")["result"]["meta"]
    mended.data("doc.create", **create)
    mended.close()


def test_what_is_damaged_in_use_is_told_until_it_is_whole_again(session: Session) -> None:
    fill(session)
    [segment] = (session.store.folder / "log").iterdir()
    whole = segment.read_bytes()
    flip_in_line(segment.parent, 3)
    assert "notice" not in session.ask("status")["result"]["meta"]
    session.library.tidy()
    assert session.ask("status")["result"]["meta"]["notice"]
    assert session.error("doc.create", title="x", text="x")["type"] == "store.corrupt"
    segment.write_bytes(whole)
    session.data("events.verify")
    assert "notice" not in session.ask("status")["result"]["meta"]
    session.data("doc.create", title="x", text="x")


def test_what_nobody_has_touched_is_not_read_again(store: Path) -> None:
    marks = store / "views" / "log.seen"
    for number in range(2):
        session = Session(store, cwd=store.parent)
        session.data("doc.create", title=f"Later {number}", text="x")
        session.close()
        assert Marks(marks).unknown(sorted((store / "log").iterdir())) == []
    first = sorted((store / "log").iterdir())[0]
    first.touch()
    assert Marks(marks).unknown([first]) == [first]


def test_repair_needs_the_scope_admin(open_session: OpenSession) -> None:
    session = open_session(scopes="store:read")
    session.data("doctor")
    error = session.error("doctor", repair=True)
    assert (error["type"], error["field"]) == ("auth.insufficient_scope", "$.params.repair")


def test_repair_from_the_shell(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = in_process(tmp_path, monkeypatch, capsys)
    drop_line(store / "log", 4)
    code, out, err = run("doctor", "--format", "json", "--strict")
    assert code == 2 and "document 3 “Title 2”" in err
    code, out, _ = run("doctor", "--repair", "--format", "json")
    findings = {f["name"]: f for f in json.loads(out)["data"]["findings"]}
    assert findings["repair"]["status"] == "warn"
    assert "damaged/000001" in findings["repair"]["message"]
    assert "document 3 “Title 2”" in findings["repair"]["message"]
    assert json.loads(out)["data"]["healthy"]
    code, out, _ = run("doctor", "--repair", "--format", "json")
    assert {f["name"]: f["status"] for f in json.loads(out)["data"]["findings"]}["repair"] == "pass"
