"""Detection, cleaning, plain text and its encodings."""

from __future__ import annotations

import codecs
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kbproc
from kbproc.base.errors import KbprocError
from kbproc.base.text.passage import passage
from kbproc.engine.sources.chunk import chunk, count_words
from kbproc.engine.sources.parse.blocks import clean_text, clean_title
from kbproc.engine.sources.parse.formats import FORMATS, HOLDERS, detect, is_text, parse
from kbproc.engine.sources.parse.text import decode

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
        ("A.PDF", b"junk", "text"),
        ("b.pdf", b"\x00\x01junk", "pdf"),
        ("a.md", b"# x", "markdown"),
        ("notes", b"just text", "text"),
        ("scan", b"%PDF-1.7\n\x00\x01", "pdf"),
        ("page", b"  <!DOCTYPE html><p>", "html"),
        ("run", b"#!/bin/sh\necho", "code"),
        ("Makefile", b"all:\n", "code"),
        ("a.PY", b"import os", "code"),
        ("letter", b"PK\x03\x04....[Content_Types].xml...word/document.xml", "docx"),
        ("sheet", b"PK\x03\x04....[Content_Types].xml...xl/workbook.xml", "sheet"),
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
        if type != "conversation" and (is_text(type) or type in HOLDERS):
            assert not parse(b"", type, "").parts
        else:
            with pytest.raises(KbprocError) as caught:
                parse(b"", type, "a")
            # A conversation is known by its content, and nothing has none.
            unknown = type == "conversation"
            expected = "input.unsupported_type" if unknown else "operation.failed"
            assert caught.value.type == expected


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
    assert texts(b"\x1b[31mred\x1b[0m caf\xc3\xa9") == ["red café"]


GERMAN = "Der Schlüssel öffnet größere Türen. Für die Straße genügt er.\n"


@pytest.mark.parametrize(
    ("data", "text", "bad"),
    [
        # The file was cut in the middle of a letter.
        (GERMAN.encode() + "Grü".encode()[:-1], f"{GERMAN}Gr\ufffd", 1),
        ("naïve façade, don’t".encode()[:-2], "naïve façade, don\ufffd", 2),
        ("日本語".encode()[:-1], "日本\ufffd", 2),
        ("plain words 😀".encode()[:-1], "plain words \ufffd", 3),
        (b"plain words, Schl\xc3", "plain words, Schl\ufffd", 1),
        # A line of it comes from an older program.
        (
            GERMAN.encode() * 40 + "Große Straße in Zürich\n".encode("latin-1") + GERMAN.encode(),
            f"{GERMAN * 40}Große Straße in Zürich\n{GERMAN}",
            3,
        ),
        (
            GERMAN.encode() + "«Très» cœur à 5 £ – où ?\n".encode("cp1252"),
            f"{GERMAN}«Très» cœur à 5 £ – où ?\n",
            8,
        ),
        (
            "Größe 日本\n".encode() + "STRAßE, SÃO\n".encode("latin-1"),
            "Größe 日本\nSTRAßE, SÃO\n",
            2,
        ),
        # A crash left noise.
        (GERMAN.encode() + b"x \xff\xfe\x80 y", f"{GERMAN}x \ufffd\ufffd\ufffd y", 3),
        (b"INFO start\nINFO payload \xff\xfe\x80 end\n", "INFO start\nINFO payload ��� end\n", 3),
        ("Ключ от двери\n".encode() + b"\xfe\x81\n", "Ключ от двери\n��\n", 2),
        # Too long, half a pair, and a pair that is written as two letters.
        (GERMAN.encode() + b"a\xc0\xafb \xed\xa0\x80", f"{GERMAN}a��b ���", 5),
        (GERMAN.encode() + b"\xed\xa0\xbd\xed\xb8\x80!", f"{GERMAN}😀!", 6),
        (codecs.BOM_UTF8 + b"only \xff here", "only � here", 1),
        (codecs.BOM_UTF8 + b"Stra\xdfe", "Straße", 1),
    ],
)
def test_damaged_utf8_is_utf8_all_the_same(data: bytes, text: str, bad: int) -> None:
    assert decode(data, "a.txt") == (text, "utf-8", bad)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"caf\xe9", "café"),
        (b"The caf\xe9 was closed.", "The café was closed."),
        (b"S\xe3o Paulo, \xa7 5: 20 \xb0C", "São Paulo, § 5: 20 °C"),
        (b"it\x92s 5 \x80", "it’s 5 €"),
        (b"e \xe0 la carte", "e à la carte"),
    ],
)
def test_a_few_western_bytes_in_ascii_are_no_damage(data: bytes, text: str) -> None:
    assert decode(data, "a.txt") == (text, "cp1252", 0)


def test_letters_that_come_late_are_seen() -> None:
    data = (
        b"plain words\n" * 20_000 + "Große Straße in Zürich, schöne Grüße\n".encode("latin-1") * 9
    )
    assert decode(data, "a.txt").text.endswith("Große Straße in Zürich, schöne Grüße\n")


def test_bad_bytes_are_counted_in_any_encoding() -> None:
    assert decode("wide".encode("utf-16") + b"x", "a.txt") == ("wide\ufffd", "utf-16-le", 1)
    half = codecs.BOM_UTF16_BE + "a\ud83db".encode("utf-16-be", "surrogatepass")
    assert decode(half, "a.txt") == ("a\ufffdb", "utf-16-be", 2)
    assert decode((JAPANESE * 8).encode("shift_jis")[:-1], "a.txt").replaced == 1
    rows = "Stück,Größe\n1,2\n".encode() + b"\xff,3"
    assert parse(rows, "text", "a.csv").unread == {"replaced_bytes": 1}
    assert parse(b"INFO gr\xc3\xbc\xc3\n", "text", "a.log").unread == {"replaced_bytes": 1}


def test_a_long_file_with_damage_everywhere_is_read_in_one_pass() -> None:
    line = "Größe ".encode() + b"\xff Stra\xdfe "
    decoded = decode(line * 40_000, "a.txt")
    assert decoded.replaced == 80_000
    assert decoded.text.count("Größe") == 40_000


def test_a_hole_that_a_crash_leaves_does_not_make_a_log_binary() -> None:
    log = "INFO Größe\n".encode() * 200
    assert texts(log + b"\0" * 1000 + b"INFO again\n", "a.log") == [
        "INFO Größe\n" * 200 + "INFO again"
    ]


@pytest.mark.parametrize(
    ("printed", "text"),
    [
        ("\x1b[1;31mERROR\x1b[0m: \x1b[38;5;12mdisk\x1b[m full", "ERROR: disk full"),
        ("\x1b[2K10%\r\x1b[2K20%\rdone", "10%\n20%\ndone"),
        ("Starting\x1b[60G[ OK ]\x1b(B", "Starting [ OK ]"),
        ("\x1b7saved\x1b8 and \x1b=back", "saved and back"),
        ("N\bNA\bAM\bME\bE of _\bi_\bt", "NAME of it"),
        ("u\b_n\b_der", "under"),
        ("typo\b \bs", "typs"),
        ("an unknown \x1bH stays", "an unknown H stays"),
    ],
)
def test_what_stays_on_a_terminal_is_the_text(printed: str, text: str) -> None:
    parsed = parse(printed.encode(), "text", "a.log")
    assert [block.text for block in parsed.blocks] == [text]
    assert parsed.unread == {}


def test_words_in_a_control_sequence_are_counted() -> None:
    printed = (
        "\x1b]0;build of main\x07make \x1b]8;;https://a.b\x1b\\link\x1b]8;;\x1b\\\x1b]4;1;?\x07"
    )
    parsed = parse(printed.encode(), "text", "a.txt")
    assert [block.text for block in parsed.blocks] == ["make link"]
    assert parsed.unread == {"terminal_codes": 2}
    assert texts(b"\x1b]0;never ends\nnext") == ["]0;never ends\nnext"]


@pytest.mark.parametrize("code", ["\x1b", "\x1b]", "\x1b[", "\x1b[0", "a\b", "\b", "\x1b]a\x07"])
def test_a_megabyte_of_control_sequences(code: str) -> None:
    parse(code.encode() * (1 << 18) + b"end", "text", "a.txt")


# Each but \n, \r\n and \r is on the line where it stands.
BREAKS = [
    "\n",
    "\r\n",
    "\r",
    "\x0c",
    "\x0b",
    "\x85",
    "\u2028",
    "\u2029",
    "\x1c",
    "\x1e",
    " ",
    "\n\n",
]
pieces = st.lists(
    st.tuples(
        st.sampled_from(["alpha", "beta gamma", "# Head", "x = 1", "- item"]),
        st.sampled_from(BREAKS),
    ),
    min_size=1,
    max_size=40,
)


@given(pieces, st.sampled_from(["text", "markdown", "code"]))
def test_cited_lines_are_those_of_an_editor(pieces: list[tuple[str, str]], type: str) -> None:
    source = "".join(f"{words}{end}" for words, end in pieces)
    lines = re.split(r"\r\n|\n|\r", source)
    for part in chunk(
        parse(source.encode(), type, "a").blocks, title=None, count=count_words, max_tokens=32
    ):
        cited = passage(part.marks, part.text, 0, len(part.text))
        assert cited.start_line and cited.end_line
        stretch = " ".join(lines[cited.start_line - 1 : cited.end_line])
        assert " ".join(part.text.split()) in " ".join(stretch.split())
        assert part.text.split()[0] in lines[cited.start_line - 1]
        assert part.text.split()[-1] in lines[cited.end_line - 1]


def test_a_form_feed_begins_a_paragraph_and_no_line() -> None:
    pages = parse(b"one\n\n[Page 1]\n\x0cRFC 1\n\x0c\ntwo\x0bthree\xe2\x80\xa9four", "text", "a")
    assert [(block.line, block.text) for block in pages.blocks] == [
        (1, "one"),
        (3, "[Page 1]"),
        (4, "RFC 1"),
        (6, "two three"),
        (6, "four"),
    ]


def test_windows_line_ends_and_one_long_line() -> None:
    blocks = parse(b"one\r\ntwo\r\n\r\nthree\r\n", "text", "a.txt").blocks
    assert [(block.line, block.text) for block in blocks] == [(1, "one\ntwo"), (4, "three")]
    assert texts(b"word " * 12_000) == [("word " * 12_000).rstrip()]


def test_rows_of_a_table_stay_together_across_blank_lines() -> None:
    rows = "id,name\n1,a\n\n2,b\n\ncity,people\nRome,3\n\n\nonly a note\n\nx;y;z\n1;2;3"
    assert [(block.line, block.text) for block in parse(rows.encode(), "text", "a.csv").blocks] == [
        (1, "id,name\n1,a\n\n2,b"),
        (6, "city,people\nRome,3"),
        (10, "only a note"),
        (12, "x;y;z\n1;2;3"),
    ]


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
    assert clean_text("a\x00b\x07c\x7f\td\r\ne\rf\x0cg\u2028h\ufeff"[:-1]) == "abc\td\ne\nf g h"
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
        "from kbproc.engine.sources.parse import formats, pool, worker\n"
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
