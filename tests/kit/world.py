"""A small store with the documents, entries and notes that the declared examples use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.conversations.scripts import make_files
from tests.kit.talk import Session


def filled(folder: Path) -> Path:
    """Fills `folder` with files and a closed store that has ingested one; returns the folder.

    Documents 1 and 2, the entries 3, 4 and 5, of which 4 supersedes 5, and an agent's note 6.
    """
    make_files(folder)
    session = Session(folder / "store", cwd=folder)
    session.data("doc.ingest", paths=["docs/git-admin.md"])
    session.data("kb.create", slug="scratch")
    session.data("doc.create", title="Draft", text="Not begun.", tags=["draft"], kb="scratch")
    session.data("doc.update", id=2, text="Not finished.")
    for title, body in (
        ("The CI cache is keyed by branch", "Each branch begins with an empty cache."),
        ("The CI cache is keyed by lock file", "Deleting the lock file drops the cache."),
        ("The CI has no cache", "Builds begin with nothing."),
    ):
        session.data("knowledge.store", title=title, body=body, tags=["ci"])
    session.data("knowledge.supersede", old_id=5, new_id=4)
    session.data("agent.create", slug="gitea", description="Looks after the Gitea server.")
    text = "# Webhooks\n\nGitea signs deploy hooks with a shared secret."
    session.data("note.put", agent="gitea", slug="gitea-webhooks", text=text)
    session.data("session.create", title="Setting up Git", kb="default")
    session.data("session.ask", session_id=1, question="How is git installed?")
    session.embedded()
    session.close()
    return folder


def carried_out(session: Session, name: str, **params: Any) -> Any:
    """Returns the answer, after the confirmation of the plan where there is one."""
    answer = session.ask(name, **params)
    plan = answer.get("error", {}).get("data", {}).get("plan")
    return answer if plan is None else session.ask(name, **params, confirm=plan["plan_hash"])
