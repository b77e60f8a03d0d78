"""Refused writes leave no bytes of their sources in the store's folder."""

from __future__ import annotations

import errno
import itertools
import os
from pathlib import Path
from typing import Any

import pytest

from kbproc.base import failpoints
from kbproc.engine.events.kb import KbDeleted
from tests.kit.records import unnamed
from tests.kit.talk import Session

SECRET = "A refused word"
TEXTS = {"small": SECRET, "large": f"{SECRET} " * 8000}
NEXT = itertools.count()

REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("doc.create", {"title": "T", "kb": "nowhere"}, "resource.not_found"),
    ("doc.create", {"title": "T", "source_id": "taken"}, "resource.already_exists"),
    ("doc.create", {"title": "T", "client_token": "used"}, "resource.conflict"),
    ("doc.create", {"title": "T", "type": "markdown", "tags": ["what?"]}, "input.invalid_params"),
    ("doc.create", {"title": "T", "type": "html", "kb": "nowhere"}, "resource.not_found"),
    ("doc.update", {"id": 1, "expected_revision": 9}, "resource.conflict"),
    ("doc.update", {"id": 99}, "resource.not_found"),
    ("knowledge.store", {"title": "T", "kb": "nowhere"}, "resource.not_found"),
    ("note.put", {"agent": "bot", "slug": "todo", "expected_revision": 9}, "resource.conflict"),
]


@pytest.fixture
def there(session: Session) -> Session:
    """A session with a document, an agent and a note, after several writes."""
    session.data("doc.create", title="There", text="alpha", source_id="taken", client_token="used")
    session.data("agent.create", slug="bot")
    session.data("note.put", agent="bot", slug="todo", text="# Todo")
    return session


def go_on(session: Session) -> None:
    """Writes other sources."""
    for _ in range(2):
        session.data("doc.create", title="Next", text=f"word {next(NEXT)}")


def holds_secret(store: Path, secret: str = SECRET) -> list[str]:
    """Names of the store's files that contain a refused text."""
    paths = [*(store / "sources").rglob("*"), *(store / "log").iterdir()]
    return [path.name for path in paths if path.is_file() and secret.encode() in path.read_bytes()]


def test_what_is_refused_leaves_nothing(there: Session) -> None:
    """Each request has a secret of its own, so that a file shows which one was kept."""
    wrong: list[Any] = []
    for number, (method, params, type) in enumerate(REFUSED):
        named = "body" if method == "knowledge.store" else "text"
        most = 30_000 if method in {"knowledge.store", "note.put"} else None
        for size, text in TEXTS.items():
            own = text.replace(SECRET, f"{SECRET} {number}{size}")[:most]
            error = there.error(method, **{named: own}, **params)["type"]
            without_name = unnamed(there.store)
            go_on(there)
            files = holds_secret(there.store.folder, f"{SECRET} {number}{size}")
            if (error, without_name, files) != (type, set(), []):
                wrong.append((method, params, size, error, without_name, files))
    assert wrong == []
    assert holds_secret(there.store.folder) == []


def test_of_many_those_that_are_refused_leave_nothing(there: Session) -> None:
    items = [{"title": "T", "text": f"{SECRET} {n}", "source_id": "taken"} for n in range(150)]
    items[70] |= {"text": "Added.", "source_id": "new"}
    answer = there.ask("doc.create", documents=items, client_token="many")["result"]["data"]
    assert (answer["added"], answer["failed"]) == (1, 149)
    go_on(there)
    assert holds_secret(there.store.folder) == []
    items[3]["text"] += " changed"
    again = there.error("doc.create", documents=items, client_token="many")
    assert again["type"] == "resource.conflict"
    go_on(there)
    assert holds_secret(there.store.folder) == []


def test_what_the_log_can_not_take_leaves_nothing(there: Session) -> None:
    def full(name: str) -> None:
        if name == "log.write":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for size, text in TEXTS.items():
        failpoints.arm(full)
        assert there.error("doc.create", title="T", text=text)["type"] == "store.io", size
        failpoints.arm(None)
        assert unnamed(there.store) == set(), size
        go_on(there)
        assert holds_secret(there.store.folder) == [], size


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_what_was_given_up_leaves_nothing(there: Session, tmp_path: Path, text: str) -> None:
    """The knowledge base is deleted after its files were read."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.txt").write_text(text)
    there.data("kb.create", slug="gone")
    done: list[object] = []

    def meanwhile(name: str) -> None:
        if name == "blob.write" and not done:
            done.append(name)
            there.store.commit(
                lambda lane: lane.append([KbDeleted(slug="gone")], actor="ann", method="kb.delete")
            )

    failpoints.arm(meanwhile)
    refused = there.error("doc.ingest", paths=["docs"], kb="gone")
    failpoints.arm(None)
    assert refused["type"] == "resource.not_found"
    assert unnamed(there.store) == set()
    go_on(there)
    assert holds_secret(there.store.folder) == []
