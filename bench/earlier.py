"""`python -m bench.earlier FOLDER --tree CHECKOUT`: what has become of searches since a commit.

Owns: asking an older kbproc and this one the same questions, and bench/earlier.json.
Refuses to know: measures, and how anything is told: that is bench/quality.py.

Both speak the wire, and both have the vectors that are kept in --cache, as far as their models are
the same: so an older one can be asked that has no `kbproc eval`.
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
from kbproc.search.evaluation.asking import Asked
from kbproc.search.evaluation.collection import Collection, read
from kbproc.search.evaluation.measures import mean_of, ndcg

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
    commit = _said(options.tree, "rev-parse", "--short", "HEAD")
    trees = (options.tree.resolve(), ROOT)
    for name in options.sets.split(","):
        kept = options.cache / pack_of(name)
        then, now = (_scores(tree, read(options.folder / name), kept) for tree in trees)
        found = {mode: _compared(then[mode], now[mode]) for mode in MODES}
        _keep(commit, {**_sets(commit), name: found})
        changes = ", ".join(f"{mode} {one['change']['mean']:+.4f}" for mode, one in found.items())
        print(f"{name}: {changes}", flush=True)
    return 0


def pack_of(name: str) -> str:
    return f"{name.replace('/', '-')}.pack"


def results() -> dict[str, Any]:
    """`commit`, and by collection and mode the means `then` and `now` and the mean `change`."""
    return dict(json.loads(RESULTS.read_text())) if RESULTS.exists() else {}


def _said(tree: Path, *command: str) -> str:
    return subprocess.check_output(["git", "-C", str(tree), *command], text=True).strip()


def _sets(commit: str) -> dict[str, Any]:
    """What is known already, of this commit."""
    had = results()
    return dict(had.get("sets", {})) if had.get("commit") == commit else {}


def _keep(commit: str, sets: dict[str, Any]) -> None:
    told = {"commit": commit, "sets": sets}
    RESULTS.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


def _compared(then: list[float], now: list[float]) -> dict[str, Any]:
    changes = [after - before for before, after in zip(then, now, strict=True)]
    told = {"then": then, "now": now, "change": changes}
    return {name: mean_of(values)._asdict() for name, values in told.items()}


def _scores(tree: Path, collection: Collection, kept: Path) -> dict[str, list[float]]:
    """nDCG@10 of each question that something answers, by mode."""
    questions = [question for question in collection.questions if question.gains]
    with filled(tree, collection, kept) as (asked, _):
        found = {
            mode: asked.answers(questions, mode, {"mode": mode, "limit": _DEPTH}) for mode in MODES
        }
    return {
        mode: [ndcg(one.ranked, q.gains) for q, one in zip(questions, answers, strict=True)]
        for mode, answers in found.items()
    }


@contextmanager
def filled(tree: Path, collection: Collection, kept: Path) -> Iterator[tuple[Asked, Child]]:
    """The collection in a store of its own, every vector in place, and who answers."""
    with tempfile.TemporaryDirectory(prefix="kbproc-earlier-") as folder:
        store = Path(folder) / "store"
        with serving(tree, store):
            pass
        pack = store / "vectors" / "all-MiniLM-L6-v2.pack"
        if kept.exists():
            pack.parent.mkdir(mode=0o700, exist_ok=True)
            shutil.copy(kept, pack)
        with serving(tree, store) as child:
            ask = Asking(child)
            yield Asked(collection, ask, lambda: ask("doc.wait", {}), _silent), child
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(pack, kept)


def serving(tree: Path, store: Path, *more: str) -> Child:
    """A coprocess that runs the code of `tree`, ready. `more`: flags."""
    argv = [sys.executable, "-P", "-m", "kbproc", "serve", *more]
    child = Child(argv, PYTHONPATH=str(tree), KBPROC_STORE=str(store))
    child.until(lambda message: message.get("params", {}).get("type") == "ready")
    return child


class Asking:
    """A child as a function of a method and its params."""

    def __init__(self, child: Child) -> None:
        self._child = child

    def __call__(self, name: str, params: dict[str, Any]) -> dict[str, Any]:
        self._child.send(request(name, **params))
        answer = self._child.until(lambda message: message.get("id") == 1)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return dict(answer["result"])


def _silent(stage: str, done: int, total: int) -> None:
    """Nobody watches."""


if __name__ == "__main__":
    leave(main())
