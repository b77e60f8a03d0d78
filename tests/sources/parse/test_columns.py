"""Columns of prose are read one after the other, and columns of a table line by line."""

from __future__ import annotations

import pytest

from kbproc.engine.sources.parse.columns import TextRun, gutter, reading_order

LEFT = ["The first column is", "a text of some words", "that goes on and on", "to its own end here"]
RIGHT = ["A second column has", "other words beside it", "which a reader meets", "after the first"]


def run(along: float, across: float, text: str, size: float = 10) -> TextRun:
    return TextRun(along, across, size, len(text), text)


def rows(*columns: list[str], width: float = 110, top: float = 0) -> list[TextRun]:
    """Returns the lines of columns side by side, drawn row by row."""
    return [
        run(50 + width * number, top + 12 * row, column[row])
        for row in range(len(columns[0]))
        for number, column in enumerate(columns)
    ]


def test_two_columns_are_read_one_after_the_other() -> None:
    runs = rows(LEFT, RIGHT)
    assert gutter(runs) == 158.5
    assert reading_order(runs).split("\n") == [*LEFT, *RIGHT]


def test_three_columns_are_read_in_order() -> None:
    third = [
        "Some words of a third",
        "one that no program",
        "draws in this order",
        "but a few do so",
    ]
    assert reading_order(rows(LEFT, RIGHT, third)).split("\n") == [*LEFT, *RIGHT, *third]


def test_three_rows_are_enough_and_only_four_columns_are_told_apart() -> None:
    assert gutter(rows(LEFT[:3], RIGHT[:3])) == 158.5
    columns = [[f"{name} {line[2:]}" for line in LEFT] for name in "abcde"]
    texts = reading_order(rows(*columns)).split("\n")
    assert texts[:12] == [*columns[0], *columns[1], *columns[2]]
    assert texts[12:] == [
        first + second for first, second in zip(columns[3], columns[4], strict=True)
    ]


def test_a_larger_line_that_stands_alone_on_its_side_is_a_heading() -> None:
    heading = run(50, 60, "Ropes and hooks", 12)
    columns = rows(LEFT, RIGHT), rows(LEFT[::-1], RIGHT[::-1], top=84)
    texts = reading_order([*columns[0], heading, *columns[1]]).split("\n")
    assert texts == [*LEFT, *RIGHT, "", heading.text, "", *LEFT[::-1], *RIGHT[::-1]]
    # A line of the usual size goes on in its column.
    texts = reading_order([*columns[0], heading._replace(size=10), *columns[1]]).split("\n")
    assert texts == [*LEFT, heading.text, *LEFT[::-1], *RIGHT, *RIGHT[::-1]]


def test_columns_between_many_full_lines_or_beside_few_lines_are_none() -> None:
    full = "A line that reaches over both of the columns"
    for count, is_prose in ((2, True), (3, False)):
        across = [run(50, 60 + 12 * number, full) for number in range(count)]
        assert (gutter([*rows(LEFT, RIGHT), *across]) is not None) == is_prose
    alone = [
        run(50 + 110 * side, 120 + 12 * number, "A line beside no other")
        for side in (0, 1)
        for number in range(4)
    ]
    assert gutter([*rows(LEFT, RIGHT), *alone]) is None


def test_a_heading_across_both_columns_ends_what_is_above_it() -> None:
    heading = run(50, 60, "A heading that reaches over both of the columns", 12)
    runs = [*rows(LEFT, RIGHT), heading, *rows(LEFT[::-1], RIGHT[::-1], top=72)]
    texts = [*LEFT, *RIGHT, "", heading.text, "", *LEFT[::-1], *RIGHT[::-1]]
    assert reading_order(runs).split("\n") == texts


@pytest.mark.parametrize(
    ("names", "values"),
    [
        (["Rope", "Hook", "Lever", "Wheel"], ["12", "4", "7", "90"]),
        (LEFT, ["12 mm", "4 t", "none", "red"]),
        (LEFT[:2], RIGHT[:2]),
        (["Aaaaaaaaaaaaaaaaaaaaaa"] * 4, ["Bbbbbbbbbbbbbbbbbbbbbb"] * 4),
    ],
)
def test_cells_of_a_table_stay_in_their_rows(names: list[str], values: list[str]) -> None:
    runs = rows(names, values)
    assert gutter(runs) is None
    pairs = zip(names, values, strict=True)
    assert reading_order(runs).split("\n") == [first + second for first, second in pairs]


def test_columns_that_were_drawn_one_by_one_have_no_gutter() -> None:
    runs = rows(LEFT, RIGHT)
    runs = [*runs[::2], *runs[1::2]]
    assert gutter(runs) is None
    assert reading_order(runs).split("\n") == [*LEFT, *RIGHT]


def test_columns_far_wider_than_their_lines_are_no_prose() -> None:
    assert gutter(rows(LEFT, RIGHT, width=300)) is None


def test_pieces_of_one_line_are_joined_and_blank_ones_go() -> None:
    runs = [
        run(50, 0, "One "),
        run(80, 3, "line"),
        run(50, 12, "  \n "),
        run(50, 24, "two\nlines"),
    ]
    assert reading_order(runs) == "One line\ntwo\nlines"
    assert reading_order([]) == ""


def test_so_many_runs_that_it_would_take_long_are_read_as_drawn() -> None:
    many = rows(LEFT, RIGHT) * 2501
    assert len(many) > 20_000
    assert gutter(many) is None
    assert gutter(many[:16]) is not None
