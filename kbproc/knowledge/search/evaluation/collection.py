"""Collections of documents and questions, with what answers each.

Owns: reading the BEIR form, a folder of one's own documents with questions, and LongMemEval.
Refuses to know: how anything is searched. Nothing is downloaded.
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


class Document(Struct, frozen=True):
    """`part`: questions with one are asked within it."""

    id: str
    title: str
    text: str
    part: str | None = None


class Question(Struct, frozen=True):
    """`gains`: document id → how well it answers; empty: nothing answers it."""

    id: str
    text: str
    gains: dict[str, float]
    part: str | None = None


class Collection(Struct, frozen=True):
    """`folder`: where its documents are files; their ids are paths below it."""

    name: str
    documents: list[Document]
    questions: list[Question]
    folder: Path | None = None


def read(path: Path) -> Collection:
    """Raises input.invalid_params for what is none."""
    try:
        if path.is_file():
            return _longmemeval(path)
        if (path / _CORPUS).is_file():
            return _beir(path)
        if (path / QUESTIONS).is_file():
            return _own(path)
    except (OSError, UnicodeDecodeError, msgspec.DecodeError, KeyError, TypeError, ValueError) as e:
        raise _refused(path, f"can't be read as a collection: {_told(e)}") from e
    raise _refused(path, "holds no collection of documents and questions")


def _refused(path: Path, why: str) -> KbprocError:
    return KbprocError("input.invalid_params", f"{path} {why}.", field="DIR", hint=_FORMS)


def _told(error: Exception) -> str:
    return f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error).rstrip(".")


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open("rb") as file:
        for line in file:
            if line.strip():
                yield msgspec.json.decode(line, type=dict)


def _beir(folder: Path) -> Collection:
    gains = _judgements(_first(folder, "qrels.tsv", "qrels/test.tsv", "qrels-train.tsv"))
    asked = _first(folder, "queries.jsonl", "queries-train.jsonl")
    questions = [
        Question(row["_id"], row["text"], gains[row["_id"]], row.get("conv"))
        for row in _lines(asked)
        if row["_id"] in gains
    ]
    others = folder / "queries-unanswerable.jsonl"
    if others.is_file():
        questions += [Question(row["_id"], row["text"], {}) for row in _lines(others)]
    documents = [
        Document(row["_id"], row.get("title") or "", row["text"], row.get("conv"))
        for row in _lines(folder / _CORPUS)
    ]
    return Collection(folder.resolve().name, documents, questions)


def _first(folder: Path, *names: str) -> Path:
    found = next((folder / name for name in names if (folder / name).is_file()), None)
    if found is None:
        raise FileNotFoundError(f"{names[0]} is not there")
    return found


def _judgements(path: Path) -> dict[str, dict[str, float]]:
    """Of a table with a header: query, document, gain, with a tab between."""
    found: dict[str, dict[str, float]] = {}
    for line in path.read_text(encoding="utf-8").splitlines()[1:]:
        query, document, gain = line.split("\t")
        found.setdefault(query, {})[document] = float(gain)
    return found


def _own(folder: Path) -> Collection:
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
    """Each question has a haystack of its own; a session of it is a document."""
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
            said = "\n\n".join(f"{turn['role']}: {turn['content']}" for turn in turns)
            documents.append(Document(f"{part}/{id}", f"Session of {date}", said, part))
        gains = {f"{part}/{id}": 1.0 for id in row["answer_session_ids"]}
        nothing = str(row["question_id"]).endswith("_abs")
        questions.append(Question(part, row["question"], {} if nothing else gains, part))
    return Collection(path.stem, documents, questions)
