"""`kbproc eval`: collections of every form, figures that add up, and refusals that help."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kbproc.knowledge.search.evaluation import measures
from tests.kit import rerank
from tests.kit.shell import Run, in_process, refused

TEXTS = {
    "install.md": "# Install\n\nTo install git, fetch the archive and run make.",
    "backup.md": "# Backup\n\nBackups run each night at two and are kept for a month.",
    "sub/deploy.md": "# Deploy\n\nDeploys happen on Fridays; nobody deploys on Sundays.",
}
ASKED = {
    "how is git installed": ["install.md"],
    "when do backups run": ["backup.md"],
    "on which day are deploys": ["sub/deploy.md"],
    "what do zebras eat": [],
}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    return in_process(tmp_path, monkeypatch, capsys)


def lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def own(folder: Path) -> Path:
    for name, text in TEXTS.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    rows = [{"question": text, "answers": answers} for text, answers in ASKED.items()]
    lines(folder / "questions.jsonl", rows)
    return folder


def beir(folder: Path) -> Path:
    corpus = [{"_id": id, "title": "", "text": text} for id, text in TEXTS.items()]
    queries = [{"_id": str(n), "text": text} for n, text in enumerate(ASKED)]
    lines(folder / "corpus.jsonl", corpus)
    lines(folder / "queries.jsonl", queries)
    judged = [f"{n}\t{ids[0]}\t1" for n, ids in enumerate(ASKED.values()) if ids]
    (folder / "qrels.tsv").write_text("\n".join(["query\tdocument\tgain", *judged]) + "\n")
    lines(folder / "queries-unanswerable.jsonl", queries[3:])
    return folder


def longmemeval(folder: Path) -> Path:
    def turns(text: str) -> list[dict[str, str]]:
        return [{"role": "user", "content": text}, {"role": "assistant", "content": "I see."}]

    rows = [
        {
            "question_id": f"q{n}" + ("" if ids else "_abs"),
            "question": text,
            "haystack_session_ids": list(TEXTS),
            "haystack_dates": ["2026/01/01 (Thu) 10:00"] * len(TEXTS),
            "haystack_sessions": [turns(content) for content in TEXTS.values()],
            "answer_session_ids": ids,
        }
        for n, (text, ids) in enumerate(ASKED.items())
    ]
    folder.mkdir(exist_ok=True)
    path = folder / "longmemeval_s.json"
    path.write_text(json.dumps(rows))
    return path


def evaluated(run: Run, path: Path, *flags: str) -> dict[str, Any]:
    code, out, err = run("eval", str(path), "--model", "hash", "--format", "json", *flags)
    assert (code, err) == (0, "")
    data: dict[str, Any] = json.loads(out)["data"]
    return data


@pytest.mark.parametrize("form", [own, beir, longmemeval])
def test_every_form_of_a_collection(run: Run, tmp_path: Path, form: Any) -> None:
    result = evaluated(run, form(tmp_path / "mine"))
    assert result["questions"] == 4
    assert set(result["modes"]) == {"hybrid", "fts", "vector"}
    for measure in measures.MEASURES:
        assert result["modes"]["fts"][measure] == {"mean": 1, "low": 1, "high": 1}
    scores = result["best_scores"]
    assert (sum(scores["answered"]), sum(scores["others"])) == (3, 1)
    assert scores["threshold"]["kept"] == scores["threshold"]["refused"] == 1
    assert result["compared"] is None
    assert list(tmp_path.glob("*")) == [tmp_path / "mine", tmp_path / "store"]


def test_settings_are_compared_question_by_question(run: Run, tmp_path: Path) -> None:
    path = beir(tmp_path / "mine")
    comparison = evaluated(run, path, "--compare", "mode=fts,limit=100")["compared"]
    assert comparison["setting"] == "mode=fts,limit=100"
    assert comparison["better"] + comparison["worse"] + comparison["same"] == 3


def test_a_cross_encoder_is_compared(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = beir(tmp_path / "mine")
    error = refused(run, "eval", str(path), "--model", "hash", "--compare", "fusion=rerank")
    assert (error["type"], "none is configured" in error["message"]) == ("model.unavailable", True)
    with rerank.endpoint() as endpoint:
        monkeypatch.setenv("KBPROC_RERANK_URL", endpoint.url)
        monkeypatch.setenv("KBPROC_RERANK_MODEL", "toy")
        comparison = evaluated(run, path, "--compare", "fusion=rerank,limit=10")["compared"]
        assert comparison["better"] + comparison["worse"] + comparison["same"] == 3
        assert len(endpoint.requests) == 4
    error = refused(run, "eval", str(path), "--model", "hash", "--compare", "fusion=rerank")
    assert "did not answer" in error["message"], "figures of the blend would say nothing of it"


def test_people_see_a_table_and_bars(run: Run, tmp_path: Path) -> None:
    path = own(tmp_path / "mine")
    code, out, _ = run("eval", str(path), "--model", "none", "--format", "text", "--questions", "3")
    assert code == 0
    assert "mine: 3 documents, 3 questions" in out
    assert "nDCG@10" in out and "1.000 [1.000, 1.000]" in out
    assert "Threshold" in out and "#" in out


def test_refusals_name_what_is_wrong(run: Run, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    error = refused(run, "eval", str(empty))
    assert (error["type"], "questions.jsonl" in error["hint"]) == ("input.invalid_params", True)
    assert "no collection" in error["message"]
    assert "needs a DIR" in refused(run, "eval")["message"]
    lines(empty / "questions.jsonl", [{"question": "x", "answers": ["gone.md"]}])
    assert "gone.md" in refused(run, "eval", str(empty))["message"]
    lines(empty / "questions.jsonl", [{"answers": []}])
    assert "question is missing" in refused(run, "eval", str(empty))["message"]
    good = own(tmp_path / "good")
    assert "NAME=VALUE" in refused(run, "eval", str(good), "--compare", "rrf")["message"]
    assert "at least 1" in refused(run, "eval", str(good), "--questions", "0")["message"]
    error = refused(run, "eval", str(good), "--model", "none", "--compare", "fusion=sum")
    assert error["type"] == "input.invalid_params"


def test_a_model_that_is_named_here_needs_no_approval(run: Run, tmp_path: Path) -> None:
    error = refused(run, "eval", str(own(tmp_path / "good")), "--model", "no-such-model")
    assert error["type"] == "model.unavailable"
    assert "no-such-model" in error["message"]
    assert "approved" not in error["message"]


def test_measures() -> None:
    gains = {"a": 1.0, "b": 1.0}
    assert measures.ndcg(["a", "b"], gains) == 1
    assert measures.ndcg(["x", "a"], {"a": 1.0}) == pytest.approx(0.6309, abs=1e-4)
    assert measures.recall(["x", "a"], gains, 2) == 0.5
    assert measures.reciprocal_rank(["x", "a"], gains) == 0.5
    assert (measures.hit(["x"], gains, 1), measures.hit([], gains, 1)) == (0, 0)
    sure, unsure = measures.mean_of([1.0] * 50), measures.mean_of([0.0, 1.0] * 25)
    assert sure == (1, 1, 1)
    assert unsure.low < 0.5 == unsure.mean < unsure.high
    assert measures.mean_of([0.0, 1.0] * 25) == unsure, "the same values give the same interval"
    assert measures.histogram([0, 0.05, 0.95, 1.0]) == [2, 0, 0, 0, 0, 0, 0, 0, 0, 2]
    assert measures.threshold([0.4, 0.6], [0.1, 0.3]) == (0.4, 1, 1)
    assert measures.threshold([0.3768, 0.5], [0.1]) == (0.376, 1, 1), "rounded up it keeps half"
    assert measures.threshold([], [0.1]) is None
    alone = measures.threshold([n / 100 for n in range(100)], [])
    assert alone == (0.05, 0.95, None)
