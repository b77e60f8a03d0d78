"""Detection of a query's language, and the notice that the model may not know it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbproc.base.text.query import parse_query
from kbproc.engine.models.onnx import tokenized
from kbproc.knowledge.search.reading import Language, language
from tests.kit import models
from tests.kit.talk import Session

QUERIES = Path(__file__).parent / "queries"
TECHNICAL: list[str] = json.loads((QUERIES / "technical.json").read_text())
LANGUAGES: dict[str, list[str]] = json.loads((QUERIES / "languages.json").read_text())
TEXTS = [
    "The proxy answers with a timeout when the service behind it is slow.",
    "To merge two branches, rebase one and resolve conflicts in each commit.",
    "Der Server antwortet nicht, wenn das Zertifikat abgelaufen ist und niemand es erneuert.",
]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    folder = tmp_path_factory.mktemp("language")
    session = Session(folder / "store", cwd=folder)
    for text in TEXTS:
        session.data("doc.create", title="-", text=text)
    yield session
    session.close()


def language_of(store: Session, text: str) -> Language:
    with store.store.searching() as snapshot:
        return language(parse_query(text), snapshot.fulltext)


def test_the_language_of_a_query(store: Session, subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, Language]] = [
        ("nginx timeout", "english"),
        ("Zertifikat abgelaufen", "english"),  # too few words to tell
        ("¿Qué son los clades?", "other"),
        ("LoRA finetuning", "english"),  # one small word, of a name
        ("rebase branches conflicts commit proxy", "english"),  # English texts hold them
        ("antwortet zertifikat abgelaufen erneuert niemand", "unknown"),  # German texts do
        ("warum antwortet der Server nicht mehr", "other"),
        ("why does the Server antwortet nicht", "english"),
        ("сервер", "other"),
        ("nginx 超时 错误", "other"),
        ("A nyomtató nem működik a frissítés óta", "unknown"),
        ("", "english"),
    ]
    for query, expected in cases:
        with subtests.test(query=query, expected=expected):
            assert language_of(store, query) == expected


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    """The default model's tokenizer, which suffices to measure how well the model knows a text."""
    tokenizers = pytest.importorskip("tokenizers")
    folder = models.default_source().folder
    if folder is None:
        pytest.skip("the default model is not installed")
    return tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))


def is_doubted(store: Session, tokenizer: Any, query: str) -> bool:
    verdict = language_of(store, query)
    fluency = tokenized(tokenizer, query.lower(), is_foreign=verdict == "other")
    return verdict != "english" and fluency.factor < 0.5


def test_no_short_technical_query_is_doubted(store: Session, tokenizer: Any) -> None:
    assert len(set(TECHNICAL)) == 200
    assert [query for query in TECHNICAL if is_doubted(store, tokenizer, query)] == []


def test_languages_that_the_model_lacks_are_doubted(store: Session, tokenizer: Any) -> None:
    queries = [query for own in LANGUAGES.values() for query in own]
    assert len(set(queries)) == 200
    assert sum(is_doubted(store, tokenizer, query) for query in queries) >= 190
