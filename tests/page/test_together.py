"""The page among others: owners that die, other pages, reloads and lost connections."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.browser import CHROMIUM, DRIVER, Page, Person, opened
from tests.kit.llm import Endpoint, Reply, endpoint, finish, say
from tests.kit.patience import LIVES, until
from tests.kit.processes import Client, Crowd, holders
from tests.kit.world import filled

selenium = pytest.importorskip("selenium")
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None or DRIVER is None, reason="needs chromium and its driver"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture
def crowd(tmp_path: Path) -> Iterator[Crowd]:
    with Crowd(filled(tmp_path)) as crowd:
        yield crowd


@contextlib.contextmanager
def at_page(window: Any, store: Path, **settings: str) -> Iterator[Person]:
    """Yields a person at a page of the store; leaves the page before it ends."""
    with opened(store, **settings) as page:
        person = Person(window, page).enter()
        yield person
        person.look().driver.get("about:blank")


def deletions(page: Page) -> list[list[str]]:
    """Returns what each deletion of the agent did."""
    records = [r for r in page.data("events.read", actor="claude") if r["method"] == "doc.delete"]
    return [[event["summary"] for event in record["events"]] for record in records]


def waits(agent: Client) -> bool:
    return any(plan["waits"] for plan in agent.data("plan.list")["plans"])


def another_owner(store: Path, former: list[int]) -> None:
    until(lambda: (now := holders(store)) and now != former, "another owner")


# -------------------------------------------------------------------- the owner dies


@pytest.mark.parametrize("killed", ["another client", "the process that the page started"])
def test_a_plan_waits_while_the_owner_is_taken_over(window: Any, crowd: Crowd, killed: str) -> None:
    """The plan appears at the new owner, and the person's approval does it once."""
    owner = crowd.join() if killed == "another client" else None
    with at_page(window, crowd.store) as person:
        agent = crowd.join(actor="claude", approve="page")
        id = agent.data("doc.create", title="Old plans", text="not needed")["id"]
        request = agent.start("doc.delete", ids=[id])
        person.open("plans")
        person.sees("Old plans", "the request waits for your answer")
        former = holders(crowd.store)
        assert person.page.process.pid not in former and (owner is None or former == [owner.pid])
        os.kill(former[0], signal.SIGKILL)
        another_owner(crowd.store, former)
        until(lambda: waits(agent), "the plan at the new owner", crowd.told)
        person.sees("Old plans", "the request waits for your answer")
        person.click("Approve", ".card button")
        assert "result" in agent.answer(request)
        person.sees("No plan waits.")
        assert deletions(person.page) == [["hide document 7", "approved by user"]]
        assert person.problems() == []


def test_an_approval_at_a_stopped_owner_is_done_once(window: Any, crowd: Crowd) -> None:
    """The owner dies before it reads the approval; nothing is done without a person's look."""
    owner = crowd.join()
    with at_page(window, crowd.store) as person:
        agent = crowd.join(actor="claude", approve="page")
        id = agent.data("doc.create", title="Old plans", text="not needed")["id"]
        request = agent.start("doc.delete", ids=[id])
        person.open("plans")
        person.sees("Old plans")
        os.kill(owner.pid, signal.SIGSTOP)
        person.click("Approve", ".card button")
        owner.kill()
        another_owner(crowd.store, [owner.pid])

        def is_answered() -> bool:
            person.script(_APPROVE)  # again, where the approval came before the request
            return bool(agent.answers[request])

        until(is_answered, "the agent's answer", crowd.told)
        assert "result" in agent.answer(request)
        assert deletions(person.page) == [["hide document 7", "approved by user"]]


_APPROVE = """
const buttons = [...document.querySelectorAll(".card button:enabled")];
buttons.find(button => button.innerText === "Approve")?.click();
"""


def test_an_approval_that_the_owner_has_recorded_is_answered(window: Any, crowd: Crowd) -> None:
    """The owner dies between the record and the answers: both get them from the next one."""
    owner = crowd.join(kill_at="log.synced:2")
    with at_page(window, crowd.store) as person:
        agent = crowd.join(actor="claude", approve="page")
        id = agent.data("doc.create", title="Old plans", text="not needed")["id"]
        request = agent.start("doc.delete", ids=[id])
        person.open("plans")
        person.click("Approve", ".card button")
        another_owner(crowd.store, [owner.pid])
        assert "result" in agent.answer(request)
        person.sees("No plan waits.")
        assert deletions(person.page) == [["hide document 7", "approved by user"]]


def test_the_page_goes_on_after_a_takeover(window: Any, crowd: Crowd) -> None:
    """News and answers come from the next owner, without a reload."""
    owner = crowd.join()
    with at_page(window, crowd.store) as person:
        other = crowd.join()
        person.open("log")
        person.sees("session.ask")
        owner.kill()
        another_owner(crowd.store, [owner.pid])
        id = other.data("doc.create", title="After the takeover", text="all goes on")["id"]
        person.sees("After the takeover")
        person.open(f"doc/{id}")
        person.sees("all goes on")
        assert person.problems() == []


# ------------------------------------------------------------------------- two pages


@pytest.fixture
def both(window: Any, crowd: Crowd) -> Iterator[tuple[Person, Person]]:
    """A person at two pages, of two processes, in two windows of a browser."""
    with at_page(window, crowd.store) as first:
        window.switch_to.new_window("tab")
        with at_page(window, crowd.store) as second:
            yield first, second
        window.close()
        first.look()


def test_what_one_page_approves_the_other_shows(both: tuple[Person, Person], crowd: Crowd) -> None:
    one, other = both
    agent = crowd.join(actor="claude", approve="page")
    id = agent.data("doc.create", title="Old plans", text="not needed")["id"]
    request = agent.start("doc.delete", ids=[id])
    for person in both:
        person.look().open("plans").sees("Old plans")
    one.look().click("Approve", ".card button")
    assert "result" in agent.answer(request)
    other.look().sees("No plan waits.")
    assert deletions(one.page) == [["hide document 7", "approved by user"]]


def test_who_saves_a_note_second_loses_no_text(both: tuple[Person, Person]) -> None:
    one, other = both
    path = "note/gitea/gitea-webhooks"
    for person, text in zip(both, ("The first text.", "The second text."), strict=True):
        person.look().open(f"{path}?tab=edit").type("textarea", text)
    one.look().click("Save")
    one.sees("Saved.")
    other.look().click("Save")
    other.sees("has changed this note meanwhile", "The first text.")
    assert other.find("textarea").get_attribute("value") == "The second text."
    stored = other.page.data("note.get", agent="gitea", slug="gitea-webhooks")
    assert "The first text." in stored["text"]
    other.click("Save")
    other.sees("Saved.")
    texts = [
        one.page.data("note.get", agent="gitea", slug="gitea-webhooks", as_of=record["seq"])["text"]
        for record in one.page.data("note.history", agent="gitea", slug="gitea-webhooks")[:2]
    ]
    assert "The second text." in texts[0] and "The first text." in texts[1]


# --------------------------------------------------------------------------- answers


class Slow:
    """An endpoint's script: half of the answer, then the rest once `go_on` is set."""

    def __init__(self) -> None:
        self.go_on = threading.Event()

    def __call__(self, question: str) -> Any:
        def wait(reply: Reply) -> None:
            self.go_on.wait(LIVES)

        return [say("Git comes from "), wait, say("the package manager [1]."), finish()]


@pytest.fixture
def slow() -> Iterator[tuple[Slow, Endpoint]]:
    script = Slow()
    with endpoint(script) as model:
        yield script, model
        script.go_on.set()


ANSWER = "Git comes from the package manager [1]."


def asks(person: Person) -> None:
    person.open("session/1")
    person.type(".ask textarea", "How do I install git on a server?")
    person.click("Ask", ".ask button")


def questions(page: Page) -> int:
    messages = page.data("session.get", session_id=1)["messages"]
    return sum(message["question"].startswith("How do I install git") for message in messages)


def test_an_answer_goes_on_after_a_reload(
    window: Any, crowd: Crowd, slow: tuple[Slow, Endpoint]
) -> None:
    """The page reads on from its cursor: what it has shown stands there at once, nothing twice."""
    script, model = slow
    settings = {"KBPROC_LLM_URL": model.url, "KBPROC_LLM_MODEL": "toy"}
    with at_page(window, crowd.store, **settings) as person:
        asks(person)
        person.sees("Git comes from", "answering")
        window.refresh()
        person.settled()
        person.sees("Git comes from", "answering")
        assert '"cursor":' in person.script("return sessionStorage.getItem('answer-1-2')")
        script.go_on.set()
        person.sees(ANSWER)
        until(lambda: "answering" not in person.text(), "the end")
        assert person.text().count("Git comes from") == 1
        assert len(model.asked) == 1 and questions(person.page) == 1
        assert person.problems() == []


# Drops the connection of the next request for an answer once its stream has begun.
_CUT = """
const real = window.fetch;
window.fetch = (path, options = {}) => {
  if (!(options.body || "").includes('"session.ask"')) return real(path, options);
  window.fetch = real;
  const cut = new AbortController();
  window.cut = () => cut.abort(new TypeError("Failed to fetch"));
  return real(path, { ...options, signal: cut.signal });
};
"""


@pytest.mark.parametrize("reloads", [False, True])
def test_asking_again_after_a_lost_connection_asks_once(
    window: Any, crowd: Crowd, slow: tuple[Slow, Endpoint], reloads: bool
) -> None:
    script, model = slow
    settings = {"KBPROC_LLM_URL": model.url, "KBPROC_LLM_MODEL": "toy"}
    with at_page(window, crowd.store, **settings) as person:
        person.open("session/1")
        person.script(_CUT.replace("session.ask", "session.resume") if reloads else _CUT)
        asks(person)
        person.sees("Git comes from")
        if reloads:
            person.open("sessions")
            person.open("session/1")
        until(lambda: person.script("return 'cut' in window"), "the request")
        person.script("window.cut()")
        person.click("Ask again")
        person.sees("answering", "Git comes from")
        assert person.text().count("Git comes from") == 1
        script.go_on.set()
        person.sees(ANSWER)
        until(lambda: "answering" not in person.text(), "the end")
        assert person.text().count("Git comes from") == 1
        assert len(model.asked) == 1 and questions(person.page) == 1
