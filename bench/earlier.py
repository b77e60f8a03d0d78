"""`python -m bench.earlier FOLDER --tree CHECKOUT`: compares searches with an earlier commit.

Both speak the wire, so the older one needs no `kbproc eval`. Both use the vectors in --cache if
their models are equal.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.measure import ROOT, Child, request
from kbproc.base.pipes import leave
from kbproc.knowledge.search.evaluation.asking import EvaluationStore
from kbproc.knowledge.search.evaluation.collection import Collection, read
from kbproc.knowledge.search.evaluation.measures import mean_of, ndcg

RESULTS = ROOT / "bench" / "earlier.json"
MODES = ("fts", "hybrid")
_DEPTH = 10


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where the collections lie")
    parser.add_argument("--tree", type=Path, required=True, help="a checkout of the older commit")
    parser.add_argument("--sets", required=True, help="folders in it, comma-separated")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "kbproc-eval")
    options = parser.parse_args()
    commit = _git(options.tree, "rev-parse", "--short", "HEAD")
    trees = (options.tree.resolve(), ROOT)
    for name in options.sets.split(","):
        pack = options.cache / pack_of(name)
        then, now = (_scores(tree, read(options.folder / name), pack) for tree in trees)
        comparisons = {mode: _compared(then[mode], now[mode]) for mode in MODES}
        _keep(commit, {**_sets(commit), name: comparisons})
        changes = ", ".join(
            f"{mode} {one['change']['mean']:+.4f}" for mode, one in comparisons.items()
        )
        print(f"{name}: {changes}", flush=True)
    return 0


def pack_of(name: str) -> str:
    return f"{name.replace('/', '-')}.pack"


def results() -> dict[str, Any]:
    """Returns `commit`, and by collection and mode the means `then`, `now` and `change`."""
    return dict(json.loads(RESULTS.read_text())) if RESULTS.exists() else {}


def _git(tree: Path, *command: str) -> str:
    return subprocess.check_output(["git", "-C", str(tree), *command], text=True).strip()


def _sets(commit: str) -> dict[str, Any]:
    """Returns the sets already measured against this commit."""
    earlier = results()
    return dict(earlier.get("sets", {})) if earlier.get("commit") == commit else {}


def _keep(commit: str, sets: dict[str, Any]) -> None:
    data = {"commit": commit, "sets": sets}
    RESULTS.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


def _compared(then: list[float], now: list[float]) -> dict[str, Any]:
    changes = [after - before for before, after in zip(then, now, strict=True)]
    columns = {"then": then, "now": now, "change": changes}
    return {name: mean_of(values)._asdict() for name, values in columns.items()}


def _scores(tree: Path, collection: Collection, pack: Path) -> dict[str, list[float]]:
    """Returns by mode the nDCG@10 of each question that has an answer."""
    questions = [question for question in collection.questions if question.gains]
    with filled(tree, collection, pack) as (store, _):
        by_mode = {
            mode: store.answers(questions, mode, {"mode": mode, "limit": _DEPTH}) for mode in MODES
        }
    return {
        mode: [ndcg(one.ranked, q.gains) for q, one in zip(questions, answers, strict=True)]
        for mode, answers in by_mode.items()
    }


@contextmanager
def filled(
    tree: Path, collection: Collection, saved_pack: Path
) -> Iterator[tuple[EvaluationStore, Child]]:
    """Yields a store of its own, which holds the collection and its vectors, and its process."""
    with tempfile.TemporaryDirectory(prefix="kbproc-earlier-") as folder:
        store = Path(folder) / "store"
        with serving(tree, store):
            pass
        pack = store / "vectors" / "all-MiniLM-L6-v2.pack"
        if saved_pack.exists():
            pack.parent.mkdir(mode=0o700, exist_ok=True)
            shutil.copy(saved_pack, pack)
        with serving(tree, store) as child:
            ask = Asking(child)
            yield EvaluationStore(collection, ask, lambda: ask("doc.wait", {}), _silent), child
        saved_pack.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(pack, saved_pack)


def serving(tree: Path, store: Path, *more: str) -> Child:
    """Starts a coprocess that runs the code of `tree`; `more` holds flags."""
    argv = [sys.executable, "-P", "-m", "kbproc", "serve", *more]
    child = Child(argv, PYTHONPATH=str(tree), KBPROC_STORE=str(store))
    child.until(lambda message: message.get("params", {}).get("type") == "ready")
    return child


class Asking:
    """Calls a child with a method and its params."""

    def __init__(self, child: Child) -> None:
        self._child = child

    def __call__(self, name: str, params: dict[str, Any]) -> dict[str, Any]:
        self._child.send(request(name, **params))
        answer = self._child.until(lambda message: message.get("id") == 1)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return dict(answer["result"])


def _silent(stage: str, done: int, total: int) -> None:
    """Ignores progress."""


if __name__ == "__main__":
    leave(main())
