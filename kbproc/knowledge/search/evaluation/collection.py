"""Reads collections of documents and questions, with the answers to each question.

The forms are BEIR, a folder of documents with a file of questions, and LongMemEval.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from kbproc.base.errors import KbprocError

QUESTIONS = "questions.jsonl"
_CORPUS = "corpus.jsonl"
_FORMS = (
    f"A folder holds either {_CORPUS}, queries.jsonl and qrels.tsv (BEIR), or documents and "
    f"{QUESTIONS} with lines such as "
    '{"question": "How is it installed?", "answers": ["guide/install.md"]}; '
    "a file of LongMemEval is JSON."
)


class CollectionDocument(Struct, frozen=True):
    """A document. `part`: the part of the collection that questions with the same part search."""

    id: str
    title: str
    text: str
    part: str | None = None


class Question(Struct, frozen=True):
    """A question. `gains`: document id → how well it answers; empty if no document answers.
    `part`: the part of the collection to search; None for all of it.
    """

    id: str
    text: str
    gains: dict[str, float]
    part: str | None = None


class Collection(Struct, frozen=True):
    """A collection. `folder`: the folder of its documents if they are files; their ids are paths
    below it.
    """

    name: str
    documents: list[CollectionDocument]
    questions: list[Question]
    folder: Path | None = None


def read(path: Path) -> Collection:
    """Reads a collection. Raises input.invalid_params if the path holds none."""
    try:
        if path.is_file():
            return _longmemeval(path)
        if (path / _CORPUS).is_file():
            return _beir(path)
        if (path / QUESTIONS).is_file():
            return _own_folder(path)
    except (OSError, UnicodeDecodeError, msgspec.DecodeError, KeyError, TypeError, ValueError) as e:
        raise _refusal(path, f"can't be read as a collection: {_reason(e)}") from e
    raise _refusal(path, "holds no collection of documents and questions")


def _refusal(path: Path, problem: str) -> KbprocError:
    return KbprocError("input.invalid_params", f"{path} {problem}.", field="DIR", hint=_FORMS)


def _reason(error: Exception) -> str:
    return f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error).rstrip(".")


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open("rb") as file:
        for line in file:
            if line.strip():
                yield msgspec.json.decode(line, type=dict)


def _beir(folder: Path) -> Collection:
    gains = _judgements(_first_file(folder, "qrels.tsv", "qrels/test.tsv", "qrels-train.tsv"))
    queries = _first_file(folder, "queries.jsonl", "queries-train.jsonl")
    questions = [
        Question(row["_id"], row["text"], gains[row["_id"]], row.get("conv"))
        for row in _lines(queries)
        if row["_id"] in gains
    ]
    unanswerable = folder / "queries-unanswerable.jsonl"
    if unanswerable.is_file():
        questions += [Question(row["_id"], row["text"], {}) for row in _lines(unanswerable)]
    documents = [
        CollectionDocument(row["_id"], row.get("title") or "", row["text"], row.get("conv"))
        for row in _lines(folder / _CORPUS)
    ]
    return Collection(folder.resolve().name, documents, questions)


def _first_file(folder: Path, *names: str) -> Path:
    path = next((folder / name for name in names if (folder / name).is_file()), None)
    if path is None:
        raise FileNotFoundError(f"{names[0]} is not there")
    return path


def _judgements(path: Path) -> dict[str, dict[str, float]]:
    """Reads a table with a header and the columns query, document and gain, separated by tabs."""
    gains: dict[str, dict[str, float]] = {}
    for line in path.read_text(encoding="utf-8").splitlines()[1:]:
        query, document, gain = line.split("\t")
        gains.setdefault(query, {})[document] = float(gain)
    return gains


def _own_folder(folder: Path) -> Collection:
    questions = [
        Question(str(number), row["question"], dict.fromkeys(row.get("answers", ()), 1.0))
        for number, row in enumerate(_lines(folder / QUESTIONS), 1)
    ]
    for question in questions:
        for name in question.gains:
            if not (folder / name).is_file():
                raise ValueError(f"question {question.id} names {name}, which is no file there")
    return Collection(folder.resolve().name, [], questions, folder)


def _longmemeval(path: Path) -> Collection:
    """Reads LongMemEval. Each question has a haystack of its own, whose sessions are documents."""
    documents, questions = [], []
    for number, row in enumerate(msgspec.json.decode(path.read_bytes(), type=list), 1):
        part = f"q{number}"
        sessions = zip(
            row["haystack_session_ids"],
            row["haystack_dates"],
            row["haystack_sessions"],
            strict=True,
        )
        for id, date, turns in sessions:
            text = "\n\n".join(f"{turn['role']}: {turn['content']}" for turn in turns)
            documents.append(CollectionDocument(f"{part}/{id}", f"Session of {date}", text, part))
        gains = {f"{part}/{id}": 1.0 for id in row["answer_session_ids"]}
        is_unanswerable = str(row["question_id"]).endswith("_abs")
        questions.append(Question(part, row["question"], {} if is_unanswerable else gains, part))
    return Collection(path.stem, documents, questions)
