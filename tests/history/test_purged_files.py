"""A file whose document was purged is not read again until a person names it."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from kbproc.base.settings.purged_files import PurgedFiles
from tests.conftest import OpenSession
from tests.kit.patience import until
from tests.kit.talk import Session

SECRET = "xylophonequarantine"


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "secret.md").write_text(f"# Key\n\nThe {SECRET}.\n")
    (folder / "other.md").write_text("# Other\n\nHarmless words.\n")
    return folder


def purge(session: Session, id: int) -> None:
    plan = session.error("store.purge", document_ids=[id])["plan"]
    session.data("store.purge", document_ids=[id], confirm=plan["plan_hash"])


def ids(session: Session) -> dict[str, int]:
    rows = session.data("doc.list", limit=1000)
    return {Path(row["source"]["path"]).name: row["id"] for row in rows}


def ingest(session: Session, path: str = "docs", **params: Any) -> Any:
    return session.ask("doc.ingest", paths=[path], **params)["result"]


def test_a_purged_file_is_read_again_only_where_a_person_names_it(
    open_session: OpenSession, docs: Path
) -> None:
    session = open_session()
    ingest(session)
    id = ids(session)["secret.md"]
    plan = session.error("store.purge", document_ids=[id])["plan"]
    assert f"{docs}/secret.md still stands and is not read again" in plan["changes"][0]
    purge(session, id)
    answer = ingest(session)
    assert answer["data"]["purged_files"] == [str(docs / "secret.md")]
    assert f"kbproc add {docs}/secret.md" in answer["meta"]["notice"][0]
    assert (answer["data"]["added"], answer["data"]["unchanged"]) == (0, 1)
    changes = ingest(session, dry_run=True)["meta"]["plan"]["changes"]
    assert f"not read, because its document was purged: {docs}/secret.md" in changes
    (docs / "secret.md").rename(docs / "renamed.md")
    assert ingest(session)["data"]["purged_files"] == [str(docs / "renamed.md")]
    (docs / "renamed.md").rename(docs / "secret.md")
    (docs / "secret.md").write_text(f"# Key\n\nThe {SECRET}, edited.\n")
    robot = session.another("robot", self_named=True)
    assert ingest(robot, "docs/secret.md")["data"]["added"] == 0
    assert ingest(session, kb="default")["data"]["added"] == 0
    session.close()
    session = open_session()
    assert ingest(session)["data"]["added"] == 0
    for _ in range(2):  # named, and from then on read as any other
        ingest(session, "docs/secret.md")
        assert ids(session).keys() == {"secret.md", "other.md"}
        assert "purged_files" not in ingest(session)["data"]


def test_a_watched_file_that_was_purged_stays_away(session: Session, docs: Path) -> None:
    session.data("watch.add", folder="docs")
    until(lambda: ids(session).keys() == {"secret.md", "other.md"}, "the documents")
    purge(session, ids(session)["secret.md"])
    (docs / "secret.md").write_text(f"# Key\n\nThe {SECRET}, edited.\n")
    (docs / "third.md").write_text("# Third\n\nMore words.\n")
    until(lambda: "third.md" in ids(session), "the third document")
    assert ids(session).keys() == {"other.md", "third.md"}

    def warns() -> bool:
        (watch,) = session.data("watch.list")
        return any(str(docs / "secret.md") in line for line in watch["warnings"])

    until(warns, "a warning")
    ingest(session, "docs/secret.md")
    assert "secret.md" in ids(session)
    (docs / "fourth.md").write_text("# Fourth\n\nMore words.\n")
    until(lambda: "fourth.md" in ids(session) and not warns(), "no warning")


def test_a_file_within_another_stays_away(session: Session, docs: Path) -> None:
    shutil.make_archive(str(docs.parent / "all"), "zip", docs)
    ingest(session, "all.zip", archives=True)
    purge(session, ids(session)["secret.md"])
    (docs / "third.md").write_text("# Third\n\nMore words.\n")
    shutil.make_archive(str(docs.parent / "all"), "zip", docs)
    robot = session.another("robot", self_named=True)
    answer = ingest(robot, "all.zip", archives=True)
    assert answer["data"]["purged_files"] == [f"{docs.parent}/all.zip!/secret.md"]
    assert "secret.md" not in ids(session)


def test_another_document_of_the_file_goes_on(session: Session, docs: Path) -> None:
    ingest(session)
    deleted = ids(session)["secret.md"]
    plan = session.error("doc.delete", ids=[deleted])
    if plan.get("plan"):
        session.data("doc.delete", ids=[deleted], confirm=plan["plan"]["plan_hash"])
    ingest(session)
    purge(session, deleted)
    (docs / "secret.md").write_text("# Key\n\nNo secret now.\n")
    assert ingest(session)["data"]["updated"] == 1


def test_nothing_tells_what_is_held(tmp_path: Path) -> None:
    """Neither the path nor the bytes can be guessed from the file without its key."""
    path = tmp_path / "secret.md"
    path.write_text(SECRET)
    files = PurgedFiles(tmp_path / "held.json", tmp_path / "store")
    files.hold([str(path)])
    text = (tmp_path / "held.json").read_text()
    assert "secret.md" not in text
    other = PurgedFiles(tmp_path / "other.json", tmp_path / "store")
    other.hold([str(path)])
    digests = [
        set(re.findall("[0-9a-f]{32,}", file.read_text())) for file in tmp_path.glob("*.json")
    ]
    assert digests[0] and not digests[0] & digests[1]
    path.unlink()
    is_held = files.check()
    assert is_held is not None
    assert (is_held(str(path)), is_held(str(tmp_path / "a.md"))) == (True, False)
