"""Computes the figures of an evaluation and formats them for people.

The figures are means by mode, a comparison of two settings, and the distribution of best scores.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kbproc.base.wording import plural
from kbproc.knowledge.search.evaluation.asking import Ranking
from kbproc.knowledge.search.evaluation.collection import Question
from kbproc.knowledge.search.evaluation.measures import (
    MEASURES,
    histogram,
    mean_of,
    ndcg,
    threshold,
)

_HEADS = {
    "ndcg_at_10": "nDCG@10",
    "r_at_1": "R@1",
    "recall_at_10": "recall@10",
    "recall_at_100": "recall@100",
    "mrr": "MRR",
}
_LOSERS = 5
_BAR = 40
_WIDTH = 22
_SAME = 1e-9


def quality(questions: Sequence[Question], rankings: Sequence[Ranking]) -> dict[str, Any]:
    """Returns each measure's mean over the answered questions, with its interval."""
    judged = [(q, f) for q, f in zip(questions, rankings, strict=True) if q.gains]
    return {
        name: mean_of([measure(f.ranked, q.gains) for q, f in judged])._asdict()
        for name, measure in MEASURES.items()
    }


def compared(
    questions: Sequence[Question], base: Sequence[Ranking], changed: Sequence[Ranking]
) -> dict[str, Any]:
    """Returns how nDCG@10 changes from `base` to `changed`, question by question."""
    rows = [
        (ndcg(b.ranked, q.gains) - ndcg(a.ranked, q.gains), q)
        for q, a, b in zip(questions, base, changed, strict=True)
        if q.gains
    ]
    by_loss = sorted(rows, key=lambda row: (row[0], row[1].id))
    return {
        "better": sum(change > _SAME for change, _ in rows),
        "worse": sum(change < -_SAME for change, _ in rows),
        "same": sum(abs(change) <= _SAME for change, _ in rows),
        "change": mean_of([change for change, _ in rows])._asdict(),
        "worst": [_row(*row) for row in by_loss[:_LOSERS] if row[0] < -_SAME],
        "best": [_row(*row) for row in by_loss[::-1][:_LOSERS] if row[0] > _SAME],
    }


def _row(change: float, question: Question) -> dict[str, Any]:
    return {"question": question.text, "change": round(change, 4)}


def best_scores(questions: Sequence[Question], rankings: Sequence[Ranking]) -> dict[str, Any]:
    """Returns the histogram of the best scores, and the score from which an answer is likely."""
    answered = [f.best for q, f in zip(questions, rankings, strict=True) if q.gains]
    others = [f.best for q, f in zip(questions, rankings, strict=True) if not q.gains]
    least = threshold(answered, others)
    return {
        "answered": histogram(answered),
        "others": histogram(others),
        "threshold": None if least is None else least._asdict(),
    }


def for_people(figures: Mapping[str, Any]) -> str:
    return "\n".join(_lines(figures)) + "\n"


def _lines(figures: Mapping[str, Any]) -> Iterator[str]:
    counts = (
        f"{plural(figures['documents'], 'document')}, {plural(figures['questions'], 'question')}"
    )
    yield f"{figures['collection']}: {counts}"
    yield ""
    yield f"{'':6}" + "".join(f"{head:>{_WIDTH}}" for head in _HEADS.values())
    for mode, means in figures["modes"].items():
        yield f"{mode:6}" + "".join(f"{_interval(means[name]):>{_WIDTH}}" for name in _HEADS)
    if figures["compared"] is not None:
        yield ""
        yield from _comparison(figures["compared"])
    yield ""
    yield from _histogram(figures["best_scores"])


def _interval(mean: Mapping[str, float]) -> str:
    return f"{mean['mean']:.3f} [{mean['low']:.3f}, {mean['high']:.3f}]"


def _comparison(figures: Mapping[str, Any]) -> Iterator[str]:
    yield (
        f"With {figures['setting']}: better {figures['better']}, worse {figures['worse']}, same "
        f"{figures['same']}; nDCG@10 changes by {_interval(figures['change'])}"
    )
    for kind in ("worst", "best"):
        for row in figures[kind]:
            yield f"  {row['change']:+.3f}  {row['question'][:90]}"


def _histogram(figures: Mapping[str, Any]) -> Iterator[str]:
    yield f"Best scores (mode {figures['mode']}): # answered, - not answered"
    most = max(1, *figures["answered"], *figures["others"])
    for tenth, (yes, no) in enumerate(zip(figures["answered"], figures["others"], strict=True)):
        bars = "#" * round(_BAR * yes / most) + "-" * round(_BAR * no / most)
        yield f"{tenth / 10:.1f}  {yes:5} {no:5}  {bars}".rstrip()
    least = figures["threshold"]
    if least is None:
        return
    refused = "" if least["refused"] is None else f", refuses {least['refused']:.1%} of the others"
    yield f"Threshold {least['at']:.3f}: keeps {least['kept']:.1%} of the answered{refused}."
