"""Notes folders and the log are kept in step while people edit: no text is ever lost."""

from __future__ import annotations

import errno
import itertools
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from kbproc.base import changes, failpoints
from kbproc.engine.events import codec
from kbproc.engine.events.document import DocWritten
from kbproc.engine.projections.catalog.rows import DocumentRow
from kbproc.knowledge.agents.notes import background, edit
from kbproc.knowledge.agents.notes import files as notefiles
from kbproc.knowledge.agents.notes.background import Notebooks
from kbproc.knowledge.agents.notes.files import MOST_BYTES, digest
from kbproc.knowledge.agents.notes.sync import Sync
from kbproc.knowledge.app.health import doctor
from tests.conftest import OpenSession
from tests.kit.faults import as_killed
from tests.kit.notes import approved, attach, get, history, put, slugs
from tests.kit.patience import LIVES, LONG, PATIENCE, until
from tests.kit.talk import Session, as_bytes, cancel, request

EXAMPLES, STEPS = (300, 60) if LONG else (2, 30)


def sync(session: Session, **more: Any) -> dict[str, Any]:
    """The members of the answer that are neither zero nor empty."""
    done = session.data("note.sync", agent="gitea", **more)
    return {name: value for name, value in done.items() if value and name != "changes"}


def write(folder: Path, **notes: str) -> None:
    for slug, text in notes.items():
        (folder / f"{slug.replace('_', '-')}.md").write_text(text)


# ------------------------------------------------------------------ what is recorded


def test_what_people_do_is_recorded_as_the_files(session: Session, folder: Path) -> None:
    write(folder, one_note="# One\n\nfish", two_notes="two", three_notes="three")
    assert sync(session) == {"agents": 1, "added": 3}
    assert get(session, "one-note")["title"] == "One"
    ids = {slug: get(session, slug)["id"] for slug in slugs(session)}
    write(folder, one_note="# One\n\nbirds", four_notes="four")
    (folder / "two-notes.md").rename(folder / "deux.md")
    (folder / "three-notes.md").unlink()
    done = session.data("note.sync", agent="gitea")
    assert done["changes"] == [
        {"agent": "gitea", "slug": "deux", "action": "renamed", "was": "two-notes"},
        {"agent": "gitea", "slug": "four-notes", "action": "added"},
        {"agent": "gitea", "slug": "one-note", "action": "changed"},
        {"agent": "gitea", "slug": "three-notes", "action": "removed"},
    ]
    assert slugs(session) == ["deux", "four-notes", "one-note"]
    assert get(session, "deux")["id"] == ids["two-notes"]
    assert get(session, "deux")["title"] == "Deux"
    assert history(session, ids["two-notes"]) == [("file", "two"), ("file", "two")]
    assert get(session, "one-note")["updated_by"] == "file"
    assert [r.method for r in session.store.log.read(2, session.store.seq)] == ["note.sync"] * 3
    assert sync(session) == {"agents": 1, "unchanged": 3}


BEES = "# Bees\n\n" + "".join(f"Rule {n}: whoever keeps bees waits {n} days.\n" for n in range(9))
MEAD = "# Mead\n\n" + "".join(f"In week {n} the must is stirred {n} times.\n" for n in range(9))


def test_a_note_that_is_renamed_and_edited_keeps_its_history(
    session: Session, folder: Path
) -> None:
    write(folder, bees=BEES, mead=MEAD, wasps="# Wasps\n\nThey sting.", other="other")
    sync(session)
    ids = {slug: get(session, slug)["id"] for slug in slugs(session)}
    for slug in ("bees", "mead", "wasps"):
        (folder / f"{slug}.md").unlink()
    write(
        folder,
        drink=MEAD.replace("week 3", "week 4") + "\nAnd more.\n",
        insects=BEES.replace("Rule 2", "Rule two"),
        hornets="# Hornets\n\nThey live in trees, and no word is the same.",
    )
    done = session.data("note.sync", agent="gitea")
    assert done["changes"] == [
        {"agent": "gitea", "slug": "drink", "action": "renamed", "was": "mead"},
        {"agent": "gitea", "slug": "hornets", "action": "added"},
        {"agent": "gitea", "slug": "insects", "action": "renamed", "was": "bees"},
        {"agent": "gitea", "slug": "wasps", "action": "removed"},
    ]
    assert get(session, "drink")["id"] == ids["mead"]
    assert get(session, "drink")["text"].endswith("And more.\n")
    assert get(session, "insects")["id"] == ids["bees"]
    entries = session.data("note.history", agent="gitea", slug="insects")
    assert [one["action"] for one in entries] == ["replaced", "created"]
    assert "name was bees" in entries[0]["summary"] and entries[0]["actor"] == "file"
    (deletion, _) = session.data("note.history", agent="gitea", slug="wasps")
    assert deletion["action"] == "deleted"
    never = session.ask("note.history", agent="gitea", slug="mead")
    assert never["error"]["data"]["type"] == "resource.not_found"


def test_half_of_the_notes_may_be_renamed_and_edited(session: Session, folder: Path) -> None:
    """Renamed notes still have files, so the sync holds no removal back for a person."""
    write(folder, bees=BEES, mead=MEAD)
    sync(session)
    for slug, text in (("bees", BEES), ("mead", MEAD)):
        (folder / f"{slug}.md").unlink()
        write(folder, **{f"my-{slug}": f"{text}More.\n"})
    assert sync(session) == {"agents": 1, "renamed": 2}


HEAD = "---\ntitle: Deep thoughts\ntags: [Bees, mead]\nowner: robin\n---\n"


def test_front_matter_gives_a_note_its_title_and_tags(session: Session, folder: Path) -> None:
    write(folder, aa=f"{HEAD}# A head\n\nwords\n", bb="---\ntags: mead\n---\nwords\n", cc="words")
    write(folder, dd="---\n# no title\nkey: value\n---\n# The head\n", ee="{ words }")
    sync(session)
    listed = session.data("note.list", agent="gitea")
    assert [(note["slug"], note["title"], note["tags"]) for note in listed] == [
        ("aa", "Deep thoughts", ["bees", "mead"]),
        ("bb", "Bb", ["mead"]),
        ("cc", "Cc", []),
        ("dd", "The head", []),
        ("ee", "Ee", []),
    ]
    answer = session.data("note.search", agent="gitea", query="deep thoughts", mode="fts")
    assert [hit["slug"] for hit in answer] == ["aa"]
    answer = session.data("search", query="words", mode="fts", metadata={"owner": "robin"})
    assert [hit["source"]["title"] for hit in answer["results"]] == ["Deep thoughts"]
    answer = session.data("note.search", agent="gitea", query="words", mode="fts", tags=["mead"])
    assert sorted(hit["slug"] for hit in answer) == ["aa", "bb"]
    written = put(session, "ff", f"{HEAD}words")
    assert (written["title"], written["tags"]) == ("Deep thoughts", ["bees", "mead"])
    assert get(session, "ff")["text"] == f"{HEAD}words"


def test_files_that_lie_or_are_called_otherwise_are_counted(session: Session, folder: Path) -> None:
    write(folder, aa="a note")
    for path in ("sub/one.md", "sub/deeper/two.md", "sub/x.txt", ".git/three.md", "My Note.md"):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("text")
    (folder / "link.md").symlink_to(folder / "aa.md")
    done = session.data("note.sync", agent="gitea")
    assert (done["added"], done["in_folders"], len(done["skipped"])) == (1, 2, 2)
    (warning,) = done["warnings"]
    assert warning.startswith("2 Markdown files lie in sub-folders of ")
    status = session.data("agent.status", slug="gitea")
    assert (status["misnamed_files"], status["files_in_folders"]) == (1, 2)
    assert (status["notes_folder"], status["notes"]) == (str(folder), 1)
    for number in range(10_001):  # more files than a sync counts
        (folder / "sub" / f"{number}.md").touch()
    done = session.data("note.sync", agent="gitea")
    assert done["in_folders"] is None
    assert any(one.startswith("At least ") and " lie in sub-" in one for one in done["warnings"])
    status = session.data("agent.status", slug="gitea")
    assert (status["misnamed_files"], status["files_in_folders"]) == (1, None)
    # One agent has no count, so the sum for all agents is None, too.
    assert session.data("note.sync")["in_folders"] is None


def test_files_with_one_text_are_told_apart_when_renamed(session: Session, folder: Path) -> None:
    write(folder, aa="same", bb="same", cc="other", dd="more")
    sync(session)
    ids = [get(session, slug)["id"] for slug in ("aa", "bb")]
    (folder / "aa.md").rename(folder / "xx.md")
    (folder / "bb.md").rename(folder / "yy.md")
    assert sync(session) == {"agents": 1, "renamed": 2, "unchanged": 2}
    assert [get(session, slug)["id"] for slug in ("xx", "yy")] == ids


def test_many_new_notes_take_few_records(session: Session, folder: Path) -> None:
    write(folder, **{f"note-{i}": f"# Note {i}" for i in range(300)})
    before = session.store.seq
    assert sync(session)["added"] == 300
    assert session.store.seq - before == 3


def test_what_holds_no_words_is_kept_all_the_same(session: Session, folder: Path) -> None:
    text = "---\nstatus: open\n---\n"
    write(folder, plan=text)
    sync(session)
    assert get(session, "plan")["text"] == text
    put(session, "plan", "words now")
    assert history(session, get(session, "plan")["id"])[0] == ("file", text)


def test_what_is_skipped_is_named_and_stays_as_it_was(session: Session, folder: Path) -> None:
    write(folder, good="good", bad="once good")
    sync(session)
    (folder / "bad.md").write_bytes(b"\xff\xfe")
    (folder / "big.md").write_bytes(b"x" * (MOST_BYTES + 1))
    (folder / "Wrong Name.md").write_text("x")
    (folder / "link.md").symlink_to(folder / "good.md")
    (folder / ".edit.md").write_text("x")
    (folder / "below").mkdir()
    done = sync(session)
    assert [file["file"] for file in done.pop("skipped")] == [
        "Wrong Name.md",
        "bad.md",
        "big.md",
        "link.md",
    ]
    assert done == {"agents": 1, "unchanged": 1}
    assert get(session, "bad")["text"] == "once good"


def test_dry_run_tells_and_does_nothing(session: Session, folder: Path) -> None:
    write(folder, aa="1", bb="2", cc="3")
    sync(session)
    write(folder, aa="new", dd="4")
    (folder / "bb.md").unlink()
    seq = session.store.seq
    plan = session.ask("note.sync", dry_run=True)["result"]["meta"]["plan"]
    assert plan["changes"] == [
        "gitea: 3 changes, 1 unchanged",
        "changed: gitea/aa",
        "added: gitea/dd",
        "removed: gitea/bb",
    ]
    assert (plan["risk"]["level"], session.store.seq) == ("low", seq)


def test_progress_and_warnings_are_events(session: Session, folder: Path) -> None:
    write(folder, aa="1", bb="2")
    sync(session)
    shutil.rmtree(folder)
    session.send(b'{"jsonrpc":"2.0","id":7,"method":"note.sync","params":{}}')
    lines = [session.receive() for _ in range(3)]
    assert b'"type":"init"' in lines[0]
    assert b'"type":"warning"' in lines[1]
    assert b'"result"' in lines[2]
    folder.mkdir()
    write(folder, aa="1", bb="2", cc="3")
    session.send(b'{"jsonrpc":"2.0","id":8,"method":"note.sync","params":{}}')
    lines = [session.receive() for _ in range(3)]
    assert b'"progress"' in lines[1]
    assert b'"message":"gitea/cc"' in lines[1]


def test_a_cancelled_sync_keeps_what_it_has_recorded(session: Session, folder: Path) -> None:
    write(folder, **{f"note-{i}": f"# Note {i}" for i in range(200)})
    answer: dict[str, Any] = {}

    def stop(name: str) -> None:
        if name == "log.written" and not answer:
            answer["cancelled"] = True
            session.connection.receive(as_bytes(cancel(1)))

    failpoints.arm(stop)
    answer = {}
    wrong = session.error("note.sync")
    assert wrong["type"] == "operation.cancelled"
    failpoints.arm(None)
    assert len(slugs(session, limit=1000)) == 128
    assert sync(session) == {"agents": 1, "added": 72, "unchanged": 128}


# ------------------------------------------------------------------ removals


def test_more_than_half_needs_a_person(session: Session, folder: Path) -> None:
    write(folder, aa="1", bb="2", cc="3")
    sync(session)
    write(folder, dd="4")
    for slug in ("aa", "bb"):
        (folder / f"{slug}.md").unlink()
    seq = session.store.seq
    error = session.error("note.sync")
    assert error["type"] == "input.confirmation_required"
    assert error["risk"] == {"level": "bulk", "action": "note.sync"}
    assert [target["id"] for target in error["plan"]["targets"]] == ["gitea/aa", "gitea/bb"]
    assert session.store.seq == seq
    dry = session.ask("note.sync", dry_run=True)["result"]["meta"]["plan"]
    assert dry["plan_hash"] == error["plan"]["plan_hash"]
    writer = session.another("user", scopes="note:read,note:write")
    answer = writer.ask("note.sync")["result"]["data"]
    assert (answer["held_back"], answer["removed"], answer["added"]) == (2, 0, 1)
    assert "2 of 3 notes of gitea have no file any more" in answer["warnings"][0]
    wrong = writer.error("note.sync", confirm=error["plan"]["plan_hash"])
    assert wrong["type"] == "auth.insufficient_scope"
    (folder / "aa.md").write_text("1")
    for slug in ("cc", "dd"):  # the approved plan is stale after this
        (folder / f"{slug}.md").unlink()
    stale = session.error("note.sync", confirm=error["plan"]["plan_hash"])
    assert stale["type"] == "resource.plan_stale"
    done = session.data("note.sync", confirm=stale["plan"]["plan_hash"])
    assert (done["removed"], slugs(session)) == (3, ["aa"])


def test_half_goes_without_asking(session: Session, folder: Path) -> None:
    write(folder, aa="1", bb="2")
    sync(session)
    (folder / "aa.md").unlink()
    assert sync(session) == {"agents": 1, "removed": 1, "unchanged": 1}


@pytest.mark.parametrize("how", ["gone", "file", "moved", "emptied"])
def test_a_folder_that_is_gone_removes_nothing(
    session: Session, folder: Path, how: str, open_session: OpenSession
) -> None:
    write(folder, aa="1", bb="2", cc="3")
    sync(session)
    store = session.store.folder
    if how == "emptied":
        for path in folder.iterdir():
            path.unlink()
    elif how == "moved":
        folder.rename(folder.with_name("elsewhere"))
    else:
        shutil.rmtree(folder)
    if how == "file":
        folder.write_text("no folder")
    session.close()
    again = open_session(store)
    attach(again)
    listed = again.ask("note.list", agent="gitea")["result"]
    assert [note["slug"] for note in listed["data"]] == ["aa", "bb", "cc"]
    assert len(listed["meta"]["notice"]) == 1
    if how != "emptied":
        wrong = again.error("note.put", agent="gitea", slug="dd", text="4")
        assert wrong["type"] in {"store.io", "resource.conflict"}
        assert not (folder / "dd.md").exists()
        assert again.data("note.sync")["warnings"] == listed["meta"]["notice"]
    if how != "file":
        done = again.data("note.sync", restore=True)
        assert (done["restored"], done["warnings"]) == (3, [])
        assert sorted(path.name for path in folder.iterdir()) == ["aa.md", "bb.md", "cc.md"]
        assert "notice" not in again.ask("note.list", agent="gitea")["result"]["meta"]
        put(again, "dd", "4")


def test_what_is_held_back_stays_so_whatever_is_written_meanwhile(
    session: Session, folder: Path, open_session: OpenSession
) -> None:
    write(folder, aa="1", bb="2", cc="3", dd="4")
    sync(session)
    for slug in ("aa", "bb", "cc"):
        (folder / f"{slug}.md").unlink()
    store = session.store.folder
    assert session.another("user", scopes="note:read,note:write").data("note.sync")["held_back"]
    for number in range(3):
        session.close()
        session = open_session(store)
        attach(session)
        put(session, f"new-{number}", "x")
    session.close()
    session = open_session(store)
    attach(session)
    assert slugs(session)[:4] == ["aa", "bb", "cc", "dd"]
    done = session.data("note.sync", agent="gitea", restore=True)
    assert done["restored"] == 3
    (folder / "aa.md").unlink()
    assert sync(session)["removed"] == 1
    assert [path.name for path in (store / "notes").iterdir()] == ["gitea"]


def test_a_file_put_back_meanwhile_is_not_removed(
    session: Session, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, aa="1", bb="2", cc="3")
    sync(session)
    (folder / "aa.md").unlink()
    record = Sync.record_removed

    def late(sync: Sync, rows: list[DocumentRow]) -> bool:
        write(folder, aa="1")
        return record(sync, rows)

    monkeypatch.setattr(Sync, "record_removed", late)
    assert sync(session) == {"agents": 1, "unchanged": 3}
    assert get(session, "aa")["revision"] == 1


def test_restore_goes_on_past_what_stands_in_the_way(
    session: Session, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, aa="1", bb="2", cc="3")
    sync(session)
    for slug in ("aa", "bb", "cc"):
        (folder / f"{slug}.md").unlink()
    (folder / "bb.md").mkdir()
    restore = Sync.restore

    def late(sync: Sync, rows: list[DocumentRow]) -> bool:
        (folder / "aa.md").mkdir()
        return restore(sync, rows)

    monkeypatch.setattr(Sync, "restore", late)
    done = session.data("note.sync", agent="gitea", restore=True)
    assert (done["restored"], len(done["warnings"])) == (1, 1)
    assert "aa is not restored" in done["warnings"][0]
    assert [file["file"] for file in done["skipped"]] == ["bb.md"]
    assert slugs(session) == ["aa", "bb", "cc"]


def test_a_leftover_that_stays_keeps_nothing_from_being_recorded(
    session: Session, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / ".aa.0.kbproc-part").write_text("")
    (folder / ".mine.kbproc").write_text("not ours")
    write(folder, bb="by hand")

    def refused(fd: int, name: str) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(edit, "unlink", refused)
    books: Notebooks = session.library.notebooks
    sync = Sync(books.book(session.store.published.roster.agents["gitea"]))
    assert sync.run()
    assert sync.result.added == 1
    assert [warning.split()[0] for warning in sync.result.warnings] == [".aa.0.kbproc-part"]
    assert slugs(session) == ["bb"]


def test_an_agents_own_folder_is_never_made_up(session: Session, tmp_path: Path) -> None:
    """kbproc does not create a missing folder again: its disk may be unmounted."""
    own = tmp_path / "own"
    session.data("agent.create", slug="other", notes_folder=str(own))
    own.mkdir(exist_ok=True)
    write(own, aa="1")
    assert session.data("note.list", agent="other")[0]["slug"] == "aa"
    own.rename(tmp_path / "unmounted")
    wrong = session.error("note.put", agent="other", slug="bb", text="2")
    assert wrong["type"] == "store.io"
    assert not own.exists()
    (tmp_path / "unmounted").rename(own)
    session.data("note.put", agent="other", slug="bb", text="2")
    assert (own / "bb.md").read_text() == "2"


# ------------------------------------------------------------------ seeds, agents, crashes


def test_seeded_folders_are_there_with_the_first_question(session: Session, folder: Path) -> None:
    write(folder, todo="# To do\n\nharbour crane")
    hits = session.data("note.search", agent="gitea", query="crane", mode="fts")
    assert [hit["slug"] for hit in hits] == ["todo"]


def test_a_new_agent_of_the_same_name_takes_the_files_up(session: Session, folder: Path) -> None:
    write(folder, todo="1", more="2")
    assert slugs(session) == ["more", "todo"]
    approved(session, "agent.delete", slug="gitea")
    assert session.data("note.sync")["agents"] == 0
    assert session.error("note.list", agent="gitea")["type"] == "resource.not_found"
    session.data("agent.create", slug="gitea")
    assert slugs(session) == ["more", "todo"]


def test_another_folder_is_another_set_of_files(
    session: Session, folder: Path, tmp_path: Path
) -> None:
    write(folder, todo="1")
    slugs(session)
    other = tmp_path / "other"
    other.mkdir()
    write(other, new="2", todo="1")
    session.data("agent.update", slug="gitea", notes_folder=str(other))
    assert slugs(session) == ["new", "todo"]


def test_a_put_that_met_an_edit_and_died_leaves_both_texts(
    session: Session, folder: Path, tmp_path: Path, open_session: OpenSession
) -> None:
    put(session, "todo", "one")
    killed = tmp_path / "killed"

    def reached(name: str) -> None:
        if name == "note.staged":
            (folder / "todo.md").write_text("by hand")
        if name == "note.exchanged" and not killed.exists():
            as_killed(session.store.folder, killed)

    failpoints.arm(reached)
    session.ask("note.put", agent="gitea", slug="todo", text="two")
    failpoints.arm(None)
    session.close()
    again = open_session(killed)
    attach(again)
    id = get(again, "todo")["id"]
    assert history(again, id) == [("user", "one"), ("file", "by hand"), ("file", "two")]
    names = [path.name for path in (killed / "notes" / "gitea").iterdir()]
    assert names == ["todo.md"]


# ------------------------------------------------------------------ watching


@pytest.fixture
def watched(session: Session) -> Iterator[Notebooks]:
    books: Notebooks = session.library.notebooks  # type: ignore[attr-defined,unused-ignore]
    books.start()
    yield books
    books.close()


def eventually(holds: Callable[[], bool]) -> None:
    until(holds, "what an edit brings about")


def test_an_edit_is_found_soon(
    session: Session, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system's notification of an edit begins a sync; no poll does, and it waits for little."""
    monkeypatch.setattr(background, "LOOK_S", LIVES)
    assert changes.STEP_MS <= changes.DEBOUNCE_MS <= 500
    books: Notebooks = session.library.notebooks  # type: ignore[attr-defined,unused-ignore]
    books.start()
    write(folder, todo="one")
    eventually(lambda: slugs(session) == ["todo"])
    for number in range(3):
        write(folder, todo=f"by hand {number}")
        eventually(lambda n=number: get(session, "todo")["text"] == f"by hand {n}")  # type: ignore[misc]
        assert get(session, "todo")["updated_by"] == "file"
    books.close()


def test_the_watcher_holds_large_removals_back(
    session: Session, folder: Path, watched: Notebooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, aa="1", bb="2", cc="3")
    eventually(lambda: len(slugs(session)) == 3)
    scan, one_at_a_time = notefiles.scan, threading.Lock()

    def whole(*args: Any, **named: Any) -> notefiles.Scan:
        """Scans only before or after the removals: a scan in between would see one file removed."""
        with one_at_a_time:
            return scan(*args, **named)

    monkeypatch.setattr(notefiles, "scan", whole)
    session.data("note.sync", agent="gitea")  # waits for a scan that began before
    with one_at_a_time:
        for path in folder.glob("*.md"):
            path.unlink()
    notice = lambda: session.ask("note.list", agent="gitea")["result"]["meta"].get("notice")  # noqa: E731
    eventually(lambda: any("have no file any more" in warning for warning in notice() or []))
    write(folder, dd="4")
    eventually(lambda: "dd" in slugs(session))
    write(folder, ee="5", ff="6")
    eventually(lambda: "ff" in slugs(session))
    # The removals are held back even as a small share of all notes.
    assert slugs(session) == ["aa", "bb", "cc", "dd", "ee", "ff"]


def test_a_removal_before_the_system_reports_changes_is_found(
    session: Session, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder is empty when it is looked at first, and again when the notifications begin."""
    is_looked_at, begins, one_at_a_time = threading.Event(), threading.Event(), threading.Lock()
    scan, look = notefiles.scan, background.fingerprint

    def looks(path: Path) -> int:
        number = look(path)
        is_looked_at.set()
        return number

    def whole(*args: Any, **named: Any) -> notefiles.Scan:
        with one_at_a_time:
            return scan(*args, **named)

    def follow(folders: object, stop: threading.Event, concerns: object) -> Iterator[set[str]]:
        while not begins.wait(changes.LOOK_MS / 1000):
            if stop.is_set():
                return
        yield set()
        stop.wait()

    monkeypatch.setattr(background, "fingerprint", looks)
    monkeypatch.setattr(notefiles, "scan", whole)
    monkeypatch.setattr(changes, "follow", follow)
    books: Notebooks = session.library.notebooks  # type: ignore[attr-defined,unused-ignore]
    with one_at_a_time:
        books.start()
        assert is_looked_at.wait(PATIENCE)
        write(folder, todo="one")
    eventually(lambda: slugs(session) == ["todo"])
    session.data("note.sync", agent="gitea")  # waits for a scan that began before
    (folder / "todo.md").unlink()
    begins.set()
    notice = lambda: session.ask("note.list", agent="gitea")["result"]["meta"].get("notice")  # noqa: E731
    eventually(lambda: any("have no file any more" in warning for warning in notice() or []))
    books.close()


def test_agents_that_come_while_it_watches(
    session: Session, folder: Path, watched: Notebooks, tmp_path: Path
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    write(own, seed="seeded")
    session.data("agent.create", slug="late", notes_folder=str(own))
    assert [note["slug"] for note in session.data("note.list", agent="late")] == ["seed"]
    write(own, more="more")
    eventually(lambda: len(session.data("note.list", agent="late")) == 2)
    approved(session, "agent.delete", slug="late")
    write(own, third="third")
    write(folder, todo="one")
    eventually(lambda: slugs(session) == ["todo"])
    assert session.error("note.list", agent="late")["type"] == "resource.not_found"


def test_reads_wait_for_the_first_sync(session: Session, folder: Path) -> None:
    write(folder, todo="one")
    go, reached = threading.Event(), threading.Event()

    def hold(name: str) -> None:
        if name == "blob.write":
            reached.set()
            assert go.wait(PATIENCE)

    failpoints.arm(hold)
    books: Notebooks = session.library.notebooks  # type: ignore[attr-defined,unused-ignore]
    books.start()
    assert reached.wait(PATIENCE)
    late = session.error("note.list", agent="gitea", timeout_ms=0)
    assert late["type"] == "operation.timeout"
    for id, method, more in ((2, "note.list", {}), (3, "ping", {})):
        params = {"agent": "gitea", **more} if method != "ping" else {}
        session.send(_line(request(id, method, **params)))
    assert b'"id":3' in session.receive()
    go.set()
    assert b'"slug":"todo"' in session.receive()
    books.close()


def _line(message: dict[str, Any]) -> bytes:
    from tests.kit.talk import as_bytes

    return as_bytes(message)


def test_writes_and_syncs_at_once(session: Session, folder: Path, watched: Notebooks) -> None:
    """An agent, a person and the watcher change one note: every text becomes a revision."""
    by_hand = [f"by hand {i}" for i in range(30)]
    written: set[str] = set()
    put(session, "todo", "start")

    def edit() -> None:
        for text in by_hand:
            now = (folder / "todo.md").read_text()
            if now in by_hand and not in_log(session, now.encode()):
                continue  # the person overwrites no text of their own that is not in the log
            temporary = folder / ".todo.tmp"
            temporary.write_text(text)
            temporary.replace(folder / "todo.md")
            written.add(text)

    person = threading.Thread(target=edit)
    person.start()
    for number in range(15):
        answer = session.ask("note.put", agent="gitea", slug="todo", text=f"agent {number}")
        if "result" in answer:
            written.add(f"agent {number}")
        else:
            assert answer["error"]["data"]["type"] == "resource.conflict"
    person.join()
    eventually(lambda: get(session, "todo")["text"] == (folder / "todo.md").read_text())
    # A text that two changes have moved aside becomes a revision with the next look at the folder.
    eventually(lambda: all(in_log(session, text.encode()) for text in written))


# ------------------------------------------------------------------ against a model


def recorded(session: Session) -> set[str]:
    """Digests of the texts of all revisions of all documents."""
    store = session.store
    return {
        event.source_sha256
        for record in store.log.read(0, store.seq)
        for event in codec.decode(record.events)
        if isinstance(event, DocWritten)
    }


def in_log(session: Session, data: bytes) -> bool:
    return digest(data) in recorded(session)


POINTS = [
    "note.staged",
    "note.exchanged",
    "note.placed",
    "note.remove",
    "note.removed",
    "blob.appended",
    "blob.synced",
    "log.write",
    "log.torn",
    "log.written",
    "log.synced",
    "catalog.commit",
    "catalog.committed",
    "fulltext.commit",
    "vectors.applied",
]
SLUGS = ["aa", "bb", "cc", "dd"]
some_slug = st.sampled_from(SLUGS)
INVALID = [b"\xff\xfe\x00", b"x" * (MOST_BYTES + 1), b"a\0b", b" \n"]


class Desk:
    """A store and its notes folder, used by a person and an agent.

    `owed` holds the texts that were not discarded; each must be in a revision or in a file.
    """

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="kbproc-notes-"))
        self.numbers, self.stores = itertools.count(1), itertools.count(1)
        self.owed: set[bytes] = set()
        self.kill_at: str | None = None
        self.meddle_at: str | None = None
        self.open(self.root / "store-0")
        self.session.data("agent.create", slug="gitea")
        self.folder.mkdir(parents=True, exist_ok=True)

    def open(self, store: Path) -> None:
        self.session = Session(store, cwd=self.root)
        attach(self.session)

    @property
    def folder(self) -> Path:
        path: Path = self.session.store.folder / "notes" / "gitea"
        return path

    def check(self) -> None:
        store = self.session.store
        self.session.connection.end(PATIENCE)
        assert not any(doctor.compare(store).values())
        assert store.log.verify() == store.seq

    def close(self) -> None:
        self.session.close()
        shutil.rmtree(self.root, ignore_errors=True)

    # ------------------------------------------------------------------ by hand

    def text(self) -> bytes:
        return f"# Text {next(self.numbers)}\n\nwords".encode()

    def path(self, slug: str) -> Path:
        return self.folder / f"{slug}.md"

    def throw_away(self, slug: str) -> None:
        """Drops the file's text from `owed` if only this file holds it: a person discards it."""
        path = self.path(slug)
        if not path.exists():
            return
        data = path.read_bytes()
        if data in self.owed and not in_log(self.session, data) and self.copies(data) == 1:
            self.owed.discard(data)

    def copies(self, data: bytes) -> int:
        return sum(path.read_bytes() == data for path in self.folder.iterdir())

    def by_hand(self, slug: str, *, in_place: bool) -> None:
        self.throw_away(slug)
        data = self.text()
        if in_place:
            self.path(slug).write_bytes(data)
        else:
            temporary = self.folder / f"~{slug}.tmp"
            temporary.write_bytes(data)
            temporary.replace(self.path(slug))
        self.owed.add(data)

    def edit(self, step: Step) -> None:
        self.by_hand(step.slug, in_place=step.yes)

    def rename(self, step: Step) -> None:
        if step.slug != step.other and self.path(step.slug).exists():
            self.throw_away(step.other)
            self.path(step.slug).replace(self.path(step.other))

    def delete(self, step: Step) -> None:
        self.throw_away(step.slug)
        self.path(step.slug).unlink(missing_ok=True)

    def spoil(self, step: Step) -> None:
        self.throw_away(step.slug)
        self.path(step.slug).write_bytes(step.bad)

    # ------------------------------------------------------------------ by an agent

    def ask(self, method: str, **params: Any) -> tuple[str, Any]:
        """Error type (or "") and data of a request, which is sent again if the store was killed."""
        params["client_token"] = f"t{next(self.numbers)}"
        point, self.kill_at = self.kill_at, None
        killed = self.root / f"store-{next(self.stores)}"
        failpoints.arm(lambda name: self.reached(name, params.get("slug", SLUGS[0]), point, killed))
        try:
            outcome = self.once(method, params)
        finally:
            failpoints.arm(None)
        if killed.exists():
            self.session.close()
            self.owed = self.owed_then
            self.open(killed)
            outcome = self.once(method, params)
        self.meddle_at = self.kill_at = None
        return outcome

    def reached(self, name: str, slug: str, point: str | None, killed: Path) -> None:
        if name == self.meddle_at:
            self.meddle_at = None
            self.by_hand(slug, in_place=False)
        if name == point and not killed.exists():
            as_killed(self.session.store.folder, killed)
            self.owed_then = set(self.owed)

    def once(self, method: str, params: dict[str, Any]) -> tuple[str, Any]:
        answer = self.session.ask(method, **params)
        if "error" in answer and (plan := answer["error"]["data"].get("plan")):
            answer = self.session.ask(method, **params, confirm=plan["plan_hash"])
        if "error" in answer:
            return answer["error"]["data"]["type"], None
        return "", answer["result"]["data"]

    def put(self, step: Step) -> None:
        data = self.text()
        peace = self.is_in_peace(step.slug)
        why, note = self.ask("note.put", agent="gitea", slug=step.slug, text=data.decode())
        assert not why or (why == "resource.conflict" and not peace)
        if not why:
            assert note["sha256"] == digest(data)
            self.owed.add(data)

    def put_and_die(self, step: Step) -> None:
        self.kill_at = step.point
        self.meddle_at = "note.staged" if step.yes else None
        self.put(step)

    def put_and_meet_an_edit(self, step: Step) -> None:
        self.meddle_at = "note.staged" if step.yes else "note.exchanged"
        self.put(step)

    def remove(self, step: Step) -> None:
        self.kill_at, self.meddle_at = step.point, "note.remove" if step.yes else None
        peace = self.is_in_peace(step.slug)
        why, _ = self.ask("note.delete", agent="gitea", slug=step.slug)
        assert why in {"", "resource.not_found"} or not peace
        assert why in {"", "resource.not_found", "resource.conflict", "resource.plan_stale"}

    def is_in_peace(self, slug: str) -> bool:
        """True if no edit interferes and the file, if there is one, is a valid note or empty."""
        path = self.path(slug)
        spoilt = path.exists() and path.read_bytes() in INVALID[:3]
        return self.meddle_at is None and not spoilt

    def sync(self, step: Step) -> None:
        self.kill_at = step.point if step.yes else None
        why, _ = self.ask("note.sync")
        assert why in {"", "resource.plan_stale"}

    def foresee(self, step: Step) -> None:
        before = self.session.store.seq
        self.session.data("note.sync", dry_run=True)
        self.session.ask("note.put", agent="gitea", slug=step.slug, text="never", dry_run=True)
        assert self.session.store.seq == before

    def reopen(self, _: Step) -> None:
        store = self.session.store.folder
        self.session.close()
        self.open(store)

    # ------------------------------------------------------------------ what must hold

    def nothing_is_lost(self) -> None:
        hashes = recorded(self.session)
        files = {path.read_bytes() for path in self.folder.iterdir()}
        lost = {data for data in self.owed if digest(data) not in hashes and data not in files}
        assert lost == set()

    def settle(self) -> None:
        """Syncs a last time and checks that files and log agree."""
        for slug in SLUGS:
            if self.path(slug).exists() and self.path(slug).read_bytes() in INVALID:
                self.path(slug).unlink()
        self.kill_at = self.meddle_at = None
        why, done = self.ask("note.sync")
        assert (why, done["skipped"], done["held_back"]) == ("", [], 0)
        files = {path.stem: path.read_text() for path in self.folder.iterdir()}
        listed = self.session.data("note.list", agent="gitea")
        notes = {note["slug"]: get(self.session, note["slug"])["text"] for note in listed}
        assert notes == files
        self.nothing_is_lost()
        assert {digest(data) for data in self.owed} <= recorded(self.session)


class Step(NamedTuple):
    what: str
    slug: str
    other: str
    point: str
    yes: bool
    bad: bytes


# Steps, weighted by how often each is listed.
WHAT = [
    *["edit"] * 5,
    *["put"] * 4,
    *["put_and_die"] * 4,
    *["put_and_meet_an_edit"] * 2,
    *["sync"] * 3,
    *["remove"] * 2,
    *["rename"] * 2,
    "delete",
    "spoil",
    "foresee",
    "reopen",
]
steps = st.builds(
    Step,
    st.sampled_from(WHAT),
    some_slug,
    some_slug,
    st.sampled_from(POINTS),
    st.booleans(),
    st.sampled_from(INVALID),
)


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(st.lists(steps, min_size=STEPS // 2, max_size=STEPS))
def test_a_desk_shared_by_a_person_and_an_agent(life: list[Step]) -> None:
    desk = Desk()
    try:
        for step in life:
            getattr(desk, step.what)(step)
            desk.nothing_is_lost()
        desk.settle()
        desk.check()
    finally:
        desk.close()
