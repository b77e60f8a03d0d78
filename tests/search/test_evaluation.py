"""An evaluation reads a collection, asks its questions, and reports what the rankings give."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kbproc.base.errors import KbprocError
from kbproc.knowledge.search.evaluation import told as figures
from kbproc.knowledge.search.evaluation.asking import EvaluationStore, Ranking
from kbproc.knowledge.search.evaluation.collection import (
    Collection,
    CollectionDocument,
    Question,
    read,
)

# ------------------------------------------------------------------ collections


def lines(*rows: dict[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def test_a_beir_folder_gives_documents_and_the_questions_that_have_judgements(
    tmp_path: Path,
) -> None:
    write(
        tmp_path,
        corpus_jsonl=lines({"_id": "d1", "title": None, "text": "One"}) + "\n",
        queries_jsonl=lines({"_id": "q1", "text": "One?"}, {"_id": "q2", "text": "Two?"}),
        qrels__test_tsv="query\tdocument\tgain\nq1\td1\t2\nq1\td9\t0\n",
    )
    (tmp_path / "queries-unanswerable.jsonl").write_text(lines({"_id": "u", "text": "None?"}))
    collection = read(tmp_path)
    assert collection == Collection(
        tmp_path.name,
        [CollectionDocument("d1", "", "One")],
        [Question("q1", "One?", {"d1": 2.0, "d9": 0.0}), Question("u", "None?", {})],
    )


def test_a_folder_of_files_names_its_answers_by_their_paths(tmp_path: Path) -> None:
    text = lines({"question": "How?", "answers": ["guide/install.md"]}, {"question": "Why?"})
    write(tmp_path, questions_jsonl=text, guide__install_md="# Install")
    collection = read(tmp_path)
    assert (collection.folder, collection.documents) == (tmp_path, [])
    assert collection.questions == [
        Question("1", "How?", {"guide/install.md": 1.0}),
        Question("2", "Why?", {}),
    ]


def test_each_question_of_longmemeval_has_a_part_of_its_own(tmp_path: Path) -> None:
    row = {
        "question_id": "a",
        "question": "Which tea?",
        "haystack_session_ids": ["s1"],
        "haystack_dates": ["2026-01-02"],
        "haystack_sessions": [[{"role": "user", "content": "Tea."}, {"role": "x", "content": "!"}]],
        "answer_session_ids": ["s1"],
    }
    path = tmp_path / "memory.json"
    path.write_text(json.dumps([row, {**row, "question_id": "b_abs"}]))
    collection = read(path)
    assert collection.name == "memory"
    assert collection.documents == [
        CollectionDocument(f"{part}/s1", "Session of 2026-01-02", "user: Tea.\n\nx: !", part)
        for part in ("q1", "q2")
    ]
    assert collection.questions == [
        Question("q1", "Which tea?", {"q1/s1": 1.0}, "q1"),
        Question("q2", "Which tea?", {}, "q2"),
    ]


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({}, "holds no collection of documents and questions."),
        ({"corpus_jsonl": ""}, "can't be read as a collection: qrels.tsv is not there."),
        (
            {"questions_jsonl": '{"answers": []}\n'},
            "can't be read as a collection: question is missing.",
        ),
        (
            {"questions_jsonl": '{"question": "How?", "answers": ["gone.md"]}'},
            "can't be read as a collection: question 1 names gone.md, which is no file there.",
        ),
        ({"questions_jsonl": "[1]"}, "can't be read as a collection: Expected `object`"),
    ],
)
def test_a_folder_without_a_collection_is_refused(
    tmp_path: Path, files: dict[str, str], problem: str
) -> None:
    with pytest.raises(KbprocError) as refusal:
        read(write(tmp_path, **files))
    error = refusal.value
    assert (error.type, error.field) == ("input.invalid_params", "DIR")
    assert error.message.startswith(f"{tmp_path} {problem}")
    assert error.hint is not None and "BEIR" in error.hint


# ---------------------------------------------------------------------- asking


class Server:
    """Answers the requests of an evaluation from these hits, and keeps the requests."""

    def __init__(self, hits: list[dict[str, Any]], meta: dict[str, Any] | None = None) -> None:
        self.hits, self.meta = hits, meta or {}
        self.folder = Path()  # the folder of a collection of files
        self.requests: list[tuple[str, dict[str, Any]]] = []

    def ask(self, name: str, params: dict[str, Any]) -> dict[str, Any]:
        self.requests.append((name, params))
        if name == "search":
            return {"data": {"results": self.hits}, "meta": self.meta}
        if name == "doc.list":
            at = int(params.get("cursor", 0))
            rows = [{"id": 5 + at, "source": {"path": f"{self.folder}/{at}.md"}}]
            return {"data": rows, "meta": {"next_cursor": str(at + 1)} if at < 2 else {}}
        if name == "doc.create":
            results = [{"id": 10 + n, "index": n} for n in range(len(params["documents"]))]
            return {"data": {"documents": results[::-1]}, "meta": {}}
        return {"data": {}, "meta": {}}

    def store(self, collection: Collection) -> EvaluationStore:
        return EvaluationStore(collection, self.ask, lambda: None, lambda stage, at, most: None)


def hit(document: int, score: float, **breakdown: float) -> dict[str, Any]:
    return {"source": {"document_id": document}, "score": score, "score_breakdown": breakdown}


DOCUMENTS = [
    CollectionDocument("a", " Long\n title " + "x" * 400, "Text", "p"),
    CollectionDocument("b", "Only a title", "", None),
    CollectionDocument("c", "", " ", None),
]


def test_documents_are_added_with_titles_that_fit_and_blank_ones_are_left_out() -> None:
    server = Server([])
    assert server.store(Collection("c", DOCUMENTS, [])).documents == 2
    assert server.requests[0] == ("kb.create", {"slug": "part-1"})
    (name, params) = server.requests[1]
    assert name == "doc.create"
    first, second = params["documents"]
    assert first == {
        "title": ("Long title " + "x" * 400)[:300],
        "text": "Text",
        "source_id": "a",
        "kb": "part-1",
    }
    assert second == {"title": "Only a title", "text": "Only a title", "source_id": "b"}


def test_files_of_a_folder_are_named_by_their_paths_below_it(tmp_path: Path) -> None:
    server = Server([hit(7, 0.9), hit(5, 0.5)])
    server.folder = tmp_path.resolve()
    store = server.store(Collection("c", [], [], tmp_path))
    assert store.documents == 3, "the list has three pages"
    assert server.requests[0] == (
        "doc.ingest",
        {"paths": [str(server.folder)], "exclude": ["questions.jsonl"]},
    )
    assert store.answers([Question("1", "One?", {})], "fts", {}) == [
        Ranking(["2.md", "0.md"], [0.9, 0.5])
    ]


def test_a_ranking_names_the_documents_of_the_collection() -> None:
    server = Server([hit(11, 0.9), hit(10, 0.25)])
    store = server.store(Collection("c", DOCUMENTS, []))
    questions = [Question("1", "q" * 2001, {}, "p"), Question("2", "short", {})]
    first, second = store.answers(questions, "hybrid", {"mode": "hybrid"})
    assert first == second == Ranking(["b", "a"], [0.9, 0.25])
    (_, one), (_, other) = server.requests[-2:]
    assert (one["query"], one["kb"], one["mode"]) == ("q" * 2000, "part-1", "hybrid")
    assert (one["limit"], one["per_document"], "kb" in other) == (100, 1, False)


def test_the_best_score_of_an_empty_ranking_is_0() -> None:
    assert (Ranking([], []).best, Ranking(["a", "b"], [0.4, 0.3]).best) == (0.0, 0.4)


def test_figures_of_a_cross_encoder_need_its_judgement_of_every_hit() -> None:
    question = [Question("1", "One?", {})]
    judged = Server([hit(10, 0.9, rerank=1.0)]).store(Collection("c", DOCUMENTS, []))
    assert judged.answers(question, "rerank", {"fusion": "rerank"}) == [Ranking(["a"], [0.9])]
    for meta, message in (
        ({"notice": ["It is", "away."]}, "It is away."),
        ({}, "No cross-encoder has read the hits."),
    ):
        server = Server([hit(10, 0.9, rerank=1.0), hit(11, 0.5)], meta)
        with pytest.raises(KbprocError) as refusal:
            server.store(Collection("c", DOCUMENTS, [])).answers(
                question, "rerank", {"fusion": "rerank"}
            )
        assert (refusal.value.type, refusal.value.message) == ("model.unavailable", message)


# ---------------------------------------------------------------------- figures

QUESTIONS = [
    Question("1", "One?", {"a": 1.0}),
    Question("2", "Two?", {"b": 1.0}),
    Question("3", "Nothing?", {}),
]
FIRST = [Ranking(["a"], [0.9]), Ranking(["x", "b"], [0.8, 0.7]), Ranking(["a"], [0.2])]
SWAPPED = [Ranking(["x", "a"], [0.9, 0.8]), Ranking(["b"], [0.8]), Ranking([], [])]


def test_quality_is_the_mean_over_the_questions_that_have_an_answer() -> None:
    means = figures.quality(QUESTIONS, FIRST)
    assert means["r_at_1"]["mean"] == 0.5
    assert means["mrr"]["mean"] == 0.75
    assert means["recall_at_10"] == {"mean": 1.0, "low": 1.0, "high": 1.0}
    assert means["ndcg_at_10"]["mean"] == 0.8155  # (1 + 1 / log2(3)) / 2
    assert figures.quality([], [])["mrr"] == {"mean": 0.0, "low": 0.0, "high": 0.0}


def test_a_comparison_names_the_questions_that_gain_and_lose_most() -> None:
    change = figures.compared(QUESTIONS, FIRST, SWAPPED)
    assert (change["better"], change["worse"], change["same"]) == (1, 1, 0)
    assert change["worst"] == [{"question": "One?", "change": -0.3691}]
    assert change["best"] == [{"question": "Two?", "change": 0.3691}]
    same = figures.compared(QUESTIONS, FIRST, FIRST)
    assert (same["same"], same["worst"], same["best"]) == (2, [], [])


def test_best_scores_are_counted_by_tenths_apart_for_answered_questions() -> None:
    scores = figures.best_scores(QUESTIONS, FIRST)
    assert scores["answered"] == [0, 0, 0, 0, 0, 0, 0, 0, 1, 1]
    assert scores["others"] == [0, 0, 1, 0, 0, 0, 0, 0, 0, 0]
    assert scores["threshold"] == {"at": 0.8, "kept": 1.0, "refused": 1.0}
    assert figures.best_scores(QUESTIONS[2:], FIRST[2:])["threshold"] is None


def test_people_read_a_table_a_comparison_and_a_histogram() -> None:
    text = figures.for_people(
        {
            "collection": "birds",
            "documents": 3,
            "questions": 3,
            "modes": {"fts": figures.quality(QUESTIONS, FIRST)},
            "compared": {
                "setting": "fusion=rrf",
                **figures.compared(QUESTIONS, FIRST, SWAPPED),
            },
            "best_scores": {"mode": "fts", **figures.best_scores(QUESTIONS, FIRST)},
        }
    )
    rows = text.split("\n")
    assert rows[0] == "birds: 3 documents, 3 questions"
    assert rows[2].split() == ["nDCG@10", "R@1", "recall@10", "recall@100", "MRR"]
    assert rows[3].startswith("fts") and rows[3].endswith("  0.750 [0.500, 1.000]")
    assert rows[5].startswith("With fusion=rrf: better 1, worse 1, same 0; nDCG@10 changes by 0.0")
    assert rows[6:8] == ["  -0.369  One?", "  +0.369  Two?"]
    assert rows[9] == "Best scores (mode fts): # answered, - not answered"
    assert rows[12] == "0.2      0     1  " + "-" * 40
    assert rows[18] == "0.8      1     0  " + "#" * 40
    assert rows[20] == (
        "Threshold 0.800: keeps 100.0% of the answered, refuses 100.0% of the others."
    )
