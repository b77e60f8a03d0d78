"""No server outlives its client, however the client ends; the first answer needs no store."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.mcp import ENVELOPE
from tests.kit.patience import PATIENCE, until
from tests.kit.shell import environment
from tests.kit.start import start as start_python

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
DISCOVER = {"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": ENVELOPE}}
LIST = {
    "jsonrpc": "2.0",
    "id": 2,
    "method": "tools/call",
    "params": {"name": "kb_list", "_meta": ENVELOPE},
}
SERVER = ["-m", "kbproc", "mcp"]
# Starts the server with a stdin that another child process holds open, too.
PARENT = """
import subprocess, sys, time
reader, writer = __import__("os").pipe()
sibling = subprocess.Popen(["sleep", "600"], pass_fds=[writer])
server = subprocess.Popen(sys.argv[1:], stdin=reader)
print(server.pid, sibling.pid, flush=True)
__import__("os").write(writer, sys.stdin.readline().encode())
sys.stdin.readline()
"""


_started: list[subprocess.Popen[bytes]] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Kills the processes that a test started, and closes their pipes."""
    yield
    while _started:
        process = _started.pop()
        process.kill()
        with contextlib.suppress(BrokenPipeError):
            process.communicate()


def start(folder: Path, argv: list[str] = SERVER, **options: Any) -> subprocess.Popen[bytes]:
    env = {"PATH": "/usr/bin:/bin", **environment(folder)}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, **options}
    _started.append(start_python(argv, cwd=folder, env=env, **pipes))
    return _started[-1]


def ask(process: subprocess.Popen[bytes], message: Any) -> Any:
    assert process.stdin and process.stdout
    process.stdin.write(json.dumps(message).encode() + b"\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_ends_it(tmp_path: Path, signum: int, opened: bool) -> None:
    process = start(tmp_path)
    ask(process, LIST if opened else DISCOVER)
    process.send_signal(signum)
    assert process.wait(PATIENCE) == (130 if signum == signal.SIGINT else 0)


def test_the_end_of_stdin_ends_it_when_all_is_answered(tmp_path: Path) -> None:
    process = start(tmp_path)
    out, _ = process.communicate(json.dumps(LIST).encode() + b"\n", PATIENCE)
    assert json.loads(out)["result"]["structuredContent"]["data"][0]["slug"] == "default"
    assert process.returncode == 0


def test_nobody_reads_the_answers_any_more(tmp_path: Path) -> None:
    """The process ends although another process keeps its stdin open."""
    process = start(tmp_path)
    ask(process, LIST)
    assert process.stdout
    process.stdout.close()
    assert process.wait(PATIENCE) == 0


@pytest.mark.usefixtures("executed")
@pytest.mark.parametrize("attached", [False, True])
def test_a_parent_that_is_killed_leaves_nothing(tmp_path: Path, attached: bool) -> None:
    """A sibling of the server keeps its stdin open."""
    if attached:
        owner = start(tmp_path)
        ask(owner, LIST)
    parent = start(tmp_path, ["-c", PARENT, sys.executable, *SERVER])
    assert parent.stdin and parent.stdout
    server, sibling = map(int, parent.stdout.readline().split())
    try:
        parent.stdin.write(json.dumps(LIST).encode() + b"\n")
        parent.stdin.flush()
        assert json.loads(parent.stdout.readline())["id"] == 2
        assert is_alive(server)
        parent.kill()
        parent.wait()
        until(lambda: not is_alive(server), "the server's end")
        assert is_alive(sibling)
    finally:
        os.kill(sibling, signal.SIGKILL)
    if attached:
        assert ask(owner, DISCOVER)["id"] == 1  # the owner outlives the other server
        owner.kill()
        owner.wait()


def test_two_clients_share_one_store(tmp_path: Path) -> None:
    one, other = start(tmp_path), start(tmp_path)
    ask(one, LIST)
    ask(other, LIST)
    arguments = {"title": "One", "text": "shared text"}
    params = {"name": "doc_add", "arguments": arguments, "_meta": ENVELOPE}
    ask(one, {**LIST, "params": params})
    params = {"name": "doc_list", "_meta": ENVELOPE}
    documents = ask(other, {**LIST, "params": params})["result"]["structuredContent"]["data"]
    assert [document["title"] for document in documents] == ["One"]
    one.kill()  # the owner of the store; the other takes over
    one.wait()
    documents = ask(other, {**LIST, "params": params})["result"]["structuredContent"]["data"]
    assert [document["title"] for document in documents] == ["One"]
    other.kill()
    other.wait()


def test_a_wrong_flag_is_told_before_anything_is_served(tmp_path: Path) -> None:
    for flags in (
        ["--tools", "nope"],
        ["--scopes", "nope"],
        ["--scopes", "+nope"],
        ["--scopes", "doc:read,+admin"],
        ["--nope"],
    ):
        process = start(tmp_path, [*SERVER, *flags], stderr=subprocess.PIPE)
        out, err = process.communicate(timeout=PATIENCE)
        assert (process.returncode, out) == (1, b"")
        assert json.loads(err)["error"]["type"] == "input.invalid_params"


def test_what_comes_first_is_answered_without_what_is_heavy() -> None:
    """The first answer imports quickly: no library of the store, no SDK."""
    code = (
        "import sys\n"
        "import kbproc.surfaces.mcp.serve\n"
        "heavy = {'duckdb', 'numpy', 'tantivy', 'pydantic', 'mcp', 'httpx', 'asyncio'}\n"
        "heavy |= {'kbproc.methods.all', 'kbproc.engine.store.store'}\n"
        "heavy |= {'kbproc.surfaces.sharing.serve'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
