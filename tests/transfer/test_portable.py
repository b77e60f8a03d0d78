"""Exports and imports between stores: all documents arrive exactly once, or none does."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kbproc.engine.models.hashing import HashEmbedder
from kbproc.engine.projections.catalog.filters import DocumentFilter
from kbproc.engine.sources.blobs import digest
from kbproc.engine.store.folder import LAST_EXPORTER
from kbproc.engine.store.pipeline import LongWrite
from kbproc.knowledge.transfer import outgoing
from kbproc.knowledge.transfer import portable as format
from kbproc.knowledge.transfer.incoming import agents as more
from kbproc.knowledge.transfer.incoming import run
from tests.conftest import OpenSession
from tests.kit import knowledge
from tests.kit.patience import until
from tests.kit.records import unnamed
from tests.kit.talk import REPO, Session, as_bytes, cancel, request

Line = dict[str, Any]


def fill(session: Session, folder: Path) -> None:
    """Creates documents of every origin: equal ones, a changed, a deleted, one without chunks."""
    (folder / "docs").mkdir(exist_ok=True)
    (folder / "docs" / "guide.md").write_text(
        "---\ntags: [own]\nauthor: ann\n---\n# Guide\n\n" + "A nightly backup. " * 400
    )
    (folder / "docs" / "two\nlines.py").write_text("def alpha():\n    return 'git'\n")
    session.data("kb.create", slug="other", name="Ander\u00e9s", description="the rest\nof it")
    session.data("kb.create", slug="empty")
    session.data("doc.ingest", paths=["docs"], tags=["given"], metadata={"n": 1, "x": 1.5})
    for n in range(3):
        session.data("doc.create", title="Twin", text="git mirror twice", kb="other")
        session.data(
            "doc.create",
            title=f"Text {n}",
            text=f"alpha {n} \u65e5\u672c\u8a9e",
            source_id=f"s {n}",
            metadata={"yes": True, "none": None, "s": "\u2028"},
        )
    session.data("doc.update", id=4, text="changed git text", tags=["c++"])
    delete(session, "doc.delete", ids=[5])
    chunk = session.data("chunk.list", document_id=6)[0]["id"]
    delete(session, "chunk.delete", ids=[chunk])
    session.embedded()


def delete(session: Session, method: str, **params: Any) -> None:
    plan = session.error(method, **params)["plan"]
    session.data(method, **params, confirm=plan["plan_hash"])


def exported(session: Session, name: str = "all.ndjson", **params: Any) -> list[Line]:
    path = Path(session.data("store.export", path=name, **params)["path"])
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def of(lines: list[Line], kind: str) -> list[Line]:
    return [line for line in lines if line.get("type") == kind]


def portable(lines: list[Line]) -> list[Line]:
    """Returns the knowledge bases and documents without fields that depend on store and time."""
    local = ("id", "revision", "updated_at", "created_by")
    return [
        {name: value for name, value in line.items() if name not in local}
        for line in lines
        if line["type"] in {"kb", "document"}
    ]


def write(path: Path, lines: list[Line]) -> None:
    """Writes the lines and an end line that matches them, even if the lines are wrong."""
    data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    count, sha256 = len(of(lines, "document")), hashlib.sha256(data).hexdigest()
    end = {"type": "end", "documents": count, "sha256": sha256}
    end |= {name + "s": len(of(lines, name)) for name in ("agent", "note")}
    path.write_bytes(data + json.dumps(end).encode() + b"\n")


def counts(result: Line) -> Line:
    return {name: value for name, value in result.items() if value and name != "ids"}


def search_answers(session: Session) -> list[Any]:
    """Returns the answers to four full-text searches, without ids."""
    session.library.compact()
    hits = []
    for query in ("git backup", "alpha", "\u65e5\u672c", "mirror"):
        answer = session.data("search", query=query, mode="fts", limit=50)
        assert answer["results"], query
        for hit in answer["results"]:
            hit.pop("chunk_id")
            hit["source"].pop("document_id")
        hits.append(answer)
    return hits


NOW = "2026-01-01T00:00:00.000Z"
HEADER = {
    "type": "kbproc.export",
    "version": 6,
    "seq": 1,
    "exported_at": NOW,
    "store_format": 2,
    "kbproc": "1",
}
MADE_BY = {**HEADER, "vectors": {"model": "m", "fingerprint": "0" * 64, "dim": 4}}
KB = {"type": "kb", "slug": "default", "name": "Default"}


AGENT = {"type": "agent", "slug": "gitea"}
WATCH = {"type": "watch", "machine": "here", "path": "/docs", "kb": "default"}
NOTE = {"type": "note", "agent": "gitea", "slug": "hooks", "text": "# Hooks\n", "updated_at": NOW}


LINES = {"path": "/a", "start_line": 3}


def entry(id: int = 1, **facts: Any) -> Line:
    return {**document(id, doc_type="knowledge", entry={"confidence": 80, **facts}), **body()}


def body(data: bytes = b"alpha") -> Line:
    encoded = base64.b64encode(data).decode()
    return {"source_base64": encoded, "sha256": hashlib.sha256(data).hexdigest()}


def document(id: int = 1, text: str = "alpha", **more: Any) -> Line:
    return {
        "type": "document",
        "id": id,
        "kb": "default",
        "title": "T",
        "doc_type": "text",
        "source": {},
        "tags": [],
        "metadata": {},
        "revision": 1,
        "created_at": "2025-01-01T00:00:00.000Z",
        "updated_at": "2025-01-01T00:00:00.000Z",
        "created_by": "ann",
        "parser": 1,
        "sha256": "0" * 64,
        "size_bytes": 5,
        "chunks": [{"text": text}],
        **more,
    }


# ------------------------------------------------------------------------ round trip


@pytest.mark.parametrize("sources", [True, False])
def test_round_trip(open_session: OpenSession, tmp_path: Path, sources: bool) -> None:
    one = open_session()
    fill(one, tmp_path)
    lines = exported(one, sources=sources)
    two = open_session(tmp_path / "two")
    result = two.data("store.import", path="all.ndjson", keep_origins=True)
    assert counts(result) == {"added": 7, "kbs_created": 2}
    again = exported(two, "again.ndjson", sources=sources)
    if sources:
        assert portable(again) == portable(lines)
        for line in of(lines, "document"):
            new = result["ids"][str(line["id"])]
            copied, original = (
                s.data("doc.download", id=i)["content"] for s, i in ((two, new), (one, line["id"]))
            )
            assert copied == original
    else:
        source_facts = {"sha256", "size_bytes"}
        assert [{k: v for k, v in x.items() if k not in source_facts} for x in portable(again)] == [
            {k: v for k, v in x.items() if k not in source_facts} for x in portable(lines)
        ]
    assert search_answers(two) == search_answers(one)
    two.embedded()
    assert two.data("doctor", deep=True)["healthy"]


def test_vectors_come_along(
    open_session: OpenSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store with the same model takes the file's vectors and embeds nothing."""
    one = open_session()
    fill(one, tmp_path)
    lines = exported(one, vectors=True)
    chunks = sum(len(line["chunks"]) for line in of(lines, "document"))
    assert lines[0]["vectors"]["dim"] == one.store.model.dim
    two = open_session(tmp_path / "two")
    with monkeypatch.context() as patch:
        patch.setattr(HashEmbedder, "embed", never)
        answer = two.ask("store.import", path="all.ndjson", keep_origins=True)["result"]
        assert answer["data"]["vectors"] == chunks
        assert "hint" not in answer["meta"]
        two.embedded()
    assert search_answers(two) == search_answers(one)
    assert portable(exported(two, "again.ndjson", vectors=True)) == portable(lines)


def never(embedder: HashEmbedder, text: str) -> None:
    raise AssertionError(f"{text!r} is embedded again")


def test_vectors_of_another_model_are_made_again(open_session: OpenSession, tmp_path: Path) -> None:
    one = open_session()
    one.data("doc.create", title="A", text="alpha")
    one.embedded()
    lines = exported(one, vectors=True)
    lines[0]["vectors"]["fingerprint"] = "0" * 64
    write(tmp_path / "other.ndjson", lines[:-1])
    two = open_session(tmp_path / "two")
    answer = two.ask("store.import", path="other.ndjson")["result"]
    assert answer["data"]["vectors"] == 0
    assert "of another model" in answer["meta"]["hint"]
    two.embedded()
    assert two.data("search", query="alpha", mode="vector")["results"]


def test_without_a_model_no_vectors_go_out(open_session: OpenSession, tmp_path: Path) -> None:
    one = open_session(model="none")
    one.data("doc.create", title="A", text="alpha")
    answer = one.ask("store.export", path="all.ndjson", vectors=True)["result"]
    assert answer["meta"]["notice"] == ["No vectors were exported: the store's model is off."]
    assert "vectors" not in json.loads((tmp_path / "all.ndjson").read_text().splitlines()[0])


def test_the_lines(session: Session, tmp_path: Path) -> None:
    fill(session, tmp_path)
    answer = session.ask("store.export", path="all.ndjson")["result"]["data"]
    data = (tmp_path / "all.ndjson").read_bytes()
    assert (tmp_path / "all.ndjson").stat().st_mode & 0o777 == 0o600
    lines = [json.loads(line) for line in data.splitlines()]
    assert answer == {
        "path": str(tmp_path / "all.ndjson"),
        "seq": session.store.seq,
        "kbs": 3,
        "documents": 7,
        "bytes": len(data),
        "sources_left_out": 0,
        "documents_left_out": 0,
        "entries": 0,
        "agents": 0,
        "notes": 0,
        "vectors": 0,
        "sessions": 0,
        "watches": 0,
    }
    assert (lines[0]["type"], lines[0]["version"], lines[0]["seq"]) == (
        "kbproc.export",
        format.VERSION,
        session.store.seq,
    )
    assert [line["slug"] for line in of(lines, "kb")] == ["default", "empty", "other"]
    ids = [line["id"] for line in of(lines, "document")]
    assert ids == [doc["id"] for doc in session.data("doc.list")]
    before = data[: data.rstrip(b"\n").rfind(b"\n") + 1]
    assert lines[-1] == {
        "type": "end",
        "documents": 7,
        "sha256": hashlib.sha256(before).hexdigest(),
    }
    assert [path.name for path in tmp_path.iterdir() if "partial" in path.name] == []


def test_one_kb_only(session: Session, tmp_path: Path) -> None:
    fill(session, tmp_path)
    lines = exported(session, kb="other")
    assert {line["slug"] for line in of(lines, "kb")} == {"other"}
    assert {line["kb"] for line in of(lines, "document")} == {"other"}
    assert session.error("store.export", path="x", kb="nope")["type"] == "resource.not_found"


def test_as_events(session: Session, tmp_path: Path) -> None:
    """The items of an export stream are the lines of a file, and can be imported as one."""
    fill(session, tmp_path)
    expected = exported(session)
    items, result = streamed(session, "store.export")
    assert items[:-1] == expected[:-1]
    assert items[-1] == {**expected[-1], "sha256": None}
    assert result["documents"] == 7
    (tmp_path / "items.ndjson").write_text("".join(json.dumps(item) + "\n" for item in items))
    assert counts(session.data("store.import", path="items.ndjson")) == {"unchanged": 7}


def streamed(session: Session, method: str, **params: Any) -> tuple[list[Line], Line]:
    session.send(as_bytes(request(7, method, **params)))
    items = []
    while "method" in (message := json.loads(session.receive())):
        if message["params"]["type"] == "item":
            items.append(message["params"]["item"])
    return items, message["result"]["data"]


def test_what_fits_no_line_is_told(open_session: OpenSession, tmp_path: Path) -> None:
    session = open_session(max_line_bytes=20_000)
    session.data("doc.create", title="Small", text="small")
    session.data("doc.create", title="Fits without its source", text="middle " * 800)
    text = "too long " * 900
    for n in range(2):
        (tmp_path / f"{n}.md").write_text(text * (n + 1))
        session.data("doc.ingest", paths=[f"{n}.md"])
    items, result = streamed(session, "store.export")
    assert [item["title"] for item in of(items, "document")][:2] == [
        "Small",
        "Fits without its source",
    ]
    assert result["documents_left_out"] >= 1
    assert result["sources_left_out"] >= 1
    assert result["documents"] == items[-1]["documents"] == 4 - result["documents_left_out"]


def test_a_lost_source_is_left_out(session: Session, tmp_path: Path) -> None:
    session.data("doc.create", title="T", text="alpha")
    session.store.blobs.erase([session.data("doc.get", id=1)["sha256"]])
    answer = session.ask("store.export", path="all.ndjson")["result"]
    assert answer["data"]["sources_left_out"] == 1
    assert answer["meta"]["notice"]
    session.store.blobs.heal(digest(b"alpha"), b"alpha")


def test_while_others_write(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """An export in small batches shows the store at one seq, although others write."""
    monkeypatch.setattr(outgoing, "_BATCH_ROWS", 4)
    monkeypatch.setattr(outgoing, "_BATCH_CHUNKS", 3)
    for n in range(10):
        session.data("doc.create", title=f"T{n}", text="alpha " * 50)
    with session.store.reading() as snapshot:
        seq = snapshot.seq
        header = format.Header(version=6, seq=seq, exported_at="", store_format=2, kbproc="")
        lines = outgoing.lines(
            session.store, snapshot.queries, header, DocumentFilter(), sources=True
        )
        next(lines)
        session.data("doc.create", title="Later", text="later")
        delete(session, "doc.delete", ids=[10])
        documents = [entry.line for entry in lines if isinstance(entry.line, format.DocumentLine)]
    assert [line.id for line in documents] == list(range(1, 11))
    assert all(line.chunks for line in documents)


# ---------------------------------------------------------- entries, agents and notes


def store_knowledge(session: Session) -> list[int]:
    """Stores a chain of three entries, two twins, an agent and its notes; returns the ids."""
    store = session.store
    facts = {
        "expires_at": "2999-01-01T00:00:00.000Z",
        "source": "a talk",
        "task_id": "T-1",
        "task_kind": "produced",
    }
    ids = [
        knowledge.entry(store, "One", "- [ ] body\r\n\nof *one*", actor="bob", tags=["git"]),
        knowledge.entry(store, "Two", confidence=20, **facts),
        knowledge.entry(store, "Three", actor="gitea"),
        knowledge.entry(store, "Twin", actor="bob"),
        knowledge.entry(store, "Twin", actor="ann"),
    ]
    knowledge.supersede(store, ids[0], ids[1])
    knowledge.supersede(store, ids[1], ids[2])
    knowledge.agent(
        store,
        "gitea",
        description="Looks after it.",
        kbs=["default"],
        scopes=["note:read"],
        quotas={"notes_stored": 9},
        instructions="Be brief.",
    )
    knowledge.note(store, "gitea", "hooks", "# Hooks\r\n\nas they are\t.\n")
    knowledge.note(store, "gitea", "runners", "\ufeffRunners\n")
    return ids


def knowledge_of(session: Session) -> list[Any]:
    """Returns all entries with facts and bodies, the agents, and the notes' files."""
    store = session.store
    with store.reading() as snapshot:
        queries = snapshot.queries
        rows = queries.entries(DocumentFilter())
        named = {row.id: (row.title, row.created_by) for row in rows}
        entries = [
            (
                *named[row.id],
                row.kb,
                row.tags,
                store.blobs.get(row.sha256),
                row.created_at,
                row.confidence,
                row.expires_at,
                row.task_id,
                row.task_kind,
                row.source,
                named.get(row.superseded_by or 0),
                named[row.head],
            )
            for row in rows
        ]
        agents = [
            (
                row.slug,
                row.description,
                row.kbs,
                row.folder,
                row.scopes,
                row.quotas,
                row.instructions,
            )
            for row in queries.agents()
        ]
    notes = {path.name: path.read_bytes() for path in (store.folder / "notes").rglob("*.md")}
    return [sorted(entries), agents, notes]


@pytest.mark.parametrize("sources", [True, False])
def test_entries_agents_and_notes_come_along(
    open_session: OpenSession, tmp_path: Path, sources: bool
) -> None:
    one = open_session()
    fill(one, tmp_path)
    store_knowledge(one)
    result = one.ask("store.export", path="all.ndjson", sources=sources)["result"]["data"]
    assert (result["documents"], result["entries"], result["agents"], result["notes"]) == (
        12,
        5,
        1,
        2,
    )
    two = open_session(tmp_path / "two")
    answer = two.ask("store.import", path="all.ndjson")["result"]
    assert counts(answer["data"]) == {
        "added": 12,
        "kbs_created": 2,
        "links": 2,
        "agents_created": 1,
        "notes_added": 2,
    }
    assert "hint" not in answer["meta"]
    assert knowledge_of(two) == knowledge_of(one)
    knowledge.check(two)
    two.data("note.sync")
    for line in of(exported(one, "one"), "note"):
        imported_note = two.data("note.get", agent="gitea", slug=line["slug"])
        assert imported_note["text"] == line["text"]
    again = exported(two, "again", sources=sources)
    assert [line["slug"] for line in of(again, "note")] == ["hooks", "runners"]
    seq = two.store.seq
    assert counts(two.data("store.import", path="all.ndjson")) == {
        "unchanged": 12,
        "notes_unchanged": 2,
    }
    assert two.store.seq == seq, "importing twice changes nothing"


class Exported(NamedTuple):
    """The file of a store with the knowledge of `store_knowledge`, its ids, and what it holds."""

    file: Path
    ids: list[int]
    knowledge: list[Any]


@pytest.fixture(scope="module")
def knowing(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    folder = tmp_path_factory.mktemp("knowing")
    session = Session(folder / "store", cwd=folder)
    ids = store_knowledge(session)
    exported(session)
    result = Exported(folder / "all.ndjson", ids, knowledge_of(session))
    session.close()
    return result


def test_what_is_here_of_them_stays(
    open_session: OpenSession, tmp_path: Path, knowing: Exported
) -> None:
    ids = knowing.ids
    shutil.copy(knowing.file, tmp_path)
    two = open_session(tmp_path / "two")
    knowledge.agent(two.store, "gitea", description="Another.")
    knowledge.note(two.store, "gitea", "hooks", "mine\n")
    answer = two.ask("store.import", path="all.ndjson")["result"]
    assert counts(answer["data"]) == {
        "added": 5,
        "links": 2,
        "agents_kept": 1,
        "notes_added": 1,
        "notes_kept": 1,
    }
    new = answer["data"]["ids"]
    mapped = [new[str(id)] for id in ids]
    assert knowledge_of(two)[1][0][1] == "Another."
    assert knowledge_of(two)[2]["hooks.md"] == b"mine\n"
    knowledge.revive(two.store, mapped[0], mapped[1])
    assert counts(two.data("store.import", path="all.ndjson"))["unchanged"] == 5
    assert knowledge.check(two)[mapped[0]] == (None, mapped[0]), "somebody undid it on purpose"


def test_into_one_kb_come_documents_and_entries_only(
    open_session: OpenSession, tmp_path: Path, knowing: Exported
) -> None:
    shutil.copy(knowing.file, tmp_path)
    two = open_session(tmp_path / "two")
    two.data("kb.create", slug="all")
    plan = two.ask("store.import", path="all.ndjson", dry_run=True)["result"]["meta"]["plan"]
    assert "create agent gitea with the scopes note:read" in plan["changes"]
    answer = two.ask("store.import", path="all.ndjson", kb="all")["result"]
    assert counts(answer["data"]) == {"added": 5, "links": 2}
    assert "left out" in answer["meta"]["hint"]
    assert {row[2] for row in knowledge_of(two)[0]} == {"all"}


def test_nobody_becomes_an_agent_by_an_import(
    open_session: OpenSession, tmp_path: Path, knowing: Exported
) -> None:
    shutil.copy(knowing.file, tmp_path)
    two = open_session(tmp_path / "two")
    error = two.another("gitea").error("store.import", path=str(tmp_path / "all.ndjson"))
    assert (error["type"], error["field"]) == ("input.invalid_params", "$.params.path")
    assert knowledge_of(two) == [[], [], {}]


def test_an_export_of_one_kb_has_no_agents(session: Session) -> None:
    store_knowledge(session)
    lines = exported(session, kb="default")
    assert (len(of(lines, "document")), of(lines, "agent"), of(lines, "note")) == (5, [], [])


def test_watched_folders_come_along_and_are_not_read(
    open_session: OpenSession, tmp_path: Path
) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "a.md").write_text("# Tides\n\nHigh at noon.\n")
    one = open_session()
    one.data("kb.create", slug="other")
    one.data("watch.add", folder=str(docs), kb="other", glob="*.md", tags=["sea"], prune="never")
    until(lambda: one.data("doc.list"), "the document of the folder")
    lines = exported(one)
    assert lines[-1]["watches"] == 1
    assert of(exported(one, name="default.ndjson", kb="default"), "watch") == []
    two = open_session(tmp_path / "two")
    answer = two.ask("store.import", path=str(tmp_path / "all.ndjson"))["result"]
    assert answer["data"]["watches_added"] == 1
    assert "watch.add" in answer["meta"]["hint"]
    rules = ("path", "kb", "glob", "tags", "prune", "machine")
    [before], [after] = one.data("watch.list"), two.data("watch.list")
    assert [before[name] for name in rules] == [after[name] for name in rules]
    assert after["state"] == "elsewhere"
    again = two.data("store.import", path=str(tmp_path / "all.ndjson"))
    assert again["watches_added"] == 0


def test_cut_off_between_entries_and_links(
    open_session: OpenSession,
    tmp_path: Path,
    knowing: Exported,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shutil.copy(knowing.file, tmp_path)
    two = open_session(tmp_path / "two")

    def die(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(run, "write_links", die)
        two.ask("store.import", path="all.ndjson")
    assert {by for by, _ in knowledge.check(two).values()} == {None}
    assert counts(two.data("store.import", path="all.ndjson"))["links"] == 2
    assert knowledge_of(two) == knowing.knowledge


# ------------------------------------------------------------------------ idempotent


def test_twice_changes_nothing(open_session: OpenSession, tmp_path: Path) -> None:
    one = open_session()
    fill(one, tmp_path)
    exported(one)
    two = open_session(tmp_path / "two")
    for session, first in ((one, {"unchanged": 7}), (two, {"added": 7, "kbs_created": 2})):
        result = session.data("store.import", path="all.ndjson")
        assert counts(result) == first
        session.embedded()
        before = session.store.seq, session.data("doc.list"), session.data("kb.list")
        again = session.data("store.import", path="all.ndjson", replace=True)
        assert counts(again) == {"unchanged": 7}
        assert again["ids"] == result["ids"]
        assert (session.store.seq, session.data("doc.list"), session.data("kb.list")) == before


def test_as_many_alike_as_the_file_has(session: Session, tmp_path: Path) -> None:
    """Equal documents without an origin: n in the file and m here give max(n, m)."""
    write(tmp_path / "x", [HEADER, KB, *(document(id) for id in range(1, 6))])
    for _ in range(2):
        session.data("doc.create", title="T", text="alpha")
    assert counts(session.data("store.import", path="x")) == {"added": 3, "unchanged": 2}
    assert counts(session.data("store.import", path="x")) == {"unchanged": 5}
    write(tmp_path / "y", [HEADER, KB, document(1), document(2)])
    assert counts(session.data("store.import", path="y")) == {"unchanged": 2}
    assert session.ask("doc.list")["result"]["meta"]["total"] == 5


def test_what_is_here_stays(session: Session, tmp_path: Path) -> None:
    session.data("doc.create", title="T", text="alpha", source_id="a", tags=["mine"])
    origin = {"source_id": "a"}
    write(tmp_path / "x", [HEADER, KB, document(9, "beta", source=origin)])
    answer = session.ask("store.import", path="x")["result"]
    assert counts(answer["data"]) == {"conflicts": 1}
    assert "replace" in answer["meta"]["hint"]
    assert session.data("doc.get", id=1, text=True)["text"] == "alpha"
    result = session.data("store.import", path="x", replace=True)
    assert (counts(result), result["ids"]) == ({"updated": 1}, {"9": 1})
    doc = session.data("doc.get", id=1, text=True)
    assert (doc["text"], doc["revision"], doc["tags"]) == ("beta", 2, [])
    assert doc["created_at"] == "2026-01-01T00:00:00.000Z"
    assert counts(session.data("store.import", path="x", replace=True)) == {"unchanged": 1}


def test_all_into_one_kb(session: Session, tmp_path: Path) -> None:
    """Of two documents with one origin, the first wins, also in repeated imports."""
    other = {"type": "kb", "slug": "other", "name": "Other"}
    origin = {"path": "/a.md"}
    first, twin = document(1, source=origin), document(3, kb="other", source=origin)
    changed = document(2, "beta", kb="other", source=origin)
    plain = document(4, kb="other", title="U")
    write(tmp_path / "x", [HEADER, KB, other, first, changed, twin, plain])
    assert session.error("store.import", path="x", kb="all")["type"] == "resource.not_found"
    session.data("kb.create", slug="all")
    result = session.data("store.import", path="x", kb="all")
    assert counts(result) == {"added": 2, "conflicts": 1, "unchanged": 1}
    for replace in (False, True):
        again = session.data("store.import", path="x", kb="all", replace=replace)
        assert counts(again) == {"unchanged": 3, "conflicts": 1}
    assert {doc["kb"] for doc in session.data("doc.list")} == {"all"}
    assert {kb["slug"] for kb in session.data("kb.list")} == {"default", "all"}


def test_kbs_here_keep_their_names(session: Session, tmp_path: Path) -> None:
    write(tmp_path / "x", [HEADER, {**KB, "name": "Theirs"}, document()])
    session.data("store.import", path="x")
    assert session.data("kb.get", slug="default")["name"] == "Default"


def test_what_is_kept_of_a_document(session: Session, tmp_path: Path) -> None:
    write(
        tmp_path / "x",
        [
            HEADER,
            KB,
            document(
                7,
                parser=3,
                pages=2,
                doc_type="pdf",
                chunks=[
                    {"text": "one", "page": 1, "section": "A > B"},
                    {"text": "e two", "overlap": 1},
                ],
                created_at="2025-01-01T01:00:00+01:00",
                tags=["A b"],
            ),
        ],
    )
    items, result = streamed(session, "store.import", path="x")
    assert items == [{"old": 7, "new": 1, "action": "added"}]
    assert result["ids"] == {"7": 1}
    doc = session.data("doc.get", id=1, text=True)
    assert (doc["created_at"], doc["tags"], doc["pages"]) == (
        "2025-01-01T00:00:00.000Z",
        ["a-b"],
        2,
    )
    assert (doc["text"], doc["type"]) == ("one two", "text"), "its source is text from now on"
    assert session.data("chunk.list", document_id=1)[0]["section"] == "A > B"
    assert session.data("doc.reparse", ids=[1])["failed"] == 0


def test_dry_run(session: Session, tmp_path: Path) -> None:
    session.data("doc.create", title="T", text="alpha", source_id="a")
    session.data("doc.create", title="T", text="alpha")
    new = {"type": "kb", "slug": "new", "name": "New"}
    write(
        tmp_path / "x",
        [
            HEADER,
            KB,
            new,
            document(1),
            document(2),
            document(3, source={"source_id": "a"}, title="Other"),
            document(4, kb="new", title="Fresh"),
        ],
    )
    seq = session.store.seq
    for replace, conflicts in (
        (False, "0 updated, 1 unchanged, 1"),
        (True, "1 updated, 1 unchanged, 0"),
    ):
        meta = session.ask("store.import", path="x", dry_run=True, replace=replace)["result"][
            "meta"
        ]
        changes = meta["plan"]["changes"]
        assert changes[0] == f"2 added, {conflicts} in conflict"
        assert "create knowledge base new" in changes
        assert "added: Fresh" in changes
    assert session.store.seq == seq


# ----------------------------------------------------- beside others, and half-way


def test_another_writer_is_faster(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The import notices documents that another writer adds between its look-up and its write."""
    write(tmp_path / "x", [HEADER, KB, document(1, source={"source_id": "a"}), document(2)])
    real = LongWrite.item
    calls = []

    def item(self: LongWrite, decide: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            put(session, "a")
            put(session, None)
        return real(self, decide)

    monkeypatch.setattr(LongWrite, "item", item)
    result = session.data("store.import", path="x")
    assert counts(result) == {"unchanged": 2}
    assert result["ids"] == {"1": 1, "2": 2}


def put(session: Session, source_id: str | None) -> None:
    """Creates a document over another connection, because the session's own is busy."""
    session.another("user").data("doc.create", title="T", text="alpha", source_id=source_id)


def interrupt_after(
    monkeypatch: pytest.MonkeyPatch, batches: int, what: Callable[[], None]
) -> None:
    real = LongWrite.item
    calls = []

    def item(self: LongWrite, decide: Any) -> Any:
        calls.append(1)
        done = real(self, decide)
        if len(calls) == batches + 1:
            what()
        return done

    monkeypatch.setattr(LongWrite, "item", item)


def many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes a file that takes several batches."""
    monkeypatch.setattr(run, "_BATCH", 32 * 11)  # each document has one chunk
    odd = [document(n, f"alpha {n % 7}", title=f"T{n % 7}") for n in range(1, 100, 2)]
    even = [document(n, source={"source_id": f"s{n}"}) for n in range(2, 100, 2)]
    write(tmp_path / "x", [HEADER, KB, *sorted(odd + even, key=lambda line: int(line["id"]))])


def test_cut_off_half_way_it_goes_on(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer equals that of an uninterrupted run, ids included."""
    many(tmp_path, monkeypatch)

    def die() -> None:
        raise RuntimeError("cut off")

    with monkeypatch.context() as patch:
        interrupt_after(patch, 2, die)
        assert session.error("store.import", path="x", client_token="t")["type"] == "internal.error"
    assert session.ask("doc.list")["result"]["meta"]["total"] == 64
    result = session.data("store.import", path="x", client_token="t")
    assert counts(result) == {"added": 99}
    assert len(set(result["ids"].values())) == 99
    again = session.ask("store.import", path="x", client_token="t")["result"]
    assert again["meta"]["duplicate"] is True
    assert again["data"] == result


def test_cancelled_what_is_committed_stays(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many(tmp_path, monkeypatch)
    with monkeypatch.context() as patch:
        interrupt_after(patch, 1, lambda: session.send(as_bytes(cancel(7))))
        session.send(as_bytes(request(7, "store.import", path="x")))
        while "method" in (message := json.loads(session.receive())):
            pass
    error = message["error"]["data"]
    assert (error["type"], error["detail"]["added"]) == ("operation.cancelled", 32)
    assert counts(session.data("store.import", path="x")) == {"added": 67, "unchanged": 32}


def test_two_at_once_make_one(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many(tmp_path, monkeypatch)
    for id in (7, 8):
        session.send(as_bytes(request(id, "store.import", path="x")))
    answers: list[Line] = []
    while len(answers) < 2:
        message = json.loads(session.receive())
        if "method" not in message:
            answers.append(message["result"]["data"])
    assert sum(answer["added"] for answer in answers) == 99
    assert sum(answer["unchanged"] for answer in answers) == 99
    assert session.ask("doc.list")["result"]["meta"]["total"] == 99


# -------------------------------------------------------------------- damaged files


def refusal_of(session: Session, data: bytes | None = None, name: str = "bad") -> Line:
    """Imports a file and returns the error; checks that no record was written."""
    if data is not None:
        (session.connection.peer.cwd / name).write_bytes(data)
    seq = session.store.seq
    error = session.error("store.import", path=name)
    assert session.store.seq == seq
    assert unnamed(session.store) == set()
    assert not list((session.store.folder / "sources").rglob("*.tmp"))
    return error


def test_a_cut_file(session: Session, tmp_path: Path) -> None:
    write(tmp_path / "x", [HEADER, KB, document(1), document(2)])
    data = (tmp_path / "x").read_bytes()
    lines = data.splitlines(keepends=True)
    for cut in {
        0,
        1,
        10,
        *range(len(data) - 140, len(data)),
        *(sum(map(len, lines[:n])) for n in range(len(lines))),
    }:
        error = refusal_of(session, data[:cut])
        assert error["type"] in {"input.invalid_params", "input.unsupported_type"}
        if error["type"] == "input.invalid_params":
            assert error["detail"]["line"] == data[:cut].count(b"\n") + 1
            assert f"Line {error['detail']['line']}" in error["message"]


def test_a_flipped_byte(session: Session, tmp_path: Path) -> None:
    write(tmp_path / "x", [HEADER, KB, document(1), document(2)])
    data = bytearray((tmp_path / "x").read_bytes())
    for at in range(0, len(data), 13):
        data[at] ^= 1
        error = refusal_of(session, bytes(data))
        assert error["exit_code"] in {1, 2}
        assert error["type"] != "internal.error"
        data[at] ^= 1


def test_a_byte_of_the_text(session: Session, tmp_path: Path) -> None:
    write(tmp_path / "x", [HEADER, KB, document(1), document(2)])
    data = (tmp_path / "x").read_bytes()
    error = refusal_of(session, data.replace(b'"alpha"', b'"alphA"', 1))
    assert error["detail"]["line"] == 5
    assert "one was changed" in error["message"]


def test_a_bad_line_is_named(session: Session, tmp_path: Path, subtests: pytest.Subtests) -> None:
    cases: list[tuple[list[Line], int, str]] = [
        ([HEADER, KB, document(1), document(1)], 4, "document 1 is out of order, or there twice"),
        ([HEADER, KB, KB], 3, "out of order"),
        ([HEADER, KB, document(1), {**KB, "slug": "late"}], 4, "out of order"),
        ([HEADER, HEADER], 2, "the header is out of order, or there twice"),
        ([HEADER, document(1)], 2, "no line before it names the knowledge base default"),
        ([HEADER, {**KB, "slug": "No"}], 2, "slug"),
        ([HEADER, {**KB, "slug": "ab\n"}], 2, "slug"),
        ([HEADER, {**KB, "name": "a\u202eb"}], 2, "U+202E"),
        ([HEADER, KB, document(title="")], 3, "title"),
        ([HEADER, KB, document(title="x" * 301)], 3, "title"),
        ([HEADER, KB, document(title="a\nb")], 3, "title"),
        ([HEADER, KB, document(tags=["a"] * 17)], 3, "tags"),
        ([HEADER, KB, document(tags=["a!b"])], 3, "tags[0]"),
        ([HEADER, KB, document(metadata={"a": {"b": 1}})], 3, "metadata"),
        ([HEADER, KB, document(metadata={"a": "x" * 1001})], 3, "metadata.a"),
        ([HEADER, KB, document(metadata={"a\u200bb": 1})], 3, "metadata"),
        ([HEADER, KB, document(doc_type="exe")], 3, "doc_type"),
        ([HEADER, KB, document(source={"path": "a"})], 3, "absolute"),
        ([HEADER, KB, document(source={"path": "/a\0b"})], 3, "absolute"),
        ([HEADER, KB, document(source={"path": "/a", "url": "http://a"})], 3, "path and url"),
        ([HEADER, KB, document(source={"file": "/a"})], 3, "unknown field `file`"),
        ([HEADER, KB, document(source={"source_id": "a\u202eb"})], 3, "source_id"),
        ([HEADER, KB, document(text="a\0b")], 3, "chunks[0].text"),
        ([HEADER, KB, document(text="")], 3, "chunks[0].text"),
        ([HEADER, KB, document(chunks=[{"text": "a", "overlap": 2}])], 3, "overlap"),
        ([HEADER, KB, document(chunks=[{"text": "a", "page": 2**31}])], 3, "page"),
        ([HEADER, KB, document(chunks=[{"text": "a", "section": "a\0"}])], 3, "section"),
        ([HEADER, KB, document(created_at="yesterday")], 3, "created_at"),
        ([HEADER, KB, document(sha256="0" * 64 + "\n")], 3, "sha256"),
        ([HEADER, KB, document(source_base64="YWxwaGE=")], 3, "source_base64"),
        ([HEADER, KB, document(source_base64="!")], 3, "source_base64"),
        ([HEADER, KB, document(vectors=["AAA="])], 3, "the header names no model"),
        ([MADE_BY, KB, document(vectors=[])], 3, "it has 0 vectors for 1 chunk"),
        ([MADE_BY, KB, document(vectors=["AAA="])], 3, "not 4 numbers"),
        ([MADE_BY, KB, document(vectors=["AAAAAAAAAH4="])], 3, "not 4 numbers"),
        ([MADE_BY, KB, document(vectors=["AAAAAAAAAHw="])], 3, "not 4 numbers"),
        ([{**MADE_BY, "vectors": {"model": "m"}}, KB], 1, "fingerprint"),
        ([HEADER, KB, document(surprise=1)], 3, "unknown field `surprise`"),
        ([HEADER, KB, {"type": "entry"}], 3, "entry"),
        ([HEADER, KB, {"no": "type"}], 3, "type"),
        ([HEADER, {"type": "end", "documents": 1, "sha256": None}], 2, "it counts 1"),
        ([HEADER, {"type": "end", "documents": 0, "sha256": None}, KB], 3, "after the end"),
        ([{**HEADER, "more": 1}], 1, "unknown field `more`"),
        ([HEADER, KB, AGENT, KB], 4, "out of order"),
        ([HEADER, WATCH], 2, "no line before it names the knowledge base default"),
        ([HEADER, KB, WATCH, WATCH], 4, "the watched folder /docs of here is out of order"),
        ([HEADER, KB, WATCH, AGENT], 4, "the agent gitea is out of order"),
        ([HEADER, KB, document(), WATCH], 4, "the watched folder /docs of here is out of order"),
        ([HEADER, KB, {**WATCH, "path": "docs"}], 3, "no absolute path"),
        ([HEADER, KB, {**WATCH, "root": "/a\0b"}], 3, "no absolute path"),
        ([HEADER, KB, {**WATCH, "prune": "all"}], 3, "prune"),
        ([HEADER, AGENT, AGENT], 3, "the agent gitea is out of order"),
        ([HEADER, {**AGENT, "slug": "file"}], 2, "no agent can be called"),
        ([HEADER, {**AGENT, "folder": "notes"}], 2, "folder is no absolute path"),
        ([HEADER, {**AGENT, "quotas": {"tea": 1}}], 2, "tea"),
        ([HEADER, NOTE], 2, "no line before it names the agent gitea"),
        ([HEADER, AGENT, NOTE, NOTE], 4, "the note gitea/hooks is out of order"),
        ([HEADER, KB, AGENT, NOTE, document()], 5, "document 1 is out of order"),
        ([HEADER, AGENT, {**NOTE, "text": " \n"}], 3, "holds no text"),
        ([HEADER, AGENT, {**NOTE, "text": "\u00e9" * 40_000}], 3, "64 KiB"),
        ([HEADER, KB, document(doc_type="note")], 3, "lines of their own"),
        ([HEADER, KB, document(doc_type="knowledge")], 3, "entry goes with"),
        ([HEADER, KB, document(entry={"confidence": 1})], 3, "entry goes with"),
        ([HEADER, KB, entry(confidence=101)], 3, "confidence"),
        ([HEADER, KB, entry(expires_at="soon")], 3, "entry.expires_at"),
        ([HEADER, KB, entry(task_kind="other")], 3, "task_kind"),
        ([HEADER, KB, {**entry(), "source": {"url": "http://a"}}], 3, "an entry has none"),
        ([HEADER, KB, {**entry(), "created_by": " "}], 3, "created_by"),
        ([HEADER, KB, {**entry(), "source_base64": None}], 3, "source_base64 is missing"),
        ([HEADER, KB, {**entry(), **body(b"caf\xe9")}], 3, "source_base64 is not UTF-8"),
        ([HEADER, KB, {**entry(), **body(b"")}], 3, "source_base64 is empty"),
        ([HEADER, KB, {**entry(), **body(b"x" * 32_001)}], 3, "source_base64 is longer"),
        ([HEADER, KB, entry(superseded_by=2)], 3, "entry 2, which supersedes 1, is not in its kb"),
        ([HEADER, KB, entry(superseded_by=1)], 3, "entry 1 would come to supersede itself"),
        ([HEADER, KB, entry(anchors=[{"path": "a"}])], 3, "anchors[0].path is no absolute path"),
        ([HEADER, KB, entry(anchors=[{"sha256": "0" * 64}])], 3, "anchors[0] names no source"),
        ([HEADER, KB, entry(anchors=[{"document": 1, "commit": "a" * 40}])], 3, "names no source"),
        ([HEADER, KB, entry(anchors=[{"path": "/a", "commit": "HEAD"}])], 3, "commit"),
        ([HEADER, KB, entry(anchors=[{**LINES, "end_line": 2}])], 3, "no lines in their order"),
        ([HEADER, AGENT, {**NOTE, "anchors": [{"document": 0}]}], 3, "anchors[0].document"),
        (
            [HEADER, KB, entry(1, superseded_by=2), entry(2, superseded_by=1)],
            3,
            "entry 1 would come to supersede itself",
        ),
        (
            [
                HEADER,
                KB,
                {**KB, "slug": "other"},
                entry(1, superseded_by=2),
                {**entry(2), "kb": "other"},
            ],
            4,
            "is not in its kb",
        ),
    ]
    for lines, at, says in cases:
        with subtests.test(at=at, says=says):
            write(tmp_path / "bad", lines)
            error = refusal_of(session)
            assert (error["type"], error["field"]) == ("input.invalid_params", "$.params.path")
            assert error["detail"]["line"] == at
            assert says in error["message"], error["message"]


def test_a_first_line_that_is_no_header(session: Session, subtests: pytest.Subtests) -> None:
    cases: list[tuple[bytes, str | None]] = [
        (b"", "input.invalid_params"),
        (b"\n", "input.unsupported_type"),
        (b"# Markdown\n", "input.unsupported_type"),
        (b"\x89PNG\r\n\x1a\n", "input.unsupported_type"),
        (b"[1]\n", "input.unsupported_type"),
        (b'{"type":"kb","slug":"default","name":"D"}\n', "input.unsupported_type"),
        (b'{"type":"kbproc.export","version":"1"}\n', "input.unsupported_type"),
        (b'{"type":"kbproc.export","version":7,"entries":{}}\n', "store.incompatible"),
        (b'{"type":"kbproc.export","version":0}\n', "store.incompatible"),
        (b"[" * 200_000 + b"\n", "input.unsupported_type"),
        (b'{"type":"kbproc.export","version":6,"x":' + b"[" * 200_000 + b"\n", None),
    ]
    for first, type in cases:
        with subtests.test(f"{first!r:.80}"):
            assert refusal_of(session, first)["type"] in {type or "input.unsupported_type"}
    error = refusal_of(session, b'{"type":"kbproc.export","version":5,"notes":[]}\n')
    assert (error["type"], LAST_EXPORTER in error["hint"]) == ("store.incompatible", True)


def test_what_is_no_file(session: Session, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, type in {
        "nowhere": "resource.not_found",
        "pipe": "input.unsupported_type",
        "store": "input.unsupported_type",
        "../x": "path.outside_root",
        "/etc/passwd": "path.outside_root",
    }.items():
        error = session.error("store.import", path=name)
        assert (error["type"], error["field"]) == (type, "$.params.path"), name


def test_a_line_without_end(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(format, "MAX_LINE_BYTES", 1 << 20)
    data = json.dumps(HEADER).encode() + b"\n" + b"x" * (2 << 20)
    error = refusal_of(session, data)
    assert (error["type"], error["detail"]) == ("input.too_large", {"line": 2})


# ------------------------------------------------------------------------ agents' folders


def agents_of(*lines: Line) -> list[format.AgentLine]:
    return [msgspec.convert(line, format.AgentLine) for line in lines]


def test_folders_that_an_agent_may_not_have_here(session: Session, tmp_path: Path) -> None:
    store = session.store
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "free")
    session.data("agent.create", slug="here", notes_folder="taken")
    wrong = {
        "a1": store.folder / "log",
        "a2": tmp_path / "taken",
        "a3": tmp_path / "file",
        "a4": tmp_path / "no" / "such",
        "a5": tmp_path.parent / "outside",
    }
    lines = [{"type": "agent", "slug": slug, "folder": str(wrong[slug])} for slug in wrong]
    lines += [{"type": "agent", "slug": "b1", "folder": str(tmp_path / "link")}]
    lines += [{"type": "agent", "slug": "b2", "folder": str(tmp_path / "free")}]
    lines += [{"type": "agent", "slug": "b3", "folder": str(store.folder / "notes" / "b3")}]
    lines += [{"type": "agent", "slug": "here", "folder": str(tmp_path / "other")}]
    messages: list[str] = []
    agents = more.with_folders(
        store,
        agents_of(*lines),
        root=tmp_path,
        emit=lambda kind, fields: messages.append(fields["message"]),
    )
    assert {agent.slug: agent.folder for agent in agents} == {
        **dict.fromkeys(wrong),
        "b1": str(tmp_path / "free"),
        "b2": None,
        "b3": None,
        "here": str(tmp_path / "other"),
    }
    assert [line.split()[2] for line in messages] == [*wrong, "b2"]
    assert "notes folder of b1" in messages[-1]


def test_an_imported_agent_gets_no_folder_among_the_stores_files(
    session: Session, tmp_path: Path
) -> None:
    log = session.store.folder / "log"
    note = {**NOTE, "agent": "aa"}
    lines = [HEADER, KB, {"type": "agent", "slug": "aa", "folder": str(log)}, note]
    write(tmp_path / "agents", lines)
    session.send(as_bytes(request(1, "store.import", path="agents", folders=True)))
    messages = [json.loads(session.receive())]
    while "method" in messages[-1]:
        messages.append(json.loads(session.receive()))
    warnings = [e["params"]["message"] for e in messages[:-1] if e["params"]["type"] == "warning"]
    assert [str(log) in line for line in warnings] == [True]
    assert list(log.glob("*.md")) == []
    [agent] = session.data("agent.list")
    assert agent["notes_folder"] == str(session.store.origin / "notes" / "aa")


def test_two_agents_of_a_file_with_one_folder(session: Session, tmp_path: Path) -> None:
    lines: list[Line] = [HEADER, KB]
    lines += [{"type": "agent", "slug": s, "folder": str(tmp_path / "one")} for s in ("aa", "bb")]
    write(tmp_path / "agents", lines)
    session.data("store.import", path="agents", folders=True)
    folders = {a["slug"]: a["notes_folder"] for a in session.data("agent.list")}
    assert folders == {
        "aa": str(tmp_path / "one"),
        "bb": str(session.store.origin / "notes" / "bb"),
    }


@pytest.fixture
def naming(session: Session, tmp_path: Path) -> Path:
    """Writes another person's export with notes of three agents; returns the folder that one names.

    The second names none, the third is here already, with a folder of its user's choice.
    """
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    session.data("agent.create", slug="known", notes_folder=str(tmp_path / "mine"))
    lines = [HEADER, KB, {"type": "agent", "slug": "aa", "folder": str(elsewhere)}]
    lines += [{"type": "agent", "slug": slug} for slug in ("bb", "known")]
    lines += [{**NOTE, "agent": slug} for slug in ("aa", "bb", "known")]
    write(tmp_path / "agents", lines)
    return elsewhere


@pytest.mark.parametrize("folders", [False, True])
def test_a_folder_that_a_file_names_is_approved_first(
    session: Session, tmp_path: Path, naming: Path, folders: bool
) -> None:
    own = session.store.origin / "notes"
    params: Line = {"path": "agents", "folders": folders}
    plan = session.ask("store.import", dry_run=True, **params)["result"]["meta"]["plan"]
    expected = {
        "aa": naming if folders else own / "aa",
        "bb": own / "bb",
        "known": tmp_path / "mine",
    }
    for slug, folder in expected.items():
        change = f"write into {folder} the 1 note of {slug}, where it is not there yet"
        assert change in plan["changes"]
    assert (str(naming) in str(plan["changes"])) is folders
    session.data("store.import", **params)
    notes = {path for path in tmp_path.rglob("*.md") if "views" not in path.parts}
    assert notes == {folder / "hooks.md" for folder in expected.values()}
    agents = {row["slug"]: row["notes_folder"] for row in session.data("agent.list")}
    assert agents == {slug: str(folder) for slug, folder in expected.items()}


def test_a_folder_that_is_not_approved_is_told(session: Session, naming: Path) -> None:
    result = session.ask("store.import", path="agents")["result"]
    assert "agent.update names another folder" in result["meta"]["hint"]
    assert result["data"]["folders_left"] == 1
    again = session.ask("store.import", path="agents", folders=True)["result"]["data"]
    assert (again["folders_left"], again["agents_kept"]) == (0, 2), "agents that are here stay"
    moved = session.data("agent.update", slug="aa", notes_folder=str(naming))
    assert moved["notes_folder"] == str(naming)


def test_a_folder_without_notes_is_named_too(session: Session, tmp_path: Path) -> None:
    """The plan names the folder, because an agent reads every file in it as a note."""
    agent = {"type": "agent", "slug": "aa", "folder": str(tmp_path / "papers")}
    write(tmp_path / "agents", [HEADER, KB, agent])
    params: Line = {"path": "agents", "dry_run": True}
    plans = [
        session.ask("store.import", **params, folders=folders)["result"]["meta"]["plan"]["changes"]
        for folders in (False, True)
    ]
    assert "create agent aa" in plans[0]
    assert f"create agent aa, whose notes lie in {tmp_path / 'papers'}" in plans[1]


# ------------------------------------------------------------------------ hypothesis

NAMES = st.text(st.characters(blacklist_categories=["Cs", "Cc", "Cf"]), min_size=1, max_size=40)
TEXTS = st.text(st.characters(blacklist_categories=["Cs"]), max_size=200)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS
)
TAGS = st.lists(st.from_regex(r"[a-z0-9\u00e4\u65e5+#.]{1,12}", fullmatch=True), max_size=16)


@pytest.fixture(scope="module")
def two_stores() -> Any:
    """Two stores for the whole module, because opening one takes longer than an example."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pair = [Session(folder / f"store{n}", cwd=folder, model="none") for n in range(2)]
        yield pair
        for session in pair:
            session.close()


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    max_examples=15,
)
@given(
    title=NAMES,
    text=TEXTS,
    tags=TAGS,
    metadata=st.dictionaries(NAMES, SCALARS, max_size=5),
    named=st.none() | NAMES,
)
def test_odd_documents_survive(
    two_stores: list[Session],
    title: str,
    text: str,
    tags: list[str],
    metadata: dict[str, Any],
    named: str | None,
) -> None:
    one, two = two_stores
    params = {"title": title, "text": text, "tags": tags, "metadata": metadata}
    if named is not None:
        params["source_id"] = named
    response = one.ask("doc.create", **params)
    if "error" in response:  # the document is blank, or the example before has taken its source
        return
    folder = one.connection.peer.cwd
    for name in ("a", "b"):
        (folder / name).unlink(missing_ok=True)
    lines = exported(one, "a")
    assert two.data("store.import", path="a", replace=True, keep_origins=True)["conflicts"] == 0
    assert portable(exported(two, "b")) == portable(lines)
    assert set(counts(two.data("store.import", path="a"))) == {"unchanged"}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    max_examples=60,
)
@given(
    member=st.sampled_from([*document(), "surprise"]),
    value=JSON,
    raw=st.binary(max_size=40),
    how=st.sampled_from(["member", "raw", "insert"]),
    at=st.integers(0, 400),
)
def test_hostile_lines(
    two_stores: list[Session], member: str, value: Any, raw: bytes, how: str, at: int
) -> None:
    """A line is imported, or refused with a type and a line number; no import is partial."""
    session = two_stores[1]
    path = session.connection.peer.cwd / "hostile"
    line = json.dumps({**document(), member: value} if how == "member" else document()).encode()
    line = raw if how == "raw" else line[:at] + raw + line[at:] if how == "insert" else line
    before = b"".join(json.dumps(x).encode() + b"\n" for x in (HEADER, KB)) + line + b"\n"
    end = {"type": "end", "documents": 1, "sha256": hashlib.sha256(before).hexdigest()}
    path.write_bytes(before + json.dumps(end).encode() + b"\n")
    seq = session.store.seq
    answer = session.ask("store.import", path="hostile")
    if "error" in answer:
        error = answer["error"]["data"]
        assert error["type"] == "input.invalid_params", error
        assert error["detail"]["line"] >= 3
        assert session.store.seq == seq
    else:
        assert answer["result"]["data"]["added"] + answer["result"]["data"]["unchanged"] == 1


def test_scopes_that_a_file_gives_are_named(session: Session, tmp_path: Path) -> None:
    agent = {"type": "agent", "slug": "aa", "scopes": ["admin", "doc:read"]}
    write(tmp_path / "agents", [HEADER, KB, agent])
    params: Line = {"path": "agents", "dry_run": True}
    plan = session.ask("store.import", **params)["result"]["meta"]["plan"]
    assert "create agent aa with the scopes admin, doc:read" in plan["changes"]


def test_a_fact_that_no_line_names_comes_along(tmp_path: Path) -> None:
    """Every struct of an entry and a document gets a member: the transfer takes it as it is."""
    command = [sys.executable, "-m", "tests.kit.grown", str(tmp_path)]
    done = subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"mood": "calm", "color": ["", "red"], "hand": ["ann"]}
