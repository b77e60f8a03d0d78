"""A query names subjects, which shut out others; a text is about some of its words."""

from __future__ import annotations

import pytest

from kbproc.knowledge.search.subject import Subject, about
from tests.kit.talk import Session


def entry(title: str, *aliases: str, text: str = "", type: str = "knowledge") -> Subject:
    return Subject(title, aliases, None, text, type)


FASTIFY = entry("Fastify is our framework", "fastify", text="We use it rather than Express or Koa.")
QUERY = entry("TanStack Query holds server state", "tanstack query", "react query")
PART = entry("Queries", "query", "Query")
NODE = entry("Node.js 22 runs the services", "Node.js", "node")
TESTS = entry("Unit tests", text="They never reach the network.")
GO = entry("The importer is in Go", "Go")
PORT = entry("港口计划", text="港口")
NET = entry("Services run on .NET 9", ".NET", ".env")
SUBJECTS = [FASTIFY, QUERY, PART, NODE, TESTS, GO, PORT, NET]


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("fastify?", [FASTIFY]),
        ("Fastify's plugins and a fastify-based service", [FASTIFY]),
        ("where is fastfy set up", [FASTIFY]),
        ("the react-query hook, is it TanStack Query?", [QUERY]),
        ("a query for the node js service", [PART, NODE]),
        ("write a unit test with nodejs", [NODE, TESTS]),
        ("is it written in Go or not", [GO]),
        ("does .NET 8 still work", [NET]),
        ("what stands in .env, and why", [NET]),
        ("add the dotnet service", [NET]),
        ("net of taxes, what does the env cost", []),
        ("这个港口计划什么时候开始", [PORT]),
        ("go on with it", []),
        ("Go on with it", []),
        ("fastify-cli is broken", []),
        ("do we use Fastify Router?", []),
        ("is React Query old, asked the Node Foundation", [QUERY]),
        ("anything rather than Fastify", []),
        ("Which React, Query or Node", [PART, NODE]),
        ("How Do We Start Fastify Here", [FASTIFY]),
    ],
)
def test_what_a_query_names(query: str, named: list[Subject]) -> None:
    places = about(query, SUBJECTS, {"fastfy": "fastify"})
    assert {SUBJECTS[place].title for place, names in places.items() if names} == {
        subject.title for subject in named
    }
    if named:  # then nothing else is shown
        assert len(places) == len(named)


@pytest.mark.parametrize(
    ("query", "text", "is_about"),
    [
        ("What is our stack?", "TanStack holds it", False),
        ("What is our stack?", "TanStack is in the stack", True),
        ("Why not Express?", "Fastify rather than Express", False),
        ("Why not Koa?", "Fastify instead of Express or Koa, with plugins", False),
        ("plugins of Express", "Fastify instead of Express or Koa, with plugins", True),
        ("Taq", "Phusion, and not Taq", False),
        ("speed of 12,000 rpm", "It must not exceed 12,000 rpm", True),
        ("TanStack Router", "TanStack Query and the cache", False),
        ("wi-fi in the attic", "The wifi comes from a repeater", True),
        ("which .env", "The env lies beside it", True),
        ("½ inch of ﷺ", "1⁄2 an inch, ½", True),
        ("how tall is a giraffe", "Nothing of the kind", True),
    ],
)
def test_what_a_text_is_about(query: str, text: str, is_about: bool) -> None:
    assert bool(about(query, [entry("-", text=text, type="text")], {})) is is_about
    if not is_about:  # code writes words as parts of names
        assert about(query, [entry("-", text=text, type="code")], {})


def test_an_entry_holds_a_proper_name_of_the_query() -> None:
    keys = entry("Signing keys live in Vault", text="Only the build server reads them.")
    assert about("where are the signing keys", [keys], {})
    assert about("are the signing keys in Vault", [keys], {})
    assert not about("how do I sign in to the VPN", [keys], {})
    page = keys._replace(type="text")  # a product's page need not name the product
    assert about("how do I sign in to the VPN", [page], {})


def test_who_may_shut_out_others() -> None:
    own, heading = entry("Plans"), entry("Rate limits", type="text")
    other = entry("Quotas", text="rate of plans", type="text")
    assert about("limits of plans", [other, own], {}) == {1: ["Plans"]}
    planted = entry("Rate limits")._replace(is_foreign=True)
    for named in (heading, planted):
        assert about("rate limits of plans", [other, named], {}) == {0: [], 1: ["Rate limits"]}
    assert about("Search for what failed", [entry("Search", type="text"), other], {}) == {
        0: [],
        1: [],
    }


def test_a_search_shows_only_what_the_query_names(session: Session, tmp_path: object) -> None:
    session.data("knowledge.store", title="Queues", body="BullMQ is one.", aliases=["job queue"])
    session.data("knowledge.store", title="Workers", body="A job in a queue, a job queue.")
    session.data(
        "doc.create", type="markdown", title="Mail", text="---\naliases: [post, inbox]\n---\nHi."
    )
    answer = session.data("search", query="a job queue", mode="fts", about=True)
    assert [hit["source"]["document_id"] for hit in answer["results"]] == [1]
    assert (answer["total_matches"], answer["results"][0]["names"]) == (1, ["job queue"])
    both = session.data("search", query="job queue and inbox", mode="fts", about=True)["results"]
    assert {hit["source"]["title"]: hit["names"] for hit in both} == {
        "Queues": ["job queue"],
        "Mail": ["inbox"],
    }
    plain = session.data("search", query="a job queue", mode="fts")["results"]
    assert len(plain) == 2 and not any("names" in hit for hit in plain)


def test_a_successor_answers_for_what_it_superseded(session: Session) -> None:
    for title, body in (
        ("Deployments", "Jenkins restarts the pods"),
        ("Deployments", "An orb of CircleCI"),
        ("Deployments", "A workflow rolls out"),
        ("Pods", "They restart at night"),
    ):
        session.data("knowledge.store", title=title, body=body)
    session.data("knowledge.supersede", old_id=1, new_id=2)
    session.data("knowledge.supersede", old_id=2, new_id=3)
    for method in ("search", "knowledge.search"):
        query = {"query": "Jenkins restarts pods", "mode": "fts", "explain": True}
        answer = session.ask(method, **query)["result"]
        hits = answer["data"]["results"]
        ids = [(hit["source"]["document_id"], hit.get("replaces")) for hit in hits]
        assert ids == [(3, 1), (4, None)] and hits[0]["score"] > hits[1]["score"]
        assert "entry 1, which entry 3 has superseded" in answer["meta"]["notice"][0]
        # The successor holds no word of the query, so that it has no rank of its own.
        assert [hit["explain"]["fts"]["rank"] for hit in hits] == [None, 1]
    # No successor answers where an entry holds as much that holds now, or beside other filters.
    still = session.data("search", query="pods restart at night", mode="fts")["results"]
    assert [hit.get("replaces") for hit in still] == [None]
    for more in ({"include_superseded": True}, {"tags": ["x"]}, {"mode": "vector"}):
        params = {"query": "Jenkins", "mode": "fts", **more}
        assert not any("replaces" in hit for hit in session.data("search", **params)["results"])


def test_a_successor_answers_with_its_best_chunk_while_it_holds(session: Session) -> None:
    sections = ("Boats", "A workflow restarts"), ("Pods", "They restart in a workflow")
    body = "\n\n".join(f"# {title}\n\n{text} " + "and more " * 40 for title, text in sections)
    session.data("knowledge.store", title="Jenkins", body="Jenkins restarts the pods")
    until = "2026-01-02T00:00:00Z"
    session.data("knowledge.store", title="Now", body=body, expires_at=until)
    session.data("knowledge.supersede", old_id=1, new_id=2)
    params = {"query": "Jenkins restarts pods", "mode": "fts", "per_document": 1}
    (hit,) = session.data("search", explain=True, **params)["results"]
    assert hit["source"]["chunk_index"] == 1 and hit["replaces"] == 1
    assert hit["explain"]["fts"]["rank"] == 1
    excluding = {**params, "query": f"{params['query']} -zebra"}
    assert session.data("search", **excluding)["confidence"] == "likely"
    session.store.host.pass_until("2026-01-03T00:00:00Z")
    answer = session.ask("search", **params)["result"]
    assert (answer["data"]["total_matches"], answer["data"]["confidence"]) == (0, "none")
    assert "notice" not in answer["meta"]


def test_no_limit_changes_what_a_query_names_or_what_answers(session: Session) -> None:
    for number in range(12):
        session.data("knowledge.store", title=f"Thing {number}", body="a job, a wobble, a queue")
    session.data("knowledge.store", title="Z", body="queue " + "x " * 99, aliases=["job queue"])
    for limit in (1, 20):
        params = {"query": "job queue wobble", "mode": "fts", "about": True, "limit": limit}
        answer = session.data("search", **params)
        assert [hit["names"] for hit in answer["results"]] == [["job queue"]]
    nothing = session.ask("search", query="the", mode="fts", about=True)["result"]
    assert nothing["meta"]["hint"].startswith(("about left out", "No chunk"))


@pytest.mark.parametrize("query", ["港口", "港口 时间", "在 Redis 里 时间"])
def test_words_that_a_script_runs_together_are_words_of_their_own(query: str) -> None:
    assert about(query, [entry("-", text="港口用Redis的时间表", type="text")], {})
