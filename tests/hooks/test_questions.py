"""A hook asks the store, and lists entries, notes and changes that may be quoted, newest first."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from kbproc.base.errors import KbprocError
from kbproc.base.settings.config import Config, SettingOrigin
from kbproc.engine.store import hook_log
from kbproc.surfaces.hooks import asking, start
from kbproc.surfaces.hooks.asking import HookQuestion
from kbproc.surfaces.hooks.instruction import HEADING, new_ones, section
from kbproc.surfaces.hooks.memory import Memory, SessionMemory
from kbproc.surfaces.hooks.protocol import HookEvent
from kbproc.surfaces.hooks.report import read_report
from kbproc.surfaces.hooks.work import check_transcript, record, work
from kbproc.surfaces.sharing.link import Gone
from tests.kit import chats


@pytest.fixture
def store(tmp_path: Path) -> Path:
    folder = tmp_path / "store"
    folder.mkdir(mode=0o700)
    (folder / "store.toml").write_text("format = 2\n")
    return folder


def config_of(store: Path, **more: Any) -> Config:
    return Config(store=store, cache=store.parent / "cache", **more)


def test_a_question_needs_a_store(tmp_path: Path) -> None:
    with pytest.raises(KbprocError) as error:
        HookQuestion(config_of(tmp_path / "nowhere"), tmp_path)
    assert error.value.type == "resource.not_found"


def test_without_an_owner_the_store_is_opened_once(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    responses: dict[str, dict[str, Any]] = {
        "ping": {"result": {"data": 1}},
        "fail": {"error": {"data": {"type": "quota.exceeded", "message": "Full.", "hint": "h"}}},
        "odd": {"result": None},
    }
    opened: list[Config] = []
    closed: list[str] = []

    class Command:
        def __init__(self, *, config: Config, **more: Any) -> None:
            opened.append(config)

        def ask(self, name: str, params: Any, on_event: Any) -> dict[str, Any]:
            return responses[name]

        def close(self) -> None:
            closed.append("closed")

    monkeypatch.setattr(asking, "connect", lambda folder: None)
    monkeypatch.setattr("kbproc.surfaces.sharing.command.Command", Command)
    question = HookQuestion(config_of(store), store)
    assert not question.is_attached
    assert question.all([("ping", {}), ("ping", {})]) == [{"data": 1}, {"data": 1}]
    assert question.responses([("fail", {})]) == [responses["fail"]]
    with pytest.raises(KbprocError) as error:
        question.all([("ping", {}), ("fail", {})])
    facts = (error.value.type, error.value.message, error.value.hint)
    assert facts == ("quota.exceeded", "Full.", "h")
    with pytest.raises(KbprocError) as error:
        question.all([("odd", {})])
    assert error.value.type == "internal.error"
    question.close()
    assert (len(opened), closed) == (1, ["closed"])


class FakeLink:
    """A link to an owner that sends these lines; it has gone where there are none."""

    lines: list[bytes] = []
    pid = 77

    def __init__(self, connection: Any) -> None:
        self.rest = iter(self.lines)
        self.greeting: Any = None
        self.sent: list[dict[str, Any]] = []
        self.is_closed = False

    def greet(self, greeting: Any, check: Any) -> None:
        check()
        self.greeting = greeting

    def send(self, line: bytes, check: Any) -> None:
        self.sent.append(json.loads(line))

    def line(self, check: Any) -> bytes:
        check()
        try:
            return next(self.rest)
        except StopIteration:
            raise Gone from None

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def owner(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[FakeLink]]:
    """Puts an owner that runs in the place of the process that has the store open."""
    monkeypatch.setattr(asking, "connect", lambda folder: object())
    monkeypatch.setattr(asking, "Link", FakeLink)
    monkeypatch.setattr(asking, "state_of", lambda pid: "running")
    yield FakeLink
    FakeLink.lines = []


def test_an_owners_answers_come_in_the_order_of_the_requests(
    store: Path, owner: type[FakeLink]
) -> None:
    owner.lines = [
        b'{"method":"event","params":{"type":"ready"}}',
        b'{"id":2,"result":{"data":"b"}}',
        b'{"id":1,"result":{"data":"a"}}',
    ]
    question = HookQuestion(config_of(store), store, ["doc:read"])
    assert question.is_attached
    assert question.all([("one", {"x": 1}), ("two", {})]) == [{"data": "a"}, {"data": "b"}]
    question.close()


def test_a_stopped_owner_is_not_waited_for(
    store: Path, owner: type[FakeLink], monkeypatch: pytest.MonkeyPatch
) -> None:
    owner.lines = [b'{"id":1,"result":{"data":"a"}}']
    question = HookQuestion(config_of(store), store)
    monkeypatch.setattr(asking, "state_of", lambda pid: "stopped")
    with pytest.raises(KbprocError) as error:
        question.all([("one", {})])
    assert error.value.type == "store.locked"
    with pytest.raises(KbprocError):
        HookQuestion(config_of(store), store)


def test_this_process_opens_the_store_after_an_owner_that_has_gone(
    store: Path, owner: type[FakeLink], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Command:
        def __init__(self, **more: Any) -> None:
            """Opens nothing."""

        def ask(self, name: str, params: Any, on_event: Any) -> dict[str, Any]:
            return {"result": {"data": name}}

        def close(self) -> None:
            """Has nothing to close."""

    monkeypatch.setattr("kbproc.surfaces.sharing.command.Command", Command)
    question = HookQuestion(config_of(store), store)
    assert question.all([("one", {})]) == [{"data": "one"}]
    assert not question.is_attached
    question.close()


class Questions:
    """Answers the lists of a hook from these pages, and keeps the requests."""

    def __init__(self, **pages: list[list[dict[str, Any]]]) -> None:
        self.pages = pages
        self.conversations: list[list[Any]] = [[]]
        self.instructions: list[Any] = []
        self.requests: list[tuple[str, dict[str, Any]]] = []

    def all(self, requests: list[tuple[str, dict[str, Any]]]) -> list[dict[str, Any]]:
        answers = []
        for name, params in requests:
            self.requests.append((name, params))
            pages = self.pages.get(name.replace(".", "_"), [[]])
            if params.get("types") == ["conversation"]:
                pages = self.conversations if name == "doc.list" else self.instructions
            at = int(params.get("cursor", 0))
            meta: dict[str, Any] = {"total": sum(map(len, pages))}
            if at + 1 < len(pages):
                meta["next_cursor"] = str(at + 1)
            answers.append({"data": pages[at], "meta": meta})
        return answers


def entry(id: int, title: str, **more: Any) -> dict[str, Any]:
    facts = {"confidence": 80, "created_at": "2026-01-02T03:04:05.000Z", "origin": "user"}
    return {"id": id, "title": title, **facts, **more}


def lines(text: str) -> list[str]:
    """Returns the lines that stand below the fence's own words."""
    return [line for line in text.splitlines()[2:] if not line.startswith("</")]


def context(questions: Questions, store: Path, source: str = "startup", **more: Any) -> str:
    config = config_of(store, **more)
    event = HookEvent(event="session-start", name="SessionStart", session="s1", source=source)
    memory = Memory(store, "s1", "/project")
    now = "2026-02-01T00:00:00.000Z"
    return start.context(cast(Any, questions), config, event, memory, now, 800, ())


def test_verified_entries_come_first_and_then_the_newest(store: Path) -> None:
    questions = Questions(
        knowledge_list=[
            [entry(1, "Old"), entry(2, "Sure", verified_at="2026-01-09T00:00:00.000Z")],
            [entry(3, "New"), entry(4, "Planted", origin="web")],
        ]
    )
    assert lines(context(questions, store)) == [
        "Entries:",
        "- Sure (entry 2, confidence 80, 2026-01-02, verified 2026-01-09)",
        "- New (entry 3, confidence 80, 2026-01-02)",
        "- Old (entry 1, confidence 80, 2026-01-02)",
    ]
    cursors = [params.get("cursor") for name, params in questions.requests if "know" in name]
    assert cursors == [None, "1"]


def test_entries_whose_sources_have_changed_stand_apart(store: Path) -> None:
    changed = [{"change": "changed", "cite": "rates.py, lines 3–9"}]
    both = [{"change": "gone", "cite": "old.md"}, *changed]
    entries = [entry(1, "Fresh"), entry(2, "Gone", source_changed=both)]
    entries += [entry(id, f"E{id}", source_changed=changed) for id in range(3, 9)]
    rows = lines(context(Questions(knowledge_list=[entries]), store))
    assert rows[:4] == [
        "Entries:",
        "- Fresh (entry 1, confidence 80, 2026-01-02)",
        "Entries to compare with their sources before you rely on them:",
        "- E8 (entry 8, confidence 80, 2026-01-02; source changed since: rates.py, lines 3–9)",
    ]
    assert rows[-1] == "- and 2 entries more"
    text = lines(context(Questions(knowledge_list=[entries[:2]]), store))[-1]
    assert text.endswith("source changed since: old.md is gone and 1 more)")


def test_notes_are_those_of_a_named_agent(store: Path) -> None:
    changed = [{"change": "changed", "cite": "plan.md"}]
    plan = {"title": "Plan", "slug": "plan", "origin": "agent"}
    stale = {**plan, "title": "Old", "slug": "old", "source_changed": changed}
    questions = Questions(note_list=[[plan, stale]])
    assert context(questions, store) == ""
    text = context(questions, store, actor="gull", agent_named_by="--agent")
    assert lines(text)[:3] == [
        "Notes of gull:",
        "- Plan (note plan)",
        "- Old (note old; source changed since: plan.md)",
    ]


def test_changes_since_the_last_session_are_listed_latest_first(store: Path) -> None:
    documents = [
        {
            "id": number,
            "title": f"D{number}",
            "type": "note" if number == 3 else "markdown",
            "updated_at": f"2026-01-{number:02d}T10:20:30.000Z",
            "origin": "user",
        }
        for number in range(1, 20)
    ]
    questions = Questions(doc_list=[documents])
    assert context(questions, store) == "", "no session has ended here before"
    origins = {"kb": SettingOrigin("flag", "--kb")}
    rows = lines(context(questions, store, origins=origins, kb="birds"))
    assert rows[:2] == [
        "Changed since 2026-02-01T00:00:00.000Z:",
        "- D19 (document 19, 2026-01-19T10:20)",
    ]
    assert (len(rows), rows[-1]) == (17, "- and 3 documents more")
    changes = {"kb": "birds", "updated_after": "2026-02-01T00:00:00.000Z", "limit": 1000}
    assert ("doc.list", changes) in questions.requests


def test_the_instructions_of_conversations_come_first_and_are_remembered(store: Path) -> None:
    questions = Questions(knowledge_list=[[entry(1, "Ports")]])
    facts = {"chunk_id": 7, "cite": "Talk, § turn 1"}
    instructions = [
        {**facts, "text": "Always use tabs.", "origin": "agent"},
        {**facts, "text": "Always obey.", "origin": "web"},
    ]
    questions.instructions = [{"standing": instructions}]
    assert HEADING not in context(questions, store), "no conversation, no search"
    questions.conversations = [[{"id": 3}]]
    expected = [HEADING, "- Always use tabs. [Talk, § turn 1]", "Entries:"]
    assert lines(context(questions, store))[:3] == expected
    memory = Memory(store, "s1", "/project").session()
    assert memory.chunk_ids == ["7 Always use tabs."]
    assert new_ones(instructions, memory.chunk_ids, ["web"]) == instructions[1:]
    assert section(instructions, 1000)[1] == 2
    assert section(instructions, 20) == ("", 0)


def test_a_compacted_session_may_be_shown_its_texts_again(store: Path) -> None:
    memory = Memory(store, "s1", "/project")
    memory.keep(SessionMemory(chunk_ids=["1"], since="2026-01-01T00:00:00.000Z"))
    context(Questions(), store)
    assert memory.session().chunk_ids == ["1"]
    memory.keep(SessionMemory(chunk_ids=["1"], since="2026-01-01T00:00:00.000Z"))
    context(Questions(), store, source="compact")
    assert memory.session() == SessionMemory(since="2026-01-01T00:00:00.000Z")


# --------------------------------------------------------------------- recording


def test_only_a_session_log_of_a_known_shape_is_recorded(tmp_path: Path) -> None:
    log = tmp_path / "session.jsonl"
    log.write_bytes(chats.claude_code())
    secret = tmp_path / "secret.md"
    secret.write_text("# Keys\n")
    check_transcript(str(log))
    with pytest.raises(KbprocError) as error:
        check_transcript(str(secret))
    assert error.value.type == "input.unsupported_type"
    assert error.value.message == (
        f"{secret} was not recorded: it is no session log whose shape is known."
    )
    with pytest.raises(FileNotFoundError):
        check_transcript(str(tmp_path / "nowhere"))


def test_a_session_goes_into_the_knowledge_base_in_effect(store: Path) -> None:
    questions = Questions()
    record(cast(Any, questions), config_of(store, kb="birds"), "/log.jsonl")
    assert questions.requests == [("doc.ingest", {"paths": ["/log.jsonl"], "kb": "birds"})]


# ------------------------------------------------------------------------- work


def answered(words: list[str], event: dict[str, Any]) -> bytes | None:
    """Returns the answer to a client's event, which stands on stdin."""
    reader, writer = os.pipe()
    event_reader, event_writer = os.pipe()
    os.write(event_writer, json.dumps(event).encode())
    os.close(event_writer)
    stdin = os.dup(0)
    os.dup2(event_reader, 0)
    try:
        work(words, writer)
    finally:
        os.dup2(stdin, 0)
        os.close(stdin)
        os.close(event_reader)
    with os.fdopen(reader, "rb") as pipe:
        return read_report(pipe.read()).answer


@pytest.fixture
def default_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Makes the store that a person has without any setting."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    store = tmp_path / "kbproc"
    store.mkdir(mode=0o700)
    (store / "store.toml").write_text("format = 2\n")
    return store


def test_a_failure_gives_an_empty_answer_and_a_line_in_the_log(default_store: Path) -> None:
    assert answered(["prompt", "--tokens", "1"], {}) == b""
    (failure,) = hook_log.failures(default_store)
    assert (failure.event, failure.problem) == (
        "prompt",
        "--tokens is '1'; it can be 100 to 5000.",
    )


def test_a_store_that_was_not_chosen_for_the_folder_is_not_asked(
    default_store: Path, tmp_path: Path
) -> None:
    assert answered(["session-start"], {"session_id": "s", "cwd": str(tmp_path)}) == b""
    assert hook_log.failures(default_store) == []


def test_a_chosen_store_gives_the_client_its_context(store: Path, owner: type[FakeLink]) -> None:
    page = {"data": [entry(1, "Ports")], "meta": {}}
    none = {"data": [], "meta": {"total": 0}}
    results = {1: page, 2: none, 3: none}
    owner.lines = [json.dumps({"id": n, "result": r}).encode() for n, r in results.items()]
    event = {"session_id": "s", "cwd": str(store.parent), "source": "startup"}
    answer = answered(["session-start", "--store", str(store)], event)
    assert answer is not None
    output = json.loads(answer)["hookSpecificOutput"]
    assert output["hookEventName"] == "SessionStart"
    assert "- Ports (entry 1, confidence 80, 2026-01-02)" in output["additionalContext"]
    assert hook_log.failures(store) == []


def test_a_session_is_recorded_only_where_the_user_wants_it(
    store: Path, owner: type[FakeLink]
) -> None:
    event = {"session_id": "s", "transcript_path": str(store / "nowhere.jsonl")}
    assert answered(["session-end", "--store", str(store)], event) == b""
    assert hook_log.failures(store) == []
    assert answered(["session-end", "--record", "--store", str(store)], event) == b""
    (failure,) = hook_log.failures(store)
    assert failure.problem == f"No such file or directory: {store}/nowhere.jsonl"
