"""A process that can't open the store lets go of it, so that another one may."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kbproc.engine.store.folder import FORMAT
from tests.kit.patience import until
from tests.kit.processes import Crowd, check_once, holders


@pytest.fixture
def crowd(tmp_path: Path) -> Iterator[Crowd]:
    with Crowd(tmp_path) as crowd:
        yield crowd


@pytest.fixture
def mend(crowd: Crowd) -> Callable[[], object]:
    """Makes a store of a newer format; returns a function that gives it today's format again."""
    assert crowd.run("kb", "create", "team").code == 0
    settings = crowd.store / "store.toml"
    text = settings.read_text()
    newer_text = text.replace(f"format = {FORMAT}\n", "format = 99\n")
    assert newer_text != text
    settings.write_text(newer_text)
    return partial(settings.write_text, text)


@pytest.mark.parametrize("options", [{}, {"thin": 1}])
def test_servers_let_go_of_a_store_of_a_newer_format(
    crowd: Crowd, mend: Callable[[], object], options: dict[str, Any]
) -> None:
    """Each server answers the error while the format is newer, and goes on once it is mended."""
    servers = [crowd.spawn(), *(crowd.spawn(**options) for _ in range(3))]
    for server in servers * 2:
        assert server.error("kb.list")["type"] == "store.incompatible"
    until(lambda: holders(crowd.store) == [], "a free lease")
    assert crowd.run("kb", "list").code == 2
    mend()
    assert crowd.run("doc", "create", "--title", "one", "--text", "words of one").code == 0
    for server in servers:
        assert "result" in server.ask("kb.list")
    check_once(servers[1], acknowledged=["one"], sent=["one"])
