"""An imported entry or note knows of its sources, of its approval and of its times what it knew."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kbproc.base import git
from tests.conftest import OpenSession
from tests.kit import knowledge
from tests.kit.git import run_git
from tests.kit.talk import Session

CODE = "a = 1\nb = 2\nc = 3\n"
TITLES = ("Guide", "Lines", "File", "Commit", "Entry", "Stale")


class Moved(NamedTuple):
    """A store, the file of all that it holds, and the folder of what its entries are derived from.

    `ids`: of its entries, by title; `guide`: of a document.
    """

    session: Session
    folder: Path
    ids: dict[str, int]
    guide: int


def stored(session: Session, title: str, *sources: int | str, **more: Any) -> int:
    entry = session.data("knowledge.store", title=title, body=title, derived_from=sources, **more)
    return int(entry["id"])


@pytest.fixture
def moved(session: Session, tmp_path: Path) -> Iterator[Moved]:
    run_git(tmp_path, "init", "-q")
    (tmp_path / "code.py").write_text(CODE)
    run_git(tmp_path, "add", "code.py")
    run_git(tmp_path, "commit", "-q", "-m", "one")
    commit = git.commit_named(tmp_path, "HEAD")
    session.data("doc.create", title="Before", text="so that ids differ")
    guide = session.data("doc.create", title="Guide", text="Use tabs.")["id"]
    other = session.data("doc.create", title="Style", text="Be brief.")["id"]
    ids = {
        "Guide": stored(session, "Guide", guide, valid_from="2026-01-01", valid_to="2026-07-01"),
        "Lines": stored(session, "Lines", "code.py:2-3"),
        "File": stored(session, "File", "code.py"),
        "Commit": stored(session, "Commit", f"commit:{commit}"),
        "Stale": stored(session, "Stale", other),
    }
    ids["Entry"] = stored(session, "Entry", ids["Guide"])
    session.data("doc.update", id=other, text="Be long.")
    knowledge.agent(session.store, "scout")
    text = f"---\nderived_from: [{guide}, code.py#L2-L3]\n---\nTabs.\n"
    session.data("note.put", agent="scout", slug="style", text=text)
    session.data("store.export", path="all.ndjson")
    yield Moved(session, tmp_path, ids, guide)


def stale(session: Session) -> set[str]:
    entries = session.data("knowledge.list", stale=True, include_superseded=True, limit=100)
    notes = session.data("note.list", agent="scout")
    marked = {note["title"] for note in notes if note.get("source_changed")}
    return {entry["title"] for entry in entries} | marked


def update(session: Session, title: str, text: str) -> None:
    texts = session.data("doc.list", types=["text"])
    [document] = [one for one in texts if one["title"] == title]
    session.data("doc.update", id=document["id"], text=text)


def test_marks_behave_as_they_did(open_session: OpenSession, moved: Moved) -> None:
    two = open_session(moved.folder / "two", folder=moved.folder)
    two.data("doc.create", title="Its own", text="so that ids differ here")
    answer = two.ask("store.import", path="all.ndjson", keep_origins=True)["result"]
    assert (answer["data"]["sources_left"], answer["data"]["places_left"]) == (0, 0)
    assert stale(two) == stale(moved.session) == {"Stale"}, "nothing else has changed"
    [entry] = [one for one in two.data("knowledge.list", limit=50) if one["title"] == "Guide"]
    assert (entry["valid_from"][:10], entry["valid_to"][:10]) == ("2026-01-01", "2026-07-01")
    assert entry["derived_from"] != [moved.guide], "the document has another id here"
    both = (moved.session, two)
    for session in both:
        update(session, "Guide", "Use blanks.")
    assert stale(two) == stale(moved.session) == {"Stale", "Guide", "Style"}
    (moved.folder / "code.py").write_text("# new\n" + CODE)
    assert stale(two) == stale(moved.session) == {"Stale", "Guide", "Style", "File"}
    (moved.folder / "code.py").write_text(CODE.replace("2", "20"))
    run_git(moved.folder, "commit", "-q", "--amend", "-a", "-m", "another")
    assert stale(two) == stale(moved.session) == {*TITLES, "Style"} - {"Entry"}
    for session in both:
        new = stored(session, "New")
        session.data("knowledge.supersede", old_id=by_title(session, "Guide"), new_id=new)
    assert stale(two) == stale(moved.session) == {*TITLES, "Style"}


def by_title(session: Session, title: str) -> int:
    entries = session.data("knowledge.list", include_superseded=True, limit=100)
    return next(int(entry["id"]) for entry in entries if entry["title"] == title)


def test_files_count_only_if_a_person_vouches(open_session: OpenSession, moved: Moved) -> None:
    two = open_session(moved.folder / "two", folder=moved.folder)
    answer = two.ask("store.import", path="all.ndjson")["result"]
    assert (answer["data"]["sources_left"], answer["data"]["places_left"]) == (0, 4)
    assert "4 sources are files or commits" in answer["meta"]["hint"]
    (moved.folder / "code.py").unlink()
    assert stale(two) == {"Stale"}, "no file is looked at that an unknown hand has named"
    update(two, "Guide", "Use blanks.")
    assert stale(two) == {"Stale", "Guide", "Style"}


@pytest.mark.parametrize("whole", [True, False])
def test_a_document_that_is_not_in_the_file_is_left_out(
    open_session: OpenSession, moved: Moved, whole: bool
) -> None:
    """Without sources a document's text is that of its chunks, and so has another digest."""
    one, two = moved.session, open_session(moved.folder / "two", folder=moved.folder)
    if whole:
        plan = one.error("doc.delete", ids=[moved.guide])["plan"]["plan_hash"]
        one.data("doc.delete", ids=[moved.guide], confirm=plan)
    one.data("store.export", path="some.ndjson", sources=whole)
    answer = two.ask("store.import", path="some.ndjson", keep_origins=True)["result"]
    assert answer["data"]["sources_left"] == (2 if whole else 0)
    assert ("2 sources are not in the file" in answer["meta"].get("hint", "")) == whole
    assert stale(two) == {"Stale"}


def test_who_waits_for_an_approval_still_waits(open_session: OpenSession, moved: Moved) -> None:
    one, two = moved.session, open_session(moved.folder / "two", folder=moved.folder)
    one.data("kb.update", slug="default", review="all")
    waiting = stored(one, "Waiting", moved.guide)
    one.data("knowledge.supersede", old_id=moved.ids["File"], new_id=waiting)
    result = one.data("store.export", path="more.ndjson")
    assert result["entries"] == len(moved.ids) + 1
    answer = two.ask("store.import", path="more.ndjson")["result"]
    assert answer["data"]["in_review"] == 1
    assert "1 entry waits for an approval" in answer["meta"]["hint"]
    [entry] = two.data("review.list")
    assert (entry["title"], entry["text"]) == ("Waiting", "Waiting")
    assert "Waiting" not in {one["title"] for one in two.data("knowledge.list", limit=50)}
    seq = two.store.published.seq
    again = two.data("store.import", path="more.ndjson")
    assert (again["added"], two.store.published.seq) == (0, seq), "it is here already"
    two.data("review.approve", ids=[entry["id"]])
    old = two.data("knowledge.get", id=by_title(two, "File"))
    assert old["superseded_by"] == entry["id"], "it takes the place that it was stored for"
    assert two.data("store.import", path="more.ndjson")["added"] == 0, "nor is it asked for again"
    update(two, "Guide", "Use blanks.")
    assert "Waiting" in stale(two)
