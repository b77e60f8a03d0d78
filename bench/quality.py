"""`python -m bench.quality FOLDER`: measures searches on published collections.

It chooses the collections and writes bench/quality.json, and from that, bench/earlier.json and
bench/other_model.json the blocks of docs/evidence/search.md and its charts. Without FOLDER it makes
only these; `--check` compares them. It stores each collection's figures at once; `--missing`
measures only the others.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench import earlier, eval_answers, other_model, spans
from bench.charts import Interval, intervals
from bench.measure import ROOT
from tools.generate.outputs import with_blocks

PAGE = ROOT / "docs" / "evidence" / "search.md"
RESULTS = ROOT / "bench" / "quality.json"
CHART = ROOT / "docs" / "evidence" / "search" / "quality.svg"
SETS = (
    "product-docs,clapnq-dev,codebase-chunks,cranfield,cisi,cacm,"
    "xquad/en,xquad/de,xquad/es,xquad/zh,scifact,locomo,locomo-sessions,"
    "cloze/ru,cloze/ar,cloze/hi,cloze/th,chunking-eval"
)
_TURNS, _SESSIONS = "locomo", "locomo-sessions"
_MEASURES = {"ndcg_at_10": "nDCG@10", "r_at_1": "R@1", "recall_at_100": "recall@100", "mrr": "MRR"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", help="where the collections lie")
    parser.add_argument("--sets", default=SETS, help="folders in it, comma-separated")
    parser.add_argument("--missing", action="store_true", help="only those not measured yet")
    parser.add_argument("--check", action="store_true", help="only tell what is out of date")
    options = parser.parse_args()
    existing = (
        {**results(), **({spans.NAME: 1} if spans.results() else {})} if options.missing else {}
    )
    for name in options.sets.split(",") if options.folder else ():
        with _collection(options.folder, name) as folder:
            if not folder.is_dir() or name in existing:
                continue
            if name == spans.NAME:
                spans.keep(folder)
            else:
                _keep(name, _measured(folder))
    stale = [path for path, text in outputs().items() if _read(path) != text]
    for path in stale:
        print(f"{path.relative_to(ROOT)} {'is out of date' if options.check else 'is written'}")
        if not options.check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(outputs()[path], encoding="utf-8")
    return int(options.check and bool(stale))


@contextlib.contextmanager
def _collection(folder: Path, name: str) -> Iterator[Path]:
    """Yields a collection's folder; that of LoCoMo's sessions is made for the time."""
    source = folder / _TURNS
    if name != _SESSIONS or not source.is_dir():
        yield folder / name
        return
    with tempfile.TemporaryDirectory(prefix="kbproc-quality-") as own:
        target = Path(own) / _SESSIONS
        target.mkdir()
        rows = map(json.loads, (source / "corpus-sessions.jsonl").open(encoding="utf-8"))
        lines = (json.dumps({**row, "conv": row["_id"].partition(":")[0]}) for row in rows)
        (target / "corpus.jsonl").write_text("\n".join(lines), encoding="utf-8")
        shutil.copy(source / "qrels-sessions.tsv", target / "qrels.tsv")
        shutil.copy(source / "queries.jsonl", target)
        yield target


def _measured(folder: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "kbproc", "eval", str(folder), "--compare", "fusion=rrf"]
    done = subprocess.run([*command, "--format", "json"], stdout=subprocess.PIPE, check=True)
    data: dict[str, Any] = json.loads(done.stdout)["data"]
    for kind in ("worst", "best"):  # questions of others stay out of the repository
        del data["compared"][kind]
    return data


def _keep(name: str, data: dict[str, Any]) -> None:
    all_results = {**results(), name: data}
    RESULTS.write_text(
        json.dumps(all_results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    print(f"{name}: nDCG@10 {data['modes']['hybrid']['ndcg_at_10']['mean']:.3f}", flush=True)


def results() -> dict[str, Any]:
    """Returns collection → the result of `kbproc eval`."""
    text = _read(RESULTS)
    return {} if text is None else dict(json.loads(text))


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


def outputs() -> dict[Path, str]:
    """Returns the page and the chart with their right text."""
    all_results = results()
    in_order = {name: all_results[name] for name in SETS.split(",") if name in all_results}
    block = "\n\n".join(_parts(in_order)) + "\n" if in_order else "Not measured yet: `make eval`.\n"
    block += _within(spans.results())
    answers = _answers(eval_answers.results())
    blocks = {
        "quality": block,
        "answers": answers,
        "other_model": _other_model(other_model.results()),
        "earlier": _since(earlier.results()),
    }
    files = {PAGE: with_blocks(PAGE.read_text(encoding="utf-8"), blocks)}
    if in_order:
        files[CHART] = _chart(in_order)
    return files


def _parts(results: dict[str, Any]) -> Sequence[str]:
    return [
        "![nDCG@10 of words, meaning and both, by collection](search/quality.svg)",
        _means(results),
        _losers(results),
        "Mode hybrid in full:",
        _in_full(results),
        *_found_sessions(results),
        "With `fusion: rrf` instead of `blend`, question by question:",
        _against(results),
        "From which best score on an answer is likely (`data.confidence` cannot know it):",
        _thresholds(results),
    ]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _interval(mean: dict[str, float]) -> str:
    return f"{mean['mean']:.3f} ({mean['low']:.3f}–{mean['high']:.3f})"


def _means(results: dict[str, Any]) -> str:
    modes = ("fts", "vector", "hybrid")
    rows = []
    for name, result in results.items():
        means = {mode: result["modes"][mode]["ndcg_at_10"] for mode in modes}
        best = max(modes, key=lambda mode: means[mode]["mean"])
        cells = [
            f"**{_interval(m)}**" if mode == best else _interval(m) for mode, m in means.items()
        ]
        rows.append([name, str(result["documents"]), str(result["questions"]), *cells])
    return _table(["nDCG@10", "documents", "questions", "words", "meaning", "both"], rows)


def _losers(results: dict[str, Any]) -> str:
    """Returns a sentence about collections where one channel alone is better than both."""
    lost = []
    for name, result in results.items():
        both = result["modes"]["hybrid"]["ndcg_at_10"]["mean"]
        for mode, channel in (("fts", "words"), ("vector", "meaning")):
            alone = result["modes"][mode]["ndcg_at_10"]["mean"]
            if alone > both:
                lost.append(f"{name} ({channel} alone: +{alone - both:.3f})")
    if not lost:
        return "On none of them is one channel alone better than both."
    return f"Both are worse than one channel alone on {', '.join(lost)}."


def _in_full(results: dict[str, Any]) -> str:
    rows = [
        [name, *(_interval(result["modes"]["hybrid"][measure]) for measure in _MEASURES)]
        for name, result in results.items()
    ]
    return _table(["", *_MEASURES.values()], rows)


def _found_sessions(results: dict[str, Any]) -> Iterator[str]:
    """Yields a sentence about how often the right session is among the first hits."""
    if _SESSIONS in results:
        means = results[_SESSIONS]["modes"]["hybrid"]
        shares = (_interval(means[f"r_at_{depth}"]) for depth in (1, 5, 10))
        yield (
            "Of `locomo-sessions` a session that answers is the first hit for {}, among the first "
            "five for {}, among the first ten for {} of the questions."
        ).format(*shares)


def _against(results: dict[str, Any]) -> str:
    rows = []
    for name, result in results.items():
        comparison = result["compared"]
        counts = f"{comparison['better']} / {comparison['worse']} / {comparison['same']}"
        rows.append([name, _moved(comparison["change"]), counts])
    return _table(["", "nDCG@10", "better / worse / same"], rows)


def _thresholds(results: dict[str, Any]) -> str:
    rows = []
    for name, result in results.items():
        least = result["best_scores"]["threshold"]
        refused = "—" if least["refused"] is None else f"{least['refused']:.0%}"
        rows.append([name, f"{least['at']:.3f}", f"{least['kept']:.0%}", refused])
    return _table(["", "from", "of the answered", "of the others refused"], rows)


def _since(comparison: dict[str, Any]) -> str:
    """Returns the table that compares an earlier commit's searches with these."""
    if not comparison:
        return "Not measured yet: `python -m bench.earlier`.\n"
    sets = comparison["sets"]
    head = ["nDCG@10"]
    for mode in ("words", "both"):
        head += [f"{mode} then", "now", "change"]
    rows = []
    for name in filter(sets.__contains__, SETS.split(",")):
        row = [name]
        for mode in earlier.MODES:
            then, now, change = (sets[name][mode][which] for which in ("then", "now", "change"))
            row += [_interval(then), _interval(now), _moved(change)]
        rows.append(row)
    return f"Then: commit {comparison['commit']}.\n\n{_table(head, rows)}\n"


def _other_model(data: dict[str, Any]) -> str:
    """Returns the tables that set another model beside the default one."""
    if not data:
        return "Not measured yet: `python -m bench.other_model FOLDER MODEL`.\n"
    first, second = models = list(data["size_bytes"])
    costs = [
        [name, f"{data['size_bytes'][name] / 1e6:.0f} MB", str(data["texts_per_second"][name])]
        for name in models
    ]
    head = ["nDCG@10", "documents", "questions"]
    for mode in ("meaning", "both"):
        head += [f"{mode}: {first}", second, "change"]
    rows = []
    for name in filter(data["sets"].__contains__, other_model.SETS):
        figures = data["sets"][name]
        row = [name, str(figures["documents"]), str(figures["questions"])]
        for mode in other_model.MODES:
            row += [f"{figures[mode][model]['mean']:.3f}" for model in models]
            row.append(_moved(figures[mode]["change"]))
        rows.append(row)
    cost = _table(["", "exported", "texts a second of one processor"], costs)
    missing = [name for name in other_model.SETS if name not in data["sets"]]
    rest = f"\nNot measured yet: {', '.join(missing)}.\n" if missing else ""
    return f"{cost}\n\n{_table(head, rows)}\n{rest}"


def _answers(results: dict[str, Any]) -> str:
    """Returns the table of answers without an endpoint."""
    if not results:
        return "Not measured yet: `python -m bench.eval_answers FOLDER`.\n"
    head = {
        "questions": "questions",
        "first": "search has it first",
        "holds_of_first": "of these the answer holds it",
        "beside": "answers from a wrong text",
        "refused": "refused",
        "tentative": "answers that say “may hold”",
        "characters": "characters",
    }
    rows = [[name, *(str(row[column]) for column in head)] for name, row in results.items()]
    return _table(["", *head.values()], rows) + "\n"


def _within(data: dict[str, Any]) -> str:
    """Returns a sentence about the gold text within the passages found."""
    if not data:
        return ""
    return (
        f"\nOf the characters that answer the {data['questions']} questions of `chunking-eval`, "
        f"the {data['passages']} best passages, of {data['characters']} characters each in the "
        f"mean, hold {_interval(data['recall'])}; of the characters of these passages they are "
        f"{_interval(data['precision'])}.\n"
    )


def _moved(change: dict[str, float]) -> str:
    return f"{change['mean']:+.3f} ({change['low']:+.3f} to {change['high']:+.3f})"


def _chart(results: dict[str, Any]) -> str:
    rows = [
        Interval(name if mode == "fts" else "", label, **result["modes"][mode]["ndcg_at_10"])
        for name, result in results.items()
        for mode, label in (("fts", "words"), ("vector", "meaning"), ("hybrid", "both"))
    ]
    return intervals("nDCG@10, with intervals that hold nineteen of twenty resampled means", rows)


if __name__ == "__main__":
    sys.exit(main())
