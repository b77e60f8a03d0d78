"""Earlier states and how they come back: doc.history, doc.restore, events.revert."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbproc.engine.events import codec
from kbproc.engine.events.document import ChunkText, DocChanged, DocDeleted, DocWritten
from kbproc.engine.sources.parse.pool import ParserPool
from kbproc.knowledge.app.health import doctor
from kbproc.knowledge.history import revert
from kbproc.knowledge.history.timeline import DocumentState, Unknown, fold
from tests.conftest import OpenSession
from tests.kit.patience import LONG
from tests.kit.talk import Session

THREE = "\n\n".join(f"Part {n}. " + f"subject{n} goes on and on. " * 30 for n in range(3))


def create(session: Session, title: str = "A", text: str = "alpha", **more: Any) -> int:
    return int(session.data("doc.create", title=title, text=text, **more)["id"])


def confirmed(session: Session, method: str, **params: Any) -> Any:
    plan = session.error(method, **params)["plan"]
    return session.data(method, **params, confirm=plan["plan_hash"])


def delete(session: Session, *ids: int) -> None:
    confirmed(session, "doc.delete", ids=list(ids))


def undo(session: Session, *seqs: int) -> Any:
    return confirmed(session, "events.revert", seqs=list(seqs))


def plan(session: Session, **params: Any) -> Any:
    return session.ask("events.revert", **params, dry_run=True)["result"]["meta"]["plan"]


@contextlib.contextmanager
def acting(session: Session, actor: str) -> Iterator[None]:
    """Makes another actor the peer of the session's connection."""
    before = session.connection.peer
    session.connection.peer = msgspec.structs.replace(before, actor=actor)
    yield
    session.connection.peer = before


def chunk_ids(session: Session, id: int) -> list[int]:
    return [chunk["id"] for chunk in session.data("chunk.list", document_id=id)]


def history(session: Session, id: int) -> list[tuple[str, int | None, str | None, int | None]]:
    """Returns action, revision, title and chunk count of each history entry, newest first."""
    return [
        (r["action"], r.get("revision"), r.get("title"), r.get("chunk_count"))
        for r in session.data("doc.history", id=id)
    ]


def visible_state(session: Session) -> Any:
    """Returns all documents and knowledge bases without chunk ids, revisions and times."""
    documents = []
    for doc in session.data("doc.list", limit=1000):
        text = session.data("doc.get", id=doc["id"], text=True)["text"]
        chunks = session.data("chunk.list", document_id=doc["id"])
        for one in chunks:
            del one["id"]
        facts = {
            k: v for k, v in doc.items() if k not in {"revision", "updated_at", "index_status"}
        }
        documents.append((facts, text, chunks))
    kbs = [(kb["slug"], kb["name"], kb["description"]) for kb in session.data("kb.list")]
    return documents, kbs


# ----------------------------------------------------------------------- doc.history


def test_every_kind_of_change_has_its_entry(session: Session) -> None:
    id = create(session, "A", THREE, tags=["x"])
    session.data("doc.update", id=id, title="B", tags=["y"], metadata={"k": 1})
    first = chunk_ids(session, id)[0]
    confirmed(session, "chunk.delete", ids=[first])
    with acting(session, "bob"):
        session.data("doc.update", id=id, text="short")
        delete(session, id)
    session.data("doc.restore", ids=[id])
    assert history(session, id) == [
        ("restored", 5, "B", 1),
        ("deleted", 4, "B", 0),
        ("replaced", 4, "B", 1),
        ("chunks_deleted", 3, "B", 2),
        ("changed", 2, "B", 3),
        ("created", 1, "A", 3),
    ]
    entries = session.data("doc.history", id=id)
    assert [e["actor"] for e in entries][1:3] == ["bob", "bob"]
    assert [e["method"] for e in entries][:2] == ["doc.restore", "doc.delete"]
    assert [e["summary"] for e in entries] == [
        "1 chunk",
        "hidden from every read",
        "text: 2 chunks before, 1 now",
        "text: 3 chunks before, 2 now",
        "title was “A”; tags: +y -x; metadata: k",
        "3 chunks",
    ]


def test_pages_are_the_whole_history(session: Session) -> None:
    id = create(session)
    for n in range(6):
        session.data("doc.update", id=id, title=f"T{n}")
    whole = session.data("doc.history", id=id)
    entries: list[Any] = []
    cursor: dict[str, str] = {}
    while True:
        result = session.ask("doc.history", id=id, limit=3, **cursor)["result"]
        entries += result["data"]
        assert result["meta"]["total"] == 7
        if not result["meta"]["has_more"]:
            break
        cursor = {"cursor": result["meta"]["next_cursor"]}
    assert entries == whole
    assert [e["seq"] for e in whole] == sorted((e["seq"] for e in whole), reverse=True)


def test_a_document_that_never_was(session: Session) -> None:
    error = session.error("doc.history", id=7)
    assert (error["type"], error["field"]) == ("resource.not_found", "$.params.id")


def test_history_says_what_the_log_says(session: Session) -> None:
    id = create(session, "A", THREE)
    session.data("doc.update", id=id, text="beta", title="B")
    delete(session, id)
    log = {r.seq: r for r in session.store.log.read(0, session.store.seq)}
    for entry in session.data("doc.history", id=id):
        record = log[entry["seq"]]
        assert (entry["ts"], entry["actor"], entry["method"]) == (
            record.ts,
            record.actor,
            record.method,
        )
        for event in codec.decode(record.events):
            if isinstance(event, DocWritten):
                assert entry["sha256"] == event.source_sha256
                assert entry["size_bytes"] == event.size_bytes
                assert (entry["title"], entry["chunk_count"]) == (event.title, len(event.chunks))


def test_what_was_purged_leaves_who_and_when(session: Session) -> None:
    id = create(session, "Secret", "alpha")
    session.data("doc.update", id=id, title="Still secret")
    delete(session, id)
    with acting(session, "bob"):
        confirmed(session, "store.purge", document_ids=[id])
    entries = session.data("doc.history", id=id)
    assert [e["action"] for e in entries] == ["purged", "erased", "erased", "erased"]
    assert "ecret" not in str(entries)
    assert entries[0]["actor"] == "bob"
    error = session.error("doc.restore", ids=[id])
    assert error["type"] == "resource.not_found"
    assert error["detail"]["purged_by"] == {
        "seq": entries[0]["seq"],
        "ts": entries[0]["ts"],
        "actor": "bob",
    }
    done = session.data("events.revert", seqs=[2, 3, 4, entries[0]["seq"]])
    assert (done["reverted"], len(done["kept"])) == ([], 4)
    assert all("purge" in entry["why"] for entry in done["kept"])


# ----------------------------------------------------------------------- doc.restore


def test_a_deleted_document_comes_back_as_it_was(session: Session) -> None:
    id = create(session, "A", THREE, tags=["x"], metadata={"n": 1}, source_id="s")
    second = chunk_ids(session, id)[1]
    confirmed(session, "chunk.delete", ids=[second])
    session.embedded()
    before = session.data("doc.get", id=id, text=True)
    chunks = session.data("chunk.list", document_id=id)
    hits = session.data("search", query="subject2")["results"]
    delete(session, id)
    result = session.data("doc.restore", ids=[id])
    assert (result["restored"], result["unchanged"]) == (1, [])
    session.embedded()
    after = session.data("doc.get", id=id, text=True)
    assert after == {**before, "revision": 3}
    assert {**result["documents"][0], "index_status": "ready"} == {
        k: v for k, v in after.items() if k not in {"text", "text_length"}
    }
    assert session.data("chunk.list", document_id=id) == chunks  # ids and indexes, too
    assert session.data("search", query="subject2")["results"] == hits


def test_a_live_document_goes_back_to_a_revision(session: Session) -> None:
    id = create(session, "A", THREE, tags=["x"])
    old = chunk_ids(session, id)
    session.data("doc.update", id=id, text="beta", title="B", tags=[])
    session.data("doc.update", id=id, title="C")
    document = session.data("doc.restore", ids=[id], revision=1)["documents"][0]
    assert (document["title"], document["tags"], document["revision"], document["chunk_count"]) == (
        "A",
        ["x"],
        4,
        3,
    )
    assert chunk_ids(session, id) == old
    assert session.data("doc.get", id=id)["title"] == "A"
    # Only the title differs: no text is written again.
    session.data("doc.update", id=id, title="D")
    session.data("doc.restore", ids=[id], revision=4)
    last = next(iter(session.store.log.read(session.store.seq - 1, session.store.seq)))
    assert [event.tag() for event in codec.decode(last.events)] == ["doc.changed"]


def test_restoring_twice_changes_nothing(session: Session) -> None:
    id = create(session)
    other = create(session, "B")
    delete(session, id)
    assert session.data("doc.restore", ids=[id, other, id])["restored"] == 1
    seq = session.store.seq
    assert session.data("doc.restore", ids=[id, other]) == {
        "restored": 0,
        "documents": [],
        "unchanged": [id, other],
    }
    assert session.data("doc.restore", ids=[id], revision=1)["restored"] == 0
    assert session.store.seq == seq


def test_a_dry_run_tells_and_does_nothing(session: Session) -> None:
    id = create(session, "Title")
    delete(session, id)
    seq = session.store.seq
    result = session.ask("doc.restore", ids=[id], dry_run=True)["result"]
    assert result["meta"]["plan"]["changes"] == ["bring back “Title” (1 chunk)"]
    assert result["meta"]["plan"]["targets"][0]["id"] == id
    assert session.store.seq == seq
    assert session.error("doc.get", id=id)["type"] == "resource.not_found"


def test_what_stands_in_the_way_of_a_restore(session: Session) -> None:
    id = create(session, source_id="s")
    delete(session, id)
    again = create(session, "B", source_id="s")
    error = session.error("doc.restore", ids=[id])
    assert (error["type"], error["detail"]) == ("resource.already_exists", {"id": again})
    delete(session, again)
    error = session.error("doc.restore", ids=[id, again])  # both documents have the same source
    assert (error["type"], error["detail"]) == ("resource.already_exists", {"id": id})
    assert session.data("doc.restore", ids=[again])["restored"] == 1

    session.data("kb.create", slug="other")
    orphan = create(session, kb="other")
    confirmed(session, "kb.delete", slug="other")
    error = session.error("doc.restore", ids=[orphan])
    assert error["type"] == "resource.not_found"
    assert "kb.create" in error["hint"]
    session.data("kb.create", slug="other")
    assert session.data("doc.restore", ids=[orphan])["restored"] == 1


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"ids": [99]}, "resource.not_found", "$.params.ids"),
    ({"ids": [1], "revision": 9}, "resource.not_found", "$.params.revision"),
    ({"ids": [1, 2], "revision": 1}, "input.invalid_params", "$.params.revision"),
    ({"ids": [1, 2], "expected_revision": 1}, "input.invalid_params", "$.params.expected_revision"),
    ({"ids": [1], "expected_revision": 9}, "resource.conflict", "$.params.expected_revision"),
    ({"ids": []}, "input.invalid_params", "$.params.ids"),
]


def test_what_restore_refuses(session: Session) -> None:
    create(session)
    create(session)
    delete(session, 1)
    for params, type, field in REFUSED:
        error = session.error("doc.restore", **params)
        assert (error["type"], error["field"]) == (type, field), params
    assert session.data("doc.restore", ids=[1], expected_revision=1)["restored"] == 1
    assert session.error("doc.restore", ids=[1], revision=7)["valid_values"] == [1, 2]


# --------------------------------------------------------------------- events.revert


def test_each_kind_of_record_is_undone_and_done_again(session: Session) -> None:
    id = create(session, "A", THREE, tags=["x"])
    session.data("kb.create", slug="old", name="Old")

    steps: list[tuple[str, dict[str, Any], bool]] = [
        ("doc.create", {"title": "N", "text": "new"}, False),
        ("doc.update", {"id": id, "title": "B", "tags": []}, False),
        ("doc.update", {"id": id, "text": "other"}, False),
        ("chunk.delete", {"ids": [chunk_ids(session, id)[0]]}, True),
        ("doc.delete", {"ids": [id]}, True),
        ("kb.create", {"slug": "new"}, False),
        ("kb.update", {"slug": "old", "name": "Other", "description": "d"}, False),
        ("kb.delete", {"slug": "old"}, True),
    ]
    for method, params, asks in steps:
        before = visible_state(session)
        _ = confirmed(session, method, **params) if asks else session.data(method, **params)
        after, seq = visible_state(session), session.store.seq
        assert before != after, method
        done = undo(session, seq)
        assert ([r["seq"] for r in done["reverted"]], done["kept"]) == ([seq], []), method
        assert visible_state(session) == before, method
        undo(session, session.store.seq)
        assert visible_state(session) == after, method
        undo(session, session.store.seq)
        assert visible_state(session) == before, method


def test_a_kb_comes_back_with_its_documents(session: Session) -> None:
    session.data("kb.create", slug="team", name="Team", description="ours")
    ids = [create(session, f"T{n}", THREE, kb="team") for n in range(3)]
    before, chunks = visible_state(session), chunk_ids(session, ids[1])
    confirmed(session, "kb.delete", slug="team")
    done = undo(session, session.store.seq)
    assert (done["documents"], done["ids"], done["kbs"]) == (3, ids, ["team"])
    assert visible_state(session) == before
    assert chunk_ids(session, ids[1]) == chunks


def test_what_others_changed_later_is_kept(session: Session) -> None:
    one, two = create(session, "One"), create(session, "Two")
    start = session.store.seq + 1
    session.data("doc.update", id=one, title="One!")
    session.data("doc.update", id=two, title="Two!")
    with acting(session, "bob"):
        session.data("doc.update", id=one, text="bob's")
    bobs = session.store.seq
    changes = plan(session, seqs=[start, start + 1])["changes"]
    assert changes == [
        "undo 1 of 2 records: 1 document changed, 1 kept",
        f"kept: document {one} “One!” was changed again at seq {bobs} by bob",
        "put back “Two” (1 chunk)",
    ]
    done = undo(session, start, start + 1)
    assert done["kept"] == [
        {
            "seq": start,
            "document_id": one,
            "kb": None,
            "agent": None,
            "why": f"document {one} was changed again at seq {bobs} by bob",
        }
    ]
    assert [d["title"] for d in session.data("doc.list")] == ["One!", "Two"]


def test_only_what_ends_a_timeline_is_undone(session: Session) -> None:
    """Of two changes with another actor's change between them, only the later one is undone."""
    id = create(session, "A")
    session.data("doc.update", id=id, title="B")
    with acting(session, "bob"):
        session.data("doc.update", id=id, title="C")
    session.data("doc.update", id=id, title="D")
    done = undo(session, 2, 3, 5)
    assert [r["seq"] for r in done["reverted"]] == [5]
    assert [k["seq"] for k in done["kept"]] == [2, 3]
    assert session.data("doc.get", id=id)["title"] == "C"


def test_step_by_step_back(session: Session) -> None:
    """An earlier revert does not block the next one."""
    id = create(session, "A")
    for title in "BCD":
        session.data("doc.update", id=id, title=title)
    for seq, title in ((5, "C"), (4, "B"), (3, "A")):
        undo(session, seq)
        assert session.data("doc.get", id=id)["title"] == title
    done = session.data("events.revert", seqs=[3, 4, 5])
    assert (done["reverted"], done["documents"]) == ([], 0)
    assert {k["why"].partition(": ")[0] for k in done["kept"]} == {"document 1 is as it was before"}
    undo(session, 2)
    assert session.data("doc.list") == []
    again = session.data("events.revert", seqs=[2])
    assert again["kept"][0]["why"] == "document 1 is as it was before: undone at seq 9 by user"


def test_all_that_somebody_did_since(session: Session) -> None:
    mine = create(session, "Mine", THREE)
    before = visible_state(session)
    with acting(session, "robot"):
        session.data("kb.create", slug="junk")
        create(session, "Junk", kb="junk")
        session.data("doc.update", id=mine, title="Ruined", text="nothing")
        confirmed(session, "chunk.delete", ids=[chunk_ids(session, mine)[0]])
        delete(session, mine)
    by_seq = plan(session, actor="robot", since=3)
    assert by_seq["changes"] == plan(session, actor="robot", since="2026-01-01")["changes"]
    assert plan(session, actor="robot", since="2026-01-02")["changes"][0].startswith("undo 0 of 0")
    done = confirmed(session, "events.revert", actor="robot", since=3)
    assert (len(done["reverted"]), done["documents"], done["kept"]) == (5, 2, [])
    assert visible_state(session) == before


def test_dependents_of_a_kb_keep_it(session: Session) -> None:
    session.data("kb.create", slug="team")
    creation_seq = session.store.seq
    with acting(session, "bob"):
        create(session, "Bob's", kb="team")
    done = session.data("events.revert", seqs=[creation_seq])
    assert done["kept"][0]["why"] == "knowledge base team still holds 1 document"
    undo(session, creation_seq, session.store.seq)
    assert [kb["slug"] for kb in session.data("kb.list")] == ["default"]
    assert session.data("events.revert", seqs=[1])["kept"][0]["why"].endswith("is always there")


def test_a_document_that_comes_back_keeps_its_kb(session: Session) -> None:
    session.data("kb.create", slug="team")
    with acting(session, "bob"):
        id = create(session, kb="team")
    delete(session, id)
    done = undo(session, 2, 4)
    assert [(k["seq"], k["kb"]) for k in done["kept"]] == [(2, "team")]
    assert session.data("doc.get", id=id)["kb"] == "team"


def test_a_document_whose_kb_is_gone_stays_away(session: Session) -> None:
    session.data("kb.create", slug="team")
    id = create(session, kb="team")
    delete(session, id)
    confirmed(session, "kb.delete", slug="team")
    done = session.data("events.revert", seqs=[4])
    assert done["kept"][0]["why"] == f"document {id} has no knowledge base: team is gone"


def test_two_documents_of_one_source_change_places(session: Session) -> None:
    one = create(session, "One", source_id="s")
    delete(session, one)
    deletion_seq = session.store.seq
    two = create(session, "Two", source_id="s")
    creation_seq = session.store.seq
    done = session.data("events.revert", seqs=[deletion_seq])
    same = f"made room for document {two}, which has the same source_id"
    assert same in done["kept"][0]["why"]
    undo(session, deletion_seq, creation_seq)
    assert [d["id"] for d in session.data("doc.list")] == [one]
    undo(session, session.store.seq)
    assert [d["id"] for d in session.data("doc.list")] == [two]


def test_what_can_not_be_undone_is_told(session: Session, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "a.pdf").write_bytes(b"%PDF-1.4\nno pdf")
    (tmp_path / "d" / "b.md").write_text("# Title\n\nText.")
    assert session.data("doc.ingest", paths=["d"], client_token="t")["failed"] == 1
    seqs = list(range(2, session.store.seq + 1))
    done = undo(session, *seqs)
    assert done["documents"] == 1
    why = {k["why"].partition(":")[0] for k in done["kept"]}
    assert why == {"file.failed", "it changed nothing"}  # the outcome is a separate record
    assert session.data("doc.list") == []


def test_a_stale_plan_is_refused(session: Session) -> None:
    id = create(session)
    hash = session.error("events.revert", seqs=[2])["plan"]["plan_hash"]
    delete(session, id)
    session.data("doc.restore", ids=[id])
    error = session.error("events.revert", seqs=[2], confirm=hash)
    assert error["type"] == "resource.plan_stale"
    actor = session.connection.peer.actor
    hash = session.error("events.revert", actor=actor, since=2)["plan"]["plan_hash"]
    create(session, "B")
    error = session.error("events.revert", actor=actor, since=2, confirm=hash)
    assert error["type"] == "resource.plan_stale"


def test_removing_more_than_half_is_bulk(session: Session) -> None:
    for n in range(10):
        create(session, f"T{n}")
    assert plan(session, seqs=[*range(2, 7)])["risk"]["level"] == "medium"
    assert plan(session, seqs=[*range(2, 8)])["risk"]["level"] == "bulk"


REFUSED_REVERTS: list[tuple[dict[str, Any], str]] = [
    ({}, "$.params"),
    ({"actor": "a"}, "$.params"),
    ({"since": 1}, "$.params"),
    ({"seqs": [1], "actor": "a", "since": 1}, "$.params"),
    ({"seqs": [1], "since": 1}, "$.params"),
    ({"seqs": []}, "$.params.seqs"),
    ({"seqs": [0]}, "$.params.seqs[0]"),
    ({"seqs": [1, 99]}, "$.params.seqs[1]"),
    ({"actor": "a", "since": "yesterday"}, "$.params.since"),
    ({"actor": "a", "since": "2026-13-01"}, "$.params.since"),
]


def test_what_revert_refuses(session: Session) -> None:
    for params, field in REFUSED_REVERTS:
        error = session.error("events.revert", **params)
        assert (error["type"], error["field"]) == ("input.invalid_params", field), params


def test_nothing_to_revert_writes_nothing(session: Session) -> None:
    seq = session.store.seq
    done = session.data("events.revert", actor="nobody", since=1)
    assert (done["reverted"], done["kept"], done["documents"]) == ([], [], 0)
    assert done["hint"]
    assert session.store.seq == seq


def test_it_needs_the_scope_admin(open_session: OpenSession) -> None:
    session = open_session(scopes="doc:read,doc:write")
    error = session.error("events.revert", seqs=[1], dry_run=True)
    assert error["type"] == "auth.insufficient_scope"


def test_many_documents_go_back_at_once(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """There are more documents than the revert reads one by one."""
    monkeypatch.setattr(revert, "_FEW_DOCUMENTS", 2)
    monkeypatch.setattr(revert, "_BLOCK", 3)
    ids = [create(session, f"T{n}") for n in range(4)]
    before = visible_state(session)
    delete(session, *ids)
    undo(session, session.store.seq)
    assert visible_state(session) == before


# -------------------------------------------------------------- any course of events

OPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["create", "title", "text", "delete", "chunk", "restore", "kb", "nokb", "name", "undo"]
        ),
        st.integers(0, 5),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=12,
)


def do(session: Session, op: str, which: int, what: int) -> None:
    """Does one step of a course; skips a step that is not possible at that point."""
    docs = session.data("doc.list", limit=1000)
    kbs = [kb["slug"] for kb in session.data("kb.list")]
    doc = docs[which % len(docs)] if docs else None
    if op == "create":
        kb = kbs[which % len(kbs)]
        source = {"source_id": f"s{what}"} if what else {}
        session.ask(
            "doc.create",
            title=f"T{what}",
            text=THREE if what == 1 else f"text {which}",
            kb=kb,
            **source,
        )
    elif op in {"title", "text"} and doc:
        session.data("doc.update", id=doc["id"], **{op: f"another {what}"})
    elif op == "delete" and doc:
        delete(session, doc["id"])
    elif op == "chunk" and doc and (ids := chunk_ids(session, doc["id"])):
        confirmed(session, "chunk.delete", ids=[ids[what % len(ids)]])
    elif op == "restore":
        session.ask("doc.restore", ids=[which + 1], **({"revision": what} if what else {}))
    elif op == "kb":
        session.ask("kb.create", slug=f"kb-{what}")
    elif op == "name":
        session.data("kb.update", slug=kbs[which % len(kbs)], name=f"Name {what}")
    elif op == "nokb" and len(kbs) > 1 and kbs[which % len(kbs)] != "default":
        confirmed(session, "kb.delete", slug=kbs[which % len(kbs)])
    elif op == "undo":
        seq = max(2, session.store.seq - what)
        if seq <= session.store.seq and plan(session, seqs=[seq])["events"]["total"]:
            undo(session, seq)


@pytest.fixture(scope="module")
def parsers() -> Iterator[ParserPool]:
    """Parser processes that all courses share, because starting them takes longer than a course."""
    pool = ParserPool(tokenizer=None, max_tokens=256, overlap=38)
    yield pool
    pool.close()


@settings(max_examples=250 if LONG else 6)
@given(first=OPS, then=OPS)
def test_a_suffix_of_any_course_is_undone_and_done_again(
    parsers: ParserPool, first: Any, then: Any
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        session = Session(Path(folder) / "store", cwd=Path(folder), model="none")
        session.library.parsers.pool = parsers
        try:
            for step in first:
                do(session, *step)
            before, start = visible_state(session), session.store.seq
            for step in then:
                do(session, *step)
            after = visible_state(session)
            seqs = list(range(start + 1, session.store.seq + 1))
            if seqs and plan(session, seqs=seqs)["events"]["total"]:
                undo(session, *seqs)
                assert visible_state(session) == before
                undo(session, session.store.seq)
                assert visible_state(session) == after
                undo(session, session.store.seq)
            assert visible_state(session) == before
            _check_histories(session)
            differences = doctor.compare(session.store)
            assert {name: wrong for name, wrong in differences.items() if wrong} == {}
        finally:
            session.library.parsers.pool = None
            session.close()


def _check_histories(session: Session) -> None:
    """Checks that the newest history entry of each document equals the document."""
    for doc in session.data("doc.list", limit=1000):
        newest = session.data("doc.history", id=doc["id"], limit=1)[0]
        for name in ("revision", "title", "chunk_count", "size_bytes", "sha256"):
            assert newest[name] == doc[name]


@pytest.mark.parametrize("model", ["hash", "none"])
def test_search_finds_again_what_came_back(open_session: OpenSession, model: str) -> None:
    session = open_session(model=model)
    id = create(session, "A", "zebra crossing")
    session.embedded()
    hits = session.data("search", query="zebra")["results"]
    delete(session, id)
    assert session.data("search", query="zebra", mode="fts")["results"] == []
    undo(session, session.store.seq)
    session.embedded()
    assert session.data("search", query="zebra")["results"] == hits


def test_a_gap_in_the_revisions_is_not_papered_over() -> None:
    """After a lost record, the state is unknown until the text is written again."""
    written = DocWritten(
        id=1,
        kb="default",
        revision=1,
        title="A",
        doc_type="text",
        source_sha256="",
        size_bytes=1,
        first_chunk=1,
        chunks=[ChunkText(text="a")],
        parser=1,
        origin="user",
    )
    changed = DocChanged(id=1, revision=3, title="B", tags=[], metadata={})
    state = fold(fold(None, written), changed)
    assert state == Unknown(why="lost")
    assert fold(state, DocDeleted(id=1)) == Unknown(why="lost")
    again = fold(state, msgspec.structs.replace(written, revision=4))
    assert isinstance(again, DocumentState)
    assert fold(None, changed) == Unknown(why="lost")


def test_history_looks_back(session: Session) -> None:
    id = session.data("doc.create", title="One", text="one")["id"]
    seq = session.data("ping")["seq"]
    session.data("doc.update", id=id, title="Two")
    plan = session.error("doc.delete", ids=[id])["plan"]
    session.data("doc.delete", ids=[id], confirm=plan["plan_hash"])
    assert [r["action"] for r in session.data("doc.history", id=id)] == [
        "deleted",
        "changed",
        "created",
    ]
    then = session.ask("doc.history", id=id, as_of=seq)["result"]
    assert [r["action"] for r in then["data"]] == ["created"]
    assert (then["meta"]["seq"], then["meta"]["total"]) == (seq, 1)
    assert session.error("doc.history", id=id, as_of=seq - 1)["type"] == "resource.not_found"
