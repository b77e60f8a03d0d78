"""Every declared example gives its declared outcome, in a store of its own."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbproc.base import changes
from kbproc.methods.all import registry
from kbproc.methods.calls.method import DistantExample, Example, Method
from tests.kit.talk import Session
from tests.kit.world import carried_out, filled


class Worlds:
    """Opens copies of a closed store; an example gets the last one until a write is done there."""

    def __init__(self, folder: Path) -> None:
        self._copies = folder / "copies"
        (folder / "world").mkdir()
        self._world = filled(folder / "world")
        self._session: Session | None = None
        self._numbers = itertools.count(1)

    def session(self) -> Session:
        if self._session is None:
            folder = shutil.copytree(self._world, self._copies / str(next(self._numbers)))
            self._session = Session(folder / "store", cwd=folder)
        return self._session

    def leave(self) -> None:
        """Closes the copy, because an example has changed it."""
        if self._session is not None:
            self._session.close()
            self._session = None


@pytest.fixture
def worlds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Worlds]:
    # Each copy watches a folder, and the end of the watch takes a step.
    monkeypatch.setattr(changes, "STEP_MS", 10)
    worlds = Worlds(tmp_path)
    yield worlds
    worlds.leave()


def test_every_example_gives_its_outcome(worlds: Worlds, subtests: pytest.Subtests) -> None:
    for method in registry().methods.values():
        for example in method.examples:
            if isinstance(example, DistantExample):
                continue
            with subtests.test(f"{method.name}: {example.what}"):
                try_example(worlds, method, example)


def try_example(worlds: Worlds, method: Method, example: Example) -> None:
    session = worlds.session()
    before = session.store.seq
    is_done = method.kind != "read"
    try:
        answer = session.ask(method.name, **example.params)
        assert method.kind != "read" or session.store.seq == before
        is_done &= "error" not in answer
        if "error" in answer:
            exit = answer["error"]["data"]["exit_code"]
            assert answer["error"]["data"]["type"] in method.all_errors
        else:
            exit = answer["result"]["meta"].get("partial", {}).get("exit_code", 0)
        assert exit == example.exit, answer
        if method.kind != "read":
            session.embedded()
            undoes_as_declared(session, method, example, answer, before)
    finally:
        if is_done or session.store.seq != before:
            worlds.leave()


def undoes_as_declared(
    session: Session, method: Method, example: Example, answer: Any, before: int
) -> None:
    """Asserts that events.revert takes the example's records back exactly where it is declared.

    A destructive example is carried out first, with its plan's confirmation.
    """
    if example.exit == 10:
        answer = carried_out(session, method.name, **example.params)
    seqs = list(range(before + 1, session.store.seq + 1))
    if seqs and "error" not in answer:
        done = carried_out(session, "events.revert", seqs=seqs)["result"]["data"]
        assert bool(done["reverted"]) == ("events.revert" in method.undone_by), done


def test_every_method_has_an_example() -> None:
    assert [m.name for m in registry().methods.values() if not m.examples] == []
