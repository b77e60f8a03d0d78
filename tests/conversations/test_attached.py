"""A process that attaches to the owner of a store answers byte for byte as over its own stdio."""

from __future__ import annotations

import itertools
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from kbproc.methods.all import registry as all_methods
from tests.conversations import transcripts
from tests.conversations.scripts import CONVERSATIONS, Conversation, make_files
from tests.kit.golden import assert_same
from tests.kit.patience import LONG
from tests.kit.schemas import published
from tests.kit.talk import Both, Process, Step, Transcript, Until

# `store_locked` needs an owner that does not listen.
ATTACHED = [name for name in transcripts.PIPED if name != "store_locked"]
QUICK = [
    "requests",
    "batches",
    "tokens",
    "many",
    "scopes",
    "waiting",
    "overloaded",
    "too_large",
    "ingest",
    "store_damaged",
]

WRITES = {name for name, m in all_methods().methods.items() if m.kind != "read"}
# Methods that write a record for a token even if nothing changes.
RECORDED = {name for name in WRITES if all_methods().methods[name].streams}
RECORDED |= {"doc.delete", "watch.add"}
SHOWING = {"events.read"}  # methods whose answers hold tokens
NAMES = re.compile(r'"token":"[^"]*"|"hash":"[0-9a-f]{32}"')


@contextmanager
def held(store: Path, cwd: Path, model: str, **more: Any) -> Iterator[Process]:
    """Runs an owner without permissions, so that a leak of its settings becomes visible."""
    allowed = {"scopes": "", "max_in_flight": 1, "max_line_bytes": 9999}
    holder = Process(store, cwd=cwd, model=model, actor="holder", **allowed, **more)
    try:
        assert holder.message()["params"]["type"] == "init"
        holder.message()
        yield holder
    finally:
        holder.stop()


def attached(talk: Conversation, folder: Path, tmp_path: Path) -> Transcript:
    with talk.around(folder) as more, held(folder / "store", tmp_path, talk.model, **more or {}):
        return transcripts.over_pipes(talk._replace(around=lambda folder: nullcontext()), folder)


def with_tokens(script: list[Step]) -> list[Step]:
    """Returns the script with a token in every write, as an attached process sends it."""
    numbers = itertools.count(1)

    def given(line: Any) -> Any:
        if isinstance(line, list):
            return [given(member) for member in line]
        if not isinstance(line, dict) or line.get("method") not in WRITES:
            return line
        params = line["params"]
        if params.get("dry_run") or "client_token" in params:
            return line
        token = f"attached-{'0' * 16}-{next(numbers)}"
        return {**line, "params": {**params, "client_token": token}}

    def step(line: Step) -> Step:
        if isinstance(line, (Until, Both)):
            return line._replace(line=given(line.line))
        return (lambda last: given(line(last))) if callable(line) else given(line)

    return [step(line) for line in script]


@pytest.mark.parametrize("name", ATTACHED if LONG else QUICK)
def test_byte_for_byte_as_over_its_own_stdio(name: str, folder: Path, tmp_path: Path) -> None:
    """Compares an attached process with the golden transcript.

    Tokens write records, which shift positions, and are shown in the history; such scripts are
    compared with a client that sends tokens itself.
    """
    talk = CONVERSATIONS[name]
    want = transcripts.golden(f"test_over_pipes[{name}]")
    got = attached(talk, folder, tmp_path)
    transcripts.check(got, published())
    if any(f'"method": "{method}"' in want for method in RECORDED | SHOWING):
        shutil.rmtree(folder)
        folder.mkdir()
        make_files(folder)
        own = transcripts.over_pipes(talk._replace(script=with_tokens(talk.script)), folder)
        assert_same(plain(own.received), plain(got.received))
    else:
        assert_same(want, got.text())


def plain(lines: list[bytes]) -> str:
    return NAMES.sub("", b"\n".join(lines).decode())
