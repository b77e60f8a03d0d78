"""contract/transcripts: each conversation as kbproc has it, for whoever reads and does not run.

What is sent must be what is there; what comes may come in another order. KBPROC_UPDATE_DOCS=1
writes them.
"""

from __future__ import annotations

import os

import pytest

from kbproc.client.contract.judge import judge
from tests.kit.judged import CONVERSATIONS, FIXED, KIT
from tests.kit.patience import PATIENCE

FOLDER = KIT.folder / "transcripts"
_TIMED = {"params"}  # where time has to pass
_MANY = {"burst"}  # whose transcript would say the same hundreds of times


@pytest.mark.parametrize("name", sorted(CONVERSATIONS.keys() - _MANY))
def test_a_transcript_is_what_is_said(name: str, kit_forked: None) -> None:
    path = FOLDER / f"{name}.txt"
    command = f"{FIXED} real=1" if name in _TIMED else FIXED
    transcript: list[str] = []
    found = judge(CONVERSATIONS[name], command, KIT, PATIENCE, transcript)
    assert [one for one in found if one.verdict != "pass"] == []
    if os.environ.get("KBPROC_UPDATE_DOCS") == "1":
        path.write_text("".join(f"{line}\n" for line in transcript))
    told = path.read_text().splitlines()
    assert sent(told) == sent(transcript), "KBPROC_UPDATE_DOCS=1 writes it"


def sent(lines: list[str]) -> list[str]:
    return [line for line in lines if not line.startswith("< ")]


def test_there_is_no_other_transcript() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == CONVERSATIONS.keys() - _MANY
