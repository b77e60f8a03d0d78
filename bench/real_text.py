"""Real text for measurements: Python's own documentation, or a collection of a user's.

Every Python carries the language reference (`pydoc_data.topics`) and the standard library's
docstrings: some 300,000 words. `use_collection` takes a folder in BEIR's form instead
(corpus.jsonl, queries.jsonl, qrels.tsv). Where more text is asked for than there is, the sentences
come again in another order, so that passages differ and words keep their frequencies.
"""

from __future__ import annotations

import ast
import itertools
import json
import random
import re
import sysconfig
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

WORDS_IN_CHUNK = 140  # on average
_LEAST_WORDS, _MOST_WORDS = 4, 15  # least and most in a question
_WORDS_IN_SENTENCE = 60  # a longer one is cut there: tables, grammars
_TITLE_WORDS = 8
_SKIPPED_FOLDERS = {"site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3"}
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")


class Page(NamedTuple):
    """A text as its author wrote it. `name`: what judgements of a collection call it."""

    name: str
    text: str


class Passage(NamedTuple):
    """Consecutive sentences. `names`: the pages that they come from."""

    title: str
    text: str
    names: frozenset[str]


class Collection(NamedTuple):
    """Pages, and the questions that people asked of them, each with the pages that answer it."""

    pages: Sequence[Page]
    questions: Sequence[str] = ()
    answers: Sequence[frozenset[str]] = ()


_folder: Path | None = None


def use_collection(folder: Path | None) -> None:
    """Makes every later text and question come from this folder; None: from Python's docs."""
    global _folder  # noqa: PLW0603  one a process, as its command line says
    _folder = folder
    _answers.cache_clear()
    _sentences.cache_clear()


def source_name() -> str:
    """Returns what tables say of the text."""
    return "Python's own documentation" if _folder is None else f"the collection {_folder.name}"


def passages(count: int, *, words: int = WORDS_IN_CHUNK, seed: int = 2) -> Iterator[Passage]:
    """Yields `count` passages of `words` words on average, from half to one and a half of that.

    Lengths differ as those of real chunks do, because equal ones would tie.
    """
    chance, sentences = random.Random(seed), _sentences_without_end()
    for _ in range(count):
        length = chance.randint(words // 2, words * 3 // 2)
        yield _passage(sentences, length)


def texts(count: int, *, words: int = WORDS_IN_CHUNK, seed: int = 2) -> Iterator[str]:
    """Yields the texts of `passages`."""
    return (passage.text for passage in passages(count, words=words, seed=seed))


def queries(count: int) -> list[str]:
    """Returns different questions: a collection's own first, then parts of sentences."""
    questions = dict.fromkeys(collection().questions[:count])
    chance, sentences = random.Random(3), [text.split() for _, text in _sentences()]
    while len(questions) < count:
        words = chance.choice(sentences)
        length = chance.randint(_LEAST_WORDS, _MOST_WORDS)
        if len(words) >= _LEAST_WORDS and any(map(str.isalpha, words)):
            first = chance.randrange(max(1, len(words) - length + 1))
            questions[" ".join(words[first : first + length])] = None
    return list(questions)


def answering(query: str) -> frozenset[str]:
    """Returns the names of the pages that answer a collection's question, if it says so."""
    return _answers().get(query, frozenset())


@cache
def _answers() -> dict[str, frozenset[str]]:
    here = collection()
    return dict(zip(here.questions, here.answers, strict=True))


def collection() -> Collection:
    """Returns the pages and questions that are measured."""
    return _python_docs() if _folder is None else _beir(_folder)


@cache
def _sentences() -> list[tuple[str, str]]:
    """Returns (page, sentence) in the order of the pages; white space is single spaces."""
    pairs = []
    for page in collection().pages:
        for part in _SENTENCE_END.split(page.text):
            words = part.split()
            for first in range(0, len(words), _WORDS_IN_SENTENCE):
                pairs.append((page.name, " ".join(words[first : first + _WORDS_IN_SENTENCE])))
    return pairs


def _sentences_without_end() -> Iterator[tuple[str, str]]:
    yield from _sentences()
    for again in itertools.count(1):
        yield from random.Random(again).sample(_sentences(), len(_sentences()))


def _passage(sentences: Iterator[tuple[str, str]], length: int) -> Passage:
    parts: list[str] = []
    names: set[str] = set()
    remaining = length
    while remaining > 0:
        name, sentence = next(sentences)
        words = sentence.split()[:remaining]
        remaining -= len(words)
        parts.append(" ".join(words))
        names.add(name)
    text = " ".join(parts)
    return Passage(" ".join(text.split()[:_TITLE_WORDS]), text, frozenset(names))


# ---------------------------------------------------------------------- where text comes from


@cache
def _python_docs() -> Collection:
    from pydoc_data.topics import topics

    pages = [Page(name, text) for name, text in topics.items()]
    library = Path(sysconfig.get_path("stdlib"))
    for path in sorted(library.rglob("*.py")):
        module = path.relative_to(library)
        if not _SKIPPED_FOLDERS & set(module.parts) and (text := _docstrings(path)):
            pages.append(Page(str(module), text))
    return Collection(pages)


_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def _docstrings(path: Path) -> str:
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):  # files that are not meant for this Python
        return ""
    nodes = (node for node in ast.walk(tree) if isinstance(node, _DOCUMENTED))
    return "\n\n".join(text for node in nodes if (text := ast.get_docstring(node)))


@cache
def _beir(folder: Path) -> Collection:
    """Reads a folder in BEIR's form; judgements are optional, as is their heading."""
    pages = [
        Page(str(row["_id"]), f"{row.get('title', '')}\n\n{row['text']}")
        for row in _rows(folder / "corpus.jsonl")
    ]
    names: dict[str, set[str]] = {}
    for line in _lines(_first(folder, "qrels")):
        query, name, *grade = line.split("\t")
        if grade and grade[0].isdigit() and int(grade[0]) > 0:
            names.setdefault(query, set()).add(name)
    rows = list(_rows(_first(folder, "queries")))
    answers = [frozenset(names.get(str(row["_id"]), ())) for row in rows]
    return Collection(pages, [str(row["text"]) for row in rows], answers)


def _first(folder: Path, kind: str) -> Path:
    """Returns queries.jsonl, or queries-train.jsonl where there is no other; qrels alike."""
    paths = sorted(folder.glob(f"{kind}*"), key=lambda path: (len(path.name), path.name))
    if not paths:
        raise FileNotFoundError(f"{folder} holds no {kind}.* (a folder in BEIR's form is needed)")
    return paths[0]


def _rows(path: Path) -> Iterator[dict[str, str]]:
    return (json.loads(line) for line in _lines(path))


def _lines(path: Path) -> list[str]:
    return [line for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]
