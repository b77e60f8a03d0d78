"""Expectations: pointers, references and matchers that can fail."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbproc.contract.expect import ABSENT, NotThere, at, mismatch, resolved

NAMES = st.text("a/~0-1", min_size=1, max_size=4)
VALUES = st.recursive(
    st.none() | st.integers(0, 3) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)


def leaves(value: Any, pointer: str = "") -> list[tuple[str, Any]]:
    """Returns every pointer of RFC 6901 into a value, and the value at each."""
    parts: Any = ()
    if isinstance(value, dict):
        parts = [(k.replace("~", "~0").replace("/", "~1"), v) for k, v in value.items()]
    elif isinstance(value, list):
        parts = list(enumerate(value))
    below = [leaf for name, inner in parts for leaf in leaves(inner, f"{pointer}/{name}")]
    return [(pointer, value), *below]


@given(value=VALUES)
def test_every_pointer_finds_its_value(value: Any) -> None:
    for pointer, target in leaves(value):
        assert at(value, pointer) == target


@pytest.mark.parametrize("pointer", ["/c", "/a/2", "/a/-2", "/a/x", "/a/0/b", "/s/0", "/e/-1"])
def test_a_pointer_to_nothing_is_absent(pointer: str) -> None:
    assert at({"a": [1, 2], "s": "text", "e": []}, pointer) is ABSENT


def test_the_last_item_has_a_name() -> None:
    assert at({"a": [1, 2]}, "/a/-1") == 2


def test_references_are_replaced_at_any_depth_or_refused() -> None:
    named = {"first": {"id": 7, "list": [1]}}
    assert resolved({"a": ["=first/id", {"b": "=first/list"}], "c": "x=first"}, named) == {
        "a": [7, {"b": [1]}],
        "c": "x=first",
    }
    assert resolved("=first", named) == named["first"]
    for reference in ("=first/no", "=second/id"):
        with pytest.raises(NotThere, match=reference[1:]):
            resolved([reference], named)


SUBJECT = {"n": 1, "f": 1.5, "t": True, "s": "abc", "l": [1, 2], "o": {"a": 1}, "z": None, "e": ""}


@pytest.mark.parametrize(
    "place, matches, differs",
    [
        ("/n", {"is": 1}, {"is": True}),
        ("/t", {"type": "boolean"}, {"type": "integer"}),
        ("/t", {"is": True}, {"type": "number"}),
        ("/n", {"type": "number"}, {"type": "string"}),
        ("/z", {"type": "null"}, {"type": "object"}),
        ("/n", {"one_of": [1, 2]}, {"one_of": [3]}),
        ("", {"has": ["n", "f"]}, {"has": ["n", "no"]}),
        ("", {"has_one": ["no", "n"]}, {"has_one": ["no"]}),
        ("/l", {"contains": 2}, {"contains": 3}),
        ("/s", {"contains": "b"}, {"contains": "x"}),
        ("/s", {"matches": "^a"}, {"matches": "^b"}),
        ("/l", {"length": 2}, {"length": 1}),
        ("/f", {"above": 1}, {"above": 1.5}),
        ("/f", {"below": 2}, {"below": 1.5}),
        ("/t", {"present": True}, {"above": 0}),
        ("/no", {"present": False}, {"present": True}),
        ("/z", {"present": True}, {"present": False}),
        ("/e", {"empty": True}, {"empty": False}),
        ("/s", {"empty": False}, {"empty": True}),
        ("/no", {"empty": False}, {"empty": True}),
        ("/l", {"only": [1, 2, 3]}, {"only": [1]}),
        ("/l", {"set": [2, 1]}, {"set": [1, 2, 2]}),
        ("/no", {"present": False}, {"is": None}),
        ("/l", {"is": [1, 2]}, {"is": [1.0, 2]}),
        ("/o", {"is": {"a": 1}}, {"is": {"a": True}}),
    ],
)
def test_a_matcher_tells_what_matches_from_what_differs(
    place: str, matches: dict[str, Any], differs: dict[str, Any]
) -> None:
    assert mismatch({"at": place, **matches}, SUBJECT) is None
    reason = mismatch({"at": place, **differs}, SUBJECT)
    assert reason is not None
    [name] = differs
    assert reason.startswith(f"{place or 'what came'} {name} {differs[name]!r}")
    assert ("nothing is there" in reason) == (place == "/no")


def test_each_collects_a_member_of_every_item() -> None:
    subject = {"items": [{"id": 1}, {"id": 2}, {}]}
    expectation = {"at": "/items", "each": "/id"}
    assert mismatch({**expectation, "length": 3}, subject) is None
    assert mismatch({**expectation, "contains": 2}, subject) is None
    assert mismatch({**expectation, "only": [1, 2]}, subject) is not None


def test_a_reason_is_bounded() -> None:
    reason = mismatch({"at": "/s", "is": ""}, {"s": "x" * 9999})
    assert reason is not None
    assert len(reason) == 600
