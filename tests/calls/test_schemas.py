"""The schemas only grow, and are the same on disk, in memory and in the wheel."""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import jsonschema_rs
import pytest
from msgspec import UNSET

from kbproc.base.settings.config import CAPABILITIES
from kbproc.methods.all import registry
from kbproc.methods.calls.messages import Capabilities
from tests.calls.compat import BASELINE, breaks
from tests.conftest import Report
from tests.kit.golden import outdated
from tests.kit.schemas import fit, published
from tests.kit.talk import REPO, Session, as_bytes, request
from tools.generate.files import files

V1 = REPO / "schemas" / "v1"
OLD: dict[str, Any] = json.loads(BASELINE.read_text())


def test_nothing_that_was_released_is_broken() -> None:
    assert breaks(OLD, published()) == []


def test_every_schema_is_a_schema() -> None:
    meta = jsonschema_rs.Draft202012Validator(jsonschema.Draft202012Validator.META_SCHEMA)
    wrong = {
        name: [one.message for one in meta.iter_errors(it)] for name, it in published().items()
    }
    assert {name: messages for name, messages in wrong.items() if messages} == {}


SEQ = ("properties", "data", "properties", "seq")
META = ("properties", "meta", "properties")
LIMIT = ("properties", "limit")
METADATA = ("properties", "metadata")
SCORE = ("$defs", "Hit", "properties", "score")
CREATED = ("properties", "data", "properties", "created_at")
AFTER = ("properties", "cursor", "anyOf", 0)
LIBRARIES = ("properties", "data", "properties", "libraries")


def changed(name: str, *path: str | int, to: Any = None, drop: bool = False) -> list[str]:
    """Returns the breaks that one change to one schema causes."""
    before = {name: published()[name]}
    schemas = copy.deepcopy(before)
    place: Any = schemas[name]
    for step in path[:-1]:
        place = place[step]
    if drop:
        del place[path[-1]]
    else:
        place[path[-1]] = to
    return breaks(before, schemas)


def test_additions_break_nobody() -> None:
    assert changed("search.params", "properties", "new", to={"type": "string"}) == []
    assert changed("ping.result", "properties", "extra", to={"type": "string"}) == []
    confidence = ("properties", "data", "properties", "confidence", "anyOf", 0, "enum")
    assert changed("search.result", *confidence, to=["none", "maybe"]) == []


@pytest.mark.parametrize(
    ("name", "path", "to", "message"),
    [
        ("search.params", ("properties", "limit"), None, "search.params.limit is gone"),
        ("search.params", ("properties", "limit", "maximum"), 50, "narrower maximum"),
        ("search.params", ("properties", "limit", "default"), 5, "another default"),
        ("search.params", ("properties", "limit", "type"), "string", "no longer takes integer"),
        ("search.params", ("required",), ["query", "kb"], "search.params.kb is now required"),
        (
            "search.params",
            ("properties", "fusion", "enum"),
            ["rrf", "rerank"],
            "no longer takes 'blend'",
        ),
        ("ping.result", ("required",), ["data"], "ping.result.meta may now be missing"),
        ("ping.result", (*SEQ, "type"), "string", "may now be"),
        ("ping.result", (*SEQ, "type"), None, "may now be anything"),
        ("search.params", (*LIMIT, "exclusiveMinimum"), 3, "narrower exclusiveMinimum"),
        ("search.params", (*LIMIT, "exclusiveMaximum"), 9, "narrower exclusiveMaximum"),
        ("search.params", (*LIMIT, "multipleOf"), 2, "narrower multipleOf"),
        ("search.params", (*LIMIT, "enum"), [1, 2], "takes named values only"),
        ("doc.create.params", (*METADATA, "additionalProperties"), False, "takes fewer members"),
        ("doc.create.params", (*METADATA, "maxProperties"), 9, "narrower maxProperties"),
        ("tag.list.result", ("properties", "data", "items"), None, "may now have other items"),
        ("version.result", (*LIBRARIES, "additionalProperties"), None, "other members"),
        ("ping.result", (*META, "schema"), {"const": "ping/2"}, "no longer"),
        ("ping.result", (*SEQ, "minimum"), -1, "wider minimum"),
        ("ping.result", (*SEQ, "minimum"), None, "wider minimum"),
        ("search.result", (*SCORE, "maximum"), 2, "wider maximum"),
        ("kb.get.result", (*CREATED, "format"), None, "another format"),
        ("doc.list.params", (*AFTER, "format"), "date-time", "another format"),
        ("event.ready", ("properties", "type", "enum"), ["ready", "set"], "may now be 'set'"),
    ],
)
def test_breaking_changes_are_named(
    name: str, path: tuple[str, ...], to: Any, message: str
) -> None:
    messages = changed(name, *path, to=to, drop=to is None)
    assert len(messages) == 1, messages
    assert message in messages[0]


def of_two_kinds(*, grown: bool) -> list[str]:
    """Returns the breaks if kb.create gets a second kind of answer.

    `grown` adds a param that asks for it.
    """
    before = {name: published()[name] for name in ("kb.create.params", "kb.create.result")}
    after = copy.deepcopy(before)
    kinds = after["kb.create.result"]["properties"]["data"]["anyOf"]
    kinds.append({"type": "object", "properties": {"many": {"type": "array"}}})
    if grown:
        after["kb.create.params"]["properties"]["many"] = {"type": "array"}
    return breaks(before, after)


def test_items_of_another_kind_break_nobody_who_is_told_their_kind() -> None:
    name = "store.export.item"
    before = copy.deepcopy(published())
    del before[name]["anyOf"][3]
    assert breaks(before, published()) == []
    del before[name]["discriminator"]
    assert breaks(before, published()) == [f"{name} has not the same kinds: breaks readers"]
    assert breaks(published(), before) == []


def test_an_answer_of_another_kind_comes_only_to_who_asks_for_it() -> None:
    [message] = of_two_kinds(grown=False)
    assert message == "kb.create.result.data has not the same kinds: breaks readers"
    assert of_two_kinds(grown=True) == []


def test_kinds_may_change_places_and_none_may_go_that_callers_send() -> None:
    place = ("properties", "as_of", "anyOf", 0, "anyOf")
    number, text = published()["doc.get.params"]["properties"]["as_of"]["anyOf"][0]["anyOf"]
    assert changed("doc.get.params", *place, to=[text, number]) == []
    assert changed("doc.get.params", *place, to=[number, text, {"type": "boolean"}]) == []
    [message] = changed("doc.get.params", *place, to=[{**text, "maxLength": 3}, number])
    assert "narrower maxLength" in message


def test_a_method_that_goes_is_named() -> None:
    remaining = {
        name: schema for name, schema in published().items() if not name.startswith("ping")
    }
    assert [line.split(" ")[0] for line in breaks(published(), remaining)] == [
        "ping.params",
        "ping.result",
    ]


def test_meta_names_a_schema_that_can_be_asked_for(session: Session) -> None:
    for method, params in (("ping", {}), ("kb.list", {}), ("schema", {})):
        named = session.ask(method, **params)["result"]["meta"]["schema"]
        assert session.data("schema", name=named)["title"] == f"{method} result"
    named = session.error("doc.get", id=99)["schema"]
    assert session.data("schema", name=named)["title"] == "error"
    assert session.error("schema", name="nothing/1")["type"] == "resource.not_found"


def answers() -> list[str]:
    return [name for name in published() if not name.endswith(".params")]


def parts(schema: Any) -> Iterator[dict[str, Any]]:
    """Yields the schema and all schemas within it."""
    if isinstance(schema, list):
        for part in schema:
            yield from parts(part)
    elif isinstance(schema, dict):
        yield schema
        for part in schema.values():
            yield from parts(part)


def test_answers_are_open() -> None:
    """Answers may get members and values later, but a fixed type or method stays."""
    closed = [(name, part) for name in answers() for part in closed_parts(published()[name])]
    assert closed == []


def closed_parts(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields the parts that take no other member, or no value beside those that they name."""
    for part in parts(schema):
        if part.get("additionalProperties") is False:
            yield part
        if len(part.get("enum", [])) > 1 and (
            part in part.values()
            or not any(
                {"type": "string"} in kinds["anyOf"]
                for kinds in parts(schema)
                if part in kinds.get("anyOf", [])
            )
        ):
            yield part


def wrong_in(answer: dict[str, Any], *path: str | int, to: Any) -> Any:
    """Returns a copy of the answer with another value, or without it if `to` is UNSET."""
    answer = copy.deepcopy(answer)
    place: Any = answer
    for step in path[:-1]:
        place = place[step]
    if to is UNSET:
        del place[path[-1]]
    else:
        place[path[-1]] = to
    return answer


WRONG: list[tuple[tuple[str | int, ...], Any]] = [
    (("data", "text"), UNSET),
    (("data", "source", "url"), UNSET),
    (("data", "created_at"), "2026-01-31T12:00:00"),
    (("data", "created_at"), "yesterday"),
    (("data", "chunk_count"), -1),
    (("data", "type"), "unheard-of"),
    (("data", "extra"), 1),
    (("meta", "took_ms"), -0.1),
]


def test_what_no_answer_says_does_not_fit(session: Session) -> None:
    session.data("doc.create", title="One", text="The first.")
    answer = session.ask("doc.get", id=1)["result"]
    fit(answer, published()["doc.get.result"])
    fitting = []
    for path, to in WRONG:
        with contextlib.suppress(jsonschema.ValidationError):
            fit(wrong_in(answer, *path, to=to), published()["doc.get.result"])
            fitting.append((path, to))
    assert fitting == []


def test_a_client_takes_values_that_it_does_not_know(session: Session) -> None:
    session.data("doc.create", title="One", text="The first.")
    answer = session.ask("doc.get", id=1)["result"]
    later = wrong_in(wrong_in(answer, "data", "type", to="epub"), "data", "extra", to=1)
    jsonschema.validate(later, published()["doc.get.result"])


def test_metadata_and_ids_may_be_below_zero(session: Session) -> None:
    assert session.data("doc.create", title="A", text="B", metadata={"x": -1})["id"] == 1
    session.send(as_bytes(request(-1, "doctor")))
    events = []
    while "method" in (message := json.loads(session.receive())):
        events.append(message["params"])
    assert message["id"] == -1 and "result" in message
    mine = [event for event in events if "request_id" in event]
    assert [event["index"] for event in mine] == list(range(len(mine))) and mine
    assert {event["request_id"] for event in mine} == {-1}


def test_schemas_are_as_their_schema_says(session: Session) -> None:
    for name in (None, *published()):
        fit(session.ask("schema", name=name)["result"], published()["schema.result"])
    with pytest.raises(jsonschema.ValidationError):
        fit({"data": {}, "meta": {"schema": "schema/1", "seq": 0}}, published()["schema.result"])


def test_items_of_streams_are_as_their_schemas_say(session: Session) -> None:
    session.data("doc.create", title="One", text="The first.", tags=["a"])
    session.data("knowledge.store", title="Two", body="The second.")
    requests: list[tuple[str, dict[str, Any]]] = [
        ("doctor", {}),
        ("store.export", {}),
        ("store.import", {"path": "copy.ndjson"}),
        ("events.subscribe", {"after_seq": 0, "full": True, "timeout_ms": 0}),
    ]
    session.data("store.export", path="copy.ndjson")
    for method, params in requests:
        streamed = items(session, method, **params)
        assert streamed
        for item in streamed:
            fit(item, published()[f"{method}.item"])
    assert {name for name in published() if name.endswith(".item") and "event." not in name} == {
        f"{method}.item" for method, _ in requests
    }


def items(session: Session, method: str, **params: Any) -> list[Any]:
    """Returns the items that a stream sends until its end."""
    session.send(as_bytes(request(1, method, **params)))
    streamed = []
    while "method" in (message := json.loads(session.receive())):
        if message["params"]["type"] == "item":
            streamed.append(message["params"]["item"])
    return streamed


def test_what_init_says_of_this_version_is_typed() -> None:
    assert Capabilities.__struct_fields__ == tuple(CAPABILITIES)


def test_the_package_carries_the_schemas(none: Report) -> None:
    on_disk = {str(path.relative_to(REPO)) for path in V1.glob("*.json")}
    generated = files(registry().methods.values())
    schemas = {path: text for path, text in generated.items() if path.endswith(".json")}
    none(outdated({REPO / path: text for path, text in schemas.items()}))
    none(f"{path}: belongs to nothing" for path in on_disk - schemas.keys())
    assert on_disk >= {f"schemas/v1/{name}.json" for name in (*published(), "bundle", "index")}
