"""A small searchable store, and questions whose answers tests compare byte for byte."""

from __future__ import annotations

import json
from typing import Any

from tests.kit.talk import Session

WORDS = (
    "git",
    "backup",
    "mirror",
    "repository",
    "install",
    "archive",
    "nightly",
    "branch",
    "merge",
    "rebase",
)

QUESTIONS: list[dict[str, Any]] = [
    {"query": "git backup", "limit": 20},
    {"query": "git backup", "mode": "fts", "explain": True},
    {"query": "mirror the repository", "mode": "vector"},
    {"query": "install", "fusion": "rrf"},
    {"query": '"git backup" -merge', "mode": "fts"},
    {"query": "nightly archive", "tags": ["even"]},
    {"query": "rebase", "kb": "other"},
    {"query": "zebra", "mode": "fts"},
]


def fill(session: Session, count: int = 9) -> None:
    session.data("kb.create", slug="other")
    for n in range(count):
        text = " ".join(WORDS[(n * k) % len(WORDS)] for k in range(1, 25 + n))
        kb, tags = ("other", ["odd"]) if n % 2 else ("default", ["even"])
        session.data("doc.create", title=f"Title {n}", text=text, kb=kb, tags=tags)
    session.embedded()


def change(session: Session) -> None:
    """Replaces a third of the documents and deletes another third."""
    for id in (1, 4, 7):
        session.data("doc.update", id=id, text=f"git branch number {id} was merged")
    confirmed(session, "doc.delete", ids=[2, 5, 8])
    confirmed(session, "chunk.delete", ids=[3])
    session.embedded()


def confirmed(session: Session, method: str, **params: Any) -> Any:
    plan = session.error(method, **params)["plan"]
    return session.data(method, **params, confirm=plan["plan_hash"])


def answers(session: Session) -> list[bytes]:
    """Returns the answers to the questions as bytes, without the log's position."""
    responses = []
    for question in QUESTIONS:
        answer = session.ask("search", **question)["result"]
        responses.append(json.dumps([answer["data"], answer["meta"].get("hint")]).encode())
    return responses


def listed(session: Session) -> list[Any]:
    return [session.data("doc.list"), session.data("kb.list"), session.data("tag.list")]
