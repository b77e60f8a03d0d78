"""How much of what answers a question lies in the passages that an answer may cite.

`python -m bench.citations FOLDER TOKENIZER`: long texts in `files/`, and `queries.jsonl` with the
characters that answer each question (`doc`, `spans`). Told: the share of these characters within
the passages that are referred to, and within those that an extractive answer cites; and the tokens
of the references as they are sent, by the tokenizer of that `tokenizer.json`.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from statistics import mean
from typing import Any

import msgspec
from tokenizers import Tokenizer

from bench.bulk_legs import call
from kbproc.base.host import Host
from kbproc.base.pipes import leave
from kbproc.library.library import Library
from kbproc.models.answering.extractive import Extractive
from kbproc.models.answering.interface import Part
from kbproc.sessions.retrieval import Wanted, find

Spans = set[int]


class Said:
    """Keeps which passages an answer cites."""

    is_over = False

    def __init__(self) -> None:
        self.cited: set[int] = set()

    def say(self, parts: list[Part]) -> None:
        self.cited |= {n for part in parts for n in part.passages or ()}

    def warn(self, text: str) -> None:
        pass

    def when_over(self, act: Any) -> None:
        pass


def main() -> int:
    folder = Path(sys.argv[1])
    texts = {path.name: path.read_text() for path in sorted((folder / "files").iterdir())}
    questions = [json.loads(line) for line in (folder / "queries.jsonl").read_text().splitlines()]
    told: list[tuple[float, float, int, int, int]] = []
    with tempfile.TemporaryDirectory() as scratch:
        library = filled(texts, Path(scratch) / "store")
        tokenizer = Tokenizer.from_file(sys.argv[2])
        tokenizer.no_truncation()
        tokenizer.no_padding()
        for one in questions:
            told.append(judged(library, texts, tokenizer, one))
        library.close()
    referred, cited, tokens, count, chars = zip(*told, strict=True)
    print(f"{len(told)} questions; share of the answer's characters within")
    print(
        f"  the passages referred to: {mean(referred):.3f} ({mean(count):.1f} passages, "
        f"{mean(chars):.0f} characters)"
    )
    print(f"  those that an extractive answer cites: {mean(cited):.3f}")
    print(
        f"tokens of the references: {mean(tokens):.0f} on average, {max(tokens)} at most; "
        f"of ten: {max(t * 10 / c for t, c in zip(tokens, count, strict=True) if c):.0f} at most"
    )
    return 0


def filled(texts: dict[str, str], store: Path) -> Library:
    library = Library.open(store, host=Host(), cache=Path.home() / ".cache" / "kbproc")
    for name, text in texts.items():
        call(library, "doc.create", title=name, text=text, source_id=name)
    library.embedding.start()
    library.embedding.drain(lambda done, total: None)
    return library


def judged(
    library: Library, texts: dict[str, str], tokenizer: Tokenizer, one: dict[str, Any]
) -> tuple[float, float, int, int, int]:
    wanted = Wanted(question=one["text"], kbs=None)
    found = find(library.store, wanted, now=library.store.host.now())
    said = Said()
    Extractive().answer(found.prompt(wanted, ""), said)
    gold = {at for start, end in one["spans"] for at in range(start, end)}
    places = {p.n: place(texts[one["doc"]], p.text) for p in found.passages}
    seen = set().union(*places.values())
    cited = set().union(*(places[n] for n in said.cited if n in places))
    sent = msgspec.json.encode(found.references).decode()
    tokens = len(tokenizer.encode(sent, add_special_tokens=False).ids)
    share = len(gold & seen) / len(gold), len(gold & cited) / len(gold)
    return *share, tokens, len(found.references), sum(len(p.text) for p in found.passages)


def place(text: str, passage: str) -> Spans:
    """The characters of the passage's words, wherever the spaces between them have gone."""
    start = text.find(passage)
    return set(range(start, start + len(passage))) if start >= 0 else loosely(text, passage)


def loosely(text: str, passage: str) -> Spans:
    """Line by line: white space may have been changed."""
    found: Spans = set()
    for line in passage.split("\n"):
        if len(line) > 20 and (start := text.find(line)) >= 0:
            found |= set(range(start, start + len(line)))
    return found


if __name__ == "__main__":
    leave(main())
