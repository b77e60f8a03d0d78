"""`python -m bench.other_model FOLDER MODEL`: compares a model with the default one.

FOLDER holds collections in BEIR form, MODEL is a folder of sentence-transformers. Both models
answer the same questions to the same documents, and the questions of bench/paraphrase. It writes
bench/other_model.json after each collection, which `python -m bench.quality` puts into
docs/evidence/search.md; `--missing` measures only the other collections.

A model that is large takes hours for all documents. So of a large collection every n-th document
is taken, with the first questions that one of these answers.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from bench.earlier import Asking, serving
from bench.measure import ROOT
from bench.paraphrase.__main__ import read as paraphrases
from bench.wire_legs import models as cache
from kbproc.base.pipes import leave
from kbproc.engine.models.catalogue import load
from kbproc.engine.models.interface import DEFAULT_MODEL, ModelSpec
from kbproc.engine.models.onnx import MODEL
from kbproc.engine.models.weights import exported_folder, exports, locate
from kbproc.knowledge.search.evaluation.asking import EvaluationStore
from kbproc.knowledge.search.evaluation.collection import (
    Collection,
    CollectionDocument,
    Question,
    read,
)
from kbproc.knowledge.search.evaluation.measures import mean_of, ndcg

RESULTS = ROOT / "bench" / "other_model.json"
PARAPHRASES = "paraphrases"
# Collection → one of so many documents is taken, and so many questions at most.
SETS = {
    PARAPHRASES: (1, 400),
    "xquad/en": (1, 400),
    "clapnq-dev": (2, 150),
    "product-docs": (3, 150),
    "codebase-chunks": (3, 150),
    "cacm": (4, 150),
    "cranfield": (4, 150),
    "cisi": (4, 150),
    "xquad/de": (2, 150),
    "xquad/es": (2, 150),
    "xquad/zh": (2, 150),
    "locomo": (6, 400),
    "scifact": (16, 150),
}
MODES = ("vector", "hybrid")
_TEXTS = 60


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--sets", default=",".join(SETS), help="comma-separated")
    parser.add_argument("--missing", action="store_true", help="only those not measured yet")
    options = parser.parse_args()
    models = {DEFAULT_MODEL: DEFAULT_MODEL, options.model.name: str(options.model.resolve())}
    existing = results() if options.missing else {}
    if "size_bytes" not in existing:
        _keep(**_cost(models, options.folder))
    for name in options.sets.split(","):
        if name not in existing.get("sets", {}):
            whole = _paraphrases() if name == PARAPHRASES else read(options.folder / name)
            figures = _compared(_thinned(whole, *SETS[name]), models)
            _keep(sets={**results().get("sets", {}), name: figures})
            print(name, figures, flush=True)
    return 0


def results() -> dict[str, Any]:
    """Returns each model's `texts_per_second` and `size_bytes`, and `sets` by their names."""
    return dict(json.loads(RESULTS.read_text())) if RESULTS.exists() else {}


def _keep(**changes: Any) -> None:
    RESULTS.write_text(json.dumps({**results(), **changes}, indent=1) + "\n", encoding="utf-8")


def _cost(models: dict[str, str], folder: Path) -> dict[str, Any]:
    """Returns the models' sizes, and how many texts a second of one processor they embed.

    The models take turns, and the processor's time is counted, so that other work matters less.
    """
    lines = (folder / "product-docs" / "corpus.jsonl").open("rb")
    texts = [json.loads(line)["text"] for line in lines][:_TEXTS]
    embedders = {name: load(ModelSpec(name=place), cache()) for name, place in models.items()}
    seconds = dict.fromkeys(models, 0.0)
    for embedder in embedders.values():
        embedder.embed(texts[0])  # The first one is slower than the others.
    for text in texts:
        for name, embedder in embedders.items():
            began = time.thread_time()
            embedder.embed(text)
            seconds[name] += time.thread_time() - began
    sources = {name: locate(place) for name, place in models.items()}
    graphs = {
        name: exported_folder(exports(source, cache()), source) / MODEL
        for name, source in sources.items()
    }
    return {
        "texts_per_second": {name: round(len(texts) / spent, 1) for name, spent in seconds.items()},
        "size_bytes": {name: graph.stat().st_size for name, graph in graphs.items()},
    }


def _paraphrases() -> Collection:
    (texts, questions), (texts_aside, questions_aside) = paraphrases(False), paraphrases(True)
    return Collection(
        PARAPHRASES,
        [CollectionDocument(t["id"], t["title"], t["text"]) for t in texts + texts_aside],
        [
            Question(str(n), one.question, {one.answer: 1.0})
            for n, one in enumerate(questions + questions_aside)
            if one.answer is not None
        ],
    )


def _thinned(whole: Collection, step: int, most: int) -> Collection:
    """Returns every `step`-th document, and `most` questions that one of these answers."""
    documents = whole.documents[::step]
    ids = {document.id for document in documents}
    questions = [
        replace(question, gains={id: gain for id, gain in question.gains.items() if id in ids})
        for question in whole.questions
    ]
    answered = [question for question in questions if any(question.gains.values())]
    return Collection(whole.name, documents, answered[:most])


def _compared(collection: Collection, models: dict[str, str]) -> dict[str, Any]:
    """Returns by mode each model's mean of nDCG@10, and that of the changes by the other model."""
    scores = {name: _scores(collection, place) for name, place in models.items()}
    then, now = scores.values()
    figures: dict[str, Any] = {
        "documents": len(collection.documents),
        "questions": len(collection.questions),
    }
    for mode in MODES:
        changes = [after - before for before, after in zip(then[mode], now[mode], strict=True)]
        means = {name: mean_of(one[mode])._asdict() for name, one in scores.items()}
        figures[mode] = {**means, "change": mean_of(changes)._asdict()}
    return figures


def _scores(collection: Collection, model: str) -> dict[str, list[float]]:
    """Returns by mode the nDCG@10 of each question."""
    questions = collection.questions
    with tempfile.TemporaryDirectory() as folder, serving(ROOT, Path(folder) / "store") as child:
        ask = Asking(child)
        ask("model.use", {"name": model})
        store = EvaluationStore(collection, ask, lambda: ask("doc.wait", {}), lambda *_: None)
        answers = {mode: store.answers(questions, mode, {"mode": mode}) for mode in MODES}
    return {
        mode: [ndcg(one.ranked, q.gains) for q, one in zip(questions, rankings, strict=True)]
        for mode, rankings in answers.items()
    }


if __name__ == "__main__":
    leave(main())
