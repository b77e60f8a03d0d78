"""`kbproc mcp` under real coding agents, each with a model that follows a script."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.kit.harnesses import Desk
from tests.kit.patience import until
from tests.kit.processes import holders
from tests.kit.scripted import Call

SETTINGS = 'format = 2\n\n[model]\nkind = "hash"\nname = "hash"\n'
TOPICS = ("backups", "branches", "merges", "tags", "remotes", "hooks", "worktrees")
Note = Callable[[str, str, str], None]


@pytest.fixture
def filled(desk: Desk) -> Desk:
    """A desk whose store has a document for each topic, and a fast embedding model."""
    desk.store.mkdir(mode=0o700)
    (desk.store / "store.toml").write_text(SETTINGS)
    docs = [{"title": topic, "text": passage(topic)} for topic in TOPICS]
    desk.run("doc", "create", "--documents", json.dumps(docs))
    return desk


def passage(topic: str) -> str:
    """Returns about a hundred words, the usual length of a passage."""
    rule = f"The handbook's chapter on {topic} tells when to use {topic} and how to repair them."
    return " ".join(f"{rule} Rule {n}: whoever changes {topic} writes down why." for n in range(4))


def data(result: str) -> Any:
    """Returns the data of a call, without the text that the agent puts around it."""
    begin = result.index("{")
    return json.JSONDecoder().raw_decode(result[begin:])[0]["data"]


def is_answered(result: str) -> bool:
    try:
        data(result)
    except (ValueError, KeyError):
        return False
    return True


def store(title: str, before: Callable[[], object] = lambda: None) -> Call:
    return Call("store_knowledge", {"title": title, "body": f"Words of {title}."}, before)


def entries(desk: Desk) -> list[dict[str, Any]]:
    return list(json.loads(desk.run("knowledge", "list", "--format", "json"))["data"])


def documents(desk: Desk) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    more: list[str] = []
    while True:
        page = json.loads(desk.run("doc", "list", "--limit", "1000", "--format", "json", *more))
        rows += page["data"]
        if not page["meta"].get("next_cursor"):
            return rows
        more = ["--cursor", page["meta"]["next_cursor"]]


def check_once(desk: Desk, *, acknowledged: list[str], sent: list[str]) -> None:
    counts = Counter(entry["title"] for entry in entries(desk))
    assert set(acknowledged) <= set(counts) <= set(sent)
    assert set(counts.values()) == {1}, counts


def tokens(text: str) -> str:
    return f"{round(len(text) / 4):,}"


def seconds(value: float) -> str:
    return f"{value:.1f}"


def test_search_finds_what_was_there(filled: Desk, name: str, note: Note) -> None:
    search = Call("search_knowledge", {"query": "how to repair branches", "limit": 5})
    with filled.agent(name, [search]) as agent:
        result = agent.finish()[0]
    hits = data(result)["results"]
    assert len(hits) == 5
    assert "branches" in hits[0]["text"]
    tools = json.dumps(agent.model.declared(), ensure_ascii=False)
    note("measured", "tokens of the tools", tokens(tools))
    note("measured", "tokens of five hits", tokens(result))
    note("measured", "seconds from its start to the tools", seconds(agent.seconds_to_tools()))


def test_an_entry_is_stored(filled: Desk, name: str, note: Note) -> None:
    with filled.agent(name, [store("first"), store("second")]) as agent:
        assert all(map(is_answered, agent.finish()))
    check_once(filled, acknowledged=["first", "second"], sent=["first", "second"])
    (author,) = {entry["created_by"] for entry in entries(filled)}
    assert author != "user"
    note("outcomes", "author of its entries", f"`{author}`")


def test_a_folder_is_added(filled: Desk, name: str) -> None:
    add = Call("doc_add", {"paths": ["docs"]})
    search = Call("search_knowledge", {"query": "zebra stripes", "limit": 1})
    with filled.agent(name, [add, search], files={"docs/z.md": "# Zebra\n\nZebra stripes."}) as (
        agent
    ):
        results = agent.finish()
    assert "stripes" in data(results[1])["results"][0]["text"]
    assert "Zebra" in {document["title"] for document in documents(filled)}


# ------------------------------------------------------------------------------- hooks

HOOKED = ("Claude Code", "Codex", "Gemini CLI")


def test_hooks_bring_what_the_store_knows(filled: Desk, name: str) -> None:
    if name not in HOOKED:
        pytest.skip("kbproc has no hooks for it")
    filled.run("knowledge", "store", "--title", "Backups run at four", "--body", "By cron.")
    prompt = "When does the handbook's chapter tell to use backups, and how to repair them?"
    with filled.agent(name, [store("first")], prompt=prompt) as agent:
        agent.finish()
    sent = "".join(agent.model.bodies)
    assert "Backups run at four" in sent, "the start of the session"
    assert "whoever changes backups writes down why" in sent, "the prompt"
    assert "kbproc-reference" in sent
    assert not (filled.store / "hooks" / "log.ndjson").exists()


FAILS = "sh publish_site.sh"
# The agents' own tools that run a command, with their arguments.
COMMANDS = {
    "Claude Code": ("Bash", {"command": FAILS, "description": "Publishes."}),
    "Codex": ("exec_command", {"cmd": FAILS}),
    "Gemini CLI": ("run_shell_command", {"command": FAILS}),
}


def test_hooks_speak_of_a_command_and_of_its_failure(filled: Desk, name: str, note: Note) -> None:
    if name not in HOOKED:
        note("outcomes", "hears of a command, and of its error", "no hooks")
        return
    filled.run(
        *("knowledge", "store", "--title", "publish_site.sh", "--body", "Wait for the night.")
    )
    error = "KeyError: no token of the registry was found"
    body = f"{error} means that the vault is locked."
    filled.run("knowledge", "store", "--title", "Vault", "--body", body)
    tool, arguments = COMMANDS[name]
    script = [store("first"), Call(tool, arguments, is_native=True), store("last")]
    files = {"publish_site.sh": f"echo '{error}' >&2; exit 3\n"}
    with filled.agent(name, script, prompt="publish", files=files) as agent:
        agent.finish()
    sent = "".join(agent.model.bodies)
    heard = ["yes" if text in sent else "no" for text in ("Wait for the night", "vault is locked")]
    note("outcomes", "hears of a command, and of its error", ", ".join(heard))


# ------------------------------------------------------------------- destructive calls


def test_without_admin_nothing_is_deleted(filled: Desk, name: str) -> None:
    delete = Call("kb_call", {"method": "doc.delete", "params": {"ids": [1]}})
    with filled.agent(name, [delete, store("after")]) as agent:
        refused, stored = agent.finish()
    assert "--scopes +admin" in refused, refused
    assert is_answered(stored)
    assert len(documents(filled)) == len(TOPICS) + 1


# Text of a refusal → outcome.
REFUSALS = {
    "Nobody answered": "has nobody to ask: plan and command",
    "cannot ask": "cannot ask: plan and command",
    "did not approve": "declines by itself",
}


def test_with_admin_a_person_decides(filled: Desk, name: str, note: Note) -> None:
    flags = ("--tools", "default,doc_delete", "--scopes", "+admin")
    delete = Call("doc_delete", {"ids": [1]})
    with filled.agent(name, [delete, store("after")], *flags) as agent:
        refused, stored = agent.finish()
    assert is_answered(stored)
    assert len(documents(filled)) == len(TOPICS) + 1
    (outcome,) = [outcome for text, outcome in REFUSALS.items() if text in refused]
    note("outcomes", "`doc_delete` with `admin`, without a person", outcome)
    assert ("kbproc doc delete 1 --store" in refused) == ("command" in outcome)


# ------------------------------------------------------------------------ dying processes


def kill_server(desk: Desk) -> None:
    for pid in desk.servers():
        os.kill(pid, signal.SIGKILL)


def kill_owner(desk: Desk) -> None:
    for pid in set(holders(desk.store)):
        os.kill(pid, signal.SIGKILL)


# Calls that succeeded → behaviour of the client.
RESTARTS = {
    ("first",): "the session goes on without kbproc",
    ("first", "third"): "one call fails, the next starts another",
    ("first", "second", "third"): "the next call starts another",
}


def test_its_server_is_killed(filled: Desk, name: str, note: Note) -> None:
    killed = store("second", lambda: kill_server(filled))
    with filled.agent(name, [store("first"), killed, store("third")]) as agent:
        results = agent.finish(is_whole=False)
    titles = ["first", "second", "third"]
    answered = [
        title for title, result in zip(titles, results, strict=False) if is_answered(result)
    ]
    check_once(filled, acknowledged=answered, sent=titles)
    note("outcomes", "its server is killed", RESTARTS[tuple(answered)])


def test_the_owner_is_killed(filled: Desk, name: str) -> None:
    titles = ["first", "second", "third"]
    killing = [store(title, lambda: kill_owner(filled)) for title in titles[1:]]
    with filled.agent(name, [store("first"), *killing]) as agent:
        results = agent.finish()
    assert all(map(is_answered, results)), results
    check_once(filled, acknowledged=titles, sent=titles)


def test_the_owner_is_killed_while_a_folder_is_added(filled: Desk, name: str) -> None:
    """The owner dies within the call: some records are in the log, and no answer is sent."""
    files = {f"docs/{topic}{n}.md": passage(topic) for topic in TOPICS for n in range(300)}
    before = log_bytes(filled)
    killed: list[int] = []

    def kill() -> None:
        until(lambda: log_bytes(filled) > before, "the first record of the call")
        killed.extend(set(holders(filled.store)))
        kill_owner(filled)

    killing = threading.Thread(target=kill)
    add = Call("doc_add", {"paths": ["docs"]}, killing.start)
    with filled.agent(name, [add, store("after")], files=files) as agent:
        results = agent.finish()
    killing.join()
    assert killed and all(map(is_answered, results)), results
    counted = data(results[0])
    assert counted["added"] + counted["unchanged"] == len(files)
    sources = [row["source"]["path"] for row in documents(filled)]
    paths = Counter(path for path in sources if path is not None and "/docs/" in path)
    assert set(paths.values()) == {1} and len(paths) == len(files)
    check_once(filled, acknowledged=["after"], sent=["after"])


def log_bytes(desk: Desk) -> int:
    return sum(file.stat().st_size for file in (desk.store / "log").iterdir())


def test_nothing_outlives_a_killed_client(filled: Desk, name: str, note: Note) -> None:
    moments: list[float] = []

    def kill() -> None:
        for pid in filled.clients():
            os.kill(pid, signal.SIGKILL)
        moments.append(time.monotonic())

    with filled.agent(name, [store("first"), store("second", kill)]):
        until(lambda: moments and not filled.kbprocs(), "the end of kbproc")
        took = time.monotonic() - moments[0]
    note("measured", "seconds from its kill to the end of kbproc", seconds(took))
    check_once(filled, acknowledged=["first"], sent=["first", "second"])


# ----------------------------------------------------------------------------- pending


@pytest.mark.model
def test_the_next_client_waits_for_no_embeddings(desk: Desk, name: str, note: Note) -> None:
    """The store uses the real model, and hundreds of chunks of the first client are pending."""
    files = {f"docs/{topic}{n}.md": passage(topic) for topic in TOPICS for n in range(58)}
    desk.run("doc", "create", "--title", "One", "--text", passage("one"))
    with desk.agent(name, [Call("doc_add", {"paths": ["docs"]})], files=files) as agent:
        assert is_answered(agent.finish()[0])
        usual = agent.seconds_to_tools(of_kbproc=True)
    status = Call("kb_call", {"method": "status", "params": {}})
    with desk.agent(name, [status, Call("search_knowledge", {"query": "hooks"})]) as agent:
        counted, hits = agent.finish()
        took = agent.seconds_to_tools(of_kbproc=True)
    assert data(counted)["freshness"]["pending_embeddings"] > 0
    assert data(hits)["results"]
    note("measured", "seconds from kbproc's start to the tools", seconds(usual))
    note("measured", "the same with hundreds of chunks pending", seconds(took))
