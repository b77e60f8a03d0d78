"""The official SDK's client: introducing itself, discovering by itself, and pinned."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from kbproc.methods.all import registry
from kbproc.surfaces.mcp.declared import SETS
from tests.kit.patience import all_or
from tests.kit.program import program
from tests.kit.shell import environment
from tests.kit.talk import REPO
from tests.kit.world import filled

INSTALLED = Path(sys.executable).with_name("kbproc")
MODES = ("legacy", "auto", "2026-07-28")
SCOPES = "admin,doc:read,doc:write,store:read,kb:read,knowledge:read,knowledge:write,session:write"
# Arguments for each tool; later calls use the documents of earlier calls.
CALLS: dict[str, dict[str, Any]] = {
    "store_knowledge": {"title": "The cache is keyed by lock file", "body": "Of the project."},
    "supersede_knowledge": {"oldId": 1, "newId": 2},
    "doc_add": {"title": "Git", "text": "Install git with apt."},
    "search_knowledge": {"query": "install git", "mode": "fts"},
    "doc_view": {"id": 3},
    "doc_list": {},
    "kb_list": {},
    "chat": {"question": "How is git installed?"},
    "session_ask": {"session_id": 1, "question": "And with apt?"},
    "kb_describe": {"name": "tag.list"},
    "kb_read": {"method": "tag.list"},
    "kb_call": {"method": "tag.list"},
}


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yields a kbproc that this process forks; the SDK would start a new interpreter."""
    path = tmp_path_factory.mktemp("bin") / "kbproc"
    with program(path):
        yield path


def server(folder: Path, *flags: str, command: Path) -> Any:
    from mcp.client.stdio import StdioServerParameters, stdio_client

    parameters = StdioServerParameters(
        command=str(command),
        args=["mcp", "--root", str(folder), *flags],  # the folder is the home, too
        env={**environment(folder), "PYTHONPATH": str(REPO), "PATH": "/usr/bin:/bin"},
        cwd=folder,
    )
    return stdio_client(parameters)


def client(process: Any, **options: Any) -> Any:
    """Returns the SDK's client; the SDK takes long to import, so a collection leaves it out."""
    import mcp

    return mcp.Client(process, **options)


@pytest.mark.parametrize("mode", MODES)
def test_every_tool_is_listed_and_called(tmp_path: Path, mode: str) -> None:
    async def talk() -> None:
        async with client(server(tmp_path, command=INSTALLED), mode=mode) as talking:
            tools = (await talking.list_tools()).tools
            assert {tool.name for tool in tools} == CALLS.keys()
            entry = CALLS["store_knowledge"]
            await talking.call_tool("store_knowledge", {**entry, "title": "An older one"})
            for name, arguments in CALLS.items():
                result = await talking.call_tool(name, arguments)
                assert not result.is_error, (name, result)
                assert result.structured_content is not None
            assert (await talking.list_resources()).resources
            (contents,) = (await talking.read_resource("kb://doc/3")).contents
            assert getattr(contents, "text", None) == "Install git with apt."
            assert len((await talking.list_resource_templates()).resource_templates) == 2

    anyio.run(talk)


# Arguments that fit the store of the examples.
OF_SETS: dict[str, dict[str, Any]] = {
    "search_knowledge": {"query": "install git", "mode": "fts"},
    "doc_view": {"id": 1},
    "store_knowledge": {"title": "The cache is empty at night", "body": "As a job clears it."},
    "supersede_knowledge": {"oldId": 3, "newId": 4},
    "kb_list": {},
    "kb_view": {"slug": "default"},
    "doc_list": {},
    "doc_download": {"id": 1},
    "chunk_list": {"document_id": 1},
    "search_chunks": {"query": "install git", "mode": "fts"},
    "chat": {"question": "How is git installed?"},
    "session_ask": {"session_id": 1, "question": "And with apt?"},
    "agent_list": {},
    "agent_invoke": {"slug": "gitea", "question": "How are hooks signed?"},
    "knowledge_search": {"query": "hooks"},
    "knowledge_read": {"slug": "gitea-webhooks"},
    "knowledge_write": {"slug": "runners", "text": "# Runners\n\nThere are two."},
    "knowledge_list": {},
}
# Tools whose effect a person has to approve.
FOR_A_PERSON = {"knowledge_verify"}
IN_SETS = {name: [] for name in SETS if name != "default"} | {"notes": ["--agent", "gitea"]}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return filled(tmp_path_factory.mktemp("world"))


@pytest.fixture
def folder(world: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(world, tmp_path / "world"))


@pytest.mark.parametrize("mode", all_or(["auto"], MODES))
@pytest.mark.parametrize("tools", IN_SETS)
def test_every_tool_of_the_other_sets(folder: Path, tools: str, mode: str, command: Path) -> None:
    async def talk() -> None:
        process = server(
            folder, "--tools", tools, "--store", "store", *IN_SETS[tools], command=command
        )
        async with client(process, mode=mode) as talking:
            names = [tool.name for tool in (await talking.list_tools()).tools]
            assert names == list(SETS[tools])
            for name in names:
                result = await talking.call_tool(name, OF_SETS[name])
                assert not result.is_error, (name, result)
                assert result.structured_content is not None

    anyio.run(talk)


@pytest.mark.parametrize("mode", all_or(["auto"], MODES))
def test_every_method_as_a_tool(folder: Path, mode: str, command: Path) -> None:
    """Each tool runs its first example; an example that exits with an error is a tool error."""
    methods = {name.replace(".", "_"): method for name, method in registry().methods.items()}

    async def talk() -> None:
        async with client(
            server(folder, "--tools", "all", "--store", "store", command=command), mode=mode
        ) as talking:
            tools = (await talking.list_tools()).tools
            assert len(tools) > len(SETS["default"])
            for tool in tools:
                example = methods[tool.name].examples[0]
                result = await talking.call_tool(tool.name, dict(example.params))
                is_refused = example.exit != 0 or tool.name in FOR_A_PERSON
                assert result.is_error == is_refused, (tool.name, result)

    anyio.run(talk)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("action", ["accept", "decline"])
def test_a_person_approves_a_plan(tmp_path: Path, mode: str, action: Any, command: Path) -> None:
    messages = []

    async def decide(context: Any, params: Any) -> Any:
        from mcp_types import ElicitResult

        messages.append(params.message)
        return ElicitResult(action=action, content={} if action == "accept" else None)

    async def talk() -> None:
        process = server(tmp_path, "--scopes", SCOPES, command=command)
        async with client(process, mode=mode, elicitation_callback=decide) as talking:
            await talking.call_tool("doc_add", {"title": "Git", "text": "Install git."})
            delete = {"method": "doc.delete", "params": {"ids": [1]}}
            result = await talking.call_tool("kb_call", delete)
            assert result.is_error == (action == "decline")
            assert "Git" in messages[0]

    anyio.run(talk)


@pytest.mark.parametrize("mode", MODES)
def test_progress_comes(tmp_path: Path, mode: str, command: Path) -> None:
    for number in range(40):
        (tmp_path / f"{number}.md").write_text(f"# Page {number}\n\nText.\n")
    steps: list[tuple[float, float | None]] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        steps.append((done, total))

    async def talk() -> None:
        async with client(server(tmp_path, command=command), mode=mode) as talking:
            arguments = {"paths": ["."]}
            result = await talking.call_tool("doc_add", arguments, progress_callback=progress)
            assert not result.is_error

    anyio.run(talk)
    assert steps and steps == sorted(steps)
