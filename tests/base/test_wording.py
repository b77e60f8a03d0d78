"""Numbers, ids and values in messages: bounded, and never in the wrong number."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kbproc.base.wording import change, failure_in_words, few, plural, there_is_no

VALUES = st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=300)


@given(before=VALUES, after=VALUES)
def test_a_change_is_shown_if_there_is_one_and_values_are_cut(before: Any, after: Any) -> None:
    lines = change("title", before, after)
    assert bool(lines) == (before != after)
    for line in lines:
        assert len(line) <= len("title:  → ") + 2 * 201
        texts = [json.dumps(value, ensure_ascii=False) for value in (before, after)]
        if all(len(text) <= 200 and text.isascii() and text.isprintable() for text in texts):
            assert line == f"title: {texts[0]} → {texts[1]}"


def test_a_change_of_an_object_does_not_depend_on_the_order_of_its_members() -> None:
    assert change("m", {"b": 1, "a": 2}, None) == change("m", {"a": 2, "b": 1}, None)


@pytest.mark.parametrize("length, is_cut", [(198, False), (199, True)])
def test_a_value_of_two_hundred_characters_is_shown_whole(length: int, is_cut: bool) -> None:
    [line] = change("t", "x" * length, None)
    assert ("…" in line) == is_cut


@pytest.mark.parametrize(
    "count, many, text",
    [
        (0, None, "0 chunks"),
        (1, None, "1 chunk"),
        (2, None, "2 chunks"),
        (1, "pieces", "1 chunk"),
        (3, "pieces", "3 pieces"),
    ],
)
def test_one_is_singular(count: int, many: str | None, text: str) -> None:
    assert plural(count, "chunk", many) == text


@pytest.mark.parametrize(
    "message, line",
    [
        ("a.pdf is damaged.", "docs/a.pdf is damaged."),
        ("a.pdf: no page.", "docs/a.pdf: no page."),
        ("a.pdfs are damaged.", "docs/a.pdf: a.pdfs are damaged."),
        ("It is damaged.", "docs/a.pdf: It is damaged."),
    ],
)
def test_the_name_of_a_file_stands_once(message: str, line: str) -> None:
    assert failure_in_words("/home/ann/docs/a.pdf", message, "docs/a.pdf") == line


@given(st.lists(st.sampled_from("abc"), max_size=15))
@example(["a"] * 10)
@example(["a"] * 11)
def test_at_most_ten_are_listed_and_the_others_counted(texts: list[str]) -> None:
    text, more = few(texts), len(texts) - 10
    listed = text.removesuffix(f" and {more} more") if more > 0 else text
    assert listed == "; ".join(texts[:10])
    assert text.endswith(" more") == (more > 0)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=20))
@example(list(range(1, 11)))
@example(list(range(1, 12)))
def test_missing_ids_are_named_once_each_and_at_most_ten(ids: list[int]) -> None:
    own = list(dict.fromkeys(ids))
    text = there_is_no("entry", ids, "entries")
    if len(own) == 1:
        assert text == f"There is no entry {own[0]}."
        return
    more = f" and {len(own) - 10} more" if len(own) > 10 else ""
    assert text == f"There are no entries {', '.join(map(str, own[:10]))}{more}."
    assert there_is_no("chunk", [1, 2]) == "There are no chunks 1, 2."
