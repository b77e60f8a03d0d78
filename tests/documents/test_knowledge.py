"""Knowledge entries: store, search, supersede, expire, delete, and the rights for each."""

from __future__ import annotations

import time
from typing import Any

from kbproc.engine.events.agent import AgentWritten
from kbproc.engine.events.document import ChunkText, DocWritten
from kbproc.engine.events.entry import EntryFacts, EntryRevived, EntrySuperseded
from kbproc.engine.events.event import Event
from kbproc.engine.sources.blobs import digest
from tests.conftest import OpenSession
from tests.kit.patience import LONG
from tests.kit.talk import Session


def store(session: Session, title: str, body: str | None = None, **more: Any) -> int:
    id: int = session.data("knowledge.store", title=title, body=body or title, **more)["id"]
    return id


def ids_of(session: Session, query: str, **more: Any) -> list[int]:
    results = session.data("knowledge.search", query=query, **{"mode": "fts", **more})["results"]
    return [hit["source"]["document_id"] for hit in results]


def agent(session: Session, slug: str, **more: Any) -> Session:
    """Creates an agent; returns a connection of it."""
    whole = {"kbs": None, "folder": None, "scopes": None, "quotas": {}, **more}
    event = AgentWritten(slug=slug, revision=1, description="", instructions="", **whole)
    session.store.commit(lambda lane: lane.append([event], actor="user", method="agent.create"))
    return session.another(slug)


def written(session: Session, events: list[Event]) -> None:
    session.store.commit(lambda lane: lane.append(events, actor="user", method="test"))


# ------------------------------------------------------------------------ what is stored


def test_an_entry_comes_back_as_it_was_stored(session: Session) -> None:
    body = "---\ntags: none\n---\n# Läuft\n\nDer Hafen ist 3000 — 港口. 👩‍💻\n"
    created = session.data(
        "knowledge.store",
        title="Ports",
        body=body,
        tags=["Net Work"],
        aliases=["port list", " sockets ", "port list"],
        confidence=90,
        task_ref={"task_id": "T-1", "kind": "produced"},
        expires_at="2100-01-01",
    )
    assert created["embedding_status"] == "pending"
    assert (created["source"], created["created_by"], created["head"]) == (
        "user",
        "user",
        created["id"],
    )
    assert created.pop("similar") == []
    session.data("doc.wait", ids=[created["id"]])
    got = session.data("knowledge.get", id=created["id"])
    assert got == {**created, "embedding_status": "ready", "body": body, "supersedes": []}
    assert got["tags"] == ["net-work"]
    assert got["aliases"] == ["port list", "sockets"]
    assert got["expires_at"] == "2100-01-01T00:00:00.000Z"
    assert session.data("doc.get", id=created["id"])["type"] == "knowledge"


def test_task_references_lead_both_ways(session: Session) -> None:
    one = store(session, "One", task_ref={"task_id": "T-1", "kind": "produced"})
    two = store(session, "Two", task_ref={"task_id": "T-1"})
    store(session, "Three", task_ref={"task_id": "T-2"})
    listed = session.data("knowledge.list", task_id="T-1")
    assert [entry["id"] for entry in listed] == [one, two]
    assert [entry["task_ref"]["kind"] for entry in listed] == ["produced", "references"]
    assert ids_of(session, "one two three", task_id="T-1") in ([one, two], [two, one])
    assert session.data("knowledge.get", id=two)["task_ref"]["task_id"] == "T-1"


def test_lists_filter_and_page(session: Session) -> None:
    mine = [store(session, f"Entry {i}", tags=["a"], confidence=i * 20) for i in range(5)]
    other = agent(session, "bot")
    theirs = store(other, "Theirs", tags=["a", "b"])
    answer = session.ask("knowledge.list", limit=2, owner="user")["result"]
    assert [entry["id"] for entry in answer["data"]] == mine[:2]
    assert (answer["meta"]["total"], answer["meta"]["has_more"]) == (5, True)
    rest = session.data("knowledge.list", owner="user", cursor=answer["meta"]["next_cursor"])
    assert [entry["id"] for entry in rest] == mine[2:]
    assert [e["id"] for e in session.data("knowledge.list", tags=["b"])] == [theirs]
    assert [e["id"] for e in session.data("knowledge.list", min_confidence=61, owner="user")] == [
        mine[4]
    ]
    assert other.data("knowledge.get", id=theirs)["source"] == "agent"


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"title": " ", "body": "x"}, "$.params.title"),
    ({"title": "x", "body": " \n"}, "$.params.body"),
    ({"title": "x\u202e", "body": "x"}, "$.params.title"),
    ({"title": "x", "body": "x", "source": "\x07"}, "$.params.source"),
    ({"title": "x", "body": "x", "task_ref": {"task_id": "\x07"}}, "$.params.task_ref.task_id"),
    (
        {"title": "x", "body": "x", "task_ref": {"task_id": "t", "kind": "eats"}},
        "$.params.task_ref.kind",
    ),
    ({"title": "x", "body": "x", "expires_at": "2001-01-01"}, "$.params.expires_at"),
    ({"title": "x", "body": "x", "expires_at": "tomorrow"}, "$.params.expires_at"),
    ({"title": "x", "body": "x", "confidence": 101}, "$.params.confidence"),
    ({"title": "x", "body": "x" * 32_001}, "$.params.body"),
    ({"title": "x" * 201, "body": "x"}, "$.params.title"),
]


def test_what_can_not_be_stored(session: Session) -> None:
    others = []
    for params, field in WRONG:
        error = session.error("knowledge.store", **params)
        if (error["type"], error["field"]) != ("input.invalid_params", field):
            others.append((params, field, error))
    assert others == []


def test_expiry_must_lie_strictly_in_the_future(session: Session) -> None:
    now = session.store.host.now()
    error = session.error("knowledge.store", title="x", body="x", expires_at=now)
    assert error["field"] == "$.params.expires_at"


# ------------------------------------------------------------------------------- expiry


def test_an_entry_expires_with_no_write(session: Session) -> None:
    host: Any = session.store.host
    soon = "2026-01-02T03:05:05.500Z"
    assert host.now() < soon
    id, stays = store(session, "Heron", expires_at=soon), store(session, "Heron too")
    seq = session.data("ping")["seq"]
    assert ids_of(session, "heron") == [id, stays]
    host.pass_until(soon)
    assert ids_of(session, "heron") == [stays]
    assert session.data("ping")["seq"] == seq
    assert ids_of(session, "heron", include_expired=True) == [id, stays]
    assert [e["id"] for e in session.data("knowledge.list")] == [stays]
    assert session.data("knowledge.get", id=id)["expired"] is True
    hits = session.data("search", query="heron", mode="fts")["results"]
    assert [hit["source"]["document_id"] for hit in hits] == [stays]
    assert ids_of(session, "heron", as_of=seq) == [id, stays]
    assert session.data("knowledge.get", id=id, as_of=seq)["expired"] is False


# --------------------------------------------------------------------------- supersession


def link(session: Session, old: int, new: int) -> Any:
    return session.data("knowledge.supersede", old_id=old, new_id=new)


def test_superseded_entries_are_not_found(session: Session) -> None:
    a, b, c = (store(session, f"Crane {name}") for name in "abc")
    seq = session.data("ping")["seq"]
    assert link(session, a, b) == {"old_id": a, "new_id": b, "head": b}
    assert link(session, b, c)["head"] == c
    assert ids_of(session, "crane") == [c]
    hits = session.data("search", query="crane", mode="fts")["results"]
    assert [hit["source"]["document_id"] for hit in hits] == [c]
    both = session.data("search", query="crane", mode="fts", include_superseded=True)["results"]
    assert [(h["source"]["document_id"], h["superseded_by"], h.get("head")) for h in both] == [
        (a, b, c),
        (b, c, c),
        (c, None, None),
    ]
    assert [e["head"] for e in session.data("knowledge.list", include_superseded=True)] == [c, c, c]
    assert session.data("knowledge.get", id=b)["supersedes"] == [a]
    assert ids_of(session, "crane", as_of=seq) == [a, b, c]
    assert session.data("knowledge.get", id=a, as_of=seq)["superseded_by"] is None


def test_every_kind_of_search_leaves_them_out(session: Session) -> None:
    a, b = store(session, "Crane", tags=["x"]), store(session, "Crane again", tags=["x"])
    session.data("doc.create", title="Crane", text="A crane is a bird.", tags=["x"])
    session.data("doc.wait")
    link(session, a, b)
    for mode in ("fts", "vector", "hybrid"):
        for more in (
            {},
            {"tags": ["x"]},
            {"kb": "default"},
            {"types": ["knowledge"]},
            {"min_confidence": 1},
        ):
            hits = session.data("search", query="crane", mode=mode, **more)["results"]
            ids = {hit["source"]["document_id"] for hit in hits}
            assert a not in ids, (mode, more)
            assert b in ids, (mode, more)
    hits = session.data("search", query="crane", min_confidence=1)["results"]
    assert {hit["source"]["type"] for hit in hits} == {"knowledge"}


def test_cycles_are_refused(session: Session) -> None:
    a, b, c, d = (store(session, name) for name in "abcd")
    link(session, a, b)
    link(session, b, c)
    for old, new in ((a, a), (b, a), (c, a), (c, b)):
        error = session.error("knowledge.supersede", old_id=old, new_id=new)
        assert error["type"] == "knowledge.cycle", (old, new)
    link(session, c, d)
    assert session.error("knowledge.supersede", old_id=d, new_id=a)["type"] == "knowledge.cycle"
    error = session.error("knowledge.supersede", old_id=a, new_id=d)
    assert (error["type"], error["detail"]["head"]) == ("resource.conflict", d)


def test_superseding_by_what_is_superseded(session: Session) -> None:
    a, b, c = (store(session, name) for name in "abc")
    link(session, b, c)
    assert link(session, a, b)["head"] == c
    assert link(session, a, b)["head"] == c  # the link exists already
    assert session.data("knowledge.get", id=a)["head"] == c


def test_both_must_be_in_one_kb(session: Session) -> None:
    session.data("kb.create", slug="other")
    a, b = store(session, "a"), store(session, "b", kb="other")
    error = session.error("knowledge.supersede", old_id=a, new_id=b)
    assert (error["type"], error["field"]) == ("input.invalid_params", "$.params.new_id")


def test_undoing_it(session: Session) -> None:
    a, b, c, d = (store(session, f"Stork {name}") for name in "abcd")
    for old, new in ((a, b), (b, c), (c, d)):
        link(session, old, new)
    undone = session.data("knowledge.unsupersede", old_id=b, new_id=c)
    assert undone["head"] == b
    assert [session.data("knowledge.get", id=id)["head"] for id in (a, b, c, d)] == [b, b, d, d]
    assert ids_of(session, "stork") == [b, d]
    error = session.error("knowledge.unsupersede", old_id=b, new_id=c)
    assert (error["type"], error["detail"]) == ("resource.conflict", {"superseded_by": None})


def test_deleting_a_head_revives_its_direct_predecessors(session: Session) -> None:
    a, b, c, head = (store(session, f"Egret {name}") for name in "abch")
    for old, new in ((a, b), (b, head), (c, head)):
        link(session, old, new)
    plan = session.ask("knowledge.delete", ids=[head], dry_run=True)["result"]["meta"]["plan"]
    assert f"revive entry {b} “Egret b”" in plan["changes"]
    deleted = session.data("knowledge.delete", ids=[head], confirm=plan["plan_hash"])
    assert deleted == {"deleted": 1, "ids": [head], "revived": [b, c]}
    assert ids_of(session, "egret") == [b, c]
    assert session.data("knowledge.get", id=a)["head"] == b
    assert session.error("knowledge.get", id=head)["type"] == "resource.not_found"


def test_deleting_from_the_middle_closes_the_gap(session: Session) -> None:
    a, b, c, d = (store(session, f"Ibis {name}") for name in "abcd")
    for old, new in ((a, b), (b, c), (c, d)):
        link(session, old, new)
    plan = session.ask("knowledge.delete", ids=[b, c], dry_run=True)["result"]["meta"]["plan"]
    session.data("knowledge.delete", ids=[b, c], confirm=plan["plan_hash"])
    entry = session.data("knowledge.get", id=a)
    assert (entry["superseded_by"], entry["head"]) == (d, d)
    assert ids_of(session, "ibis") == [d]


def test_deletion_needs_approval_and_doc_methods_refuse(session: Session) -> None:
    id = store(session, "Rail")
    assert session.error("knowledge.delete", ids=[id])["type"] == "input.confirmation_required"
    chunk = session.data("chunk.list", document_id=id)[0]["id"]
    for method, params in (
        ("doc.update", {"id": id, "title": "x"}),
        ("doc.delete", {"ids": [id]}),
        ("doc.restore", {"ids": [id]}),
        ("chunk.delete", {"ids": [chunk]}),
    ):
        error = session.error(method, **params)
        assert error["type"] == "input.invalid_params", method
        assert "knowledge.delete" in error["hint"], method
    plan = session.ask("doc.delete", where={"title_contains": "Rail"}, dry_run=True)
    assert plan["result"]["meta"]["plan"]["targets"] == []


# ------------------------------------------------------------------- owners and quotas


def test_one_of_the_two_must_be_ones_own(session: Session) -> None:
    mine, other = store(session, "Mine"), store(session, "Other")
    plain = agent(session, "plain", scopes=["knowledge:read", "knowledge:write"])
    error = plain.error("knowledge.supersede", old_id=mine, new_id=other)
    assert (error["type"], error["exit_code"]) == ("auth.not_owner", 6)
    assert error["detail"]["owners"] == {str(mine): "user", str(other): "user"}
    own = store(plain, "Own")
    assert link(plain, mine, own)["head"] == own
    assert plain.error("knowledge.supersede", old_id=other, new_id=mine)["type"] == "auth.not_owner"
    unnamed = agent(session, "unnamed")  # every scope but those that must be named
    assert unnamed.error("knowledge.supersede", old_id=other, new_id=mine)["type"] == (
        "auth.not_owner"
    )
    named = ["knowledge:read", "knowledge:write", "knowledge:write_others"]
    trusted = agent(session, "trusted", scopes=named)
    assert link(trusted, other, mine)["head"] == own


def test_quotas_count_what_is_not_deleted(session: Session) -> None:
    bot = agent(session, "bot", quotas={"knowledge_stored": 2})
    first, _ = store(bot, "one"), store(bot, "two")
    error = bot.error("knowledge.store", title="three", body="x")
    assert (error["type"], error["exit_code"]) == ("quota.exceeded", 8)
    assert error["detail"] == {"quota": "knowledge_stored", "limit": 2, "used": 2}
    store(session, "others have none")
    plan = session.ask("knowledge.delete", ids=[first], dry_run=True)["result"]["meta"]["plan"]
    session.data("knowledge.delete", ids=[first], confirm=plan["plan_hash"])
    store(bot, "three")


def test_tokens_make_it_once(session: Session) -> None:
    params = {"title": "Once", "body": "only", "client_token": "t1"}
    one = session.ask("knowledge.store", **params)["result"]
    two = session.ask("knowledge.store", **params)["result"]
    assert one["data"] == two["data"]
    assert two["meta"]["duplicate"] is True


# ----------------------------------------------------------------------- long chains


def chain(session: Session, length: int) -> list[int]:
    """Stores entries, each superseded by the next; returns their ids."""
    first = session.store.published.head.next_document
    chunk = session.store.published.head.next_chunk
    ids = list(range(first, first + length))
    facts = EntryFacts(confidence=80, source="user")
    sha = digest(b"x")
    session.store.blobs.heal(sha, b"x")
    events: list[Event] = [
        DocWritten(
            id=id,
            kb="default",
            revision=1,
            title=f"Link {id}",
            doc_type="knowledge",
            source_sha256=sha,
            size_bytes=1,
            first_chunk=chunk + n,
            chunks=[ChunkText(text="x")],
            parser=1,
            origin="agent",
            entry=facts,
        )
        for n, id in enumerate(ids)
    ]
    written(session, events)
    for batch in range(0, length - 1, 500):
        pairs = zip(ids[batch : batch + 500], ids[batch + 1 : batch + 501], strict=False)
        written(session, [EntrySuperseded(id=old, by=new) for old, new in pairs])
    return ids


def test_a_chain_of_thousands_stays_fast(open_session: OpenSession) -> None:
    session = open_session(model="none")
    length = 2_000 if LONG else 600
    ids = chain(session, length)
    new = store(session, "The newest")
    lone = [store(session, "a"), store(session, "b")]
    started = time.process_time()
    link(session, lone[0], lone[1])
    floor = time.process_time() - started
    started = time.process_time()
    assert link(session, ids[-1], new)["head"] == new
    took = time.process_time() - started
    assert took < 1.0 + 20 * floor
    assert session.data("knowledge.get", id=ids[0])["head"] == new
    error = session.error("knowledge.supersede", old_id=new, new_id=ids[0])
    assert error["type"] == "knowledge.cycle"
    error = session.error("knowledge.supersede", old_id=ids[length // 2], new_id=ids[10])
    assert error["type"] == "knowledge.cycle"
    assert ids_of(session, "x") == [new]  # for a text that only superseded entries hold


# ------------------------------------------------------------- what a review has found


def test_long_entries_leave_room_for_others(open_session: OpenSession) -> None:
    """Only the best chunk of each entry counts, so that long entries do not fill the page."""
    session = open_session(model="none")
    long = "\n\n".join(f"The cache of part {n} is warm. " * 20 for n in range(40))
    ids = [store(session, f"Cache {n}", long) for n in range(9)]
    ids.append(store(session, "Elsewhere", "One word of the cache among many others. " * 3))
    whole = ids_of(session, "cache warm", limit=100)
    assert sorted(whole) == ids
    pages = [ids_of(session, "cache warm", limit=3, offset=at) for at in (0, 3, 6, 9)]
    assert [id for page in pages for id in page] == whole
    answer = session.ask("knowledge.search", query="cache", mode="fts", limit=3, offset=6)
    assert answer["result"]["meta"]["has_more"] is True


def test_a_plan_is_stale_once_another_entry_would_come_back(session: Session) -> None:
    old, new = store(session, "old"), store(session, "new")
    plan = session.ask("knowledge.delete", ids=[new], dry_run=True)["result"]["meta"]["plan"]
    link(session, old, new)
    error = session.error("knowledge.delete", ids=[new], confirm=plan["plan_hash"])
    assert error["type"] == "resource.plan_stale"
    assert f"revive entry {old} “old”" in error["plan"]["changes"]


def test_entries_come_back_as_one_batch_as_they_do_one_by_one(session: Session) -> None:
    a, b, c, d, e = (store(session, name) for name in "abcde")
    for old, new in ((a, b), (b, c), (c, d), (d, e)):
        link(session, old, new)
    written(session, [EntryRevived(ids=[b], was=c), EntryRevived(ids=[d], was=e)])
    heads = [session.data("knowledge.get", id=id)["head"] for id in (a, b, c, d, e)]
    assert heads == [b, b, d, d, e]


def test_an_entry_keeps_its_aliases_when_it_is_parsed_again(session: Session) -> None:
    head = ", ".join(f"name {number}" for number in range(16))
    body = f"---\naliases: [{head}]\n---\nA whale."
    entry = session.data("knowledge.store", title="Whales", body=body, aliases=["sperm whale"])
    assert len(entry["aliases"]) == 16
    session.data("doc.reparse")
    assert session.data("knowledge.get", id=entry["id"])["aliases"] == entry["aliases"]
