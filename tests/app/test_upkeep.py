"""Upkeep continues after every error."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path

import pytest

from kbproc.base import durable
from kbproc.base.workers import Pace, WorkerStopped
from kbproc.engine.store.store import Store
from kbproc.knowledge.app import upkeep
from kbproc.knowledge.app.upkeep import Upkeep
from tests.conftest import OpenSession
from tests.kit.faults import killed_at
from tests.kit.patience import until
from tests.kit.records import unnamed
from tests.kit.talk import Session


def test_a_folder_that_can_not_be_read_for_a_while(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "IDLE_SECONDS", 0.01)
    monkeypatch.setattr(upkeep, "RETRY_SECONDS", 0.01)
    looks: list[bool] = []
    real = session.store.look

    def look() -> None:
        looks.append(len(looks) > 2)
        if not looks[-1]:
            raise PermissionError(13, "Permission denied")
        real()

    monkeypatch.setattr(session.store, "look", look)
    keeping = Upkeep(session.store)
    keeping.start()
    try:
        until(lambda: looks[-1:] == [True], "a look that goes well")
    finally:
        keeping.close()


def test_what_the_first_question_would_wait_for_is_done_once_at_the_start(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "IDLE_SECONDS", 0.01)
    prepared: list[int] = []
    tidied: list[int] = []
    keeping = Upkeep(session.store, lambda: prepared.append(session.store.seq))
    monkeypatch.setattr(keeping, "once", lambda: tidied.append(len(prepared)))
    keeping.start()
    try:
        until(lambda: len(tidied) > 2, "three rounds")
    finally:
        keeping.close()
    assert set(tidied) == {1}


def test_what_a_killed_process_left_unnamed_goes(open_session: OpenSession, tmp_path: Path) -> None:
    """The process died when its sources were durable and the log did not name them yet."""
    one = open_session()
    one.data("doc.create", title="Kept", text="The harbour is open.")
    texts = [f"A secret {n} " * 40 for n in range(9)]
    with killed_at(["blob.synced"], one.store.folder, tmp_path / "killed"):
        one.data("doc.create", documents=[{"title": "T", "text": text} for text in texts])
    two = open_session(tmp_path / "killed" / "blob.synced")
    assert len(unnamed(two.store)) == 9
    two.library.tidy()
    assert unnamed(two.store) == set()
    [pack] = (two.store.folder / "sources").glob("*.pack")
    assert b"A secret" not in pack.read_bytes()
    assert two.data("doc.get", id=1, text=True)["text"] == "The harbour is open."


def test_projections_are_checked_once_a_day_and_after_a_kill_or_a_restart_of_the_machine(
    session: Session, open_session: OpenSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[Path] = []

    def damaged_views(store: Store, pace: Pace) -> list[str]:
        if threading.current_thread() is threading.main_thread():  # not the stores' own upkeep
            checked.append(store.folder)
        return []

    monkeypatch.setattr(upkeep, "damaged_views", damaged_views)

    def tidied(store: Session) -> int:
        before = len(checked)
        Upkeep(store.store).once()
        return len(checked) - before

    def changed(age_s: float = 0.0, boot: str = durable.boot()) -> None:
        at_ms = session.store.host.now_ms() - round(age_s * 1000)
        note.write_text(json.dumps({"boot": boot, "at_ms": at_ms}))

    session.data("doc.create", title="One", text="words")
    note = session.store.folder / "views" / "checked"
    assert tidied(session) == 1
    assert tidied(session) == 0
    for age_s in (upkeep.CHECK_SECONDS + 1, -3600.0):  # a clock that was ahead proves nothing
        changed(age_s)
        assert tidied(session) == 1 and tidied(session) == 0
    changed(boot="another")
    assert tidied(session) == 1
    shutil.copytree(session.store.folder, tmp_path / "killed")
    assert tidied(open_session(tmp_path / "killed")) == 1


def test_upkeep_of_a_large_store_ends_within_a_slice_of_its_work(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.data("doc.create", documents=[{"title": f"{n}", "text": "w"} for n in range(900)])
    keeping = Upkeep(session.store)
    keeping.close()
    with pytest.raises(WorkerStopped):
        keeping.once()
    assert not (session.store.folder / "views" / "checked").exists()
