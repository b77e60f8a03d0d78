"""Near-duplicates: similar entries when one is stored, and distinct hits on request."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from kbproc.base import failpoints
from kbproc.base.text.likeness import forms, likeness, unlike
from kbproc.engine.projections.catalog.reader import Sight
from kbproc.engine.store.visible import narrowed
from kbproc.knowledge.search.similar import similar
from tests.conftest import OpenSession
from tests.kit.talk import Session

CACHE = "Deleting the lock file drops the cache, and then builds take twelve minutes."
SAME = "Deleting the lock file drops the cache; then a build takes twelve minutes."
OTHER = "The office has two meeting rooms, and the larger one has a projector."


def stored(session: Session, title: str, body: str, **params: Any) -> dict[str, Any]:
    entry: dict[str, Any] = session.data("knowledge.store", title=title, body=body, **params)
    return entry


def test_an_entry_that_says_the_same_is_named(session: Session) -> None:
    first = stored(session, "CI cache", CACHE)
    assert first["similar"] == []
    stored(session, "Rooms", OTHER)
    session.embedded()
    similar = stored(session, "The cache of the CI", SAME)["similar"]
    assert [one["id"] for one in similar] == [first["id"]]
    assert similar[0]["title"] == "CI cache"
    assert 0.6 <= similar[0]["score"] < 1


def test_the_same_text_scores_one_and_at_most_three_are_told(session: Session) -> None:
    for number in range(5):
        stored(session, "CI cache", CACHE, tags=[f"t{number}"])
    session.embedded()
    similar = stored(session, "CI cache", CACHE)["similar"]
    assert [one["score"] for one in similar] == [1, 1, 1]
    assert [one["id"] for one in similar] == sorted(one["id"] for one in similar)


def test_only_entries_that_hold_are_told(session: Session) -> None:
    old = stored(session, "CI cache", CACHE)["id"]
    new = stored(session, "CI cache", SAME)["id"]
    session.data("doc.create", title="CI cache", text=CACHE)
    session.data("knowledge.supersede", old_id=old, new_id=new)
    session.embedded()
    assert [one["id"] for one in stored(session, "CI cache", CACHE)["similar"]] == [new]


def test_without_a_model_words_tell(open_session: OpenSession) -> None:
    session = open_session(model="none")
    first = stored(session, "CI cache", CACHE)["id"]
    similar = stored(session, "CI cache", CACHE)["similar"]
    assert [(one["id"], one["score"]) for one in similar] == [(first, 1)]


def test_what_was_stored_just_now_is_told_and_nobody_waits_for_the_index(session: Session) -> None:
    committed: list[str] = []

    def note(name: str) -> None:
        if name == "fulltext.commit":
            committed.append(threading.current_thread().name)

    stored(session, "Rooms", OTHER)
    session.data("search", query="rooms")
    failpoints.arm(note)
    first = stored(session, "CI cache", CACHE)["id"]
    result = stored(session, "The cache of the CI", SAME)
    assert [one["id"] for one in result["similar"]] == [first]
    session.data("knowledge.supersede", old_id=first, new_id=result["id"])
    similar = stored(session, "CI cache", CACHE)["similar"]
    failpoints.arm(None)
    assert first not in [one["id"] for one in similar]
    assert {*committed} <= {"upkeep"}


def test_what_somebody_may_not_see_is_not_told_before_it_is_indexed(session: Session) -> None:
    session.data("kb.create", slug="secret")
    session.data("agent.create", slug="ann", kbs=["default"])
    stored(session, "CI cache", CACHE, kb="secret")
    assert session.store.indexed is not None
    assert session.store.indexed.seq < session.store.seq
    ann = session.another("ann", named=True)
    assert stored(ann, "CI cache", CACHE)["similar"] == []


def test_a_repeat_tells_what_was_stored_and_names_nobody(session: Session) -> None:
    stored(session, "CI cache", CACHE)
    session.embedded()
    result = stored(session, "CI cache", CACHE, client_token="a")
    stored(session, "CI cache", CACHE)
    assert len(result["similar"]) == 1
    again = stored(session, "CI cache", CACHE, client_token="a")
    assert again == {**result, "similar": []}


def test_few_chunks_are_compared_one_by_one(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long entries have many chunks each; a write takes no longer for every former one."""
    compared: list[str] = []

    def counting(text: str) -> frozenset[str]:
        compared.append(text)
        return forms(text)

    for number in range(6):
        stored(session, f"Long {number}", " ".join(f"word{number}x{n}" for n in range(3000)))
    monkeypatch.setattr("kbproc.knowledge.search.similar.forms", counting)
    stored(session, "CI cache", CACHE)
    assert len(compared) <= 1 + 50 + 10


def test_hits_that_repeat_a_better_one_are_left_out_on_request(
    session: Session, subtests: pytest.Subtests
) -> None:
    for number in range(3):
        session.data("doc.create", title=f"Cache {number}", text=CACHE)
    session.data("doc.create", title="Rooms", text="The cache of the office is in a room.")
    session.embedded()
    for mode in ("hybrid", "fts", "vector"):
        with subtests.test(mode=mode):
            every = session.data("search", query="cache of the lock file", mode=mode)["results"]
            result = session.data(
                "search", query="cache of the lock file", mode=mode, distinct=True
            )
            assert len(every) == 4
            assert all("repeated_by" not in hit for hit in every)
            first, second = result["results"]
            assert first == {**every[0], "repeated_by": [hit["chunk_id"] for hit in every[1:3]]}
            assert "repeated_by" not in second


def test_pages_of_distinct_hits_join(session: Session) -> None:
    texts = [CACHE, CACHE, OTHER, SAME, "The cache has rooms.", "A lock and its minutes."]
    for number, text in enumerate(texts):
        session.data("doc.create", title=f"Text {number}", text=text)
    session.embedded()
    query = "cache rooms minutes"

    def ids(**params: Any) -> list[int]:
        hits = session.data("search", query=query, distinct=True, **params)["results"]
        return [hit["chunk_id"] for hit in hits]

    assert [id for at in range(5) for id in ids(limit=1, offset=at)] == ids()


def test_likeness() -> None:
    assert likeness(forms("The caches are dropped."), forms("the cache is dropping")) > 0.4
    assert likeness(forms(CACHE), forms(CACHE)) == 1
    assert likeness(forms(""), forms("")) == 0
    repeated: dict[str, list[str]] = {}
    retained = list(unlike([("a", CACHE), ("b", OTHER), ("c", CACHE + " Mind it.")], repeated))
    assert (retained, repeated) == (["a", "b"], {"a": ["c"]})


NOW = "2026-06-01T00:00:00.000Z"
SIGHTS = [None, Sight(kbs=("default",)), Sight(kbs=("secret",)), Sight(entries=False)]


@pytest.mark.parametrize("model", ["none", "hash"])
def test_pending_and_indexed_entries_are_found_alike(open_session: OpenSession, model: str) -> None:
    """Entries that the index lacks are compared one by one, under the same rules as in the index:
    the caller's sight, expiry, and the entries that others have superseded.
    """
    session = open_session(model=model)
    session.data("kb.create", slug="secret")
    for number, (kb, text, expires) in enumerate(
        [
            ("default", CACHE, None),
            ("default", SAME, None),
            ("secret", CACHE, None),
            ("default", CACHE, "2026-05-01"),
            ("default", CACHE, NOW),
            ("default", OTHER, None),
            ("secret", SAME, "2026-07-01"),
        ]
    ):
        stored(
            session, f"Cache {number}", text, kb=kb, **({"expires_at": expires} if expires else {})
        )
    session.data("doc.create", title="Cache 8", text=CACHE)
    session.data("knowledge.supersede", old_id=1, new_id=2)
    session.embedded()

    def all_similar() -> list[Any]:
        states = [narrowed(session.store, sight) for sight in SIGHTS]
        return [similar(state, "Cache", CACHE, now=NOW) for state in states]

    pending = all_similar()
    assert session.store.indexed is not None
    assert session.store.indexed.seq < session.store.seq, "everything is indexed"
    session.data("search", query="cache")
    assert session.store.indexed.seq == session.store.seq
    assert all_similar() == pending
    ids = [sorted(one.id for one in entries) for entries in pending]
    assert ids == [[2, 3, 7], [2], [3, 7], []]


def test_each_entry_counts_once_with_its_best_chunk(open_session: OpenSession) -> None:
    session = open_session(model="none")
    parts = [f"{CACHE} {'It was so in part one of three. ' * n}" * 12 for n in (1, 0, 2)]
    id = stored(session, "CI cache", "\n\n".join(parts))["id"]
    with session.store.reading() as snapshot:
        rows = list(snapshot.queries.index_rows([id]))
    own = forms(f"CI cache\n{CACHE}")
    scores = [likeness(own, forms(f"{row.title}\n{row.text}")) for row in rows]
    assert len(set(scores)) > 1
    [one] = similar(session.store, "CI cache", CACHE, now=NOW)
    assert (one.id, one.score) == (id, round(max(scores), 6))
