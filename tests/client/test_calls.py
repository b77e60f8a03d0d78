"""Methods as attributes: each has one path, and its arguments have one meaning."""

from __future__ import annotations

import keyword
from typing import Any

import pytest

from kbproc.client.calls import Call, Noun
from kbproc.client.facts import METHODS


class Recorder:
    """A client that returns what it was asked."""

    def call(self, method: str, params: Any = None, /, **more: Any) -> Any:
        return "call", method, params

    def stream(self, method: str, params: Any = None, /, **more: Any) -> Any:
        return "stream", method, params


@pytest.fixture
def kb() -> Any:
    return Noun(Recorder())


def test_every_method_is_an_attribute_and_listed(kb: Any) -> None:
    for method in METHODS:
        target = kb
        words = method.split(".")
        for name in (f"{word}_" if keyword.iskeyword(word) else word for word in words):
            assert name in dir(target)
            target = getattr(target, name)
        assert isinstance(target, Call)
        assert target.method == method
        assert target() == ("call", method, {})
        assert target.stream(x=1) == ("stream", method, {"x": 1})


def test_names_that_are_no_method_are_refused_at_their_level(kb: Any) -> None:
    for target, name in ((kb, "docs"), (kb.doc, "ping"), (kb.doc, "doc"), (kb, "create")):
        with pytest.raises(AttributeError, match=repr(name)):
            getattr(target, name)
    assert not hasattr(Noun.__new__(Noun), "doc"), "copying asks before there is a noun"


def test_arguments_by_place_are_named(kb: Any) -> None:
    assert kb.search("heron", limit=3)[2] == {"query": "heron", "limit": 3}
    with pytest.raises(TypeError, match="takes these arguments by place: query"):
        kb.search("heron", 3)
    with pytest.raises(TypeError, match="two values for query"):
        kb.search("heron", query="lake")
    with pytest.raises(TypeError, match="by place: none"):
        kb.ping(1)
