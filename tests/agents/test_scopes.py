"""Scopes: every method under every scope, and two stores that must answer alike.

Answers reveal nothing that the caller may not see: a store with hidden documents and a store
without them answer alike, except for positions in the log and the scores of words.
"""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kbproc.methods.all import registry
from kbproc.methods.calls.method import Method
from tests.kit.patience import all_or
from tests.kit.talk import Message, Session, as_bytes, request

# Method → the scope that it needs, and whether it concerns the whole store, so that a process
# bound to an agent may not call it. Written by hand, so that each new method is decided here, too.
SCOPES: dict[str, tuple[str, bool]] = {
    "ping": ("store:read", False),
    "version": ("store:read", False),
    "describe": ("store:read", False),
    "schema": ("store:read", False),
    "status": ("store:read", False),
    "doctor": ("store:read", True),
    "store.backup": ("admin", True),
    "store.export": ("admin", True),
    "store.import": ("admin", True),
    "store.compact": ("admin", True),
    "store.purge": ("admin", True),
    "index.rebuild": ("admin", True),
    "store.move": ("admin", True),
    "cluster.init": ("admin", True),
    "cluster.join": ("admin", True),
    "cluster.leave": ("admin", True),
    "cluster.reseed": ("admin", True),
    "cluster.status": ("admin", True),
    "model.install": ("admin", True),
    "model.list": ("admin", True),
    "model.use": ("admin", True),
    "sql.query": ("admin", True),
    "kb.create": ("kb:write", False),
    "kb.list": ("kb:read", False),
    "kb.get": ("kb:read", False),
    "kb.update": ("kb:write", False),
    "kb.delete": ("admin", False),
    "kb.status": ("kb:read", False),
    "kb.check": ("kb:read", False),
    "doc.ingest": ("doc:write", False),
    "doc.create": ("doc:write", False),
    "doc.fetch": ("doc:write", False),
    "doc.reparse": ("doc:write", False),
    "doc.list": ("doc:read", False),
    "doc.get": ("doc:read", False),
    "doc.update": ("doc:write", False),
    "doc.delete": ("admin", False),
    "doc.restore": ("doc:write", False),
    "doc.history": ("doc:read", False),
    "doc.download": ("doc:read", False),
    "doc.wait": ("doc:read", False),
    "chats.add": ("doc:write", False),
    "chats.export": ("admin", True),
    "watch.add": ("doc:write", True),
    "watch.list": ("doc:read", False),
    "watch.remove": ("doc:write", True),
    "chunk.list": ("chunk:read", False),
    "chunk.get": ("chunk:read", False),
    "chunk.map": ("chunk:read", False),
    "chunk.delete": ("admin", False),
    "tag.list": ("doc:read", False),
    "search": ("doc:read", False),
    "knowledge.store": ("knowledge:write", False),
    "knowledge.search": ("knowledge:read", False),
    "knowledge.get": ("knowledge:read", False),
    "knowledge.list": ("knowledge:read", False),
    "knowledge.supersede": ("knowledge:write", False),
    "review.list": ("knowledge:read", False),
    "review.approve": ("review:write", False),
    "review.edit": ("review:write", False),
    "review.reject": ("review:write", False),
    "knowledge.unsupersede": ("knowledge:write", False),
    "knowledge.delete": ("admin", False),
    "knowledge.verify": ("knowledge:write", False),
    "knowledge.duplicates": ("knowledge:read", False),
    "note.search": ("note:read", False),
    "note.get": ("note:read", False),
    "note.list": ("note:read", False),
    "note.put": ("note:write", False),
    "note.delete": ("admin", False),
    "note.sync": ("note:write", False),
    "note.history": ("note:read", False),
    "agent.create": ("agent:write", True),
    "agent.list": ("agent:read", False),
    "agent.get": ("agent:read", False),
    "agent.update": ("agent:write", True),
    "agent.delete": ("admin", True),
    "agent.status": ("agent:read", False),
    "agent.check": ("agent:read", False),
    "agent.invoke": ("session:write", False),
    "chat": ("session:write", False),
    "session.create": ("session:write", False),
    "session.ask": ("session:write", False),
    "session.resume": ("session:read", False),
    "session.stop": ("session:write", False),
    "session.list": ("session:read", False),
    "session.search": ("session:read", False),
    "session.get": ("session:read", False),
    "session.delete": ("admin", False),
    "plan.list": ("admin", True),
    "plan.approve": ("admin", True),
    "plan.refuse": ("admin", True),
    "events.read": ("admin", True),
    "events.verify": ("admin", True),
    "events.subscribe": ("admin", True),
    "events.revert": ("admin", True),
}
# Method → the scope that an agent needs for its own notes and entries.
OWN = {"note.delete": "note:write", "knowledge.delete": "knowledge:write"}
# Method → a scope that it needs besides, because its answer quotes documents.
ALSO = dict.fromkeys(("chat", "session.ask", "agent.invoke"), "doc:read")
ALL = registry().scopes
METHODS = registry().methods


# ------------------------------------------------------------------------------ the table


def test_the_table_is_what_the_methods_declare() -> None:
    assert {name: (m.scope, m.whole) for name, m in METHODS.items()} == SCOPES
    assert {name: m.own_scope for name, m in METHODS.items() if m.own_scope} == OWN
    assert {name: m.also_needs for name, m in METHODS.items() if m.also_needs} == ALSO


def test_what_destroys_needs_admin() -> None:
    kinds = {name for name, m in METHODS.items() if m.kind == "destructive"}
    assert {name for name in kinds if SCOPES[name][0] != "admin"} == set()


def test_scopes_are_named_for_nouns() -> None:
    assert {scope.partition(":")[2] for scope in ALL} == {"", "read", "write", "write_others"}


@pytest.fixture(scope="module")
def open_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    folder = tmp_path_factory.mktemp("scopes")
    session = Session(folder / "store", cwd=folder)
    session.data("doc.create", title="Guide", text="How to install it.")
    session.data("agent.create", slug="alpha")
    session.embedded()
    yield session
    session.close()


def test_each_scope_alone(open_store: Session) -> None:
    """The param is unknown to every method, so a call that passes the check is refused for it."""
    wrong = []
    for scope in ALL:
        peer = open_store.another("user", scopes=scope)
        for name in METHODS:
            needed = SCOPES[name][0]
            error = peer.error(name, nothing_of_this_name=1)
            if needed == scope and name in ALSO:
                right = error["detail"] == {"needed": ALSO[name], "scopes": [scope]}
            elif needed == scope:
                right = error["type"] == "input.invalid_params"
            else:
                right = error["type"] == "auth.insufficient_scope"
                right = right and error["detail"] == {"needed": needed, "scopes": [scope]}
            wrong += [] if right else [(scope, name, error)]
    assert wrong == []


def test_no_scope_at_all(open_store: Session) -> None:
    peer = open_store.another("user", scopes="")
    assert {peer.error(name)["type"] for name in METHODS} == {"auth.insufficient_scope"}


def harmless(method: Method) -> dict[str, Any]:
    """Valid params of a call that changes nothing."""
    params = dict(method.examples[0].params)
    if method.kind != "read":
        params["dry_run"] = True
    return params


def test_each_scope_alone_of_an_agent(open_store: Session) -> None:
    """The process has every scope, its agent only one."""
    wrong = []
    for scope in ALL:
        open_store.data("agent.update", slug="alpha", scopes=[scope])
        alpha = open_store.another("alpha", named=True)
        for name, method in METHODS.items():
            if not method.needs_store:  # the method ignores the agent and shows no data
                continue
            needed, whole = SCOPES[name]
            answer = alpha.ask(name, **harmless(method))
            error = answer.get("error", {}).get("data", {})
            refused = error.get("type") == "auth.insufficient_scope"
            if whole:
                right = refused and error["detail"] == {"agent": "alpha"}
            elif scope in (needed, OWN.get(name)) and name in ALSO:
                right = error["detail"] == {"needed": ALSO[name], "scopes": [scope]}
            elif scope in (needed, OWN.get(name)):
                right = not refused
            else:
                right = refused and error["detail"] == {"needed": needed, "scopes": [scope]}
            wrong += [] if right else [(scope, name, answer)]
    assert wrong == []


def test_a_process_gives_its_agent_no_scope_that_it_lacks(open_store: Session) -> None:
    open_store.data("agent.update", slug="alpha", scopes=["doc:read", "kb:read"])
    alpha = open_store.another("alpha", scopes=["doc:read", "tag:read"][0], named=True)
    alpha.data("doc.list")
    assert alpha.error("kb.list")["detail"] == {"needed": "kb:read", "scopes": ["doc:read"]}


def test_an_agent_calls_nothing_that_concerns_the_whole_store(open_store: Session) -> None:
    open_store.data("agent.update", slug="alpha", clear=["scopes"])
    alpha = open_store.another("alpha", scopes=",".join(ALL), named=True)
    answers = {name: alpha.ask(name, **harmless(METHODS[name])) for name in METHODS}
    refused = {
        name: answer.get("error", {}).get("data", {}).get("type") == "auth.insufficient_scope"
        for name, answer in answers.items()
    }
    assert refused == {name: whole for name, (_, whole) in SCOPES.items()}


# ------------------------------------------------------------------------- what is hidden

SECRET = "quokka"  # a word of the hidden texts only

Observer = Callable[[Session], Session]


def seen_by_all(session: Session, folder: Path) -> None:
    """Adds the visible documents; runs first, so that both stores give them the same ids."""
    (folder / "files").mkdir()
    (folder / "files" / "guide.md").write_text("# Guide\n\nHow to install the server.\n")
    (folder / "files" / "broken.pdf").write_bytes(b"%PDF-1.7\nnothing")
    os.utime(folder / "files" / "guide.md", (0, 0))  # because documents have their files' dates
    session.data("kb.create", slug="plain")
    session.data("agent.create", slug="alpha", kbs=["plain"], quotas={"notes_stored": 9})
    session.ask("doc.ingest", paths=["files"], kb="plain", tags=["manual"])
    for number in range(3):
        session.data(
            "doc.create",
            kb="plain",
            title=f"Report {number}",
            source_id=f"r{number}",
            text=f"Server report {number}: all is well.",
            tags=["report"],
        )
    session.data("doc.update", id=2, title="Report zero", text="Server report 0: it is slow.")
    approve(session, "doc.delete", ids=[3])
    alpha = session.another("alpha", named=True)
    old = alpha.data("knowledge.store", kb="plain", title="Port of the server", body="It is 80.")
    new = alpha.data(
        "knowledge.store",
        kb="plain",
        title="Port of the server",
        body="It is 3000.",
        task_ref={"task_id": "T-1"},
        tags=["report"],
    )
    alpha.data("knowledge.supersede", old_id=old["id"], new_id=new["id"])
    alpha.data("note.put", slug="server", text="# Server\n\nRestart it at night.\n")
    alpha.data("session.create", title="The server")
    session.ask("doc.wait")  # both stores answer with the same vectors; an error without a model
    alpha.data("session.ask", session_id=1, question="Which port has the server?")


def hidden_kb(session: Session, folder: Path) -> None:
    """Adds a knowledge base with every kind of content, and another agent with notes."""
    session.data("kb.create", slug=f"{SECRET}-kb", name=SECRET, description=SECRET)
    (folder / "files" / f"{SECRET}.md").write_text(f"# The {SECRET}\n\nThe {SECRET} server.\n")
    (folder / "files" / f"{SECRET}.pdf").write_bytes(b"%PDF-1.7\nnothing")
    session.ask("doc.ingest", paths=["files"], kb=f"{SECRET}-kb", tags=[SECRET])
    (folder / "files" / f"{SECRET}.md").unlink()
    (folder / "files" / f"{SECRET}.pdf").unlink()
    fill(session, f"{SECRET}-kb")
    session.data("agent.create", slug=f"{SECRET}-agent", notes_folder=f"{SECRET}-notes")
    other = session.another(f"{SECRET}-agent", named=True)
    other.data("note.put", slug=f"{SECRET}-note", text=f"# {SECRET}\n\nThe {SECRET} server.\n")
    other.data("note.put", slug="server", text=f"# Server\n\nThe {SECRET} restarts it.\n")
    (folder / f"{SECRET}-notes" / "unseen.md").write_text(f"# {SECRET}\n")
    (folder / f"{SECRET}-notes" / f"{SECRET} odd.md").write_text(f"# {SECRET}\n")
    store_entries(other, f"{SECRET}-kb")
    other.data("session.create", title=SECRET)
    other.data("session.ask", session_id=2, question=f"Which {SECRET} server?")


def fill(session: Session, kb: str) -> None:
    session.data("doc.create", kb=kb, title=SECRET, text=SECRET, client_token="once")
    docs = [
        session.data(
            "doc.create",
            kb=kb,
            title=f"{SECRET} {number}",
            source_id=f"{SECRET}{number}",
            text=f"The {SECRET} server report.",
            tags=[SECRET, "report"],
            metadata={SECRET: SECRET},
        )["id"]
        for number in range(4)
    ]
    session.data("doc.update", id=docs[0], title=f"{SECRET} again", text=f"{SECRET} " * 30)
    approve(session, "doc.delete", ids=[docs[1]])
    approve(session, "store.purge", document_ids=[docs[2]])


def store_entries(session: Session, kb: str) -> None:
    ids = [
        session.data(
            "knowledge.store",
            kb=kb,
            title=f"{SECRET} {number}",
            body=f"The {SECRET} server report.",
            tags=[SECRET, "report"],
            task_ref={"task_id": SECRET},
            expires_at="2030-01-01",
        )["id"]
        for number in range(4)
    ]
    session.data("knowledge.supersede", old_id=ids[0], new_id=ids[1])
    approve(session, "knowledge.delete", ids=[ids[2]])
    approve(session.another("user"), "store.purge", document_ids=[ids[3]])


def hidden_entries(session: Session, folder: Path) -> None:
    """Adds entries only, since every observer sees documents."""
    store_entries(session, "plain")
    store_entries(session.another("alpha", named=True), "plain")


def hidden_notes(session: Session, folder: Path) -> None:
    alpha = session.another("alpha", named=True)
    for slug in (f"{SECRET}-note", "another"):
        alpha.data("note.put", slug=slug, text=f"# {SECRET}\n\nThe {SECRET} server report.\n")
    # An agent may delete its own note.
    approve(alpha, "note.delete", slug="another")
    purged = alpha.data("note.put", slug="gone", text=f"# {SECRET}\n")["id"]
    approve(session, "store.purge", document_ids=[purged])
    (folder / "store" / "notes" / "alpha" / "unseen.md").write_text(f"# {SECRET}\n")
    (folder / "store" / "notes" / "alpha" / f"{SECRET} odd.md").write_text(f"# {SECRET}\n")


def approve(session: Session, method: str, **params: Any) -> Any:
    """Calls the method with the confirmation of its plan, like a person who has read it."""
    plan = session.error(method, **params)["plan"]
    return session.data(method, **params, confirm=plan["plan_hash"])


def as_alpha(session: Session) -> Session:
    """A connection of alpha with every scope, so that scopes alone refuse no method."""
    return session.another("alpha", scopes=",".join(ALL), named=True)


def without(*scopes: str) -> Observer:
    rest = ",".join(scope for scope in ALL if scope not in scopes)
    return lambda session: session.another("user", scopes=rest)


class Case(NamedTuple):
    """A function that hides documents, the observer, a model, and hidden ids of each kind."""

    hide: Callable[[Session, Path], None]
    observer: Observer
    model: str
    documents: tuple[int, ...]
    chunks: tuple[int, ...]

    @property
    def ids(self) -> list[int]:
        """Visible documents, a deleted one, entries, a note; hidden ones; one that never was."""
        return [1, 3, 6, 7, *all_or(self.documents, range(8, 23)), 99]

    @property
    def chunk_ids(self) -> list[int]:
        return [1, 7, 8, *all_or(self.chunks, range(9, 25)), 99]

    @property
    def few_ids(self) -> list[int]:
        """The ids for the second way of each call that takes one; all in the long profile."""
        return all_or(self.ids[1::2], self.ids)


# Live, changed, deleted and purged documents and entries; a note, and one without a record.
OF_KB = (9, 11, 12, 13, 15, 17, 18, 19, 20, 21)
CASES = {
    "an agent of another kb": Case(
        hidden_kb, as_alpha, "hash", OF_KB, (9, 10, 12, 13, 16, 18, 20, 21, 23)
    ),
    "who may not read entries": Case(
        hidden_entries, without("knowledge:read"), "none", (8, 9, 10, 11, 13), (9, 10, 11, 12, 13)
    ),
    "who may not read notes": Case(
        hidden_notes, without("note:read"), "none", (8, 9, 10, 11), (9, 10, 11, 12)
    ),
}
BEFORE = 12  # a position in the log at which both stores are still alike
NOW = "2026-01-01"  # as_of a time: every record is in its past
KBS = ["plain", f"{SECRET}-kb", [f"{SECRET}-kb", "plain"]]
WORDS = [
    "server",
    "server report",
    SECRET,
    f"server -{SECRET}",
    f'"{SECRET} server"',
    "nothingness",
]
SLUGS = ["alpha", f"{SECRET}-agent", "nobody"]
NOTES = ["server", f"{SECRET}-note", "unseen"]


def each(name: str, values: Any, /, **more: Any) -> list[dict[str, Any]]:
    return [{name: value, **more} for value in values]


WHOSE: list[dict[str, Any]] = [{}, *each("agent", SLUGS)]


def searches(ids: list[int]) -> list[dict[str, Any]]:
    plain = [{"query": q, "mode": mode} for q in WORDS for mode in ("hybrid", "fts", "vector")]
    return [
        *plain,
        *(each("kb", KBS, query="server")),
        *(each("tags", [[SECRET], ["report"]], query="server")),
        *(each("document_ids", [[i] for i in ids], query="server", mode="fts")),
        {"query": "server", "types": ["note"]},
        {"query": "server", "types": ["knowledge"]},
        {"query": "server", "metadata": {SECRET: SECRET}},
        {"query": "server", "include_superseded": True, "include_expired": True},
        {"query": "server", "min_confidence": 10},
        {"query": SECRET, "min_score": 0.99},
        {"query": "server", "offset": 1, "limit": 1, "mode": "fts"},
        {"query": "server", "offset": 900},
        {"query": "server", "explain": True, "mode": "fts"},
        {"query": "server", "per_document": 1, "fusion": "rrf"},
        {"query": "server", "as_of": BEFORE},
        {"query": SECRET, "as_of": NOW},
        {"query": "server", "as_of": NOW, "mode": "fts"},
    ]


def reads(case: Case) -> dict[str, list[dict[str, Any]]]:
    """Returns the params to read with, by method."""
    ids, few_ids, chunks = case.ids, case.few_ids, case.chunk_ids
    return {
        "ping": [{}],
        "version": [{}],
        "describe": [{}, *each("method", ["search", "nothing"])],
        "schema": [{"name": "search.result"}, {"name": SECRET}],
        "status": [{}],
        "kb.list": [{}, {"limit": 1}],
        **{
            name: each("slug", ["plain", "default", f"{SECRET}-kb", "nowhere"])
            for name in ("kb.get", "kb.status", "kb.check")
        },
        "doc.list": [
            {},
            {"limit": 1},
            {"limit": 1000},
            {"as_of": BEFORE},
            {"as_of": NOW},
            *each("kb", KBS),
            *each("tags", [[SECRET], ["report"]]),
            *each("types", [["note"], ["knowledge"], ["text"]]),
            *each("status", ["ready", "pending", "failed"]),
            {"title_contains": SECRET},
            {"source_id": f"{SECRET}0"},
            {"created_before": "2030-01-01"},
            {"path_prefix": "/"},
        ],
        "doc.get": [
            *each("id", ids),
            *each("id", few_ids, text=True),
            *each("id", few_ids, as_of=BEFORE),
            *each("id", few_ids, as_of=NOW),
        ],
        "doc.download": [*each("id", ids), {"id": 20, "path": "out.txt"}],
        "doc.history": each("id", ids),
        "doc.wait": [{"timeout_ms": 0}, *each("ids", [[i] for i in ids], timeout_ms=0)],
        "watch.list": [{}, {"as_of": NOW}],
        "chunk.list": [*each("document_id", ids), *each("document_id", few_ids, as_of=NOW)],
        "chunk.get": each("id", chunks, before=9, after=9),
        "chunk.map": [{}, {"limit": 2}, {"query": "server"}, *each("kb", KBS)],
        "tag.list": [{}, {"limit": 1}, {"as_of": BEFORE}, {"as_of": NOW}, *each("kb", KBS)],
        "search": searches(few_ids),
        "knowledge.search": [
            *each("query", WORDS),
            *each("owner", SLUGS, query="server"),
            {"query": "server", "task_id": SECRET},
            {"query": "server", "as_of": BEFORE},
            {"query": "server", "include_superseded": True, "include_expired": True},
        ],
        "knowledge.get": [*each("id", ids), *each("id", few_ids, as_of=NOW)],
        "knowledge.list": [
            {},
            {"include_superseded": True, "include_expired": True},
            {"task_id": SECRET},
            {"tags": [SECRET]},
            *each("kb", KBS),
            *each("owner", SLUGS),
            {"as_of": NOW},
        ],
        "knowledge.duplicates": [{}, {"limit": 1}, *each("kb", KBS)],
        "note.search": [{"query": q, **who} for q in WORDS for who in WHOSE],
        "note.get": [{"slug": n, **who} for n in NOTES for who in WHOSE],
        "note.history": [{"slug": n, **who} for n in NOTES for who in WHOSE],
        "note.list": [
            {},
            {"limit": 1},
            *each("agent", SLUGS),
            *each("agent", SLUGS, as_of=NOW),
            {"as_of": BEFORE},
        ],
        "agent.list": [{}, {"limit": 1}],
        **{name: each("slug", SLUGS) for name in ("agent.get", "agent.status", "agent.check")},
        "review.list": [{}, {"limit": 1}, {"as_of": NOW}, *each("kb", ["plain", f"{SECRET}-kb"])],
        "session.list": [{}, {"limit": 1}, {"as_of": NOW}],
        "session.search": [
            *each("query", WORDS),
            *each("query", all_or([SECRET, "server"], WORDS), as_of=NOW),
        ],
        "session.get": each("session_id", [1, 2, 3]),
        "session.resume": [
            {"session_id": s, "message_id": m} for s in (1, 2, 3) for m in (1, 2, 3)
        ],
    }


def writes(case: Case) -> dict[str, list[dict[str, Any]]]:
    """Returns params of writes, which run as dry runs: plans may reveal something, too."""
    ids, few_ids, chunks = case.ids, case.few_ids, case.chunk_ids
    return {
        "kb.create": each("slug", ["plain", f"{SECRET}-kb", "nowhere"]),
        "kb.update": each("slug", ["plain", f"{SECRET}-kb", "nowhere"], name="x"),
        "kb.delete": each("slug", [f"{SECRET}-kb", "nowhere"]),
        "doc.ingest": [
            *each("kb", ["plain", f"{SECRET}-kb"], paths=["files"]),
            {"paths": ["files"], "kb": "plain", "prune": True},
        ],
        "doc.create": [
            *each("kb", ["plain", f"{SECRET}-kb"], title="x", text="y"),
            {"kb": "plain", "title": "x", "text": "y", "source_id": f"{SECRET}0"},
        ],
        "chats.add": each("kb", ["plain", f"{SECRET}-kb"]),
        "knowledge.verify": each("ids", [[i] for i in ids]),
        "doc.fetch": each("kb", ["plain", f"{SECRET}-kb"], url="http://localhost/"),
        "doc.reparse": [*each("kb", ["plain", f"{SECRET}-kb"]), *each("ids", [[i] for i in ids])],
        "doc.update": [*each("id", ids, title="x"), *each("id", few_ids, text="y")],
        "doc.delete": [
            *each("ids", [[i] for i in ids]),
            {"where": {"tags": [SECRET]}},
            {"where": {"tags": ["report"]}},
            {"where": {"kb": f"{SECRET}-kb"}},
            {"where": {"types": ["note"]}},
            {"where": {"types": ["knowledge"]}},
        ],
        "doc.restore": [
            *each("ids", [[i] for i in ids]),
            {"ids": ids},
            *each("ids", [[i] for i in few_ids], revision=1),
        ],
        "chunk.delete": [*each("ids", [[i] for i in chunks]), {"ids": chunks}],
        "knowledge.store": each("kb", ["plain", f"{SECRET}-kb"], title="x", body="y"),
        "knowledge.supersede": [
            *each("new_id", ids, old_id=6),
            *each("new_id", few_ids, old_id=20),
        ],
        "review.approve": each("ids", [[i] for i in ids]),
        "review.edit": each("id", ids, title="x"),
        "review.reject": each("ids", [[i] for i in ids]),
        "knowledge.unsupersede": [
            *each("new_id", ids, old_id=5),
            *each("new_id", few_ids, old_id=20),
        ],
        "knowledge.delete": [*each("ids", [[i] for i in ids]), {"ids": ids}],
        "note.put": [{"slug": n, "text": "x", **who} for n in NOTES for who in WHOSE],
        "note.delete": [{"slug": n, **who} for n in NOTES for who in WHOSE],
        "note.sync": [{}, *each("agent", SLUGS)],
        "session.create": [
            {"title": "x"},
            *each("kb", ["plain", f"{SECRET}-kb"]),
            *each("agent", SLUGS),
        ],
        "session.delete": each("session_ids", [[1], [2], [3], [1, 2]]),
        "session.ask": [
            {"session_id": s, "question": q}
            for s in (1, 2)
            for q in (
                "Is the server report well, or slow?",
                f"Which {SECRET} server restarts tonight?",
            )
        ],
        "session.stop": [{"session_id": s, "message_id": m} for s in (1, 2, 3) for m in (1, 2)],
        "chat": [
            *each("question", WORDS),
            *each("kb", ["plain", f"{SECRET}-kb"], question="server"),
        ],
        "agent.invoke": each("slug", SLUGS, question="How is the server?"),
    }


# Members that depend on all documents: the scores of words, and positions in the log.
_NOT_COMPARED = {
    "seq",
    "fulltext_seq",
    "vector_seq",
    "score",
    "score_breakdown",
    "explain",
    "took_ms",
}
# The next id comes from the log and is the same for all observers.
_NEXT_ID = re.compile(r"^(add document|begin session|create session) \d+")
# A passage of a plan; passages are ordered by scores, like hits.
_CITED = re.compile(r"^\[\d+\] ")
# The sentences of a hint on how sure the search is; only they follow from scores.
_SURENESS = re.compile(
    r"(?:The store seems to know nothing about this: the best hit answers it"
    r" with a chance of (?:less than )?\d+%"
    r"|The best hit is related, but may not answer the question: the chance is (?:less than )?\d+%"
    r"|The passages are about the topic, but may not answer the question: read them)\."
)
_NOT_SURE = "NOT SURE."
# An unsure search adds the words that no chunk contains.
_NOT_SURE_OF = re.compile(rf"{re.escape(_NOT_SURE)}(?: No chunk contains: [^.]*\.)? ?")


def test_every_method_is_walked() -> None:
    case = CASES["an agent of another kb"]
    read = {name for name, m in METHODS.items() if m.kind == "read" and not SCOPES[name][1]}
    assert read == reads(case).keys()
    written = {name for name, m in METHODS.items() if m.kind != "read" and not SCOPES[name][1]}
    assert written == writes(case).keys()


class Pair:
    """Two stores that are asked the same: one with hidden documents, and one without them."""

    def __init__(self, folder: Path, case: Case) -> None:
        self.case = case
        self.folders = [folder / "with", folder / "without"]
        self.sessions = []
        for path in self.folders:
            path.mkdir()
            session = Session(path / "store", cwd=path, model=case.model)
            seen_by_all(session, path)
            if path.name == "with":
                case.hide(session, path)
            if case.model == "hash":
                session.embedded()
            self.sessions.append(session)
        self.observers = [case.observer(session) for session in self.sessions]

    def open(self) -> None:
        self.sessions = [Session(path / "store", cwd=path) for path in self.folders]
        self.observers = [self.case.observer(session) for session in self.sessions]

    @contextmanager
    def without_a_model(self) -> Iterator[None]:
        """Within the block the stores are open with a model that is not there."""
        self.close()
        settings = [folder / "store" / "store.toml" for folder in self.folders]
        before = [path.read_text() for path in settings]
        for path, text in zip(settings, before, strict=True):
            kind = text.replace('kind = "hash"', 'kind = "onnx"')
            path.write_text(kind.replace('name = "hash"', 'name = "no-such-model"'))
        self.open()
        yield
        self.close()
        for path, text in zip(settings, before, strict=True):
            path.write_text(text)
        self.open()

    def answers(self, method: str, params: dict[str, Any]) -> list[str]:
        """Events and answer of each store as text that can be compared."""
        both = [answer_of(observer, method, params) for observer in self.observers]
        if len({_NOT_SURE in one for one in both}) > 1:
            both = [without_hints_of_sureness(one) for one in both]
        return [
            one.replace(str(folder), "DIR") for one, folder in zip(both, self.folders, strict=True)
        ]

    def close(self) -> None:
        for session in self.sessions:
            session.close()


def answer_of(session: Session, method: str, params: dict[str, Any]) -> str:
    session.send(as_bytes(request(1, method, **params)))
    messages: list[Message] = []
    while not messages or "method" in messages[-1]:
        messages.append(json.loads(session.receive()))
    return json.dumps(plain(messages), indent=1, sort_keys=True)


def plain(value: Any) -> Any:
    """The value without members that may differ; hits are sorted, since scores order them."""
    if isinstance(value, list):
        cited = any(isinstance(item, str) and _CITED.match(item) for item in value)
        listed = [plain(item) for item in value]
        hits = bool(listed) and isinstance(listed[0], dict) and "snippet" in listed[0]
        return sorted(listed, key=json.dumps) if hits or cited else listed
    if isinstance(value, dict):
        # A search's confidence is a word that follows from its score; an entry's is a number.
        sure = {"confidence"} if isinstance(value.get("confidence"), str) else set[str]()
        return {k: plain(v) for k, v in value.items() if k not in _NOT_COMPARED | sure}
    if not isinstance(value, str):
        return value
    return _SURENESS.sub(_NOT_SURE, _CITED.sub("", _NEXT_ID.sub(r"\1", value)))


def without_hints_of_sureness(text: str) -> str:
    """The answer without hints on sureness, to compare a sure search with an unsure one."""

    def bare(value: Any) -> Any:
        if isinstance(value, list):
            return [bare(item) for item in value]
        if not isinstance(value, dict):
            return value
        rest = {name: bare(member) for name, member in value.items()}
        if _NOT_SURE in str(rest.get("hint")):
            rest["hint"] = _NOT_SURE_OF.sub("", rest["hint"])
        return {name: member for name, member in rest.items() if (name, member) != ("hint", "")}

    return json.dumps(bare(json.loads(text)), indent=1, sort_keys=True)


def different(pair: Pair, method: str, params: dict[str, Any]) -> list[str]:
    """Returns the answers' differences, and where they reveal a secret that was not asked for."""
    hidden, never = pair.answers(method, params)
    learns = method == "note.put" and params.get("dry_run")
    if learns and "note:read" not in pair.observers[0].connection.peer.scopes:
        # A peer with note:write learns whether the note replaces another.
        same = ("error" in hidden) == ("error" in never)
        return [] if same else [f"{method} {params}: {hidden}"]
    named = SECRET in json.dumps(params)
    if hidden == never and (named or SECRET not in hidden):
        return []
    lines = difflib.unified_diff(never.splitlines(), hidden.splitlines(), lineterm="", n=1)
    return ["\n".join([f"{method} {params}", *lines])]


@pytest.fixture(scope="module")
def pair_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Pair]]:
    """Returns the open pair of a case; all tests share it."""
    pairs: dict[str, Pair] = {}

    def opened(case: str) -> Pair:
        if case not in pairs:
            pairs[case] = Pair(tmp_path_factory.mktemp("pair"), CASES[case])
        return pairs[case]

    yield opened
    for pair in pairs.values():
        pair.close()


@pytest.mark.parametrize("case", CASES)
def test_reads_plans_and_refusals_do_not_tell(pair_of: Callable[[str], Pair], case: str) -> None:
    pair = pair_of(case)
    calls = [(method, params) for method, some in reads(pair.case).items() for params in some]
    calls += [
        (method, {**params, "dry_run": True})
        for method, some in writes(pair.case).items()
        for params in some
    ]
    wrong = [text for method, params in calls for text in different(pair, method, params)]
    assert wrong == []
    # A peer with every right finds the secret: it is in the store.
    everyone = pair.sessions[0]
    hits = everyone.data("search", query=SECRET, mode="fts", include_superseded=True)
    assert hits["total_matches"] > 0
    assert SECRET in json.dumps(hits)
    assert pair.sessions[1].data("search", query=SECRET, mode="fts")["total_matches"] == 0


def test_what_waits_for_its_vector_does_not_tell(pair_of: Callable[[str], Pair]) -> None:
    pair = pair_of("an agent of another kb")
    calls = reads(pair.case)
    with pair.without_a_model():
        pending = pair.sessions[0].data("status")["freshness"]["pending_embeddings"]
        assert pending > pair.observers[0].data("status")["freshness"]["pending_embeddings"] > 0
        for method in ("status", "kb.status", "kb.check", "doc.list", "doc.wait", "search"):
            for params in calls[method][:18]:
                hidden, never = pair.answers(method, params)
                assert hidden == never, (method, params)


# -------------------------------------------------------------------------- what is done


def deeds(ids: list[int], chunks: list[int]) -> list[tuple[str, dict[str, Any]]]:
    """Calls with ids come first, while both stores have given out the same ids."""
    return [
        *(("doc.update", {"id": id, "title": "x"}) for id in ids),
        *(("doc.restore", {"ids": [id]}) for id in ids),
        *(("doc.delete", {"ids": [id]}) for id in ids),
        *(("chunk.delete", {"ids": [id]}) for id in chunks),
        *(("knowledge.supersede", {"old_id": 6, "new_id": id}) for id in ids),
        *(("knowledge.delete", {"ids": [id]}) for id in ids),
        *(("kb.create", {"slug": slug}) for slug in (f"{SECRET}-kb", "nowhere")),
        *(("kb.update", {"slug": slug, "name": "x"}) for slug in (f"{SECRET}-kb", "nowhere")),
        ("doc.ingest", {"paths": ["files"], "kb": "plain"}),
        ("doc.create", {"kb": "plain", "title": "x", "text": "y", "source_id": f"{SECRET}1"}),
        ("doc.create", {"kb": "plain", "title": "x", "text": "y", "client_token": "once"}),
        ("doc.create", {"kb": "plain", "title": "x", "text": "y", "client_token": "once"}),
        ("doc.reparse", {}),
        ("kb.update", {"slug": "plain", "description": "Changed."}),
        ("knowledge.store", {"kb": "plain", "title": "x", "body": "y"}),
        ("note.put", {"slug": f"{SECRET}-note", "text": "# Its own\n"}),
        ("note.sync", {}),
        ("doc.wait", {"timeout_ms": 20_000}),
        ("status", {}),
        ("agent.status", {"slug": "alpha"}),
        ("tag.list", {}),
        ("doc.list", {}),
        ("knowledge.list", {}),
    ]


def test_deeds_have_the_same_outcome(pair_of: Callable[[str], Pair]) -> None:
    """Answers to writes differ in new ids only, which count the hidden documents, too.

    It comes after the reads of this pair, because it changes both stores.
    """
    pair = pair_of("an agent of another kb")
    for method, params in deeds(pair.case.ids, pair.case.chunk_ids):
        hidden, never = (
            re.sub(r'"(id|head|document_id)": \d+', r'"\1": 0', text)
            for text in pair.answers(method, params)
        )
        assert hidden == never, (method, params)


def test_an_agent_creates_no_kb_beyond_its_own(session: Session) -> None:
    """The refusal is the same for a kb that exists: the agent could not see it."""
    session.data("kb.create", slug="there")
    session.data("agent.create", slug="alpha", kbs=["default"])
    alpha = session.another("alpha", named=True)
    there, nowhere = (alpha.error("kb.create", slug=slug) for slug in ("there", "nowhere"))
    assert there["type"] == "auth.insufficient_scope"
    assert json.dumps(there).replace("there", "nowhere") == json.dumps(nowhere)


def test_a_deleted_agent_learns_of_no_other(session: Session) -> None:
    session.data("agent.create", slug="alpha")
    alpha = session.another("alpha", named=True)
    approve(session, "agent.delete", slug="alpha")
    session.data("agent.create", slug="alphabet")
    assert "alphabet" not in json.dumps(alpha.error("status"))


def test_a_kb_is_deleted_whole_by_whoever_sees_but_a_part(session: Session) -> None:
    """Otherwise the hidden entries would stay in a knowledge base that no longer exists."""
    session.data("kb.create", slug="plain")
    id = session.data("knowledge.store", kb="plain", title="Port", body="It is 3000.")["id"]
    blind = without("knowledge:read")(session)
    plan = blind.ask("kb.delete", slug="plain", dry_run=True)["result"]["meta"]["plan"]
    blind.data("kb.delete", slug="plain", confirm=plan["plan_hash"])
    assert session.error("knowledge.get", id=id)["type"] == "resource.not_found"


def test_an_agent_ingests_nothing_of_the_store(session: Session) -> None:
    """The refusal is the same for a notes folder that does not exist."""
    session.data("agent.create", slug="alpha")
    session.data("agent.create", slug="other")
    session.another("other").data("note.put", slug="todo", text="# To do\n")
    alpha = session.another("alpha", named=True)
    there, nowhere = (
        alpha.ask("doc.ingest", paths=[f"store/notes/{slug}"]) for slug in ("other", "nobody")
    )
    assert json.dumps(there).replace("other", "nobody") == json.dumps(nowhere)


# ------------------------------------------------------- what an agent may do unless named

WITHHELD = {"admin", "knowledge:write_others", "review:write"}


Scopes = tuple[str, ...] | list[str] | None


def test_a_bound_agent_approves_nothing_unless_it_is_named(
    session: Session, subtests: pytest.Subtests
) -> None:
    cases: list[tuple[Scopes, Scopes, set[str]]] = [
        (None, None, set(ALL) - WITHHELD),
        (None, ALL, set(ALL)),
        (ALL, None, set(ALL)),
        (("admin", "doc:read"), None, {"admin", "doc:read"}),
        (("doc:read",), ALL, {"doc:read"}),
        (None, ("admin", "doc:read"), {"admin", "doc:read"}),
    ]
    document = session.data("doc.create", title="Doomed", text="x")["id"]
    for number, (own, of_process, remaining) in enumerate(cases):
        with subtests.test(f"{own} {of_process}"):
            slug = f"alpha-{number}"
            session.data("agent.create", slug=slug, **({} if own is None else {"scopes": [*own]}))
            scopes = None if of_process is None else ",".join(of_process)
            alpha = session.another(slug, scopes=scopes, named=True)
            error = alpha.error("doc.delete", ids=[document])
            may = (
                "input.confirmation_required" if "admin" in remaining else "auth.insufficient_scope"
            )
            assert error["type"] == may
            assert ("detail" not in error or "scopes" not in error["detail"]) or set(
                error["detail"]["scopes"]
            ) == remaining


def test_others_entries_are_not_an_agents_to_link(session: Session) -> None:
    session.data("agent.create", slug="alpha")
    ids = [session.data("knowledge.store", title=t, body="x")["id"] for t in ("One", "Two")]
    alpha = session.another("alpha", named=True)
    error = alpha.error("knowledge.supersede", old_id=ids[0], new_id=ids[1])
    assert error["type"] == "auth.not_owner"
    entitled = session.another(
        "alpha", scopes="knowledge:read,knowledge:write,knowledge:write_others", named=True
    )
    entitled.data("knowledge.supersede", old_id=ids[0], new_id=ids[1])


def test_a_bound_agent_makes_room_by_deleting_its_own(session: Session) -> None:
    """The agent deletes by plan, and only its own notes and entries."""
    quotas = {"notes_stored": 1, "knowledge_stored": 1}
    session.data("agent.create", slug="alpha", quotas=quotas)
    session.data("agent.create", slug="other")
    alpha = session.another("alpha", named=True)
    alpha.data("note.put", slug="first", text="# First\n")
    assert alpha.error("note.put", slug="second", text="# Second\n")["type"] == "quota.exceeded"
    approve(alpha, "note.delete", slug="first")
    alpha.data("note.put", slug="second", text="# Second\n")
    mine = alpha.data("knowledge.store", title="Mine", body="x")["id"]
    params = {"title": "More", "body": "y"}
    assert alpha.error("knowledge.store", **params)["type"] == "quota.exceeded"
    other = session.another("other", named=True)
    other.data("note.put", slug="theirs", text="# Theirs\n")
    theirs = other.data("knowledge.store", title="Theirs", body="x")["id"]
    for ids in ([theirs], [mine, theirs]):
        error = alpha.error("knowledge.delete", ids=ids)
        assert (error["type"], error["field"]) == ("auth.not_owner", "$.params.ids")
    assert alpha.error("note.delete", agent="other", slug="theirs")["type"] == "resource.not_found"
    approve(alpha, "knowledge.delete", ids=[mine])
    alpha.data("knowledge.store", **params)


def test_who_is_bound_to_nobody_has_nothing_of_its_own(session: Session) -> None:
    session.data("agent.create", slug="alpha")
    session.data("note.put", agent="alpha", slug="first", text="# First\n")
    writer = session.another("user", scopes="note:write,knowledge:write")
    mine = writer.data("knowledge.store", title="Mine", body="x")["id"]
    for method, params in (
        ("note.delete", {"agent": "alpha", "slug": "first"}),
        ("knowledge.delete", {"ids": [mine]}),
    ):
        assert writer.error(method, **params)["detail"]["needed"] == "admin"
