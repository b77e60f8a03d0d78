"""Counts of content that is left out have known kinds, sums, words and advice."""

from __future__ import annotations

import pytest

from kbproc.engine.sources.parse.unread import ADVICE, KINDS, advice, counted, in_words, total


def test_counts_stand_in_the_order_of_the_kinds_without_zeros() -> None:
    counts = counted({"comments": 2, "pictures": 1, "objects": 0})
    assert list(counts.items()) == [("pictures", 1), ("comments", 2)]
    assert counted({}) == {}


def test_an_unknown_kind_is_an_error() -> None:
    with pytest.raises(KeyError, match="no such kind of unread content: \\['spots'\\]"):
        counted({"spots": 0, "comments": 1})


def test_counts_are_added_by_kind() -> None:
    assert total([{"comments": 2}, {}, {"pictures": 1, "comments": 3}]) == {
        "comments": 5,
        "pictures": 1,
    }
    assert total([]) == {}


def test_words_are_singular_or_plural() -> None:
    counts = {"comments": 1, "pictures": 12_345, "headers_and_footers": 1, "odd_kind": 2}
    assert in_words(counts) == "1 comment, 12,345 pictures, 1 header or footer, 2 odd kind"
    assert in_words({}) == ""


def test_the_advice_is_that_of_the_first_kind_that_has_one() -> None:
    counts = {"comments": 1, "attachments": 2, "pages_without_text": 1}
    assert advice(counts) == ADVICE["attachments"]
    assert advice({"comments": 1}) is None


def test_each_kind_has_two_forms_and_advice_is_only_for_kinds() -> None:
    assert ADVICE.keys() <= KINDS.keys()
    assert [kind for kind, (one, many) in KINDS.items() if one == many or not one] == []
