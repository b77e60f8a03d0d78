"""Conversations in a store: added once, found by turn and time, and without their secrets."""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import pytest

from kbproc.engine.sources.parse.chats import claude_code
from kbproc.engine.sources.parse.chats.turns import ChatTranscript, encoded, segments
from kbproc.engine.sources.parse.chats.turns import finished as finished_or_none
from tests.conftest import OpenSession
from tests.kit import chats
from tests.kit.talk import Session

SECRET = "ghp_8sKq2mVn4Tz7Rw1Yb6Xc3Dp9Lf5Gh0Jk2Ma1"


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of a user of two agents."""
    home = tmp_path / "home"
    project = home / ".claude" / "projects" / "-home-ann-crane"
    project.mkdir(parents=True)
    (project / "a.jsonl").write_bytes(chats.claude_code(more=False))
    (project / "settings.json").write_text('{"theme": "dark"}')
    day = home / ".codex" / "sessions" / "2026" / "03" / "05"
    day.mkdir(parents=True)
    (day / "rollout-1.jsonl").write_bytes(chats.codex())
    monkeypatch.setenv("HOME", str(home))
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "PI_CODING_AGENT_DIR", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    return project


def document(session: Session, client: str) -> dict[str, Any]:
    [row] = [row for row in session.data("doc.list") if row["metadata"].get("client") == client]
    return dict(row)


def all_bytes(folder: Path) -> bytes:
    return b"".join(
        path.read_bytes() for path in folder.rglob("*") if path.is_file() and not path.is_symlink()
    )


def test_only_the_sessions_of_a_project_are_read(session: Session, logs: Path) -> None:
    home = logs.parents[2]
    own, other, linked = home / "crane", home / "crane-2", home / "link"
    own.mkdir()
    other.mkdir()
    linked.symlink_to(own)
    for name, folder in [("own", own / "src"), ("other", other), ("link", linked)]:
        log = chats.claude_code(f"Where is the {name} rope?").replace(
            chats.PROJECT.encode(), str(folder).encode()
        )
        (logs / f"{name}.jsonl").write_bytes(log)
    tmp = home / ".gemini" / "tmp" / "0" / "chats"
    tmp.mkdir(parents=True)
    digest = hashlib.sha256(str(own).encode()).hexdigest()
    (tmp / "session-1.json").write_text(
        json.dumps(
            {
                "sessionId": "7d",
                "projectHash": digest,
                "messages": [{"id": "1", "type": "user", "content": "Which crane of gemini?"}],
            }
        )
    )
    plan = session.ask("chats.add", project=str(own))["error"]["data"]["plan"]
    claude, gemini = plan["changes"]
    assert claude.startswith("read claude-code: 2 files, ")
    assert gemini.startswith("read gemini-cli: 1 file, ")
    assert chats.add(session, project=str(own))["added"] == 3
    assert session.data("chats.add", project=str(linked))["unchanged"] == 3
    nothing = home / "nothing"
    nothing.mkdir()
    error = session.ask("chats.add", project=str(nothing))["error"]["data"]
    assert (error["type"], error["field"]) == ("resource.not_found", "$.params.project")


def test_a_person_approves_what_is_read_first(session: Session, logs: Path) -> None:
    error = session.ask("chats.add")["error"]
    assert error["data"]["type"] == "input.confirmation_required"
    claude, codex = error["data"]["plan"]["changes"]
    assert claude.startswith("read claude-code: 2 files, ")
    assert codex.endswith(".codex/sessions")
    assert session.data("doc.list") == []
    answer = chats.add(session)
    assert (answer["added"], answer["unsupported"], answer["failed"]) == (2, 1, 0)
    answer = session.data("chats.add")  # a person has approved these places
    assert (answer["added"], answer["unchanged"]) == (0, 2)
    assert session.ask("chats.add", clients=["pi"])["error"]["data"]["type"] == "resource.not_found"


def test_a_log_of_a_subagent_is_left_out(session: Session, logs: Path) -> None:
    """An agent says there what to do, under the role of a user."""
    own = chats.claude_code().replace(b'"isSidechain":false', b'"isSidechain":true')
    (logs / "agent-1.jsonl").write_bytes(own)
    codex = next(logs.parents[2].glob(".codex/**/rollout-1.jsonl"))
    meta = b'"type":"session_meta","payload":{'
    spawned = codex.read_bytes().replace(meta, meta + b'"source":{"subagent":"review"},', 1)
    assert spawned != codex.read_bytes()
    codex.with_name("rollout-2.jsonl").write_bytes(spawned)
    answer = chats.add(session)
    assert (answer["added"], answer["empty"], answer["failed"]) == (2, 2, 0)


def test_a_hit_cites_session_turn_and_time(session: Session, logs: Path) -> None:
    chats.add(session)
    [hit] = session.data(
        "search",
        query="rope of the crane",
        types=["conversation"],
        mode="fts",
        limit=1,
        metadata={"client": "claude-code"},
    )["results"]
    assert hit["source"]["cite"] == f"{chats.QUESTION}, § 2026-03-05 > turn 1, 14:03"
    row = document(session, "codex")
    assert row["type"] == "conversation"
    assert row["metadata"]["project"] == chats.PROJECT


def test_a_log_that_grows_is_revised(session: Session, logs: Path) -> None:
    chats.add(session)
    path = logs / "a.jsonl"
    grown = chats.claude_code()
    path.write_bytes(grown[: -len(b'"}\n')])  # the client is still writing its last line
    answer = session.data("chats.add")
    assert (answer["updated"], answer["unchanged"]) == (1, 1)
    path.write_bytes(grown)
    assert session.data("chats.add")["updated"] == 1
    row = document(session, "claude-code")
    assert (row["revision"], row["metadata"]["turns"]) == (3, 2)
    os.utime(path, (1, 1))  # another time, the same content
    answer = session.data("chats.add")
    assert (answer["updated"], answer["unchanged"]) == (0, 2)
    assert session.data("doc.reparse", ids=[row["id"]])["updated"] == 0


def test_no_secret_reaches_the_store(session: Session, logs: Path) -> None:
    path = logs / "a.jsonl"
    question = f"Use {SECRET}, <private>and not for Bo</private> please."
    path.write_bytes(chats.claude_code(question))
    plan = session.ask("chats.add", dry_run=True, clients=["claude-code"])["result"]["meta"]["plan"]
    assert (plan["counts"]["redacted_github_token"], plan["counts"]["private_passages"]) == (1, 1)
    answer = chats.add(session, clients=["claude-code"])
    unread = {"redacted_github_token": 1, "private_passages": 1, "pictures": 1, "thoughts": 1}
    assert answer["unread"] == unread
    [row] = session.data("doc.list")
    assert row["title"].startswith("Use [redacted: GitHub token], [private] please")
    assert row["unread"] == unread
    text = session.data("doc.get", id=row["id"], text=True)["text"]
    assert "[redacted: GitHub token]" in text
    content = all_bytes(session.store.folder)
    assert SECRET.encode() not in content
    assert b"not for Bo" not in content


def test_an_export_is_a_document_for_each_conversation(session: Session, tmp_path: Path) -> None:
    path = tmp_path / "docs" / "conversations.json"
    path.parent.mkdir()
    talks = json.loads(chats.chatgpt())
    path.write_text(json.dumps(talks))
    assert session.data("doc.ingest", paths=["docs"])["added"] == 2
    talks.append({**talks[0], "conversation_id": "second", "title": "Paint"})
    path.write_text(json.dumps(talks))
    answer = session.data("doc.ingest", paths=["docs"])
    assert (answer["added"], answer["updated"], answer["unchanged"]) == (1, 1, 1)
    again = session.data("doc.ingest", paths=["docs"])
    assert (again["added"], again["updated"], again["unchanged"]) == (0, 0, 1)
    rows = session.data("doc.list", types=["conversation"])
    assert sorted(row["title"] for row in rows) == [
        "Paint",
        "Ropes of the crane",
        "conversations.json",
    ]


def test_a_turn_of_another_time_counts_less(session: Session, logs: Path) -> None:
    chats.add(session, clients=["codex"])
    for query, factor in (("rope in March 2026", 1.0), ("rope in March 2020", 0.8)):
        [hit] = session.data("search", query=query, explain=True, limit=1)["results"]
        assert hit["explain"]["time"]["factor"] == factor


def test_a_store_redacts_whatever_is_added(open_session: OpenSession, tmp_path: Path) -> None:
    session = open_session()
    session.library.intake.redact = True
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "a.md").write_text(f"# Keys\n\nThe token is {SECRET}.\n")
    (folder / "b.md").write_text("# Tides\n\nHigh at noon.\n")
    answer = session.data("doc.ingest", paths=["docs"])
    assert (answer["added"], answer["unread"]) == (2, {"redacted_github_token": 1})
    answer = session.data("doc.ingest", paths=["docs"])
    assert (answer["updated"], answer["unchanged"]) == (0, 2)
    session.data("doc.create", title="Told", text=f"It is {SECRET}.")
    assert SECRET.encode() not in all_bytes(session.store.folder)


SPEAKERS: list[tuple[str, str | None, str, str]] = [
    ("user", None, "What curl does is clear.", "user"),
    ("assistant", None, "I fetched nothing.", "agent"),
    ("result", "Read", "a line", "tool"),
    ("result", "WebFetch", "a page", "web"),
    ("result", "mcp__browser__open", "a page", "web"),
    ("call", "Bash", "curl -s example.org", "web"),
    ("call", "shell", "ls", "agent"),
]


def test_a_conversation_is_trusted_as_its_least_trusted_speaker(
    session: Session, tmp_path: Path
) -> None:
    wrong = []
    for number, (role, name, text, origin) in enumerate(SPEAKERS, 1):
        origins = origins_of(session, tmp_path / f"ropes-{number}.jsonl", role, name, text)
        if origins != (origin, origin, "user"):
            wrong.append((role, name, text, origin, origins))
    assert wrong == []


def origins_of(
    session: Session, file: Path, role: str, name: str | None, text: str
) -> tuple[str, ...]:
    """Returns a conversation's origins: as read, as grown, and as a person vouches for it."""
    head = {"kbproc": "conversation", "version": 1, "id": file.stem, "client": "pi"}
    head["title"] = "Ropes"
    messages = [
        {"turn": 1, "role": "user", "at": None, "name": None, "text": "Which rope?"},
        {"turn": 1, "role": role, "at": None, "name": name, "text": text},
    ]
    file.write_bytes(chats.lines(head, *messages))
    [document] = session.data("doc.ingest", paths=[file.name])["documents"]
    first = session.data("doc.get", id=document["id"])["origin"]
    file.write_bytes(chats.lines(head, *messages, messages[0] | {"text": "And the hook?"}))
    assert session.data("doc.ingest", paths=[file.name])["updated"] == 1
    grown = session.data("doc.get", id=document["id"])["origin"]
    session.data("doc.ingest", paths=[file.name], origin="user")
    file.write_bytes(chats.lines(head, *messages))
    session.data("doc.ingest", paths=[file.name], origin="user")
    return first, grown, session.data("doc.get", id=document["id"])["origin"]


def test_an_archive_is_refused_for_the_secrets_of_its_files(
    session: Session, tmp_path: Path
) -> None:
    question = f"Use {SECRET} please."
    with zipfile.ZipFile(tmp_path / "logs.zip", "w") as archive:
        archive.writestr("a.jsonl", chats.claude_code(question))
    error = session.error("doc.ingest", paths=["logs.zip"], archives=True)
    assert "a file in it holds secrets" in error["message"]
    session.library.intake.redact = True
    with zipfile.ZipFile(tmp_path / "texts.zip", "w") as archive:
        archive.writestr("a.md", f"# Keys\n\nThe token is {SECRET}.\n")
    error = session.error("doc.ingest", paths=["texts.zip"], archives=True)
    assert "a file in it holds secrets" in error["message"]
    assert SECRET.encode() not in all_bytes(session.store.folder)


def test_an_archive_without_an_export_is_no_empty_conversation(
    session: Session, tmp_path: Path
) -> None:
    with zipfile.ZipFile(tmp_path / "site.zip", "w") as archive:
        archive.writestr("data/conversations.json", '{"theme": "dark"}')
    error = session.error("doc.ingest", paths=["site.zip"])
    assert "no export of ChatGPT or Claude" in error["message"]


def test_conversations_are_exported_and_read_back(
    session: Session, logs: Path, tmp_path: Path
) -> None:
    chats.add(session, metadata={"conversations": 7})
    exported = session.data("chats.export", path="chats.jsonl")
    assert exported["conversations"] == 2
    before = {row["title"]: row["metadata"] for row in session.data("doc.list")}
    assert all(metadata.pop("conversations") == 7 for metadata in before.values())
    session.data("kb.create", slug="copy")
    assert session.data("doc.ingest", paths=["chats.jsonl"], kb="copy")["added"] == 3
    rows = session.data("doc.list", kb="copy", types=["conversation"])
    after = {row["title"]: row["metadata"] for row in rows}
    for title, metadata in before.items():
        assert metadata.items() <= after[title].items()
    assert session.data("chats.export", path="again.jsonl", kb="copy")["conversations"] == 2
    first, second = (Path(exported["path"]).with_name(n) for n in ("chats.jsonl", "again.jsonl"))
    assert sorted(first.read_bytes().split(b"\n")) == sorted(second.read_bytes().split(b"\n"))


def test_doctor_finds_secrets_that_are_there(session: Session) -> None:
    def finding() -> dict[str, Any]:
        findings = session.data("doctor", secrets=True)["findings"]
        return next(dict(each) for each in findings if each["name"] == "secrets")

    assert finding()["status"] == "pass"
    id = session.data("doc.create", title="Keys", text=f"It is {SECRET}.")["id"]
    warning = finding()
    assert warning["status"] == "warn"
    assert warning["message"] == f"1 document holds secrets: {id} “Keys” (1 GitHub token)"
    assert f"--document-ids {id} " in warning["hint"]
    assert SECRET not in str(warning)
    session.data("doc.create", title=f"The key {SECRET}", text="See its title.")
    assert finding()["message"].startswith("2 documents hold secrets")
    assert SECRET not in str(finding())


def test_a_long_log_that_grows_costs_its_last_segment(session: Session, logs: Path) -> None:
    path = logs / "a.jsonl"
    lines = chats.long_log(100)
    path.write_bytes(b"".join(lines))
    answer = chats.add(session, clients=["claude-code"])
    segments = session.data("doc.list")
    assert answer["added"] == len(segments) >= 3
    assert sum(row["unread"]["thoughts"] for row in segments) == 100
    turns = [row["metadata"]["turns"] for row in segments]
    assert turns == sorted(set(turns)) and turns[-1] == 100
    before = {row["id"]: session.data("chunk.list", document_id=row["id"]) for row in segments}
    path.write_bytes(b"".join(chats.long_log(101)))
    answer = session.data("chats.add", clients=["claude-code"])
    assert (answer["added"], answer["updated"]) == (0, 1)
    assert answer["chunks"] < 200
    [hit] = session.data("search", query="tides101", mode="fts")["results"]
    assert hit["source"]["document_id"] == segments[-1]["id"]
    assert "turn 101, 14:03" in hit["source"]["cite"]
    for row in segments[:-1]:
        assert session.data("chunk.list", document_id=row["id"]) == before[row["id"]]
    answer = session.data("chats.add", clients=["claude-code"])
    assert (answer["updated"], answer["unchanged"]) == (0, 1)  # the log was not read again


def test_a_log_that_was_cut_back_keeps_no_later_segment(session: Session, logs: Path) -> None:
    path = logs / "a.jsonl"
    lines = chats.long_log(100)
    path.write_bytes(b"".join(lines))
    chats.add(session, clients=["claude-code"])
    assert len(session.data("doc.list")) >= 3
    path.write_bytes(b"".join(lines[:3]))
    session.data("chats.add", clients=["claude-code"])
    (document,) = session.data("doc.list")
    assert document["metadata"]["turns"] < 100
    assert session.data("search", query="tides100", mode="fts")["results"] == []


def finished(talk: ChatTranscript) -> ChatTranscript:
    result = finished_or_none(talk)
    assert result is not None
    return result


def test_an_export_joins_the_segments_of_a_session(session: Session, logs: Path) -> None:
    (logs / "a.jsonl").write_bytes(b"".join(chats.long_log(100)))
    chats.add(session, clients=["claude-code"])
    assert len(session.data("doc.list")) >= 3
    exported = session.data("chats.export", path="chats.jsonl")
    assert exported["conversations"] == 1
    lines = [json.loads(line) for line in Path(exported["path"]).read_text().splitlines()]
    assert [line["turn"] for line in lines[1:]] == sorted(line["turn"] for line in lines[1:])
    assert {line["turn"] for line in lines[1:]} == set(range(1, 101))


def test_a_segment_depends_on_nothing_after_it() -> None:
    lines = chats.long_log(120)
    [whole] = claude_code.read(b"".join(lines))
    expected = [encoded(each) for each in segments(finished(whole))]
    assert len(expected) >= 4
    for count in (60, 90, 119):
        [part] = claude_code.read(b"".join(lines[:count]))
        beginning = [encoded(each) for each in segments(finished(part))]
        assert beginning[:-1] == expected[: len(beginning) - 1]
