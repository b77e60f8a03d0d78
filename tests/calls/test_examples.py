"""Every declared example gives its declared outcome, in a store of its own."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbproc.methods.all import registry
from kbproc.methods.calls.method import Example, Method
from tests.kit.talk import Session
from tests.kit.world import carried_out, filled

CASES = [(m, e) for m in registry().methods.values() for e in m.examples]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return filled(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def read(world: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """Opens one store for all reading examples; `world` itself stays closed, for copies."""
    folder = shutil.copytree(world, tmp_path_factory.mktemp("read") / "world")
    session = Session(folder / "store", cwd=folder)
    yield session
    session.close()


@pytest.fixture
def session(request: pytest.FixtureRequest, method: Method, world: Path, tmp_path: Path) -> Any:
    """Opens a copy of the store; methods that only read share one."""
    if method.kind == "read":
        return request.getfixturevalue("read")
    shutil.copytree(world, tmp_path / "world")
    session = Session(tmp_path / "world" / "store", cwd=tmp_path / "world")
    request.addfinalizer(session.close)
    return session


@pytest.mark.parametrize(
    ("method", "example"), CASES, ids=[f"{m.name}: {e.what}" for m, e in CASES]
)
def test_example(session: Session, method: Method, example: Example) -> None:
    before = session.store.seq
    answer = session.ask(method.name, **example.params)
    assert method.kind != "read" or session.store.seq == before
    if "error" in answer:
        exit = answer["error"]["data"]["exit_code"]
    else:
        exit = answer["result"]["meta"].get("partial", {}).get("exit_code", 0)
    assert exit == example.exit, answer
    if "error" in answer:
        assert answer["error"]["data"]["type"] in method.all_errors
    if method.kind != "read":
        session.embedded()
        undoes_as_declared(session, method, example, answer, before)


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
