"""Looks at a watched folder and its documents, as a client sees them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.kit.patience import until
from tests.kit.talk import Session

LOOK_S = 0.05  # a look at the documents takes longer than one at a variable


def documents(session: Session) -> dict[str, dict[str, Any]]:
    """Returns the documents by the names of their files."""
    listed = session.data("doc.list", limit=1000)
    return {Path(doc["source"]["path"]).name: doc for doc in listed if doc["source"]["path"]}


def watched(session: Session) -> dict[str, Any]:
    (watch,) = session.data("watch.list")
    return watch  # type: ignore[no-any-return]


def comes(
    session: Session, condition: Callable[[], bool], what: str, details: Callable[[], str]
) -> None:
    """Waits for a condition; looks again whenever the store or the folder's state has changed."""

    def look() -> bool:
        if condition():
            return True
        session.store.wait_for_change(LOOK_S)
        return False

    until(look, what, details)


def follows(session: Session, names: str) -> None:
    """Waits until the documents are those of these files, and nothing is pending."""
    requested = set(names.split())

    def is_current() -> bool:
        return watched(session)["state"] == "current" and documents(session).keys() == requested

    comes(session, is_current, names, lambda: f"{documents(session).keys()} {watched(session)}")


def shows(session: Session, **members: Any) -> None:
    def is_shown() -> bool:
        return members.items() <= watched(session).items()

    comes(session, is_shown, str(members), lambda: str(watched(session)))


def revision(session: Session, name: str, number: int) -> None:
    comes(
        session,
        lambda: documents(session)[name]["revision"] == number,
        f"revision {number} of {name}",
        lambda: str(watched(session)),
    )


def write(folder: Path, count: int) -> list[Path]:
    paths = [folder / f"file{number}.md" for number in range(count)]
    for path in paths:
        path.write_text(f"# {path.stem}\n\nWords of {path.stem}.\n")
    return paths
