"""A store's whole life, run once per test run by a process without a network.

It also exports the default model where it is not installed yet, which takes longer than the rest,
so tests that need the exported model take it from here.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import msgspec

from tests.kit.models import lend
from tests.kit.patience import LIVES
from tests.kit.pdfs import pdf, text_page
from tests.kit.talk import REPO

# Seconds after which a watchdog aborts the process, with the stacks of its threads on stderr.
_LASTS = 3 * LIVES

ASKED: list[tuple[str, dict[str, Any]]] = [
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
    ("model.use", {"name": "hash", "kind": "hash"}),
    ("doc.wait", {}),
    ("search", {"query": "lamp", "mode": "vector"}),
    ("version", {}),
]


class Life(msgspec.Struct, frozen=True):
    """The `answers` to ASKED until the process ended; `exit` is negative after a signal."""

    home: str
    answers: list[dict[str, Any]]
    exit: int
    stderr: str

    def check(self) -> None:
        """Asserts that every request succeeded and that the process exited with 0."""
        assert (len(self.answers), self.exit) == (len(ASKED), 0), (self.answers[-1:], self.stderr)
        assert [answer for answer in self.answers if "result" not in answer] == []

    @property
    def models(self) -> Path:
        """The folder with the folder of the exported model."""
        return Path(self.home) / ".local/share/kbproc-models"


def alone(*argv: str) -> list[str]:
    """Returns the command that runs `argv` without a network."""
    return [sys.executable, "-m", "tests.kit.alone", *argv]


def led(shared: Path) -> Life:
    """Returns the life that this run's workers share in `shared`; the first caller runs it.

    Raises OSError.
    """
    result = shared / "life.json"
    with (shared / "life.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not result.exists():
            result.write_bytes(msgspec.json.encode(_lead(shared / "life")))
    return msgspec.json.decode(result.read_bytes(), type=Life)


def _lead(home: Path) -> Life:
    docs = home / "docs"
    docs.mkdir(parents=True)
    lend(home)
    (docs / "harbour.pdf").write_bytes(pdf(text_page(["The harbour is open from six to nine."])))
    (docs / "lamp.md").write_text("# Lamp\n\nThe lamp is lit when the sun sets.\n")
    (docs / "page.html").write_text("<h1>Ships</h1><p>Two ships lie in the harbour.</p>")
    answers: list[dict[str, Any]] = []
    with (
        tempfile.TemporaryFile() as stderr_file,
        subprocess.Popen(
            alone(sys.executable, "-m", "kbproc", "serve"),
            cwd=home,
            env={
                "HOME": str(home),
                "PATH": "/usr/bin:/bin",
                "PYTHONPATH": str(REPO),
                "PYTHONFAULTHANDLER": "1",
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr_file,
        ) as process,
    ):
        watchdog = threading.Timer(_LASTS, process.send_signal, (signal.SIGABRT,))
        watchdog.daemon = True
        watchdog.start()
        with contextlib.suppress(BrokenPipeError):  # the process has ended; stderr holds the reason
            for id, (method, params) in enumerate(ASKED):
                request = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
                if not (answer := _ask(process, request)):
                    break
                answers.append(answer)
            assert process.stdin
            process.stdin.close()
        exit = process.wait()
        watchdog.cancel()
        stderr_file.seek(0)
        stderr = stderr_file.read().decode()
    return Life(home=str(home), answers=answers, exit=exit, stderr=stderr)


def _ask(process: subprocess.Popen[bytes], request: dict[str, Any]) -> dict[str, Any]:
    """Returns the answer; empty if the process has ended."""
    assert process.stdin and process.stdout
    process.stdin.write(json.dumps(request).encode() + b"\n")
    process.stdin.flush()
    for line in process.stdout:
        answer: dict[str, Any] = json.loads(line)
        if answer.get("id") == request["id"]:
            return answer
    return {}
