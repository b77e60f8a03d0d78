"""Notes of the agent gitea, through their methods."""

from __future__ import annotations

from typing import Any

from kbproc.engine.events import codec
from kbproc.engine.events.document import DocWritten
from kbproc.knowledge.agents.notes.background import Notebooks
from tests.kit.talk import Session


def attach(session: Session) -> Notebooks:
    """Replaces the session's notebooks by new ones that do not watch until they are started."""
    session.library.notebooks.close()
    books = session.library.notebooks = Notebooks(session.store, session.library.intake)
    return books


def put(session: Session, slug: str, text: str, **more: Any) -> Any:
    return session.data("note.put", agent="gitea", slug=slug, text=text, **more)


def get(session: Session, slug: str, **more: Any) -> Any:
    return session.data("note.get", agent="gitea", slug=slug, **more)


def slugs(session: Session, **more: Any) -> list[str]:
    return [note["slug"] for note in session.data("note.list", agent="gitea", **more)]


def approved(session: Session, method: str, **params: Any) -> Any:
    """Calls a method and confirms its plan if it asks for that; returns the data."""
    answer = session.ask(method, **params)
    if "error" in answer and (plan := answer["error"]["data"].get("plan")):
        return session.data(method, **params, confirm=plan["plan_hash"])
    assert "result" in answer, answer
    return answer["result"]["data"]


def history(session: Session, id: int) -> list[tuple[str, str]]:
    """Returns actor and text of every revision of a document, from the log."""
    store = session.store
    return [
        (record.actor, store.blobs.get(event.source_sha256).decode())
        for record in store.log.read(0, store.seq)
        for event in codec.decode(record.events)
        if isinstance(event, DocWritten) and event.id == id
    ]
