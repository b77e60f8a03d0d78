"""The agent methods: create, change, delete, count and check."""

from __future__ import annotations

import os
import stat
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kbproc.engine.events.document import DocWritten
from kbproc.engine.projections.catalog.queries import Queries
from kbproc.engine.store.lane import Lane
from kbproc.engine.store.snapshot import Readers
from kbproc.knowledge.agents.folder import notes_folder
from kbproc.knowledge.agents.notes import files as notefiles
from kbproc.knowledge.documents.content import content_of_text
from tests.conftest import OpenSession
from tests.kit.talk import Session


@pytest.fixture
def session(open_session: OpenSession) -> Session:
    """A session without a watcher: tests record the files of the folders themselves."""
    session = open_session()
    session.library.notebooks.close()
    return session


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The session's working directory."""
    return tmp_path


def destroy(session: Session, method: str, **params: Any) -> Any:
    """Calls the method with the confirmation of its plan, like a person who approves it."""
    plan = session.error(method, **params)["plan"]
    return session.data(method, **params, confirm=plan["plan_hash"])


def put_note(session: Session, agent: str, slug: str, text: str) -> int:
    """Records a note the way a sync records a file, and returns the note's id."""
    content = content_of_text(session.library.intake, text, "markdown", slug)

    def work(lane: Lane) -> int:
        head = lane.head
        event = DocWritten(
            id=head.next_document,
            kb=f"notes/{agent}",
            revision=1,
            title=slug,
            doc_type="note",
            source_sha256=content.sha256,
            size_bytes=content.size_bytes,
            first_chunk=head.next_chunk,
            chunks=content.chunks,
            parser=1,
            origin="agent",
            source_id=slug,
        )
        lane.append([event], actor="file", method="note.sync")
        return event.id

    return session.store.commit(work)


def findings(session: Session, slug: str) -> dict[str, tuple[str, str]]:
    """Name of a finding → its status and message."""
    rows = session.data("agent.check", slug=slug)["findings"]
    return {finding["name"]: (finding["status"], finding["message"]) for finding in rows}


# ---------------------------------------------------------------------------- create


def test_an_agent_that_says_nothing_sees_and_may_do_everything(session: Session) -> None:
    agent = session.data("agent.create", slug="gitea")
    assert agent == {
        "slug": "gitea",
        "description": "",
        "kbs": None,
        "notes_folder": str(session.store.origin / "notes" / "gitea"),
        "scopes": None,
        "quotas": {},
        "instructions": "",
        "revision": 1,
        "created_at": "2026-01-01T00:00:00.000Z",
        "updated_at": "2026-01-01T00:00:00.000Z",
    }
    assert session.data("agent.get", slug="gitea") == agent
    assert session.data("agent.list") == [agent]


def test_all_that_it_says_is_kept(session: Session, folder: Path) -> None:
    session.data("kb.create", slug="ops")
    fields: dict[str, Any] = {
        "description": "Looks after Gitea.",
        "kbs": ["ops", "default"],
        "scopes": ["doc:read", "note:read"],
        "quotas": {"knowledge_stored": 3},
        "instructions": "Be brief.\nCite.",
    }
    agent = session.data("agent.create", slug="gitea", notes_folder="notes", **fields)
    assert {name: agent[name] for name in fields} == fields
    assert agent["notes_folder"] == str(folder / "notes")
    assert session.data("agent.get", slug="gitea") == agent


def test_doubles_are_left_out(session: Session) -> None:
    agent = session.data(
        "agent.create", slug="gitea", kbs=["default", "default"], scopes=["doc:read", "doc:read"]
    )
    assert (agent["kbs"], agent["scopes"]) == (["default"], ["doc:read"])


def test_the_notes_folder_is_made_for_its_user_alone(session: Session, folder: Path) -> None:
    session.data("agent.create", slug="gitea")
    session.data("agent.create", slug="hub", notes_folder="hub-notes")
    for path in (session.store.origin / "notes" / "gitea", folder / "hub-notes"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700


def test_a_folder_that_is_there_is_taken_as_it_is(session: Session, folder: Path) -> None:
    (folder / "seeded").mkdir(mode=0o755)
    (folder / "seeded" / "first.md").write_text("# First\n")
    session.data("agent.create", slug="gitea", notes_folder="seeded")
    assert (folder / "seeded" / "first.md").read_text() == "# First\n"
    assert stat.S_IMODE((folder / "seeded").stat().st_mode) == 0o755


def test_a_dry_run_makes_no_folder(session: Session, folder: Path) -> None:
    answer = session.ask("agent.create", slug="gitea", notes_folder="notes", dry_run=True)
    plan = answer["result"]["meta"]["plan"]
    assert plan["events"]["items"] == [{"type": "agent.written", "summary": "create agent gitea"}]
    assert not (folder / "notes").exists()
    assert session.data("agent.list") == []


def test_names_of_others_in_the_log_are_reserved(
    session: Session, subtests: pytest.Subtests
) -> None:
    for slug in ("user", "file", "kbproc"):
        with subtests.test(slug=slug):
            error = session.error("agent.create", slug=slug)
            assert (error["type"], error["field"]) == ("input.invalid_params", "$.params.slug")
            assert slug in error["message"]


def test_nobody_makes_an_agent_of_itself(session: Session) -> None:
    """An agent of its own name would narrow the caller's rights, which it could not undo."""
    ann = session.another("ann")
    assert ann.error("agent.create", slug="ann")["type"] == "input.invalid_params"
    assert session.data("agent.create", slug="ann")["slug"] == "ann"


def test_what_is_no_slug_is_refused(session: Session, subtests: pytest.Subtests) -> None:
    cases: list[str] = ["", "a", "-ab", "ab-", "Ab", "a_b", "ab\n", "a" * 65, "notes/x"]
    for slug in cases:
        with subtests.test(slug=slug):
            assert session.error("agent.create", slug=slug)["type"] == "input.invalid_params"


def test_a_slug_is_taken_once(session: Session) -> None:
    session.data("agent.create", slug="gitea")
    error = session.error("agent.create", slug="gitea")
    assert (error["type"], error["exit_code"]) == ("resource.already_exists", 7)


def test_what_it_must_meet(session: Session, folder: Path, subtests: pytest.Subtests) -> None:
    cases: list[tuple[dict[str, Any], str, str, str | None]] = [
        ({"kbs": ["defualt"]}, "resource.not_found", "$.params.kbs[0]", "default"),
        ({"scopes": ["doc:raed"]}, "input.invalid_params", "$.params.scopes[0]", "doc:read"),
        ({"notes_folder": "no/such"}, "resource.not_found", "$.params.notes_folder", None),
        ({"notes_folder": "a-file"}, "input.invalid_params", "$.params.notes_folder", None),
        ({"notes_folder": "../out"}, "path.outside_root", "$.params.notes_folder", None),
        ({"notes_folder": "store"}, "input.invalid_params", "$.params.notes_folder", None),
        ({"notes_folder": "store/log"}, "input.invalid_params", "$.params.notes_folder", None),
        ({"notes_folder": "store/notes/x2"}, "input.invalid_params", "$.params.notes_folder", None),
        (
            {"quotas": {"notes_stord": 1}},
            "input.invalid_params",
            "$.params.quotas.notes_stord",
            "notes_stored",
        ),
        (
            {"quotas": {"notes_stored": -1}},
            "input.invalid_params",
            "$.params.quotas.notes_stored",
            None,
        ),
        (
            {"quotas": {"notes_stored": 10**9 + 1}},
            "input.invalid_params",
            "$.params.quotas.notes_stored",
            None,
        ),
        ({"description": "x" * 1001}, "input.invalid_params", "$.params.description", None),
        ({"instructions": "x" * 32_001}, "input.invalid_params", "$.params.instructions", None),
    ]
    (folder / "a-file").write_text("")
    for params, kind, field, near in cases:
        with subtests.test(kind=kind, field=field, near=near):
            error = session.error("agent.create", slug="gitea", **params)
            assert (error["type"], error["field"]) == (kind, field)
            if near is not None:
                assert near in error["valid_values"]
            assert session.data("agent.list") == []
            assert not (folder / "no").exists()


def test_the_greatest_that_may_be_said(session: Session) -> None:
    quotas = {"knowledge_stored": 0, "notes_stored": 10**9}
    agent = session.data(
        "agent.create",
        slug="a" * 64,
        description="x" * 1000,
        instructions="x" * 32_000,
        quotas=quotas,
    )
    assert agent["quotas"] == quotas


def test_a_folder_belongs_to_one_agent(session: Session, folder: Path) -> None:
    session.data("agent.create", slug="one", notes_folder="notes")
    (folder / "link").symlink_to(folder / "notes")
    for name in ("notes", "link", "./notes/../notes"):
        error = session.error("agent.create", slug="two", notes_folder=name)
        assert (error["type"], error["field"]) == (
            "resource.already_exists",
            "$.params.notes_folder",
        )


def test_a_default_folder_that_leads_to_anothers_is_refused(session: Session, folder: Path) -> None:
    session.data("agent.create", slug="one", notes_folder="notes")
    (session.store.origin / "notes").mkdir(exist_ok=True)
    (session.store.origin / "notes" / "two").symlink_to(folder / "notes")
    assert session.error("agent.create", slug="two")["type"] == "resource.already_exists"


def test_a_new_agent_touches_no_other_ones_folder(
    session: Session, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder on a disk that hangs would hold up every write."""
    session.data("agent.create", slug="far", notes_folder="far")
    paths: list[str] = []

    def watched(real: Any) -> Any:
        def call(path: Any, *args: Any, **more: Any) -> Any:
            paths.append(os.fsdecode(path) if isinstance(path, str | Path | bytes) else "")
            return real(path, *args, **more)

        return call

    for module, name in ((os, "stat"), (os, "lstat"), (os.path, "realpath")):
        monkeypatch.setattr(module, name, watched(getattr(module, name)))
    session.data("agent.create", slug="near")
    session.data("agent.create", slug="named", notes_folder="named")
    assert str(folder / "named") in paths
    assert [path for path in paths if path.startswith(str(folder / "far"))] == []


def test_its_own_folder_in_the_store_is_the_default(session: Session) -> None:
    agent = session.data("agent.create", slug="gitea", notes_folder="store/notes/gitea")
    assert agent["notes_folder"] == str(session.store.origin / "notes" / "gitea")
    row = session.store.published.roster.agents["gitea"]
    assert row.folder is None
    assert notes_folder(session.store, row) == Path(agent["notes_folder"])


def test_a_token_makes_one_agent(session: Session) -> None:
    first = session.ask("agent.create", slug="gitea", client_token="t")
    again = session.ask("agent.create", slug="gitea", client_token="t")
    assert again["result"]["meta"]["duplicate"] is True
    assert again["result"]["data"] == first["result"]["data"]


# ---------------------------------------------------------------------------- list, get


def test_agents_are_listed_page_by_page(session: Session) -> None:
    for slug in ("ce", "aa", "bb"):
        session.data("agent.create", slug=slug)
    first = session.ask("agent.list", limit=2)["result"]
    assert [agent["slug"] for agent in first["data"]] == ["aa", "bb"]
    assert first["meta"]["has_more"] is True
    rest = session.ask("agent.list", limit=2, cursor=first["meta"]["next_cursor"])["result"]
    assert [agent["slug"] for agent in rest["data"]] == ["ce"]
    assert "next_cursor" not in rest["meta"]


def test_an_unknown_agent_is_told_from_the_nearest(
    session: Session, subtests: pytest.Subtests
) -> None:
    cases: list[str] = ["agent.get", "agent.status", "agent.check", "agent.delete"]
    session.data("agent.create", slug="gitea")
    for method in cases:
        with subtests.test(method=method):
            error = session.error(method, slug="gitae")
            assert error["type"] == "resource.not_found"
            assert (error["field"], error["valid_values"]) == ("$.params.slug", ["gitea"])


def test_a_bound_agent_sees_itself_alone(session: Session) -> None:
    for slug in ("one", "two"):
        session.data("agent.create", slug=slug)
    one = session.another("one", named=True)
    assert [agent["slug"] for agent in one.data("agent.list")] == ["one"]
    assert one.data("agent.get", slug="one")["slug"] == "one"
    assert one.data("agent.list", limit=1, cursor="Im9uZSI") == []


def test_a_bound_agent_is_told_of_no_other(session: Session, subtests: pytest.Subtests) -> None:
    for slug in ("one", "two", "tre"):
        session.data("agent.create", slug=slug)
    destroy(session, "agent.delete", slug="tre")
    one = session.another("one", named=True)
    for method in ("agent.get", "agent.status", "agent.check"):
        with subtests.test(method=method):
            there, deleted, never = (one.error(method, slug=slug) for slug in ("two", "tre", "six"))
            assert there["valid_values"] == ["one"]
            assert there == {**never, "message": never["message"].replace("six", "two")}
            assert deleted == {**never, "message": never["message"].replace("six", "tre")}


def test_a_bound_agent_changes_no_agent(session: Session) -> None:
    session.data("agent.create", slug="one")
    one = session.another("one", named=True)
    tried: list[tuple[str, dict[str, Any]]] = [
        ("agent.create", {"slug": "two"}),
        ("agent.update", {"slug": "one", "clear": ["kbs"]}),
        ("agent.delete", {"slug": "one"}),
    ]
    for method, params in tried:
        assert one.error(method, **params)["type"] == "auth.insufficient_scope"


# ---------------------------------------------------------------------------- update


def test_what_is_given_replaces_and_the_rest_stays(session: Session) -> None:
    before = session.data(
        "agent.create",
        slug="gitea",
        description="d",
        kbs=["default"],
        scopes=["doc:read"],
        instructions="i",
        quotas={"notes_stored": 1},
    )
    after = session.data("agent.update", slug="gitea", scopes=["doc:write"])
    assert after == {**before, "scopes": ["doc:write"], "revision": 2}
    after = session.data("agent.update", slug="gitea", quotas={"knowledge_stored": 5}, kbs=[])
    assert after["quotas"] == {"knowledge_stored": 5, "notes_stored": 1}
    assert (after["kbs"], after["revision"], after["description"]) == ([], 3, "d")
    assert session.data("agent.get", slug="gitea") == after


def test_a_side_is_opened_again(session: Session, subtests: pytest.Subtests) -> None:
    other = session.data("agent.create", slug="other")
    for side in ("kbs", "scopes", "notes_folder", "quotas"):
        with subtests.test(side=side):
            slug = side.replace("_", "-")
            fields: dict[str, Any] = {
                "kbs": ["default"],
                "scopes": ["doc:read"],
                "notes_folder": f"notes-{slug}",
                "quotas": {"knowledge_stored": 1, "notes_stored": 2},
            }
            before = session.data("agent.create", slug=slug, **fields)
            clear = ["knowledge_stored", "notes_stored"] if side == "quotas" else [side]
            after = session.data("agent.update", slug=slug, clear=clear)
            opened = other[side]
            expected = opened.replace("other", slug) if side == "notes_folder" else opened
            assert after == {**before, side: expected, "revision": 2}


def test_what_is_given_is_not_cleared(session: Session) -> None:
    session.data("agent.create", slug="gitea")
    twice: list[dict[str, Any]] = [
        {"kbs": [], "clear": ["kbs"]},
        {"quotas": {"notes_stored": 1}, "clear": ["scopes", "notes_stored"]},
    ]
    for params in twice:
        error = session.error("agent.update", slug="gitea", **params)
        assert error["type"] == "input.invalid_params"
        assert error["field"].startswith("$.params.clear[")
    error = session.error("agent.update", slug="gitea", clear=["description"])
    assert "kbs" in error["valid_values"]


def test_nothing_to_change_is_an_error(session: Session) -> None:
    session.data("agent.create", slug="gitea")
    error = session.error("agent.update", slug="gitea")
    assert error["type"] == "input.invalid_params"
    assert "clear" in error["valid_values"]


def test_a_stale_revision_is_refused(session: Session) -> None:
    session.data("agent.create", slug="gitea")
    session.data("agent.update", slug="gitea", description="a", expected_revision=1)
    error = session.error("agent.update", slug="gitea", description="b", expected_revision=1)
    assert (error["type"], error["detail"]) == ("resource.conflict", {"revision": 2})


def test_it_may_keep_what_is_gone_but_not_be_given_it(session: Session) -> None:
    session.data("kb.create", slug="ops")
    session.data("agent.create", slug="gitea", kbs=["ops"])
    destroy(session, "kb.delete", slug="ops")
    assert session.data("agent.update", slug="gitea", description="x")["kbs"] == ["ops"]
    assert session.error("agent.update", slug="gitea", kbs=["ops"])["type"] == "resource.not_found"


def test_a_new_folder_is_made_and_the_old_one_left(session: Session, folder: Path) -> None:
    session.data("agent.create", slug="gitea", notes_folder="old")
    (folder / "old" / "kept.md").write_text("# Kept\n")
    after = session.data("agent.update", slug="gitea", notes_folder="new")
    assert after["notes_folder"] == str(folder / "new")
    assert (folder / "new").is_dir()
    assert (folder / "old" / "kept.md").exists()
    session.data("agent.create", slug="other", notes_folder="old")
    error = session.error("agent.update", slug="gitea", notes_folder="old")
    assert error["type"] == "resource.already_exists"


def test_scopes_bind_from_the_next_request_on(session: Session) -> None:
    session.data("agent.create", slug="one")
    one = session.another("one", named=True)
    one.data("kb.list")
    session.data("agent.update", slug="one", scopes=["doc:read"])
    assert one.error("kb.list")["detail"]["needed"] == "kb:read"
    one.data("doc.list")


# ---------------------------------------------------------------------------- delete


def test_notes_are_hidden_and_their_files_stay(session: Session) -> None:
    agent = session.data("agent.create", slug="gitea")
    file = Path(agent["notes_folder"]) / "hooks.md"
    file.write_text("# Hooks\n")
    note = put_note(session, "gitea", "hooks", "# Hooks\n")
    entry = session.another("gitea").data("knowledge.store", title="Port", body="It is 3000.")
    error = session.error("agent.delete", slug="gitea")
    assert error["type"] == "input.confirmation_required"
    assert error["plan"]["risk"]["level"] == "medium"
    assert [target["kind"] for target in error["plan"]["targets"]] == ["agent", "document"]
    assert (
        "1 note" in error["plan"]["changes"][0] and str(file.parent) in error["plan"]["changes"][0]
    )
    answer = session.data("agent.delete", slug="gitea", confirm=error["plan"]["plan_hash"])
    assert answer == {
        "slug": "gitea",
        "notes": 1,
        "notes_folder": str(file.parent),
        "files_kept": True,
    }
    assert session.error("doc.get", id=note)["type"] == "resource.not_found"
    assert session.data("knowledge.get", id=entry["id"])["created_by"] == "gitea"
    assert file.read_text() == "# Hooks\n"
    assert session.data("agent.list") == []


def test_a_deleted_agent_can_do_nothing_until_it_is_made_again(session: Session) -> None:
    first = session.data("agent.create", slug="gitea", kbs=["default"])
    one = session.another("gitea")
    destroy(session, "agent.delete", slug="gitea")
    assert one.error("kb.list")["type"] == "resource.not_found"
    error = session.error("agent.get", slug="gitea")
    assert error["detail"] == {"deleted_at": "2026-01-01T00:00:00.000Z"}
    again = session.data("agent.create", slug="gitea")
    assert again == {**first, "kbs": None}
    one.data("kb.list")


def test_a_confirmed_plan_is_for_one_agent_of_that_name(session: Session) -> None:
    session.data("agent.create", slug="gitea")
    plan = session.error("agent.delete", slug="gitea")["plan"]
    session.data("agent.update", slug="gitea", description="new")
    error = session.error("agent.delete", slug="gitea", confirm=plan["plan_hash"])
    assert error["type"] == "resource.plan_stale"


# ---------------------------------------------------------------------------- status, check


def test_what_it_keeps_is_counted(session: Session) -> None:
    session.data("kb.create", slug="ops")
    session.data(
        "agent.create", slug="gitea", kbs=["ops"], quotas={"knowledge_stored": 3, "notes_stored": 2}
    )
    put_note(session, "gitea", "hooks", "# Hooks\n")
    one = session.another("gitea", named=True)
    entry = one.data("knowledge.store", title="Port", body="It is 3000.", kb="ops")
    other = one.data("knowledge.store", title="User", body="It is git.", kb="ops")
    destroy(session, "knowledge.delete", ids=[other["id"]])
    session.data("knowledge.store", title="Not its own", body="Somebody else's.", kb="ops")
    expected = {
        "slug": "gitea",
        "notes": 1,
        "entries": 1,
        "quotas": [
            {"name": "knowledge_stored", "limit": 3, "used": 1},
            {"name": "notes_stored", "limit": 2, "used": 1},
        ],
        "kbs": ["ops"],
        "notes_folder": str(session.store.origin / "notes" / "gitea"),
        "misnamed_files": 0,
        "files_in_folders": 0,
    }
    assert entry["created_by"] == "gitea"
    assert session.data("agent.status", slug="gitea") == expected
    assert one.data("agent.status", slug="gitea") == expected


def test_no_snapshot_is_held_while_the_folder_is_walked(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.data("agent.create", slug="gitea")
    put_note(session, "gitea", "hooks", "# Hooks\n")
    notes = session.store.origin / "notes" / "gitea" / "more"
    notes.mkdir(parents=True)
    (notes / "one.md").write_text("text")
    borrowed: Counter[int] = Counter()  # a count for each thread, since the upkeep borrows too
    lent_at_walk: list[int] = []
    borrow, give_back, count = Readers.borrow, Readers.give_back, notefiles.count_non_notes

    def count_borrow(self: Readers, *args: Any) -> Queries:
        borrowed[threading.get_ident()] += 1
        return borrow(self, *args)

    def count_give_back(self: Readers, queries: Queries) -> None:
        borrowed[threading.get_ident()] -= 1
        give_back(self, queries)

    def count_non_notes(folder: Path) -> notefiles.NonNotes:
        lent_at_walk.append(borrowed[threading.get_ident()])
        return count(folder)

    monkeypatch.setattr(Readers, "borrow", count_borrow)
    monkeypatch.setattr(Readers, "give_back", count_give_back)
    monkeypatch.setattr(notefiles, "count_non_notes", count_non_notes)
    assert session.data("agent.status", slug="gitea")["files_in_folders"] == 1
    assert lent_at_walk == [0]


def test_who_sees_no_entries_and_no_notes_is_told_no_counts(session: Session) -> None:
    session.data("agent.create", slug="gitea", quotas={"knowledge_stored": 3, "notes_stored": 2})
    put_note(session, "gitea", "hooks", "# Hooks\n")
    status = session.another("user", scopes="agent:read").data("agent.status", slug="gitea")
    assert (status["notes"], status["entries"]) == (None, None)
    assert (status["misnamed_files"], status["files_in_folders"]) == (None, None)
    assert [quota["used"] for quota in status["quotas"]] == [None, None]
    checked = session.another("user", scopes="agent:read").data("agent.check", slug="gitea")
    assert {f["name"] for f in checked["findings"]} == {
        "knowledge bases",
        "scopes",
        "notes folder",
    }


def test_a_well_agent_passes_every_check(session: Session) -> None:
    session.data(
        "agent.create",
        slug="gitea",
        kbs=["default"],
        scopes=["doc:read"],
        quotas={"knowledge_stored": 9},
    )
    assert session.data("agent.check", slug="gitea")["healthy"] is True
    assert {status for status, _ in findings(session, "gitea").values()} == {"pass"}


def test_files_that_are_not_as_the_log_says_are_named(session: Session) -> None:
    agent = session.data("agent.create", slug="gitea")
    folder = Path(agent["notes_folder"])
    for slug in ("same", "other", "gone"):
        put_note(session, "gitea", slug, f"# {slug}\n")
    (folder / "same.md").write_text("# same\n")
    (folder / "other.md").write_text("# Another text\n")
    (folder / "fresh.md").write_text("# Fresh\n")
    (folder / "Bad Name.md").write_text("# Bad\n")
    (folder / "link.md").symlink_to("same.md")
    checks = findings(session, "gitea")
    assert checks["notes"] == ("warn", "new: fresh; changed: other; gone: gone")
    status, message = checks["skipped files"]
    assert status == "warn"
    assert "bad-name.md" in message and "link.md" in message
    assert session.data("agent.check", slug="gitea")["healthy"] is True


def test_trouble_with_the_folder(session: Session, folder: Path, subtests: pytest.Subtests) -> None:
    for slug, says in (
        ("missing", "does not exist"),
        ("file", "is no folder"),
        ("link", "leads to"),
    ):
        with subtests.test(slug=slug):
            notes = Path(session.data("agent.create", slug=f"a-{slug}")["notes_folder"])
            notes.rmdir()
            if slug == "file":
                notes.write_text("")
            elif slug == "link":
                (folder / "elsewhere").mkdir()
                notes.symlink_to(folder / "elsewhere")
            finding = findings(session, f"a-{slug}")["notes folder"]
            assert finding[0] == "fail" and says in finding[1]
            assert session.data("agent.check", slug=f"a-{slug}")["healthy"] is False


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read and write everything")
def test_permissions_of_the_folder(session: Session) -> None:
    notes = Path(session.data("agent.create", slug="gitea")["notes_folder"])
    notes.chmod(0o500)
    assert "written" in findings(session, "gitea")["notes folder"][1]
    notes.chmod(0o000)
    assert "read" in findings(session, "gitea")["notes folder"][1]
    notes.chmod(0o700)


def test_two_agents_in_one_folder_are_found(session: Session, folder: Path) -> None:
    session.data("agent.create", slug="one", notes_folder="notes")
    two = Path(session.data("agent.create", slug="two")["notes_folder"])
    two.rmdir()
    two.symlink_to(folder / "notes")
    status, message = findings(session, "two")["notes folder"]
    assert status == "fail" and "one" in message
    bound = session.another("two", named=True)
    assert "of one" not in str(bound.data("agent.check", slug="two"))


def test_knowledge_bases_that_are_gone_are_named(session: Session) -> None:
    session.data("kb.create", slug="ops")
    session.data("agent.create", slug="gitea", kbs=["ops", "default"])
    destroy(session, "kb.delete", slug="ops")
    assert findings(session, "gitea")["knowledge bases"] == ("warn", "missing: ops")
    assert session.data("agent.status", slug="gitea")["kbs"] == ["default"]


def test_quotas_that_are_used_up(session: Session, subtests: pytest.Subtests) -> None:
    session.data("agent.create", slug="gitea")
    for slug in ("one", "two", "tre"):
        put_note(session, "gitea", slug, f"# {slug}\n")
    for limit, status, says in (
        (30, "pass", "3 of 30 used"),
        (3, "warn", "full"),
        (2, "warn", "over the quota"),
    ):
        with subtests.test(limit=limit):
            session.data("agent.update", slug="gitea", quotas={"notes_stored": limit})
            finding = findings(session, "gitea")["notes_stored"]
            assert finding[0] == status and says in finding[1]


def test_agents_outlive_the_process(open_session: OpenSession, tmp_path: Path) -> None:
    first = open_session()
    agent = first.data("agent.create", slug="gitea", kbs=["default"], notes_folder="notes")
    first.close()
    again = open_session(tmp_path / "store")
    assert again.data("agent.get", slug="gitea") == agent
