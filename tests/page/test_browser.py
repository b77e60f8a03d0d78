"""The page as a person uses it, in a browser; skipped where there is none."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit import patience
from tests.kit.browser import CHROMIUM, DRIVER, Person, opened
from tests.kit.patience import until
from tests.kit.processes import Client
from tests.kit.world import filled

selenium = pytest.importorskip("selenium")
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None or DRIVER is None, reason="needs chromium and its driver"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

# Each would set window.ran if it were read as markup or as a script.
HOSTILE = [
    "<script>window.ran=1</script>",
    "<img src=x onerror=window.ran=2>",
    '"><svg onload=window.ran=3>',
    "[x](javascript:window.ran=4)",
    "<a href='javascript:window.ran=5'>x</a>",
    "![x](x onerror=window.ran=6)",
    "<iframe srcdoc='<script>parent.ran=7</script>'></iframe>",
    "{{constructor.constructor('window.ran=8')()}}",
    "</textarea><script>window.ran=9</script>",
    "[x](data:text/html,<script>window.ran=10</script>)",
    "`</code><script>window.ran=11</script>`",
    '<https://example.org/"onmouseover=window.ran=12>',
]


# Each would be wider than a window, or let what follows be read as something else.
ODD = [
    "LongWord" * 30,
    "עברית english 123 (שלום)",
    "e" + "\u0300\u0301\u0302\u0303" * 60,
    "日本語の題名がとても長いとき" * 12,
    "🎈" * 200,
]
LONG = "a" * 64

EVERYWHERE = (
    "search?q=window+ran",
    "docs",
    "entries",
    f"notes/{LONG}",
    f"note/{LONG}/hostile",
    f"note/{LONG}/hostile?tab=edit",
    f"note/{LONG}/hostile?tab=history",
    "session/1",
    "sessions",
    "log",
    "plans",
    "health",
)


@pytest.fixture(scope="module")
def person(window: Any, store: Path) -> Iterator[Person]:
    """A person who has opened the page of `store`."""
    with opened(store) as page:
        yield Person(window, page).enter()


@pytest.fixture(autouse=True)
def no_complaints(request: pytest.FixtureRequest) -> Iterator[None]:
    """The browser has nothing to complain about, after any test."""
    yield
    if "person" in request.fixturenames:
        assert request.getfixturevalue("person").problems() == []


def test_the_token_leaves_the_address(person: Person) -> None:
    assert "token" not in person.driver.current_url
    requests = "return performance.getEntriesByType('resource').map(entry => entry.name)"
    assert "token" not in str(person.script(requests))


def test_a_second_window_follows(person: Person) -> None:
    first = person.driver.current_window_handle
    person.driver.switch_to.new_window("tab")
    person.driver.get(person.page.url)
    person.sees("Documents", "Plans")
    person.driver.close()
    person.driver.switch_to.window(first)


def test_search_finds_while_typing_and_says_why(person: Person) -> None:
    person.open("search")
    person.type("#query", "cache keyed by lock file")
    person.sees("The CI cache is keyed by lock file")
    query, is_complete = (
        "#/search?q=cache+keyed+by+lock+file",
        "return !document.querySelector('.results[aria-busy]')",
    )
    # The last answer replaces those by words alone or for a part of the query, and closes their
    # reasons.
    until(
        lambda: query in person.driver.current_url and person.script(is_complete),
        "the last answer",
        person.text,
    )
    assert person.script("return document.querySelectorAll('.snippet mark').length") > 0
    person.click("Why")
    person.sees("BM25")
    person.click("Neighbours")
    person.sees("chunk 1 of")


def test_the_document_stands_beside_its_hit(person: Person) -> None:
    person.open("search?q=install+git&type=markdown")
    person.click("Beside")
    person.find(".beside .chunk.found mark")


def test_no_hit_is_said(person: Person) -> None:
    person.open("search?q=zyzzyva&mode=fts")
    person.sees("Nothing was found.", "none")


def test_keys_lead_everywhere(person: Person) -> None:
    person.open("health")
    body = person.find("body")
    for key, title in (("2", "Documents"), ("6", "Log"), ("7", "Plans that wait")):
        body.send_keys(key)
        until(lambda title=title: person.script(_TITLE) == title, title)
        person.settled()
    body.send_keys("/")
    until(lambda: person.script("return document.activeElement.id") == "query", "the search field")


_TITLE = "return document.querySelector('h1')?.innerText"


def test_a_document_is_edited_compared_and_restored(person: Person) -> None:
    person.open("docs").sees("Git Admin Guide")
    person.type(".filters input", "Draft")
    until(lambda: "Git Admin Guide" not in person.text(), "the list while one types")
    assert person.script("return document.activeElement.value") == "Draft"
    assert person.driver.current_url.endswith("#/docs?title=Draft")
    person.click("Draft", "td a")
    person.sees("Not finished.")
    person.click("Edit…")
    person.type("dialog .field:nth-of-type(2) input", "draft, !!\n")
    person.sees("a tag is letters")
    person.type("dialog .field:nth-of-type(2) input", "draft, seen")
    person.type("dialog .field:nth-of-type(1) input", "A better title\n")
    person.sees("seen", "A better title")
    assert person.page.data("doc.get", id=2)["title"] == "A better title"
    person.page.data("doc.update", id=2, title="Draft")
    person.open("docs").open("doc/2")
    person.click("Revisions", "nav a")
    person.settled()
    person.script("const [older] = document.querySelectorAll('.doc select'); older.value = 3")
    person.click("Compare")
    person.sees("Not begun.")
    assert person.script("return document.querySelectorAll('.diff .gone, .diff .new').length") >= 2
    person.click("", "button[aria-label='Restore revision 1']")
    person.click("Confirm", "dialog button")
    until(lambda: "Not begun" in person.page.data("doc.get", id=2, text=True)["text"], "restore")


def test_time_shows_the_store_as_it_was(person: Person) -> None:
    created = person.page.data("doc.history", id=2)[-1]["seq"]
    person.open(f"doc/2?at={created}")
    person.sees("Not begun.", f"record {created}")
    assert "Edit tags" not in person.text()
    person.open(f"docs?at={created - 1}")
    person.sees("Documents")
    assert "Draft" not in person.text()
    person.click("Now")
    person.sees("Draft")


def test_the_log_undoes_by_plan(person: Person) -> None:
    person.page.data("doc.update", id=2, title="A wrong title")
    seq = person.page.data("doc.history", id=2)[0]["seq"]
    person.open("log")
    person.click("Undo this…", f"#record-{seq} button")
    person.sees("Confirm")
    person.click("Confirm", "dialog button")
    until(lambda: person.page.data("doc.get", id=2)["title"] == "Draft", "the revert")


_SLOW = """
const real = window.fetch;
window.fetch = async (...request) => {
  if (String(request[1]?.body).includes("events.read")) {
    window.fetch = real;
    await new Promise((goOn) => { window.goOn = goOn; });
  }
  return real(...request);
};
location.hash = "#/log";
"""


def test_the_log_shows_a_record_that_comes_while_it_is_read(person: Person) -> None:
    person.open("docs")
    person.script(_SLOW)
    until(lambda: person.script("return Boolean(window.goOn)"), "the request for the log")
    person.page.data("doc.update", id=2, tags=["draft", "late"])
    person.page.data("doc.update", id=2, tags=["draft"])
    seq = person.page.data("doc.history", id=2)[0]["seq"]
    head = "return import('/wire.js').then((wire) => wire.time.head)"
    until(lambda: person.script(head) >= seq, "the records in the page")
    person.script("window.goOn()")
    person.find(f"#record-{seq - 1}")
    person.find(f"#record-{seq}")


def test_what_changed_between_two_moments(person: Person) -> None:
    person.open("log?from=1&to=5")
    person.sees("records", "from 1 to 5")
    person.type(".filters .field:nth-of-type(3) input", "2")
    person.sees("1 record, 1 document, from 1 to 2")
    person.type(".filters input", "nobody")
    person.sees("0 records, 0 documents")


def test_an_entry_is_superseded(person: Person) -> None:
    person.open("entries")
    person.sees("The CI cache is keyed by lock file")
    person.open("entry/4")
    person.sees("It took the place of")
    person.click("Supersede…")
    person.type("dialog input[type=number]", "3")
    person.click("Supersede", "dialog .row.end button:last-child")
    person.click("Confirm", "dialog button")
    until(lambda: person.page.data("knowledge.get", id=4)["superseded_by"] == 3, "supersede")


def test_cancel_of_a_supersede_stores_nothing(person: Person) -> None:
    before = person.page.data("knowledge.list", include_superseded=True)
    person.open("entry/3").click("Supersede…")
    person.type("dialog .field:nth-of-type(2) input", "The CI cache is keyed by a hash")
    person.click("Cancel", "dialog button")
    assert person.page.data("knowledge.list", include_superseded=True) == before
    person.click("Supersede…")
    person.type("dialog .field:nth-of-type(2) input", "The CI cache is keyed by a hash")
    person.click("Supersede", "dialog .row.end button:last-child")
    person.sees("Superseded.", "It took the place of entry 3")


def test_an_error_is_not_shown_as_emptiness(person: Person) -> None:
    person.open(f"search?q={'a' * 2001}")
    person.sees("Query has 2001 characters; the limit is 2000.")
    assert "$.params" not in person.text() and "send the request" not in person.text()
    person.open("doc/9999")
    person.sees("This document is deleted, or never was.")
    person.open("log?from=1&to=5").find("button", "before → after")
    with offline(person):
        person.click("before → after")
        person.sees("does not answer", "Failed to fetch")
    assert person.script("return document.querySelector('.diff')") is None
    person.open("docs")
    with offline(person):
        person.open("health")
        until(
            lambda: person.script("return document.querySelectorAll('section > .bad').length") > 2,
            "the errors of the sections",
        )
    person.driver.get_log("browser")  # because requests have failed, as they should


@contextlib.contextmanager
def offline(person: Person) -> Iterator[None]:
    """Within the block the browser reaches nothing."""
    state = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    command = "Network.emulateNetworkConditions"
    person.driver.execute_cdp_cmd("Network.enable", {})
    person.driver.execute_cdp_cmd(command, {"offline": True, **state})
    try:
        yield
    finally:
        person.driver.execute_cdp_cmd(command, {"offline": False, **state})


def test_every_address_shows_something(person: Person) -> None:
    for path in ("nowhere", "constructor", "doc/abc", "doc/1/2", "entry/", "%E0%A4%A", "note/x"):
        person.open("docs").open(path)
        person.sees("There is no such page", "Go to the search")
    person.open("doc/1?tab=constructor").sees("Text")
    person.driver.get(f"{person.page.url}docs")
    person.sees("There is no such page")
    person.driver.get_log("browser")  # because the address was answered with 404
    disable = "Emulation.setScriptExecutionDisabled"
    person.driver.execute_cdp_cmd(disable, {"value": True})
    try:
        person.driver.get(person.page.url)
        # A noscript element holds elements only if no script runs.
        until(lambda: person.driver.find_elements("css selector", "noscript h1"), "what to do")
    finally:
        person.driver.execute_cdp_cmd(disable, {"value": False})
    person.driver.get(person.page.url)
    person.settled()


def test_long_lists_go_on(person: Person) -> None:
    """A document with more than 200 records: its revisions, its records, and what changed."""
    person.driver.get("about:blank")  # the page would be drawn anew with each record
    for number in range(210):
        person.page.data("doc.update", id=1, tags=[f"tag {number}"])
    records = len(person.page.data("events.read", document_id=1, limit=1000))
    person.driver.get(person.page.url)
    rows = "return document.querySelectorAll(arguments[0]).length"
    person.open("doc/1?tab=revisions")
    for total in (200, records):
        person.click("Show earlier revisions")
        until(lambda total=total: person.script(rows, "tbody tr") == total, f"{total} revisions")
    person.open("doc/1?tab=log")
    for total in (200, records):
        person.click("Show later records")
        until(lambda total=total: person.script(rows, ".records > li") == total, f"{total} records")
    person.open("log?from=0")
    assert person.script(rows, ".records > li") == 200
    person.click("Show more")
    until(lambda: person.script(rows, ".records > li") > 220, "all records")


def test_a_note_is_edited_and_a_conflict_shows_both(person: Person) -> None:
    person.open("note/gitea/gitea-webhooks?tab=edit")
    person.type("textarea", "# Webhooks\n\nMine.")
    person.page.data("note.put", agent="gitea", slug="gitea-webhooks", text="# Webhooks\n\nTheirs.")
    person.click("Save")
    person.sees("has changed this note meanwhile", "Theirs.")
    person.click("Save")

    def is_saved() -> bool:
        return "Mine." in person.page.data("note.get", agent="gitea", slug="gitea-webhooks")["text"]

    until(is_saved, "the note")
    person.open("note/gitea/gitea-webhooks?tab=history")
    person.click("Compare with the one before")
    person.sees("Theirs.")


def test_an_answer_streams_and_its_references_lead_to_passages(person: Person) -> None:
    person.open("session/1")
    person.type(".ask textarea", "How is git installed?")
    person.click("Ask", ".ask button")
    until(lambda: "answering" not in person.text(), "the answer")
    person.click("[1]", "a.reference")
    person.find(".chunk.found")


def test_an_erasure_shows_its_plan_first(person: Person) -> None:
    person.open("doc/2")
    person.click("Delete…")
    person.sees("risk: medium", "It can be undone.", "1 event would be written")
    person.click("Cancel", "dialog button")
    person.click("Erase for good…")
    person.sees("risk: high", "It can't be undone.", "erase “Draft” for good")
    person.driver.switch_to.active_element.send_keys("\n")  # at the button that has the focus
    until(
        lambda: person.script("return !document.querySelector('dialog')"), "the end of the dialog"
    )
    assert person.page.data("doc.get", id=2)["title"] == "Draft"


def test_health_shows_findings_growth_and_the_map(person: Person) -> None:
    person.open("health")
    person.sees("Doctor", "Growth of the log", "Map", "the chain verifies")
    until(lambda: person.script(_PAINTED) > 0, "points on the map")
    person.click("List all that are shown")
    until(
        lambda: person.script("return document.querySelectorAll('.history li').length") > 2,
        "chunks",
    )


_PAINTED = (
    "const c = document.querySelector('canvas'); if (!c) return 0;"
    "return c.getContext('2d').getImageData(0, 0, c.width, c.height).data.filter(v => v).length"
)


def test_nothing_in_a_text_runs(store: Path, window: Any) -> None:
    """Titles, texts, names, tags, metadata, notes, questions and plans stay texts, and fit."""
    folder = store.parent / "hostile"
    folder.mkdir()
    filled(folder)
    hostile = "\n\n".join([*HOSTILE, *ODD])
    agent = Client(folder / "store", cwd=folder, actor="claude", approve="page", real=1).ready()
    ids = [
        agent.data("doc.create", title=text[:300], text=hostile, metadata={"m": text}, tags=[LONG])[
            "id"
        ]
        for text in [*HOSTILE, *ODD]
    ]
    (folder / "b\u202efdp.md").write_text("# Odd \u202egpj.exe\n\nfile \x1b[31m text")
    agent.data("doc.ingest", paths=["b\u202efdp.md"])
    entry = agent.data("knowledge.store", title=HOSTILE[0], body=hostile, source=HOSTILE[1])["id"]
    agent.data("kb.create", slug="hostile", name=HOSTILE[1] + "Name" * 15)
    agent.data("agent.create", slug=LONG, description=HOSTILE[1] + ODD[0])
    agent.data("note.put", agent=LONG, slug="hostile", text=f"# {HOSTILE[0]}\n\n{hostile}")
    agent.data("session.create", title=ODD[0][:200])
    agent.data("session.ask", session_id=1, question=f"{HOSTILE[1]} install git? {ODD[0]}")
    agent.start("doc.delete", ids=ids[:14])
    first = window.current_window_handle
    window.switch_to.new_window("tab")
    with opened(folder / "store") as page:
        person = Person(window, page).open()
        own = [f"doc/{ids[0]}", f"doc/{ids[12]}?tab=revisions", f"doc/{ids[1]}?tab=log"]
        own += [f"doc/{ids[-1] + 1}", f"entry/{entry}"]
        for width in (1280, 390):
            size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 400}
            window.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            for path in (*EVERYWHERE, *own):
                person.open(path)
                assert person.problems() == [], path
                assert person.script(_ODD_LINKS) == [], path
                assert person.script(_MISLEADING) == [], path
                assert person.script("return document.documentElement.scrollWidth") <= width, path
            person.open(f"doc/{ids[12]}")
            for name in ("Edit…", "Delete…", "Erase for good…"):
                person.click(name)
                person.find("dialog button", "Cancel")
                assert person.script(_IS_DIALOG_WIDER) is False, name
                person.click("Cancel", "dialog button")
        person.open(f"note/{LONG}/hostile")
        person.sees("<script>window.ran=1</script>")
        window.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        person.open("docs")
        assert person.script(_LINES_OF_TYPES) == 1
        window.close()
    agent.end()
    window.switch_to.window(first)


_IS_DIALOG_WIDER = (
    "const dialog = document.querySelector('dialog');return dialog.scrollWidth > dialog.clientWidth"
)
# The lines that the longest cell of the column Type takes.
_LINES_OF_TYPES = """
return Math.max(...[...document.querySelectorAll("td[data-name=Type]")].map((cell) => {
  const range = document.createRange();
  range.selectNodeContents(cell);
  return new Set([...range.getClientRects()].map((line) => line.top)).size;
}));
"""
# Names that hold marks which turn the direction of what follows.
_MISLEADING = """
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
const found = [];
while (walker.nextNode()) {
  const { data, parentNode } = walker.currentNode;
  const isText = parentNode.closest(".text, .snippet, .markdown, textarea");
  if (!isText && /[\u202a-\u202e\u2066-\u2069]/.test(data)) found.push(data);
}
return found;
"""
_ODD_LINKS = (
    "return [...document.querySelectorAll('a')].map(a => a.getAttribute('href'))"
    ".filter(href => !/^(https?:|#)/.test(href))"
)


@pytest.fixture
def agent(person: Person, store: Path) -> Iterator[Callable[..., Client]]:
    """Returns a function that starts an agent whose requests wait for a person."""
    agents: list[Client] = []

    def start(**options: Any) -> Client:
        more = {"actor": "claude", "approve": "page", "real": 1, **options}
        agents.append(Client(store, cwd=store.parent, **more).ready())
        return agents[-1]

    yield start
    for one in agents:
        one.end()


def test_a_person_approves_what_an_agent_asked_for(
    person: Person, agent: Callable[..., Client]
) -> None:
    one = agent()
    id = one.data("doc.create", title="Old plans", text="not needed")["id"]
    request = one.start("doc.delete", ids=[id])
    person.open("plans")
    person.sees("claude asks for doc.delete", "Old plans", "the request waits for your answer")
    person.click("Approve")
    assert "result" in one.answer(request)
    person.sees("No plan waits.")
    record = person.page.data("events.read", actor="claude")[-1]
    assert record["events"][-1]["summary"] == "approved by user"


def test_a_person_refuses(person: Person, agent: Callable[..., Client]) -> None:
    one = agent()
    id = one.data("doc.create", title="Kept plans", text="needed")["id"]
    request = one.start("doc.delete", ids=[id])
    person.open("plans")
    person.click("Refuse", ".card button")
    assert one.answer(request)["error"]["data"]["type"] == "operation.cancelled"
    assert person.page.data("doc.get", id=id)["title"] == "Kept plans"


def test_an_agent_that_dies_takes_its_plan_along(
    person: Person, agent: Callable[..., Client]
) -> None:
    one = agent()
    id = one.data("doc.create", title="Lost plans", text="needed")["id"]
    one.start("doc.delete", ids=[id])
    person.open("plans")
    person.sees("Lost plans")
    one.kill()
    person.sees("No plan waits.")
    assert person.page.data("doc.get", id=id)["title"] == "Lost plans"


def test_a_person_judges_what_waits(person: Person, agent: Callable[..., Client]) -> None:
    """Edits and approves an entry, rejects one in the list, and approves one on its own page."""
    page = person.page
    agent().data("kb.update", slug="scratch", review="all")
    first, second, third = [
        page.data(
            "knowledge.store", title=f"{word} waits", body="It " + "waits. " * 300, kb="scratch"
        )
        for word in ("One", "Two", "Three")
    ]
    person.open("entries")
    person.sees("In review: 3", "One waits", "Two waits", "Three waits")
    person.find("[data-view=entries] .badge", "3")
    person.click("Edit…", '[aria-label="One waits"] button')
    person.type("dialog input", "One is edited")
    person.click("Save", "dialog button")
    person.sees("Saved; it still waits.", "One is edited", "In review: 3")
    edited = page.data("knowledge.get", id=first["id"])
    assert (edited["title"], edited["in_review"]) == ("One is edited", True)
    assert edited["body"] == "It " + "waits. " * 300, "the list had the beginning alone"
    person.click("Approve", '[aria-label="One is edited"] button')
    person.sees("Approved.", "In review: 2")
    approved = page.data("knowledge.get", id=first["id"])
    assert (approved.get("in_review"), approved["verified_by"]) == (None, "user")
    person.click("Reject", '[aria-label="Two waits"] button')
    person.sees("Rejected.", "In review: 1")
    assert (
        page.ask("knowledge.get", id=second["id"])["error"]["data"]["type"] == "resource.not_found"
    )
    person.open(f"entry/{third['id']}").sees("in review")
    person.click("Approve")
    person.sees("Approved.", "Three waits")
    assert page.data("review.list") == []
    badge = "return document.querySelector('[data-view=entries] .badge').hidden"
    until(lambda: person.script(badge) is True, "no number beside the tab")


def test_a_stale_plan_is_shown_anew(person: Person, agent: Callable[..., Client]) -> None:
    one = agent()
    id = one.data("doc.create", title="First title", text="needed")["id"]
    request = one.start("doc.delete", ids=[id])
    person.open("plans")
    person.sees("First title")
    person.page.data("doc.update", id=id, title="Second title")
    person.click("Approve", ".card button")
    person.sees("Second title")
    person.click("Approve", ".card button")
    assert "result" in one.answer(request)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everybody_can_read_it_on_a_phone_too(person: Person, scheme: str) -> None:
    """axe finds nothing serious, and nothing is wider than 360 pixels.

    The schemes differ in their colours alone, so the quick profile runs the other rules once.
    """
    rules = (
        {}
        if scheme == "light" or patience.LONG
        else {"runOnly": {"type": "rule", "values": ["color-contrast"]}}
    )
    axe = pytest.importorskip("axe_selenium_python").Axe(person.driver)
    person.driver.execute_cdp_cmd(
        "Emulation.setEmulatedMedia",
        {"features": [{"name": "prefers-color-scheme", "value": scheme}]},
    )
    size = {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True}
    person.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        axe.inject()
        serious = {}
        for path in ("search?q=git", "docs", "doc/1", "entry/4", "log", "plans", "health"):
            person.open(path)
            assert person.script("return document.documentElement.scrollWidth") <= 360, path
            for one in axe.run(options=rules)["violations"]:
                if one["impact"] in {"serious", "critical"}:
                    serious[path, one["id"]] = [node["html"] for node in one["nodes"]][:3]
        assert serious == {}
    finally:
        person.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_what_was_derived_from_a_source_that_has_changed(person: Person) -> None:
    """An entry and a note say so, also where they are found, and are listed apart."""

    def store(title: str, *sources: int) -> int:
        entry = {"title": title, "body": f"{title}: we sail.", "derived_from": list(sources)}
        return int(person.page.data("knowledge.store", **entry)["id"])

    old, new = store("Tide table"), store("Newer table")
    derived = store("Sailing times", old)
    text = f"---\nderived_from: [{old}]\n---\nWe sail at six."
    person.page.data("note.put", agent="gitea", slug="sailing", text=text)
    person.open("entries?stale=1")
    assert "Sailing times" not in person.text()
    person.open(f"entry/{old}").click("Supersede…")
    person.type("dialog input[type=number]", str(new))
    person.click("Supersede", "dialog .row.end button:last-child")
    person.click("Confirm", "dialog button")
    person.sees("It took the place of")  # the page goes there by itself
    for place in ("entries?stale=1", "notes/gitea?stale=1", "search?q=we+sail"):
        person.open(place).sees("source changed")
    person.open("notes/gitea?stale=1").sees("Sailing")
    assert "gitea-webhooks" not in person.text()
    for place in (f"entry/{derived}", "note/gitea/sailing"):
        person.open(place).sees("Source changed since", "Tide table")
