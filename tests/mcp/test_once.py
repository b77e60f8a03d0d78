"""A write that is asked for again because the server died happens once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kbproc.mcp.once import Once, client_of
from tests.kit.mcp import MODERN, Client, client, served
from tests.kit.patience import LONG

WRITE = "knowledge.store"
WRITES = 100 if LONG else 24


def once(folder: Path, name: str | None = "client", where: str = "store") -> Once:
    return Once(folder, name, lambda: where)


def test_the_same_request_has_the_same_token_until_it_is_answered(tmp_path: Path) -> None:
    one = once(tmp_path)
    ticket = one.take(WRITE, {"title": "a"})
    token = one.token(ticket)
    again = once(tmp_path)  # the server was killed before it answered
    assert again.token(again.take(WRITE, {"title": "a"})) == token
    again.answered(ticket)
    third = once(tmp_path)  # killed after it had answered: the request is another one
    assert third.token(third.take(WRITE, {"title": "a"})) != token


def test_two_at_the_same_time_are_two(tmp_path: Path) -> None:
    one = once(tmp_path)
    first, second = (one.take(WRITE, {"title": "a"}) for _ in range(2))
    assert first != second
    one.answered(second)
    again = once(tmp_path)
    assert again.take(WRITE, {"title": "a"}) == first
    assert again.take(WRITE, {"title": "a"}) not in (first, second)


@pytest.mark.parametrize(
    "other",
    [
        lambda folder: once(folder).take(WRITE, {"title": "b"}),
        lambda folder: once(folder).take("doc.create", {"title": "a"}),
        lambda folder: once(folder, where="another store").take(WRITE, {"title": "a"}),
    ],
)
def test_other_content_is_another_write(tmp_path: Path, other: Callable[[Path], object]) -> None:
    assert other(tmp_path) != once(tmp_path).take(WRITE, {"title": "a"})


def test_another_client_is_another_write(tmp_path: Path) -> None:
    tokens = []
    for name in ("one", "two", None, None):
        found = once(tmp_path, name)
        tokens.append(found.token(found.take(WRITE, {"title": "a"})))
    assert len(set(tokens)) == 4


def test_the_order_of_members_makes_no_other_request(tmp_path: Path) -> None:
    one, other = once(tmp_path), once(tmp_path)
    assert one.take(WRITE, {"a": 1, "b": 2}) == other.take(WRITE, {"b": 2, "a": 1})


def test_a_folder_that_cannot_be_written_leaves_each_its_own(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = once(tmp_path / "file")
    assert found.take(WRITE, {}) != found.take(WRITE, {})


def test_files_of_clients_that_have_gone_are_removed(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    (tmp_path / f"{gone.pid}-1-x-y").write_text("")
    (tmp_path / f"{os.getpid()}-1-x-y").write_text("")  # a process that had this number before
    mine = tmp_path / f"{client_of(os.getpid())}-y"
    mine.write_text("")
    (tmp_path / "else").write_text("")
    once(tmp_path, client_of(os.getpid())).take(WRITE, {})
    left = {path.name for path in tmp_path.iterdir()}
    assert mine.name in left and "else" in left and len(left) == 3


# ------------------------------------------------------------------- through the server


def done(message: Any, ids: dict[int, str], left: list[str]) -> None:
    if "id" in message and message["id"] in ids:
        assert not message["result"]["isError"]
        left.remove(ids.pop(message["id"]))


@pytest.mark.usefixtures("executed")
@pytest.mark.parametrize("era", [MODERN, "2025-11-25"])
def test_writes_under_repeated_kills_happen_once_each(tmp_path: Path, era: str) -> None:
    """The client asks again for what it got no answer to, as the protocol says."""
    wanted = [f"Fact {number}" for number in range(WRITES)]
    left = list(wanted)
    kills = 0
    while left:
        with served(tmp_path) as process:
            one = Client(process, era)
            ids = {}
            for title in left[:6]:
                arguments = {"title": title, "body": "Text."}
                ids[one.send("tools/call", name="store_knowledge", arguments=arguments)] = title
            for _ in range(min(3, len(ids))):  # more are done, some have not begun
                done(one.next(), ids, left)
            process.process.kill()
            for line in process.stdout:  # what was answered is in the pipe
                done(json.loads(line), ids, left)
            kills += 1
    assert kills >= 4
    with client(tmp_path, era=era) as one:
        found = one.data("kb_call", method="knowledge.list", params={"limit": 1000})
        assert sorted(entry["title"] for entry in found) == sorted(wanted)


@pytest.mark.usefixtures("executed")
def test_what_is_asked_twice_on_purpose_is_done_twice(tmp_path: Path) -> None:
    """In one life of the server, and in two."""
    for lives in (1, 2):
        with client(tmp_path) as one:
            for _ in range(2):
                one.data("doc_add", title="Same", text="same text")
            assert len(one.data("doc_list")) == 2 * lives
