"""Fusion `rerank`: a cross-encoder scores and orders the best hits of the blend."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbproc.base.settings.config import Rerank
from kbproc.base.settings.trust import Trust
from kbproc.engine.projections.catalog.rows import HitRow
from kbproc.engine.store.folder import write_settings
from kbproc.knowledge.search import fusion
from kbproc.knowledge.search.rereading import reread
from kbproc.knowledge.search.times import ELSEWHEN
from tests.conftest import OpenSession
from tests.kit import rerank
from tests.kit.patience import PATIENCE
from tests.kit.talk import Session, request

QUERY = "install git archive"
COUNT = 70
ALL = 50
READ = 10  # hits that a store's settings let it read


def fill(session: Session) -> None:
    """Creates documents that hold a word of the query; every third holds two, a few hold three."""
    more = [
        {
            "title": f"Note {number}",
            "text": f"To install it{' from git' * (number % 3 == 0)}, fetch"
            f"{' the archive' * (number % 11 == 0)} number {number}.",
            "tags": ["odd" if number % 2 else "even"],
        }
        for number in range(COUNT)
    ]
    session.data("doc.create", documents=more)
    session.embedded()


@pytest.fixture(scope="module")
def endpoint() -> Iterator[rerank.Endpoint]:
    with rerank.endpoint() as server:
        yield server


@pytest.fixture(scope="module")
def library(
    tmp_path_factory: pytest.TempPathFactory, endpoint: rerank.Endpoint
) -> Iterator[Session]:
    """One store for all the tests that only read."""
    folder = tmp_path_factory.mktemp("library")
    session = Session(folder / "store", cwd=folder, rerank=endpoint.settings)
    fill(session)
    yield session
    session.close()


def search(session: Session, query: str = QUERY, **params: Any) -> dict[str, Any]:
    answer = session.ask("search", query=query, **{"fusion": "rerank", **params})
    assert "result" in answer, answer
    reply: dict[str, Any] = answer["result"]
    return reply


def hits_of(session: Session, query: str = QUERY, **params: Any) -> list[dict[str, Any]]:
    hits: list[dict[str, Any]] = search(session, query, **params)["data"]["results"]
    return hits


def scores(hits: list[dict[str, Any]]) -> dict[int, float]:
    return {hit["chunk_id"]: hit["score"] for hit in hits}


# ------------------------------------------------------------------------- scores


def test_the_score_is_the_judgement(library: Session, subtests: pytest.Subtests) -> None:
    for mode in ("hybrid", "fts", "vector"):
        with subtests.test(mode=mode):
            reply = search(library, mode=mode, limit=100)
            hits = reply["data"]["results"]
            assert len(hits) == ALL
            for hit in hits:
                text = f"{hit['source']['title']}\n{hit['text']}"
                assert hit["score"] == round(rerank.shared_words(QUERY, text), 6)
                assert hit["score_breakdown"] == {
                    "fts": None,
                    "vector": None,
                    "rerank": hit["score"],
                }
            order = [(-hit["score"], hit["chunk_id"]) for hit in hits]
            assert order == sorted(order), "best first, equals by chunk"
            assert hits[0]["score"] == 1
            assert "notice" not in reply["meta"]


def test_scores_depend_on_nothing_but_query_and_chunk(library: Session) -> None:
    whole = scores(hits_of(library, limit=100))
    for more in (
        {"limit": 1},
        {"offset": 7},
        {"tags": ["odd"]},
        {"kb": "default"},
        {"document_ids": [1, 12, 34]},
        {"per_document": 1},
        {"distinct": True},
        {"min_score": 0.5},
        {"explain": True},
        {"mode": "fts"},
    ):
        some = scores(hits_of(library, **more))
        assert some
        assert all(whole[id] == score for id, score in some.items() if id in whole), more


def test_pages_are_of_one_ranking(library: Session, endpoint: rerank.Endpoint) -> None:
    query = "install git from archive"
    before = len(endpoint.requests)
    whole = [hit["chunk_id"] for hit in hits_of(library, query, limit=100)]
    pages = []
    for offset in range(0, 60, 20):
        reply = search(library, query, limit=20, offset=offset)
        pages += [hit["chunk_id"] for hit in reply["data"]["results"]]
        assert reply["data"]["total_matches"] == reply["meta"]["total"] == ALL
        assert reply["data"]["total_is_exact"]
        assert reply["meta"]["has_more"] is (offset + 20 < ALL)
    assert pages == whole
    assert len(endpoint.requests) == before + 1, "what was judged is not sent again"
    beyond = search(library, query, offset=ALL)
    assert beyond["data"]["results"] == []
    assert "offset 50 skips 50 matches, which is all of them" in beyond["meta"]["hint"]


def test_the_best_of_the_blend_are_read(library: Session, endpoint: rerank.Endpoint) -> None:
    query = "git archive fetch"
    blended = hits_of(library, query, fusion="blend", limit=100)
    hits = hits_of(library, query, limit=100, explain=True)
    assert {hit["chunk_id"] for hit in hits} == {hit["chunk_id"] for hit in blended[:ALL]}
    before = {hit["chunk_id"]: (n, hit["score"]) for n, hit in enumerate(blended, 1)}
    for hit in hits:
        reranking = hit["explain"]["rerank"]
        assert (reranking["rank"], reranking["score"]) == before[hit["chunk_id"]]
        assert (reranking["model"], reranking["candidates"]) == ("toy", ALL)
        assert reranking["value"] == hit["score"]
        assert hit["explain"]["formula"]["fusion"] == "rerank"
        assert hit["explain"]["fts"]["rank"] or hit["explain"]["vector"]["rank"]
    [sent] = [one for one in endpoint.requests if one["query"] == query]
    assert len(sent["documents"]) == sent["top_n"] == ALL
    titles = [hit["source"]["title"] for hit in blended[:ALL]]
    assert [text.partition("\n")[0] for text in sent["documents"]] == titles


def test_the_least_score_is_of_the_judgement(library: Session) -> None:
    whole = hits_of(library, limit=100)
    reply = search(library, min_score=0.6, limit=100)
    expected = [hit["chunk_id"] for hit in whole if hit["score"] >= 0.6]
    assert [hit["chunk_id"] for hit in reply["data"]["results"]] == expected
    assert 0 < reply["data"]["total_matches"] == len(expected) < ALL
    none = search(library, "install git", min_score=1, document_ids=[2])
    assert none["data"]["results"] == []
    assert "min_score or min_similarity excluded" in none["meta"]["hint"]
    far = search(library, min_similarity=1)
    assert far["data"]["results"] == []
    assert "min_similarity" in far["meta"]["hint"]


def test_confidence_is_that_of_the_blend(library: Session) -> None:
    for query in (QUERY, "zebras eat grass", "git"):
        blended = search(library, query, fusion="blend")["data"]
        assert search(library, query)["data"]["confidence"] == blended["confidence"]
    assert search(library, "zebras", mode="fts")["data"]["results"] == []


def test_entries_notes_and_the_past_are_read_too(
    open_session: OpenSession, endpoint: rerank.Endpoint
) -> None:
    session = open_session(rerank=endpoint.settings)
    session.data("knowledge.store", title="Git", body="Install git by make.")
    seq = session.data("ping")["seq"]
    session.data("agent.create", slug="alpha")
    session.data("note.put", agent="alpha", slug="git", text="# Git\n\nInstall git by make.")
    session.data("doc.create", title="Later", text="Install git later.")
    session.embedded()
    query = "install git by hand"
    [hit] = session.data("knowledge.search", query=query, fusion="rerank")["results"]
    assert hit["score"] == hit["score_breakdown"]["rerank"] == 0.75
    [note] = session.data("note.search", agent="alpha", query=query, fusion="rerank")
    assert note["score"] == 0.75
    [then] = hits_of(session, query, as_of=seq)
    assert then["score"] == 0.75
    assert len(hits_of(session, query)) > 1


@pytest.mark.model
def test_a_folder_is_exported_and_reads(open_session: OpenSession, tmp_path: Path) -> None:
    folder = rerank.cross_encoder(tmp_path / "model", spread=0.5)
    session = open_session(rerank=Rerank(folder=str(folder)))
    fill(session)
    findings = {one["name"]: one for one in session.data("doctor")["findings"]}
    assert "not ready yet" in findings["rerank"]["message"]
    hits = hits_of(session, limit=100)
    assert len(hits) == ALL
    assert len({hit["score"] for hit in hits}) > 5
    assert all(hit["score"] == hit["score_breakdown"]["rerank"] for hit in hits)
    some = scores(hits_of(session, tags=["odd"], limit=100))
    whole = scores(hits)
    assert all(whole[id] == score for id, score in some.items() if id in whole)
    findings = {one["name"]: one for one in session.data("doctor")["findings"]}
    assert findings["rerank"]["status"] == "pass"


def test_words_that_say_when_count(
    open_session: OpenSession, endpoint: rerank.Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = open_session(rerank=endpoint.settings)
    session.data("knowledge.store", title="Git", body="Install git in 1999.")
    session.data("doc.create", title="Git", text="Install git in 1999.")
    session.embedded()
    hits = {h["source"]["type"]: h for h in hits_of(session, "install git in 1999", explain=True)}
    assert hits["text"]["score"] == 1
    assert hits["knowledge"]["score"] == hits["knowledge"]["score_breakdown"]["rerank"] == ELSEWHEN
    assert hits["knowledge"]["explain"]["rerank"]["value"] == 1
    assert hits["knowledge"]["explain"]["time"]["factor"] == ELSEWHEN


def test_only_what_may_be_seen_is_sent(open_session: OpenSession) -> None:
    with rerank.endpoint() as endpoint:
        session = open_session(rerank=endpoint.settings)
        session.data("kb.create", slug="hidden")
        session.data("agent.create", slug="alpha", kbs=["default"])
        session.data("doc.create", title="Seen", text="Install git.")
        session.data("doc.create", title="Hidden", text="Install git.", kb="hidden")
        session.embedded()
        alpha = session.another("alpha", named=True)
        assert len(hits_of(alpha)) == 1
        assert [text for one in endpoint.requests for text in one["documents"]] == [
            "Seen\nInstall git."
        ]
        assert len(hits_of(session)) == 2


# ----------------------------------------------------------------------- settings


def test_without_a_cross_encoder_it_is_an_error(session: Session) -> None:
    session.data("doc.create", title="Git", text="Install git.")
    session.data("agent.create", slug="alpha")
    for method, more in (
        ("search", {}),
        ("knowledge.search", {}),
        ("note.search", {"agent": "alpha"}),
    ):
        error = session.error(method, query="git", fusion="rerank", **more)
        assert (error["type"], error["field"]) == ("model.unavailable", "$.params.fusion")
        assert "KBPROC_RERANK_FOLDER" in error["hint"]
        assert "[rerank]" in error["hint"]
        assert error["retryable"] is False


def test_nothing_is_sent_unless_it_is_asked_for(open_session: OpenSession) -> None:
    with rerank.endpoint() as endpoint:
        session = open_session(rerank=endpoint.settings)
        session.data("doc.create", title="Git", text="Install git.")
        session.embedded()
        for fusion in ("blend", "rrf"):
            assert hits_of(session, fusion=fusion)
        assert hits_of(session, "zebras") == []
        assert endpoint.requests == []


def settings_in(tmp_path: Path, **settings: Any) -> Path:
    store = tmp_path / "store"
    store.mkdir(mode=0o700)
    write_settings(store / "store.toml", {"kind": "none", "name": "none"})
    write_settings(store / "store.toml", settings, "rerank")
    return store


def test_the_store_says_how_many_are_read(open_session: OpenSession, tmp_path: Path) -> None:
    settings_in(tmp_path, candidates=5)
    with rerank.endpoint() as endpoint:
        session = open_session(rerank=endpoint.settings)
        fill(session)
        reply = search(session, limit=3)
        assert (reply["data"]["total_matches"], reply["meta"]["has_more"]) == (5, True)
        assert [len(one["documents"]) for one in endpoint.requests] == [5]


def test_so_many_are_read_that_a_pool_must_grow(open_session: OpenSession, tmp_path: Path) -> None:
    settings_in(tmp_path, candidates=120)
    with rerank.endpoint() as endpoint:
        session = open_session(rerank=endpoint.settings)
        for _ in range(6):
            fill(session)
        assert search(session, limit=1)["data"]["total_matches"] == 120
        [sent] = endpoint.requests
        assert len(set(sent["documents"])) == len(sent["documents"]) < 120, "the same text once"


def test_the_endpoint_of_a_store_is_asked_once_it_is_approved(
    open_session: OpenSession, tmp_path: Path
) -> None:
    with rerank.endpoint() as endpoint:
        store = settings_in(tmp_path, url=endpoint.url, model="toy")
        session = open_session()
        session.data("doc.create", title="Git", text="Install git.")
        error = session.error("search", query="git", fusion="rerank")
        assert (error["type"], error["field"]) == ("model.unavailable", "$.params.fusion")
        assert "not approved" in error["message"]
        assert "kbproc link --trust" in error["hint"]
        assert endpoint.requests == []
        session.library.close()
        Trust(tmp_path / "trusted.json").add_reranker(store, {"url": endpoint.url, "model": "toy"})
        session = open_session()
        assert hits_of(session)[0]["score_breakdown"]["rerank"] == 0.666667


def test_settings_that_are_no_table(open_session: OpenSession, tmp_path: Path) -> None:
    store = settings_in(tmp_path)
    toml = (store / "store.toml").read_text()
    (store / "store.toml").write_text(f"rerank = 5\n{toml}")
    session = open_session()
    error = session.error("search", query="git", fusion="rerank")
    assert "none is configured" in error["message"]


def test_doctor_tells_of_it(open_session: OpenSession, tmp_path: Path) -> None:
    def finding(session: Session) -> Any:
        reply = {one["name"]: one for one in session.data("doctor")["findings"]}
        session.library.close()
        return reply.get("rerank")

    assert finding(open_session()) is None
    with rerank.endpoint() as endpoint:
        check = finding(open_session(rerank=endpoint.settings))
        assert (check["status"], "toy reads the best 50 hits" in check["message"]) == ("pass", True)
    check = finding(open_session(rerank=endpoint.settings))
    assert (check["status"], "did not answer" in check["message"]) == ("warn", True)
    check = finding(open_session(rerank=Rerank(folder=str(tmp_path / "nowhere"))))
    assert (check["status"], "config.json" in check["message"]) == ("warn", True)


# ----------------------------------------------------------------------- failures


@pytest.mark.parametrize("what", ["down", "silent", "rubbish"])
def test_where_it_fails_the_hits_are_those_of_the_blend(
    open_session: OpenSession, tmp_path: Path, what: str
) -> None:
    settings_in(tmp_path, timeout_s=0.2)
    servers: list[rerank.Endpoint] = []
    with rerank.endpoint(rerank.silent(servers)) as endpoint:
        servers.append(endpoint)
        if what == "rubbish":
            endpoint.script = lambda query, texts: rerank.scored([0.5])
        if what == "down":
            endpoint.server_close()
        session = open_session(rerank=endpoint.settings)
        fill(session)
        reply = search(session, limit=100, explain=True, min_score=0.01)
        endpoint.released.set()
    blended = hits_of(session, fusion="blend", limit=100, min_score=0.01)
    hits = reply["data"]["results"]
    assert scores(hits) == scores(blended[:ALL])
    assert [hit["chunk_id"] for hit in hits] == [hit["chunk_id"] for hit in blended[:ALL]]
    for hit in hits:
        assert "rerank" not in hit["score_breakdown"]
        assert hit["explain"]["formula"]["fusion"] == "blend"
    notice = reply["meta"]["notice"]
    assert notice[-1].startswith("The cross-encoder did not read the hits: The rerank endpoint")
    assert rerank.KEY not in json.dumps(reply)


def test_a_write_goes_on_while_an_endpoint_thinks(open_session: OpenSession) -> None:
    sent, go_on = threading.Event(), threading.Event()

    def script(query: str, texts: list[str]) -> rerank.Reply:
        sent.set()
        go_on.wait(PATIENCE)
        return rerank.judged(query, texts)

    with rerank.endpoint(script) as endpoint:
        session = open_session(rerank=endpoint.settings)
        session.data("doc.create", title="Git", text="Install git.")
        session.send(json.dumps(request(7, "search", query=QUERY, fusion="rerank")).encode())
        assert sent.wait(PATIENCE)
        other = session.another("somebody")
        assert other.data("doc.create", title="More", text="Install git again.")
        assert len(hits_of(other, fusion="blend")) == 2
        go_on.set()
        reply = json.loads(session.receive())
        assert [hit["source"]["title"] for hit in reply["result"]["data"]["results"]] == ["Git"]


# -------------------------------------------------------------- one ranking, without a store


class Judge:
    """A cross-encoder that gives the texts these values in order, and remembers them."""

    name, candidates, problem, is_ready = "judge", 50, None, True

    def __init__(self, values: list[float]) -> None:
        self.values = values
        self.texts: list[str] = []

    def judge(self, query: str, texts: Any) -> list[float]:
        self.texts = list(texts)
        return self.values

    def prepare(self) -> None:
        raise AssertionError("a search prepares nothing")

    def close(self) -> None:
        raise AssertionError("a search closes nothing")


VALUES = st.lists(st.floats(0, 1), min_size=1, max_size=8)


@given(values=VALUES, ids=st.permutations(range(1, 9)), late=st.integers(1, 8))
def test_a_judgement_stays_with_its_hit(values: list[float], ids: list[int], late: int) -> None:
    """Hit and value are matched by place; the factor for time counts in the score alone."""
    blended = [
        (id, fusion.Fused(round(0.9 - n / 10, 6), 0.1, 0.1))
        for n, id in enumerate(ids[: len(values)])
    ]
    rows = {
        id: HitRow(id, id, "default", f"T{id}", f"S{id}" if id % 2 else None, f"text {id}")
        for id in ids
    }

    def factor(id: int) -> float:
        return 0.5 if id == late else 1.0

    judge = Judge(values)
    ranked, judgements = reread(judge, "q", blended, rows, factor)
    expected = {id: round(value, 6) for (id, _), value in zip(blended, values, strict=True)}
    assert {id: one.value for id, one in judgements.items()} == expected
    scores = {id: round(value * factor(id), 6) for id, value in expected.items()}
    assert {id: fused.score for id, fused in ranked} == scores
    assert [id for id, _ in ranked] == sorted(scores, key=lambda id: (-scores[id], id))
    for rank, (id, before) in enumerate(blended, 1):
        one = judgements[id]
        assert (one.rank, one.score, one.candidates) == (rank, before.score, len(values))
        lines = [f"T{id}", *([f"S{id}"] if id % 2 else []), f"text {id}"]
        assert judge.texts[rank - 1] == "\n".join(lines)
    assert all((fused.fts, fused.vector) == (None, None) for _, fused in ranked)


# ------------------------------------------------------------------------- unasked


def test_a_cross_encoder_reads_unasked_where_the_answer_is_in_doubt(
    open_session: OpenSession,
    endpoint: rerank.Endpoint,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def last_first(query: str, texts: list[str]) -> rerank.Reply:
        return rerank.scored([place / len(texts) for place in range(len(texts))])

    monkeypatch.setattr(endpoint, "script", last_first)
    folder = tmp_path / "store"
    first = open_session(folder)
    fill(first)
    sure = "fetch the archive number 66 to install it from git"
    unsure = "archive kettle spout tea brew wine glass"
    plain = {query: hits_of(first, query, fusion="blend", limit=100) for query in (sure, unsure)}
    first.close()
    write_settings(folder / "store.toml", {"rerank": "auto"}, "search")
    write_settings(folder / "store.toml", {"candidates": READ}, "rerank")
    session = open_session(folder, rerank=endpoint.settings)
    count = len(endpoint.requests)
    assert hits_of(session, sure, fusion="blend", limit=100) == plain[sure]
    assert len(endpoint.requests) == count, "a likely answer is not read again"
    reply = search(session, unsure, fusion="blend", limit=100)
    hits = reply["data"]["results"]
    assert len(endpoint.requests) == count + 1
    assert scores(hits) == scores(plain[unsure]), "the scores stay those of the blend"
    judged = [hit["score_breakdown"]["rerank"] for hit in hits[:READ]]
    assert judged == sorted(judged, reverse=True)
    assert [hit["chunk_id"] for hit in hits] != [hit["chunk_id"] for hit in plain[unsure]]
    assert [hit["chunk_id"] for hit in hits[READ:]] == [
        hit["chunk_id"] for hit in plain[unsure][READ:]
    ], "hits that it does not read keep their places"
    page = hits_of(session, unsure, fusion="blend", limit=5, offset=5)
    assert page == hits[5:10]
    assert reply["data"]["confidence"] != "likely"
    assert hits_of(session, unsure, fusion="rrf"), "which asks for another order"
    assert len(endpoint.requests) == count + 1
    session.close()
    write_settings(folder / "store.toml", {"rerank": "never"}, "search")
    assert (
        hits_of(open_session(folder, rerank=endpoint.settings), unsure, fusion="blend", limit=100)
        == plain[unsure]
    )
