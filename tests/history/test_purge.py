"""Purges: no file holds the erased text, all else stays, and an interrupted purge goes on."""

from __future__ import annotations

import functools
import gc
import json
import shutil
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from kbproc.base.errors import KbprocError
from kbproc.base.params import decode_params
from kbproc.base.text.query import parse_query
from kbproc.base.values import canonical
from kbproc.engine.log import record
from kbproc.engine.log.record import Record
from kbproc.engine.projections.catalog.files import catalogs
from kbproc.engine.sources.blobs import digest
from kbproc.engine.store import lane
from kbproc.engine.store.decision import DecisionState, WriteRequest
from kbproc.engine.store.lane import Lane
from kbproc.engine.store.sql import query
from kbproc.knowledge.app.health import doctor
from kbproc.knowledge.documents.content import content_of_text
from kbproc.knowledge.documents.revision import Ids, document_written
from kbproc.knowledge.history.purge import Trace
from tests.conftest import OpenSession
from tests.kit.corpus import answers, fill
from tests.kit.faults import full_at, killed_at
from tests.kit.knowledge import agent, check, entry, note, revive, supersede
from tests.kit.patience import PATIENCE, until
from tests.kit.talk import Session
from tests.kit.traces import PURGE_POINTS, holding

PHRASE = "xylophone quarantine"
WORDS = ("xylophone", "quarantine", "Xylophone")


def purge(session: Session, *ids: int, **more: Any) -> Any:
    plan = session.error("store.purge", document_ids=list(ids), **more)["plan"]
    return session.data("store.purge", document_ids=list(ids), **more, confirm=plan["plan_hash"])


def secret(session: Session, tmp_path: Path) -> list[int]:
    """Puts the phrase in every place where a document can hold it; returns the documents' ids."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "xylophone.md").write_text(f"# Xylophone\n\nThe {PHRASE} again.\n")
    (tmp_path / "docs" / "harmless.md").write_text("# Harmless\n\nNothing here.\n")
    session.data("doc.ingest", paths=["docs"], client_token="in")
    created_id = session.data(
        "doc.create",
        title=f"The {PHRASE}",
        text=f"A text of {PHRASE}. " * 30,
        tags=["xylophone"],
        metadata={"why": PHRASE},
        source_id=PHRASE,
        client_token="made",
    )["id"]
    plain = session.data("doc.create", title="Plain", text=f"First the {PHRASE}.")["id"]
    session.embedded()
    session.data("doc.update", id=plain, text="then something else", title="Other")
    session.data("doc.update", id=created_id, title=f"Another {PHRASE}", client_token="title")
    hidden = session.data("doc.create", title="Hidden", text=f"{PHRASE} hidden")["id"]
    plan = session.error("doc.delete", ids=[hidden])["plan"]
    session.data("doc.delete", ids=[hidden], confirm=plan["plan_hash"])
    session.embedded()
    session.data("search", query=PHRASE, as_of=session.store.seq)
    listed = session.data("doc.list")
    ingested = [d["id"] for d in listed if "xylophone" in (d["source"]["path"] or "")]
    return [*ingested, created_id, plain, hidden]


def test_no_file_holds_the_phrase(open_session: OpenSession, tmp_path: Path) -> None:
    session = open_session()
    fill(session, 6)
    before = answers(session), session.data("doc.list")
    ids = secret(session, tmp_path)
    store = session.store
    assert len(holding(store.folder, *WORDS)) > 3
    done = purge(session, *ids)
    assert done["purged"] == 4
    assert done["records"] >= 5
    assert done["sources"] == 5
    assert holding(store.folder, *WORDS) == []
    assert store.log.verify() == store.seq
    assert not any(doctor.compare(store).values())
    listed = session.data("doc.list")
    assert [d for d in listed if d["title"] != "Harmless"] == before[1]
    answers_before = answers(session)
    session.close()
    assert holding(store.folder, *WORDS) == []
    again = open_session()
    assert answers(again) == answers_before
    assert again.store.log.verify() == again.store.seq
    assert holding(again.store.folder, *WORDS) == []


def test_no_cache_in_memory_holds_the_phrase(session: Session) -> None:
    timeout = session.data("doc.create", title="Timeout", text=f"The {PHRASE} takes 30 seconds.")
    port = session.data("knowledge.store", title=f"Port of {PHRASE}", body="8080")
    rule = session.data("knowledge.store", title="A rule", body=f"Always name the {PHRASE}.")
    session.embedded()
    for text in (PHRASE, "the port", "how many seconds"):
        session.data("search", query=text, about=True)
    assert caches_holding(WORDS[0])
    purge(session, timeout["id"], port["id"], rule["id"])
    assert caches_holding(WORDS[0]) == set()


def caches_holding(word: str) -> set[str]:
    """Returns the names of the caches of kbproc's functions that hold the word."""
    modules = [module for name, module in sys.modules.items() if name.startswith("kbproc.")]
    members = [member for module in modules for member in vars(module).values()]
    caches = [member for member in members if isinstance(member, functools._lru_cache_wrapper)]
    return {cache.__qualname__ for cache in caches if word in texts_in(cache).lower()}


def texts_in(cache: object) -> str:
    """Returns the texts among a cache's arguments and results, and within tuples and the like."""
    texts: list[str] = []
    visited: set[int] = set()
    items = gc.get_referents(cache)
    while items:
        item = items.pop()
        if isinstance(item, str | bytes):
            texts.append(repr(item))
        elif isinstance(item, tuple | list | dict | frozenset | Struct) and id(item) not in visited:
            visited.add(id(item))
            items += gc.get_referents(item)
    return " ".join(texts)


def test_what_is_purged_stays_so(open_session: OpenSession, tmp_path: Path) -> None:
    session = open_session()
    first = session.data("doc.create", title="Keep", text="kept text", client_token="keep")["id"]
    ids = secret(session, tmp_path)
    purge(session, *ids)
    error = session.error("doc.get", id=ids[0])
    assert error["type"] == "resource.not_found"
    assert "purged" in error["message"]
    repeated = session.error(
        "doc.create",
        title=f"The {PHRASE}",
        text=f"A text of {PHRASE}. " * 30,
        tags=["xylophone"],
        metadata={"why": PHRASE},
        source_id=PHRASE,
        client_token="made",
    )
    assert repeated["type"] == "resource.not_found"
    assert "purged" in repeated["message"]
    ingested = session.ask("doc.ingest", paths=["docs"], client_token="in")
    assert "purged" in ingested["error"]["data"]["message"]
    same = session.ask("doc.create", title="Keep", text="kept text", client_token="keep")["result"]
    assert (same["data"]["id"], same["meta"]["duplicate"]) == (first, True)
    new = session.data("doc.create", title="New", text="new")["id"]
    assert new > max(ids)
    assert (
        session.data("search", query=PHRASE, mode="fts", as_of=session.store.seq - 3)["results"]
        == []
    )
    purge_again = session.data("store.purge", document_ids=ids)
    assert purge_again["purged"] == 0
    shutil.rmtree(session.store.folder / "views")
    session.close()
    again = open_session()
    assert again.data("doc.get", id=first)["title"] == "Keep"
    assert again.data("doc.create", title="Next", text="next")["id"] == new + 1


def test_the_same_bytes_elsewhere_stay(session: Session) -> None:
    one = session.data("doc.create", title="One", text="shared text")["id"]
    two = session.data("doc.create", title="Two", text="shared text")["id"]
    done = purge(session, one)
    assert done["sources"] == 0
    assert session.data("doc.download", id=two)["size_bytes"] == len("shared text")


def test_the_same_bytes_that_come_meanwhile_stay(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same bytes arrive after the purge has listed its sources and before it erases them."""
    purged_id = session.data("doc.create", title="Goes", text="the same words")["id"]
    store, follow = session.store, Trace.follow
    content = content_of_text(session.library.intake, "the same words", "text", "Comes")
    new_ids: list[int] = []

    def write(lane: Lane) -> int:
        state = DecisionState(lane.queries, lane.now, lane.head, lane.group.roster)
        ids = Ids(state)
        event = document_written(
            state, content, kb="default", existing=None, ids=ids, tags=[], metadata={}
        )
        lane.append([event], actor="another", method="doc.create")
        return event.id

    def followed(trace: Trace, record: Record) -> None:
        follow(trace, record)
        if record.seq == store.log.head.seq and not new_ids:
            new_ids.append(store.commit(write))

    monkeypatch.setattr(Trace, "follow", followed)
    purge(session, purged_id)
    [comes] = new_ids
    assert session.data("doc.get", id=comes, text=True)["text"] == "the same words"
    assert session.data("doc.download", id=comes)["size_bytes"] == len("the same words")


def test_whoever_reads_the_past_ends_in_peace(session: Session) -> None:
    fill(session, 6)
    session.embedded()
    pasts, before = session.library.pasts, session.store.seq
    plan = session.error("store.purge", document_ids=[1])["plan"]
    purging = threading.Thread(
        target=session.data,
        args=("store.purge",),
        kwargs={"document_ids": [1], "confirm": plan["plan_hash"]},
    )
    with pasts.at(before) as then:
        purging.start()
        until(lambda: session.store.seq > before, "the record of the purge")
        for _ in range(100):
            with then.searching() as snapshot:
                assert snapshot.queries.chunk_total() >= 6
                query = parse_query("git")
                assert snapshot.fulltext.search(query, 10).total == len(
                    snapshot.fulltext.search(query, 10).chunk_ids
                )
    purging.join(PATIENCE)
    assert not purging.is_alive()
    assert session.error("doc.get", id=1, as_of=before)["type"] == "resource.not_found"


def test_the_plan_names_what_goes(session: Session) -> None:
    id = session.data("doc.create", title="Doomed", text="x")["id"]
    error = session.error("store.purge", document_ids=[id])
    assert error["type"] == "input.confirmation_required"
    assert error["plan"]["targets"][0]["name"] == "Doomed"
    session.data("doc.update", id=id, title="Changed since")
    late = session.error("store.purge", document_ids=[id], confirm=error["plan"]["plan_hash"])
    assert late["type"] == "resource.plan_stale"
    assert session.error("store.purge", document_ids=[77])["type"] == "resource.not_found"


def test_killed_half_way_it_ends_on_reopen(open_session: OpenSession, tmp_path: Path) -> None:
    session = open_session()
    fill(session, 3)
    ids = secret(session, tmp_path)
    copies = tmp_path / "killed"
    plan = session.error("store.purge", document_ids=ids)["plan"]
    with killed_at(PURGE_POINTS, session.store.folder, copies):
        session.data("store.purge", document_ids=ids, confirm=plan["plan_hash"])
    expected = json.dumps(session.data("doc.list")), answers(session)
    for point in PURGE_POINTS:
        again = open_session(copies / point)
        assert holding(copies / point, *WORDS) == [], point
        assert again.store.log.verify() == again.store.seq, point
        assert (json.dumps(again.data("doc.list")), answers(again)) == expected, point


def test_nothing_is_left_in_a_file_while_a_reader_and_sql_are_open(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader keeps what it sees, in files that have no name any more."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    ids = secret(session, tmp_path)
    folder, sql = session.store.folder, "select count(*) from chunks where text like ?"
    former = session.store.catalog.path
    patience = query.Deadline(600_000, lambda: False)
    with (
        session.store.reading() as snapshot,
        query.QueryProcess(patience, query.MEMORY_BYTES) as running,
    ):
        query.current_catalog(session.store).open_tables(running)
        session.data("doc.create", title="Later", text="other words")
        assert session.data("sql.query", sql=sql, params=[f"%{WORDS[0]}%"])["rows"] != [[0]]
        assert holding(folder, *WORDS) and query.tables_of(folder).exists()
        before = snapshot.queries.chunks_of(ids[0])
        purge(session, *ids)
        assert holding(folder, *WORDS) == holding(temporary, *WORDS) == []
        assert not query.tables_of(folder).exists()
        assert before and snapshot.queries.chunks_of(ids[0]) == before
        # A file of the same name would lose its WAL to the reader's.
        names = [former.name]
        for _ in range(2):
            assert [path.name for path in catalogs(folder / "views")] > names[-1:]
            names.append(session.store.catalog.path.name)
            session.library.rebuild()
        assert snapshot.queries.chunks_of(ids[0]) == before
    assert session.data("sql.query", sql=sql, params=[f"%{WORDS[0]}%"])["rows"] == [[0]]
    session.close()
    assert holding(folder, *WORDS) == []


@pytest.mark.parametrize("point", ["purge.segment", "purge.log", "purge.vectors", "catalog.built"])
def test_a_full_disk_half_way(open_session: OpenSession, tmp_path: Path, point: str) -> None:
    session = open_session()
    ids = secret(session, tmp_path)
    plan = session.error("store.purge", document_ids=ids)["plan"]
    with full_at(point):
        error = session.error("store.purge", document_ids=ids, confirm=plan["plan_hash"])
    assert error["type"] == "store.io"
    assert session.data("search", query=PHRASE, mode="fts")["results"] == []
    done = session.ask("store.purge", document_ids=ids)
    assert "result" in done, done
    assert holding(session.store.folder, *WORDS) == []


def test_one_that_was_cut_off_ends_with_the_next(open_session: OpenSession, tmp_path: Path) -> None:
    session = open_session()
    ids = secret(session, tmp_path)
    plan = session.error("store.purge", document_ids=ids[:1])["plan"]
    with full_at("purge.log"):
        session.error("store.purge", document_ids=ids[:1], confirm=plan["plan_hash"])
    purge(session, *ids[1:])
    assert holding(session.store.folder, *WORDS) == []
    with session.store.reading() as snapshot:
        assert snapshot.queries.unfinished_purges() == []


def test_without_a_model(open_session: OpenSession, tmp_path: Path) -> None:
    session = open_session(model="none")
    id = session.data("doc.create", title="The " + PHRASE, text=PHRASE)["id"]
    purge(session, id)
    assert holding(session.store.folder, *WORDS) == []
    with pytest.raises(KbprocError):
        session.store.blobs.get("0" * 64)


# ------------------------------------------------------------------- entries and notes


def test_no_file_holds_an_entry_or_a_note(open_session: OpenSession, tmp_path: Path) -> None:
    session = open_session()
    store = session.store
    agent(store, "gitea")
    harmless_id = note(store, "gitea", "kept", "# Kept\n\nHarmless.\n")
    ids = [
        entry(store, "Plain", "harmless", source=PHRASE),
        entry(store, "Plain, too", "as harmless", task_id=f"T {PHRASE}", task_kind="produced"),
        entry(store, f"On {PHRASE}", f"The {PHRASE}.", tags=["xylophone"]),
        note(store, "gitea", "xylophone-notes", f"# The {PHRASE}\n\nIt is.\n", title=PHRASE),
    ]
    supersede(store, ids[2], ids[0])
    # The log keeps an outcome under a token that only shows the note.
    outcome = {"data": {"id": ids[3], "slug": "xylophone-notes", "title": PHRASE}}
    store.commit(
        lambda lane: lane.append(
            [],
            actor="gitea",
            method="note.put",
            token="t",
            params_hash="",
            result=json.dumps(outcome).encode(),
        )
    )
    session.embedded()
    session.data("search", query=PHRASE, as_of=store.seq)
    assert len(holding(store.folder, *WORDS)) > 3
    plan = session.error("store.purge", document_ids=ids)["plan"]
    assert any("and the note's file" in change for change in plan["changes"])
    assert purge(session, *ids)["purged"] == 4
    assert holding(store.folder, *WORDS) == []
    assert not (store.folder / "notes" / "gitea" / "xylophone-notes.md").exists()
    assert (store.folder / "notes" / "gitea" / "kept.md").exists()
    assert store.log.verify() == store.seq
    assert not any(doctor.compare(store).values())
    assert check(session) == {}
    session.close()
    again = open_session()
    assert holding(again.store.folder, *WORDS) == []
    with again.store.reading() as snapshot:
        assert [row.id for row in snapshot.queries.notes("gitea")] == [harmless_id]


def test_no_file_holds_the_digest_of_what_an_entry_was_derived_from(
    open_session: OpenSession, tmp_path: Path
) -> None:
    """The digest of a short line could be guessed from."""
    session = open_session()
    file = tmp_path / "pin.md"
    file.write_text(f"{PHRASE}\nThe rest.\n")
    session.data("doc.ingest", paths=[str(file)])
    [purged_id] = [row["id"] for row in session.data("doc.list")]
    other_id = session.data("doc.create", title="Plain", text="harmless")["id"]
    sources = [purged_id, other_id, f"{file}:1"]
    entry_id = session.data("knowledge.store", title="On it", body="Yes.", derived_from=sources)[
        "id"
    ]
    session.data("knowledge.verify", ids=[entry_id])
    digests = [digest(file.read_bytes()), digest(PHRASE.encode())]
    assert all(holding(session.store.folder, one) for one in digests)
    purge(session, purged_id)
    assert holding(session.store.folder, *digests) == []
    assert holding(session.store.folder, digest(b"harmless")) != [], "the others stay"
    change = {"change": "gone", "cite": f"document {purged_id}"}
    assert session.data("knowledge.get", id=entry_id)["source_changed"] == [change]
    assert [row["id"] for row in session.data("knowledge.list", stale=True)] == [entry_id]
    session.data("knowledge.verify", ids=[entry_id])
    assert "source_changed" not in session.data("knowledge.get", id=entry_id)
    assert session.store.log.verify() == session.store.seq
    assert not any(doctor.compare(session.store).values())


def test_no_outcome_holds_an_entry_or_a_note(open_session: OpenSession, tmp_path: Path) -> None:
    """A purge also erases the outcomes that the log keeps under the writes' tokens."""
    session = open_session()
    folder = session.store.folder
    session.data("agent.create", slug="gitea", client_token="a")
    params = {
        "title": PHRASE,
        "body": f"Of {PHRASE}.",
        "source": PHRASE,
        "client_token": "k",
        "task_ref": {"task_id": PHRASE},
    }
    first = session.data("knowledge.store", **params)["id"]
    other = session.data("knowledge.store", title="Other", body="another")["id"]
    session.data("knowledge.supersede", old_id=first, new_id=other, client_token="s")
    put = {"agent": "gitea", "slug": "xylophone", "text": f"# {PHRASE}\n"}
    note = session.data("note.put", **put, client_token="n1")["id"]
    session.data("note.put", **put, client_token="n2")  # changes nothing, and its outcome shows it
    (folder / "notes" / "gitea" / "quarantine.md").write_text(f"# The {PHRASE}\n")
    session.data("note.sync", client_token="y")
    synced = [n["id"] for n in session.data("note.list", agent="gitea") if n["id"] != note]
    session.embedded()
    purge(session, first, note, *synced)
    assert holding(folder, *WORDS) == []
    assert list((folder / "notes" / "gitea").glob("*.md")) == []
    assert check(session) == {other: (None, other)}
    again = session.error("knowledge.store", **params)
    assert (again["type"], "purged" in again["message"]) == ("resource.not_found", True)
    session.data("note.sync")
    assert session.data("note.list", agent="gitea") == []


def test_no_outcome_holds_the_title_of_an_entry_that_was_like_another(session: Session) -> None:
    body = "Deleting the lock file drops the cache, and then builds take twelve minutes."
    first = session.data("knowledge.store", title=PHRASE, body=body)["id"]
    params = {"title": "Harmless", "body": body, "client_token": "k"}
    result = session.data("knowledge.store", **params)
    assert [one["title"] for one in result["similar"]] == [PHRASE]
    assert session.data("knowledge.store", **params) == {**result, "similar": []}
    session.embedded()
    purge(session, first)
    assert holding(session.store.folder, *WORDS) == []


def test_what_a_purged_entry_stood_for_holds_again(session: Session) -> None:
    store = session.store
    one, two, three, four = [entry(store, f"Entry {n}") for n in range(4)]
    supersede(store, one, two)
    supersede(store, two, three)
    supersede(store, four, three)
    plan = session.error("store.purge", document_ids=[two])["plan"]
    assert f"entry {one} “Entry 0” is superseded by {three} instead" in plan["changes"]
    purge(session, two)
    assert check(session) == {one: (three, three), three: (None, three), four: (three, three)}
    plan = session.error("store.purge", document_ids=[three])["plan"]
    assert f"entry {one} “Entry 0” holds again" in plan["changes"]
    assert [event["type"] for event in plan["events"]["items"]] == ["entry.revived", "doc.purged"]
    purge(session, three)
    assert check(session) == {one: (None, one), four: (None, four)}
    supersede(store, one, four)
    assert check(session)[one] == (four, four)


def test_heads_are_right_where_a_purged_entry_was_a_head_for_a_while(session: Session) -> None:
    """The log no longer describes the purged entry; the heads of its predecessors stay the same."""
    store = session.store
    one, two, three, four = [entry(store, f"Entry {n}") for n in range(4)]
    supersede(store, one, two)
    supersede(store, two, three)
    revive(store, two, three)
    supersede(store, two, four)
    purge(session, two)
    assert check(session) == {one: (four, four), three: (None, three), four: (None, four)}


def test_a_stale_plan_of_what_holds_again(session: Session) -> None:
    store = session.store
    one, two, three = [entry(store, f"Entry {n}") for n in range(3)]
    supersede(store, one, two)
    plan = session.error("store.purge", document_ids=[two])["plan"]
    supersede(store, two, three)
    late = session.error("store.purge", document_ids=[two], confirm=plan["plan_hash"])
    assert late["type"] == "resource.plan_stale"


def test_a_note_that_was_edited_since_is_not_purged(session: Session) -> None:
    """The folder is not watched here, because a sync in between would make the plan stale first."""
    session.library.notebooks.close()
    store = session.store
    agent(store, "gitea")
    id = note(store, "gitea", "hooks", "# Hooks\n")
    file = store.folder / "notes" / "gitea" / "hooks.md"
    file.write_text("# Hooks\n\nEdited by hand.\n")
    plan = session.error("store.purge", document_ids=[id])["plan"]
    late = session.error("store.purge", document_ids=[id], confirm=plan["plan_hash"])
    assert late["type"] == "resource.conflict"
    assert "Edited by hand" in file.read_text()
    with store.reading() as snapshot:
        assert snapshot.queries.note("gitea", "hooks") is not None


# ------------------------------------------------------------- files of several notes


def notes_of(session: Session, slug: str) -> Path:
    """Creates an agent and returns its folder of notes, which is not watched."""
    session.library.notebooks.close()
    return Path(session.data("agent.create", slug=slug)["notes_folder"])


def put(session: Session, slug: str, text: str) -> int:
    id: int = session.data("note.put", agent="gitea", slug=slug, text=text)["id"]
    return id


def approved(session: Session, method: str, **params: Any) -> Any:
    plan = session.error(method, **params)["plan"]
    return session.data(method, **params, confirm=plan["plan_hash"])


def test_a_purge_that_is_refused_has_removed_no_file(session: Session) -> None:
    folder = notes_of(session, "gitea")
    ids = [put(session, "one", "# One\n"), put(session, "two", "# Two\n")]
    plan = session.error("store.purge", document_ids=ids)["plan"]
    (folder / "two.md").write_text("# Edited\n")
    error = session.error("store.purge", document_ids=ids, confirm=plan["plan_hash"])
    assert error["type"] == "resource.conflict"
    assert sorted(path.name for path in folder.glob("*.md")) == ["one.md", "two.md"]


@pytest.mark.parametrize("text", ["# One\n", "# The secret\n"])
def test_a_file_that_a_deleted_agent_left_goes_with_its_note(session: Session, text: str) -> None:
    """The purge removes the file at any revision; else a new agent of that name would import it."""
    folder = notes_of(session, "gitea")
    id = put(session, "one", "# The secret\n")
    put(session, "one", "# One\n")
    approved(session, "agent.delete", slug="gitea")
    (folder / "one.md").write_text(text)
    plan = session.error("store.purge", document_ids=[id])["plan"]
    assert str(folder / "one.md") in plan["changes"][0]
    session.data("store.purge", document_ids=[id], confirm=plan["plan_hash"])
    assert not (folder / "one.md").exists()


def test_a_file_that_came_after_the_plan_makes_it_stale(session: Session) -> None:
    folder = notes_of(session, "gitea")
    id = put(session, "one", "# One\n")
    approved(session, "note.delete", agent="gitea", slug="one")
    plan = session.error("store.purge", document_ids=[id])["plan"]
    (folder / "one.md").write_text("# One\n")
    error = session.error("store.purge", document_ids=[id], confirm=plan["plan_hash"])
    assert error["type"] == "resource.plan_stale"
    assert (folder / "one.md").exists()


def test_a_file_of_a_hidden_note_that_holds_something_else_is_named(session: Session) -> None:
    folder = notes_of(session, "gitea")
    id = put(session, "one", "# One\n")
    approved(session, "agent.delete", slug="gitea")
    (folder / "one.md").write_text("# One, and more\n")
    hint = session.ask("store.purge", document_ids=[id], dry_run=True)["result"]["meta"]["hint"]
    assert str(folder / "one.md") in hint
    plan = session.error("store.purge", document_ids=[id])["plan"]
    answer = session.ask("store.purge", document_ids=[id], confirm=plan["plan_hash"])
    assert answer["result"]["meta"]["hint"] == hint
    assert (folder / "one.md").read_text() == "# One, and more\n"


def test_a_file_that_is_another_notes_by_now_stays(session: Session) -> None:
    folder = notes_of(session, "gitea")
    first = put(session, "one", "# The same\n")
    approved(session, "note.delete", agent="gitea", slug="one")
    second = put(session, "one", "# The same\n")
    assert second != first
    plan = session.error("store.purge", document_ids=[first])["plan"]
    answer = session.ask("store.purge", document_ids=[first], confirm=plan["plan_hash"])
    assert str(folder / "one.md") in answer["result"]["meta"]["hint"]
    assert session.data("note.get", agent="gitea", slug="one")["text"] == "# The same\n"
    put(session, "one", "# Another\n")
    approved(session, "note.delete", agent="gitea", slug="one")
    third = put(session, "one", "# Third\n")
    answer = approved(session, "store.purge", document_ids=[second, third])
    assert not (folder / "one.md").exists()


# ------------------------------------------------------------------- what could be guessed


def kept_of(folder: Path) -> dict[str, tuple[str | None, str]]:
    """Maps each token to the params hash and the salt of its newest record."""
    lines = [
        json.loads(line)
        for path in sorted((folder / "log").glob("*.ndjson"))
        for line in path.read_bytes().splitlines()
    ]
    return {line["token"]: (line["params_hash"], line["salt"]) for line in lines if line["token"]}


def bare_hash(session: Session, method: str, **params: Any) -> str:
    """Returns the unsalted hash, which a reader of the log can compute from guessed params."""
    decoded: Any = decode_params(session.service.registry.find(method).decoder, canonical(params))
    write_request = WriteRequest(
        method=method, actor="user", params=decoded, destructive=False, now=""
    )
    return write_request.params_hash


def test_nobody_can_guess_the_params_of_what_was_purged(
    open_session: OpenSession, tmp_path: Path
) -> None:
    """An unsalted hash would reveal the params, because there are only 10,000 PINs to try."""
    session = open_session()
    folder = session.store.folder
    pin = {"title": "Notes", "text": "The PIN is 4821."}
    id = session.data("doc.create", **pin, client_token="pin")["id"]
    session.data("doc.update", id=id, title="The PIN", client_token="title")
    (tmp_path / "pin.md").write_text("# 4821\n\nis the PIN\n")
    (tmp_path / "other.md").write_text("# Other\n")
    session.data("doc.ingest", paths=["pin.md", "other.md"], client_token="files")
    filed = next(d["id"] for d in session.data("doc.list") if d["title"] == "4821")
    doomed = session.error("doc.delete", ids=[filed])["plan"]["plan_hash"]
    session.data("doc.delete", ids=[filed], confirm=doomed, client_token="hidden")
    before = kept_of(folder)
    assert {"pin", "title", "files", "hidden"} <= before.keys()
    guess = bare_hash(session, "doc.create", **pin)
    assert before["pin"][0] == record.salted(guess, before["pin"][1])
    purge(session, id, filed, client_token="purge")
    after = kept_of(folder)
    for token in ("pin", "title", "files", "hidden"):
        assert after[token][1] == ""
        assert holding(folder, before[token][1], guess) == []
    assert after["purge"][1] != ""
    assert session.store.log.verify() == session.store.seq


def test_what_early_stores_kept_can_not_be_guessed_after_a_purge(
    open_session: OpenSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Early stores hashed params without a salt; a purge salts all, and retries still match."""
    session = open_session()
    with monkeypatch.context() as early:
        early.setattr(lane, "salted", lambda params_hash, salt: params_hash)
        pin = {"title": "Notes", "text": "The PIN is 4821."}
        id = session.data("doc.create", **pin, client_token="pin")["id"]
        harmless = {"title": "Kept", "text": "This stays."}
        harmless_id = session.data("doc.create", **harmless, client_token="kept")["id"]
    assert kept_of(session.store.folder)["kept"][0] == bare_hash(session, "doc.create", **harmless)
    same = session.ask("doc.create", **harmless, client_token="kept")["result"]
    assert (same["data"]["id"], same["meta"]["duplicate"]) == (harmless_id, True)
    purge(session, id)
    session.close()
    again = open_session()
    hashes = kept_of(again.store.folder)
    assert all(h is None or h.startswith("salted:") for h, _ in hashes.values())
    assert hashes["pin"][1] == ""
    assert again.store.log.verify() == again.store.seq
    same = again.ask("doc.create", **harmless, client_token="kept")["result"]
    assert (same["data"]["id"], same["meta"]["duplicate"]) == (harmless_id, True)
    other = again.error("doc.create", **{**harmless, "title": "Other"}, client_token="kept")
    assert other["type"] == "resource.conflict"
    error = again.error("doc.create", **pin, client_token="pin")
    assert (error["type"], "purged" in error["message"]) == ("resource.not_found", True)
