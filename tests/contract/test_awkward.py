"""The awkward server does what its script says, process by process, and records what it reads."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from kbproc.contract import awkward
from tests.kit.patience import PATIENCE

Message = dict[str, Any]


def life(folder: Path, script: list[list[Message]], *sent: bytes) -> tuple[int, bytes]:
    """Runs one process of the server; returns its exit status and what it wrote after `ready`."""
    path, record = folder / "script", folder / "record"
    path.write_text(json.dumps(script))
    command = [sys.executable, "-I", "-S", awkward.__file__, str(path), str(record)]
    ended = subprocess.run(
        command, input=b"".join(sent), stdout=subprocess.PIPE, timeout=PATIENCE, check=False
    )
    init, ready, rest = ended.stdout.split(b"\n", 2)
    assert json.loads(init)["params"]["type"] == "init"
    assert json.loads(ready)["params"]["type"] == "ready"
    return ended.returncode, rest


def asked(id: int) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": "ping"}).encode() + b"\n"


def test_a_script_is_followed_and_every_line_recorded(tmp_path: Path) -> None:
    first: list[Message] = [
        {"take": 2, "say": [{"answer": 2, "result": "b"}, {"event": 1, "type": "item"}]},
        {"say": [{"answer": 1, "result": "é"}], "slowly": True},
        {"half": {"answer": 1, "result": "torn"}, "die": True},
    ]
    second: list[Message] = [{"take": 1, "say": [{"answer": 1, "result": "again"}]}]
    notice = b'{"jsonrpc": "2.0", "method": "$/cancel", "params": {"id": 7}}\n'
    code, output = life(tmp_path, [first, second], asked(7), notice, b"no json\n", asked(8))
    assert code == 1, "it died"
    *whole, torn = output.split(b"\n")
    messages = [json.loads(line) for line in whole]
    assert [(m.get("id"), m.get("result")) for m in messages] == [(8, "b"), (None, None), (7, "é")]
    assert messages[1]["params"] == {"request_id": 7, "type": "item"}
    assert 0 < len(torn) < len(json.dumps({"jsonrpc": "2.0", "id": 7, "result": "torn"}))
    for _ in range(2):  # the last script is that of all further processes
        code, output = life(tmp_path, [first, second], asked(9))
        assert (code, json.loads(output)["result"], json.loads(output)["id"]) == (0, "again", 9)
    notes = [json.loads(line) for line in (tmp_path / "record").read_text().splitlines()]
    assert [note["life"] for note in notes if "begins" in note] == [0, 1, 2]
    lines = [note["line"] for note in notes if note["life"] == 0 and "line" in note]
    assert [line.encode() for line in lines] == [asked(7), notice, b"no json\n", asked(8)]
    assert [note["life"] for note in notes if "ends" in note] == [1, 2]


def test_a_client_that_ends_early_ends_the_script(tmp_path: Path) -> None:
    script: list[Message] = [{"take": 2, "say": [{"answer": 1, "result": "never"}]}]
    assert life(tmp_path, [script], asked(1)) == (0, b"")
