"""Comma-, semicolon- and tab-separated values: their tables, heads, rows and dialects."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbproc.engine.sources.chunk import chunk, count_words
from kbproc.engine.sources.parse.blocks import Block, Parsed
from kbproc.engine.sources.parse.formats import detect, parse


def read(data: str | bytes, name: str = "a.csv") -> Parsed:
    raw = data.encode() if isinstance(data, str) else data
    type = detect(name, raw[:4096])
    assert type == "table"
    return parse(raw, type, name)


def shown(data: str | bytes, name: str = "a.csv") -> list[tuple[int | None, str, str]]:
    return [(block.line, block.kind, block.text) for block in read(data, name).blocks]


def written(rows: list[list[str]], **dialect: str) -> str:
    target = io.StringIO()
    csv.writer(target, lineterminator="\n", **dialect).writerows(rows)  # type: ignore[arg-type]
    return target.getvalue()


ROWS = [["Town", "Share", "Founded"], ["Köln", "15 %", "1388-05-21"], ["Ulm, old", "1,5", "854"]]


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_values_are_read_as_they_are_written(delimiter: str, encoding: str) -> None:
    text = written(ROWS, delimiter=delimiter)
    assert shown(text.encode(encoding)) == [(1, "table", text.rstrip())]


def test_each_chunk_repeats_the_head_and_cites_its_rows() -> None:
    rows = [["Part", "Price"], *([f"part number {i}", f"{i}.50"] for i in range(2, 200))]
    parsed = read(written(rows, delimiter=";"))
    chunks = chunk(parsed.blocks, title="a.csv", count=count_words, max_tokens=128)
    assert len(chunks) > 3
    assert all(each.text.startswith("Part;Price\n") for each in chunks)
    for each in chunks[1:]:
        (mark,) = [mark for mark in each.marks if mark.line is not None]
        first_row = each.text[mark.at :].split(";")[0]
        assert first_row == f"part number {mark.line}"


def test_a_field_of_several_lines_is_one_row() -> None:
    data = 'id,remark,who\n1,"first\nsecond ""quoted""\n\nthird",Ann\n2,plain,Bob\n'
    assert shown(data) == [
        (1, "table", 'id,remark,who\n1,"first second ""quoted""  third",Ann\n2,plain,Bob')
    ]


@pytest.mark.parametrize(
    "rows",
    ['size,name\n5",pipe\n6",pipe', 'a,b\n"open,1\n2,3\n', 'a,b\n1,say "no"\n2,"x"y\n'],
)
def test_a_stray_quote_joins_no_rows(rows: str) -> None:
    assert shown(rows) == [(1, "table", rows.rstrip())]


def test_lines_above_the_head_are_no_part_of_the_table() -> None:
    data = "Sales of the harbour\nas of March\nid;sum\n1;2,50\n"
    assert shown(data) == [
        (1, "prose", "Sales of the harbour\nas of March"),
        (3, "table", "id;sum\n1;2,50"),
    ]
    assert shown("sep=;\nid;sum\n1;2\n") == [(2, "table", "id;sum\n1;2")]


def test_a_wide_table_names_the_column_of_each_value() -> None:
    names = [f"column with the number {i}" for i in range(40)]
    rows = [names, [f"value {i}" if i % 2 else "" for i in range(40)], ["x"] * 41]
    blocks = read(written(rows, delimiter=",")).blocks
    (block,) = blocks
    lines = block.text.split("\n")
    assert (block.kind, block.line, len(lines)) == ("code", 2, 2)
    assert lines[0].startswith("column with the number 1: value 1; column with the number 3: ")
    assert lines[1] == ",".join(["x"] * 41)


def test_wide_tables_stay_bounded() -> None:
    wide = ",".join(f"name {'x' * 50} {i}" for i in range(20_000))
    data = wide + "\n" + ("1," * 19_999 + "1\n") * 20
    (block,) = read(data).blocks
    assert len(block.text) <= len(data)
    assert read("a" * 1_000_000).blocks[0].text == "a" * 1_000_000


def test_a_table_without_rows_or_columns() -> None:
    assert shown("only,a,head") == [(1, "table", "only,a,head")]
    assert shown("one\ntwo\n") == [(1, "table", "one\ntwo")]
    assert shown("a\tb\n1\t2\n", "a.tsv") == [(1, "table", "a\tb\n1\t2")]


@pytest.mark.parametrize("data", [" ", " \n\n \n", '"\n"\n'])
def test_rows_without_a_value_have_no_dialect(data: str) -> None:
    assert shown(data) == ([] if not data.strip() else [(1, "table", '" "')])


WORDS = st.text("ab1 ,;\t|\"'\n", max_size=8)


@given(st.lists(st.lists(WORDS, min_size=1, max_size=4), min_size=1, max_size=6))
def test_no_value_is_lost(rows: list[list[str]]) -> None:
    def characters(text: str) -> list[str]:
        return sorted("".join(text.split()))

    text = written(rows)
    blocks: list[Block] = read(text).blocks
    assert characters("".join(block.text for block in blocks)) == characters(text)
