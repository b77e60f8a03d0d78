"""The choice of the endpoint that answers, and the files that may hold its key."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kbproc.base.errors import KbprocError
from kbproc.engine.models.answering.choice import answerer_of
from kbproc.engine.models.answering.interface import Prompt, PromptPassage
from tests.kit import llm

PROMPT = Prompt(question="Why?", passages=[PromptPassage(1, 1, "Git", "Git is installed.", 0.6)])


def a_key(folder: Path, data: bytes = f"{llm.KEY}\n".encode(), mode: int = 0o600) -> Path:
    path = folder / "llm.key"
    path.write_bytes(data)
    path.chmod(mode)
    return path


def test_a_key_from_a_file_that_nobody_else_may_read(tmp_path: Path) -> None:
    with llm.endpoint(lambda question: [llm.say("So."), llm.finish()]) as endpoint:
        settings = {"url": endpoint.url, "model": "toy", "api_key_file": a_key(tmp_path)}
        answerer = answerer_of(settings)
        answerer.answer(PROMPT, llm.Listener())
        answerer.close()
    assert endpoint.keys == [f"Bearer {llm.KEY}"]


def a_pipe(folder: Path) -> Path:
    """Creates a named pipe without a writer; a blocking read of it would never return."""
    os.mkfifo(folder / "pipe", 0o600)
    return folder / "pipe"


BAD = {
    "a group may read it": lambda folder: a_key(folder, mode=0o640),
    "all may read it": lambda folder: a_key(folder, mode=0o604),
    "empty": lambda folder: a_key(folder, b"\n"),
    "not text": lambda folder: a_key(folder, b"\xff\xfe"),
    "nowhere": lambda folder: folder / "none",
    "a folder": lambda folder: folder,
    "a pipe": a_pipe,
}


@pytest.mark.parametrize("bad", BAD)
def test_no_other_file_holds_a_key(tmp_path: Path, bad: str) -> None:
    settings = {"url": "http://127.0.0.1:9/v1", "model": "toy", "api_key_file": BAD[bad](tmp_path)}
    answerer = answerer_of(settings)
    with pytest.raises(KbprocError) as caught:
        answerer.answer(PROMPT, llm.Listener())
    assert (caught.value.type, caught.value.retryable) == ("llm.unavailable", False)
    assert llm.KEY not in caught.value.message
