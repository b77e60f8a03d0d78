"""One scenario that reaches every failpoint, and what must be true however it was disturbed.

Every write carries a token. When all writes are sent again from the start, those that were
done get their first answer and the others are done, so the end is always the same.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Ask = Callable[..., dict[str, Any]]
SMALL_SEGMENT = 4000

LARGE = "the harbour is kept open " + "and so on " * 7000  # too long for a source pack
LAST = [
    {"title": "Last but one", "text": "the last but one of them", "kb": "other"},
    {"title": "Lost", "text": "one that can't be added", "kb": "nowhere"},
    {"title": "Last", "text": "the last of them"},
]
WRITES: list[tuple[str, dict[str, Any]]] = [
    ("kb.create", {"slug": "other"}),
    ("doc.ingest", {"paths": ["docs"]}),
    ("doc.create", {"title": "Secret", "text": "the secret of the lighthouse " * 30}),
    ("doc.create", {"title": "Kept", "text": LARGE, "kb": "other"}),
    ("doc.update", {"id": 2, "text": "the second file, written anew by hand"}),
    ("doc.update", {"id": 1, "title": "First", "tags": ["done"]}),
    ("doc.delete", {"ids": [3]}),
    ("index.rebuild", {}),
    ("model.use", {"name": "other", "kind": "hash", "dim": 24}),
    ("store.purge", {"document_ids": [4]}),
    ("store.backup", {"path": "backup"}),
    ("doc.create", {"documents": LAST}),
    # The writes below reach only a few failpoints: see `shorten`.
    ("agent.create", {"slug": "keeper"}),
    ("agent.create", {"slug": "brief"}),
    ("note.put", {"agent": "keeper", "slug": "harbour", "text": "# Harbour\n\nIt is open.\n"}),
    ("note.put", {"agent": "keeper", "slug": "harbour", "text": "# Harbour\n\nIt is shut.\n"}),
    ("note.put", {"agent": "brief", "slug": "tide", "text": "# Tide\n\nIt is high.\n"}),
    ("note.delete", {"agent": "brief", "slug": "tide"}),
    ("knowledge.store", {"title": "Old", "body": "The lamp is lit at six."}),
    ("knowledge.store", {"title": "New", "body": "The lamp is lit at seven."}),
    ("knowledge.supersede", {"old_id": 10, "new_id": 11}),
]

READS: list[tuple[str, dict[str, Any]]] = [
    ("doc.list", {}),
    ("kb.list", {}),
    ("tag.list", {}),
    ("doc.get", {"id": 2, "text": True}),
    ("search", {"query": "lighthouse harbour file", "limit": 20}),
    ("search", {"query": "the second", "mode": "fts"}),
    ("search", {"query": "secret lighthouse", "mode": "vector"}),
    ("note.list", {"agent": "keeper"}),
    ("note.list", {"agent": "brief"}),
    ("knowledge.search", {"query": "lamp lit"}),
    ("agent.list", {}),
]


FIRST_WRITES, _FIRST_READS = 12, 7


def shorten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drops the writes of agents, notes and entries: for failpoints that the first writes reach."""
    monkeypatch.setattr(sys.modules[__name__], "WRITES", WRITES[:FIRST_WRITES])
    monkeypatch.setattr(sys.modules[__name__], "READS", READS[:_FIRST_READS])


def prepare(folder: Path) -> None:
    docs = folder / "docs"
    docs.mkdir(parents=True)
    for name in ("one", "two", "three"):
        path = docs / f"{name}.md"
        path.write_text(f"# {name}\n\nThis is file {name}.\n\n## More\n\n{name}\n")
        os.utime(path, (0, 0))  # because documents have their files' dates


def write(ask: Ask, number: int) -> dict[str, Any]:
    """Returns the answer to write `number`; a person approves it where approval is needed."""
    method, params = WRITES[number]
    params = {**params, "client_token": f"write-{number}"}
    answer = ask(method, **params)
    if answer.get("error", {}).get("data", {}).get("type") == "input.confirmation_required":
        plan = answer["error"]["data"]["plan"]
        answer = ask(method, **params, confirm=plan["plan_hash"])
    return answer


def answers(ask: Ask) -> list[str]:
    """Answers to the reads, without positions and other meta."""
    return [json.dumps(ask(method, **params)["result"]["data"]) for method, params in READS]
