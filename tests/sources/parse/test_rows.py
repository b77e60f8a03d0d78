"""Tables of separated values keep their rows, and a table with many columns names each value."""

from __future__ import annotations

import re

import pytest

from kbproc.engine.sources.parse.blocks import Block
from kbproc.engine.sources.parse.rows import blocks, in_rows, tables

NAMES = [f"The long name of the column with letter {letter}" for letter in "abcdefgh"]
WIDE = ",".join(NAMES)


def parts_of(text: str) -> list[tuple[int, int, int]]:
    """Returns the ranges that blank lines separate."""
    return [
        (text.count("\n", 0, part.start()), part.start(), part.end())
        for part in re.finditer(r"[^\n]+(?:\n[^\n]+)*", text)
    ]


def read(text: str) -> list[Block]:
    return list(blocks(text, parts_of(text)))


def test_a_table_stays_as_it_is_written_with_its_empty_cells() -> None:
    text = "item;load;\nhook;;red\n;4 t;"
    assert read(text) == [Block(text=text, kind="table", line=1)]


def test_lines_above_the_head_are_a_block_of_their_own() -> None:
    assert read("\n\nCranes of 2024\nin tons\nitem,load\nhook,4\nrope,2") == [
        Block(text="Cranes of 2024\nin tons", line=3),
        Block(text="item,load\nhook,4\nrope,2", kind="table", line=5),
    ]


def test_a_part_below_a_blank_line_continues_the_table() -> None:
    text = "item,load\nhook,4\n\nrope,2\n\nname,price\noil,7\n\none word"
    assert [(block.text, block.line) for block in read(text)] == [
        ("item,load\nhook,4\n\nrope,2", 1),
        ("name,price\noil,7", 6),
        ("one word", 9),
    ]


def test_the_ranges_of_tables_have_the_lines_above_them() -> None:
    text = "a|b\n1|2\n\n3|4"
    assert tables(text, parts_of(text)) == [(0, 0, 12)]
    assert tables("", []) == []


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ('a,"x\ny",b\n1,2,3', 'a,"x y",b\n1,2,3'),
        ('a,"say ""hi""\nto all"\n1,2', 'a,"say ""hi"" to all"\n1,2'),
        ('a,5" rope\nb,"x', 'a,5" rope\nb,"x'),
        ("sep=;\na;b", "\na;b"),
        ("plain\nrows", "plain\nrows"),
        ("", ""),
    ],
)
def test_a_field_with_breaks_becomes_one_line(text: str, rows: str) -> None:
    assert in_rows(text) == rows


def test_a_wide_table_names_the_column_of_each_value() -> None:
    values = [letter * 40 for letter in "ABCDEFGH"]
    gaps = [*values[:2], *[" "] * 5, values[7]]
    extra = ",".join([*values, "ninth"])
    [block] = read("\n".join([WIDE, ",".join(values), ",".join(gaps), extra]))
    assert (block.kind, block.line) == ("code", 2)
    pairs = [f"{name}: {value}" for name, value in zip(NAMES, values, strict=True)]
    assert block.text.split("\n") == [
        "; ".join(pairs),
        "; ".join([*pairs[:2], pairs[7]]),
        extra,
    ]


@pytest.mark.parametrize(
    "text",
    [
        # The labels would have many times the characters of the values.
        "\n".join([WIDE, ",".join("12345678")]),
        # There are no rows below it.
        WIDE,
        # The head has a number, or fewer columns than its rows.
        "\n".join([f"{WIDE},7", ",".join(letter * 40 for letter in "ABCDEFGHI")]),
        "\n".join([WIDE, *[",".join(letter * 40 for letter in "ABCDEFGHI")] * 3]),
        ",".join(["x" * 100] * 4) + "\n" + ",".join(["y" * 100] * 4),
    ],
)
def test_other_long_heads_stay_as_they_are(text: str) -> None:
    assert read(text) == [Block(text=text, kind="table", line=1)]


def test_a_row_of_a_hundred_thousand_quotes_is_read() -> None:
    text = "a,b\n" + '"' * 100_001
    assert read(in_rows(text)) == [Block(text=text, kind="table", line=1)]
