"""kbproc keeps every rule, and contract/transcripts holds its conversations.

Sent lines must equal those of the transcript; received ones may have another order.
KBPROC_UPDATE_DOCS=1 writes transcripts and table.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from kbproc.contract.judge import judge
from kbproc.contract.verdicts import RuleFinding, verdicts
from tests.kit.judged import CONVERSATIONS, FIXED, JUDGED, KIT, all_kept
from tests.kit.patience import PATIENCE

FOLDER = KIT.folder / "transcripts"
_TIMED = {"params", "streams", "strict"}  # conversations that need a running clock

Judged = tuple[list[RuleFinding], list[str]]


@pytest.fixture(scope="module")
def results() -> dict[str, Judged]:
    """Holds each conversation's findings and transcript."""
    return {}


@pytest.fixture
def judged(results: dict[str, Judged], kit_forked: None) -> Callable[[str], Judged]:
    def judged(name: str) -> Judged:
        if name not in results:
            command = f"{FIXED} real=1" if name in _TIMED else FIXED
            transcript: list[str] = []
            findings = judge(CONVERSATIONS[name], command, KIT, PATIENCE, transcript)
            results[name] = findings, transcript
        return results[name]

    return judged


@pytest.mark.parametrize("name", sorted(CONVERSATIONS))
def test_a_transcript_is_what_is_said(name: str, judged: Callable[[str], Judged]) -> None:
    path = FOLDER / f"{name}.txt"
    checks, transcript = judged(name)
    assert [one for one in checks if one.verdict != "pass"] == []
    if os.environ.get("KBPROC_UPDATE_DOCS") == "1":
        path.write_text("".join(f"{line}\n" for line in transcript))
    expected = path.read_text().split("\n")[:-1]
    assert sent(expected) == sent(transcript), "KBPROC_UPDATE_DOCS=1 writes it"


def sent(lines: list[str]) -> list[str]:
    return [line for line in lines if not line.startswith("< ")]


def test_there_is_no_other_transcript() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == CONVERSATIONS.keys()


def test_kbproc_keeps_every_rule(judged: Callable[[str], Judged]) -> None:
    rows = verdicts(JUDGED, [one for name in CONVERSATIONS for one in judged(name)[0]])
    all_kept("kbproc serve", "check", rows)
