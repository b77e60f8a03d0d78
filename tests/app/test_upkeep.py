"""Upkeep goes on, whatever it meets."""

from __future__ import annotations

import pytest

from kbproc.library import upkeep
from kbproc.library.upkeep import Upkeep
from tests.kit.patience import until
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
