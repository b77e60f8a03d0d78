"""A plan shows old and new values, in sentences that a person approves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.kit.sources import source_files
from tests.kit.talk import Session


def changes(session: Session, method: str, **params: Any) -> list[str]:
    answer = session.ask(method, **params, dry_run=True)["result"]
    lines: list[str] = answer["meta"]["plan"]["changes"]
    return lines


SHOWN: list[tuple[str, dict[str, Any], list[str]]] = [
    ("kb.update", {"slug": "default", "name": "P2"}, ['name: "Default" → "P2"']),
    ("kb.update", {"slug": "default", "name": "Default"}, []),
    ("kb.create", {"slug": "books", "name": "Books"}, ['name: null → "Books"']),
    ("doc.update", {"id": 1, "title": "New"}, ['title: "Old" → "New"']),
    (
        "doc.update",
        {"id": 1, "tags": ["b"], "metadata": {"n": 2}},
        ['tags: ["a"] → ["b"]', 'metadata: {"n":1} → {"n":2}'],
    ),
    (
        "doc.update",
        {"id": 1, "text": "longer"},
        ["text: 1 chunk, 3 bytes → 1 chunk, 6 bytes"],
    ),
    ("doc.create", {"title": "T", "text": "x"}, ["add “T” to default: 1 chunk, 1 byte"]),
    (
        "knowledge.store",
        {"title": "T", "body": "x", "confidence": 30},
        ["add “T” to default", "confidence: null → 30"],
    ),
    ("agent.update", {"slug": "gitea", "kbs": []}, ["kbs: null → []"]),
    (
        "agent.update",
        {"slug": "gitea", "quotas": {"notes_stored": 5}, "description": "Y"},
        ['description: "X" → "Y"', "notes_stored: 2 → 5"],
    ),
    (
        "agent.create",
        {"slug": "backups", "scopes": ["doc:read"]},
        ['scopes: null → ["doc:read"]'],
    ),
]


def test_a_plan_shows_values(session: Session) -> None:
    session.data("doc.create", title="Old", text="old", tags=["a"], metadata={"n": 1})
    session.data("agent.create", slug="gitea", description="X", quotas={"notes_stored": 2})
    before = source_files(session.store.folder)
    plans = [
        (
            method,
            params,
            [
                line
                for line in changes(session, method, **params)
                if not line.startswith("notes_folder")
            ],
        )
        for method, params, _ in SHOWN
    ]
    assert plans == SHOWN
    assert source_files(session.store.folder) == before


def test_a_long_value_is_cut(session: Session) -> None:
    [line] = changes(session, "kb.update", slug="default", description="x" * 1000)
    assert len(line) < 500 and line.endswith("…")


def test_no_secret_is_in_a_plan(session: Session, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("s3cret")
    key.chmod(0o600)
    url = "http://127.0.0.1:9/v1"
    model = {"name": "m", "kind": "openai", "url": url, "api_key_file": str(key)}
    answer = session.ask("model.use", **model, dry_run=True)["result"]
    assert 'model: "hash" → "m"' in answer["meta"]["plan"]["changes"]
    assert answer["meta"]["plan"]["counts"] == {"chunks": 0}
    assert "s3cret" not in str(answer)
