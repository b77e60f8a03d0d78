"""`kbproc watch follow` watches folders and shows what is read, until Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from subprocess import PIPE

from tests.kit.patience import PATIENCE, until
from tests.kit.processes import processes_in
from tests.kit.shell import environment
from tests.kit.start import start
from tests.kit.talk import Session


def test_changes_are_shown_until_ctrl_c(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    env = {"PATH": os.environ["PATH"], **environment(tmp_path)}
    adding = start(["-m", "kbproc", "watch", "add", "docs"], cwd=tmp_path, env=env, stdout=PIPE)
    assert b'"path"' in adding.communicate(timeout=PATIENCE)[0]
    argv = ["-m", "kbproc", "watch", "follow", "--format", "ndjson"]
    process = start(argv, cwd=tmp_path, env=env, stdout=PIPE, stderr=PIPE)
    (docs / "tides.md").write_text("# Tides\n\nHigh at noon.\n")
    lines = map(json.loads, process.stdout)
    record = next(line["item"] for line in lines if line["type"] == "item")
    assert "add document 1 “Tides”" in record["events"][0]["summary"]
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE) == 130
    assert json.loads(process.stderr.read())["error"]["type"] == "operation.cancelled"
    process.stdout.close()
    process.stderr.close()
    until(lambda: not processes_in(tmp_path), "the end of its serve")


def test_a_store_that_can_not_be_opened(tmp_path: Path) -> None:
    session = Session(tmp_path / "store", cwd=tmp_path)
    session.close()
    (tmp_path / "store" / "store.toml").write_text("format = [")
    env = {"PATH": os.environ["PATH"], **environment(tmp_path)}
    argv = ["-m", "kbproc", "watch", "follow"]
    process = start(argv, cwd=tmp_path, env=env, stdout=PIPE, stderr=PIPE)
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (2, b"")
    assert json.loads(err)["error"]["type"] == "store.corrupt"
