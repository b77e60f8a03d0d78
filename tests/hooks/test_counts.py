"""Counts of what hooks said, and of what agents cited or opened of it: kept only where wanted."""

from __future__ import annotations

import json
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest

from kbproc.engine.store import hook_counts
from kbproc.engine.store.hook_counts import Answers, Injection, Line, Use
from kbproc.surfaces.hooks.counting import count_injection, quoted_ids
from kbproc.surfaces.hooks.deadline import deadline_of
from kbproc.surfaces.hooks.uses import QuotedDocument, uses_in
from kbproc.surfaces.hooks.worth import (
    DocumentCounts,
    HookWorth,
    KindCounts,
    for_people,
    worth_of,
)
from kbproc.surfaces.mcp.results import result
from tests.kit import chats
from tests.kit.hooks import Project
from tests.kit.patience import PATIENCE
from tests.kit.start import REPO, start
from tests.kit.talk import Session
from tests.kit.world import carried_out, filled

NOW = "2026-01-01T00:00:00.000Z"
GUIDE = QuotedDocument(id=1, noun="document", title="Git Admin Guide", path="/docs/git-admin.md")
CACHE = QuotedDocument(id=4, noun="entry", title="Cache")
LONG_TITLE = "Which rope do we use in the cave this year, as it rains?"
LONG = QuotedDocument(id=6, noun="document", title=LONG_TITLE)
FOUND = Answers(calls=3, answers=2, tokens=700, ids=[4, 5], cited=[5])


@pytest.fixture
def store(tmp_path: Path) -> Path:
    folder = tmp_path / "store"
    folder.mkdir(mode=0o700)
    (folder / "store.toml").write_text("format = 2\n")
    return folder


@pytest.mark.parametrize(
    ("role", "tool", "text", "cited", "opened"),
    [
        ("assistant", "", "By the guide [Git  admin guide, p. 12].", [1], []),
        ("assistant", "", "The git admin guide says so.", [1], []),
        ("assistant", "", "See /docs/git-admin.md.", [1], []),
        ("assistant", "", "As entry 4 says.", [4], []),
        ("assistant", "", "As [cache] says.", [4], []),
        ("assistant", "", "See [Which rope do we use in the cave this year, as…].", [6], []),
        ("assistant", "", "The cache is empty, and entry 41 is not.", [], []),
        ("user", "", "[Git Admin Guide] entry 4", [], []),
        ("result", "Bash", "[Git Admin Guide] entry 4", [], []),
        ("call", "Read", "/docs/git-admin.md", [], [1]),
        ("call", "mcp__kbproc__doc_view", "id: 4", [], [4]),
        ("call", "kb_call", 'method: knowledge.get\nparams: {"id": 4}', [], [4]),
        ("call", "doc_view", "id: 41", [], []),
        ("call", "Bash", "kbproc knowledge get 4 | head", [], [4]),
        ("call", "Bash", "sleep 4; kbproc status", [], []),
        ("call", "other", "id: 4", [], []),
    ],
)
def test_a_use_is_a_reply_that_names_a_text_or_a_call_that_reads_it(
    role: str, tool: str, text: str, cited: list[int], opened: list[int]
) -> None:
    assert uses_in([(role, tool, text)], [GUIDE, CACHE, LONG]) == (cited, opened)


def lines() -> list[Line]:
    return [
        Injection(ts=NOW, session="a", kind="prompt", tokens=100, ids=[1, 4]),
        Injection(ts=NOW, session="a", kind="prompt"),
        Injection(ts=NOW, session="a", kind="tool", tokens=30, ids=[4]),
        Injection(ts=NOW, session="b", kind="prompt", tokens=50, ids=[4]),
        Use(ts=NOW, session="a", cited=[1]),
        Use(ts=NOW, session="a", cited=[1, 4], opened=[4], answers=FOUND),
        Use(ts=NOW, session="c", answers=Answers(calls=1)),
    ]


def test_sums_are_by_event_and_by_document() -> None:
    worth = worth_of(lines(), {4: CACHE})
    assert (worth.since, worth.sessions, worth.read_sessions) == (NOW, 3, 2)
    kinds = {
        one.kind: (one.looks, one.answers, one.tokens, one.texts, one.cited, one.opened)
        for one in worth.kinds
    }
    assert kinds == {
        "session-start": (0, 0, 0, 0, 0, 0),
        "prompt": (3, 2, 150, 3, 2, 1),
        "tool": (1, 1, 30, 1, 1, 1),
        "mcp": (4, 2, 700, 2, 1, 0),
    }
    documents = [
        (one.id, one.title, one.sessions, one.cited, one.opened) for one in worth.documents
    ]
    assert documents == [(4, "Cache", 2, 1, 1), (1, None, 1, 1, 0), (5, None, 1, 1, 0)]
    assert for_people(worth).splitlines() == [
        "Since 2026-01-01: 3 sessions, of which 2 could be looked through at their end.",
        "",
        "event           looks   answers   tokens   texts   cited   opened",
        "session-start       0         0        0       0       0        0",
        "prompt              3         2      150       3       2        1",
        "tool                1         1       30       1       1        1",
        "mcp                 4         2      700       2       1        0",
        "",
        "text         sessions   cited   opened   title",
        "entry 4             2       1        1   Cache",
        "document 1          1       1        0   –",
        "document 5          1       1        0   –",
    ]
    assert "--count turns it on" in for_people(worth_of([], {}))


def test_the_docs_show_it_as_it_is() -> None:
    rows = {"session-start": (41, 41, 18204, 310, 12, 21), "prompt": (512, 133, 31877, 268, 61, 34)}
    tools = {"mcp": (204, 171, 92340, 405, 88, 73)}
    names = ("looks", "answers", "tokens", "texts", "cited", "opened")
    kinds = [
        KindCounts(kind=kind, **dict(zip(names, row, strict=True)))
        for kind, row in {**rows, "tool": (890, 47, 4410, 58, 9, 4), **tools}.items()
    ]
    title = "Deploys run from the release branch"
    deploys = DocumentCounts(id=12, noun="entry", title=title, sessions=31, cited=9, opened=4)
    worth = HookWorth(
        since="2026-03-02", sessions=41, read_sessions=38, kinds=kinds, documents=[deploys]
    )
    assert for_people(worth) in (REPO / "docs" / "hooks.md").read_text(encoding="utf-8")


def test_a_purge_takes_ids_out_of_the_counts(store: Path) -> None:
    hook_counts.forget(store, [4])
    assert hook_counts.lines_of(store) == []
    for line in lines():
        hook_counts.add(store, line)
    hook_counts.forget(store, [4])
    assert [line.ids for line in hook_counts.lines_of(store) if isinstance(line, Injection)] == [
        [1],
        [],
        [],
        [],
    ]
    uses = [line for line in hook_counts.lines_of(store) if isinstance(line, Use)]
    assert [(use.cited, use.opened) for use in uses] == [([1], []), ([1], []), ([], [])]
    assert [use.answers.ids for use in uses] == [[], [5], []]
    assert hook_counts.delete(store) and not hook_counts.delete(store)


def test_a_full_file_loses_its_older_half(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hook_counts, "MOST_BYTES", 1000)
    for number in range(50):
        text, ids = "x" * number, [number]
        count_injection(store, now=NOW, session="s", kind="prompt", text=text, ids=ids)
    file = store / hook_counts.PLACE
    assert file.stat().st_size <= 1000 and file.stat().st_mode & 0o777 == 0o600
    assert quoted_ids(store, "s")[0] == 49 and 0 not in quoted_ids(store, "s")
    assert quoted_ids(store, "t") == []


def test_a_session_has_time_for_its_log_only_at_its_end() -> None:
    assert deadline_of(["hook", "session-end", "--count"]) == 30_000
    assert deadline_of(["hook", "prompt", "--count"]) == 1000


SAYS = ("assistant", [{"type": "text", "text": "From a package [Git Admin Guide]."}])


def transcript(folder: Path, *more: Any) -> Path:
    common = {"parentUuid": None, "isSidechain": False, "sessionId": f"{chats.UUID}1"}
    messages = [("user", "How is git installed?"), SAYS, *more]
    path = folder / "log.jsonl"
    path.write_bytes(
        chats.lines(
            *(
                {
                    **common,
                    "type": role,
                    "uuid": f"u{number}",
                    "message": {"role": role, "content": content},
                    "timestamp": chats.ASKED,
                }
                for number, (role, content) in enumerate(messages)
            )
        )
    )
    return path


def search_over_mcp(session: Session, folder: Path, id: int) -> Path:
    """Returns a log in which the agent has named the guide, then found it, then opened it."""
    answer = session.ask("search", query="How do I install git?", limit=10)["result"]
    content = result(answer)["content"]
    name = "mcp__kbproc__search_knowledge"
    call = {"type": "tool_use", "id": "t1", "name": name, "input": {"query": "git"}}
    view = {"type": "tool_use", "id": "t2", "name": "mcp__kbproc__doc_view", "input": {"id": id}}
    output = {"type": "tool_result", "tool_use_id": "t1", "content": content}
    more = [("assistant", [call]), ("user", [output]), ("assistant", [view])]
    return transcript(folder, *more)


def command(project: Project, *words: str) -> Any:
    argv = ["-m", "kbproc", "hook", *words, "--format", "json", "--store", str(project.store)]
    process = start(argv, cwd=project.folder, env=project.env, stdout=PIPE, stderr=PIPE)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    return json.loads(out)["data"]


def test_a_session_is_counted_where_the_user_wants_it(tmp_path: Path) -> None:
    project = Project(filled(tmp_path))
    question = "How do I install git from source?"
    assert project.ask(question).context
    assert not (project.store / hook_counts.PLACE).exists(), "off by default"
    text = project.ask(question, "--count", session_id="two").context
    assert "Git Admin Guide" in text
    project.hook(
        "session-end", "--count", session_id="two", transcript_path=str(transcript(tmp_path))
    )
    assert project.problems() == []
    data = (project.store / hook_counts.PLACE).read_text()
    assert "git" not in data.lower() and "two" not in data, "no words, and no client's name"
    worth = command(project, "report")
    (prompt,) = [one for one in worth["kinds"] if one["looks"]]
    assert (prompt["kind"], prompt["looks"], prompt["answers"]) == ("prompt", 1, 1)
    assert abs(prompt["tokens"] * 3 - len(text.encode())) < len(text)
    guide = next(one for one in worth["documents"] if one["title"] == "Git Admin Guide")
    assert (guide["sessions"], guide["cited"], guide["opened"]) == (1, 1, 0)
    session = Session(project.store, cwd=tmp_path)
    log = search_over_mcp(session, tmp_path, guide["id"])
    session.close()
    project.hook("session-end", "--count", session_id="three", transcript_path=str(log))
    (mcp,) = [one for one in command(project, "report")["kinds"] if one["kind"] == "mcp"]
    assert (mcp["looks"], mcp["answers"], mcp["cited"], mcp["opened"]) == (1, 1, 0, 1)
    assert mcp["texts"] > 1 and mcp["tokens"] > 400, "an answer is read whole"
    session = Session(project.store, cwd=tmp_path)
    carried_out(session, "store.purge", document_ids=[guide["id"]])
    session.close()
    assert guide["id"] not in [one["id"] for one in command(project, "report")["documents"]]
    assert command(project, "forget") == {"deleted": True}
    assert not (project.store / hook_counts.PLACE).exists()
