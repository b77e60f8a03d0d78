"""kill -9 of the server at random moments, while many threads write through one client.

Each acknowledged write is in the store as it was acknowledged, and no write is there twice.

"""

from __future__ import annotations

import os
import random
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.client.conftest import Open
from tests.kit.faults import bytes_of
from tests.kit.patience import LONG, all_or, until

WRITERS = 6
KILLS = 25 if LONG else 5  # for each seed


def stored_titles(kb: Any) -> dict[str, tuple[int, int, int]]:
    """Returns title → count of its documents, id of one, and latest revision of any."""
    sql = (
        "select title, count(*), min(id), max(revision) from documents group by 1 order by 1 "
        "limit 1000 offset ?"
    )
    documents: dict[str, tuple[int, int, int]] = {}
    while rows := kb.call("sql.query", sql=sql, params=[len(documents)], limit=1000).data["rows"]:
        documents |= {row[0]: tuple(row[1:]) for row in rows}
    return documents


@pytest.mark.parametrize("seed", all_or([1], range(1, 5)))
def test_random_kills(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr("kbproc.client.server._WITHIN", 0.0)  # forgets each end at once
    chance = random.Random(seed)
    kb = opened()
    kb.ready()
    acknowledged: dict[str, int] = {}
    enough = threading.Event()

    def write(writer: int) -> None:
        number = 0
        while not enough.is_set():
            name = f"{writer}.{number}"
            source = name if number % 2 else None  # without it, a repeat adds one
            document = kb.doc.create(title=name, text=f"Text of {name}.", source_id=source)
            acknowledged[name] = document.data["id"]
            number += 1

    log = tmp_path / "store" / "log"
    with ThreadPoolExecutor(WRITERS) as pool:
        writers = [pool.submit(write, writer) for writer in range(WRITERS)]
        for _ in range(KILLS):
            dead, goal = kb.pid, bytes_of(log) + chance.randrange(8000)
            until(lambda goal=goal: bytes_of(log) >= goal, "writes")
            os.kill(dead, signal.SIGKILL)
            until(lambda dead=dead: kb.pid not in (None, dead), "another server")
        enough.set()
        for writer in writers:
            writer.result()
    assert kb.restarts == KILLS and len(acknowledged) >= WRITERS
    assert stored_titles(kb) == {name: (1, id, 1) for name, id in acknowledged.items()}
    rows = kb.call("sql.query", sql="select count(*) from documents").data["rows"]
    assert rows == [[len(acknowledged)]]
    assert len(set(acknowledged.values())) == len(acknowledged)
