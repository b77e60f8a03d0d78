"""Every limit that a method declares holds at its edges, which come from the declarations.

`edges` walks a params type and says, of every limit in it, which values are just
good enough and which just not. A method is covered the moment it is registered.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Iterator
from enum import Enum
from typing import Annotated, Any, Literal, NamedTuple, get_args

import msgspec
import pytest
from msgspec import Meta
from msgspec import inspect as types

from kbproc.base.errors import KbprocError
from kbproc.base.params import Params, decode_params
from kbproc.base.values import (
    HTTP_URL,
    LOG_PLACE,
    NATS_URL,
    OCR_LANGUAGE,
    SLUG,
    Instant,
    Slug,
    decoder,
)
from kbproc.knowledge.app.health import doctor
from kbproc.methods.all import registry
from kbproc.methods.calls.method import Method
from tests.conversations.scripts import make_files
from tests.kit.patience import LONG as PROFILE_IS_LONG
from tests.kit.talk import Session, as_bytes, cancel, request

METHODS = list(registry().methods.values())

# Numbers without an upper limit may be as great as these.
GREAT = (2**63, 10**30)
LONG = 5000
WIDE = "\U0001d54f"  # one character, four bytes, two UTF-16 units

LINE_BREAK = "pattern and a line break"

INSTANT: str = get_args(Instant)[1].pattern
# Pattern → texts that just match, and texts that just don't.
PATTERNS: dict[str, tuple[list[str], list[str]]] = {
    SLUG: (
        ["ab", "00", "a-b", "a--b", "a" * 64, "0" + "-" * 62 + "z"],
        ["", "a", "a" * 65, "Ab", "aB", "-ab", "ab-", "a_b", "a b", "é1", "ab é", "a\nb"],
    ),
    NATS_URL: (
        ["nats://a", "tls://10.0.0.1:4222", "nats://" + "a" * 300],
        ["", "nats://", "http://a", "nats://a/b", "nats://a b", "xnats://a", "nats://" + "a" * 301],
    ),
    LOG_PLACE: (
        ["file", "nats://a", "tls://10.0.0.1:4222", "nats://" + "a" * 300],
        ["", "files", "xfile", "file\n", "nats://", "http://a", "nats://a/b", "xnats://a"],
    ),
    HTTP_URL: (
        ["http://a", "https://10.0.0.1:8222", "http://" + "a" * 300],
        ["", "http://", "nats://a", "http://a/b", "http://a b", "xhttp://a", "http://" + "a" * 301],
    ),
    OCR_LANGUAGE: (
        ["en", "eng", "chi_sim", "Latin", "a" * 30],
        ["", "e", "a" * 31, "_en", "1en", "en-US", "e n", "én", "eng+deu"],
    ),
    INSTANT: (
        ["2024-02-29", "2024-02-29T23:59Z", "2024-02-29 23:59:59.123456789+00:00"],
        ["", "2024-02", "2024-02-29T", "2024-02-29T23:59:59.", "24-02-29", "x2024-02-29"],
    ),
}


class Edge(NamedTuple):
    """`path` leads from the type to the place where `value` differs from a valid value."""

    path: str
    what: str
    value: Any
    ok: bool

    @property
    def member(self) -> str:
        """Returns the parameter in which the path begins."""
        return re.split(r"[.\[]", self.path)[1]


# ----------------------------------------------------------------------- the walker


def edges(kind: types.Type) -> Iterator[Edge]:
    """Yields values at each limit; raises TypeError for a type that may hide limits."""
    match kind:
        case types.Metadata(type=inner):
            yield from edges(inner)
        case types.StructType():
            yield from _struct_edges(kind)
        case types.ListType():
            yield from _list_edges(kind)
        case types.DictType():
            yield from _dict_edges(kind)
        case types.UnionType():
            yield from _union_edges(kind)
        case _:
            yield from _scalar_edges(kind)


def _scalar_edges(kind: types.Type) -> Iterator[Edge]:
    match kind:
        case types.IntType() | types.FloatType():
            yield from _number_edges(kind)
        case types.StrType():
            yield from _text_edges(kind)
        case types.LiteralType(values=values):
            yield from _choice_edges(list(values))
        case types.EnumType(cls=cls):
            yield from _choice_edges([member.value for member in cls])
        case types.BoolType() | types.NoneType() | types.AnyType():
            return
        case _:
            raise TypeError(f"edges can't tell the limits of {kind}")


def _number_edges(kind: types.IntType | types.FloatType) -> Iterator[Edge]:
    if kind.multiple_of is not None:
        raise TypeError(f"edges can't tell the limits of {kind}")
    low, high = kind.ge, kind.le
    if kind.gt is not None:
        low = _next(kind, kind.gt, 1)
    if kind.lt is not None:
        high = _next(kind, kind.lt, -1)
    if low is not None:
        yield Edge("", "minimum", low, True)
        yield Edge("", "minimum", _next(kind, low, -1), False)
    if high is not None:
        yield Edge("", "maximum", high, True)
        yield Edge("", "maximum", _next(kind, high, 1), False)
    for value in (0, 1):
        if (low is None or low <= value) and (high is None or value <= high):
            yield Edge("", "in the range", value, True)
    if high is None:
        yield from (Edge("", "no maximum", great, True) for great in GREAT)
    if low is None:
        yield from (Edge("", "no minimum", -great, True) for great in GREAT)


def _next(kind: types.IntType | types.FloatType, value: float, step: int) -> float:
    if isinstance(kind, types.IntType):
        return value + step
    return math.nextafter(value, math.inf * step)


def _text_edges(kind: types.StrType) -> Iterator[Edge]:
    if kind.pattern is not None:
        good, bad = PATTERNS.get(kind.pattern, ([], []))
        yield from (Edge("", "pattern", value, True) for value in good)
        yield from (Edge("", "pattern", value, False) for value in bad)
        yield from (Edge("", LINE_BREAK, f"{value}\n", False) for value in good[:1])
        return
    yield from _length_edges(kind, lambda n: "x" * n)
    if kind.max_length is not None:
        yield Edge("", "max_length in bytes", WIDE * kind.max_length, True)
        yield Edge("", "max_length in bytes", WIDE * (kind.max_length + 1), False)


def _length_edges(kind: Any, of_length: Any) -> Iterator[Edge]:
    low, high = kind.min_length or 0, kind.max_length
    if low:
        yield Edge("", "min_length", of_length(low - 1), False)
    yield Edge("", "min_length", of_length(low), True)
    if high is not None:
        yield Edge("", "max_length", of_length(high), True)
        yield Edge("", "max_length", of_length(high + 1), False)
    elif isinstance(kind, types.StrType):
        yield Edge("", "no max_length", of_length(LONG), True)


def _choice_edges(values: list[Any]) -> Iterator[Edge]:
    yield from (Edge("", "choice", value, True) for value in values)
    wrong = [f"{values[0]}x", "", str(values[0]).upper()]
    yield from (Edge("", "choice", value, False) for value in wrong if value not in values)


def _struct_edges(kind: types.StructType) -> Iterator[Edge]:
    least = valid(kind)
    for field in kind.fields:
        for edge in edges(field.type):
            value = least | {field.encode_name: edge.value}
            yield edge._replace(path=f".{field.encode_name}{edge.path}", value=value)


def _list_edges(kind: types.ListType) -> Iterator[Edge]:
    """Yields edges of the first and second item, so that the path's number matters."""
    item = valid(kind.item_type)
    yield from _length_edges(kind, lambda n: [item] * n)
    for at in range(min(2, kind.max_length or 2)):
        rest = [item] * max(at, (kind.min_length or 0) - 1)
        for edge in edges(kind.item_type):
            value = [*rest[:at], edge.value, *rest[at:]]
            yield edge._replace(path=f"[{at}]{edge.path}", value=value)


def _dict_edges(kind: types.DictType) -> Iterator[Edge]:
    value = valid(kind.value_type)
    yield from _length_edges(kind, lambda n: {f"k{i}": value for i in range(n)})
    rest = {f"k{i}": value for i in range((kind.min_length or 0) - 1)}
    for edge in edges(kind.value_type):
        yield edge._replace(path=f"[...]{edge.path}", value=rest | {"key": edge.value})
    for edge in edges(kind.key_type):
        yield edge._replace(what=f"key: {edge.what}", value=rest | {edge.value: value})


def _union_edges(kind: types.UnionType) -> Iterator[Edge]:
    """Yields the members' edges, except bad values that another member may accept."""
    for member in kind.types:
        others = {
            accepted for other in kind.types if other is not member for accepted in takes(other)
        }
        for edge in edges(member):
            if edge.ok or edge.path or not others & takes(member):
                yield edge


def takes(kind: types.Type) -> frozenset[str]:
    """Returns the JSON types of the type's values."""
    match kind:
        case types.Metadata(type=inner):
            return takes(inner)
        case types.UnionType(types=members):
            return frozenset().union(*map(takes, members))
        case types.AnyType():
            return frozenset({"number", "string", "array", "object"})
        case types.IntType() | types.FloatType():
            return frozenset({"number"})
        case types.ListType():
            return frozenset({"array"})
        case types.DictType() | types.StructType():
            return frozenset({"object"})
        case types.BoolType() | types.NoneType():
            return frozenset()
        case _:
            return frozenset({"string"})


def valid(kind: types.Type) -> Any:
    """Returns the least valid value; some value for a type without limits."""
    match kind:
        case types.Metadata(type=inner):
            return valid(inner)
        case types.UnionType(types=members):
            return valid(members[0])
        case types.BoolType() | types.AnyType():
            return False
        case types.NoneType():
            return None
        case types.StructType(fields=fields):
            return {field.encode_name: valid(field.type) for field in fields if field.required}
        case types.ListType(item_type=inner):
            return [valid(inner)] * (kind.min_length or 0)
        case types.DictType(value_type=inner):
            return {f"k{i}": valid(inner) for i in range(kind.min_length or 0)}
        case _:
            return next(edge.value for edge in edges(kind) if edge.ok)


def patterns_in(kind: Any) -> Iterator[str]:
    if isinstance(kind, types.StrType) and kind.pattern:
        yield kind.pattern
    for name in ("type", "item_type", "key_type", "value_type"):
        if isinstance(getattr(kind, name, None), types.Type):
            yield from patterns_in(getattr(kind, name))
    for part in (*getattr(kind, "types", ()), *getattr(kind, "fields", ())):
        yield from patterns_in(part)


# ------------------------------------------------------------------------ decoding


def refused(params: type[Params], value: Any) -> str | None:
    """Returns the field that the error names, or None if the value is valid."""
    try:
        decode_params(decoder(params), json.dumps(value, ensure_ascii=False).encode())
    except KbprocError as error:
        assert error.type == "input.invalid_params"
        assert "regex" not in error.message, "say in base/params.py what the pattern means"
        return error.field
    return None


def description(edge: Edge) -> str:
    return f"{edge.path} {edge.what} {json.dumps(edge.value)[-80:]}"


def test_limits() -> None:
    wrong = []
    for method in METHODS:
        for edge in edges(types.type_info(method.params)):
            named = refused(method.params, edge.value)
            expected = None if edge.ok else f"$.params{edge.path}"
            if named != expected:
                wrong.append((method.name, description(edge), named))
    assert wrong == []


def test_every_pattern_has_its_edges() -> None:
    new = {
        (method.name, pattern)
        for method in METHODS
        for pattern in patterns_in(types.type_info(method.params))
        if pattern not in PATTERNS
    }
    assert new == set(), "add to PATTERNS what just meets it, and what just doesn't"


class Colour(Enum):
    RED = "red"


class Inner(msgspec.Struct, forbid_unknown_fields=True):
    count: Annotated[int, Meta(gt=2, lt=5)]


class LimitToy(Params, kw_only=True, frozen=True):
    """Has every kind of limit."""

    limit: Annotated[int, Meta(ge=1, le=100)]
    least: Annotated[int, Meta(ge=-3)] = 0
    share: Annotated[float, Meta(gt=0, le=1)] = 1
    title: Annotated[str, Meta(min_length=1, max_length=3)] | None = None
    slug: Annotated[Slug, Meta(description="described twice")] = "ab"
    mode: Literal["all", "any"] = "all"
    colour: Colour = Colour.RED
    tags: Annotated[list[Annotated[str, Meta(max_length=2)]], Meta(min_length=2, max_length=3)] = []
    counts: Annotated[dict[str, Annotated[int, Meta(le=9)]], Meta(max_length=1)] = {}
    keyed: dict[Annotated[str, Meta(min_length=1)], bool] = {}
    inner: list[Inner] = []
    seq: Annotated[int, Meta(ge=0, le=7)] | Annotated[str, Meta(max_length=1)] | None = None
    either: Annotated[float, Meta(ge=0)] | str = 0.0
    yes: bool = True


TOY = list(edges(types.type_info(LimitToy)))
HIGH = math.nextafter(1, 2)


# Path → values that the walker must find there: just good enough, and just not.
FOUND: list[tuple[str, list[Any], list[Any]]] = [
    (".limit", [1, 100], [0, 101]),
    (".least", [-3, 0, 1, *GREAT], [-4]),
    (".share", [5e-324, 1], [0.0, HIGH]),
    (".title", ["x", "xxx", WIDE * 3], ["", "xxxx", WIDE * 4]),
    (".slug", ["ab", "a" * 64], ["a", "a" * 65, "Ab"]),
    (".mode", ["all", "any"], ["allx", "", "ALL"]),
    (".colour", ["red"], ["redx", "", "RED"]),
    (".tags", [["", ""], ["", "", ""]], [[""], ["", "", "", ""]]),
    (".tags[0]", [["xx", ""]], [["xxx", ""]]),
    (".tags[1]", [["", "xx"]], [["", "xxx"]]),
    (".counts", [{}, {"k0": 9}], [{"k0": 9, "k1": 9}]),
    (".counts[...]", [{"key": 9}, {"key": -(10**30)}], [{"key": 10}]),
    (".keyed", [{"x": False}], [{"": False}]),
    (".inner[0].count", [[{"count": 3}], [{"count": 4}]], [[{"count": 2}], [{"count": 5}]]),
    (".inner[1].count", [[{"count": 3}, {"count": 4}]], [[{"count": 3}, {"count": 5}]]),
    (".seq", [0, 1, 7, "", "x"], [-1, 8, "xx"]),
    (".either", [0, 1, "", *GREAT], [math.nextafter(0, -1)]),
    (".yes", [], []),
]


def test_the_walker_finds_every_kind_of_limit() -> None:
    wrong: list[tuple[str, Any]] = []
    for path, good, bad in FOUND:
        name = re.split(r"[.\[]", path)[1]
        edges = [(edge.value[name], edge.ok) for edge in TOY if edge.path == path]
        expected = [(value, True) for value in good] + [(value, False) for value in bad]
        wrong += [(path, one) for one in expected if one not in edges]
        wrong += [(path, "no limit, but edges")] if edges and not expected else []
        for value, ok in edges:
            if str(value).endswith("\n"):
                continue
            named = refused(LimitToy, {"limit": 1, name: value})
            if named != (None if ok else f"$.params{path}"):
                wrong.append((path, (value, named)))
    assert wrong == []


def test_the_walker_refuses_what_it_does_not_know() -> None:
    for strange in (Annotated[int, Meta(multiple_of=5)], tuple[int, str], bytes):
        with pytest.raises(TypeError, match="can't tell"):
            list(edges(types.type_info(strange)))


def test_the_walker_finds_the_limits_of_search() -> None:
    search = registry().methods["search"]
    sizes: dict[str, dict[bool, set[Any]]] = {}
    for edge in edges(types.type_info(search.params)):
        value = edge.value[edge.member]
        value = value[1] if edge.path.endswith("[1]") else value
        size = len(value) if isinstance(value, str | list) else value
        if not isinstance(value, dict):
            sizes.setdefault(edge.path, {True: set(), False: set()})[edge.ok].add(size)
    for name, low, high in (
        ("query", 1, 2000),
        ("limit", 1, 100),
        ("ef_search", 1, 200),
        ("snippet_chars", 20, 2000),
        ("offset", 0, 10_000),
        ("min_confidence", 0, 100),
        ("document_ids", 1, 1000),
    ):
        assert {low, high} <= sizes[f".{name}"][True], name
        assert {low - 1, high + 1} == sizes[f".{name}"][False], name
    assert sizes[".min_score"] == {True: {0, 1}, False: {math.nextafter(0, -1), HIGH}}
    assert sizes[".tags[1]"][False] == {0, 65}


# ----------------------------------------------------------------- a store answers


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """Opens a store for every method, and compares its views with the log at the end."""
    folder = tmp_path_factory.mktemp("limits")
    make_files(folder)
    session = Session(folder / "store", cwd=folder)
    session.data("doc.ingest", paths=["docs/git-admin.md"])
    session.data("kb.create", slug="scratch")
    session.embedded()
    yield session
    session.idle()
    differences = doctor.compare(session.store)
    assert {name: wrong for name, wrong in differences.items() if wrong} == {}
    session.close()


MOST_BYTES = 50_000  # a request's; other tests send longer texts
DRY = {"model.use", "index.rebuild", "store.move", "cluster.init", "cluster.join"}


IDS = itertools.count()
SMALL = ("in the range", "minimum", "min_length", "key: min_length")


def requests_of(method: Method) -> list[tuple[Edge, dict[str, Any]]]:
    """Returns requests with the method's greatest good values; the other params are likely.

    The quick profile asks for the longest of each place alone.
    """
    requests: dict[str, tuple[Edge, dict[str, Any]]] = {}
    for edge in edges(types.type_info(method.params)):
        if not edge.ok or edge.what in SMALL or "[1]" in edge.path:
            continue
        name, value = edge.member, edge.value[edge.member]
        if isinstance(value, str) and len(value) > MOST_BYTES:
            continue
        params = _likely(method, name) | {name: value}
        line = json.dumps(params)
        if len(line) < MOST_BYTES:
            requests.setdefault(line, (edge, params))
    if PROFILE_IS_LONG:
        return list(requests.values())
    longest = {requests[line][0].path: requests[line] for line in sorted(requests, key=len)}
    return list(longest.values())


def _likely(method: Method, name: str) -> dict[str, Any]:
    """Returns an example's params, with `name` if an example has it.

    The clock stands still in these tests, so a request with any timeout would wait for ever.
    """
    examples = sorted(method.examples, key=lambda e: (name not in e.params, e.exit))
    params = dict(examples[0].params)
    if method.kind == "read":
        params["timeout_ms"] = 30_000 if method.name == "sql.query" else 0
    return params | ({"dry_run": True} if method.name in DRY else {})


def test_what_is_at_a_limit_gets_a_typed_answer(world: Session) -> None:
    wrong = []
    for method in METHODS:
        for edge, params in requests_of(method):
            waits = edge.path in (".timeout_ms", ".min_seq")
            error = _error(world, method, params, cancelled=waits)
            allowed = set(method.all_errors) - {"internal.error"}
            if error and error["type"] not in allowed:
                wrong.append((method.name, description(edge), error["type"], error["message"]))
    assert wrong == []


def _error(session: Session, method: Method, params: dict[str, Any], *, cancelled: bool) -> Any:
    """Returns the error, or None; cancels a request that could wait for ever."""
    id = str(next(IDS))
    session.send(as_bytes(request(id, method.name, **params)))
    if cancelled:
        session.send(as_bytes(cancel(id)))
    while (answer := json.loads(session.receive())).get("id") != id or "method" in answer:
        pass
    return answer["error"]["data"] if "error" in answer else None


# ------------------------------------------------- limits that no declaration tells


HANDLERS_REFUSE: list[tuple[str, dict[str, Any], str]] = [
    ("kb.create", {"slug": "ab\n"}, "$.params.slug"),
    ("kb.create", {"slug": "new", "name": "x\u202e"}, "$.params.name"),
    ("kb.create", {"slug": "new", "name": " "}, "$.params.name"),
    ("doc.list", {"created_after": "2024-01-01\n"}, "$.params.created_after"),
    ("doc.list", {"created_after": "2024-02-30"}, "$.params.created_after"),
    ("doc.list", {"cursor": "x"}, "$.params.cursor"),
    ("doc.list", {"as_of": "yesterday"}, "$.params.as_of"),
    ("doc.list", {"as_of": 2**53}, "$.params.as_of"),
    ("doc.create", {"title": "t", "text": "t", "tags": ["ok", "a,b"]}, "$.params.tags[1]"),
    ("doc.create", {"title": "t", "text": "t", "tags": ["ok", "--"]}, "$.params.tags[1]"),
    ("doc.create", {"title": "t", "text": " \n "}, "$.params.text"),
    ("doc.create", {"title": "\x00", "text": "t"}, "$.params.title"),
    (
        "doc.create",
        {"title": "t", "text": "t", "metadata": {"k": "x" * 1001}},
        "$.params.metadata.k",
    ),
    ("doc.create", {"title": "t", "text": "t", "metadata": {"": 1}}, "$.params.metadata"),
    ("doc.delete", {"where": {}}, "$.params.where"),
    ("events.read", {"types": ["doc.none"]}, "$.params.types[0]"),
]


def test_what_only_a_handler_refuses(world: Session) -> None:
    refused = [(method, field, world.error(method, **p)) for method, p, field in HANDLERS_REFUSE]
    assert [
        (method, field, error)
        for method, field, error in refused
        if (error["type"], error["field"]) != ("input.invalid_params", field)
    ] == []


def test_what_is_just_good_enough_for_a_handler(world: Session) -> None:
    tags = [f"T {n}" + "x" * 60 for n in range(10, 26)]
    metadata = {"k": "x" * 1000}
    created = world.data("doc.create", title=" t ", text=" t ", tags=tags, metadata=metadata)
    document = world.data("doc.get", id=created["id"])
    assert document["tags"] == [tag.lower().replace(" ", "-") for tag in tags]
    assert (document["title"], document["metadata"]) == ("t", metadata)
