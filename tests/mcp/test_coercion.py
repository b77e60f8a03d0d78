"""Arguments as clients spell them: an unambiguous value is converted, any other is refused."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbproc.base.errors import KbprocError
from kbproc.base.params import decode_params
from kbproc.base.settings.config import SCOPES
from kbproc.methods.all import registry
from kbproc.surfaces.mcp import declared, toolbox
from kbproc.surfaces.mcp.toolbox import Tool, Toolbox, coerced
from tests.kit.mcp import MODERN, Client, client
from tests.kit.talk import Process

METHODS = registry().methods
ERAS = (MODERN, "2025-11-25")
Schema = dict[str, Any]


@functools.cache
def tools() -> dict[str, Tool]:
    """Returns every tool of every set, by name."""
    every = Toolbox(",".join([*declared.SETS, "all"]))
    every_tool = (
        every.find(tool["name"], frozenset(SCOPES)) for tool in every.within(frozenset(SCOPES))
    )
    return {tool.tool["name"]: tool for tool in every_tool if tool is not None}


def arguments() -> Iterator[tuple[str, str]]:
    """Yields each tool's arguments, except the one by which a person confirms."""
    for name, tool in tools().items():
        if tool.method:
            for argument in tool.tool["inputSchema"]["properties"]:
                if argument != "confirm":
                    yield name, argument


def kinds(schema: Schema) -> list[Schema]:
    if "anyOf" not in schema:
        return [schema]
    return [kind for part in schema["anyOf"] for kind in kinds(part)]


def name_of(kind: Schema) -> str:
    return "enum" if "enum" in kind else kind.get("type", "any")


TEXTS = ("some-word", "2026-01-31", "nats://a:1", "http://a:1", "eng")


def plain(kind: Schema) -> Any:
    """Returns a value in the spelling that the schema declares."""
    match name_of(kind):
        case "enum":
            return kind["enum"][0]
        case "array":
            return [plain(kinds(kind["items"])[0])]
        case "object":
            members = kind.get("properties", {"a": {"type": "string"}})
            return {name: plain(kinds(member)[0]) for name, member in members.items()}
        case "string":
            return next(text for text in TEXTS if re.search(kind.get("pattern", ""), text))
        case scalar:
            return {"integer": 5, "number": 0.5, "boolean": True, "any": "some-word"}[scalar]


SCALARS: dict[str, list[tuple[Any, Any]]] = {
    "integer": [("5", 5), ("5.0", 5), (" 5 ", 5), (5.0, 5), ("1e3", 1000), ("-5", -5)],
    "number": [("0.5", 0.5), (" 0.5 ", 0.5), ("5", 5), ("5e-1", 0.5)],
    "boolean": [("true", True), ("True", True), (" FALSE ", False)],
    "string": [(42, "42"), (-7, "-7")],
    "any": [],
}


def odd(kind: Schema, *, deep: bool = True) -> Iterator[tuple[Any, Any]]:
    """Yields other spellings with one meaning, each with the plain value."""
    value = plain(kind)
    match name_of(kind):
        case "enum":
            yield from ((value.upper(), value), (f" {value.title()} ", value))
        case "array":
            yield from ((json.dumps(value), value), (value[0], value))
            yield f" {json.dumps([value[0], value[0]])}", [value[0], value[0]]
            items = kinds(kind["items"])
            for spelled, reading in odd(items[0], deep=False) if deep and len(items) == 1 else ():
                yield from (([spelled], [reading]), (json.dumps([spelled]), [reading]))
        case "object":
            yield json.dumps(value), value
            for name, member in kind.get("properties", {}).items() if deep else ():
                for spelled, reading in odd_alone(member, deep=False):
                    yield {**value, name: spelled}, {**value, name: reading}
        case scalar:
            is_free = "pattern" not in kind and kind.get("minLength", 1) == 1
            yield from SCALARS[scalar] if is_free else ()


def odd_alone(schema: Schema, *, deep: bool = True) -> Iterator[tuple[Any, Any]]:
    """Yields the odd spellings of each alternative that are not plain spellings of another."""
    for kind in kinds(schema):
        if name_of(kind) != "null":
            for spelled, reading in odd(kind, deep=deep):
                is_plain = any(toolbox._fits(spelled, other) for other in kinds(schema))
                if isinstance(spelled, list | dict) or not is_plain:
                    yield spelled, reading


NONE = {
    "enum": ["no such word", 5, True, ["x"]],
    "integer": ["five", 5.5, "5.5", True, "05", "+5", "0x5", "1e400", "5,0", [5], {"a": 5}],
    "number": ["half", True, "1e400", "0,5", "NaN", [0.5]],
    "boolean": ["yes", "1", 1, 0, "on", [True]],
    "string": [4.2, True, ["a"], {"a": 1}],
    "array": ["a, b", "a\nb", '["a"', "[" * 5000, " ", {"a": 1}],
    "object": ["x", '{"a"', "[1]", 5, ["a"]],
}


@functools.cache
def target_of(name: str, argument: str) -> tuple[str, str, Schema]:
    """Returns the method and the param that an argument sets, and the param's schema."""
    tool = tools()[name]
    method = tool.to_request({argument: "word"}).method
    schemas = toolbox.params_schema(method)["properties"]
    [param] = [param for param in schemas if tool.argument(param) == argument]
    return method, param, schemas[param]


def test_what_has_one_reading_is_read() -> None:
    wrong = []
    for name, argument in arguments():
        tool = tools()[name]
        for spelled, reading in odd_alone(target_of(name, argument)[2]):
            read = tool.to_request({argument: spelled})
            if read != tool.to_request({argument: reading}):
                wrong.append((name, argument, spelled, read))
    assert wrong == []


def test_what_has_no_reading_is_refused() -> None:
    wrong = [
        (name, argument, value, field)
        for name, argument in arguments()
        for value, field in read_without_meaning(name, argument)
    ]
    assert wrong == []


def read_without_meaning(name: str, argument: str) -> Iterator[tuple[Any, str | None]]:
    """Yields values that the tool changes or the method takes, although they mean nothing."""
    tool = tools()[name]
    method, param, schema = target_of(name, argument)
    (kind, *others) = [one for one in kinds(schema) if name_of(one) != "null"]
    if others or name_of(kind) == "any":
        return
    members = toolbox.params_schema(method)
    required = {one: plain(members["properties"][one]) for one in members.get("required", ())}
    holds_objects = name_of(kind) == "array" and name_of(kinds(kind["items"])[0]) == "object"
    for value in NONE[name_of(kind)]:
        if holds_objects and isinstance(value, dict):
            continue  # reads as a list of one object
        request = tool.to_request({argument: value}).params
        raw = json.dumps({**required, **request}).encode()
        try:
            decode_params(METHODS[method].decoder, raw)
            field = None
        except KbprocError as error:
            field = error.field
        if request[param] != value or not str(field).startswith(f"$.params.{param}"):
            yield value, field


def test_what_is_left_out_may_be_null_or_empty() -> None:
    wrong = [
        (name, argument, spelled)
        for name, argument in arguments()
        for spelled, read, expected in left_out(name, argument)
        if read != expected
    ]
    assert wrong == []


def left_out(name: str, argument: str) -> Iterator[tuple[Any, Any, Any]]:
    """Yields null and the empty text, each with what the tool reads and what it should."""
    tool = tools()[name]
    published = tool.tool["inputSchema"]
    nothing = tool.to_request({})
    _, param, schema = target_of(name, argument)
    request = tool.to_request({argument: None})
    if toolbox.takes_null(published["properties"][argument]):
        yield None, request.params[param], None
    else:
        yield None, request, nothing
    empty_is_text = any(toolbox._fits("", one) for one in kinds(schema))
    keeps = empty_is_text and METHODS[tool.method].kind != "read"
    request = tool.to_request({argument: ""})
    if keeps or argument in published.get("required", ()):
        yield "", request.params[param], ""
    else:
        yield "", request, nothing


def test_any_method_reads_its_params_as_its_own_tool_does(subtests: pytest.Subtests) -> None:
    call = tools()["kb_call"]
    for method in METHODS:
        with subtests.test(method):
            members = toolbox.params_schema(method)["properties"]
            params = {
                name: plain(kinds(kind)[0]) for name, kind in members.items() if name != "confirm"
            }
            spelled = dict(params)
            for name, value in params.items():
                same = (one for one, reading in odd_alone(members[name]) if reading == value)
                spelled[name] = next(same, value)
            for request in (params, spelled, json.dumps(params), json.dumps(spelled)):
                assert call.to_request({"method": method, "params": request}).params == params
            for nothing in (None, "", {}, "{}"):
                assert call.to_request({"method": method, "params": nothing}).params == {}


def test_a_text_stays_what_it_is() -> None:
    add = tools()["doc_add"]
    for text in ('["a"]', '{"a": 1}', "5", "true", "null", " x "):
        assert add.to_request({"title": text, "text": text}).params == {"title": text, "text": text}


def test_unknown_names_stay() -> None:
    request = tools()["search_knowledge"].to_request({"query": "x", "lmit": "5", "nope": None})
    assert request.params["lmit"] == "5" and request.params["nope"] is None


def test_json_in_a_text_is_read_in_bounds() -> None:
    schema = {"properties": {"m": {"type": "object"}, "l": {"type": "array", "items": {}}}}
    deep = '{"a":' * 40 + "1" + "}" * 40
    long = json.dumps({"a": "x" * toolbox.MOST_TEXT})
    for text in (deep, long, "{" * 100_000):
        assert coerced({"m": text}, schema) == {"m": text}
    for text in ("[" * 40 + "]" * 40, "[" * 100_000):
        assert coerced({"l": text}, schema) == {"l": text}


@pytest.fixture(scope="module", params=ERAS)
def caller(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Client]:
    """Connects a client of each era to a store that the tests of this file share."""
    with client(tmp_path_factory.mktemp("caller"), era=request.param) as one:
        yield one


def told(result: dict[str, Any]) -> str:
    assert result["isError"]
    return str(result["content"][0]["text"])


def test_clients_of_both_eras_are_understood(caller: Client) -> None:
    tagged = caller.data("doc_add", title="Git", text="Install git with 42 steps.", tags='["git"]')
    other = caller.data("doc_add", title=2026, text="Install apt.", tags="apt", kb="", paths=None)
    assert caller.data("doc_view", id=f"{other['id']}.0", length=None)["title"] == "2026"
    hits = caller.data(
        "search_knowledge",
        query=42,
        limit="5",
        mode="FTS",
        tags="git",
        minScore="0",
        includeExpired="False",
        kb="",
        efSearch=None,
    )["results"]
    assert [hit["source"]["document_id"] for hit in hits] == [tagged["id"]]
    entry = caller.data(
        "store_knowledge",
        title="A fact",
        body="It holds.",
        taskRef='{"taskId": "T-1"}',
        confidence=90.0,
        expiresAt="",
    )
    assert entry["task_ref"]["task_id"] == "T-1"
    listed = caller.data("kb_call", method="doc.list", params='{"limit": "1", "types": "text"}')
    assert len(listed) == 1
    answer = caller.ask("tools/call", name="kb_list", arguments=None)
    assert "default" in [kb["slug"] for kb in answer["result"]["structuredContent"]["data"]]


def test_what_means_that_something_is_cleared_still_does(caller: Client) -> None:
    caller.data("kb_call", method="kb.create", params={"slug": "books", "description": "Old."})
    caller.data("kb_call", method="kb.update", params={"slug": "books", "description": ""})
    assert caller.data("kb_call", method="kb.get", params={"slug": "books"})["description"] == ""
    labels = {"a": "1", "b": "2"}
    document = {"title": "t", "text": "x", "metadata": labels}
    added = caller.data("kb_call", method="doc.create", params=document)
    change = {"id": str(added["id"]), "metadata": '{"a": null, "b": "3"}'}
    changed = caller.data("kb_call", method="doc.update", params=change)
    assert caller.data("doc_view", id=changed["id"])["metadata"] == {"a": None, "b": "3"}


def test_what_is_wrong_is_named_as_before(caller: Client) -> None:
    text = told(caller.call("search_knowledge", query="x", limit="1000"))
    assert "limit" in text and "100" in text
    assert told(caller.call("search_knowledge", query="x", limit="five")).startswith(
        "input.invalid_params: limit: expected an integer"
    )
    assert "query is required" in told(caller.call("search_knowledge", query=None))
    assert "oldId is required" in told(caller.call("supersede_knowledge", oldId=None, newId="2"))
    assert "includeExpired" in told(
        caller.call("search_knowledge", query="x", includeExpired="yes")
    )
    assert "params must be" in told(caller.call("kb_call", method="doc.list", params="[1]"))


def test_what_is_missing_is_named_before_what_is_unknown(caller: Client) -> None:
    result = caller.call("store_knowledge", title="A fact", content="It holds.")
    text = told(result)
    assert text.startswith("input.invalid_params: body is required")
    assert "content is not a parameter" in text
    better = json.loads(text.partition("Try: ")[2])
    assert (better["title"], better["body"]) == ("A fact", "It holds.") and "content" not in better
    assert result["_meta"]["kbproc/error"]["field"] == "$.params.body"
    text = told(caller.call("chat", prompt="Who?", kb="default"))
    assert json.loads(text.partition("Try: ")[2])["question"] == "Who?"
    text = told(caller.call("search_knowledge", lmit=3))
    assert text.startswith("input.invalid_params: query is required") and "Try: " not in text


def test_what_is_missing_is_named_whole(caller: Client) -> None:
    text = told(caller.call("store_knowledge", content="It holds."))
    assert text.startswith("input.invalid_params: title and body are required, and content is not")
    assert "Write title and body" in text


def test_a_near_name_is_shown_alone(caller: Client) -> None:
    text = told(caller.call("search_knowledge", query="git", q="git"))
    assert "Valid: query." in text
    assert "Valid: paths." in told(caller.call("doc_add", path="docs"))
    text = told(caller.call("search_knowledge", query="git", foo=1))
    properties = tools()["search_knowledge"].tool["inputSchema"]["properties"]
    valid = f"Valid: {', '.join(sorted(properties))}."
    assert valid in text, "what the tool shows, and not all params"


def test_a_call_to_try_has_what_the_caller_wrote_alone(caller: Client) -> None:
    for arguments, better in (
        ({"q": "git"}, {"query": "git"}),
        ({"query": "git", "tag": "x"}, {"query": "git", "tags": "x"}),
    ):
        text = told(caller.call("search_knowledge", **arguments))
        assert json.loads(text.partition("Try: ")[2]) == better
    text = told(caller.call("store_knowledge", title="A fact", content="It holds."))
    assert json.loads(text.partition("Try: ")[2]) == {"title": "A fact", "body": "It holds."}


def test_params_in_another_place_are_shown_in_theirs(caller: Client) -> None:
    for arguments in (
        {"method": "search", "arguments": {"query": "git"}},
        {"method": "search", "args": '{"query": "git"}'},
        {"method": "search", "query": "git"},
    ):
        text = told(caller.call("kb_call", **arguments))
        better = json.loads(text.partition("Try: ")[2])
        assert better == {"method": "search", "params": {"query": "git"}}, arguments
        caller.data("kb_call", **better)


def test_a_method_may_be_named_as_its_tool_is(caller: Client) -> None:
    tags = [caller.data("kb_call", method=name) for name in ("tag.list", "tag_list")]
    assert tags[0] == tags[1]
    assert "kb_call" in told(caller.call("kb_read", method="kb_create", params={"slug": "new"}))
    assert "tag.list" in told(caller.call("kb_call", method="tags_list"))


def test_the_wire_stays_strict(tmp_path: Path) -> None:
    process = Process(tmp_path / "store", cwd=tmp_path)
    try:
        process.ready()
        for number, params in enumerate(({"limit": "5"}, {"tags": "git"}, {"types": ""})):
            error = process.ask(number, "doc.list", **params)["error"]
            assert error["data"]["type"] == "input.invalid_params"
    finally:
        process.stop()


@pytest.mark.parametrize("nothing", [[], "[]", "", None])
def test_an_empty_list_of_paths_leaves_a_text_a_text(nothing: Any) -> None:
    request = tools()["doc_add"].to_request({"title": "t", "text": "x", "paths": nothing})
    assert (request.method, request.params) == ("doc.create", {"title": "t", "text": "x"})


def test_two_values_for_one_argument_are_refused() -> None:
    search = tools()["search_knowledge"]
    with pytest.raises(toolbox.Mistake, match="two values"):
        search.to_request({"query": "q", "minScore": 0.5, "min_score": 0.9})
    assert (
        search.to_request({"query": "q", "minScore": 0.5, "min_score": 0.5}).params["query"] == "q"
    )
