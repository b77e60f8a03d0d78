"""The check for secrets names each text that holds one, without the secret, and how it goes."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from kbproc.base.host import Host
from kbproc.knowledge.app.health.secrets import secrets
from tests.kit import knowledge
from tests.kit.fixed import FixedHost
from tests.kit.patience import until
from tests.kit.talk import Session, as_bytes, cancel, request

TOKEN = "ghp_" + "R8k2Lm9Qw4Zx7Vb1Nc5Td3Fg6Hj0Ps8Ya2Ue"


def test_a_store_without_secrets_passes(session: Session) -> None:
    knowledge.entry(session.store, "Ports", "The port is 8700.")
    finding = secrets(session.store, bool)
    assert (finding.name, finding.status, finding.message) == (
        "secrets",
        "pass",
        "no text holds a secret of a known shape",
    )


def test_texts_and_titles_with_secrets_are_named_redacted(session: Session) -> None:
    knowledge.entry(session.store, "Ports", "The port is 8700.")
    knowledge.entry(session.store, "Deploy", f"Use {TOKEN} to deploy.")
    finding = secrets(session.store, bool)
    assert finding.status == "warn"
    assert finding.message.startswith("1 document holds secrets: 2 “Deploy” (")
    knowledge.entry(session.store, f"Key {TOKEN}", "Deploys.")
    finding = secrets(session.store, bool)
    assert finding.message.startswith("2 documents hold secrets: 2 “Deploy” (")
    assert "; 3 “Key " in finding.message
    assert finding.hint is not None and "2,3" in finding.hint
    assert TOKEN not in finding.message + finding.hint


# Reads texts, and never answers.
SILENT = "import sys; sys.stdin.buffer.read()"


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """Returns the processes that look for secrets, which never come to an end."""
    started: list[subprocess.Popen[bytes]] = []

    def start(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen([sys.executable, "-c", SILENT], **options))
        return started[-1]

    monkeypatch.setattr("kbproc.base.sandbox.popen", start)
    return started


@pytest.mark.parametrize("by", ["$/cancel", "timeout_ms"])
def test_an_endless_search_holds_nothing_up_and_can_be_stopped(
    session: Session,
    silent: list[subprocess.Popen[bytes]],
    by: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(FixedHost, "monotonic_ms", Host().monotonic_ms)
    knowledge.entry(session.store, "Ports", "The port is 8700.")
    late = {"timeout_ms": 300} if by == "timeout_ms" else {}
    session.send(as_bytes(request(1, "doctor", secrets=True, **late)))
    until(lambda: silent or by == "timeout_ms", "the process")
    session.send(as_bytes(request(2, "ping")))
    answers: dict[int, Any] = {}
    while len(answers) < 2:
        message = json.loads(session.receive())
        if "id" in message:
            answers[message["id"]] = message
        if message.get("id") == 2 and by == "$/cancel":
            session.send(as_bytes(cancel(1)))
    assert by == "timeout_ms" or list(answers) == [2, 1]
    ends = {"$/cancel": "operation.cancelled", "timeout_ms": "operation.timeout"}
    assert answers[1]["error"]["data"]["type"] == ends[by]
    assert all(process.poll() is not None for process in silent)


def test_a_text_that_takes_too_long_is_named(
    session: Session, silent: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    knowledge.entry(session.store, "Ports", "The port is 8700.")
    knowledge.entry(session.store, "Hosts", "The host is a.example.")
    monkeypatch.setattr("kbproc.knowledge.app.health.secrets._SECONDS", 0.01)
    finding = secrets(session.store, bool)
    assert finding.status == "warn"
    assert finding.message.endswith("too much memory: document 1; document 2")
    assert len(silent) == 3, "both texts together, then each of them"


def test_without_a_process_it_is_told(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(command: list[str], **options: Any) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr("kbproc.base.sandbox.popen", fail)
    knowledge.entry(session.store, "Ports", "The port is 8700.")
    error = session.error("doctor", secrets=True)
    assert error["type"] == "operation.failed"
    assert "Cannot allocate memory" in error["message"]
