"""A store's whole life calls nobody and leaves nothing but what is kbproc's."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.kit.patience import LIVES
from tests.kit.pdfs import pdf, text_page
from tests.kit.talk import REPO

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's filters are Linux's")

LIFE: list[tuple[str, dict[str, Any]]] = [
    ("doc.ingest", {"paths": ["docs"]}),
    ("doc.create", {"title": "Tides", "text": "The tide is high at noon."}),
    ("knowledge.store", {"title": "Lamp", "body": "The lamp is lit at six."}),
    ("doc.wait", {}),
    ("search", {"query": "when is the harbour open", "mode": "vector"}),
    ("search", {"query": "harbour", "explain": True}),
    ("sql.query", {"sql": "select count(*), now() from documents"}),
    ("index.rebuild", {}),
    ("doctor", {"deep": True}),
    ("store.backup", {"path": "copy"}),
    ("model.list", {}),
    ("model.use", {"name": "all-MiniLM-L6-v2", "kind": "sentence-transformers"}),
    ("doc.wait", {}),
    ("search", {"query": "lamp", "mode": "vector"}),
    ("version", {}),
]


def alone(*argv: str) -> list[str]:
    return [sys.executable, "-m", "tests.kit.alone", *argv]


def test_whoever_calls_somebody_is_ended() -> None:
    """Else the test below would show nothing."""
    call = "import socket, subprocess, sys; socket.socket(socket.{})"
    inner = f"subprocess.run([sys.executable, '-c', {call.format('AF_INET')!r}]).returncode"
    for code, end in (
        (call.format("AF_INET"), -signal.SIGSYS),
        (call.format("AF_INET6"), -signal.SIGSYS),
        (call.format("AF_UNIX"), 0),
        (f"import subprocess, sys; sys.exit({inner} == {-signal.SIGSYS})", 1),
    ):
        done = subprocess.run(alone(sys.executable, "-c", code), cwd=REPO, check=False)
        assert done.returncode == end, code


@pytest.mark.model
def test_a_stores_whole_life_calls_nobody(tmp_path: Path) -> None:
    home = tmp_path
    docs = home / "docs"
    docs.mkdir()
    (docs / "harbour.pdf").write_bytes(pdf(text_page(["The harbour is open from six to nine."])))
    (docs / "lamp.md").write_text("# Lamp\n\nThe lamp is lit when the sun sets.\n")
    (docs / "page.html").write_text("<h1>Ships</h1><p>Two ships lie in the harbour.</p>")
    with subprocess.Popen(
        alone(sys.executable, "-m", "kbproc", "serve"),
        cwd=home,
        env={"HOME": str(home), "PATH": "/usr/bin:/bin", "PYTHONPATH": str(REPO)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin and process.stdout and process.stderr
        for id, (method, params) in enumerate(LIFE):
            asked = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
            process.stdin.write(json.dumps(asked).encode() + b"\n")
            process.stdin.flush()
            answer: dict[str, Any] = {}
            while answer.get("id") != id:
                line = process.stdout.readline()
                assert line, process.stderr.read().decode()
                answer = json.loads(line)
            assert "result" in answer, answer
        process.stdin.close()
        assert process.wait(LIVES) == 0, process.stderr.read().decode()
    left = {str(p.relative_to(home)) for p in home.rglob("*") if len(p.relative_to(home).parts) < 4}
    assert {name for name in left if not name.startswith(("docs/", "copy/"))} == {
        *("docs", "copy", ".cache", ".cache/kbproc", ".local", ".local/share"),
        *(".local/share/kbproc",),
        *(name for name in left if name.startswith(".cache/kbproc/")),
    }
