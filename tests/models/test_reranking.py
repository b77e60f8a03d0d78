"""Rerankers: an exported cross-encoder gives its own scores, and an endpoint can't do harm."""

from __future__ import annotations

import itertools
import json
import math
import subprocess
import sys
import threading
import types
from pathlib import Path
from typing import Any

import pytest

from kbproc.base.errors import KbprocError
from kbproc.engine.models import catalogue
from kbproc.engine.models.reranking import crossencoder
from kbproc.engine.models.reranking.crossencoder import (
    META,
    CrossEncoder,
    OnnxCrossEncoder,
    logistic,
    read_meta,
)
from kbproc.engine.models.reranking.judgements import Judgements
from kbproc.engine.models.reranking.reranker import Reranker, reranker_of
from tests.kit import models, rerank
from tests.kit.patience import PATIENCE
from tests.kit.talk import REPO

QUERY = "how do i install git"
TEXTS = [
    "To install git, fetch the archive and run make.",
    "",
    "The backup is tested each night. " * 40,
    "Ünï çødé 东京 🙂 \ud800",
    "a\x00b\u202e\n\t",
    "git",
]


def exported(folder: Path, cache: Path) -> Path:
    source = crossencoder.located(str(folder))
    target = crossencoder.exported_folder(cache, source)
    crossencoder.export(source, target, cancelled=lambda: False)
    return target


def torchs_scores(folder: Path, query: str, texts: list[str], max_tokens: int) -> list[float]:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    scores = []
    for text in texts:
        clean = text.encode("utf-8", "replace").decode()
        # As lists, because the tokenizer drops an empty string of a pair, with its separator.
        features = tokenizer(
            [query], [clean], truncation="only_second", max_length=max_tokens, return_tensors="pt"
        )
        with torch.no_grad():
            scores.append(torch.sigmoid(model(**features).logits[0, 0]).item())
    return scores


def scores_of(folder: Path, query: str, texts: list[str]) -> list[float]:
    model = OnnxCrossEncoder(folder)
    question = model.query(query)
    return [logistic(model.logit(question, text)) for text in texts]


# ------------------------------------------------------------------------ a folder


@pytest.fixture(scope="module")
def sharp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder whose logits differ too much with int8 weights."""
    return rerank.cross_encoder(tmp_path_factory.mktemp("sharp"), spread=0.7)


@pytest.fixture(scope="module")
def smooth(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return rerank.cross_encoder(tmp_path_factory.mktemp("smooth"), spread=0.05)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.mark.parametrize(
    "kind, precision, most", [("sharp", "fp32", 1e-3), ("smooth", "int8", 0.02)]
)
def test_an_export_gives_the_models_own_scores(
    request: pytest.FixtureRequest, cache: Path, kind: str, precision: str, most: float
) -> None:
    folder: Path = request.getfixturevalue(kind)
    target = exported(folder, cache)
    meta = read_meta(target)
    assert meta is not None
    assert (meta.precision.partition("-")[0], meta.max_tokens) == (precision, 64)
    own = [logistic(models.logit(folder, QUERY, text)) for text in TEXTS]
    assert scores_of(target, QUERY, TEXTS) == pytest.approx(own, abs=most)
    if kind == "sharp":
        assert max(own) - min(own) > 0.1, "else anything would be equal"
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in target.iterdir())


@pytest.mark.model
def test_torch_gives_the_scores_of_the_formulas(sharp: Path) -> None:
    own = [logistic(models.logit(sharp, QUERY, text)) for text in TEXTS]
    assert torchs_scores(sharp, QUERY, TEXTS, 64) == pytest.approx(own, abs=1e-3)


@pytest.mark.model
def test_a_cross_encoder_is_no_embedding_model(smooth: Path, cache: Path) -> None:
    exported(smooth, cache)
    assert smooth.name not in [model.name for model in catalogue.known_models(cache)]


@pytest.mark.model
def test_a_score_depends_on_no_other_text(sharp: Path, cache: Path) -> None:
    reranker: Reranker = CrossEncoder(str(sharp), cache, 50, 30.0)
    whole = reranker.judge(QUERY, TEXTS)
    assert all(0 <= score <= 1 for score in whole)
    again: Reranker = CrossEncoder(str(sharp), cache, 50, 30.0)
    assert again.judge(QUERY, TEXTS[::-1]) == whole[::-1]
    for text, score in zip(TEXTS, whole, strict=True):
        alone: Reranker = CrossEncoder(str(sharp), cache, 50, 30.0)
        assert alone.judge(QUERY, [text]) == [score]


@pytest.mark.model
def test_a_long_query_leaves_room_for_the_text(sharp: Path, cache: Path) -> None:
    reranker = CrossEncoder(str(sharp), cache, 50, 30.0)
    one, other = reranker.judge("how do i install git on the archive " * 200, ["git", "backup"])
    assert one != other


@pytest.mark.model
def test_threads_share_a_model(sharp: Path, cache: Path) -> None:
    reranker = CrossEncoder(str(sharp), cache, 50, 30.0)
    answers: list[list[float]] = []

    def ask() -> None:
        answers.append(reranker.judge(QUERY, TEXTS))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert len(answers) == 4
    assert all(scores == answers[0] for scores in answers)


@pytest.mark.model
def test_whoever_closes_it_stops_its_export(smooth: Path, tmp_path: Path) -> None:
    reranker = CrossEncoder(str(smooth), tmp_path / "cache", 50, 30.0)
    assert not reranker.is_ready
    reranker.close()
    with pytest.raises(KbprocError) as caught:
        reranker.judge(QUERY, TEXTS)
    assert caught.value.type == "operation.cancelled"
    assert list((tmp_path / "cache").iterdir()) == []
    reranker.prepare()  # raises nothing


@pytest.mark.model
def test_too_many_candidates_for_the_time(sharp: Path, cache: Path) -> None:
    reranker = CrossEncoder(str(sharp), cache, 50, 30.0)
    reranker.prepare()
    hurried = CrossEncoder(str(sharp), cache, 50, 1e-9)
    with pytest.raises(KbprocError, match="did not read all candidates") as caught:
        hurried.judge(QUERY, TEXTS)
    assert "rerank.timeout_s" in caught.value.hint


def test_what_is_read_in_time_is_the_beginning(
    sharp: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock that only the model moves: each text takes a second."""
    seconds = itertools.count(1)
    clock = [0]
    texts = [f"git backup {number}" for number in range(40)]
    whole = CrossEncoder(str(sharp), cache, 50, 30.0).judge(QUERY, texts)
    logit = OnnxCrossEncoder.logit

    def slow(model: OnnxCrossEncoder, query: Any, text: str) -> float:
        clock[0] = next(seconds)
        return logit(model, query, text)

    monkeypatch.setattr(OnnxCrossEncoder, "logit", slow)
    monkeypatch.setattr(crossencoder, "time", types.SimpleNamespace(monotonic=lambda: clock[0]))
    reranker = CrossEncoder(str(sharp), cache, 50, 30.0)
    reranker.prepare()
    for budget, least, most in ((0.0, 1, 1), (9.5, 8, 10), (1000.0, 40, 40)):
        judged = reranker.judge_within(f"{QUERY} {budget}", texts, budget)
        assert least <= len(judged) <= most
        again = CrossEncoder(str(sharp), cache, 50, 1000.0)
        assert judged == again.judge(f"{QUERY} {budget}", texts[: len(judged)])
    assert reranker.judge_within(QUERY, texts, 1000.0) == whole


@pytest.mark.model
def test_a_damaged_export_is_named(sharp: Path, cache: Path, tmp_path: Path) -> None:
    target = exported(sharp, cache)
    with pytest.raises(KbprocError, match="incomplete"):
        OnnxCrossEncoder(tmp_path)
    (tmp_path / META).write_bytes((target / META).read_bytes())
    for name in ("model.onnx", "tokenizer.json"):
        (tmp_path / name).write_bytes(b"damaged")
    with pytest.raises(KbprocError, match="can't be loaded"):
        OnnxCrossEncoder(tmp_path)


def a_folder(path: Path, config: Any) -> Path:
    path.mkdir()
    (path / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
    return path


def test_folders_without_a_cross_encoder(tmp_path: Path) -> None:
    two = a_folder(tmp_path / "two", {"id2label": {"0": "no", "1": "yes"}})
    damaged = a_folder(tmp_path / "damaged", "{")
    for folder, why in (
        (two, "2 labels"),
        (damaged, "can't be read"),
        (tmp_path / "nowhere", "can't be read"),
        ("mine", "no absolute path"),
    ):
        reranker = reranker_of({"folder": str(folder)}, tmp_path)
        assert reranker.problem is not None
        assert why in reranker.problem.message
        with pytest.raises(KbprocError):
            reranker.judge(QUERY, TEXTS)


@pytest.mark.model
def test_a_model_of_two_labels_that_does_not_say_so(tmp_path: Path) -> None:
    folder = rerank.cross_encoder(tmp_path / "two", labels=2)
    config = json.loads((folder / "config.json").read_text())
    config.pop("id2label", None), config.pop("label2id", None)
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(KbprocError, match="2 labels") as caught:
        exported(folder, tmp_path / "cache")
    assert caught.value.type == "model.unavailable"
    assert list((tmp_path / "cache").iterdir()) == []


def test_naming_a_reranker_loads_nothing() -> None:
    program = (
        "import sys, pathlib, kbproc.knowledge.app.library\n"
        "from kbproc.engine.models.reranking.reranker import reranker_of\n"
        "reranker_of({'url': 'http://127.0.0.1:9', 'model': 'm'}, pathlib.Path('/'))\n"
        "reranker_of({'folder': '/nowhere'}, pathlib.Path('/'))\n"
        "heavy = {'onnxruntime', 'tokenizers', 'httpx', 'torch', 'transformers', 'numpy'}\n"
        "assert not heavy & sys.modules.keys()\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=REPO, capture_output=True, check=False
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b"")


def test_a_logistic_that_never_overflows() -> None:
    assert [logistic(x) for x in (-1e9, 0.0, 1e9)] == [0.0, 0.5, 1.0]
    assert logistic(2.0) == pytest.approx(1 / (1 + math.exp(-2.0)))


# ------------------------------------------------------------------------ settings


def test_settings_that_are_wrong_say_so(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("k")
    key.chmod(0o644)
    endpoint = {"url": "http://127.0.0.1:9/v1", "model": "toy"}
    for settings, why in (
        ({"url": "http://127.0.0.1:9/v1"}, "no model"),
        ({**endpoint, "folder": "/models/mine"}, "both a url and a folder"),
        ({**endpoint, "candidates": 0}, "candidates"),
        ({**endpoint, "candidates": 201}, "candidates"),
        ({**endpoint, "timeout_s": 0}, "timeout_s"),
        ({**endpoint, "dim": 3}, "dim"),
        ({**endpoint, "api_key_file": str(key)}, "mode 0600"),
    ):
        reranker = reranker_of(settings, tmp_path)
        assert reranker.problem is not None
        assert why in reranker.problem.message
        assert reranker.problem.type == "model.unavailable"
    none = reranker_of({"candidates": 3}, tmp_path)
    assert none.problem is not None
    assert "none is configured" in none.problem.message
    assert none.name is None


# ------------------------------------------------------------------------ an endpoint


def reranker_for(endpoint: rerank.Endpoint, **more: Any) -> Reranker:
    settings = {"url": endpoint.url, "model": "toy", "api_key": rerank.KEY, **more}
    return reranker_of(settings, Path("/nowhere"))


def test_an_endpoint_is_asked_once_for_all_texts() -> None:
    with rerank.endpoint() as endpoint:
        reranker = reranker_for(endpoint)
        scores = reranker.judge("install git", ["install git", "git", "backup"])
        assert scores == [1.0, 0.5, 0.0]
        assert reranker.judge("install git", ["backup", "install git"]) == [0.0, 1.0]
        assert reranker.judge("install git", ["make", "git"]) == [0.0, 0.5]
        reranker.close()
    assert endpoint.requests == [
        {
            "model": "toy",
            "query": "install git",
            "documents": ["install git", "git", "backup"],
            "top_n": 3,
        },
        {"model": "toy", "query": "install git", "documents": ["make"], "top_n": 1},
    ], "what was judged is not asked again"
    assert endpoint.keys == [f"Bearer {rerank.KEY}"] * 2


def test_texts_are_cut_to_what_the_model_reads() -> None:
    with rerank.endpoint() as endpoint:
        reranker = reranker_for(endpoint, max_tokens=16)
        reranker.judge("é" * 100, ["东" * 100, "\ud800"])
        reranker.close()
    [request] = endpoint.requests
    assert request["query"] == "é" * 16
    assert request["documents"] == ["东" * 10, "?"]


def test_scores_beyond_their_range_are_put_into_it() -> None:
    with rerank.endpoint(lambda query, texts: rerank.scored([-3.5, 1, 7])) as endpoint:
        reranker = reranker_for(endpoint)
        assert reranker.judge("q", ["a", "b", "c"]) == [0.0, 1.0, 1.0]
        reranker.close()


def results(*items: Any) -> rerank.Reply:
    return 200, {}, {"results": list(items)}


ONE = {"index": 0, "relevance_score": 0.5}
RUBBISH: dict[str, rerank.Reply] = {
    "no JSON": (200, {}, b"<html>"),
    "not UTF-8": (200, {}, b'{"results": "\xff"}'),
    "no results": (200, {}, {"data": []}),
    "a list": (200, {}, [ONE]),
    "too few": results(ONE),
    "too many": results(ONE, {**ONE, "index": 1}, {**ONE, "index": 2}),
    "twice": results(ONE, ONE),
    "another index": results(ONE, {**ONE, "index": 2}),
    "a negative index": results(ONE, {**ONE, "index": -1}),
    "no index": results(ONE, {"relevance_score": 1}),
    "no score": results(ONE, {"index": 1}),
    "null": results(ONE, {"index": 1, "relevance_score": None}),
    "a word": results(ONE, {"index": 1, "relevance_score": "high"}),
    "NaN": (200, {}, b'{"results": [{"index": 0, "relevance_score": NaN}]}'),
    "infinite": (
        200,
        {},
        b'{"results": [{"index": 0, "relevance_score": 1e999}, '
        b'{"index": 1, "relevance_score": 0.5}]}',
    ),
    "nested": (200, {}, b"[" * 100_000),
    "moved": (302, {"location": "http://127.0.0.1:9/"}, b""),
    "refused": (401, {}, {"error": f"bad key {rerank.KEY}"}),
    "busy": (429, {}, b""),
    "broken": (503, {}, b""),
    "huge": (200, {}, b" " * (9 << 20)),
}


def test_rubbish_is_refused(subtests: pytest.Subtests) -> None:
    for kind, rubbish in RUBBISH.items():
        with subtests.test(kind=kind):
            with rerank.endpoint(lambda query, texts, rubbish=rubbish: rubbish) as endpoint:
                reranker = reranker_for(endpoint)
                with pytest.raises(KbprocError) as caught:
                    reranker.judge("q", ["a", "b"])
                reranker.close()
            error = caught.value
            assert error.type == "model.unavailable"
            assert error.message.startswith("The rerank endpoint ")
            assert rerank.KEY not in f"{error.message} {error.hint} {error.detail}"
            assert error.retryable is (None if kind in {"busy", "broken"} else False)


def test_nobody_there() -> None:
    with rerank.endpoint() as endpoint:
        pass
    for url in (endpoint.url, "nonsense", "http://\0", "http://127.0.0.1:99999"):
        reranker = reranker_of({"url": url, "model": "toy"}, Path("/nowhere"))
        with pytest.raises(KbprocError) as caught:
            reranker.judge("q", ["a"])
        assert caught.value.type == "model.unavailable"
        reranker.close()


def test_an_endpoint_that_says_nothing() -> None:
    servers: list[rerank.Endpoint] = []
    with rerank.endpoint(rerank.silent(servers)) as endpoint:
        servers.append(endpoint)
        reranker = reranker_for(endpoint, timeout_s=0.1)
        with pytest.raises(KbprocError, match=r"within 0\.1 seconds") as caught:
            reranker.judge("q", ["a"])
        assert "rerank.timeout_s" in caught.value.hint
        endpoint.released.set()
        reranker.close()


def test_an_endpoint_that_never_ends() -> None:
    with rerank.endpoint(lambda query, texts: (200, {}, rerank.drip)) as endpoint:
        reranker = reranker_for(endpoint, timeout_s=0.3)
        with pytest.raises(KbprocError, match=r"within 0\.3 seconds"):
            reranker.judge("q", ["a"])
        reranker.close()


# ------------------------------------------------------------------------ judgements


def test_a_failure_is_not_kept_and_few_are() -> None:
    judgements = Judgements()

    def fail(texts: list[str]) -> list[float]:
        raise ValueError

    with pytest.raises(ValueError):
        judgements.of("q", ["a"], fail)
    assert judgements.of("q", ["a"], lambda texts: [0.25]) == [0.25]
    assert judgements.of("q", ["a", "a"], fail) == [0.25, 0.25]
    many = [str(number) for number in range(5000)]
    judgements.of("q", many, lambda texts: [0.5] * len(texts))
    with pytest.raises(ValueError):
        judgements.of("q", ["a"], fail)
