"""The cost of an answer: every client shows its model the text or the structured content."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.kit.mcp import Client, client
from tests.kit.start import REPO

MOST_OF_FIVE = 4_000  # characters: 1,000 tokens
QUESTIONS = (
    "how is a store moved to another machine",
    "which exit code says that a person must confirm",
    "what does a hit's score mean",
    "kbproc mcp install claude-code",
    "cursor of a list",
    "undo what an agent did",
    "where do notes lie as files",
    "how long does a search take",
    "purge erases texts for good",
    "client token exactly once",
)


@pytest.fixture(scope="module")
def docs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A client of a store with the project's own pages: prose, tables and code."""
    folder = tmp_path_factory.mktemp("docs")
    with client(folder, tools="default,weknora,notes,search", root=REPO) as one:
        added = one.data("doc_add", paths=[str(REPO / "docs"), str(REPO / "README.md")])
        assert added["added"] > 20
        one.data("kb_call", method="doc.wait", params={})  # vectors change the order of hits
        yield one


def shown(result: dict[str, Any]) -> int:
    """Returns how many characters a client shows a model: the longer of both forms."""
    (content,) = result["content"]
    structured = json.dumps(result["structuredContent"], ensure_ascii=False, separators=(",", ":"))
    return max(len(content["text"]), len(structured))


@pytest.mark.parametrize("tool", ["search_knowledge", "search_chunks"])
@pytest.mark.parametrize("query", QUESTIONS)
def test_five_hits_cost_a_thousand_tokens(docs: Client, tool: str, query: str) -> None:
    result = docs.call(tool, query=query, limit=5)
    hits = result["structuredContent"]["data"]["results"]
    assert len(hits) == 5
    assert shown(result) <= MOST_OF_FIVE
    assert sum(len(hit["text"]) for hit in hits) >= 1_000


def test_a_hit_has_what_a_model_needs(docs: Client) -> None:
    result = docs.call("search_knowledge", query=QUESTIONS[0])
    answer = result["structuredContent"]
    assert answer["data"].keys() == {"results", "confidence"}, "the total is not exact"
    assert not answer["meta"].keys() & {"schema", "took_ms", "seq", "lean"}
    for hit in answer["data"]["results"]:
        assert hit["score"] == round(hit["score"], 3)
        assert hit.keys() == {"score", "text", "source", "origin"}
        assert hit["source"].keys() == {"document_id", "path", "cite", "dated"}


def test_more_of_a_hit_comes_when_asked_for(docs: Client) -> None:
    params = {"query": QUESTIONS[0], "limit": 1}
    (hit,) = docs.data("search_knowledge", **params, explain=True)["results"]
    assert hit["explain"]["formula"]
    (hit,) = docs.data("search_knowledge", **params, fields=["chunk_id", "snippet"])["results"]
    assert hit.keys() == {"chunk_id", "snippet"}
    (whole,) = docs.data("kb_call", method="search", params=params)["results"]
    assert whole["score_breakdown"] and whole["chunk_id"] == hit["chunk_id"]
    tools = {tool["name"]: tool for tool in docs.ask("tools/list")["result"]["tools"]}
    for more in ({}, {"fields": ["chunk_id"]}):
        answer = docs.call("search", **params, **more)["structuredContent"]
        jsonschema.validate(answer, tools["search"]["outputSchema"])


def test_an_error_is_told_once(docs: Client) -> None:
    result = docs.call("search_knowledge", query="x", limit=1000)
    assert result["_meta"]["kbproc/error"] == {
        "type": "input.invalid_params",
        "field": "$.params.limit",
        "retryable": False,
    }


def test_an_entry_that_holds_no_more_says_so(tmp_path: Path) -> None:
    with client(tmp_path) as one:
        old = one.data("store_knowledge", title="Builds take ten minutes", body="On one core.")
        new = one.data("store_knowledge", title="Builds take two minutes", body="On eight.")
        hits = one.data("search_knowledge", query="builds minutes")["results"]
        says = {hit["source"]["document_id"]: hit.get("conflicts") for hit in hits}
        [conflict] = says[old["id"]]  # the clock of tests gave both one moment
        words = "differs: says ten minutes; Builds take two minutes (2026-01-01) says two minutes"
        assert conflict == {"says": words} and says[new["id"]]
        one.data("supersede_knowledge", oldId=old["id"], newId=new["id"])
        hits = one.data("search_knowledge", query="builds minutes", includeSuperseded=True)
        by_id = {hit["source"]["document_id"]: hit for hit in hits["results"]}
        assert by_id[old["id"]]["superseded_by"] == by_id[old["id"]]["head"] == new["id"]
        assert "superseded_by" not in by_id[new["id"]]
