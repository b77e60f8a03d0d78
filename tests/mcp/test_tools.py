"""The tools: their cost, their annotations, and their methods."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import Any

import pytest

from kbproc.base.errors import KbprocError
from kbproc.base.settings.config import SCOPES
from kbproc.methods.all import registry
from kbproc.surfaces.mcp import declared
from kbproc.surfaces.mcp.serve import WITHHELD, instructions
from kbproc.surfaces.mcp.toolbox import Mistake, Toolbox, writes
from tests.kit.patience import LONG
from tests.kit.talk import REPO

METHODS = registry().methods
USUAL = frozenset(SCOPES) - WITHHELD
SETS = (*declared.SETS, "all")
CONTRACT = {
    "default": "search_knowledge doc_view store_knowledge supersede_knowledge doc_add doc_list "
    "kb_list chat session_ask kb_describe kb_read kb_call",
    "minimal": "search_knowledge doc_view store_knowledge supersede_knowledge",
    "notes": "knowledge_search knowledge_read knowledge_write knowledge_list search_knowledge",
    "weknora": "kb_list kb_view doc_list doc_view doc_download chunk_list search_chunks chat "
    "session_ask agent_list agent_invoke",
}


def listed(tools: str, scopes: frozenset[str] = USUAL) -> list[dict[str, Any]]:
    return Toolbox(tools).within(scopes)


def names(tools: str, scopes: frozenset[str] = USUAL) -> list[str]:
    return [tool["name"] for tool in listed(tools, scopes)]


def tokens(value: Any) -> float:
    """Returns an estimate, four characters each; `python -m bench.mcp` uses real tokenizers."""
    text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
    return len(text) / 4


@pytest.mark.parametrize("name", CONTRACT)
def test_the_sets_are_those_of_the_contract(name: str) -> None:
    assert names(name) == CONTRACT[name].split()


def test_few_tools_cost_few_tokens() -> None:
    assert len(listed("default")) <= 12
    assert tokens(listed("default")) <= 2000
    # A model reads all but `_meta`, which is for its client.
    read = [{key: tool[key] for key in tool.keys() - {"_meta"}} for tool in listed("minimal")]
    assert tokens(read) <= 700
    assert tokens(instructions(1000)) <= 300, "with the number of entries that wait"


@pytest.mark.parametrize("tools", SETS)
def test_every_tool_says_what_it_must(tools: str) -> None:
    for tool in listed(tools, frozenset(SCOPES)):
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", tool["name"]) and len(tool["name"]) <= 40
        assert 0 < len(tool["description"]) <= declared.MOST_DESCRIPTION
        assert tool["inputSchema"]["type"] == tool["outputSchema"]["type"] == "object"
        required = tool["inputSchema"].get("required", [])
        assert set(required) <= tool["inputSchema"]["properties"].keys()
        assert "confirm" not in tool["inputSchema"]["properties"]
        hints = {"readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"}
        assert tool["annotations"].keys() == hints


@pytest.mark.parametrize("tool", declared.TOOLS, ids=lambda tool: tool.name)
def test_a_tool_names_the_sibling_that_fits_better(tool: declared.ToolDeclaration) -> None:
    siblings = {other.name for other in declared.TOOLS} - {tool.name}
    assert tool.name == "kb_call" or siblings & set(re.findall(r"[a-z_]+", tool.what))


def test_every_method_is_a_tool_of_the_whole_set() -> None:
    hidden = {"events.subscribe", "schema", "chunk.map"}
    hidden |= {"plan.list", "plan.approve", "plan.refuse"}  # because a person decides
    expected = [name.replace(".", "_") for name in METHODS if name not in hidden]
    assert names("all", frozenset(SCOPES)) == expected


@pytest.mark.parametrize("tools", SETS)
def test_nothing_destructive_is_offered_unless_somebody_said_admin(tools: str) -> None:
    destructive = {name.replace(".", "_") for name, m in METHODS.items() if m.kind == "destructive"}
    assert not destructive & set(names(tools))
    if tools == "all":
        assert destructive <= set(names(tools, frozenset(SCOPES)))


def test_a_tool_is_offered_to_those_who_may_use_it() -> None:
    reads = frozenset({"doc:read", "kb:read", "store:read"})
    offered = names("default", reads)
    assert "search_knowledge" in offered and "kb_call" in offered
    assert not {"store_knowledge", "doc_add", "chat"} & set(offered)


def annotations(name: str, scopes: frozenset[str], *, own: bool = False) -> dict[str, bool]:
    (tool,) = [one for one in Toolbox(name).within(scopes, own=own) if one["name"] == name]
    return tool["annotations"]  # type: ignore[no-any-return]


def test_a_tool_for_any_method_promises_what_its_scopes_allow() -> None:
    reads = frozenset({"doc:read", "store:read"})
    assert annotations("kb_call", reads)["readOnlyHint"]
    for scopes in (USUAL, frozenset({"doc:read", "doc:write"})):
        hints = annotations("kb_call", scopes)
        assert not hints["readOnlyHint"] and not hints["destructiveHint"]
        assert hints["openWorldHint"], "doc.fetch"
    assert annotations("kb_call", USUAL | {"admin"})["destructiveHint"]
    assert annotations("kb_call", USUAL, own=True)["destructiveHint"], "an agent's own notes"
    assert not annotations("kb_call", frozenset({"kb:write"}))["openWorldHint"]
    for scopes in (reads, USUAL, frozenset(SCOPES)):
        assert annotations("kb_read", scopes) == {
            "readOnlyHint": True,
            "destructiveHint": False,
            "idempotentHint": True,
            "openWorldHint": False,
        }


@pytest.mark.parametrize("method", METHODS)
def test_a_tool_that_reads_calls_what_reads(method: str) -> None:
    tool = Toolbox("kb_read").find("kb_read", USUAL)
    assert tool is not None
    if METHODS[method].kind == "read":
        assert tool.to_request({"method": method}).method == method
    else:
        with pytest.raises(Mistake, match="kb_call"):
            tool.to_request({"method": method})


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("store.export", {"path": "all.ndjson"}),
        ("doc.download", {"id": 1, "path": "copy.md"}),
        ("doctor", {"repair": True}),
    ],
)
def test_a_tool_that_reads_writes_no_files(method: str, params: dict[str, Any]) -> None:
    tool = Toolbox("kb_read").find("kb_read", frozenset(SCOPES))
    assert tool is not None
    with pytest.raises(Mistake, match="kb_call"):
        tool.to_request({"method": method, "params": params})


def test_a_box_whose_scopes_allow_no_search_says_which_they_lack() -> None:
    admin = frozenset({"admin"})
    assert Toolbox("default").lacks_search(admin) == "doc:read"
    assert Toolbox("default").lacks_search(USUAL) is None
    assert Toolbox("kb_list").lacks_search(admin) is None, "nobody asked for a search"


def test_ranges_stand_in_the_schemas() -> None:
    (search, view, *_) = listed("default")
    properties = search["inputSchema"]["properties"]
    assert properties["limit"] == {"type": "integer", "minimum": 1, "maximum": 100}
    assert properties["minScore"] == {"type": "number", "minimum": 0, "maximum": 1}
    assert view["inputSchema"]["properties"]["id"] == {"type": "integer"}, "no model comes near"


def test_sets_and_names_are_joined() -> None:
    assert names("minimal, kb_list,minimal,tag_list") == [*names("minimal"), "kb_list", "tag_list"]


def test_a_name_that_is_none_names_those_that_are_near() -> None:
    with pytest.raises(KbprocError) as caught:
        Toolbox("minimal,serch_knowledge")
    assert caught.value.field == "--tools"
    assert caught.value.valid_values and "search_knowledge" in caught.value.valid_values


def test_what_is_kept_is_what_is_declared() -> None:
    tools = json.loads((REPO / "kbproc" / "surfaces" / "mcp" / "tools.json").read_text())
    assert tools == declared.tools(registry())
    assert writes() == {name for name, method in METHODS.items() if method.kind != "read"}


@pytest.mark.parametrize("tool", declared.TOOLS, ids=lambda tool: tool.name)
def test_a_tool_asks_for_params_of_its_method(tool: declared.ToolDeclaration) -> None:
    entry = Toolbox(tool.name).find(tool.name, frozenset(SCOPES))
    assert entry is not None
    if not tool.method:
        return
    every = [tool.method, *tool.instead.values()]
    fields = {name for method in every for name in METHODS[method].params.__struct_fields__}
    arguments = dict.fromkeys(entry.tool["inputSchema"]["properties"])
    assert entry.to_request(arguments).params.keys() <= fields
    assert set(tool.preset) <= fields
    method = METHODS[tool.method]
    assert entry.tool["annotations"]["readOnlyHint"] == (method.kind == "read")
    assert entry.scope in (method.scope, method.own_scope)


def test_the_list_has_the_same_bytes_at_every_start() -> None:
    """The order of tools does not depend on the hash seed."""
    code = (
        "import msgspec, os\n"
        "from kbproc.surfaces.mcp.toolbox import Toolbox\n"
        "from kbproc.base.settings.config import SCOPES\n"
        "tools = Toolbox('default,weknora,notes,all').within(frozenset(SCOPES))\n"
        "os.write(1, msgspec.json.encode(tools))\n"
        "os._exit(0)\n"
    )
    lists = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=REPO,
            capture_output=True,
            check=True,
        ).stdout
        for seed in map(str, range(100 if LONG else 3))
    }
    assert len(lists) == 1 and len(lists.pop()) > 10_000
