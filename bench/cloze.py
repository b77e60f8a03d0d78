"""`python -m bench.cloze TEXT FOLDER`: makes a collection of a text in any language.

The inverse cloze task (Lee, Chang and Toutanova, 2019): one sentence is taken out of every
paragraph, and asks for the rest of it. Paragraphs are lines of TEXT.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

_SENTENCE = re.compile(r"(?<=[.!?।؟…])\s+")
_SPACE = re.compile(r"\s+")  # Thai and Lao have spaces between sentences only
_UNSPACED = re.compile(r"[\u0e00-\u0eff]")
_SHORTEST = 30  # letters of a sentence that asks
_LEAST_LEFT = 2  # sentences


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("text", type=Path)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    corpus, queries, judged = [], [], ["query-id\tcorpus-id\tscore"]
    for number, line in enumerate(options.text.read_text(encoding="utf-8").splitlines()):
        rest, sentence = cut(line)
        corpus.append({"_id": f"p{number}", "title": "", "text": rest})
        if sentence is not None:
            queries.append({"_id": f"q{number}", "text": sentence})
            judged.append(f"q{number}\tp{number}\t1")
    _write(options.folder / "corpus.jsonl", [one for one in corpus if one["text"]])
    _write(options.folder / "queries.jsonl", queries)
    (options.folder / "qrels.tsv").write_text("\n".join(judged) + "\n")
    print(f"{options.folder}: {len(queries)} questions")
    return 0


def cut(paragraph: str) -> tuple[str, str | None]:
    """Returns the rest, and the middle sentence if it can be a question."""
    spaces = _SPACE if _UNSPACED.search(paragraph) else _SENTENCE
    sentences = spaces.split(paragraph.strip().strip("*# "))
    long = [at for at, one in enumerate(sentences) if len(one) >= _SHORTEST]
    if len(sentences) <= _LEAST_LEFT or not long:
        return paragraph.strip(), None
    at = long[len(long) // 2]
    return " ".join(sentences[:at] + sentences[at + 1 :]), sentences[at]


def _write(path: Path, rows: list[dict[str, str]]) -> None:
    lines = (json.dumps(row, ensure_ascii=False) for row in rows)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
