"""kill -9 of the server at random moments, while many write through one client: each write that was
acknowledged is there, as it was acknowledged, and none is there twice.
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
KILLS = 25 if LONG else 5  # by each seed


def held(kb: Any) -> dict[str, tuple[int, int, int]]:
    """Title → how many documents have it, the id of one, and the latest revision of any."""
    sql = (
        "select title, count(*), min(id), max(revision) from documents group by 1 order by 1 "
        "limit 1000 offset ?"
    )
    found: dict[str, tuple[int, int, int]] = {}
    while rows := kb.call("sql.query", sql=sql, params=[len(found)], limit=1000).data["rows"]:
        found |= {row[0]: tuple(row[1:]) for row in rows}
    return found


@pytest.mark.parametrize("seed", all_or([1], range(1, 5)))
def test_random_kills(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr("kbproc.client.engine._WITHIN", 0.0)  # ends are counted, and forgotten
    chance = random.Random(seed)
    kb = opened()
    kb.ready()
    acknowledged: dict[str, int] = {}
    enough = threading.Event()

    def write(writer: int) -> None:
        number = 0
        while not enough.is_set():
            name = f"{writer}.{number}"
            source = name if number % 2 else None  # one without would be added once more
            made = kb.doc.create(title=name, text=f"Text of {name}.", source_id=source)
            acknowledged[name] = made.data["id"]
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
    assert held(kb) == {name: (1, id, 1) for name, id in acknowledged.items()}
    rows = kb.call("sql.query", sql="select count(*) from documents").data["rows"]
    assert rows == [[len(acknowledged)]]
    assert len(set(acknowledged.values())) == len(acknowledged)
