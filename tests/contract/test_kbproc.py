"""kbproc keeps every rule, and contract/transcripts shows each conversation as kbproc has it.

What is sent must be what is there; what comes may come in another order. KBPROC_UPDATE_DOCS=1
writes transcripts and table.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from kbproc.client.contract.judge import judge
from kbproc.client.contract.verdicts import Finding, verdicts
from tests.kit.judged import CONVERSATIONS, FIXED, KIT, SERVED, all_kept
from tests.kit.patience import PATIENCE

FOLDER = KIT.folder / "transcripts"
_TIMED = {"params"}  # where time has to pass
_MANY = {"burst"}  # whose transcript would say the same hundreds of times

Judged = tuple[list[Finding], list[str]]


@pytest.fixture(scope="module")
def seen() -> dict[str, Judged]:
    """What each conversation came to, and its transcript."""
    return {}


@pytest.fixture
def judged(seen: dict[str, Judged], kit_forked: None) -> Callable[[str], Judged]:
    def judged(name: str) -> Judged:
        if name not in seen:
            command = f"{FIXED} real=1" if name in _TIMED else FIXED
            transcript: list[str] = []
            found = judge(CONVERSATIONS[name], command, KIT, PATIENCE, transcript)
            seen[name] = found, transcript
        return seen[name]

    return judged


@pytest.mark.parametrize("name", sorted(CONVERSATIONS.keys() - _MANY))
def test_a_transcript_is_what_is_said(name: str, judged: Callable[[str], Judged]) -> None:
    path = FOLDER / f"{name}.txt"
    found, transcript = judged(name)
    assert [one for one in found if one.verdict != "pass"] == []
    if os.environ.get("KBPROC_UPDATE_DOCS") == "1":
        path.write_text("".join(f"{line}\n" for line in transcript))
    told = path.read_text().splitlines()
    assert sent(told) == sent(transcript), "KBPROC_UPDATE_DOCS=1 writes it"


def sent(lines: list[str]) -> list[str]:
    return [line for line in lines if not line.startswith("< ")]


def test_there_is_no_other_transcript() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == CONVERSATIONS.keys() - _MANY


def test_kbproc_keeps_every_rule(judged: Callable[[str], Judged]) -> None:
    found = verdicts(SERVED, [one for name in CONVERSATIONS for one in judged(name)[0]])
    all_kept("kbproc serve", "check", found)
