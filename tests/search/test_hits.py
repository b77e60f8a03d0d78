"""Hits: their cites, the explanation of a score, and how people see them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from kbproc.base.text.passage import Mark
from kbproc.base.text.snippet import Snippet
from kbproc.engine.models.calibration import UNSCALED, Scale
from kbproc.engine.models.fluency import FLUENT
from kbproc.engine.projections.catalog.rows import HitRow, marks_column
from kbproc.engine.projections.fulltext.search import TermMatch
from kbproc.knowledge.search import fusion
from kbproc.knowledge.search.candidates import Candidate
from kbproc.knowledge.search.hits import Hit, as_hits, explanation, hit_of, title_of
from kbproc.knowledge.search.probability import Evidence

NOW = "2026-01-01T00:00:00.000Z"
TEXT = "first line\nsecond line\nthird line"
SECOND = (11, 22)  # the characters of the second line
WHOLE = Snippet(TEXT, [], None)


def hit(row: HitRow, excerpt: Snippet = WHOLE, **more: Any) -> Hit:
    options = {"now": NOW, "rerank": None, "repeated": None, "explain": UNSET, **more}
    return hit_of(fusion.Fused(0.5, 0.3, 0.2), row, excerpt, **options)


def row(**members: Any) -> HitRow:
    times = {"created_at": NOW, "updated_at": NOW}
    fixed = {"chunk_id": 7, "document_id": 3, "kb": "default", "text": TEXT, **times}
    return HitRow(**{**fixed, "title": "T", "section": None, **members})


def of_lines(page: int | None = None, section: str | None = None) -> str | None:
    """Returns the marks of a text whose first line is line 10 of its file."""
    return marks_column([Mark(0, page, section, 10)])


# --------------------------------------------------------------------------- cites


def test_a_cite_names_the_place_that_people_look_up(subtests: pytest.Subtests) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({}, "T"),
        ({"type": "knowledge", "section": "S", "page": 2}, "T"),
        ({"page": 3}, "T, p. 3"),
        ({"type": "slides", "page": 3}, "T, slide 3"),
        ({"page": 3, "section": "S"}, "T, p. 3"),
        ({"section": "S"}, "T, § S"),
        ({"path": "/a", "marks": of_lines()}, "T, lines 10–12"),
        ({"path": "/a", "marks": of_lines(), "type": "table"}, "T, rows 10–12"),
        ({"url": "http://a", "marks": of_lines()}, "T"),
        ({"path": "/a", "section": "S", "marks": of_lines()}, "T, § S"),
        (
            {"path": "/a", "section": "S", "marks": of_lines(), "type": "code"},
            "T, § S, lines 10–12",
        ),
        ({"path": "/a", "marks": of_lines(page=4)}, "T, p. 4"),
    ]
    for members, cite in cases:
        with subtests.test(cite=cite):
            assert hit(row(**members)).source.cite == cite


def test_a_cite_gives_first_and_last_page() -> None:
    marks = marks_column([Mark(0, 3), Mark(SECOND[0], 4)])
    assert hit(row(marks=marks)).source.cite == "T, pp. 3–4"
    assert hit(row(marks=marks, type="slides")).source.cite == "T, slides 3–4"


def test_the_place_is_that_of_the_best_passage() -> None:
    marks = marks_column([Mark(0, 3, "A", 10), Mark(SECOND[0], 4, "B", 20)])
    chunk = row(marks=marks, page=3, section="A", path="/a")
    best = hit(chunk, Snippet("second line", [(0, 6)], SECOND)).source
    assert (best.page, best.section, best.start_line, best.end_line) == (4, "B", 20, 20)
    whole = hit(chunk).source
    assert (whole.page, whole.page_end, whole.section) == (3, 4, "A")


def test_the_section_of_a_hit_without_a_passage_is_that_of_its_chunk() -> None:
    marks = marks_column([Mark(0, None, "of the mark")])
    assert hit(row(marks=marks, section="of the chunk")).source.section == "of the chunk"


def test_a_hit_has_its_rows_members_and_only_optional_ones_that_say_something() -> None:
    plain = hit(row(url="http://a", idx=2, chunk_count=5, kb="team"))
    assert (plain.chunk_id, plain.text, plain.source.document_id) == (7, TEXT, 3)
    assert (plain.source.path, plain.source.kb) == ("http://a", "team")
    assert (plain.source.chunk_index, plain.source.total_chunks) == (2, 5)
    assert (plain.head, plain.repeated_by, plain.score_breakdown.rerank) == (UNSET,) * 3
    judged = hit(row(superseded_by=8, head=9), rerank=0.5, repeated=[8])
    assert (judged.head, judged.repeated_by, judged.score_breakdown.rerank) == (9, [8], 0.5)


# --------------------------------------------------------------------- explanation


EVIDENCE = Evidence(chance=0.5, words=0.5, together=0.4, matched=0.5, cosine=0.4, chunks=1000)


def explained(**more: Any) -> dict[str, Any]:
    options: dict[str, Any] = {
        "bound": 4.0,
        "weights": fusion.Weights(),
        "fluency": FLUENT,
        "scale": UNSCALED,
        "stress": None,
        "time": None,
        "speech": None,
        "evidence": EVIDENCE,
        "by_rank": False,
        "judgement": None,
        "sees_all": True,
        **more,
    }
    candidate = Candidate(chunk_id=7, bm25=2.0, cosine=0.4, fts_rank=1, vector_rank=2)
    return explanation(candidate, [TermMatch("heron", "stem", 3.5, 1.0, 2.0)], **options)


def test_a_caller_who_sees_a_part_learns_nothing_about_hidden_texts() -> None:
    """Counts and rarities of words are those of all texts, hidden ones among them."""
    whole, part = explained(), explained(sees_all=False)
    assert whole["fts"]["bound"] == 4.0
    assert whole["evidence"]["chunks"] == 1000
    assert whole["fts"]["terms"][0]["idf"] == 3.5
    assert "bound" not in part["fts"]
    assert part["fts"]["terms"] == [{"word": "heron", "form": "stem"}]
    assert part["evidence"].keys() == {"chance", "cosine"}


def test_a_formula_is_the_one_that_made_the_score() -> None:
    assert explained()["formula"] == {"fusion": "blend", "fts_weight": 0.6, "vector_weight": 0.4}
    assert explained(by_rank=True)["formula"] == {"fusion": "rrf", "k": fusion.RRF_K}


def test_only_factors_that_took_part_are_explained() -> None:
    plain = explained()
    assert {"rerank", "stress", "time"}.isdisjoint(plain)
    assert "scale" not in plain["vector"]
    scaled = explained(scale=Scale(low=0.2, span=0.8))
    assert scaled["vector"]["scale"] == {"low": 0.2, "span": 0.8}


# ---------------------------------------------------------------------- for people


def results(count: int, *, total: int | None = None, confidence: str = "likely") -> dict[str, Any]:
    source: dict[str, Any] = {"document_id": 3, "title": "T", "type": "text", "section": None}
    source |= {"tags": [], "path": None, "dated": "2026-01-01, today"}
    hits = [
        {
            "chunk_id": n,
            "score": 0.5,
            "snippet": "s",
            "highlights": [],
            "source": source,
            "origin": "user",
        }
        for n in range(count)
    ]
    matches = count if total is None else total
    return {
        "query": "q",
        "results": hits,
        "total_matches": matches,
        "confidence": confidence,
    }


@given(count=st.integers(0, 30), more=st.integers(0, 5), offset=st.integers(0, 40))
def test_the_head_counts_what_is_below_it(count: int, more: int, offset: int) -> None:
    layout = as_hits(results(count, total=offset + count + more), {"offset": offset})
    first, last = layout.first, layout.first + len(layout.hits) - 1
    assert (first, len(layout.hits)) == (offset + 1, count)
    numbers = f"top {count}" if not offset else f"{first}–{last}" if count > 1 else f"{first}"
    assert layout.head is not None
    assert layout.head.endswith(f", showing {numbers})" if count else ("match)", "matches)"))


def test_few_weak_hits_are_shown_unless_a_person_asks(subtests: pytest.Subtests) -> None:
    cases: list[tuple[dict[str, int], int]] = [({}, 3), ({"limit": 9}, 5), ({"offset": 0}, 5)]
    for params, count in cases:
        with subtests.test(count=count):
            hits = as_hits(results(5, confidence="none"), params)
            assert len(hits.hits) == count
            tail = "; --limit 5 shows 2 more" if count == 3 else ""
            assert hits.head == f'Search: "q" (5 weak matches, showing top {count}{tail})'


def entry_of(**members: Any) -> dict[str, Any]:
    reply = results(1)
    source = {**reply["results"][0]["source"], "type": "knowledge", "tags": ["a", "b"]}
    facts = {"confidence": 80, "expires_at": None, "superseded_by": None, **members}
    reply["results"] = [{**reply["results"][0], **facts, "source": source}]
    return reply


def test_an_entry_says_whether_it_holds() -> None:
    past = "2020-01-01T00:00:00.000Z"
    [expired] = as_hits(entry_of(expires_at=past), {}).hits
    facts = "#3, confidence 80, expired 2020-01-01 00:00Z"
    assert expired.labels == f" [knowledge] [a, b] {facts}"
    [then] = as_hits(entry_of(expires_at=past), {"as_of": 4}).hits
    assert then.labels.endswith("confidence 80, expires 2020-01-01 00:00Z")
    [valid] = as_hits(entry_of(expires_at="2999-01-01T00:00:00.000Z", superseded_by=9), {}).hits
    assert valid.labels.endswith("superseded by 9, expires 2999-01-01 00:00Z")


def test_titles_have_page_and_section(subtests: pytest.Subtests) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({}, "T"),
        ({"page": 3}, "T (p.3)"),
        ({"page": 3, "page_end": 3}, "T (p.3)"),
        ({"page": 3, "page_end": 4}, "T (p.3–4)"),
        ({"section": "S"}, "T §S"),
        ({"page": 3, "section": "S"}, "T (p.3) §S"),
    ]
    for members, title in cases:
        with subtests.test(title=title):
            assert title_of({"title": "T", "section": None, **members}) == title
