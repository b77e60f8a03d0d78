"""A number, date or character out of range costs that value, and never the file."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pytest
from python_calamine import CalamineWorkbook

from kbproc.engine.sources.parse.formats import detect, parse
from kbproc.engine.sources.parse.sheet import rows_of
from tests.kit.office import odf, workbook

ID = '"123e4567-e89b-12d3-a456-426614174000"'
# Numbers and texts in JSON: out of range, too long for Python, half of a pair of surrogates.
JSON = ("1e400", "-1e400", "1" * 5000, r'"\ud800"', r'"\udc00x"', "null", "[]", '"x"')


def sheets() -> Iterator[tuple[str, bytes]]:
    odd = [
        *((1e12, "[h]:mm"), (1e12, "yyyy-mm-dd"), (-1e12, "[h]:mm"), (1e300, "[h]:mm")),
        *((1e308, "0%"), (3e6, "yyyy"), (-5, "yyyy-mm-dd"), (2958466, "yyyy-mm-dd")),
    ]
    for number, code in odd:

        def fill(book: Any, number: float = number, code: str = code) -> None:
            sheet = book.add_worksheet("Sums")
            sheet.write("B4", "kept")
            sheet.write("B5", number, book.add_format({"num_format": code}))

        yield "a.xlsx", workbook(fill)


def texts() -> Iterator[tuple[str, bytes]]:
    for escape in (r"\u99999999999 ?", r"\u-99999 ?", r"\u1114112?", r"\u55357?", r"\'zz"):
        yield "a.rtf", rf"{{\rtf1\ansi before {escape} and \\u99999999 kept\par}}".encode()
    for entity in ("&#99999999999;", "&#xD800;", "&#x110000;", "<td colspan=²>", "<li value=1e9>"):
        yield "a.html", f"<html><body><p>before {entity} kept</p></body></html>".encode()
        yield "a.md", f"# Title\n\nbefore {entity} kept\n".encode()
    for date in ("Mon, 99 Foo 99999 99:99:99 +9999", "1 Jan 99999999999 00:00:00 +99999999"):
        yield "a.eml", f"From: a@b.c\nTo: d@e.f\nSubject: s\nDate: {date}\n\nkept\n".encode()
    for number in ("²", "9" * 5000, "-1", "1e9"):
        heading = f'<text:h text:outline-level="{number}">Head</text:h>'
        blanks = f'<text:p>before<text:s text:c="{number}"/>kept</text:p>'
        yield "a.odt", odf(heading + blanks, "text")


def json_files() -> Iterator[tuple[str, bytes]]:
    for odd in JSON:
        head = f'{{"cell_type":"heading","level":{odd},"source":"Head"}}'
        text = f'{{"cell_type":"markdown","execution_count":{odd},"source":"kept"}}'
        cells = f"[{head},{text}]"
        yield "a.ipynb", f'{{"nbformat":3,"worksheets":[{{"cells":{cells}}}]}}'.encode()
        yield "a.json", f'[{{"a":{odd},"b":"kept"}},{{"a":2,"b":"x"}}]'.encode()
        yield "a.jsonl", f'{{"a":{odd},"b":"kept"}}\n{{"a":2,"b":"x"}}\n'.encode()
        yield (
            "conversations.json",
            f'[{{"title":"kept","create_time":{odd},"mapping":{{"a":{{"message":{{"author":'
            f'{{"role":"user"}},"create_time":{odd},"content":{{"content_type":"text","parts":'
            '["Hello."]},"parent":null}}},"current_node":"a","conversation_id":"c"}]'.encode(),
        )
        yield (
            "s.jsonl",
            f'{{"type":"user","sessionId":{ID},"uuid":{ID},"parentUuid":null,"timestamp":{odd},'
            '"message":{"role":"user","content":"kept"}}\n'.encode(),
        )


@pytest.mark.parametrize("files", [sheets, texts, json_files])
def test_an_odd_value_costs_no_file(files: Any) -> None:
    for name, data in files():
        kind = detect(name, data[:4096])
        assert kind is not None, (name, data)
        blocks = parse(data, kind, name).blocks
        assert "kept" in "\n".join(block.text for block in blocks), (name, data)


@pytest.mark.parametrize("odd", [1e12, -1e12, 1e300])
def test_an_odd_time_costs_its_row_where_calamine_reads_the_sheet(odd: float) -> None:
    def fill(book: Any) -> None:
        sheet = book.add_worksheet("Sums")
        sheet.write("B4", "kept")
        sheet.write("C5", odd, book.add_format({"num_format": "[h]:mm"}))
        sheet.write("B6", "too")

    book = CalamineWorkbook.from_filelike(io.BytesIO(workbook(fill)))
    rows = [(number, row) for number, row in rows_of(book.get_sheet_by_index(0)) if any(row)]
    assert rows == [(3, ["kept", ""]), (5, ["too", ""])]
