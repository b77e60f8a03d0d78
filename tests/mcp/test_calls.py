"""Tool calls: their results, and errors that show how to correct a call."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.mcp import MODERN, Client, client, served

ERAS = (MODERN, "2025-11-25")


@pytest.fixture(params=ERAS)
def caller(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Client]:
    with client(tmp_path, era=request.param) as one:
        yield one


def told(result: dict[str, Any]) -> str:
    assert result["isError"] and "structuredContent" not in result
    (content,) = result["content"]
    assert content["type"] == "text"
    return content["text"]  # type: ignore[no-any-return]


def test_the_default_tools_do_what_they_say(caller: Client, tmp_path: Path) -> None:
    (tmp_path / "guide.md").write_text("# Install\n\nInstall git with apt.\n")
    entry = caller.data(
        "store_knowledge",
        title="The CI cache is keyed by the lock file",
        body="Deleting the lock file drops the cache.",
        expiresAt="2030-01-01",
        taskRef={"taskId": "T-17"},
        clientToken="t1",
    )
    assert entry["expires_at"] == "2030-01-01T00:00:00.000Z"
    assert entry["task_ref"] == {"task_id": "T-17", "kind": "references"}
    better = caller.data("store_knowledge", title="The CI cache is keyed twice", body="By two.")
    caller.data("supersede_knowledge", oldId=entry["id"], newId=better["id"])
    text = caller.data("doc_add", title="Notes", text="git is installed with apt")
    files = caller.data("doc_add", paths=["guide.md"])
    assert files["added"] == 1
    hits = caller.data("search_knowledge", query="install git", mode="fts")["results"]
    assert {hit["source"]["cite"] for hit in hits} == {"Notes", "Install, line 3"}
    all_hits = caller.data("search_knowledge", query="cache", mode="fts", includeSuperseded=True)
    assert all_hits["total_matches"] == 2
    assert caller.data("doc_view", id=text["id"])["text"] == "git is installed with apt"
    assert len(caller.data("doc_list", types=["text"])) == 1
    assert [kb["slug"] for kb in caller.data("kb_list")] == ["default"]
    answer = caller.data("chat", question="how is git installed?")
    again = caller.data("session_ask", session_id=answer["session_id"], question="and apt?")
    assert again["session_id"] == answer["session_id"]
    assert caller.data("kb_describe", name="tag.list")["name"] == "tag.list"
    assert "tag.list" in {line["name"] for line in caller.data("kb_describe")["methods"]}
    assert caller.data("kb_call", method="tag.list") == []
    assert caller.data("kb_read", method="tag.list") == []
    assert "kb_call" in told(caller.call("kb_read", method="kb.create", params={"slug": "new"}))


def test_a_wrong_argument_is_told_by_the_name_that_the_caller_gave(caller: Client) -> None:
    text = told(caller.call("store_knowledge", title="x", body="y", expiresAt="2001-01-01"))
    assert text.startswith("input.invalid_params: ") and "expires_at" in text
    text = told(caller.call("supersede_knowledge", oldId="one", newId=2))
    assert "oldId" in text
    text = told(caller.call("search_knowledge", query="x", limit=1000))
    assert "limit" in text and "100" in text and "$.params" not in text
    text = told(caller.call("search_knowledge", query="x", lmit=5))
    assert "limit" in text.partition("Valid: ")[2]
    text = told(caller.call("search_knowledge", query="x", types=["markdwon"]))
    assert '"types":["markdown"]' in text.partition("Try: ")[2]


def test_a_wrong_method_of_any_names_the_right_one(caller: Client) -> None:
    result = caller.call("kb_call", method="tags.list")
    assert '{"method":"tag.list","params":{}}' in told(result)
    assert result["_meta"]["kbproc/error"]["type"] == "input.unknown_method"
    assert "kb_describe" in told(caller.call("kb_call"))
    assert "params" in told(caller.call("kb_call", method="doc.get", id=1))


def test_an_unknown_tool_is_a_mistake_of_the_protocol(caller: Client) -> None:
    for params in ({"name": "nope"}, {}, {"name": "kb_list", "arguments": []}):
        assert caller.ask("tools/call", **params)["error"]["code"] == -32602
    message = caller.ask("tools/call", name="store_knowlege")["error"]["message"]
    assert message == "There is no tool 'store_knowlege'. Did you mean store_knowledge?"
    assert len(caller.ask("tools/call", name="x" * 5000)["error"]["message"]) < 200


def test_nobody_confirms_a_plan_by_an_argument(caller: Client) -> None:
    assert "person" in told(caller.call("kb_call", method="doc.delete", params={"confirm": "x"}))
    assert "person" in told(caller.call("doc_add", paths=["."], prune=True, confirm="x"))


def test_what_is_not_allowed_is_not_done(caller: Client, tmp_path: Path) -> None:
    caller.data("doc_add", title="a", text="b")
    text = told(caller.call("kb_call", method="doc.delete", params={"ids": [1]}))
    assert text.startswith("auth.insufficient_scope") and "kbproc mcp --scopes +admin" in text
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "gone.md").write_text("# Gone\n")
    caller.data("doc_add", paths=["docs"])
    (folder / "gone.md").unlink()
    text = told(caller.call("doc_add", paths=["docs"], prune=True))
    assert text.startswith("auth.insufficient_scope") and "--scopes +admin" in text
    assert caller.data("doc_view", id=1)["title"] == "a"


def test_a_scope_is_added_to_the_usual_ones(tmp_path: Path) -> None:
    with client(tmp_path) as one:
        usual = [tool["name"] for tool in one.ask("tools/list")["result"]["tools"]]
    with client(tmp_path, scopes="+admin") as one:
        tools = {tool["name"]: tool for tool in one.ask("tools/list")["result"]["tools"]}
        assert list(tools) == usual
        assert tools["kb_call"]["annotations"]["destructiveHint"]
        added = one.data("doc_add", title="a", text="b")
        plan = {"ids": [added["id"]], "dry_run": True}
        assert one.call("kb_call", method="doc.delete", params=plan)["isError"] is False
        sees = {"sql": "select count(*) from documents"}
        assert one.data("kb_read", method="sql.query", params=sees)["rows"] == [[1]]


def test_a_scope_that_takes_the_others_away_is_remarked(tmp_path: Path) -> None:
    with served(tmp_path, scopes="admin") as process:
        one = Client(process)
        assert [tool["name"] for tool in one.ask("tools/list")["result"]["tools"]] == [
            *("kb_read", "kb_call")
        ]
        assert "--scopes admin lacks doc:read" in process.told()
    with served(tmp_path, scopes="+admin") as process:
        Client(process).ask("tools/list")
        assert "lacks" not in process.told()


def test_an_agent_is_served_its_notes(tmp_path: Path) -> None:
    with client(tmp_path, scopes="admin,agent:write,agent:read,store:read") as one:
        one.data("kb_call", method="agent.create", params={"slug": "scribe"})
    with client(tmp_path, tools="", actor="scribe", agent_named="1") as one:
        listed = one.ask("tools/list")["result"]
        assert [tool["name"] for tool in listed["tools"]][:1] == ["knowledge_search"]
        assert listed["cacheScope"] == "private"
        one.data("knowledge_write", slug="deploys", text="# Deploys\n\nOn Fridays never.")
        assert one.data("knowledge_read", slug="deploys")["title"] == "Deploys"
        (hit,) = one.data("knowledge_search", query="fridays", mode="fts")
        assert hit["slug"] == "deploys"
        assert [note["slug"] for note in one.data("knowledge_list")] == ["deploys"]
        read = one.ask("resources/read", uri="kb://note/scribe/deploys")["result"]
        assert read["contents"][0]["text"].startswith("# Deploys")


def test_progress_comes_to_those_who_ask_for_it_and_grows(caller: Client, tmp_path: Path) -> None:
    for number in range(40):
        (tmp_path / f"{number}.md").write_text(f"# Page {number}\n\nText.\n")
    name, arguments = "doc_add", {"paths": ["."]}
    answer = caller.ask("tools/call", {"progressToken": "p"}, name=name, arguments=arguments)
    assert answer["result"]["structuredContent"]["data"]["added"] == 40
    steps = [message["params"] for message in caller.told]
    assert steps and all(step["progressToken"] == "p" for step in steps)
    done = [step["progress"] for step in steps]
    assert done == sorted(set(done))
    caller.told.clear()
    caller.data("doc_add", paths=["."])
    assert caller.told == []


def test_a_folder_around_the_servers_own_files_is_read_without_them(
    caller: Client, tmp_path: Path
) -> None:
    """The server's files include a secret key, whose random bytes may look like text."""
    (tmp_path / "one.md").write_text("# One\n\nText.\n")
    caller.data("doc_add", paths=["one.md"])
    [key] = tmp_path.glob("runtime/**/key")
    key.with_name("note.md").write_text("a text beside the key")
    data = caller.data("doc_add", paths=["."])
    assert (data["added"], data["unchanged"], data["empty"]) == (0, 1, 0)


def test_a_cancelled_request_gets_no_answer(caller: Client) -> None:
    wait = {"name": "kb_call", "arguments": {"method": "ping", "params": {"min_seq": 10**9}}}
    id = caller.send("tools/call", **wait)
    caller.notify("notifications/cancelled", requestId=id)
    caller.data("kb_list")
    assert id not in [message.get("id") for message in caller.told]
    caller.notify("notifications/cancelled", requestId="never was")
    caller.data("kb_list")


def test_a_document_is_a_resource(caller: Client) -> None:
    assert caller.ask("resources/list")["result"]["resources"] == []
    caller.data("doc_add", title="One", text="the text")
    (resource,) = caller.ask("resources/list")["result"]["resources"]
    assert resource == {"uri": "kb://doc/1", "name": "One", "mimeType": "text/plain"}
    (contents,) = caller.ask("resources/read", uri="kb://doc/1")["result"]["contents"]
    assert contents == {"uri": "kb://doc/1", "mimeType": "text/plain", "text": "the text"}
    templates = caller.ask("resources/templates/list")["result"]["resourceTemplates"]
    assert [one["uriTemplate"] for one in templates] == [
        "kb://doc/{id}",
        "kb://note/{agent}/{slug}",
    ]
    missing = -32602 if caller.era == MODERN else -32002
    for uri in ("kb://doc/99", "kb://else/1", "file:///etc/passwd"):
        answer = caller.ask("resources/read", uri=uri)
        assert (answer["error"]["code"], answer["error"]["data"]["uri"]) == (missing, uri)


def test_the_list_of_resources_has_pages(caller: Client) -> None:
    documents = [{"title": f"{n}", "text": f"text {n}"} for n in range(60)]
    caller.data("kb_call", method="doc.create", params={"documents": documents})
    first = caller.ask("resources/list")["result"]
    second = caller.ask("resources/list", cursor=first["nextCursor"])["result"]
    assert len(first["resources"] + second["resources"]) == 60
    assert "nextCursor" not in second
    assert caller.ask("resources/list", cursor="nonsense")["error"]["code"] == -32602
