"""A conversation on a terminal: prose as it comes, sources below, and Ctrl-C."""

from __future__ import annotations

import json
import re
import shlex
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit import llm
from tests.kit.patience import LIVES
from tests.kit.shell import ANSI, environment, on_terminal
from tests.kit.talk import Process

CTRL_C = "\x03"
QUESTION = "How is git installed?"
GUIDE = "Git is installed with apt, as root."
SOURCES = "\n[1] Guide\n"


class Told:
    """`env`: where the answer is made that says one word, and the other when it `may`."""

    def __init__(self, folder: Path, url: str, may: threading.Event) -> None:
        self.env = {"KBPROC_LLM_URL": url, "KBPROC_LLM_MODEL": "toy", "KBPROC_LLM_API_KEY": "k"}
        self.url = url
        self.folder = folder
        self.may = may

    def go_on(self) -> str:
        self.may.set()
        return ""

    def typed(self, *argv: str, **options: object) -> tuple[int, str]:
        return on_terminal(self.folder, *argv, env=self.env, **options)  # type: ignore[arg-type]


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Told]:
    may = threading.Event()

    def wait(reply: llm.Reply) -> None:
        may.wait(LIVES)

    steps = [llm.say("First. "), wait, llm.say("Second. [1]"), llm.finish()]
    with llm.endpoint(lambda question: steps) as endpoint:
        one = Told(tmp_path, endpoint.url, may)
        code, seen = one.typed("doc", "create", "--title", "Guide", "--text", GUIDE)
        assert code == 0, seen
        yield one
        may.set()


def test_prose_comes_as_it_is_made_and_its_sources_below(told: Told) -> None:
    code, seen = told.typed("chat", QUESTION, once=("First.", told.go_on))
    assert (code, seen) == (0, f"First. Second. [1]\n{SOURCES}")
    code, seen = told.typed("session", "ask", "1", "And why?")
    assert (code, seen) == (0, f"First. Second. [1]\n{SOURCES}")
    assert not ANSI.search(seen)


def test_ctrl_c_stops_the_answer_and_says_how_to_see_it(told: Told) -> None:
    code, seen = told.typed("chat", QUESTION, once=("First.", lambda: CTRL_C))
    assert code == 130
    lines = seen.splitlines()
    assert lines[0] == "First. ^C"
    assert lines[1:] == [
        "Error (operation.cancelled): The request was cancelled, and so the answer was stopped.",
        "Hint: What was said by then stays: kbproc session resume shows it; "
        "kbproc session ask asks on.",
        "Retry: kbproc session resume 1 1",
    ]
    assert told.typed("session", "resume", "1", "1") == (0, "First. \n\nSee also:\n[1] Guide\n")


def test_ctrl_c_at_a_resume_says_how_to_read_on(told: Told) -> None:
    """The answer is made in another process, and goes on."""
    store = Path(environment(told.folder)["KBPROC_STORE"])
    owner = Process(store, cwd=told.folder, llm=told.url, real=1).ready()
    chat = {"jsonrpc": "2.0", "id": 1, "method": "chat", "params": {"question": QUESTION}}
    owner.send(json.dumps(chat).encode())
    while "delta" not in owner.message()["params"]:
        pass
    code, seen = told.typed("session", "resume", "1", "1", once=("First.", lambda: CTRL_C))
    assert code == 130
    assert "kbproc session resume reads it on from here." in seen
    retry = re.search(r"Retry: kbproc (session resume 1 1 --after \S+)", seen)
    assert retry, seen
    told.may.set()
    assert told.typed(*shlex.split(retry[1])) == (0, f"Second. [1]\n{SOURCES}")
    owner.stop()


def test_a_stream_tells_of_the_profile_that_is_used(told: Told) -> None:
    """Also where another process, which has none, owns the store; and whoever resumes it."""
    told.may.set()
    assert told.typed("profile", "save", "work", "--kb", "default")[0] == 0
    store = Path(environment(told.folder)["KBPROC_STORE"])
    owner = Process(store, cwd=told.folder, llm=told.url, real=1).ready()
    for flags in (("--profile", "work"), ()):
        _, seen = told.typed("chat", QUESTION, "--format", "ndjson", *flags)
        begins = json.loads(seen.splitlines()[0])
        assert begins["profile"] == ("work" if flags else None)
        assert begins["kb"] == (["default"] if flags else None)
        where = (f"{begins['session_id']}", f"{begins['message_id']}")
        _, again = told.typed("session", "resume", *where, "--format", "ndjson")
        assert json.loads(again.splitlines()[0])["profile"] == begins["profile"]
    owner.stop()
