"""Search: scores that add up, totals that are true, filters that only filter."""

from __future__ import annotations

import importlib
import json
import threading
from collections.abc import Iterator
from functools import partial
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kbproc.engine.models.fluency import Fluency
from kbproc.engine.models.hashing import HashEmbedder
from kbproc.engine.projections.vectors.view import FLAT_LIMIT
from kbproc.knowledge.app.health import doctor
from kbproc.knowledge.search import candidates, probability
from kbproc.knowledge.search.params import EfSearch, Search
from kbproc.knowledge.search.search import SearchAnswer, run
from tests.conftest import OpenSession
from tests.kit.patience import PATIENCE
from tests.kit.talk import REPO, Session

PASSAGES = [
    ("Git Guide", "To install the latest version of git, fetch the archive and run make.", "git"),
    ("Setup Notes", "First add the repository, then install git with the package manager.", "git"),
    ("Backup", "Mirror every repository each night; a backup that is not tested is none.", "ops"),
    ("Cooking", "Fold the egg whites gently and bake the soufflé at once.", "food"),
    ("Naïve Café", "The naïve café résumé of an élève in Zürich.", "food"),
    ("中文", "知识库可以存储文档,并且支持全文搜索和向量检索。", "cjk"),
    ("日本語", "東京都の図書館で本を検索します。", "cjk"),
    ("Running", "Runners were running; the runner runs daily to install discipline.", "sport"),
    ("Code", "def parse_query(text): return parseQuery(text.strip())", "code"),
    ("Errors", "C++ and C# and .NET; error E1234-X in module foo.bar_baz.", "code"),
    ("Install", "install install install install install install", "git"),
    ("Stop", "To be or not to be, that is the question.", "food"),
]
WORDS = ("git", "backup", "mirror", "archive", "branch", "nightly", "install", "merge")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """One store for all the tests that only read."""
    folder = tmp_path_factory.mktemp("library")
    session = Session(folder / "store", cwd=folder)
    session.data("kb.create", slug="other")
    for number, (title, text, tag) in enumerate(PASSAGES):
        session.data(
            "doc.create",
            title=title,
            text=text,
            tags=[tag],
            metadata={"n": number},
            kb="other" if tag == "cjk" else "default",
            type="code" if tag == "code" else "text",
        )
    session.embedded()
    yield session
    assert {name: wrong for name, wrong in doctor.compare(session.store).items() if wrong} == {}
    session.close()


def search(session: Session, query: str, **params: Any) -> dict[str, Any]:
    answer = session.ask("search", query=query, **params)
    assert "result" in answer, answer
    result: dict[str, Any] = answer["result"]
    data = result["data"]
    assert result["meta"]["count"] == data["returned"] == len(data["results"])
    assert result["meta"]["total"] == data["total_matches"] >= len(data["results"])
    if data["confidence"] != "likely" or not data["results"]:
        assert result["meta"]["hint"]
    elif "-" not in query and '"' not in query:
        assert "hint" not in result["meta"]
    assert all(hit["score"] >= 0.0005 or params.get("fusion") == "rrf" for hit in data["results"])
    check_scores(data["results"])
    return result


def check_scores(hits: list[dict[str, Any]]) -> None:
    order = [(-hit["score"], hit["chunk_id"]) for hit in hits]
    assert order == sorted(order), "best first, equals by chunk"
    for hit in hits:
        parts = [part for part in hit["score_breakdown"].values() if part is not None]
        assert abs(hit["score"] - sum(parts)) < 1.1e-6
        assert 0 <= hit["score"] <= 1
        assert hit["score"] == round(hit["score"], 6)
        assert all(0 <= s < e <= len(hit["snippet"]) for s, e in hit["highlights"])


def titles(session: Session, query: str, **params: Any) -> list[str]:
    results = search(session, query, **params)["data"]["results"]
    return [hit["source"]["title"] for hit in results]


def scores(result: dict[str, Any]) -> dict[int, float]:
    return {hit["chunk_id"]: hit["score"] for hit in result["data"]["results"]}


# --------------------------------------------------------------------------- scores


def test_dots_between_underscores_are_no_name(session: Session, subtests: pytest.Subtests) -> None:
    session.data("doc.create", title="Signs", text="See __.__ and a built-in word.")
    for query in ("builtin", "__.__ builtin", "__.__"):
        with subtests.test(query=query):
            results = session.data("search", query=query, mode="fts")["results"]
            assert [hit["source"]["title"] for hit in results] == ["Signs"] * ("builtin" in query)


def test_a_score_is_the_sum_of_its_parts(library: Session, subtests: pytest.Subtests) -> None:
    for fusion in ("blend", "rrf"):
        with subtests.test(fusion=fusion):
            for query in ("install git", "backup", "runner", "搜索", "to be", "egg"):
                hybrid = search(library, query, fusion=fusion, limit=100)["data"]["results"]
                assert hybrid and all(None not in hit["score_breakdown"].values() for hit in hybrid)
                words = search(library, query, fusion=fusion, mode="fts")["data"]["results"]
                assert all(hit["score_breakdown"]["vector"] is None for hit in words)
                near = search(library, query, fusion=fusion, mode="vector")["data"]["results"]
                assert near and all(hit["score_breakdown"]["fts"] is None for hit in near)


def test_rank_one_in_both(library: Session) -> None:
    best = search(library, PASSAGES[2][1], fusion="rrf")["data"]["results"][0]
    assert best["score"] == 0.032787
    assert best["score_breakdown"] == {"fts": 0.016393, "vector": 0.016393}


def test_a_score_depends_on_nothing_but_query_and_chunk(library: Session) -> None:
    """Limit, page and filters do not change the score of a hit."""
    for mode in ("hybrid", "fts", "vector"):
        whole = scores(search(library, "install git", mode=mode, limit=100))
        narrower: list[dict[str, Any]] = [
            {"limit": 1},
            {"limit": 3},
            {"offset": 2},
            {"tags": ["git"]},
            {"types": ["text"]},
            {"kb": "default"},
            {"document_ids": [2, 8]},
            {"per_document": 1},
            {"metadata": {"n": 7}},
            {"min_score": 0.01},
        ]
        for more in narrower:
            some = scores(search(library, "install git", mode=mode, **more))
            assert some and some.items() <= whole.items(), (mode, more)


def test_ef_search_decides_how_far_a_graph_is_searched_and_no_score(session: Session) -> None:
    random = Random(3)
    texts = [" ".join(random.choices(WORDS, k=180)) for _ in range(600)]
    session.data("doc.create", title="Many", text="\n\n".join(texts))
    session.embedded()
    vectors = session.store.vectors
    assert vectors is not None
    counted: Any = importlib.import_module("faiss").cvar.hnsw_stats
    scores_by, counts = {}, {}
    for served in ("flat", "graph"):
        vectors.flat_limit = 10_000 if served == "flat" else 100
        assert vectors.fold()
        for ef in (1, 200):
            counted.reset()
            hits = search(session, "git mirror", mode="vector", limit=100, ef_search=ef)
            scores_by[served, ef], counts[served, ef] = scores(hits), counted.ndis
    exact = scores_by["flat", 200]
    assert scores_by["flat", 1] == exact
    assert counts["flat", 200] == 0 < counts["graph", 1] < counts["graph", 200]
    for near in scores_by.values():
        same = near.keys() & exact.keys()
        assert same and all(near[id] == exact[id] for id in same)


def test_up_to_where_ef_search_has_no_effect_is_told() -> None:
    assert f"up to {FLAT_LIMIT:,} chunks" in str(EfSearch)
    for page in ("README.md", "docs/search.md", "docs/reference.md"):
        assert f"p to {FLAT_LIMIT:,} chunks" in " ".join((REPO / page).read_text().split()), page


def test_equals_are_told_apart_by_chunk(session: Session) -> None:
    for n in range(6):
        session.data("doc.create", title="Same", text="the very same words", metadata={"n": n})
    session.embedded()
    for mode in ("hybrid", "fts", "vector"):
        hits = search(session, "same words", mode=mode)["data"]["results"]
        assert len({hit["score"] for hit in hits}) == 1
        assert [hit["chunk_id"] for hit in hits] == sorted(hit["chunk_id"] for hit in hits)


def test_blend_is_absolute(library: Session) -> None:
    """A query on a foreign topic scores low; a passage from the store scores high."""
    score = search(library, PASSAGES[2][1])["data"]["results"][0]["score"]
    unknown = search(library, "quantum chromodynamics")["data"]["results"]
    assert score > 0.5
    assert all(hit["score"] < 0.4 for hit in unknown)


# -------------------------------------------------------------------- totals and pages


def test_totals_are_exact_for_words(library: Session) -> None:
    for query, count in (("install", 4), ("git", 2), ("repository", 2), ("zebra", 0)):
        data = search(library, query, mode="fts", limit=1)["data"]
        assert (data["total_matches"], data["total_is_exact"]) == (count, True), query
    assert search(library, "install", limit=1)["data"]["total_is_exact"] is False


def test_pages_join_to_the_whole(library: Session) -> None:
    for mode in ("hybrid", "fts", "vector"):
        whole = search(library, "install git repository", mode=mode, limit=100)
        hits = whole["data"]["results"]
        assert whole["meta"]["has_more"] is False
        paged: list[Any] = []
        while True:
            page = search(library, "install git repository", mode=mode, limit=3, offset=len(paged))
            paged += page["data"]["results"]
            assert page["data"]["total_matches"] == whole["data"]["total_matches"]
            if not page["meta"]["has_more"]:
                break
        assert paged == hits


def test_beyond_the_last_hit(library: Session) -> None:
    result = search(library, "install", mode="fts", offset=50)
    assert result["data"]["results"] == []
    assert "50" in result["meta"]["hint"]
    assert result["meta"]["has_more"] is False


def test_at_most_so_many_of_one_document(session: Session) -> None:
    long = "\n\n".join(f"Part {n} tells of penguins. " * 40 for n in range(8))
    session.data("doc.create", title="Long", text=long)
    session.data("doc.create", title="Short", text="A word about penguins and much else besides.")
    session.embedded()
    for mode in ("hybrid", "fts", "vector"):
        for most in (1, 2):
            hit_titles = titles(session, "penguins", mode=mode, per_document=most, limit=50)
            assert hit_titles.count("Long") == most
            assert hit_titles.count("Short") == 1


# -------------------------------------------------------------------------- filters


def test_filters(library: Session) -> None:
    by_title: dict[str, tuple[str, dict[str, Any]]] = {
        "Git Guide": ("install", {"tags": ["git"], "metadata": {"n": 0}}),
        "Code": ("parse query", {"types": ["code"], "metadata": {"n": 8}}),
        "中文": ("全文搜索", {"kb": "other", "metadata": {"n": 5}}),
        "Running": ("install", {"document_ids": [8]}),
    }
    for title, (query, params) in by_title.items():
        for mode in ("hybrid", "vector"):
            assert titles(library, query, mode=mode, **params) == [title], mode
    both = titles(library, "install", tags=["git", "sport"], tags_mode="any", limit=100)
    assert set(both) == {"Git Guide", "Setup Notes", "Install", "Running"}
    assert titles(library, "install", tags=["git", "sport"]) == []
    everywhere = titles(library, "install", limit=100)
    assert titles(library, "install", kb=["default", "other"], limit=100) == everywhere
    assert titles(library, "install", created_after="2025-01-01", limit=100) == everywhere
    assert titles(library, "install", created_before="2025-01-01") == []
    assert titles(library, "install", path_prefix="/nowhere") == []
    assert titles(library, "install", min_confidence=50) == [], "only knowledge has confidence"


def test_a_filter_that_admits_most_gives_what_a_list_of_documents_gives(
    open_session: OpenSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The indexes get the few documents that it leaves out, whatever else is hidden or expired."""
    session = open_session()
    session.data("kb.create", slug="other")
    for n in range(12):
        tags, kb = ["all"] if n else [], "other" if n > 8 else "default"
        session.data("doc.create", title=f"T{n}", text="common words", tags=tags, kb=kb)
    store = partial(session.data, "knowledge.store", tags=["all"])
    entries = [store(title=word, body=f"common {word}")["id"] for word in WORDS[:3]]
    session.data("knowledge.supersede", old_id=entries[0], new_id=entries[1])
    session.data("agent.create", slug="ann", kbs=["other"])
    session.embedded()
    ann = session.another("ann")
    for params in ({"tags": ["all"]}, {"tags": ["all"], "kb": "default"}, {"types": ["text"]}):
        for asker in (session, ann):
            for mode in ("fts", "hybrid"):
                if asker is ann and "kb" in params:
                    continue
                hits = search(asker, "common words", mode=mode, limit=50, **params)
                with monkeypatch.context() as patch:
                    patch.setattr(candidates, "_others", lambda *_: None)
                    listed = search(asker, "common words", mode=mode, limit=50, **params)
                assert hits == listed and len(titles(asker, "common words", **params)) >= 3


def test_least_scores(library: Session) -> None:
    for mode in ("hybrid", "fts", "vector"):
        whole = search(library, "install git", mode=mode, limit=100)["data"]["results"]
        middle = whole[len(whole) // 2]["score"]
        data = search(library, "install git", mode=mode, min_score=middle, limit=100)["data"]
        assert data["results"] == [hit for hit in whole if hit["score"] >= middle]
        assert data["total_matches"] == len(data["results"])
    near = search(library, "install git", mode="vector", limit=100)["data"]["results"]
    least = near[1]["score"]
    near_titles = titles(library, "install git", mode="hybrid", min_similarity=least, limit=100)
    assert set(near_titles) == {hit["source"]["title"] for hit in near if hit["score"] >= least}
    hint = search(library, "install git", min_score=0.5, fusion="rrf")["meta"]["hint"]
    assert "0.032787" in hint, "no score of that fusion can reach it"


# ------------------------------------------------------------------------ the query


def test_phrases_and_excluded_words_hold_in_every_mode(library: Session) -> None:
    for mode in ("hybrid", "fts", "vector"):
        assert titles(library, '"latest version" install', mode=mode) == ["Git Guide"]
        hit_titles = titles(library, "install git -archive", mode=mode, limit=100)
        assert "Git Guide" not in hit_titles and "Setup Notes" in hit_titles
        assert "Setup Notes" not in titles(
            library, 'install -"package manager"', mode=mode, limit=100
        )


def test_a_phrase_is_found_however_far_its_vector(session: Session) -> None:
    """The vector ranks the text behind hundreds of others; the phrase still finds it."""
    text = "\n\n".join(
        f"Chapter {n} about penguins. " + "Penguins swim far. " * 40 for n in range(260)
    )
    session.data("doc.create", title="Birds", text=text)
    session.data("doc.create", title="Odd", text="zx qv jk " * 20 + "purple hovercraft eels")
    session.embedded()
    assert session.data("status")["total_chunks"] > 220
    query = 'penguins swim far chapter "purple hovercraft"'
    for mode in ("hybrid", "fts", "vector"):
        assert titles(session, query, mode=mode) == ["Odd"], mode


def test_words_in_other_forms_and_scripts(library: Session) -> None:
    for query, title in (
        ("runs", "Running"),
        ("mirroring", "Backup"),
        ("cafe resume", "Naïve Café"),
        ("ZURICH", "Naïve Café"),
        ("souffle", "Cooking"),
        ("全文搜索", "中文"),
        ("图书", None),
        ("図書館", "日本語"),
        ("検索", "日本語"),
        ("parse query", "Code"),
        ("parsequery", "Code"),
        ("C++", "Errors"),
        ("e1234-x", "Errors"),
        ("bar_baz", "Errors"),
        ("to be", "Stop"),
    ):
        hit_titles = titles(library, query, mode="fts")
        assert (hit_titles[0] if hit_titles else None) == title, query


def test_the_title_is_searched_too(session: Session) -> None:
    session.data("doc.create", title="Cooking", text="Fold the egg whites.")
    assert titles(session, "cooking", mode="fts") == ["Cooking"]
    session.data("doc.update", id=1, title="Baking")
    assert titles(session, "cooking", mode="fts") == []
    assert titles(session, "baking", mode="fts") == ["Baking"]


def test_no_query_is_a_syntax_error(library: Session) -> None:
    for query in (
        '"',
        '""',
        '"unbalanced',
        "-",
        "--",
        "-git",
        '-"a b"',
        "a AND (b OR",
        "field:value",
        "*",
        "?",
        "~1",
        "^2",
        "[a TO b]",
        "\\",
        "/re/",
        "{}",
        "'",
        "a'b",
        "; drop table chunks",
        "\u0000",
        "\u202e",
        "🎉",
        " ",
        "\n\t",
        "a" * 2000,
        "的" * 2000,
        "- - -",
        '" - "',
        "+must",
        "\ufeff",
        "%s %d",
        "\u200b",
        "́",
        "a\u0301",
        "NOT git",
        "git~",
        "title:git",
        "😀😀",
        "-😀",
    ):
        for mode in ("hybrid", "fts", "vector"):
            search(library, query, mode=mode)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(query=st.text(min_size=1, max_size=40), mode=st.sampled_from(["hybrid", "fts", "vector"]))
def test_any_text_is_a_query(session: Session, query: str, mode: str) -> None:
    if not session.data("status")["total_documents"]:
        session.data("doc.create", title="A", text=PASSAGES[0][1])
    search(session, query, mode=mode, explain=True)


def test_queries_out_of_range(session: Session) -> None:
    for params, field in (
        ({"query": ""}, "query"),
        ({"query": "a" * 2001}, "query"),
        ({"query": "a", "limit": 0}, "limit"),
        ({"query": "a", "limit": 101}, "limit"),
        ({"query": "a", "offset": -1}, "offset"),
        ({"query": "a", "mode": "magic"}, "mode"),
        ({"query": "a", "min_score": 1.1}, "min_score"),
        ({"query": "a", "ef_search": 0}, "ef_"),
        ({"query": "a", "tags": ["?"]}, "tags[0]"),
        ({"query": "a", "limit": 1.5}, "limit"),
        ({"query": "a", "snippet_chars": 5}, "snippet_chars"),
        ({"query": "a", "text_chars": 5}, "text_chars"),
        ({"query": "a", "q": 1}, "q"),
    ):
        error = session.error("search", **params)
        assert error["type"] == "input.invalid_params"
        assert error["field"].startswith(f"$.params.{field}")


# ------------------------------------------------------------------- hints, no model


def test_why_there_is_no_hit(session: Session) -> None:
    def hint(query: str, **params: Any) -> str:
        result = search(session, query, **params)
        assert result["data"]["results"] == []
        return str(result["meta"]["hint"])

    assert "empty" in hint("git")
    session.data("doc.create", title="A", text="alpha beta", tags=["x"])
    session.embedded()
    assert "zebra" in hint("zebra", mode="fts")
    assert "filters" in hint("alpha", tags=["nope"])
    session.data("doc.create", title="B", text="gamma", tags=["y"])
    assert "filters exclude" in hint("alpha", mode="fts", tags=["y"])
    assert "leave out" in hint("-alpha", mode="fts")
    assert "min_score" in hint("alpha", mode="fts", min_score=1.0)
    assert "no letter" in hint("!!!", mode="fts")
    meta = search(session, '"alpha beta" -alpha', mode="fts")["meta"]
    assert meta["notice"] == ["Every match contains “alpha”, so nothing was excluded."]


@pytest.mark.parametrize("model", ["none", "onnx"])
def test_without_a_model_hybrid_is_words_and_says_so(open_session: OpenSession, model: str) -> None:
    session = open_session(model=model)
    session.data("doc.create", title="A", text="alpha beta")
    hybrid, words = search(session, "alpha"), search(session, "alpha", mode="fts")
    assert hybrid["data"]["results"] == words["data"]["results"]
    assert hybrid["data"]["results"][0]["score_breakdown"]["vector"] is None
    assert hybrid["meta"]["notice"] and "notice" not in words["meta"]
    error = session.error("search", query="alpha", mode="vector")
    assert (error["type"], error["field"]) == ("model.unavailable", "$.params.mode")


def test_a_pending_chunk_takes_part_with_no_vector(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.data("doc.create", title="Old", text="alpha beta gamma")
    session.embedded()
    embed, goes_on = HashEmbedder.embed, threading.Event()

    def slow(self: HashEmbedder, text: str) -> Any:
        assert "New" not in text or goes_on.wait(PATIENCE)
        return embed(self, text)

    monkeypatch.setattr(HashEmbedder, "embed", slow)
    session.data("doc.create", title="New", text="alpha beta gamma")
    try:
        result = search(session, "alpha beta")
        freshness = result["meta"]["freshness"]
        assert freshness["pending_embeddings"] == 1
        assert freshness["vector_seq"] < freshness["seq"] == freshness["fulltext_seq"]
        old, new = sorted(result["data"]["results"], key=lambda hit: hit["chunk_id"])
        assert new["score_breakdown"]["vector"] is None
        fulltext = new["score_breakdown"]["fts"]
        assert new["score"] == fulltext == old["score_breakdown"]["fts"]
        assert titles(session, "alpha", mode="vector") == ["Old"]
    finally:
        goes_on.set()


@pytest.mark.parametrize("fusion", ["blend", "rrf"])
def test_while_vectors_are_missing_it_is_told_and_less_is_claimed(
    session: Session, monkeypatch: pytest.MonkeyPatch, fusion: str
) -> None:
    """The store is judged as a large one is, whose best cosine says little."""
    monkeypatch.setattr(probability, "_FEWEST_CHUNKS", 10_000)
    session.data("doc.create", title="Old", text="alpha beta zeta eta theta iota")
    session.embedded()
    embed, goes_on = HashEmbedder.embed, threading.Event()

    def slow(self: HashEmbedder, text: str) -> Any:
        assert "New" not in text or goes_on.wait(PATIENCE)
        return embed(self, text)

    monkeypatch.setattr(HashEmbedder, "embed", slow)
    filler = " ".join(f"word{n}" for n in range(60))
    session.data("doc.create", title="New", text=f"alpha {filler} beta gamma delta {filler}")
    query = "alpha beta gamma delta"
    try:
        result = search(session, query, fusion=fusion)
        assert result["meta"]["notice"] == ["1 of 2 passages is found by words only as yet."]
        assert titles(session, query, fusion=fusion)[0] == "Old"
        words_only = search(session, query, mode="fts", fusion=fusion)
        assert result["data"]["confidence"] == words_only["data"]["confidence"] == "likely"
        assert "notice" not in words_only["meta"]
        unknown = search(session, "beta quokka zyzzyva wocky umlaut jabber plover", fusion=fusion)
        assert unknown["data"]["confidence"] == "none"
        assert "know nothing" not in unknown["meta"]["hint"] and "%" not in unknown["meta"]["hint"]
        assert "can't be found by meaning yet" in unknown["meta"]["hint"]
    finally:
        goes_on.set()
    session.embedded()
    assert "notice" not in search(session, query)["meta"]


# ------------------------------------------------------- whether there is an answer


def test_a_question_that_the_store_can_answer(library: Session, subtests: pytest.Subtests) -> None:
    for mode in ("hybrid", "fts", "vector"):
        with subtests.test(mode=mode):
            result = search(library, PASSAGES[2][1], mode=mode)
            assert result["data"]["confidence"] == "likely"
            assert "hint" not in result["meta"]


def test_a_question_that_it_can_not(library: Session, subtests: pytest.Subtests) -> None:
    for fusion in ("blend", "rrf"):
        for mode in ("hybrid", "fts", "vector"):
            with subtests.test(fusion=fusion, mode=mode):
                # No vector is near.
                query = "quokka zyzzyva daily umlaut zork wocky garply jabber yonder fnord"
                result = search(library, query, mode=mode, fusion=fusion)
                assert result["data"]["confidence"] == "none"
                assert result["data"]["results"], "that a word matches is told all the same"
                hint = result["meta"]["hint"]
                assert "know nothing" in hint and "quokka, zyzzyva" in hint and "daily" not in hint


def test_gibberish_is_known_as_such(library: Session) -> None:
    result = search(library, "asdfgh qwertz yxcvbn")
    assert result["data"]["confidence"] == "none"
    assert "asdfgh" in result["meta"]["hint"]


def test_the_total_counts_every_chunk_that_a_word_matches(session: Session) -> None:
    documents = [{"title": f"T{n}", "text": f"alpha number {n}"} for n in range(130)]
    for document in documents:
        session.data("doc.create", **document)
    session.embedded()
    exact = search(session, "alpha", mode="fts")["data"]["total_matches"]
    assert exact == 130
    assert search(session, "alpha")["data"]["total_matches"] >= exact


def test_a_phrase_that_is_nowhere_counts_as_words(library: Session) -> None:
    bound = search(library, '"install the latest"')
    assert [hit["source"]["title"] for hit in bound["data"]["results"]] == ["Git Guide"]
    for mode in ("hybrid", "fts", "vector"):
        loose = search(library, '"git latest install"', mode=mode)
        assert "Git Guide" in [hit["source"]["title"] for hit in loose["data"]["results"]]
        assert "contains the phrase “git latest install”" in loose["meta"]["notice"][0]
    both = search(library, '"fetch the archive" "no such thing"', mode="fts")
    assert [hit["source"]["title"] for hit in both["data"]["results"]] == ["Git Guide"]


def test_what_is_left_out_is_said(library: Session) -> None:
    result = search(library, "install git -repository", mode="fts")
    assert "“repository” are excluded" in result["meta"]["hint"]
    option = search(library, "install -y git -rf", mode="fts")
    assert "left out" not in option["meta"].get("hint", "")
    assert (
        option["data"]["total_matches"]
        == search(library, "install git", mode="fts")["data"]["total_matches"]
    )


# ------------------------------------------------------------------- what is shown


def test_a_hit_says_where_it_stands(library: Session) -> None:
    hit = search(library, "egg whites soufflé", limit=1)["data"]["results"][0]
    assert hit["source"] == {
        "document_id": 4,
        "title": "Cooking",
        "path": None,
        "type": "text",
        "page": None,
        "section": None,
        "chunk_index": 0,
        "total_chunks": 1,
        "tags": ["food"],
        "kb": "default",
        "page_end": None,
        "start_line": 1,
        "end_line": 1,
        "cite": "Cooking",
        "stored_at": "2026-01-01T00:00:00.000Z",
        "dated": "2026-01-01, today",
    }
    assert hit["text"] == PASSAGES[3][1]
    marked = [hit["snippet"][start:end] for start, end in hit["highlights"]]
    assert marked == ["egg", "whites", "soufflé"]
    assert (hit["confidence"], hit["expires_at"], hit["superseded_by"]) == (None, None, None)
    assert "explain" not in hit
    plain = search(library, "egg whites soufflé", limit=1, highlight=False)["data"]["results"][0]
    assert plain["highlights"] == []


def test_an_explanation_adds_up(library: Session) -> None:
    for mode in ("hybrid", "fts"):
        for hit in search(library, "install git", mode=mode, explain=True)["data"]["results"]:
            explained = hit["explain"]
            weights = sum(term["weight"] for term in explained["fts"]["terms"])
            assert weights == pytest.approx(explained["fts"]["bm25"] or 0.0, abs=1e-4)
            share = (explained["fts"]["bm25"] or 0.0) / explained["fts"]["bound"]
            factor = explained["formula"]["fts_weight"] if mode == "hybrid" else 1.0
            assert hit["score_breakdown"]["fts"] == pytest.approx(factor * share, abs=1e-5)
            if mode == "hybrid":
                cosine = max(0.0, explained["vector"]["cosine"])
                expected = explained["formula"]["vector_weight"] * cosine
                assert hit["score_breakdown"]["vector"] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("fluency_factor", [0.7, 0.5, 0.1])
def test_a_vector_of_a_language_that_the_model_lacks_weighs_little(
    library: Session, monkeypatch: pytest.MonkeyPatch, fluency_factor: float
) -> None:
    query = "установить git"  # half of the letters are not Latin
    fluency = Fluency(tokens=4.0, factor=fluency_factor)
    monkeypatch.setattr(HashEmbedder, "fluency", lambda self, text, is_foreign: fluency)
    result = search(library, query, limit=100, explain=True)
    assert bool(result["meta"].get("notice")) == (fluency_factor < 0.5)
    for hit in result["data"]["results"]:
        words, meaning = hit["score_breakdown"]["fts"], hit["score_breakdown"]["vector"]
        cosine, by_words = hit["explain"]["vector"]["cosine"], hit["explain"]["fts"]
        share = (by_words["bm25"] or 0) / by_words["bound"]
        assert meaning == pytest.approx(max(0, cosine) * 0.4 * fluency_factor, abs=2e-6)
        assert words == pytest.approx(share * (1 - 0.4 * fluency_factor), abs=2e-6)
        formula = hit["explain"]["formula"]
        assert formula["fts_weight"] + formula["vector_weight"] == pytest.approx(1)
        assert hit["explain"]["vector"]["fluency"]["factor"] == fluency_factor


def test_a_search_tells_the_position_it_reflects(session: Session) -> None:
    session.data("doc.create", title="A", text="alpha")
    result = search(session, "alpha")
    meta = result["meta"]
    assert meta["schema"] == "search/1"
    assert meta["seq"] == meta["freshness"]["seq"] == session.store.seq
    later = session.error("search", query="alpha", min_seq=99, timeout_ms=0)
    assert (later["type"], later["exit_code"]) == ("operation.timeout", 4)


def test_the_same_question_has_the_same_answer(library: Session) -> None:
    first = library.ask("search", query="install git", explain=True)
    assert all(library.ask("search", query="install git", explain=True) == first for _ in range(5))
    assert json.dumps(first, ensure_ascii=False).count("NaN") == 0


# ------------------------------------------------ what codes of vectors leave out is of no interest

COMMON = tuple(
    f"{a}{b}" for a in ("ba", "ko", "ti", "lu", "me") for b in ("ran", "sol", "dek", "pim")
)


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """A store with enough chunks for codes; each word is in more chunks than a search ranks."""
    folder, random = tmp_path_factory.mktemp("crowded"), Random(8)
    session = Session(folder / "store", cwd=folder)
    session.data("kb.create", slug="other")
    documents = [
        {
            "title": f"Text {number}",
            "text": " ".join(random.choices(COMMON, k=random.choice((3, 8, 30)))),
            "tags": [f"t{number % 3}"],
        }
        for number in range(1_400)
    ]
    session.data("doc.create", documents=documents[:1000])
    session.data("doc.create", documents=documents[1000:1200], kb="other")
    session.data("doc.create", documents=documents[1200:])
    session.embedded()
    hidden = {"ids": list(range(40, 60))}
    plan = session.error("doc.delete", **hidden)["plan"]
    session.data("doc.delete", **hidden, confirm=plan["plan_hash"])
    yield session
    assert {name: wrong for name, wrong in doctor.compare(session.store).items() if wrong} == {}
    session.close()


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"limit": 1},
        {"limit": 40, "offset": 35},
        {"limit": 100},
        {"kb": "other"},
        {"tags": ["t1"]},
        {"min_score": 0.2},
        {"min_similarity": 0.2},
        {"explain": True},
        {"fusion": "rrf"},
        {"mode": "vector"},
        {"per_document": 1},
        {"document_ids": list(range(301, 1_301))},
    ],
    ids=lambda params: next(iter(params), "default"),
)
def test_codes_of_vectors_change_no_answer(
    crowded: Session, monkeypatch: pytest.MonkeyPatch, params: dict[str, Any]
) -> None:
    exact: Any = importlib.import_module("kbproc.engine.models.exact")
    random, looked_at = Random(str(params)), list[int]()
    bounds = exact.Codes.bounds

    def seen(*args: Any) -> Any:
        result = bounds(*args)
        looked_at.append(result is not None)
        return result

    monkeypatch.setattr(exact.Codes, "bounds", seen)
    queries = [" ".join(random.sample(COMMON, size)) for size in (1, 1, 2, 2, 3, 3, 5, 8)]
    queries += [
        f"{queries[2]} -{COMMON[3]}",
        f'"{COMMON[1]} {COMMON[2]}" {COMMON[7]}',
        "unheard of",
    ]
    with_codes = [search(crowded, query, **params) for query in queries]
    assert sum(looked_at) >= len(queries) - 3 or {"tags", "kb"} & {*params}
    monkeypatch.setattr(exact, "_MANY", len(COMMON) * 1_000)
    without = [search(crowded, query, **params) for query in queries]
    assert [answer["data"] for answer in with_codes] == [answer["data"] for answer in without]


# -------------------------------------------------------- the search itself, without a wire

BIRDS = [
    "A heron stands in the reeds. " * 30,
    "A heron flies over the lake, a grey heron.",
    "The lake freezes in winter, and the heron leaves for the river.",
    "A grey heron flies over the lake.",
    "Reeds grow beside the lake. " * 12,
]
NOW = "2026-06-01T00:00:00.000Z"


@pytest.fixture(scope="module")
def birds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """Documents of one and of many chunks, and entries of which some do not hold."""
    folder = tmp_path_factory.mktemp("birds")
    session = Session(folder / "store", cwd=folder)
    session.data("doc.create", title="Long", text="\n\n".join(f"{n}. {BIRDS[0]}" for n in range(6)))
    for number, text in enumerate(BIRDS[1:]):
        session.data("doc.create", title=f"Bird {number}", text=text)
    for title, more in (("Old", {}), ("New", {}), ("Brief", {"expires_at": "2027-01-01"})):
        session.data("knowledge.store", title=title, body=f"{title}: a heron is here.", **more)
    session.data("knowledge.supersede", old_id=6, new_id=7)
    session.embedded()
    yield session
    session.close()


def searched(session: Session, now: str = NOW, **params: Any) -> SearchAnswer:
    search = Search(**{"query": "grey heron lake", "limit": 100, "text": True, **params})
    return run(session.store, search, now=now)


def ids_of(answer: SearchAnswer) -> list[int]:
    return [hit.chunk_id for hit in answer.results.results]


@given(
    most=st.integers(1, 4),
    offset=st.integers(0, 4),
    limit=st.integers(1, 6),
    mode=st.sampled_from(["hybrid", "fts", "vector"]),
    fusion=st.sampled_from(["blend", "rrf"]),
)
def test_thinned_pages_are_cut_from_the_whole_ranking(
    birds: Session, most: int, offset: int, limit: int, mode: str, fusion: str
) -> None:
    shape = {"mode": mode, "fusion": fusion}
    counts: dict[int, int] = {}
    thinned = []
    for hit in searched(birds, **shape).results.results:
        document = hit.source.document_id
        counts[document] = counts.get(document, 0) + 1
        thinned += [hit.chunk_id] if counts[document] <= most else []
    page = searched(birds, **shape, per_document=most, offset=offset, limit=limit)
    assert ids_of(page) == thinned[offset : offset + limit]
    assert page.has_more == (len(thinned) > offset + limit)


@given(chars=st.integers(20, 1500), limit=st.integers(1, 12))
def test_texts_share_their_room(birds: Session, chars: int, limit: int) -> None:
    """Short texts stay whole and leave their room to long ones, which are cut alike."""
    whole = searched(birds, limit=limit).results.results
    cut = searched(birds, limit=limit, text_chars=chars).results.results
    room, lengths = chars * len(whole), [len(hit.text) for hit in whole]
    share = max(n for n in range(max(lengths) + 1) if sum(min(n, one) for one in lengths) <= room)
    for before, after in zip(whole, cut, strict=True):
        assert after.chunk_id == before.chunk_id
        assert len(after.text) <= share
        assert after.text == before.text or len(before.text) > share


def test_the_evidence_is_the_same_however_hits_are_ordered_and_paged(
    birds: Session, subtests: pytest.Subtests
) -> None:
    for mode in ("hybrid", "fts", "vector"):
        with subtests.test(mode=mode):
            best = searched(birds, mode=mode)
            assert best.evidence.chance > 0
            for more in ({"fusion": "rrf"}, {"offset": 3}, {"limit": 1}, {"per_document": 1}):
                assert searched(birds, mode=mode, **more).evidence == best.evidence, more


def test_entries_that_do_not_hold_are_found_on_request_only(birds: Session) -> None:
    def titles(now: str = NOW, **params: Any) -> set[str]:
        hits = searched(birds, now, types=["knowledge"], query="heron", **params)
        return {hit.source.title for hit in hits.results.results}

    assert titles() == {"New", "Brief"}
    assert titles("2027-01-01T00:00:00.000Z") == {"New"}
    assert titles("2028-01-01T00:00:00.000Z", include_expired=True) == {"New", "Brief"}
    assert titles(include_superseded=True) == {"Old", "New", "Brief"}


def test_a_superseded_entry_names_the_end_of_its_chain(birds: Session) -> None:
    hits = searched(birds, include_superseded=True).results.results
    heads = {hit.source.title: hit.head for hit in hits if hit.superseded_by is not None}
    assert heads == {"Old": 7}


def test_least_similarity_leaves_out_hits_that_are_far(
    birds: Session, subtests: pytest.Subtests
) -> None:
    for least in (0.0, 0.05, 0.2, 0.4, 1.0):
        with subtests.test(least=least):

            def cosine(hit: Any) -> float:
                number = hit.explain["vector"]["cosine"]
                return -1.0 if number is None else float(number)

            whole = searched(birds, explain=True).results.results
            near = searched(birds, explain=True, min_similarity=least)
            assert ids_of(near) == [hit.chunk_id for hit in whole if cosine(hit) >= least]
            assert near.results.total_matches == len(near.results.results)
