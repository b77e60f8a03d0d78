"""Detection, cleaning, plain text and its encodings."""

from __future__ import annotations

import codecs
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kbproc
from kbproc.base.errors import KbprocError
from kbproc.sources.parse.blocks import clean_text, clean_title
from kbproc.sources.parse.formats import FORMATS, detect, parse
from kbproc.sources.parse.text import decode

POLISH = (
    "Zażółć gęślą jaźń. Wszystkie dzieci uczą się po polsku w szkole, a potem wracają do domu. "
)
RUSSIAN = "Все счастливые семьи похожи друг на друга, каждая несчастливая семья несчастлива. "
JAPANESE = "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。"


def texts(data: bytes, name: str = "a.txt") -> list[str]:
    return [block.text for block in parse(data, "text", name).blocks]


@pytest.mark.parametrize(
    ("name", "head", "expected"),
    [
        ("a.pdf", b"", "pdf"),
        ("A.PDF", b"junk", "pdf"),
        ("a.md", b"# x", "markdown"),
        ("notes", b"just text", "text"),
        ("scan", b"%PDF-1.7\n\x00\x01", "pdf"),
        ("page", b"  <!DOCTYPE html><p>", "html"),
        ("run", b"#!/bin/sh\necho", "code"),
        ("Makefile", b"all:\n", "code"),
        ("a.PY", b"import os", "code"),
        ("letter", b"PK\x03\x04....[Content_Types].xml...word/document.xml", "docx"),
        ("sheet", b"PK\x03\x04....[Content_Types].xml...xl/workbook.xml", None),
        ("a.png", b"\x89PNG\r\n\x1a\n\x00\x00", None),
        ("a.svg", b"<svg>", None),
        ("film.ts", b"\x47\x40\x00\x10\x00\x00", None),
        ("a.txt", "wide".encode("utf-16-le") * 20, "text"),
        ("empty", b"", "text"),
        ("a.bin", bytes(range(256)), None),
    ],
)
def test_detect(name: str, head: bytes, expected: str | None) -> None:
    assert detect(name, head) == expected


def test_every_format_has_a_parser_and_suffixes_of_its_own() -> None:
    suffixes = [suffix for format in FORMATS.values() for suffix in format.suffixes]
    assert len(suffixes) == len(set(suffixes))
    for type in FORMATS:
        assert parse(b"", type, "a").blocks == [] if type not in {"pdf", "docx"} else True


def test_unknown_type_names_the_known_ones() -> None:
    with pytest.raises(KbprocError) as caught:
        parse(b"", "image", "a.png")
    assert caught.value.type == "input.unsupported_type"
    assert caught.value.valid_values == list(FORMATS)


def test_paragraphs_are_what_blank_lines_keep_apart() -> None:
    assert texts(b"one\ntwo\r\n\r\n  three\r\n \t\n\n\nfour\n") == ["one\ntwo", "  three", "four"]


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        (POLISH, "cp1250"),
        (POLISH, "iso8859_2"),
        (RUSSIAN, "koi8_r"),
        (RUSSIAN, "cp1251"),
        (RUSSIAN, "utf-16"),
        (RUSSIAN, "utf-32"),
        (RUSSIAN, "utf-8-sig"),
        ("plain English words, enough of them to see. ", "utf-16-le"),
        ("plain English words, enough of them to see. ", "utf-16-be"),
        ("plain English words, enough of them to see. ", "utf-32-be"),
        (JAPANESE, "shift_jis"),
        (JAPANESE, "euc_jp"),
        (JAPANESE, "iso2022_jp"),
    ],
)
def test_encodings(text: str, encoding: str) -> None:
    text *= 8
    assert decode(text.encode(encoding), "a.txt")[0] == text


def test_the_encoding_is_told_unless_it_is_utf8() -> None:
    assert parse(b"plain", "text", "a.txt").metadata == {}
    wide = codecs.BOM_UTF16_LE + "wide".encode("utf-16-le")
    assert parse(wide, "text", "a.txt").metadata == {"encoding": "utf-16-le"}


def test_colour_codes_of_a_terminal_are_not_an_encoding() -> None:
    assert texts(b"\x1b[31mred\x1b[0m caf\xc3\xa9") == ["[31mred[0m café"]


def test_rows_and_log_lines_are_cut_by_line() -> None:
    assert parse(b"a,b\n1,2", "text", "a.csv").blocks[0].kind == "table"
    assert parse(b"INFO a\nWARN b", "text", "a.log").blocks[0].kind == "code"


def test_a_stray_nul_does_not_make_a_file_binary() -> None:
    assert texts(b"line\n" * 500 + b"cut \x00off") == ["line\n" * 500 + "cut off"]


def test_a_megabyte_of_blank_lines() -> None:
    assert texts(b"a" + b"\n" * (1 << 20)) == ["a"]
    assert texts(b"\n" * (1 << 20) + b"a") == ["a"]


@pytest.mark.parametrize("data", [b"\x00" * 100, b"text\x00with\x00nul", bytes(range(256)) * 10])
def test_binary_data_is_refused(data: bytes) -> None:
    with pytest.raises(KbprocError, match="holds binary data") as caught:
        parse(data, "text", "a.txt")
    assert caught.value.type == "input.unsupported_type"


@given(st.text(st.characters(max_codepoint=127)))
def test_ascii_is_cleaned_like_any_other_text(text: str) -> None:
    assert clean_text(text) == clean_text(f"{text}é").removesuffix("é")


def test_cleaning() -> None:
    assert clean_text("a\x00b\x07c\x7f\td\r\ne\rf\x0cg\u2028h\ufeff"[:-1]) == "abc\td\ne\nf\ng\nh"
    assert clean_text("\ud83d\ude00 \ud83d") == "😀 �"
    assert clean_title("  a\u202eb\u200bc\n\x00 d ") == "abc d"
    assert clean_title("x" * 400) == "x" * 300
    assert clean_title("\u200b \n") is None


@given(st.binary(max_size=300), st.sampled_from(["text", "markdown", "html", "code"]))
def test_any_bytes_are_read_or_refused_with_a_type(data: bytes, type: str) -> None:
    try:
        parsed = parse(data, type, "a.py")
    except KbprocError as error:
        assert error.type == "input.unsupported_type"
        return
    for block in parsed.blocks:
        block.text.encode()
        assert block.text.strip()
        assert not any(char < " " and char not in "\n\t" for char in block.text)


def test_parsers_load_no_library_before_they_read() -> None:
    heavy = {"pypdf", "docx", "lxml", "selectolax", "markdown_it", "yaml", "tokenizers"}
    code = (
        "import sys\n"
        "from kbproc.sources.parse import formats, pool, worker\n"
        f"print(sorted({heavy!r} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(Path(kbproc.__file__).parents[1])},
    )
    assert done.stdout == "[]\n"
