"""kill -9 while watched files change: no change is lost, and none is recorded twice."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

from tests.conftest import OpenSession
from tests.kit.faults import bytes_of
from tests.kit.patience import LONG, until
from tests.kit.records import repeated
from tests.kit.talk import Process, Session

KILLS = 200 if LONG else 2
FILES = 12


def texts(session: Session) -> dict[str, tuple[str, int]]:
    """Returns the text and revision of each document, by the name of its file."""
    by_name = {}
    for document in session.data("doc.list", limit=1000):
        text = session.data("doc.get", id=document["id"], text=True)["text"]
        by_name[Path(document["source"]["path"]).name] = (text, document["revision"])
    return by_name


def change(folder: Path, rng: random.Random, number: int) -> None:
    """Writes, renames and removes some files."""
    for _ in range(rng.randrange(1, 6)):
        path = folder / f"file{rng.randrange(FILES)}.md"
        act = rng.randrange(4)
        if act == 0 and path.exists():
            path.rename(folder / f"file{rng.randrange(FILES)}.md")
        elif act == 1:
            path.unlink(missing_ok=True)
        else:
            path.write_text(f"Words of {path.stem}, written {number}, {rng.random()}.\n")


def test_killed_while_files_change(open_session: OpenSession, tmp_path: Path) -> None:
    rng = random.Random(47)
    folder, store = tmp_path / "docs", tmp_path / "store"
    folder.mkdir()
    log = store / "log"
    for number in range(KILLS):
        victim = Process(store, cwd=tmp_path, real=1).ready()
        if not number:
            victim.ask(1, "watch.add", folder="docs", prune="auto")
        change(folder, rng, number)
        enough = bytes_of(log) + rng.choice([1, 1, 600, 2000])
        (folder / "always.md").write_text(f"Always, {number}.\n")
        until(partial(has_written, victim, folder, log, enough), "a record of a change")
        victim.stop()
    session = open_session()
    expected = {path.name: path.read_text().strip() for path in folder.iterdir()}

    def is_in_step() -> bool:
        documents = texts(session)
        return all(
            documents.get(name, ("", 0))[0].strip() == text for name, text in expected.items()
        )

    until(is_in_step, "the documents of all files", lambda: str(session.data("watch.list")))
    assert repeated(session.store) == []
    paths = [document["source"]["path"] for document in session.data("doc.list", limit=1000)]
    assert len(paths) == len(set(paths))
    assert session.data("doctor", deep=True)["healthy"]


def has_written(victim: Process, folder: Path, log: Path, enough: int) -> bool:
    """Returns True once the log has so many bytes, or nothing more will be written."""
    if bytes_of(log) >= enough:
        return True
    (watch,) = victim.ask(2, "watch.list")["result"]["data"]
    return bool(watch["state"] == "current" and watch["files"] == len([*folder.iterdir()]))
