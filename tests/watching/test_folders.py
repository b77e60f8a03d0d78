"""A watched folder's documents follow its files while the store is open."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from queue import Queue
from types import SimpleNamespace
from typing import Any

import pytest

from kbproc.base import changes
from kbproc.base.settings.trust import Trust
from kbproc.base.workers import Worker
from kbproc.engine.events.watch import FolderWatched
from kbproc.knowledge.documents import ingest
from kbproc.knowledge.watching import folder as watching
from tests.conftest import OpenSession
from tests.kit import knowledge
from tests.kit.patience import PATIENCE, until
from tests.kit.talk import Session
from tests.kit.watched import documents, follows, revision, shows, watched, write


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, milliseconds in (("LOOK_MS", 20), ("STEP_MS", 10), ("DEBOUNCE_MS", 50)):
        monkeypatch.setattr(changes, name, milliseconds)
    monkeypatch.setattr(watching, "SETTLE_S", 0.02)
    monkeypatch.setattr(watching, "POLL_S", 0.05)
    monkeypatch.setattr(watching, "POLL_REST", 1.0)
    monkeypatch.setattr(watching, "WALK_S", 3600.0)  # no test passes thanks to a later walk
    monkeypatch.setattr(changes, "RETRY_S", 0.02)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "docs"
    path.mkdir()
    (path / "one.md").write_text("# One\n\nAlpha words.\n")
    return path


# -------------------------------------------------------------------------- files


@pytest.mark.parametrize("way", ["notified", "polled", "unable", "threadless"])
def test_files_that_come_change_and_move(
    session: Session, folder: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "unable":

        def fail(*args: Any) -> Iterator[set[str]]:
            raise OSError("no more watches")

        monkeypatch.setattr(changes, "follow", fail)
    if way == "threadless":

        class Refused(Worker):
            def start(self) -> bool:
                raise RuntimeError("can't start new thread")

        monkeypatch.setattr(changes, "Worker", Refused)
    session.data("watch.add", folder="docs", tags=["mine"], poll=way == "polled")
    follows(session, "one.md")
    assert documents(session)["one.md"]["tags"] == ["mine"]
    (folder / "below").mkdir()
    (folder / "below" / "two.md").write_text("# Two\n\nBeta words.\n")
    follows(session, "one.md two.md")
    (folder / "one.md").write_text("# One\n\nGamma words.\n")
    revision(session, "one.md", 2)
    before = documents(session)["two.md"]["id"]
    (folder / "below" / "two.md").rename(folder / "three.md")
    follows(session, "one.md three.md")
    assert documents(session)["three.md"]["id"] == before
    is_unable = any("can't be watched" in line for line in watched(session)["warnings"])
    assert is_unable == (way in {"unable", "threadless"})


def test_an_editors_save_is_one_revision(session: Session, folder: Path) -> None:
    session.data("watch.add", folder="docs")
    follows(session, "one.md")
    before = documents(session)["one.md"]["id"]
    for number in (2, 3):
        (folder / "4913.tmp").write_text(f"# One\n\nSaved {number}.\n")
        (folder / "one.md").rename(folder / "one.md~")
        (folder / "4913.tmp").rename(folder / "one.md")
        (folder / "one.md~").unlink()
        revision(session, "one.md", number)
    follows(session, "one.md")
    assert documents(session)["one.md"]["id"] == before


def test_a_file_that_is_still_written_is_read_at_its_end(
    session: Session, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, parts = folder / "long.md", iter(range(1, 6))
    real = watching.stamps_of

    def writing(paths: Any) -> Any:
        named = list(paths)
        if path in named and (part := next(parts, None)):
            with path.open("a") as file:
                file.write(f"Part {part}.\n")
        return real(named)

    monkeypatch.setattr(watching, "stamps_of", writing)
    path.write_text("# Long\n\n")
    session.data("watch.add", folder="docs")
    follows(session, "one.md long.md")
    assert documents(session)["long.md"]["revision"] == 1
    assert (
        "Part 5."
        in session.data("doc.get", id=documents(session)["long.md"]["id"], text=True)["text"]
    )


def test_a_file_that_never_rests_is_read_nevertheless(
    session: Session, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = watching.stamps_of

    def writing(paths: Any) -> Any:
        named = list(paths)
        with (folder / "app.log").open("a") as file:
            file.write("A line.\n")
        return real(named)

    clock = [1000.0]
    monkeypatch.setattr(watching, "stamps_of", writing)
    monkeypatch.setattr(watching, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    (folder / "app.log").write_text("The first line.\n")

    def look_again() -> None:
        size = (folder / "app.log").stat().st_size
        until(lambda: (folder / "app.log").stat().st_size > size + 200, "some more looks")

    session.data("watch.add", folder="docs")
    look_again()
    assert "app.log" not in documents(session)
    clock[0] += watching.MOST_UNSETTLED_S + 1
    until(lambda: "app.log" in documents(session), "the log")
    look_again()
    # Each revision waits as long again, although the file changes at every look.
    assert documents(session)["app.log"]["revision"] == 1
    clock[0] += watching.MOST_UNSETTLED_S + 1
    until(lambda: documents(session)["app.log"]["revision"] == 2, "the next revision")


def test_a_folder_that_is_made_anew_under_its_inode_is_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "identity", lambda folder: (1, 1))
    reports: Queue[Any] = Queue()

    def reported(path: Path | None) -> None:
        """Waits for the report of a path; None: of a new watch."""
        while True:
            paths = reports.get(timeout=PATIENCE)
            if paths is None if path is None else str(path) in (paths or ()):
                return

    (below := tmp_path / "below").mkdir()
    watch = changes.Notifications(reports.put, reports.put, watching.concerns)
    watch.watch([tmp_path, below])
    reported(None)
    below.rmdir()
    below.mkdir()
    reported(below)
    watch.watch([tmp_path, below])
    reported(None)
    (below / "new.md").write_text("# New\n")
    reported(below / "new.md")
    watch.close()
    watch.join()


def test_what_an_agent_has_watched_is_trusted_as_an_agents(session: Session, folder: Path) -> None:
    session.another("helper", self_named=True).data("watch.add", folder="docs")
    until(lambda: documents(session), "the documents")
    assert {row["origin"] for row in documents(session).values()} == {"agent"}


def test_the_rules_are_those_of_an_ingest(session: Session, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "outside.md").write_text("# Outside\n\nNot here.\n")
    outside = tmp_path.parent / "far.md"
    outside.write_text("# Far\n\nNowhere near.\n")
    (folder / "inner.md").symlink_to(folder / "one.md")
    (folder / "far.md").symlink_to(outside)
    (folder / "up").symlink_to(tmp_path)
    (folder / ".hidden.md").write_text("# Hidden\n")
    (folder / ".gitignore").write_text("ignored.md\n")
    (folder / ".git").mkdir()
    (folder / "ignored.md").write_text("# Ignored\n")
    (folder / "draft.md").write_text("# Draft\n")
    (folder / "plain.txt").write_text("Plain.\n")
    session.data("watch.add", folder="docs", glob="*.md", exclude=["draft*"])
    follows(session, "one.md inner.md")
    (folder / ".gitignore").write_text("")
    follows(session, "one.md inner.md ignored.md")
    (folder / "one.md").write_text("# One\n\nThe target of a link.\n")
    revision(session, "inner.md", 2)


def test_nothing_changes_without_a_change(session: Session, folder: Path) -> None:
    session.data("watch.add", folder="docs")
    follows(session, "one.md")
    seq = session.store.seq
    session.data("watch.add", folder="docs")
    (folder / "one.md").touch()
    (folder / "two.md").write_text("# Two\n")
    follows(session, "one.md two.md")
    assert session.store.seq == seq + 1
    assert documents(session)["one.md"]["revision"] == 1


class Walks:
    """Counts the walks through a watched folder, and what its notifications report."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun = 0
        self._before_report: int | None = None  # walks before the first report of notifications
        self._reports = 0  # since the last walk
        self._find, self._follow = ingest.find_files, changes.follow
        monkeypatch.setattr(ingest, "find_files", self._finding)
        monkeypatch.setattr(changes, "follow", self._following)

    def _finding(self, *args: Any) -> Any:
        self.begun, self._reports = self.begun + 1, 0
        return self._find(*args)

    def _following(self, *args: Any) -> Iterator[set[str]]:
        before = self.begun
        for paths in self._follow(*args):
            yield paths
            self._before_report = before  # the folder has heard of it
            self._reports += 1

    def rest(self) -> None:
        """Waits for the walk after the notifications' first report, and for a report after it."""

        def is_at_rest() -> bool:
            before = self._before_report
            return before is not None and self.begun > before and self._reports > 0

        until(is_at_rest, "a rest")


@pytest.fixture
def walks(monkeypatch: pytest.MonkeyPatch) -> Walks:
    return Walks(monkeypatch)


def test_an_edit_does_not_walk_the_folder(session: Session, folder: Path, walks: Walks) -> None:
    session.data("watch.add", folder="docs", glob="*.md")
    follows(session, "one.md")
    walks.rest()
    number = walks.begun
    (folder / "one.md").write_text("# One\n\nSaved in place.\n")
    revision(session, "one.md", 2)
    (folder / "one.md.tmp").write_text("# One\n\nSaved beside, then renamed.\n")
    (folder / "one.md.tmp").rename(folder / "one.md")
    revision(session, "one.md", 3)
    assert walks.begun == number
    (folder / "two.md").write_text("# Two\n")
    follows(session, "one.md two.md")
    assert walks.begun > number


def test_the_folder_is_walked_now_and_then(
    session: Session, folder: Path, walks: Walks, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / ".git" / "info").mkdir(parents=True)
    (folder / "two.md").write_text("# Two\n")
    session.data("watch.add", folder="docs")
    follows(session, "one.md two.md")
    walks.rest()
    number = walks.begun
    monkeypatch.setattr(watching, "WALK_S", 0.1)
    (folder / ".git" / "info" / "exclude").write_text("two.md\n")
    (folder / "one.md").write_text("# One\n\nAn edit.\n")
    shows(session, files=1)
    until(lambda: walks.begun > number, "a walk")


@pytest.mark.parametrize("name", ["package.json", ".gitignore"])
def test_a_file_that_decides_what_is_read_goes(
    session: Session, folder: Path, walks: Walks, name: str
) -> None:
    (folder / "build").mkdir()
    (folder / "build" / "two.md").write_text("# Two\n")
    (folder / ".git").mkdir()
    (folder / name).write_text("build\n")
    session.data("watch.add", folder="docs", glob="*.md")
    follows(session, "one.md")
    walks.rest()
    (folder / name).unlink()
    follows(session, "one.md two.md")


def test_a_link_follows_the_edits_of_its_target(
    session: Session, folder: Path, walks: Walks
) -> None:
    (folder / "inner.md").symlink_to(folder / "one.md")
    session.data("watch.add", folder="docs")
    follows(session, "one.md inner.md")
    walks.rest()
    number = walks.begun
    (folder / "one.md").write_text("# One\n\nThe target of a link.\n")
    revision(session, "inner.md", 2)
    assert walks.begun == number


# -------------------------------------------------------------------------- files that are gone


def test_removals_wait_for_a_person(session: Session, folder: Path) -> None:
    paths = write(folder, 3)
    session.data("watch.add", folder="docs")
    follows(session, "one.md file0.md file1.md file2.md")
    paths[0].unlink()
    shows(session, state="current", without_file=1, held_back=1)
    (warning,) = watched(session)["warnings"]
    assert f"kbproc add {folder} --kb default --prune" in warning
    plan = session.error("doc.ingest", paths=["docs"], prune=True)["plan"]
    session.data("doc.ingest", paths=["docs"], prune=True, confirm=plan["plan_hash"])
    paths[1].write_text("# New\n\nOther words.\n")
    follows(session, "one.md file1.md file2.md")
    shows(session, without_file=0, held_back=0, warnings=[])


def test_few_removals_happen_by_themselves(session: Session, folder: Path) -> None:
    paths = write(folder, 5)
    session.data("watch.add", folder="docs", prune="auto")
    follows(session, "one.md file0.md file1.md file2.md file3.md file4.md")
    before = documents(session)["file0.md"]["id"]
    paths[0].unlink()
    follows(session, "one.md file1.md file2.md file3.md file4.md")
    paths[0].write_text("# It\n\nIs back, and not the same.\n")
    follows(session, "one.md file0.md file1.md file2.md file3.md file4.md")
    assert documents(session)["file0.md"]["id"] == before


def test_more_than_half_are_never_removed_unasked(session: Session, folder: Path) -> None:
    paths = write(folder, 5)
    session.data("watch.add", folder="docs", prune="auto")
    follows(session, "one.md file0.md file1.md file2.md file3.md file4.md")
    for path in paths:
        path.unlink()
    shows(session, state="current", without_file=5, held_back=5)
    assert documents(session).keys() == {"one.md", *(path.name for path in paths)}
    for number in range(20):  # the lost ones are few now, and a person has still not decided
        (folder / f"new{number}.md").write_text(f"# New {number}\n")
    until(lambda: len(documents(session)) == 26, "the new files")
    shows(session, held_back=5)


@pytest.mark.parametrize("prune", ["ask", "auto", "never"])
def test_a_folder_that_vanishes_removes_nothing(
    session: Session, folder: Path, tmp_path: Path, prune: str
) -> None:
    session.data("watch.add", folder="docs", prune=prune)
    follows(session, "one.md")
    shutil.move(folder, tmp_path / "aside")
    shows(session, state="missing")
    assert [f"{folder} is not there; its documents stay as they are."] == watched(session)[
        "warnings"
    ]
    assert documents(session).keys() == {"one.md"}
    (tmp_path / "aside" / "one.md").write_text("# One\n\nWritten elsewhere.\n")
    shutil.move(tmp_path / "aside", folder)
    revision(session, "one.md", 2)
    follows(session, "one.md")
    (folder / "two.md").write_text("# Two\n")
    follows(session, "one.md two.md")


@pytest.mark.parametrize(("is_file", "state"), [(True, "no folder"), (False, "not there")])
def test_a_folder_that_vanishes_before_it_is_walked(
    session: Session, folder: Path, monkeypatch: pytest.MonkeyPatch, is_file: bool, state: str
) -> None:
    real = ingest.find_files

    def find_files(*arguments: Any) -> ingest.FoundFiles:
        if folder.is_dir():
            folder.rename(folder.with_name("aside"))
            if is_file:
                folder.write_text("A file.")
        return real(*arguments)

    monkeypatch.setattr(ingest, "find_files", find_files)
    session.data("watch.add", folder="docs")
    shows(session, state="missing")
    assert watched(session)["warnings"] == [f"{folder} is {state}; its documents stay as they are."]
    assert documents(session) == {}


def test_a_folder_in_the_folder_that_is_made_anew(session: Session, folder: Path) -> None:
    (folder / "below").mkdir()
    (folder / "below" / "a.md").write_text("# A\n")
    session.data("watch.add", folder="docs")
    follows(session, "one.md a.md")
    shutil.rmtree(folder / "below")
    (folder / "below").mkdir()
    (folder / "below" / "b.md").write_text("# B\n")
    until(lambda: "b.md" in documents(session), "b.md")
    (folder / "below" / "c.md").write_text("# C\n")
    until(lambda: "c.md" in documents(session), "c.md")


# -------------------------------------------------------------------------- owners


def test_the_next_owner_catches_up(open_session: OpenSession, folder: Path) -> None:
    session = open_session()
    session.data("watch.add", folder="docs")
    follows(session, "one.md")
    before = documents(session)["one.md"]["id"]
    session.close()
    (folder / "one.md").rename(folder / "two.md")
    (folder / "three.md").write_text("# Three\n")
    session = open_session()
    follows(session, "two.md three.md")
    assert documents(session)["two.md"]["id"] == before


def test_a_folder_that_only_the_log_names_is_never_read(session: Session, folder: Path) -> None:
    """Another machine may have written the log, or another person the store."""
    event = FolderWatched(machine="here", path=str(folder), kb="default")
    knowledge.put(session.store, event, method="watch.add")
    session.data("watch.add", folder=str(folder.parent), glob="nothing.md")
    until(lambda: session.data("watch.list")[0]["state"] == "current", "the other folder")
    assert [watch["state"] for watch in session.data("watch.list")] == ["current", "elsewhere"]
    assert documents(session) == {}


def test_a_store_that_moved_asks_again(open_session: OpenSession, folder: Path) -> None:
    session = open_session()
    session.data("watch.add", folder="docs")
    follows(session, "one.md")
    session.close()
    shutil.move(folder.parent / "store", folder.parent / "moved")
    session = open_session(folder.parent / "moved")
    assert watched(session)["state"] == "elsewhere"
    session.data("watch.add", folder="docs")
    follows(session, "one.md")


def test_what_was_removed_is_watched_no_more(
    session: Session, folder: Path, tmp_path: Path
) -> None:
    session.data("watch.add", folder="docs")
    follows(session, "one.md")
    removed = session.data("watch.remove", folder="docs")
    assert removed["path"] == str(folder)
    assert session.data("watch.list") == []
    (folder / "two.md").write_text("# Two\n")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "three.md").write_text("# Three\n")
    session.data("watch.add", folder="other")
    follows(session, "one.md three.md")
    error = session.error("watch.remove", folder="docs")
    assert (error["type"], error["valid_values"]) == (
        "resource.not_found",
        [str(tmp_path / "other")],
    )
    trust = Trust(tmp_path / "trusted.json")._read()
    assert next(iter(trust.watches.values())).keys() == {f"here\n{tmp_path / 'other'}"}


def test_new_rules_replace_the_old(session: Session, folder: Path) -> None:
    (folder / "two.txt").write_text("Two.\n")
    session.data("watch.add", folder="docs", glob="*.md")
    follows(session, "one.md")
    session.data("watch.add", folder="docs", glob="*.txt")
    follows(session, "one.md two.txt")
    assert watched(session)["glob"] == "*.txt"
    seq = session.store.seq
    assert session.data("watch.list", as_of=1) == []
    assert session.data("watch.list", as_of=seq)[0]["glob"] == "*.txt"
    assert "state" not in session.data("watch.list", as_of=seq)[0]


def test_threads_that_ended_are_forgotten(session: Session, folder: Path) -> None:
    watches = session.library.watches
    for number in range(5):
        session.data("watch.add", folder="docs", glob=f"*{number}.md")
    until(lambda: not any(each.is_running for each in watches._ending), "the end of the threads")
    session.data("watch.add", folder="docs")
    assert len(watches._ending) <= 1  # the one that ends now


def test_a_file_that_fails_is_counted_until_it_is_mended(session: Session, folder: Path) -> None:
    (folder / "bad.pdf").write_bytes(b"%PDF-1.7\nnothing")
    session.data("watch.add", folder="docs")
    shows(session, failed=1)
    (folder / "two.md").write_text("# Two\n\nBeta words.\n")
    until(lambda: "two.md" in documents(session), "the second file")
    shows(session, state="current", failed=1)
    (folder / "bad.pdf").unlink()
    shows(session, failed=0)


def test_a_knowledge_base_that_is_gone(session: Session, folder: Path) -> None:
    session.data("kb.create", slug="books")
    session.data("watch.add", folder="docs", kb="books")
    follows(session, "one.md")
    plan = session.error("kb.delete", slug="books")["plan"]
    session.data("kb.delete", slug="books", confirm=plan["plan_hash"])
    (folder / "one.md").write_text("# One\n\nFor nobody.\n")
    shows(session, state="failed")
    assert "books" in watched(session)["warnings"][0]


# -------------------------------------------------------------------------- callers


def test_who_may(session: Session, folder: Path) -> None:
    writer = session.another("user", scopes="doc:read,doc:write")
    error = writer.error("watch.add", folder="docs", prune="auto")
    assert (error["type"], error["field"]) == ("auth.insufficient_scope", "$.params.prune")
    session.data("kb.create", slug="secret")
    session.data("agent.create", slug="gitea", kbs=["default"])
    agent = session.another("gitea", named=True)
    assert agent.error("watch.add", folder="docs")["type"] == "auth.insufficient_scope"
    session.data("watch.add", folder="docs", kb="secret")
    assert agent.data("watch.list") == []
    assert "watched" not in agent.data("status")
    (watch,) = session.data("status")["watched"]
    assert watch["path"] == str(folder)


@pytest.mark.parametrize(
    ("named", "type"),
    [
        ("nowhere", "resource.not_found"),
        ("docs/one.md", "input.invalid_params"),
        ("store/log", "input.invalid_params"),
        ("/", "path.outside_root"),
    ],
)
def test_no_folder_to_watch(session: Session, folder: Path, named: str, type: str) -> None:
    error = session.error("watch.add", folder=named)
    assert (error["type"], error["field"]) == (type, "$.params.folder")


def test_a_preview_approves_nothing(session: Session, folder: Path, tmp_path: Path) -> None:
    session.ask("watch.add", folder="docs", dry_run=True)
    assert session.data("watch.list") == []
    assert not (tmp_path / "trusted.json").exists()


def test_a_subscriber_hears_of_it(session: Session, folder: Path) -> None:
    session.data("watch.add", folder="docs")
    follows(session, "one.md")
    (folder / "two.md").write_text("# Two\n")
    follows(session, "one.md two.md")
    records = session.data("events.read", types=["doc.written"])
    assert [(record["actor"], record["method"]) for record in records] == 2 * [
        ("file", "doc.ingest")
    ]


# -------------------------------------------------------------------------- file systems


def test_the_file_system_of_a_folder() -> None:
    mounts = (
        "22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw\n"
        "35 22 0:32 / /mnt/my\\040files rw,nosuid shared:14 - nfs4 host:/x rw\n"
        "36 35 0:33 / /mnt/my\\040files/local rw - tmpfs tmpfs rw\n"
    )
    for path, kind in {
        "/home/ann": "ext4",
        "/mnt/my files/a": "nfs4",
        "/mnt/my files/local": "tmpfs",
    }.items():
        assert changes.mount_of(Path(path), mounts).kind == kind


def test_a_network_folder_is_looked_at(
    session: Session, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "is_remote", lambda folder: True)
    session.data("watch.add", folder="docs")
    follows(session, "one.md")
    (folder / "two.md").write_text("# Two\n")
    follows(session, "one.md two.md")
    assert "reports no changes of others" in watched(session)["warnings"][0]
