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


class Terminal:
    """A terminal whose model says one word, and the next one when `may` is set.

    `env` points commands at that model.
    """

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
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    may = threading.Event()

    def wait(reply: llm.Reply) -> None:
        may.wait(LIVES)

    steps = [llm.say("First. "), wait, llm.say("Second. [1]"), llm.finish()]
    with llm.endpoint(lambda question: steps) as endpoint:
        one = Terminal(tmp_path, endpoint.url, may)
        code, output = one.typed("doc", "create", "--title", "Guide", "--text", GUIDE)
        assert code == 0, output
        yield one
        may.set()


def test_prose_comes_as_it_is_made_and_its_sources_below(terminal: Terminal) -> None:
    code, output = terminal.typed("chat", QUESTION, once=("First.", terminal.go_on))
    assert (code, output) == (0, f"First. Second. [1]\n{SOURCES}")
    code, output = terminal.typed("session", "ask", "1", "And why?")
    assert (code, output) == (0, f"First. Second. [1]\n{SOURCES}")
    assert not ANSI.search(output)


def test_ctrl_c_stops_the_answer_and_says_how_to_see_it(terminal: Terminal) -> None:
    code, output = terminal.typed("chat", QUESTION, once=("First.", lambda: CTRL_C))
    assert code == 130
    lines = output.splitlines()
    assert lines[0] == "First. ^C"
    assert lines[1:] == [
        "Error (operation.cancelled): The request was cancelled, and so the answer was stopped.",
        "Hint: The text so far is kept: kbproc session resume shows it; "
        "kbproc session ask asks the next question.",
        "Retry: kbproc session resume 1 1",
    ]
    assert terminal.typed("session", "resume", "1", "1") == (0, "First. \n\nSee also:\n[1] Guide\n")


def test_ctrl_c_at_a_resume_says_how_to_read_on(terminal: Terminal) -> None:
    """The owner generates the answer in another process, so Ctrl-C does not stop it."""
    store = Path(environment(terminal.folder)["KBPROC_STORE"])
    owner = Process(store, cwd=terminal.folder, llm=terminal.url, real=1).ready()
    chat = {"jsonrpc": "2.0", "id": 1, "method": "chat", "params": {"question": QUESTION}}
    owner.send(json.dumps(chat).encode())
    while "delta" not in owner.message()["params"]:
        pass
    code, output = terminal.typed("session", "resume", "1", "1", once=("First.", lambda: CTRL_C))
    assert code == 130
    assert "kbproc session resume continues from here." in output
    retry = re.search(r"Retry: kbproc (session resume 1 1 --after \S+)", output)
    assert retry, output
    terminal.may.set()
    assert terminal.typed(*shlex.split(retry[1])) == (0, f"Second. [1]\n{SOURCES}")
    owner.stop()


def test_a_stream_tells_of_the_profile_that_is_used(terminal: Terminal) -> None:
    """The init event names the caller's profile even if the owner has none; a resume repeats it."""
    terminal.may.set()
    assert terminal.typed("profile", "save", "work", "--kb", "default")[0] == 0
    store = Path(environment(terminal.folder)["KBPROC_STORE"])
    owner = Process(store, cwd=terminal.folder, llm=terminal.url, real=1).ready()
    for flags in (("--profile", "work"), ()):
        _, output = terminal.typed("chat", QUESTION, "--format", "ndjson", *flags)
        begins = json.loads(output.splitlines()[0])
        assert begins["profile"] == ("work" if flags else None)
        assert begins["kb"] == (["default"] if flags else None)
        where = (f"{begins['session_id']}", f"{begins['message_id']}")
        _, again = terminal.typed("session", "resume", *where, "--format", "ndjson")
        assert json.loads(again.splitlines()[0])["profile"] == begins["profile"]
    owner.stop()
