"""Entries know when what they were derived from has changed: documents, files, lines, commits."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kbproc.base import git, paths
from kbproc.base.host import Host
from kbproc.engine.store import edited_files
from kbproc.knowledge.documents import anchors
from tests.kit.git import run_git
from tests.kit.patience import LONG
from tests.kit.talk import Session

Change = list[dict[str, Any]]
EDITS = 1000 if LONG else 300


def stored(session: Session, title: str, *sources: int | str, **more: Any) -> int:
    entry = session.data("knowledge.store", title=title, body=title, derived_from=sources, **more)
    return int(entry["id"])


def changed(session: Session, id: int, **more: Any) -> Change:
    entry = session.data("knowledge.get", id=id, **more)
    result: Change = entry.get("source_changed", [])
    return result


def stale(session: Session) -> list[int]:
    return [entry["id"] for entry in session.data("knowledge.list", stale=True, limit=1000)]


def test_an_entry_says_which_revision_of_a_document_it_was_derived_from(session: Session) -> None:
    guide = session.data("doc.create", title="Guide", text="Use tabs.")["id"]
    entry, other = stored(session, "Tabs, not blanks", guide), stored(session, "Tabs and spaces")
    session.data("doc.update", id=guide, tags=["style"])
    assert changed(session, entry) == [], "its text is as it was"
    seq = session.store.published.seq
    session.data("doc.update", id=guide, text="Use blanks.")
    [change] = changed(session, entry)
    assert change == {
        "change": "changed",
        "cite": "Guide, revision 3 instead of 1",
        "document_id": guide,
        "was_revision": 1,
        "revision": 3,
    }
    assert (stale(session), changed(session, entry, as_of=seq)) == ([entry], [])
    hits = session.data("search", query="tabs", mode="fts", types=["knowledge"])["results"]
    assert [hit["source"]["document_id"] for hit in hits] == [other, entry], "a step lower"
    assert [hit.get("source_changed") for hit in hits] == [None, [change]]
    assert hits[0]["score"] >= hits[1]["score"]
    session.data("doc.update", id=guide, text="Use tabs.")
    assert stale(session) == [], "it says again what it said then"
    plan = session.error("doc.delete", ids=[guide])["plan"]["plan_hash"]
    session.data("doc.delete", ids=[guide], confirm=plan)
    assert changed(session, entry)[0]["change"] == "gone"


def test_an_entry_derived_from_an_entry_changes_with_it(session: Session) -> None:
    first, second = stored(session, "First"), stored(session, "Second")
    derived = stored(session, "From the first", first)
    session.data("knowledge.supersede", old_id=first, new_id=second)
    assert [one["change"] for one in changed(session, derived)] == ["superseded"]


def test_an_approval_leaves_sources_as_they_were(session: Session, tmp_path: Path) -> None:
    """Who approves an entry has not compared it with its sources: a mark stays."""
    (tmp_path / "code.py").write_text("a = 1\n")
    session.data("kb.update", slug="default", review="all")
    first, second = stored(session, "First", "code.py"), stored(session, "Second", "code.py")
    session.data("review.approve", ids=[first])
    assert changed(session, first) == []
    (tmp_path / "code.py").write_text("a = 2\n")
    session.data("review.approve", ids=[second])
    assert stale(session) == [first, second]


def test_lines_count_wherever_they_stand(session: Session, tmp_path: Path) -> None:
    code = tmp_path / "wait.py"
    code.write_text("a = 1\nb = 2\nc = 3\nd = 4\n")
    lines, whole = stored(session, "Waits", "wait.py:2-3"), stored(session, "All", "wait.py")
    assert session.data("knowledge.get", id=lines)["places"] == [f"{code}:2-3"]
    code.write_text("# new\n\na = 1\nb = 2\nc = 3\n")
    assert stale(session) == [whole], "the two lines have moved, and are as they were"
    code.write_text("# new\n\na = 1\nb = 2\nc = 30\n")
    [change] = changed(session, lines)
    assert (change["cite"], change["path"]) == ("wait.py, lines 2–3", str(code))
    session.data("knowledge.verify", ids=[lines])
    assert stale(session) == [whole], "a person has compared them"
    seq = session.store.published.seq
    plan = session.error("events.revert", seqs=[seq])["plan"]["plan_hash"]
    session.data("events.revert", seqs=[seq], confirm=plan)
    assert stale(session) == [lines, whole]
    code.unlink()
    assert [one["change"] for one in changed(session, whole)] == ["gone"]
    session.data("knowledge.verify", ids=[whole])
    assert stale(session) == [lines], "a source that is gone is none any more"


@pytest.mark.parametrize(
    ("source", "type"),
    [
        ("nowhere.py", "resource.not_found"),
        ("five.txt:4-9", "input.invalid_params"),
        ("five.txt:3-2", "input.invalid_params"),
        ("commit:abcdef12", "resource.not_found"),
        ("../outside.txt", "path.outside_root"),
    ],
)
def test_a_source_that_is_not_there_is_refused(
    open_session: Callable[..., Session], tmp_path: Path, source: str, type: str
) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "five.txt").write_text("1\n2\n3\n4\n5\n")
    session = open_session(folder=folder)
    error = session.error("knowledge.store", title="T", body="B", derived_from=["five.txt", source])
    assert (error["type"], error["field"]) == (type, "$.params.derived_from[1]")


def test_a_commit_counts_until_it_is_reverted_or_dropped(session: Session, tmp_path: Path) -> None:
    run_git(tmp_path, "init", "-q")
    for name in ("one", "two", "three"):
        (tmp_path / name).write_text(name)
        run_git(tmp_path, "add", name)
        run_git(tmp_path, "commit", "-qm", name)
    second = git.commit_named(tmp_path, "HEAD~1")
    assert second is not None
    entry = stored(session, "Two came", f"commit:{second[:8]}")
    assert session.data("knowledge.get", id=entry)["places"] == [f"commit:{second}"]
    assert changed(session, entry) == []
    run_git(tmp_path, "revert", "--no-edit", second)
    assert changed(session, entry)[0]["change"] == "reverted"
    run_git(tmp_path, "reset", "-q", "--hard", f"{second}~1")
    assert changed(session, entry)[0]["change"] == "gone"


def test_a_file_that_stays_is_read_once(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, reads = tmp_path / "a.txt", list[Path]()
    file.write_text("a")
    entry = stored(session, "A", "a.txt")
    read_file = paths.read_file

    def counted(path: Path, most: int, **more: Any) -> bytes:
        reads.append(path)
        return read_file(path, most, **more)

    monkeypatch.setattr(paths, "read_file", counted)
    monkeypatch.setattr(anchors, "UNSETTLED_MS", -(10**15))  # the host's clock stands in the past
    for _ in range(3):
        assert changed(session, entry) == []
    assert reads == [file]
    file.write_text("bb")
    assert changed(session, entry) != []
    assert reads == [file, file]


def test_agents_entries_are_derived_from_the_files_that_they_have_edited(
    session: Session, tmp_path: Path
) -> None:
    for name in ("cache.py", "other.py", "unknown.py"):
        (tmp_path / name).write_text(f"# {name}\nvalue = 1\n")
    session.data("doc.ingest", paths=["cache.py", "other.py"], origin="web")
    session.data("agent.create", slug="bot")
    bot, now = session.another("bot"), session.connection.service.host.now_ms()
    for name in ("cache.py", "other.py", "unknown.py"):
        edited_files.note(session.store.folder, str(tmp_path / name), now)
    edited_files.note(session.store.folder, "/elsewhere/cache.py", now)
    entry = bot.data("knowledge.store", title="How cache.py keys", body="By lock file.")
    assert entry["places"] == [str(tmp_path / "cache.py")], "it names one of them"
    assert (entry["origin"], entry["derived_from"]) == ("agent", []), "nobody has said so"
    entry = bot.data("knowledge.store", title="Builds take long", body="12 minutes.")
    assert entry["places"] == [str(tmp_path / "other.py"), str(tmp_path / "cache.py")]
    (tmp_path / "cache.py").write_text("# cache.py\nvalue = 2\n")
    assert len(stale(session)) == 2
    assert "places" not in bot.data("knowledge.store", title="A", body="B", derived_from=[])
    assert "places" not in session.data("knowledge.store", title="A person's", body="cache.py")
    assert edited_files.lately(session.store.folder, now + 5 * 3_600_000) == []


# ---------------------------------------------------------------------- any edits


class World:
    """Files and documents that change at random, and what is true of the entries about them."""

    def __init__(self, session: Session, folder: Path, seed: int) -> None:
        self.session, self.folder = session, folder
        self.random = random.Random(seed)
        self.texts: dict[str, list[str] | None] = {}
        self.documents: dict[int, str] = {}
        self.sources: dict[int, tuple[str, list[str]] | tuple[int, str]] = {}
        for number in range(8):
            name = f"f{number}.txt"
            self.write(name, [self.line() for _ in range(self.random.randint(3, 12))])
            lines = self.texts[name] or []
            self.sources[stored(session, f"Whole {name}", name)] = (name, [])
            first = self.random.randint(1, len(lines) - 1)
            last = self.random.randint(first, len(lines))
            entry = stored(session, f"Part of {name}", f"{name}:{first}-{last}")
            self.sources[entry] = (name, lines[first - 1 : last])
        self.first = {name: lines for name, lines in self.texts.items() if lines}
        for number in range(4):
            text = self.line()
            id = session.data("doc.create", title=f"D{number}", text=text)["id"]
            self.documents[id] = text
            self.sources[stored(session, f"About D{number}", id)] = (id, text)

    def line(self) -> str:
        return f"value {self.random.randint(0, 40)}"

    def write(self, name: str, lines: list[str] | None) -> None:
        self.texts[name] = lines
        if lines is None:
            (self.folder / name).unlink(missing_ok=True)
        else:
            (self.folder / name).write_text("\n".join(lines))

    def edit(self) -> None:
        if self.random.random() < 0.15:
            id = self.random.choice(list(self.documents))
            text = self.random.choice([self.line(), self.documents[id]])
            first = next(source[1] for source in self.sources.values() if source[0] == id)
            self.documents[id] = str(self.random.choice([text, first]))
            self.session.data("doc.update", id=id, text=self.documents[id])
            return
        name = self.random.choice(list(self.texts))
        lines = list(self.texts[name] or self.first[name])
        place = self.random.randrange(len(lines))
        match self.random.randrange(7):
            case 0:
                lines[place] = self.line()
            case 1:
                lines.insert(place, self.line())
            case 2 if len(lines) > 1:
                del lines[place]
            case 3:
                lines = list(self.first[name])
            case 4:
                os.utime(self.folder / name) if self.texts[name] is not None else None
            case 5:
                self.random.shuffle(lines)
            case _:
                self.write(name, None)
                return
        self.write(name, lines)

    def is_changed(self, source: tuple[Any, Any]) -> bool:
        what, part = source
        if isinstance(what, int):
            return bool(self.documents[what] != part)
        lines = self.texts[what]
        if lines is None:
            return True
        if not part:
            return lines != self.first[what]
        count = len(part)
        return all(lines[at : at + count] != part for at in range(len(lines) - count + 1))


def test_random_edits_are_neither_missed_nor_made_up(session: Session, tmp_path: Path) -> None:
    world = World(session, tmp_path, seed=66)
    marks = wrong = 0
    for number in range(EDITS):
        world.edit()
        with session.store.reading() as snapshot:
            rows = snapshot.queries.entries_by_id(list(world.sources))
            sources = anchors.Sources(
                snapshot.queries, session.store.blobs.get, now_ms=Host().now_ms
            )
            marked = set(sources.changes(rows))
        true = {id for id, source in world.sources.items() if world.is_changed(source)}
        marks += len(true)
        wrong += len(marked ^ true)
        assert marked == true, f"after edit {number}"
    assert wrong == 0
    assert marks > EDITS, "the edits change something"
