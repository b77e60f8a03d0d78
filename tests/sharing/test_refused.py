"""A process that can't open the store lets go of it, so that another one may."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.patience import until
from tests.kit.processes import Crowd, check_once, holders

FORMAT = "format = "


@pytest.fixture
def crowd(tmp_path: Path) -> Iterator[Crowd]:
    with Crowd(tmp_path) as crowd:
        yield crowd


@pytest.fixture
def later(crowd: Crowd) -> Iterator[Path]:
    """Makes a store of a later format; yields its settings as they were before."""
    assert crowd.run("kb", "create", "team").code == 0
    settings = crowd.store / "store.toml"
    backup = crowd.folder / "store.toml"
    backup.write_bytes(settings.read_bytes())
    lines = settings.read_text().splitlines()
    later = ["format = 99" if line.startswith(FORMAT) else line for line in lines]
    assert later != lines
    settings.write_text("\n".join(later) + "\n")
    yield backup


def mend(crowd: Crowd, backup: Path) -> None:
    (crowd.store / "store.toml").write_bytes(backup.read_bytes())


@pytest.mark.parametrize("options", [{}, {"thin": 1}])
def test_who_refuses_a_store_lets_go_of_it(
    crowd: Crowd, later: Path, options: dict[str, Any]
) -> None:
    """Each server gets the error while the format is a later one, and goes on once it is not."""
    refused = [crowd.spawn(), *(crowd.spawn(**options) for _ in range(3))]
    for client in refused * 2:
        assert client.error("kb.list")["type"] == "store.incompatible"
    until(lambda: holders(crowd.store) == [], "a free lease")
    assert crowd.run("kb", "list").code == 2
    mend(crowd, later)
    assert crowd.run("doc", "create", "--title", "one", "--text", "words of one").code == 0
    for client in refused:
        assert "result" in client.ask("kb.list")
    check_once(refused[1], acknowledged=["one"], sent=["one"])
