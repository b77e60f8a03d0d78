"""No answer exceeds the size that clients show a model, even from a full store."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kbproc.base.settings.config import SCOPES
from kbproc.surfaces.mcp import declared
from kbproc.surfaces.mcp.results import MOST_BYTES, fitted
from kbproc.surfaces.mcp.toolbox import Toolbox, WireRequest
from tests.kit import patience
from tests.kit.mcp import Client, client
from tests.kit.start import REPO

CODEX_CUTS = 12_000  # bytes
PAGE = 8_000  # characters
LINE = 'She said: "a kettle\tboils"; naïve \\ and so on.\n'
TEXT = "".join(f"{number} {LINE}" for number in range(2_000))
ALL_SCOPES = frozenset(SCOPES)
FILES = 300 if patience.LONG else 110  # more than the 100 that an answer about a folder names
CREATED = 900 if patience.LONG else 300
# Tools that would disturb the store that the other tests share.
NOT_CALLED = {
    *("cluster_init", "cluster_join", "cluster_leave", "cluster_reseed", "cluster_status"),
    *("store_move", "store_import", "store_purge", "store_compact", "store_backup"),
    *("model_install", "model_use", "doc_fetch", "doctor", "events_revert", "session_stop"),
    "chats_add",  # reads what agents of this machine have written
}


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A client of a store with many documents, notes, sessions and entries."""
    folder = tmp_path_factory.mktemp("full")
    for number in range(FILES):
        path = folder / "docs" / f"{'folder' * 8}-{number // 50}" / f"{'page' * 10}-{number}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# Kettle {number}\n\n{LINE * 20}")
    (folder / "docs" / "bad.pdf").write_bytes(b"%PDF-1.4 nonsense")
    with client(folder, tools="default,weknora,notes,all", scopes=",".join(SCOPES)) as one:
        fill(one)
        yield one


def fill(one: Client) -> None:
    added = one.data("doc_add", paths=["docs"])
    assert added["added"] == FILES
    metadata = {f"key-{number}": "v" * 200 for number in range(60)}
    long = {"title": "t" * 300, "text": TEXT, "metadata": metadata, "tags": ["kettle"]}
    one.data("kb_call", method="doc.create", params=long)
    tagged = [
        {
            "title": f"{n}",
            "text": f"kettle {n}",
            "tags": [f"{'tag' * 10}-{n}-{i}" for i in range(16)],
        }
        for n in range(60)
    ]
    one.data("kb_call", method="doc.create", params={"documents": tagged})
    for number in range(30):
        one.data("kb_create", slug=f"kb-{number}", description="d" * 1_000)
        one.data("agent_create", slug=f"agent-{number}", description="d" * 1_000)
    for number in range(30):
        one.data("store_knowledge", title=f"Fact {number} {'t' * 150}", body=f"kettle {LINE * 300}")
    for number in range(30):
        text = f"# Kettle {number}\n\n{LINE * 300}"
        one.data("knowledge_write", slug=f"note-{number}", text=text, agent="agent-1")
    answer = one.data("chat", question=f"kettle? {'why ' * 300}")
    for number in range(10):
        question = f"kettle {number}? {'why ' * 300}"
        one.data("session_ask", session_id=answer["session_id"], question=question)
        one.data("chat", question=question)
    one.data("kb_create", slug="reviewed", review="all")
    for number in range(30):
        body = f"kettle {LINE * 300}"
        one.data("knowledge_store", kb="reviewed", title=f"{number} {'t' * 150}", body=body)


LONG_DOCUMENT, ENTRY, SESSION = FILES + 1, FILES + 62, 1
IN_REVIEW = ENTRY + 60  # after 30 entries and 30 notes
SEARCH = {"query": "kettle", "limit": 100}
ARGUMENTS: dict[str, dict[str, Any]] = {
    "search_knowledge": SEARCH,
    "search_chunks": {**SEARCH, "explain": True},
    "search": {**SEARCH, "explain": True},
    "doc_view": {"id": LONG_DOCUMENT},
    "doc_get": {"id": LONG_DOCUMENT, "text": True},
    "doc_add": {"paths": ["docs"], "tags": ["again"]},
    "doc_ingest": {"paths": ["docs"], "tags": ["anew"]},
    "doc_create": {"documents": [{"title": f"{n}", "text": f"new {n}"} for n in range(CREATED)]},
    "doc_download": {"id": LONG_DOCUMENT},
    "doc_update": {"id": LONG_DOCUMENT, "title": "u" * 300},
    "doc_delete": {"ids": list(range(1, FILES - 50)), "dry_run": True},
    "watch_add": {"folder": "docs"},
    "watch_remove": {"folder": "docs"},
    "doc_reparse": {"dry_run": True},
    "doc_restore": {"ids": [1]},
    "doc_history": {"id": LONG_DOCUMENT},
    "doc_wait": {"timeout_ms": 1},
    "doc_list": {"limit": 1000},
    "kb_call": {"method": "events.read", "params": {"limit": 1000, "full": True}},
    "kb_read": {"method": "chunk.list", "params": {"document_id": LONG_DOCUMENT, "limit": 1000}},
    "kb_describe": {"full": True},
    "describe": {"method": "doc.ingest", "full": True},
    "chat": {"question": "kettle?", "references": "full"},
    "session_ask": {"session_id": SESSION, "question": "kettle?", "references": "full"},
    "agent_invoke": {"slug": "agent-1", "question": "kettle?"},
    "store_knowledge": {"title": "Kettles boil", "body": LINE * 300},
    "knowledge_store": {"title": "Kettles boil again", "body": LINE * 300},
    "supersede_knowledge": {"oldId": ENTRY, "newId": ENTRY + 1},
    "knowledge_supersede": {"old_id": ENTRY + 2, "new_id": ENTRY + 3},
    "knowledge_unsupersede": {"old_id": ENTRY + 2, "new_id": ENTRY + 3},
    "knowledge_search": {"query": "kettle", "agent": "agent-1", "limit": 100},
    "note_search": {"query": "kettle", "agent": "agent-1", "limit": 100, "snippet_chars": 2000},
    "knowledge_read": {"slug": "note-1", "agent": "agent-1"},
    "note_get": {"slug": "note-1", "agent": "agent-1"},
    "note_history": {"slug": "note-1", "agent": "agent-1"},
    "knowledge_write": {"slug": "note-1", "agent": "agent-1", "text": f"# Kettle\n\n{LINE * 300}"},
    "note_put": {"slug": "note-2", "agent": "agent-1", "text": f"# Kettle\n\n{LINE * 300}"},
    "note_delete": {"slug": "note-3", "agent": "agent-1", "dry_run": True},
    "knowledge_list": {"agent": "agent-1", "limit": 1000},
    "note_list": {"agent": "agent-1", "limit": 1000},
    "note_sync": {"agent": "agent-1"},
    "knowledge_get": {"id": ENTRY + 4},
    "knowledge_delete": {"ids": [ENTRY + 4], "dry_run": True},
    "knowledge_verify": {"ids": [ENTRY + 4], "dry_run": True},
    "review_list": {"limit": 1000},
    "review_approve": {"ids": [IN_REVIEW, IN_REVIEW + 1]},
    "review_edit": {"id": IN_REVIEW + 2, "title": "u" * 200},
    "review_reject": {"ids": [IN_REVIEW + 3]},
    "chunk_list": {"document_id": LONG_DOCUMENT, "limit": 1000},
    "chunk_get": {"id": 2 * FILES + 100, "before": 50, "after": 50},
    "chunk_delete": {"ids": [1, 2], "dry_run": True},
    "kb_view": {"slug": "kb-1"},
    "kb_get": {"slug": "kb-1"},
    "kb_status": {"slug": "default"},
    "kb_check": {"slug": "default"},
    "kb_create": {"slug": "one-more", "description": "d" * 1_000},
    "kb_update": {"slug": "kb-1", "description": "e" * 1_000},
    "kb_delete": {"slug": "kb-2", "dry_run": True},
    "agent_create": {"slug": "one-more", "description": "d" * 1_000},
    "agent_get": {"slug": "agent-1"},
    "agent_update": {"slug": "agent-2", "description": "e" * 1_000},
    "agent_delete": {"slug": "agent-3", "dry_run": True},
    "agent_status": {"slug": "agent-1"},
    "agent_check": {"slug": "agent-1"},
    "session_get": {"session_id": SESSION, "limit": 1000},
    "session_search": {"query": "kettle", "limit": 100, "snippet_chars": 2000},
    "session_resume": {"session_id": SESSION, "message_id": 2},
    "session_delete": {"session_ids": [2], "dry_run": True},
    "sql_query": {"sql": "select * from chunks order by id", "limit": 1000},
    "store_export": {"path": "export.ndjson"},
    "chats_export": {"path": "chats.jsonl"},
    "events_read": {"limit": 1000, "full": True},
}


@cache
def names() -> list[str]:
    """Returns the tools that are called; to make a toolbox takes half a second."""
    tools = Toolbox(",".join([*declared.SETS, "all"])).within(ALL_SCOPES)
    return [tool["name"] for tool in tools if tool["name"] not in NOT_CALLED]


def shown(result: dict[str, Any]) -> int:
    """Returns how many bytes a client shows a model: the longer of both forms."""
    structured = json.dumps(
        result.get("structuredContent"), ensure_ascii=False, separators=(",", ":")
    )
    return max(len(text.encode()) for text in (result["content"][0]["text"], structured))


def test_no_answer_is_cut_by_a_client(full: Client, subtests: pytest.Subtests) -> None:
    for name in names():
        with subtests.test(name):
            result = full.call(name, **ARGUMENTS.get(name, {}))
            assert not result["isError"], result["content"][0]["text"]
            assert shown(result) <= CODEX_CUTS


def test_every_argument_of_this_test_is_for_a_tool() -> None:
    assert ARGUMENTS.keys() <= set(names())


@pytest.mark.parametrize(
    ("name", "arguments", "member", "text"),
    [
        ("doc_view", {"id": LONG_DOCUMENT}, "text", TEXT),
        ("knowledge_read", {"slug": "note-9", "agent": "agent-1"}, "text", None),
        ("kb_call", {"method": "knowledge.get", "params": {"id": ENTRY + 5}}, "body", None),
    ],
)
def test_a_text_is_read_page_by_page(
    full: Client, name: str, arguments: dict[str, Any], member: str, text: str | None
) -> None:
    pages: list[str] = []
    more: dict[str, Any] = {}
    while True:
        params = arguments.get("params", arguments)
        called = (
            {**arguments, "params": {**params, **more}}
            if "params" in arguments
            else {
                **params,
                **more,
            }
        )
        result = full.call(name, **called)
        answer = result["structuredContent"]
        pages.append(answer["data"][member])
        assert len(pages[-1]) <= PAGE + PAGE // 4 and shown(result) <= CODEX_CUTS
        if not answer["meta"].get("has_more"):
            break
        more = {"offset": answer["meta"]["next_offset"]}
    whole = "".join(pages)
    assert len(pages) > 1 and whole.count(LINE) >= 300
    assert text is None or whole == text


def test_source_bytes_come_part_by_part(full: Client) -> None:
    parts, offset = b"", 0
    for _ in range(3):
        answer = full.call("doc_download", id=LONG_DOCUMENT, offset=offset)["structuredContent"]
        parts += base64.b64decode(answer["data"]["content"])
        offset = answer["meta"]["next_offset"]
    assert parts == TEXT.encode()[:18_000]


def test_a_list_goes_on_with_its_cursor(full: Client) -> None:
    ids: list[int] = []
    cursor = None
    while True:
        answer = full.call("doc_list", limit=1000, cursor=cursor)["structuredContent"]
        ids += [document["id"] for document in answer["data"]]
        cursor = answer["meta"].get("next_cursor")
        if cursor is None:
            break
    assert len(ids) == len(set(ids)) >= FILES + 61


def test_hits_go_on_with_an_offset(full: Client) -> None:
    first = full.call("search_knowledge", query="kettle", limit=40)["structuredContent"]
    count = len(first["data"]["results"])
    assert 5 < count < 40 and first["meta"]["next_offset"] == count
    wire = {"query": "kettle", "offset": count, "limit": 1, "fields": ["source.document_id"]}
    (after,) = full.data("kb_call", method="search", params=wire)["results"]
    (same,) = full.data("search_knowledge", query="kettle", offset=count, limit=1)["results"]
    assert same["source"]["document_id"] == after["source"]["document_id"]


def test_the_last_messages_of_a_session_come_first(full: Client) -> None:
    params = {"session_id": SESSION, "limit": 1000}
    answer = full.call("kb_call", method="session.get", params=params)["structuredContent"]
    messages = answer["data"]["messages"]
    assert answer["meta"]["has_more"] is True
    before = {**params, "before": messages[0]["message_id"]}
    earlier = full.data("kb_call", method="session.get", params=before)["messages"]
    assert earlier[-1]["message_id"] < messages[0]["message_id"]


def test_an_added_folder_is_told_in_counts_and_ten_documents(full: Client) -> None:
    result = full.call("doc_add", paths=["docs"], tags=["kettles"])
    answer = result["structuredContent"]
    assert answer["data"]["updated"] == FILES and len(answer["data"]["documents"]) == 10
    assert answer["meta"]["left_out"] == ["documents: 90 of 100"]


def test_who_names_a_size_gets_it(full: Client) -> None:
    assert len(full.data("doc_view", id=LONG_DOCUMENT, length=30_000)["text"]) == 30_000
    params = {"limit": 200, "budget_tokens": 100_000}
    assert len(full.data("kb_call", method="doc.list", params=params)) == 200


def test_a_long_text_is_not_said_again_by_an_error(full: Client) -> None:
    result = full.call("store_knowledge", title="A fact", content=TEXT)
    assert result["isError"] and shown(result) <= CODEX_CUTS
    assert result["content"][0]["text"].startswith("input.invalid_params: body is required")


@pytest.mark.parametrize(
    "data",
    [
        {"lines": ["x" * 50_000, "y"], "count": 2},
        [{"deep": {"deeper": ["é" * 9_000] * 3}}],
        {"text": "\x01" * 20_000},
        {f"member-{n}": "z" * 500 for n in range(60)},
        "x" * 20_000,
        {"numbers": list(range(20_000)), "text": "short"},
    ],
)
def test_anything_is_made_to_fit_and_says_what_is_missing(data: Any) -> None:
    answer = fitted({"data": data, "meta": {"schema": "x/1", "seq": 1}}, WireRequest("status", {}))
    assert len(json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode()) <= CODEX_CUTS
    assert answer["meta"]["left_out"]
    small = {"data": {"text": "x" * (MOST_BYTES - 200)}, "meta": {"seq": 1}}
    assert fitted(small, WireRequest("status", {})) == small


def read_whole(one: Client, uri: str) -> str:
    """Returns the text of a resource: follows the addresses that its parts name."""
    text, is_last = "", False
    while not is_last:
        contents = one.ask("resources/read", uri=uri)["result"]["contents"]
        assert len(json.dumps(contents, ensure_ascii=False).encode()) <= CODEX_CUTS
        assert contents[0]["uri"] == uri
        text += contents[0]["text"]
        is_last = len(contents) == 1
        uri = contents[-1]["uri"]
    return text


def test_a_resource_is_read_in_parts(full: Client) -> None:
    assert read_whole(full, f"kb://doc/{LONG_DOCUMENT}") == TEXT
    assert read_whole(full, "kb://note/agent-1/note-7") == f"# Kettle 7\n\n{LINE * 300}"
    rest = full.ask("resources/read", uri=f"kb://doc/{LONG_DOCUMENT}")["result"]["contents"][1]
    name, arguments = rest["text"].partition(": ")[2].partition(", or ")[0].split(" ", 1)
    part = full.data(name, **json.loads(arguments))
    assert TEXT.startswith(part["text"], json.loads(arguments)["offset"])


def test_a_part_names_the_tool_that_reads_on(tmp_path: Path, subtests: pytest.Subtests) -> None:
    (tmp_path / "a.txt").write_text("word " * 3_000)
    with client(tmp_path, tools="doc_add") as one:
        one.data("doc_add", paths=["a.txt"])
    for tools, call in (
        ("default", 'doc_view {"id": 1, "offset": 8000}'),
        ("doc_get", 'doc_get {"id": 1, "text": true, "offset": 8000}'),
        (
            "kb_read",
            'kb_read {"method": "doc.get", "params": {"id": 1, "text": true, "offset": 8000',
        ),
        ("kb_list", "the resource kb://doc/1?offset=8000."),
    ):
        with subtests.test(tools=tools), client(tmp_path, tools=tools) as one:
            contents = one.ask("resources/read", uri="kb://doc/1")["result"]["contents"]
            assert f"at character 8,000: {call}" in contents[1]["text"]


@pytest.mark.parametrize(
    ("page", "part"), [("docs/mcp.md", "has at most {} bytes"), ("CHANGELOG.md", "fit\n  {} bytes")]
)
def test_the_pages_tell_the_size(page: str, part: str) -> None:
    assert part.format(f"{CODEX_CUTS:,}") in (REPO / page).read_text(encoding="utf-8")
