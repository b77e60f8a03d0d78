"""store.compact erases earlier contents of documents and leaves the current ones as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kbproc.knowledge.app.health import doctor
from tests.conftest import OpenSession
from tests.kit.corpus import answers, confirmed, fill
from tests.kit.faults import full_at, killed_at
from tests.kit.talk import Session
from tests.kit.traces import PURGE_POINTS, holding

GONE = ("xylophone", "first quarantine")
LATER = "2026-02-01T00:00:00.000Z"
THEN = "2026-03-01T00:00:00.000Z"


def compact(session: Session, before: str) -> Any:
    return confirmed(session, "store.compact", before=before)


def write_documents(session: Session) -> tuple[int, int]:
    """Writes a changed, a deleted and a restored document; returns the ids of the first two."""
    changed = session.data("doc.create", title="One", text="first xylophone", client_token="made")
    deleted = session.data("doc.create", title="Gone", text="second xylophone")
    back = session.data("doc.create", title="Back", text="third marimba")
    session.embedded()
    session.data("doc.update", id=changed["id"], text="first quarantine", client_token="changed")
    session.embedded()
    session.data("doc.update", id=changed["id"], title="Renamed")
    session.embedded()
    session.data("doc.update", id=changed["id"], text="first marimba")
    for one in (deleted, back):
        confirmed(session, "doc.delete", ids=[one["id"]])
    session.data("doc.restore", ids=[back["id"]])
    session.embedded()
    return changed["id"], deleted["id"]


def test_only_what_is_past_goes(open_session: OpenSession) -> None:
    session = open_session()
    fill(session, 6)
    write_documents(session)
    session.data("index.rebuild")  # its statistics count no dead chunks any more
    session.store.host.pass_until(LATER)
    before = answers(session), session.data("doc.list")
    files = ["log/000000000001.ndjson", "sources/000001.pack"]
    assert holding(session.store.folder, "xylophone") == files
    done = compact(session, LATER)
    # Two replaced contents of the changed document, one of the restored, one of the deleted one.
    assert done["contents"] == 2 + 1 + 1
    assert (done["sources"], done["vectors"]) == (3, 4), "a title is embedded with each chunk"
    assert done["bytes"] > 0
    assert (answers(session), session.data("doc.list")) == before
    assert holding(session.store.folder, *GONE) == []
    assert session.store.log.verify() == session.store.seq
    assert not any(doctor.compare(session.store).values())
    session.close()
    again = open_session()
    again.store.host.pass_until(LATER)  # hits say how old they are
    assert (answers(again), again.data("doc.list")) == before


def test_what_came_later_stays(open_session: OpenSession) -> None:
    """A content is erased if it was replaced before the given time; its own age does not count."""
    session = open_session()
    id = session.data("doc.create", title="One", text="first")["id"]
    session.store.host.pass_until(LATER)
    session.data("doc.update", id=id, text="second")
    moment = session.store.seq
    session.data("doc.update", id=id, text="third")
    assert session.data("store.compact", before=LATER)["contents"] == 0
    session.store.host.pass_until(THEN)
    session.data("doc.update", id=id, text="fourth")
    assert compact(session, THEN)["contents"] == 2
    again = session.data("store.compact", before=THEN)
    assert again["contents"] == 0, "it is gone already"
    plan = session.ask("store.compact", before=THEN, dry_run=True)["result"]["meta"]
    assert (plan["plan"]["changes"], "forgotten already" in plan["hint"]) == ([], True)
    assert [hit["text"] for hit in session.data("chunk.list", document_id=id)] == ["fourth"]
    third = session.data("doc.get", id=id, as_of=moment + 1, text=True)
    assert third["text"] == "third"
    error = session.error("doc.get", id=id, as_of=moment, text=True)
    assert error["type"] == "resource.not_found"
    assert "store.compact has erased it" in error["message"]
    response = session.ask("doc.get", id=id, as_of=moment)["result"]
    assert response["data"]["chunk_count"] == 0
    assert "store.compact has erased it" in response["meta"]["hint"]


def test_what_is_told_of_it_afterwards(open_session: OpenSession) -> None:
    session = open_session()
    changed, deleted = write_documents(session)
    session.store.host.pass_until(LATER)
    compact(session, LATER)
    entries = session.data("doc.history", id=changed)
    assert [(one["action"], one["revision"]) for one in entries] == [
        ("forgotten", 4),
        ("replaced", 4),
        ("changed", None),
        ("replaced", None),
        ("created", None),
    ]
    assert entries[0]["summary"] == "what it held before was erased"
    assert entries[-1]["summary"] == "what it held then is forgotten"
    assert session.data("doc.history", id=deleted)[1]["action"] == "deleted"
    for params in ({"ids": [changed], "revision": 1}, {"ids": [deleted]}):
        error = session.error("doc.restore", **params)
        assert (error["type"], "store.compact" in error["message"]) == ("resource.not_found", True)
    again = session.ask("doc.create", title="One", text="first xylophone", client_token="made")[
        "result"
    ]
    assert again["meta"]["duplicate"] is True
    error = session.error("doc.create", title="One", text="another", client_token="made")
    assert error["type"] == "resource.conflict"


def test_a_preview(open_session: OpenSession) -> None:
    session = open_session()
    write_documents(session)
    session.store.host.pass_until(LATER)
    seq = session.store.seq
    plan = session.ask("store.compact", before=LATER, dry_run=True)["result"]["meta"]["plan"]
    assert plan["counts"] == {"documents": 3, "contents": 4}
    assert plan["changes"] == [
        "forget 3 earlier contents of 2 documents for good",
        "forget 1 content of 1 deleted document for good",
    ]
    assert session.store.seq == seq


@pytest.mark.parametrize("point", ["purge.sources", "purge.vectors"])
def test_what_is_being_forgotten_does_not_come_back(open_session: OpenSession, point: str) -> None:
    """A full disk stops the compaction half-way, and the log may still hold the texts."""
    session = open_session()
    changed, deleted = write_documents(session)
    session.store.host.pass_until(LATER)
    hash = session.error("store.compact", before=LATER)["plan"]["plan_hash"]
    with full_at(point):
        error = session.error("store.compact", before=LATER, confirm=hash)
    assert error["type"] == "store.io"
    for params in ({"ids": [changed], "revision": 1}, {"ids": [deleted]}):
        error = session.error("doc.restore", **params)
        assert (error["type"], "store.compact" in error["message"]) == ("resource.not_found", True)
    assert session.data("store.compact", before=LATER)["contents"] == 0
    assert holding(session.store.folder, *GONE) == []
    assert not any(finding["status"] == "fail" for finding in session.data("doctor")["findings"])


def test_killed_half_way_it_ends_on_reopen(open_session: OpenSession, tmp_path: Path) -> None:
    session = open_session()
    fill(session, 3)
    write_documents(session)
    session.store.host.pass_until(LATER)
    copies = tmp_path / "killed"
    hash = session.error("store.compact", before=LATER)["plan"]["plan_hash"]
    with killed_at(PURGE_POINTS, session.store.folder, copies):
        session.data("store.compact", before=LATER, confirm=hash)
    expected = answers(session), session.data("doc.list")
    for point in PURGE_POINTS:
        again = open_session(copies / point)
        again.store.host.pass_until(LATER)
        assert holding(copies / point, *GONE) == [], point
        assert again.store.log.verify() == again.store.seq, point
        assert (answers(again), again.data("doc.list")) == expected, point
