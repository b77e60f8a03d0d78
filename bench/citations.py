"""Measures how much of a question's gold text lies in the passages that an answer may cite.

`python -m bench.citations FOLDER TOKENIZER`: long texts in `files/`, and `queries.jsonl` with the
characters that answer each question (`doc`, `spans`). It prints the share of these characters
within the passages referred to, and within those that an extractive answer cites; and the tokens
of the references as sent, by the tokenizer of that `tokenizer.json`.
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

from bench.eval_answers import Listener
from bench.filling import filled
from kbproc.base.pipes import leave
from kbproc.engine.models.answering.extractive import Extractive
from kbproc.knowledge.app.library import Library
from kbproc.knowledge.sessions.retrieval import RetrievalRequest, find

Spans = set[int]


def main() -> int:
    folder = Path(sys.argv[1])
    texts = {path.name: path.read_text() for path in sorted((folder / "files").iterdir())}
    questions = [json.loads(line) for line in (folder / "queries.jsonl").read_text().splitlines()]
    figures: list[tuple[float, float, int, int, int]] = []
    with tempfile.TemporaryDirectory() as scratch:
        documents = [{"title": n, "text": text, "source_id": n} for n, text in texts.items()]
        library = filled(Path(scratch) / "store", documents)
        tokenizer = Tokenizer.from_file(sys.argv[2])
        tokenizer.no_truncation()
        tokenizer.no_padding()
        for one in questions:
            figures.append(judged(library, texts, tokenizer, one))
        library.close()
    referred, cited, tokens, count, chars = zip(*figures, strict=True)
    print(f"{len(figures)} questions; share of the answer's characters within")
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


def judged(
    library: Library, texts: dict[str, str], tokenizer: Tokenizer, one: dict[str, Any]
) -> tuple[float, float, int, int, int]:
    request = RetrievalRequest(question=one["text"], kbs=None)
    retrieval = find(library.store, request, now=library.store.host.now())
    answer = Listener()
    Extractive().answer(retrieval.prompt(request, ""), answer)
    cited_numbers = {n for part in answer.parts for n in part.passages or ()}
    gold = {at for start, end in one["spans"] for at in range(start, end)}
    places = {p.n: place(texts[one["doc"]], p.text) for p in retrieval.passages}
    covered = set().union(*places.values())
    cited = set().union(*(places[n] for n in cited_numbers if n in places))
    sent = msgspec.json.encode(retrieval.references).decode()
    tokens = len(tokenizer.encode(sent, add_special_tokens=False).ids)
    share = len(gold & covered) / len(gold), len(gold & cited) / len(gold)
    return *share, tokens, len(retrieval.references), sum(len(p.text) for p in retrieval.passages)


def place(text: str, passage: str) -> Spans:
    """Returns the characters of the passage's words, whatever spaces separate them."""
    start = text.find(passage)
    return set(range(start, start + len(passage))) if start >= 0 else loosely(text, passage)


def loosely(text: str, passage: str) -> Spans:
    """Returns the characters of the passage's lines, because white space may differ."""
    span: Spans = set()
    for line in passage.split("\n"):
        if len(line) > 20 and (start := text.find(line)) >= 0:
            span |= set(range(start, start + len(line)))
    return span


if __name__ == "__main__":
    leave(main())
