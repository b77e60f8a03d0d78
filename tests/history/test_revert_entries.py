"""Histories and reverts of entries, notes and agents."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kbproc.engine.events.agent import AgentDeleted
from kbproc.engine.events.document import DocDeleted
from kbproc.engine.events.entry import EntryRevived, EntrySuperseded
from kbproc.engine.events.event import Event
from tests.kit.knowledge import agent, check, entry, links, note, put, revive, supersede
from tests.kit.patience import all_or
from tests.kit.talk import Session


def confirmed(session: Session, method: str, **params: Any) -> Any:
    plan = session.error(method, **params)["plan"]
    return session.data(method, **params, confirm=plan["plan_hash"])


def undo(session: Session, *seqs: int) -> Any:
    return confirmed(session, "events.revert", seqs=list(seqs))


def why(done: Any) -> list[str]:
    return [entry["why"] for entry in done["kept"]]


def delete(session: Session, id: int) -> int:
    """Deletes an entry like knowledge.delete: its predecessors are revived or get its successor."""
    all_links = links(session)
    successor = all_links[id][0]
    before = [other for other, (superseded_by, _) in all_links.items() if superseded_by == id]
    events: list[Event] = [DocDeleted(id=id)]
    if successor is not None:
        events += [EntrySuperseded(id=other, by=successor, was=id) for other in before]
    elif before:
        events.append(EntryRevived(ids=before, was=id))
    return put(session.store, *events, method="knowledge.delete")


def entries(session: Session, count: int) -> list[int]:
    return [entry(session.store, f"Entry {n}") for n in range(count)]


# ----------------------------------------------------------------------- doc.history


def test_links_are_part_of_an_entrys_history(session: Session) -> None:
    one, two = entries(session, 2)
    supersede(session.store, one, two)
    revive(session.store, one, two)
    delete(session, one)
    timeline = session.data("doc.history", id=one)
    assert [(t["action"], t["summary"]) for t in timeline] == [
        ("deleted", "hidden from every read"),
        ("revived", "it holds again"),
        ("superseded", f"entry {two} takes its place"),
        ("created", "1 chunk"),
    ]
    assert [t["action"] for t in session.data("doc.history", id=two)] == ["created"]


# --------------------------------------------------------------------- events.revert


def test_a_stored_entry_goes_and_what_it_superseded_holds_again(session: Session) -> None:
    one, two = entries(session, 2)
    stored = session.store.seq
    supersede(session.store, one, two)
    done = undo(session, stored)
    assert (done["documents"], done["ids"], done["kept"]) == (2, [one, two], [])
    assert check(session) == {one: (None, one)}


def test_in_the_middle_of_a_chain_it_is_taken_out(session: Session) -> None:
    one, two, three = entries(session, 3)
    stored = session.store.seq - 1
    supersede(session.store, one, two)
    supersede(session.store, two, three)
    undo(session, stored)
    assert check(session) == {one: (three, three), three: (None, three)}
    undo(session, session.store.seq)
    assert check(session) == {one: (two, three), two: (three, three), three: (None, three)}


def test_a_link_is_undone_and_done_again(session: Session) -> None:
    one, two, three = entries(session, 3)
    supersede(session.store, two, three)
    linked = supersede(session.store, one, two)
    assert check(session)[one] == (two, three)
    plan = session.error("events.revert", seqs=[linked])["plan"]
    assert f"entry {one} “Entry 0”: superseded no more" in plan["changes"]
    assert undo(session, linked)["ids"] == [one]
    assert check(session)[one] == (None, one)
    undo(session, session.store.seq)
    assert check(session)[one] == (two, three)
    done = session.data("events.revert", seqs=[linked + 1])
    assert why(done) == [
        f"entry {one} is linked as it was before: undone at seq {session.store.seq} by user"
    ]


def test_what_was_revived_is_superseded_again(session: Session) -> None:
    one, two = entries(session, 2)
    supersede(session.store, one, two)
    revived = revive(session.store, one, two)
    undo(session, revived)
    assert check(session) == {one: (two, two), two: (None, two)}


def test_a_deletion_is_undone_with_its_links(session: Session) -> None:
    one, two, three = entries(session, 3)
    supersede(session.store, one, two)
    supersede(session.store, two, three)
    before = check(session)
    middle = delete(session, two)
    assert check(session) == {one: (three, three), three: (None, three)}
    done = undo(session, middle)
    assert (done["documents"], done["kept"]) == (2, [])
    assert check(session) == before
    head = delete(session, three)
    assert check(session) == {one: (two, two), two: (None, two)}
    undo(session, head)
    assert check(session) == before


def test_facts_come_back_with_the_entry(session: Session) -> None:
    facts = {
        "confidence": 35,
        "source": "a talk",
        "expires_at": "2999-01-01T00:00:00.000Z",
        "task_id": "T-1",
        "task_kind": "produced",
    }
    one = entry(session.store, "Fact", actor="bob", tags=["git"], **facts)
    with session.store.reading() as snapshot:
        before = snapshot.queries.entry(one)
    undo(session, delete(session, one))
    with session.store.reading() as snapshot:
        after = snapshot.queries.entry(one)
    assert before is not None
    assert after is not None
    assert after == type(after)(**{**vars_of(before), "revision": 2})


def vars_of(row: Any) -> dict[str, Any]:
    return {name: getattr(row, name) for name in row.__struct_fields__}


def test_one_whose_successor_is_gone_does_not_stay_hidden(session: Session) -> None:
    one, two, three = entries(session, 3)
    supersede(session.store, one, two)
    deletion_seq = delete(session, one)
    delete(session, two)
    undo(session, deletion_seq)
    assert check(session) == {one: (None, one), three: (None, three)}
    hits = session.data("search", query="body", mode="fts")["results"]
    assert {hit["source"]["document_id"] for hit in hits} == {one, three}
    supersede(session.store, one, three)
    deletion_seq = delete(session, one)
    four = entry(session.store, "Entry 4")
    supersede(session.store, three, four)
    delete(session, three)
    undo(session, deletion_seq)
    assert check(session) == {one: (four, four), four: (None, four)}


def test_one_whose_successor_was_purged_does_not_stay_hidden(session: Session) -> None:
    one, two = entries(session, 2)
    supersede(session.store, one, two)
    deletion_seq = delete(session, one)
    confirmed(session, "store.purge", document_ids=[two])
    undo(session, deletion_seq)
    assert check(session) == {one: (None, one)}


def test_a_link_of_what_was_purged_is_told(session: Session) -> None:
    one, two = entries(session, 2)
    linked = supersede(session.store, one, two)
    confirmed(session, "store.purge", document_ids=[one])
    assert why(session.data("events.revert", seqs=[linked])) == [f"entry {one} is gone for good"]


def test_links_that_others_made_later_stay(session: Session) -> None:
    one, two, three = entries(session, 3)
    first = supersede(session.store, one, two)
    revive(session.store, one, two)
    later = supersede(session.store, one, three, actor="bob")
    done = session.data("events.revert", seqs=[first])
    assert why(done) == [f"entry {one} was linked otherwise at seq {later} by bob"]
    assert check(session)[one] == (three, three)


def test_a_link_to_what_is_gone_stays_undone(session: Session) -> None:
    one, two = entries(session, 2)
    supersede(session.store, one, two)
    revived = revive(session.store, one, two)
    delete(session, two)
    done = session.data("events.revert", seqs=[revived])
    assert why(done) == [f"entry {one} stays as it is: entry {two}, which took its place, is gone"]
    assert check(session) == {one: (None, one)}


def test_no_circle_is_closed(session: Session) -> None:
    one, two, three = entries(session, 3)
    supersede(session.store, one, two)
    revived = revive(session.store, one, two)
    supersede(session.store, two, three)
    supersede(session.store, three, one)
    done = session.data("events.revert", seqs=[revived])
    assert why(done) == [f"entry {one} would come to supersede itself"]
    assert check(session)[two] == (three, one)


def test_links_that_change_places_at_once(session: Session) -> None:
    """one → two and then two → one are undone together; undoing only one would close a circle."""
    one, two = entries(session, 2)
    supersede(session.store, one, two)
    first = revive(session.store, one, two)
    second = supersede(session.store, two, one)
    assert why(session.data("events.revert", seqs=[first])) == [
        f"entry {one} would come to supersede itself"
    ]
    undo(session, first, second)
    assert check(session) == {one: (two, two), two: (None, two)}


def test_all_that_an_agent_did(session: Session) -> None:
    one = entry(session.store, "Kept")
    since = session.store.seq + 1
    two = entry(session.store, "Wrong", actor="robot")
    supersede(session.store, one, two, actor="robot")
    three = entry(session.store, "Wrong, too", actor="robot")
    supersede(session.store, two, three, actor="robot")
    done = confirmed(session, "events.revert", actor="robot", since=since)
    assert (len(done["reverted"]), done["ids"]) == (4, [one, two, three])
    assert check(session) == {one: (None, one)}
    undo(session, session.store.seq)
    assert check(session) == {one: (two, three), two: (three, three), three: (None, three)}


def test_a_kb_comes_back_with_its_chains(session: Session) -> None:
    session.data("kb.create", slug="other")
    one, two, three = [entry(session.store, f"Entry {n}", kb="other") for n in range(3)]
    supersede(session.store, one, two)
    supersede(session.store, two, three)
    before = check(session)
    confirmed(session, "kb.delete", slug="other")
    assert check(session) == {}
    undo(session, session.store.seq)
    assert check(session) == before
    hits = session.data("search", query="body", mode="fts")["results"]
    assert [hit["source"]["document_id"] for hit in hits] == [three]


def test_a_stale_plan_of_a_link(session: Session) -> None:
    one, two, three = entries(session, 3)
    supersede(session.store, one, two)
    stored = session.store.seq - 2
    plan = session.error("events.revert", seqs=[stored])["plan"]
    supersede(session.store, two, three)
    late = session.error("events.revert", seqs=[stored], confirm=plan["plan_hash"])
    assert late["type"] == "resource.plan_stale"


@pytest.mark.parametrize("seed", all_or(range(4), range(12)))
def test_any_course_is_undone_and_done_again(session: Session, seed: int) -> None:
    """A revert to any earlier record restores its links; reverting the revert brings them back."""
    chance = random.Random(seed)
    store = session.store
    past = {}
    all_links = links(session)
    for _ in range(25):
        free = [id for id, (by, _) in all_links.items() if by is None]
        superseded = [id for id, (by, _) in all_links.items() if by is not None]
        kind = chance.choice(["store", "supersede", "supersede", "revive", "delete"])
        if kind == "supersede" and len(free) > 1:
            old, new = chance.sample(free, 2)
            near = chance.choice([id for id, (_, head) in all_links.items() if head == new])
            supersede(store, old, near)
        elif kind == "revive" and superseded:
            id = chance.choice(superseded)
            revive(store, id, all_links[id][0] or 0)
        elif kind == "delete" and len(all_links) > 3:
            delete(session, chance.choice(sorted(all_links)))
        else:
            entry(store, f"Entry {store.seq}")
        past[store.seq] = all_links = check(session)
    last = store.seq
    to = chance.choice(sorted(past))
    seqs = [seq for seq in past if seq > to]
    if seqs:
        done = undo(session, *seqs)
        assert all(reason.endswith("as it was before") for reason in why(done))
        assert check(session) == past[to]
        undo(session, session.store.seq)
        assert check(session) == past[last]


# --------------------------------------------------------------------- notes, agents


def test_notes_are_kept(session: Session) -> None:
    agent(session.store, "gitea")
    id = note(session.store, "gitea", "hooks", "# Hooks\n\nOne.\n")
    done = session.data("events.revert", seqs=[session.store.seq])
    assert why(done) == [
        f"document {id} is a note: put its earlier text back with note.put; "
        "note.get with as_of shows it"
    ]
    assert done["documents"] == 0


def described(session: Session, slug: str) -> str | None:
    with session.store.reading() as snapshot:
        row = snapshot.queries.agent(slug)
    return None if row is None or row.deleted_at else str(row.description)


def test_agents_go_back(session: Session) -> None:
    creation_seq = agent(
        session.store, "gitea", description="first", quotas={"knowledge_stored": 5}
    )
    changed = agent(session.store, "gitea", description="second", revision=2)
    done = undo(session, changed)
    assert (done["agents"], done["documents"]) == (["gitea"], 0)
    assert described(session, "gitea") == "first"
    deletion_seq = put(session.store, AgentDeleted(slug="gitea"), method="agent.delete")
    assert described(session, "gitea") is None
    undo(session, deletion_seq)
    assert described(session, "gitea") == "first"
    later = agent(session.store, "gitea", description="third", revision=9)
    done = session.data("events.revert", seqs=[creation_seq])
    assert why(done) == [f"agent gitea was changed again at seq {later} by ann"]
    assert done["kept"][0]["agent"] == "gitea"
    undo(session, *range(creation_seq, session.store.seq + 1))
    assert described(session, "gitea") is None


def test_an_agent_with_notes_stays(session: Session) -> None:
    creation_seq = agent(session.store, "gitea")
    note(session.store, "gitea", "hooks", "One.")
    done = session.data("events.revert", seqs=[creation_seq])
    assert why(done) == ["agent gitea still has 1 note"]
    assert described(session, "gitea") == ""


def test_an_agent_whose_folder_another_has_now_stays_away(session: Session) -> None:
    agent(session.store, "gitea", folder="/srv/notes")
    deletion_seq = put(session.store, AgentDeleted(slug="gitea"), method="agent.delete")
    agent(session.store, "forgejo", folder="/srv/notes")
    done = session.data("events.revert", seqs=[deletion_seq])
    assert why(done) == ["agent gitea stays as it is: forgejo has its folder now"]
    assert described(session, "gitea") is None


# --------------------------------------------------------------------------- the feed


def test_an_entrys_events_are_found_by_its_id(session: Session) -> None:
    one, two, three = entries(session, 3)
    supersede(session.store, one, three)
    supersede(session.store, two, three)
    revived = put(session.store, EntryRevived(ids=[one, two], was=three))
    records = session.data("events.read", document_id=two)
    assert [event["type"] for record in records for event in record["events"]] == [
        "doc.written",
        "entry.superseded",
        "entry.revived",
    ]
    assert records[-1]["seq"] == revived
