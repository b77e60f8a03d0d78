"""Every method's flags agree with its params schema, and command lines read back."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta, Struct

from kbproc.base.errors import KbprocError
from kbproc.base.params import WriteParams
from kbproc.base.settings.profiles import SETTINGS
from kbproc.methods.all import registry
from kbproc.methods.calls.flags import GLOBAL_FLAGS, Flag, argv_of, flags_of
from kbproc.methods.calls.method import Example, Method, method
from kbproc.methods.calls.reply import Reply
from kbproc.methods.calls.schemas import params_schema
from kbproc.surfaces.shell.arguments import parse
from kbproc.surfaces.shell.params import params_from_words, params_of

REGISTRY = registry()
METHODS = list(REGISTRY.methods.values())


def read(method: Method, line: list[str]) -> dict[str, Any]:
    """Returns the params of a command line without `kbproc` and the command."""
    return params_of(method, parse("kbproc x", [*GLOBAL_FLAGS, *flags_of(method)], line), bytes)


def read_back(method: Method, params: dict[str, Any]) -> dict[str, Any]:
    line = argv_of(method, params)
    words = ["kbproc", *method.name.split(".")]
    assert line[: len(words)] == words
    return read(method, line[len(words) :])


def resolved(schema: dict[str, Any], prop: dict[str, Any]) -> dict[str, Any]:
    """Returns a property's schema without null and references."""
    if "anyOf" in prop:
        kinds = [resolved(schema, one) for one in prop["anyOf"] if one != {"type": "null"}]
        merged = kinds[0] if len(kinds) == 1 else {}
        return {**merged, **{k: v for k, v in prop.items() if k != "anyOf"}}
    if "$ref" in prop:
        return dict(schema["$defs"][prop["$ref"].rsplit("/", 1)[1]])
    return prop


def test_flags_and_schema_agree(subtests: pytest.Subtests) -> None:
    for declared in METHODS:
        with subtests.test(declared.name):
            agree_with_the_schema(declared)


def agree_with_the_schema(method: Method) -> None:
    schema = params_schema(method)
    flags = {flag.param: flag for flag in flags_of(method) if flag.param and "." not in flag.param}
    assert set(flags) == set(schema["properties"])
    for name, prop in schema["properties"].items():
        flag, spec = flags[name], resolved(schema, prop)
        assert flag.required == (name in schema.get("required", []))
        assert flag.default == prop.get("default"), name
        if "type" in spec:
            assert flag.type == spec["type"], name
        values = spec.get("items", spec)
        if "enum" in values:
            assert sorted(flag.enum or []) == sorted(values["enum"])
        for mine, theirs in (
            ("minimum", "minimum"),
            ("maximum", "maximum"),
            ("pattern", "pattern"),
        ):
            if theirs in spec:
                assert getattr(flag, mine) == spec[theirs], name


def test_flag_names_are_unique_and_plain_json(subtests: pytest.Subtests) -> None:
    for declared in METHODS:
        with subtests.test(declared.name):
            are_unique_and_plain_json(declared)


def are_unique_and_plain_json(method: Method) -> None:
    flags = flags_of(method)
    names = [flag.name for flag in flags]
    assert len(names) == len(set(names))
    assert all(name == name.lower() and "_" not in name for name in names)
    assert msgspec.json.decode(msgspec.json.encode(flags), type=list[Flag]) == flags
    for flag in flags:
        assert all(other in names for other in flag.mutually_exclusive)


def test_every_example_reads_back(subtests: pytest.Subtests) -> None:
    for declared in METHODS:
        with subtests.test(declared.name):
            read_back_from_examples(declared)


def read_back_from_examples(method: Method) -> None:
    for example in method.examples:
        assert read_back(method, example.params) == example.params


class Place(Struct, kw_only=True, frozen=True):
    city: str | None = None
    rooms: Annotated[list[int], Meta(max_length=9)] | None = None


class FlagToy(WriteParams, kw_only=True, frozen=True):
    text: Annotated[str, Meta(min_length=1, max_length=20, description="some text")]
    names: list[str] = []
    count: Annotated[int, Meta(ge=1, le=5)] | None = None
    share: float = 0.5
    on: bool = True
    off: bool = False
    kind: Literal["b", "a"] = "a"
    one_or_many: str | list[str] | None = None
    numbers: list[int] | None = None
    facts: dict[str, str | int | float | bool | None] = {}
    places: list[Place] = []
    place: Place | None = None
    anything: Any = None
    api_key: str | None = None


@method(
    "toy.make",
    kind="write",
    params=FlagToy,
    result=int,
    summary="Make a toy.",
    when_to_use="Never.",
    examples=[Example(params={"text": "x"}, what="one")],
    positional=["text", "names"],
)
def make(call: Any, params: Any) -> Reply:
    raise AssertionError


TOY: Method = make.method  # type: ignore[attr-defined]


def test_flags_of_a_toy() -> None:
    flags = {flag.name: flag for flag in flags_of(TOY)}
    assert flags["--text"].positional
    assert (flags["--text"].min_length, flags["--text"].help) == (1, "some text")
    assert (flags["--names"].type, flags["--names"].items) == ("array", "string")
    assert (flags["--count"].type, flags["--count"].minimum, flags["--count"].maximum) == (
        "integer",
        1,
        5,
    )
    assert flags["--kind"].enum == ["b", "a"]  # the declared order
    assert (flags["--one-or-many"].type, flags["--one-or-many"].items) == ("string", "string")
    assert (flags["--place"].type, flags["--place.rooms"].items) == ("object", "integer")
    assert flags["--api-key"].sensitive
    assert not flags["--text"].sensitive


def test_a_profile_keeps_what_it_is_said_to_keep() -> None:
    for name, declared in REGISTRY.methods.items():
        names = {flag.param for flag in flags_of(declared) if flag.profileable}
        assert names <= set(SETTINGS), name


READ_AS: list[tuple[str, dict[str, Any]]] = [
    ("hello", {"text": "hello"}),
    ("hello a,b c", {"text": "hello", "names": ["a,b", "c"]}),  # paths may hold commas
    ("--names a,b --names c", {"names": ["a", "b", "c"]}),
    ("--names '[\"a,b\"]'", {"names": ["a,b"]}),
    ("--names ''", {"names": []}),
    ("--count=3 --share .25", {"count": 3, "share": 0.25}),
    ("--count -3", {"count": -3}),
    ("--count three", {"count": "three"}),
    ("--off --no-on", {"off": True, "on": False}),
    ("--off=false", {"off": False}),
    ("--one-or-many a", {"one_or_many": "a"}),
    ("--one_or_many a,b", {"one_or_many": ["a", "b"]}),
    ("--numbers 1,2 --numbers 3", {"numbers": [1, 2, 3]}),
    ("--facts a=1 --facts b=x=y --facts 'c=no'", {"facts": {"a": 1, "b": "x=y", "c": "no"}}),
    ("--facts '{\"a\": null}'", {"facts": {"a": None}}),
    ("--place.city Rome --place.rooms 1,2", {"place": {"city": "Rome", "rooms": [1, 2]}}),
    ('--place \'{"city": "Rome"}\' --place.rooms 1', {"place": {"city": "Rome", "rooms": [1]}}),
    ('--places \'[{"city": "Rome"}]\'', {"places": [{"city": "Rome"}]}),
    ('--places \'{"city": "a,b"}\'', {"places": [{"city": "a,b"}]}),
    ("--places '{\"rooms\": [1]}\n\n{}' --places '[]'", {"places": [{"rooms": [1]}, {}]}),
    ("--places '[1]'", {"places": [1]}),
    ("--anything 5", {"anything": 5}),
    ("--anything five", {"anything": "five"}),
    ("-- --off", {"text": "--off"}),
    ("'-left out'", {"text": "-left out"}),
    ("-5", {"text": "-5"}),
    ("--format text x --yes --dry-run", {"text": "x", "dry_run": True}),
]


def test_reading() -> None:
    readings = [(line, read(TOY, shlex.split(line))) for line, _ in READ_AS]
    assert readings == READ_AS


@pytest.mark.parametrize(
    ("line", "field", "valid"),
    [
        ("--cuont 3", "--cuont", "--count"),
        ("-x", "-x", None),
        ("--count", "--count", None),
        ("--count --off", "--count", None),
        ("--facts alone", "--facts", None),
        ("--places alone", "--places", None),
        ("--places '[1'", "--places", None),
        ("--places '{}\n{'", "--places", None),
        ("--no-count", "--no-count", "--count"),
    ],
)
def test_what_can_not_be_read_is_a_typed_error(line: str, field: str, valid: str | None) -> None:
    with pytest.raises(KbprocError) as raised:
        read(TOY, shlex.split(line))
    assert (raised.value.type, raised.value.field) == ("input.invalid_params", field)
    if valid is not None:
        assert raised.value.valid_values is not None
        assert valid in raised.value.valid_values


def test_objects_come_from_stdin_and_files(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    Path("places.json").write_text('[\n  {"city": "Rome"}\n]\n')
    Path("lines.ndjson").write_text('{"city": "a\u2028b"}\r\n\n{"city": "Bern"}\n')
    params = params_of(
        TOY,
        parse(
            "x", flags_of(TOY), ["--places", "-", "--places=@places.json", "--places=@lines.ndjson"]
        ),
        lambda: b'{"city": "Oslo"}',
    )
    assert [place["city"] for place in params["places"]] == ["Oslo", "Rome", "a\u2028b", "Bern"]
    with pytest.raises(KbprocError, match="line 2 is no JSON object") as raised:
        Path("lines.ndjson").write_text('{"city": "Rome"}\n{"city": Bern}\n')
        read(TOY, ["--places", "@lines.ndjson"])
    assert raised.value.field == "--places" and "one object a line" in raised.value.hint


def test_one_word_too_many() -> None:
    with pytest.raises(KbprocError, match="'git' is one too many") as raised:
        read(REGISTRY.find("search"), ["install", "git"])
    assert "quotes" in raised.value.hint


def test_switches_stand_for_a_param() -> None:
    search = REGISTRY.find("search")
    assert read(search, ["x", "--fts-only"]) == {"query": "x", "mode": "fts"}
    assert read(search, ["x", "--vec-only"]) == {"query": "x", "mode": "vector"}
    for pair in (["--fts-only", "--vec-only"], ["--mode", "fts", "--vec-only"]):
        with pytest.raises(KbprocError, match="exclude each other"):
            read(search, ["x", *pair])


def test_words_after_call() -> None:
    words = ['{"a": {"b": 1}}', "a.c=x", "d=[1]", "e=5", "f=five", "-"]
    params = params_from_words(words, lambda: b'{"g": true}')
    assert params == {"a": {"b": 1, "c": "x"}, "d": [1], "e": 5, "f": "five", "g": True}


@pytest.mark.parametrize(
    ("words", "stdin", "type"),
    [
        (["alone"], b"", "input.invalid_params"),
        (["{broken"], b"", "input.invalid_json"),
        (["-"], b"[1]", "input.invalid_json"),
        (["-"], b"\xff", "input.invalid_json"),
        (["a=1", "a.b=2"], b"", "input.invalid_params"),
    ],
)
def test_words_that_are_no_params(words: list[str], stdin: bytes, type: str) -> None:
    with pytest.raises(KbprocError) as raised:
        params_from_words(words, lambda: stdin)
    assert raised.value.type == type


words = st.text(
    st.characters(codec="utf-8") | st.sampled_from(list("-,=[{\"' .1")),
    max_size=8,
)
scalars = words | st.integers(-(2**53), 2**53) | st.booleans()
toys = st.fixed_dictionaries(
    {"text": words},
    optional={
        "names": st.lists(words, max_size=3),
        "count": st.integers(),
        "share": st.floats(allow_nan=False, allow_infinity=False),
        "on": st.booleans(),
        "off": st.booleans(),
        "numbers": st.lists(st.integers(), max_size=3),
        "facts": st.dictionaries(words, scalars, max_size=3),
        "place": st.fixed_dictionaries(
            {"city": words, "rooms": st.lists(st.integers(), max_size=2)}
        ),
        "places": st.lists(st.fixed_dictionaries({"city": words}), max_size=2),
        "api_key": words,
    },
)


@given(toys)
def test_any_request_reads_back(params: dict[str, Any]) -> None:
    assert read_back(TOY, params) == params
