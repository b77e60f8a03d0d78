"""`python -m bench.standing [--all]`: how many standing instructions are found, and shown rightly.

standing.json holds invented cases: what a person said in one conversation, which of it holds from
then on, a query, and what of it bears on the query. Each case has a knowledge base of its own. It
prints, for those on which the rules were chosen and with `--all` for the third that was kept aside,
how many sentences are recognised and how many instructions are shown, and of each the false ones.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from bench.bulk_legs import answered, call
from kbproc.base.host import Host
from kbproc.base.text.instruction import standing_in
from kbproc.knowledge.app.library import Library

_CASES = json.loads((Path(__file__).parent / "standing.json").read_text(encoding="utf-8"))
_THIRD = 3


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.standing")
    parser.add_argument("--all", action="store_true", help="the third that was kept aside, too")
    is_whole = parser.parse_args().all
    fitted = [case for place, case in enumerate(_CASES) if place % _THIRD]
    _print("two thirds", fitted)
    if is_whole:
        _print("kept aside", _CASES[::_THIRD])
    return 0


def _print(name: str, cases: list[dict[str, Any]]) -> None:
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as scratch:
        library = Library.open(
            Path(scratch, "store"), host=Host(), cache=Path.home() / ".cache" / "kbproc"
        )
        try:
            for place, case in enumerate(cases):
                _add(library, Path(scratch), place, case)
            library.embedding.start()
            library.embedding.drain(lambda stage, done, total: None)
            for place, case in enumerate(cases):
                _judge(library, place, case, counts)
        finally:
            library.close()
    write = sys.stdout.write
    for kind in ("recognised", "shown"):
        right, total = counts[f"{kind} right"], counts[f"{kind} expected"]
        write(f"{name}: {right}/{total} {kind}, {counts[f'{kind} false']} false\n")


def _add(library: Library, folder: Path, place: int, case: dict[str, Any]) -> None:
    head = {"kbproc": "conversation", "version": 1, "client": "chat", "title": "Talk"}
    lines = [head]
    for turn, text in enumerate(case["said"], 1):
        at = f"2026-03-05T14:{turn:02}:00Z"
        message = {"turn": turn, "at": at, "name": None}
        lines.append({**message, "role": "user", "text": text})
        lines.append({**message, "role": "assistant", "text": "I see, and I will look at it."})
    path = folder / f"case-{place}.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)) + "\n", encoding="utf-8")
    call(library, "kb.create", slug=f"case-{place}")
    call(library, "doc.ingest", paths=[str(path)], kb=f"case-{place}")


def _judge(library: Library, place: int, case: dict[str, Any], counts: Counter[str]) -> None:
    recognised = {text[at:to] for text in case["said"] for at, to in standing_in(text)}
    data = answered(library, "search", query=case["query"], kb=f"case-{place}").data
    bearing = {one.text for one in getattr(data, "standing", None) or ()}
    for kind, texts, expected in (
        ("recognised", recognised, set(case["holds"])),
        ("shown", bearing, set(case["bears"])),
    ):
        counts[f"{kind} right"] += len(texts & expected)
        counts[f"{kind} expected"] += len(expected)
        counts[f"{kind} false"] += len(texts - expected)
        for wrong in sorted(texts ^ expected):
            sign = "false" if wrong in texts else "missing"
            sys.stderr.write(f"{kind}, {sign}: {wrong!r} for {case['query']!r}\n")


if __name__ == "__main__":
    raise SystemExit(main())
