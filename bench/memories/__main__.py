"""`python -m bench.memories`: how often a store of short Chinese memories seems to know an answer.

Thirty sentences about one person are entries of a store; fifty questions are about them, and fifty
about the world. Each question is searched by words and meaning.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import Counter
from pathlib import Path

from bench.bulk_legs import call
from bench.filling import filled, names
from kbproc.base.pipes import leave

HERE = Path(__file__).parent


def main() -> int:
    argparse.ArgumentParser(prog="python -m bench.memories", description=__doc__).parse_args()
    data = json.loads((HERE / "zh.json").read_text(encoding="utf-8"))
    documents = [
        {"title": f"记忆 {number}", "text": text, "source_id": str(number)}
        for number, text in enumerate(data["memories"])
    ]
    levels, right = Counter[tuple[str, str]](), 0
    with tempfile.TemporaryDirectory() as scratch:
        library = filled(Path(scratch) / "store", documents)
        ids = names(library)
        for question, number in data["questions"]:
            page = call(library, "search", query=question)
            levels["own", page.confidence] += 1
            right += ids[page.results[0].source.document_id] == str(number)
        for question in data["foreign"]:
            levels["foreign", call(library, "search", query=question).confidence] += 1
        library.close()
    print(f"first hit right: {right} of {len(data['questions'])}")
    for kind in ("own", "foreign"):
        counts = ", ".join(
            f"{level} {levels[kind, level]}" for level in ("none", "related", "likely")
        )
        print(f"{kind}: {counts}")
    return 0


if __name__ == "__main__":
    leave(main())
