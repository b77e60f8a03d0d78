"""The bundle of all schemas and the index of lines describe every line of the goldens."""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest

from kbproc.methods.all import registry
from tests.calls.compat import BASELINE
from tests.kit.golden import Told, told
from tests.kit.schemas import published
from tests.kit.talk import REPO
from tools.generate.bundle import bundle, index

METHODS = registry().methods
TRANSCRIPTS = sorted((REPO / "golden" / "test_golden").glob("test_over_pipes*"))


@functools.cache
def bundled() -> dict[str, Any]:
    return bundle(published())


@functools.cache
def indexed() -> dict[str, Any]:
    return index(METHODS.values())


@functools.cache
def validator(type: str, lean: bool = False) -> Any:
    whole = {"$ref": f"#/$defs/{type}", "$defs": bundled()["$defs"]}
    return jsonschema_rs.validator_for(bare(whole) if lean else whole)


def bare(schema: Any) -> Any:
    """Returns the schema without required members, as the index describes lean answers."""
    if isinstance(schema, list):
        return [bare(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: bare(part)
        for key, part in schema.items()
        if key != "required" or not isinstance(part, list)
    }


def types_of(line: Told) -> Iterator[tuple[str, Any]]:
    """Yields each type that the index gives the line, with the part of the line."""
    [(kind, shape)] = [
        (kind, one)
        for kind, one in indexed()["lines"].items()
        if one["from"] == "server" and set(one["has"]) <= line.message.keys()
    ]
    yield shape["type"], line.message
    if kind == "event":
        event = line.message["params"]
        group = "stream" if "request_id" in event else "process"
        yield indexed()["events"][group][event["type"]]["type"], event
        if "request_id" in event and line.method:
            assert event["type"] in indexed()["methods"][line.method]["events"]
        if event["type"] == "item":
            yield indexed()["methods"][line.method]["item"]["type"], event["item"]
    elif kind == "response":
        yield indexed()["methods"][line.method]["result"]["type"], line.message["result"]
    else:
        yield indexed()["error"]["type"], line.message["error"]


def test_every_line_out_fits_the_type_that_the_index_names(subtests: pytest.Subtests) -> None:
    for path in TRANSCRIPTS:
        with subtests.test(path.stem):
            for line in told(path.read_text()):
                lean = line.message.get("result", {}).get("meta", {}).get("lean", False)
                for type, value in types_of(line):
                    validator(type, lean).validate(value)


def test_a_line_of_another_type_does_not_fit() -> None:
    event = {"type": "answer", "request_id": 1, "index": 0, "cursor": "x", "message_id": 1}
    assert validator("StreamEvent").is_valid(event)
    assert not validator("StreamEvent").is_valid({**event, "type": "references"})
    assert not validator("ProcessEvent").is_valid(event)
    request = {"jsonrpc": "2.0", "id": 1, "method": "search", "params": {"query": "git"}}
    assert validator("Request").is_valid(request)
    assert validator("ClientLine").is_valid(request)
    assert not validator("Request").is_valid({**request, "method": "ping"})
    assert not validator("Request").is_valid({**request, "params": {}})


def test_every_reference_leads_to_a_type_and_every_type_has_its_name() -> None:
    assert {name for name, schema in bundled()["$defs"].items() if schema["title"] != name} == set()
    named = {value for value in strings(bundled()) if value.startswith("#/$defs/")}
    assert {name.removeprefix("#/$defs/") for name in named} <= bundled()["$defs"].keys()
    types = {value["type"] for value in parts(indexed()) if isinstance(value.get("type"), str)}
    assert types <= bundled()["$defs"].keys()
    files = {value["file"] for value in parts(indexed()) if "file" in value}
    assert files == {f"{name}.json" for name in published()}


def parts(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for part in value.values() if isinstance(value, dict) else value if type(value) is list else ():
        yield from parts(part)


def strings(value: Any) -> Iterator[str]:
    for part in parts(value):
        yield from (inner for inner in part.values() if isinstance(inner, str))


def test_no_name_of_a_type_is_lost() -> None:
    before = bundle(json.loads(BASELINE.read_text()))["$defs"]
    assert set(before) - set(bundled()["$defs"]) == set()


def with_another(name: str, schema: str) -> dict[str, Any]:
    """Returns all schemas, with a changed definition in one of them."""
    changed = copy.deepcopy(published())
    changed[schema]["$defs"][name]["properties"]["more"] = {"type": "string"}
    return changed


def test_one_name_is_one_type() -> None:
    shapes = bundle(with_another("Hit", "knowledge.search.result"))["$defs"]
    assert "more" not in shapes["Hit"]["properties"]
    assert "more" in shapes["KnowledgeSearchResultHit"]["properties"]
    schemas = copy.deepcopy(published())
    schemas["search.result"]["$defs"]["SearchParams"] = {"type": "string"}
    with pytest.raises(ValueError, match="SearchParams would name two types"):
        bundle(schemas)
