"""Both eras of the protocol, and the requests that each refuses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbproc.engine.store import in_review
from kbproc.knowledge.app.upkeep import Upkeep
from kbproc.surfaces.mcp.serve import INSTRUCTIONS, instructions
from tests.kit.mcp import ENVELOPE, MODERN, Client, client, served
from tests.kit.talk import Session

LEGACY = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")


@pytest.fixture
def modern(tmp_path: Path) -> Iterator[Client]:
    with client(tmp_path) as caller:
        yield caller


@pytest.fixture
def legacy(tmp_path: Path) -> Iterator[Client]:
    with client(tmp_path, era=LEGACY[-1]) as caller:
        yield caller


def code(answer: dict[str, Any]) -> int:
    return answer["error"]["code"]  # type: ignore[no-any-return]


def test_discover_tells_versions_capabilities_and_instructions(modern: Client) -> None:
    discovery = modern.ask("server/discover")["result"]
    assert discovery["supportedVersions"] == [MODERN]
    assert discovery["instructions"] == INSTRUCTIONS
    assert discovery["capabilities"].keys() == {"tools", "resources", "extensions"}
    assert discovery["resultType"] == "complete"
    assert (discovery["ttlMs"], discovery["cacheScope"]) == (3_600_000, "public")
    server = {"name": "kbproc", "version": "1.0.0"}
    assert discovery["_meta"] == {"io.modelcontextprotocol/serverInfo": server}


@pytest.mark.parametrize("era", LEGACY)
def test_initialize_agrees_on_every_older_version(tmp_path: Path, era: str) -> None:
    with client(tmp_path, era=era) as caller:
        result = caller.introduced["result"]
        assert result["protocolVersion"] == era
        assert result["serverInfo"] == {"name": "kbproc", "version": "1.0.0"}
        assert result["instructions"] == INSTRUCTIONS
        listed = caller.ask("tools/list")["result"]
        assert listed.keys() == {"tools"}  # no member of the newer era
        assert caller.ask("ping")["result"] == {}
        assert caller.data("kb_list")[0]["slug"] == "default"


def test_the_instructions_say_how_many_entries_wait(tmp_path: Path) -> None:
    """The number is of the last quiet moment: a client is answered before the store is open."""
    session = Session(tmp_path / "store", cwd=tmp_path)
    session.data("kb.update", slug="default", review="all")
    session.data("agent.create", slug="scout")
    entry = session.data("knowledge.store", title="Tokens last an hour", body="They do.")
    Upkeep(session.store).once()
    session.close()
    with client(tmp_path) as caller:
        discovery = caller.ask("server/discover")["result"]
        assert discovery["instructions"] == instructions(1)
        assert discovery["cacheScope"] == "private"
        caller.ask("tools/list")
    with client(tmp_path, era=LEGACY[-1], actor="scout", agent_named="1") as bound:
        assert bound.introduced["result"]["instructions"] == INSTRUCTIONS, "none of its own"
    session = Session(tmp_path / "store", cwd=tmp_path)
    session.data("review.approve", ids=[entry["id"]])
    Upkeep(session.store).once()
    assert in_review.count(session.store.folder) == 0
    session.close()


@pytest.mark.parametrize("version", ["1999-01-01", "2026-07-28", "2099-01-01"])
def test_initialize_with_another_version_is_offered_the_last(tmp_path: Path, version: str) -> None:
    with served(tmp_path) as process:
        caller = Client(process, version) if version != MODERN else None
        if caller is None:
            caller = Client(process)
            caller.era = version
            params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {}}
            caller.line({"jsonrpc": "2.0", "id": 9, "method": "initialize", "params": params})
            assert caller.answer_to(9)["result"]["protocolVersion"] == LEGACY[-1]
        else:
            assert caller.introduced["result"]["protocolVersion"] == LEGACY[-1]


def test_a_request_that_says_nothing_of_itself_is_refused(modern: Client) -> None:
    for meta in ({}, {"progressToken": 1}):
        params = {"_meta": meta}
        modern.line({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": params})
        assert code(modern.answer_to(1)) == -32602
    for missing in ENVELOPE:
        meta = {name: value for name, value in ENVELOPE.items() if name != missing}
        params = {"_meta": meta}
        modern.line({"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": params})
        answer = modern.answer_to(1)
        assert code(answer) == -32602 and missing in answer["error"]["message"]


def test_a_version_that_is_not_spoken_names_those_that_are(modern: Client) -> None:
    meta = {"io.modelcontextprotocol/protocolVersion": "2099-01-01"}
    answer = modern.ask("tools/list", meta)
    assert code(answer) == -32022
    assert answer["error"]["data"] == {"supported": [MODERN], "requested": "2099-01-01"}


@pytest.mark.parametrize(
    "method", ["initialize", "ping", "logging/setLevel", "resources/subscribe"]
)
def test_what_the_newer_era_has_no_more_is_no_method(modern: Client, method: str) -> None:
    assert code(modern.ask(method, uri="kb://doc/1")) == -32601


def test_what_the_older_era_has_not_yet_is_no_method(legacy: Client) -> None:
    assert code(legacy.ask("prompts/list")) == -32601
    assert code(legacy.ask("no/such/method")) == -32601


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"{", -32700),
        (b'{"jsonrpc":"2.0","id":5}', None),
        (b'{"jsonrpc":"1.0","id":5,"method":"tools/list"}', -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"tools/list"}', -32600),
        (b'{"jsonrpc":"2.0","id":5,"method":"tools/list","params":[]}', -32600),
        (b'{"jsonrpc":"2.0","id":5,"method":"tools/list","params":{"_meta":7}}', -32602),
        (b"[]", -32600),
        (b"\xff", -32700),
    ],
)
def test_a_broken_line_is_answered_and_the_next_one_too(
    modern: Client, line: bytes, expected: int | None
) -> None:
    modern.process.send(line)
    if expected is not None:
        answer = modern.next()
        assert code(answer) == expected
        assert answer.get("id", 5) == 5  # never null, because the protocol's schema has no null id
    assert "result" in modern.ask("server/discover")


def test_the_one_version_with_batches_has_them(tmp_path: Path) -> None:
    with client(tmp_path, era="2025-03-26") as caller:
        ping = {"jsonrpc": "2.0", "method": "ping"}
        caller.line([{**ping, "id": "a"}, {**ping, "id": "b"}])
        assert {caller.next()["id"], caller.next()["id"]} == {"a", "b"}


def test_an_id_that_is_in_flight_is_refused(modern: Client) -> None:
    params = {"name": "kb_call", "_meta": ENVELOPE}
    wait = {"method": "ping", "params": {"min_seq": 10**9}}
    call = {"jsonrpc": "2.0", "id": "x", "method": "tools/call"}
    modern.line({**call, "params": {**params, "arguments": wait}})
    modern.line({**call, "params": {**params, "arguments": wait}})
    assert code(modern.answer_to("x")) == -32600


def test_what_asks_before_the_store_is_open_is_answered_before(modern: Client) -> None:
    """The store opens slowly; a request that needs no store does not wait for it."""
    first = modern.send("tools/call", name="kb_list", arguments={})
    second = modern.send("server/discover")
    assert modern.next()["id"] == second
    assert modern.next()["id"] == first
