"""The note methods: write, read, search, delete, and what an agent may not do."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kbproc.base import failpoints
from kbproc.base.errors import KbprocError
from kbproc.engine.store import pipeline
from kbproc.engine.store.decision import DecisionState, WriteRequest
from kbproc.engine.store.lane import Lane
from kbproc.engine.store.pipeline import Outcome
from kbproc.knowledge.agents.notes import edit
from kbproc.knowledge.agents.notes import files as notefiles
from kbproc.knowledge.agents.notes import note as notes
from kbproc.knowledge.agents.notes.note import note_of
from kbproc.knowledge.agents.notes.notebook import Notebook, content_of, note_written
from kbproc.knowledge.documents.revision import Ids
from kbproc.methods.note.put import PutNote
from tests.kit.notes import approved, get, history, put, slugs
from tests.kit.patience import PATIENCE
from tests.kit.talk import Session

# ------------------------------------------------------------------ put


def test_a_note_is_a_file_and_a_record(session: Session, folder: Path) -> None:
    text = "\ufeffintro\r\n\r\n# Git hooks\r\n\r\nA hook runs on push: déjà vu.\r\n"
    written = put(session, "hooks", text)
    assert (folder / "hooks.md").read_bytes() == text.encode()
    note = get(session, "hooks")
    assert note["text"] == text
    assert note["title"] == written["title"] == "Git hooks"
    assert note["size_bytes"] == len(text.encode())
    assert (note["revision"], note["updated_by"], note["agent"]) == (1, "user", "gitea")
    assert {name: note[name] for name in written} == written


def test_a_title_comes_from_the_slug_where_the_text_has_none(session: Session) -> None:
    assert put(session, "on-call-rota", "Mondays: Ann")["title"] == "On call rota"


def test_the_same_text_again_is_no_event(session: Session) -> None:
    first = put(session, "todo", "one")
    seq = session.store.seq
    assert put(session, "todo", "one") == first
    assert session.store.seq == seq
    assert put(session, "todo", "two")["revision"] == 2


def test_the_same_text_again_brings_a_lost_file_back(session: Session, folder: Path) -> None:
    put(session, "todo", "one")
    (folder / "todo.md").unlink()
    assert put(session, "todo", "one")["revision"] == 1
    assert (folder / "todo.md").read_text() == "one"


def test_a_note_is_told_as_the_catalog_has_it_whatever_is_indexed(
    session: Session, folder: Path, catch_up: Callable[[], None]
) -> None:
    """The note is written, replaced, edited by hand, renamed, deleted, and written anew."""
    long = "\n\n".join(f"Paragraph {n} says something else. " * 20 for n in range(40))

    def look() -> None:
        catch_up()
        with session.store.reading() as snapshot:
            rows = {str(row.source_id): row for row in snapshot.queries.notes("gitea")}
            events = {slug: snapshot.queries.events_of_document(rows[slug].id) for slug in rows}
        for slug in ("todo", "plan", "new-plan"):
            if slug not in rows:
                error = session.error("note.get", agent="gitea", slug=slug)
                assert error["type"] == "resource.not_found"
                continue
            note, data = get(session, slug), (folder / f"{slug}.md").read_bytes()
            assert (note["text"], note["sha256"]) == (data.decode(), rows[slug].sha256)
            assert note == msgspec.to_builtins(note_of(rows[slug], "gitea", data))
            assert note["updated_by"] == events[slug][-1].actor

    put(session, "todo", "# To do\n\n" + long)
    put(session, "plan", "words")
    look()
    put(session, "plan", "---\nstatus: open\n---\n")
    look()
    put(session, "plan", "# Other words")
    (folder / "todo.md").write_text("by hand")
    session.data("note.sync", agent="gitea")
    look()
    (folder / "plan.md").rename(folder / "new-plan.md")
    session.data("note.sync", agent="gitea")
    look()
    put(session, "plan", "one more")
    approved(session, "note.delete", agent="gitea", slug="todo")
    look()
    put(session, "todo", "again")
    look()


def test_expected_revision(session: Session) -> None:
    assert put(session, "todo", "one")["revision"] == 1
    wrong = session.error("note.put", agent="gitea", slug="todo", text="x", expected_revision=2)
    assert (wrong["type"], wrong["detail"]) == ("resource.conflict", {"revision": 1})
    assert put(session, "todo", "two", expected_revision=1)["revision"] == 2
    none = session.error("note.put", agent="gitea", slug="new", text="x", expected_revision=1)
    assert (none["type"], none["detail"]) == ("resource.conflict", {"revision": None})


def test_limits_of_a_text(session: Session, folder: Path, subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, str | None]] = [
        ("x" * 65536, None),
        ("é" * 32768, None),
        ("é" * 32768 + "x", "input.too_large"),
        ("x" * 65537, "input.invalid_params"),
        ("", "input.invalid_params"),
        (" \n\t", "input.invalid_params"),
        ("\ufeff\n", "input.invalid_params"),
        ("a\x00b", "input.invalid_params"),
        ("a", None),
    ]
    for number, (text, type) in enumerate(cases):
        with subtests.test(f"{len(text)} of {text[:1]!r}"):
            slug = f"note-{number}"
            answer = session.ask("note.put", agent="gitea", slug=slug, text=text)
            if type is None:
                assert (folder / f"{slug}.md").read_bytes() == text.encode()
            else:
                assert answer["error"]["data"]["type"] == type
                assert answer["error"]["data"]["field"] == "$.params.text"
                assert not (folder / f"{slug}.md").exists()


def test_what_is_no_slug(session: Session, subtests: pytest.Subtests) -> None:
    cases: list[str] = ["a", "-ab", "Ab", "a_b", "../ab", "ab.md", "ab\n", "a" * 65]
    for slug in cases:
        with subtests.test(slug=slug):
            wrong = session.error("note.put", agent="gitea", slug=slug, text="x")
            assert (wrong["type"], wrong["field"]) == ("input.invalid_params", "$.params.slug")


def test_dry_run_writes_nothing(session: Session, folder: Path) -> None:
    put(session, "todo", "one")
    (folder / "todo.md").write_text("by hand")
    seq = session.store.seq
    answer = session.ask("note.put", agent="gitea", slug="todo", text="two", dry_run=True)
    plan = answer["result"]["meta"]["plan"]
    assert plan["changes"] == [
        "record what was edited in todo.md by hand",
        "replace the note todo of gitea: “Todo”",
    ]
    session.data("note.sync", dry_run=True)
    approved(session, "note.delete", agent="gitea", slug="todo", dry_run=True)
    assert session.store.seq == seq
    assert (folder / "todo.md").read_text() == "by hand"


def test_quota_counts_notes_there_are(session: Session) -> None:
    session.data("agent.update", slug="gitea", quotas={"notes_stored": 2})
    put(session, "one-note", "1")
    put(session, "two-notes", "2")
    over = session.error("note.put", agent="gitea", slug="three-notes", text="3")
    assert over["type"] == "quota.exceeded"
    assert over["detail"] == {"quota": "notes_stored", "limit": 2, "used": 2}
    put(session, "two-notes", "2, changed")
    approved(session, "note.delete", agent="gitea", slug="one-note")
    put(session, "three-notes", "3")


def test_a_client_token_holds_whatever_became_of_the_file(session: Session, folder: Path) -> None:
    first = put(session, "todo", "one", client_token="t")
    (folder / "todo.md").write_bytes(b"\xff\xfe no text")
    assert put(session, "todo", "one", client_token="t") == first
    assert (folder / "todo.md").read_bytes() == b"\xff\xfe no text"


# ------------------------------------------------------------------ edits on both sides


def test_an_unseen_edit_becomes_a_revision_of_its_own(session: Session, folder: Path) -> None:
    id = put(session, "todo", "one")["id"]
    (folder / "todo.md").write_text("by hand")
    assert put(session, "todo", "two")["revision"] == 3
    assert history(session, id) == [("user", "one"), ("file", "by hand"), ("user", "two")]
    assert (folder / "todo.md").read_text() == "two"


def test_an_unseen_new_file_is_not_overwritten_unrecorded(session: Session, folder: Path) -> None:
    slugs(session)  # waits for the first sync
    (folder / "todo.md").write_text("by hand")
    note = put(session, "todo", "two")
    assert history(session, note["id"]) == [("file", "by hand"), ("user", "two")]


def test_expected_revision_minds_an_unseen_edit(session: Session, folder: Path) -> None:
    put(session, "todo", "one")
    (folder / "todo.md").write_text("by hand")
    wrong = session.error("note.put", agent="gitea", slug="todo", text="x", expected_revision=1)
    assert (wrong["type"], wrong["detail"]) == ("resource.conflict", {"revision": 2})
    assert (folder / "todo.md").read_text() == "by hand"


def raced(session: Session, text: str) -> Outcome:
    """Puts a note whose change was prepared before any edit by hand."""
    store = session.store
    agent = store.published.roster.agents["gitea"]
    params = PutNote(agent="gitea", slug="todo", text=text)
    request = WriteRequest(
        method="note.put", actor="gitea", params=params, destructive=False, now=store.host.now()
    )
    data = text.encode()
    change = notes.NotePut(
        session.library.notebooks.ensure(agent),
        "todo",
        data=data,
        content=content_of(session.library.intake, "todo", data),
        expected_revision=None,
    )
    return pipeline.enter(store, request, change)()


def at(point: str, times: int, what: Callable[[int], None]) -> None:
    """Runs `what` the first `times` times that the failpoint `point` is reached."""
    numbers = iter(range(times))

    def reached(name: str) -> None:
        if name == point and (number := next(numbers, None)) is not None:
            what(number)

    failpoints.arm(reached)


def test_an_edit_in_the_last_instant_is_recorded_first(session: Session, folder: Path) -> None:
    id = put(session, "todo", "one")["id"]
    at("note.staged", 2, lambda n: void((folder / "todo.md").write_text(f"by hand {n}")))
    assert raced(session, "two").data.revision == 4
    assert history(session, id) == [
        ("user", "one"),
        ("file", "by hand 0"),
        ("file", "by hand 1"),
        ("gitea", "two"),
    ]
    assert (folder / "todo.md").read_text() == "two"


def test_whoever_never_stops_editing_wins(session: Session, folder: Path) -> None:
    put(session, "todo", "one")
    at("note.staged", 99, lambda n: void((folder / "todo.md").write_text(f"by hand {n}")))
    with pytest.raises(KbprocError) as caught:
        raced(session, "two")
    assert caught.value.type == "resource.conflict"
    assert (folder / "todo.md").read_text().startswith("by hand")


def test_an_edit_that_is_not_durable_yet_is_not_replaced(session: Session, folder: Path) -> None:
    """The edit is recorded in the same batch as the put, and the disk refuses that batch."""
    put(session, "todo", "one")
    (folder / "todo.md").write_text("by hand")
    store = session.store
    agent = store.published.roster.agents["gitea"]
    book: Notebook = session.library.notebooks.ensure(agent)
    row, edited, data = (
        book.note("todo"),
        content_of(session.library.intake, "todo", b"by hand"),
        b"two",
    )
    change = notes.NotePut(
        book,
        "todo",
        data=data,
        content=content_of(session.library.intake, "todo", data),
        expected_revision=None,
    )

    def both(lane: Lane) -> None:
        here = DecisionState(lane.queries, lane.now, lane.head, lane.group.roster)
        event = note_written(here, edited, agent="gitea", slug="todo", row=row, ids=Ids(here))
        lane.append([event], actor="file", method="note.sync")
        effect = change(DecisionState(lane.queries, lane.now, lane.head, lane.group.roster)).effect
        assert effect is not None
        effect()
        raise KbprocError("store.io", "the disk is full")

    with pytest.raises(KbprocError):
        store.commit(both)
    assert (folder / "todo.md").read_text() == "by hand"
    assert get(session, "todo")["text"] == "one"
    assert put(session, "todo", "two")["revision"] == 3


def test_many_puts_of_one_note_at_once(session: Session, folder: Path) -> None:
    put(session, "todo", "one")
    with ThreadPoolExecutor(12) as pool:
        puts = [
            pool.submit(
                session.another("user").data,
                "note.put",
                agent="gitea",
                slug="todo",
                text=f"text {n}",
            )
            for n in range(12)
        ]
    assert sorted(one.result()["revision"] for one in puts) == list(range(2, 14))
    assert (folder / "todo.md").read_text() == get(session, "todo")["text"]


def test_a_put_waits_for_no_sync_in_the_lane(
    session: Session, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sync holds the book's lock and waits for the lane when the folder comes back."""
    put(session, "todo", "one")
    store = session.store
    book = session.library.notebooks.ensure(store.published.roster.agents["gitea"])
    data = b"two"
    change = notes.NotePut(
        book,
        "todo",
        data=data,
        content=content_of(session.library.intake, "todo", data),
        expected_revision=None,
    )
    first_answer = iter([False])
    monkeypatch.setattr(notefiles, "exists", lambda path: next(first_answer, path == folder))

    def turn(lane: Lane) -> None:
        effect = change(DecisionState(lane.queries, lane.now, lane.head, lane.group.roster)).effect
        assert effect is not None
        effect()

    with ThreadPoolExecutor(1) as pool, book.lock:
        wrong = pool.submit(store.commit, turn).exception(PATIENCE)
    assert isinstance(wrong, KbprocError)
    assert wrong.type == "store.io"
    assert (folder / "todo.md").read_text() == "one"


def test_a_folder_that_another_program_locks(
    session: Session, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edit, "_LOCK_SECONDS", 0.05)
    with edit.locked(folder):
        wrong = session.error("note.put", agent="gitea", slug="todo", text="one")
        assert (wrong["type"], wrong["retryable"]) == ("store.io", True)
        assert str(folder) in wrong["message"]
    put(session, "todo", "one")


def moved_meanwhile(session: Session, to: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives the agent another folder once the next change of a note is prepared."""
    settle = Notebook.settle

    def settled(book: Notebook, slug: str) -> None:
        settle(book, slug)
        monkeypatch.undo()
        session.another("user").data("agent.update", slug="gitea", notes_folder=str(to))

    monkeypatch.setattr(Notebook, "settle", settled)


@pytest.mark.parametrize("method", ["note.put", "note.delete"])
def test_a_folder_that_is_changed_meanwhile(
    session: Session, folder: Path, tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for slug in ("aa", "bb", "cc"):
        put(session, slug, slug)
    new = tmp_path / "elsewhere"
    shutil.copytree(folder, new)
    if method == "note.put":
        moved_meanwhile(session, new, monkeypatch)
        put(session, "aa", "two")
        assert (new / "aa.md").read_text() == "two"
    else:
        plan = session.error(method, agent="gitea", slug="aa")["plan"]
        moved_meanwhile(session, new, monkeypatch)
        session.data(method, agent="gitea", slug="aa", confirm=plan["plan_hash"])
        assert not (new / "aa.md").exists()
    assert (folder / "aa.md").read_text() == "aa"
    before = slugs(session)
    session.data("note.sync", agent="gitea")
    assert slugs(session) == before


def cut_off(session: Session, method: str, **params: Any) -> None:
    """Asks for a write that fails between the file and the log; then syncs."""

    def refused(name: str) -> None:
        if name == "log.write":
            raise OSError(errno.EIO, "disk")

    failpoints.arm(refused)
    assert session.error(method, **params)["type"] == "store.io"
    failpoints.arm(None)
    session.data("note.sync", agent="gitea")


def test_a_put_that_was_cut_off_is_done_when_asked_again(session: Session, folder: Path) -> None:
    put(session, "todo", "one")
    params = {"slug": "todo", "text": "two", "expected_revision": 1, "client_token": "t"}
    cut_off(session, "note.put", agent="gitea", **params)
    assert session.data("note.put", agent="gitea", **params)["revision"] == 2
    again = session.ask("note.put", agent="gitea", **params)["result"]
    assert (again["data"]["revision"], again["meta"]["duplicate"]) == (2, True)


def test_a_delete_that_was_cut_off_is_done_when_asked_again(session: Session, folder: Path) -> None:
    id = put(session, "aa", "1")["id"]
    put(session, "bb", "2")
    plan = session.error("note.delete", agent="gitea", slug="aa")["plan"]
    params = {"slug": "aa", "confirm": plan["plan_hash"]}
    cut_off(session, "note.delete", agent="gitea", **params)
    assert slugs(session) == ["bb"]
    assert session.data("note.delete", agent="gitea", **params)["id"] == id
    unasked = session.error("note.delete", agent="gitea", slug="aa")
    assert unasked["type"] == "resource.not_found"
    (folder / "aa.md").mkdir()
    there = session.error("note.delete", agent="gitea", **params)
    assert there["type"] == "resource.conflict"


def void(_: object) -> None:
    pass


def test_a_file_that_is_no_note_is_not_overwritten(
    session: Session, folder: Path, subtests: pytest.Subtests
) -> None:
    for number, bad in enumerate((b"\xff\xfe", b"x" * 65537, b"a\0b")):
        with subtests.test(f"{bad[:2]!r}"):
            slug = f"todo-{number}"
            put(session, slug, "one")
            (folder / f"{slug}.md").write_bytes(bad)
            for method, more in (("note.put", {"text": "two"}), ("note.delete", {})):
                wrong = session.error(method, agent="gitea", slug=slug, **more)
                assert wrong["type"] == "resource.conflict", wrong
                assert (folder / f"{slug}.md").read_bytes() == bad
            assert get(session, slug)["text"] == "one"


def test_a_link_is_not_followed(session: Session, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere.md").write_text("mine")
    (folder / "todo.md").symlink_to(tmp_path / "elsewhere.md")
    wrong = session.error("note.put", agent="gitea", slug="todo", text="two")
    assert wrong["type"] == "resource.conflict"
    assert (tmp_path / "elsewhere.md").read_text() == "mine"
    assert slugs(session) == []


def test_a_blank_file_holds_nothing_that_could_be_lost(session: Session, folder: Path) -> None:
    (folder / "todo.md").touch()
    assert put(session, "todo", "one")["revision"] == 1
    (folder / "todo.md").write_text(" \n")
    approved(session, "note.delete", agent="gitea", slug="todo")
    assert not (folder / "todo.md").exists()


# ------------------------------------------------------------------ delete


def test_delete_hides_the_note_and_removes_its_file(session: Session, folder: Path) -> None:
    put(session, "todo", "one")
    plan = session.error("note.delete", agent="gitea", slug="todo")["plan"]
    assert plan["targets"] == [{"kind": "note", "id": "gitea/todo", "name": "Todo", "revision": 1}]
    assert (folder / "todo.md").exists()
    session.data("note.delete", agent="gitea", slug="todo", confirm=plan["plan_hash"])
    assert not (folder / "todo.md").exists()
    assert slugs(session) == []
    assert session.error("note.delete", agent="gitea", slug="todo")["type"] == "resource.not_found"
    assert put(session, "todo", "anew")["revision"] == 1


def test_delete_records_an_unseen_edit_and_asks_anew(session: Session, folder: Path) -> None:
    id = put(session, "todo", "one")["id"]
    plan = session.error("note.delete", agent="gitea", slug="todo")["plan"]
    (folder / "todo.md").write_text("by hand")
    stale = session.error("note.delete", agent="gitea", slug="todo", confirm=plan["plan_hash"])
    assert stale["type"] == "resource.plan_stale"
    approved(session, "note.delete", agent="gitea", slug="todo")
    assert not (folder / "todo.md").exists()
    assert history(session, id) == [("user", "one"), ("file", "by hand")]


def test_a_note_whose_file_or_folder_is_gone_can_be_deleted(session: Session, folder: Path) -> None:
    for slug in ("one-note", "two-notes"):
        put(session, slug, slug)
    (folder / "one-note.md").unlink()
    approved(session, "note.delete", agent="gitea", slug="one-note")
    (folder / "two-notes.md").unlink()
    folder.rmdir()
    approved(session, "note.delete", agent="gitea", slug="two-notes")
    assert slugs(session) == []


# ------------------------------------------------------------------ reading


def test_list_pages_by_slug(session: Session) -> None:
    names = [f"note-{i}" for i in range(7)]
    for name in reversed(names):
        put(session, name, f"# {name}")
    first = session.ask("note.list", agent="gitea", limit=4)["result"]
    assert [note["slug"] for note in first["data"]] == names[:4]
    assert (first["meta"]["total"], first["meta"]["has_more"]) == (7, True)
    assert slugs(session, limit=4, cursor=first["meta"]["next_cursor"]) == names[4:]
    assert set(first["data"][0]) == {
        "id",
        "slug",
        "title",
        "updated_at",
        "size_bytes",
        "revision",
        "tags",
        "origin",
    }


def test_unknown_names_answer_with_the_nearest(session: Session) -> None:
    put(session, "gitea-hooks", "x")
    wrong = session.error("note.get", agent="gitea", slug="gitea-hook")
    assert (wrong["type"], wrong["valid_values"]) == ("resource.not_found", ["gitea-hooks"])
    wrong = session.error("note.get", agent="gitae", slug="gitea-hooks")
    assert (wrong["field"], wrong["valid_values"]) == ("$.params.agent", ["gitea"])
    assert "agent.create" in wrong["hint"]
    wrong = session.error("note.list")
    assert wrong["type"] == "input.invalid_params"
    assert (wrong["field"], wrong["valid_values"]) == ("$.params.agent", ["gitea"])


def test_search_gives_one_hit_a_note_and_no_other_agents(session: Session) -> None:
    session.data("agent.create", slug="other")
    long = "\n\n".join(f"## Part {i}\n\nThe harbour crane {i}. " + "word " * 300 for i in range(3))
    put(session, "cranes", "# Cranes\n\n" + long)
    put(session, "boats", "# Boats\n\nNo crane here, or one.")
    session.data("note.put", agent="other", slug="cranes", text="# Cranes\n\nharbour crane")
    session.data("doc.create", title="Crane", text="harbour crane")
    session.embedded()
    for mode in ("fts", "hybrid"):
        answer = session.ask("note.search", agent="gitea", query="crane", mode=mode)["result"]
        assert {hit["slug"] for hit in answer["data"]} == {"cranes", "boats"}
        assert len(answer["data"]) == 2
    hit = next(hit for hit in answer["data"] if hit["slug"] == "cranes")
    assert set(hit) == {
        "id",
        "slug",
        "title",
        "score",
        "snippet",
        "highlights",
        "section",
        "updated_at",
        "dated",
        "origin",
    }
    assert any(hit["snippet"][a:b].lower().startswith("crane") for a, b in hit["highlights"])
    assert answer["meta"]["freshness"]["pending_embeddings"] == 0
    assert len(session.data("note.search", agent="gitea", query="crane", limit=1)) == 1
    assert session.data("note.search", agent="gitea", query="crane", min_score=1) == []


def test_a_search_without_notes_says_so(session: Session) -> None:
    session.data("doc.create", title="Crane", text="harbour crane")
    answer = session.ask("note.search", agent="gitea", query="crane", mode="fts")["result"]
    assert answer["data"] == []
    assert answer["meta"]["hint"] == "gitea has no notes yet: note.put writes one."


def test_the_past_is_read_from_the_log_alone(session: Session, folder: Path) -> None:
    put(session, "todo", "one fish")
    then = session.store.seq
    put(session, "todo", "two birds")
    (folder / "more.md").write_text("by hand")
    session.data("note.sync")
    approved(session, "note.delete", agent="gitea", slug="todo")
    assert get(session, "todo", as_of=then)["text"] == "one fish"
    assert slugs(session, as_of=then) == ["todo"]
    hits = session.data("note.search", agent="gitea", query="fish", mode="fts", as_of=then)
    assert [hit["slug"] for hit in hits] == ["todo"]
    assert session.error("note.list", agent="gitea", as_of=1)["type"] == "resource.not_found"


# ------------------------------------------------------------------ who may what


def test_a_bound_process_has_its_own_notes_only(session: Session) -> None:
    session.data("agent.create", slug="other")
    put(session, "todo", "gitea's")
    other = session.another("other", named=True)
    other.data("note.put", slug="todo", text="other's")
    assert other.data("note.get", slug="todo")["text"] == "other's"
    assert other.data("note.get", slug="todo")["updated_by"] == "other"
    assert other.data("note.get", agent="other", slug="todo")["text"] == "other's"
    params = {
        "note.get": {"slug": "todo"},
        "note.history": {"slug": "todo"},
        "note.list": {},
        "note.search": {"query": "x"},
        "note.put": {"slug": "todo", "text": "x"},
        "note.delete": {"slug": "todo"},
        "note.sync": {},
    }
    for method, more in params.items():
        error = other.error(method, agent="gitea", **more)
        unknown = other.error(method, agent="nobody", **more)
        assert error["message"].replace("gitea", "nobody") == unknown["message"]
        assert error["type"] == unknown["type"] == "resource.not_found"
        assert error["valid_values"] == unknown["valid_values"] == ["other"]
    assert other.data("note.sync")["agents"] == 1
    assert session.data("note.sync")["agents"] == 2


def test_who_may_write_but_not_read_replaces_the_note(session: Session, folder: Path) -> None:
    id = put(session, "todo", "one")["id"]
    writer = session.another("user", scopes="note:write")
    assert writer.error("note.list", agent="gitea")["type"] == "auth.insufficient_scope"
    note = writer.data("note.put", agent="gitea", slug="todo", text="two")
    assert (note["id"], note["revision"]) == (id, 2)
    assert slugs(session) == ["todo"]
    (folder / "more.md").write_text("by hand")
    planned = writer.ask("note.sync", dry_run=True)["result"]["meta"]["plan"]
    assert "more" not in str(planned)
    done = writer.data("note.sync")
    assert (done["agents"], done["added"], done["changes"]) == (1, 0, [])
    assert slugs(session) == ["more", "todo"]
    eraser = session.another("user", scopes="note:write,admin")
    hidden = eraser.error("note.delete", agent="gitea", slug="todo")
    assert (hidden["type"], hidden["valid_values"]) == ("resource.not_found", [])


def test_a_note_is_written_by_its_agent(session: Session) -> None:
    agent = session.another("gitea", scopes="note:read,note:write", named=True)
    agent.data("note.put", slug="todo", text="mine")
    assert agent.data("note.get", slug="todo")["updated_by"] == "gitea"
    # An agent may delete its own note.
    plan = agent.error("note.delete", slug="todo")["plan"]
    agent.data("note.delete", slug="todo", confirm=plan["plan_hash"])


def test_the_way_back_of_a_note(session: Session) -> None:
    """doc.restore refuses notes, and its hint names the method that restores them."""
    note = put(session, "todo", "# To do\n\nFirst.")
    put(session, "todo", "# To do\n\nSecond.")
    live = session.error("doc.restore", ids=[note["id"]], revision=1)
    assert live["hint"] == "note.get with as_of shows it as it was; note.put brings that back."
    before = session.store.seq
    approved(session, "note.delete", agent="gitea", slug="todo")
    hint = session.error("doc.restore", ids=[note["id"]])["hint"]
    assert hint == f"note.get with as_of {before} shows it as it was; note.put brings that back."
    then = get(session, "todo", as_of=before)
    assert put(session, "todo", then["text"])["title"] == "To do"


def test_notes_that_have_changed_since(session: Session) -> None:
    host: Any = session.store.host
    host.pass_until("2026-01-01T10:00:00+00:00")
    put(session, "old", "old")
    host.pass_until("2026-01-02T10:00:00+00:00")
    put(session, "new", "new")
    listed = session.ask("note.list", agent="gitea", updated_after="2026-01-02")["result"]
    assert [note["slug"] for note in listed["data"]] == ["new"]
    assert listed["meta"]["total"] == 1
