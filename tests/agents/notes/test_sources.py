"""A note knows what it was derived from, as its front matter says, and what has changed since."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.kit.talk import Session
from tests.kit.world import carried_out

CODE = "a = 1\nb = 2\nc = 3\n"


@pytest.fixture
def guide(session: Session, tmp_path: Path) -> int:
    """A document that a note can be derived from, beside a file and an agent."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "code.py").write_text(CODE)
    session.data("agent.create", slug="scout")
    return int(session.data("doc.create", title="Guide", text="Use tabs.")["id"])


def put(session: Session, slug: str, *sources: int | str, text: str = "Tabs it is.") -> Any:
    head = f"---\nderived_from: [{', '.join(map(str, sources))}]\n---\n" if sources else ""
    return session.data("note.put", agent="scout", slug=slug, text=f"{head}{text}\n")


def cites(session: Session, slug: str) -> list[str]:
    note = session.data("note.get", agent="scout", slug=slug)
    [listed] = [one for one in session.data("note.list", agent="scout") if one["slug"] == slug]
    assert listed.get("source_changed") == note.get("source_changed")
    return [one["cite"] for one in note.get("source_changed", [])]


def test_a_note_is_marked_once_a_source_has_changed(
    session: Session, tmp_path: Path, guide: int
) -> None:
    code = tmp_path / "src" / "code.py"
    other = session.data("doc.create", title="Other", text="Be brief.")["id"]
    note = put(session, "one", guide, "src/code.py#L2-L3", "nowhere.py", 99)
    put(session, "two", other, "src/code.py#L1-L1", "nowhere.py", 99)
    assert note["places"] == [f"{code}:2-3"]
    assert note["unknown_sources"] == ["nowhere.py", "99"]
    assert cites(session, "one") == []
    seq = session.store.published.seq
    code.write_text(f"# new\n{CODE}")
    assert cites(session, "one") == [], "the lines are as they were, further below"
    code.write_text(CODE.replace("2", "20"))
    session.data("doc.update", id=guide, text="Use blanks.")
    changed = ["Guide, revision 2 instead of 1", "code.py, lines 2–3"]
    assert cites(session, "one") == changed
    answer = session.ask("note.list", agent="scout", stale=True)
    listed = [note["slug"] for note in answer["result"]["data"]]
    assert (listed, answer["result"]["meta"]["total"]) == (["one"], 1)
    past = session.data("note.get", agent="scout", slug="one", as_of=seq)
    assert "source_changed" not in past
    hits = session.data("note.search", agent="scout", query="tabs it is", mode="fts")
    assert [hit["slug"] for hit in hits] == ["two", "one"], "a step lower, and not hidden"
    assert [one["cite"] for one in hits[1]["source_changed"]] == changed
    results = session.data("search", query="tabs it is", mode="fts", types=["note"])["results"]
    assert [bool(hit.get("source_changed")) for hit in results] == [False, True]
    put(session, "three", guide)
    session.data("doc.update", id=guide, text="Use dots.")
    first = session.ask("note.list", agent="scout", stale=True, limit=1)["result"]
    cursor = first["meta"]["next_cursor"]
    rest = session.data("note.list", agent="scout", stale=True, cursor=cursor)
    assert [note["slug"] for note in [*first["data"], *rest]] == ["one", "three"]


def test_whoever_edits_a_note_takes_its_sources_as_they_are(
    session: Session, tmp_path: Path, guide: int
) -> None:
    """A path is found again from where the note was put, though the file lies elsewhere."""
    code, notes = tmp_path / "src" / "code.py", session.store.folder / "notes" / "scout"
    put(session, "tabs", guide, "src/code.py")
    session.data("doc.update", id=guide, text="Use blanks.")
    code.write_text("d = 4\n")
    assert len(cites(session, "tabs")) == 2
    (notes / "tabs.md").rename(notes / "blanks.md")
    session.data("note.sync", agent="scout")
    assert len(cites(session, "blanks")) == 2, "another name is no look at the sources"
    head = f"---\nderived_from:\n  - {guide}\n  - src/code.py\n  - src/no.py\n---\n"
    (notes / "blanks.md").write_text(f"{head}Tabs it is. Checked today.\n")
    warnings = session.data("note.sync", agent="scout")["warnings"]
    assert warnings == ["blanks says that it was derived from src/no.py: there is no such source."]
    assert cites(session, "blanks") == []
    code.unlink()
    assert cites(session, "blanks") == ["code.py"]
    put(session, "blanks")
    assert cites(session, "blanks") == [], "it names no sources any more"


def test_a_note_is_trusted_as_its_least_source(session: Session, guide: int) -> None:
    page = session.data("doc.create", title="Page", text="Use blanks.", origin="web")["id"]
    assert put(session, "tabs", guide)["origin"] == "user"
    assert put(session, "blanks", guide, page)["origin"] == "web"


def test_a_purge_leaves_the_id_of_a_source_and_no_digest(session: Session, guide: int) -> None:
    put(session, "tabs", guide, "src/code.py")
    carried_out(session, "store.purge", document_ids=[guide])
    with session.store.reading() as snapshot:
        row = snapshot.queries.note("scout", "tabs")
    assert row is not None and row.anchors is not None
    assert f'{{"document":{guide}}}' in row.anchors and "code.py" in row.anchors
