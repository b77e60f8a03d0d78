"""The server reads files below the folder that the user or the client names."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.mcp import Client, Message, client, served

ERA = "2025-11-25"
FROM = "import os, runpy; {}; runpy.run_module('tests.kit.fixed', run_name='__main__')"


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    """A folder with one file, inside a folder with another file."""
    folder = tmp_path / "with a space" / "docs"
    folder.mkdir(parents=True)
    (folder / "inside.md").write_text("# Inside\n\nText.\n")
    (folder.parent / "outside.md").write_text("# Outside\n\nText.\n")
    return folder


def counts(answer: Message) -> dict[str, Any]:
    assert not answer["isError"], answer
    return answer["structuredContent"]["data"]  # type: ignore[no-any-return]


def kind(answer: Message) -> str:
    assert answer["isError"], answer
    return str(answer["_meta"]["kbproc/error"]["type"])


@contextlib.contextmanager
def rooted(folder: Path, roots: Any, **options: Any) -> Iterator[Client]:
    """Yields a client that declares roots, and answers with these roots."""
    with client(folder, era=ERA, can={"roots": {"listChanged": True}}, **options) as lines:
        question = lines.until("roots/list")
        lines.line({"jsonrpc": "2.0", "id": question["id"], **roots})
        yield lines


def uris(*roots: str) -> dict[str, Any]:
    return {"result": {"roots": [{"uri": root, "name": "a root"} for root in roots]}}


@pytest.mark.parametrize("era", [ERA, "2026-07-28"])
def test_relative_paths_start_at_the_root(tmp_path: Path, docs: Path, era: str) -> None:
    with client(tmp_path, era=era, root=str(docs)) as lines:
        assert counts(lines.call("doc_add", paths=["inside.md"]))["added"] == 1
        assert kind(lines.call("doc_add", paths=["../outside.md"])) == "path.outside_root"
        listed = lines.call("kb_call", method="doc.list", params={"path_prefix": "inside"})
        assert len(counts(listed)) == 1


def test_a_file_uri_is_a_path(tmp_path: Path, docs: Path) -> None:
    with client(tmp_path, root=str(docs)) as lines:
        assert counts(lines.call("doc_add", paths=[docs.as_uri()]))["added"] == 1
        outside = (docs.parent / "outside.md").as_uri()
        assert kind(lines.call("doc_add", paths=[outside])) == "path.outside_root"
        elsewhere = lines.call("doc_add", paths=["file://server/share/a.md"])
        assert kind(elsewhere) == "input.invalid_params"


def test_the_clients_root_is_the_root(tmp_path: Path, docs: Path) -> None:
    roots = uris("https://example.com/repo", "file:///nowhere", docs.as_uri(), tmp_path.as_uri())
    with rooted(tmp_path, roots) as lines:
        assert counts(lines.call("doc_add", paths=["inside.md"]))["added"] == 1
        assert kind(lines.call("doc_add", paths=["../outside.md"])) == "path.outside_root"


@pytest.mark.parametrize(
    "answer",
    [
        uris(),
        uris("file:///nowhere"),
        {"result": {"roots": 5}},
        {"error": {"code": -1, "message": "no"}},
    ],
)
def test_without_a_usable_root_the_working_folder_stays(
    tmp_path: Path, docs: Path, answer: Any
) -> None:
    with rooted(tmp_path, answer) as lines:
        assert counts(lines.call("doc_add", paths=["with a space/docs"]))["added"] == 1


def test_calls_before_the_roots_are_known_wait_for_them(tmp_path: Path, docs: Path) -> None:
    """Long calls fill the pipe, which must not keep the server from reading the roots."""
    with client(tmp_path, era=ERA, can={"roots": {}}) as lines:
        texts = ["word " * 20_000, "other " * 20_000]
        ids = [
            lines.send("tools/call", name="doc_add", arguments={"text": text, "title": text[:4]})
            for text in texts
        ]
        file = lines.send("tools/call", name="doc_add", arguments={"paths": ["inside.md"]})
        question = next(m for m in [*lines.told, lines.next()] if m.get("method") == "roots/list")
        lines.line({"jsonrpc": "2.0", "id": question["id"], **uris(docs.as_uri())})
        waiting = {*ids, file}
        while waiting:
            message = lines.next()
            assert not message["result"]["isError"]
            waiting.remove(message["id"])


def test_a_client_that_does_not_answer_keeps_its_tools(tmp_path: Path, docs: Path) -> None:
    with client(tmp_path, era=ERA, can={"roots": {}}, roots_seconds="0.2") as lines:
        assert counts(lines.call("doc_add", paths=["with a space/docs"]))["added"] == 1


def test_a_flag_comes_before_the_clients_roots(tmp_path: Path, docs: Path) -> None:
    with client(tmp_path, era=ERA, can={"roots": {}}, root=str(docs)) as lines:
        assert counts(lines.call("doc_add", paths=["inside.md"]))["added"] == 1
        assert not any(message.get("method") == "roots/list" for message in lines.told)


@pytest.mark.parametrize("line", ["os.environ['HOME'] = os.getcwd()", "os.chdir('/')"])
def test_the_home_and_what_lies_around_it_are_no_root_by_themselves(
    tmp_path: Path, docs: Path, line: str
) -> None:
    """Desktop programs start servers there, without meaning to share every file."""
    program = FROM.format(line)
    with client(tmp_path, program=program) as lines:
        refused = lines.call("doc_add", paths=[str(docs)])
        assert kind(refused) == "path.outside_root"
        assert "--root" in json.dumps(refused["content"])
        assert counts(lines.call("doc_add", text="Some words.", title="A"))
    with rooted(tmp_path, uris(docs.as_uri()), program=program) as lines:
        assert counts(lines.call("doc_add", paths=["inside.md"]))["added"] == 1
    with client(tmp_path, program=program, root=str(tmp_path)) as lines:
        assert counts(lines.call("doc_add", paths=["with a space/outside.md"]))["added"] == 1


def test_a_server_that_is_asked_for_nothing_ends(tmp_path: Path) -> None:
    with served(tmp_path) as process:
        assert process.close() == []
