"""Golden transcripts: raw bytes, in memory and over real pipes, all fitting the schemas.

`pytest tests/conversations --snapshot-update` rewrites them; review the diff.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from kbproc.base.errors import ERRORS
from kbproc.methods.all import registry as all_methods
from kbproc.methods.calls.schemas import all_schemas
from kbproc.surfaces.shell.commands import OWN_COMMANDS
from tests.conversations.commands import COMMANDS, WITHOUT, in_format
from tests.conversations.scripts import CONVERSATIONS
from tests.conversations.transcripts import (
    GOLDEN,
    IN_MEMORY,
    PIPED,
    QUICK,
    TOYS,
    check,
    golden,
    in_memory,
    messages,
    over_pipes,
)
from tests.kit import shell, toys
from tests.kit.fixed import FixedHost
from tests.kit.golden import Transcripts
from tests.kit.patience import all_or
from tests.kit.schemas import published
from tests.kit.talk import Message

# Commands whose output is more than one method's answer.
SHELL = {
    "profiles": [
        ["profile", "save", "work", "--store", "kb", "--kb", "papers"],
        ["profile", "list"],
        ["profile", "show", "work"],
        ["kb", "list", "--profile", "wrok"],
        ["profile", "use", "wrok"],
        ["profile", "delete", "work"],
        ["link", "--kb", "default"],
        ["kb", "list", "--jq", ".data[].slug"],
        ["unlink"],
        ["profile", "save", "reading", "--kb", "default"],
        ["chat", "What do zebras eat?", "--profile", "reading", "--format", "ndjson"],
        ["session", "create", "Zebras", "--profile", "reading", "--jq", ".data.kb"],
    ],
    **{f"commands_{format}": in_format(format) for format in ("json", "ndjson", "text")},
}


@pytest.fixture
def transcripts(snapshot: SnapshotAssertion) -> SnapshotAssertion:
    return snapshot.use_extension(Transcripts)


@pytest.mark.parametrize("name", IN_MEMORY)
def test_in_memory(name: str, folder: Path, transcripts: SnapshotAssertion) -> None:
    got = in_memory(CONVERSATIONS[name], folder)
    check(got, published())
    assert got.text() == transcripts


# The code is the same except for the pipes, so a few conversations are enough.
@pytest.mark.parametrize("name", all_or(QUICK, PIPED))
def test_over_pipes(name: str, folder: Path, transcripts: SnapshotAssertion) -> None:
    got = over_pipes(CONVERSATIONS[name], folder)
    check(got, published())
    assert got.text() == transcripts


@pytest.mark.parametrize("name", TOYS)
def test_toys(name: str, folder: Path, transcripts: SnapshotAssertion) -> None:
    got = in_memory(CONVERSATIONS[name], folder)
    check(got, all_schemas(toys.registry().methods.values()))
    assert got.text() == transcripts


@pytest.mark.parametrize("name", SHELL)
def test_shell(
    name: str,
    folder: Path,
    transcripts: SnapshotAssertion,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("kbproc.surfaces.shell.run.Host", FixedHost)
    run, lines = shell.in_process(folder, monkeypatch, capsys), []
    for argv in SHELL[name]:
        code, out, err = run(*argv)
        lines += [
            " ".join(["$ kbproc", *argv]).replace("\n", "\\n"),
            *(f"1 {line}" for line in out.splitlines()),
        ]
        lines += [*(f"2 {line}" for line in err.splitlines()), f"exit {code}"]
    assert "\n".join([*lines, ""]) == transcripts


# ------------------------------------------------------------------ what is covered


# tests/cluster/test_nodes.py has servers, tests/models/test_install.py a package index.
NEED_SERVERS = {"cluster.reseed", "model.install"}
# tests/documents/test_chats.py has the logs of agents, whose folders lie in the home.
NEED_LOGS = {"chats.add", "chats.export"}


def _received() -> Iterator[Message]:
    for path in GOLDEN.iterdir():
        lines = [line[2:].encode() for line in path.read_text().splitlines() if line[:2] == "< "]
        yield from messages(lines)


def _told_by_shell() -> Iterator[str]:
    """Yields the errors on stderr in the shell's goldens."""
    for name in SHELL:
        for line in golden(f"test_shell[{name}]").splitlines():
            if line.startswith("2 {") and "error" in json.loads(line[2:]):
                yield line[2:]


def test_every_method_answers_in_a_golden() -> None:
    answered = {
        message["result"]["meta"]["schema"].removesuffix("/1")
        for message in _received()
        if "result" in message
    }
    ending = {name for name, method in all_methods().methods.items() if method.result is not None}
    assert ending - answered == NEED_SERVERS | NEED_LOGS


def test_every_command_prints_in_a_golden() -> None:
    named = {" ".join(argv) for argv in (*COMMANDS, *SHELL["profiles"])}
    commands = {name.replace(".", " ") for name in all_methods().methods} | set(OWN_COMMANDS)
    assert {
        command
        for command in commands - WITHOUT
        if not any(f"{line} ".startswith(f"{command} ") for line in named)
    } == set()


def test_every_error_type_is_in_a_golden() -> None:
    emitted = {message["error"]["data"]["type"] for message in _received() if "error" in message}
    emitted |= {json.loads(line)["error"]["type"] for line in _told_by_shell()}
    metas = [message["result"]["meta"] for message in _received() if "result" in message]
    emitted |= {meta["partial"]["type"] for meta in metas if "partial" in meta}
    assert set(ERRORS) - emitted == set()


def test_no_stray_files() -> None:
    expected = {f"test_over_pipes[{name}].txt" for name in PIPED}
    expected |= {f"test_toys[{name}].txt" for name in TOYS}
    expected |= {f"test_shell[{name}].txt" for name in SHELL}
    assert {path.name for path in GOLDEN.iterdir()} == expected
    assert [path.name for path in GOLDEN.parent.iterdir() if path.is_file()] == []
