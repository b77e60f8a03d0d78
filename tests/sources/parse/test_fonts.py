"""Fonts whose text can't be read are found, and those of formulas and words are left alone."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import pytest
from pypdf import PdfReader
from pypdf.generic import DictionaryObject

from kbproc.engine.sources.parse.fonts import Fonts, damages, is_lost_text, narrow_spaces
from tests.kit.pdfs import pdf

SUBSET = "/Subtype /TrueType /BaseFont /ABCDEF+Arial"


def font_of(entries: str, *extra: str) -> Any:
    """Returns a font with these entries; the first extra object has the number 8."""
    objects = [f"<< {each} >>".encode() for each in (entries, *extra)]
    page: Any = PdfReader(io.BytesIO(pdf(b"", fonts="/F2 7 0 R", extra=objects))).pages[0]
    return page["/Resources"]["/Font"]["/F2"].get_object()


def is_unreadable(text: str, entries: str, *extra: str) -> bool:
    font = font_of(entries, *extra)
    return Fonts().unreadable([(text, font)]) == {id(font)}


@pytest.mark.parametrize(
    ("entries", "inner", "is_blind"),
    [
        ("/Encoding /Identity-H /DescendantFonts [8 0 R]", "/Type /Font", True),
        ("/Encoding /Identity-H", "", True),
        (
            "/Encoding /Identity-H /DescendantFonts [8 0 R]",
            "/CIDSystemInfo << /Ordering (UCS) >>",
            False,
        ),
        ("/Encoding /Identity-H /ToUnicode 8 0 R /DescendantFonts [8 0 R]", "", False),
        ("/Encoding /UniGB-UCS2-H", "", False),
        ("/Encoding /90ms-RKSJ-H", "", False),
        ("/Encoding /KSCms-UHC-H", "", True),
        ("/Encoding 8 0 R", "/Type /CMap", True),
    ],
)
def test_a_composite_font_is_blind_where_no_code_names_a_character(
    entries: str, inner: str, is_blind: bool
) -> None:
    assert is_unreadable("word", f"/Subtype /Type0 {entries}", inner) == is_blind


def test_a_blind_font_that_shows_only_spaces_is_readable() -> None:
    assert not is_unreadable(" \n", "/Subtype /Type0 /Encoding /Identity-H")
    assert not is_unreadable("", "/Subtype /Type0 /Encoding /Identity-H")


@pytest.mark.parametrize(
    ("text", "is_odd"),
    [
        ("Plain words.", False),
        ("\x01\x02", False),
        ("\x01\x02\x03", True),
        ("(cid:1)(cid:22)(cid:3) of", True),
        ("a (cid:1) of a longer line with words", False),
        ("\ue000 bullet", False),
        ("\ue000\ue001\ue002", True),
        ("7KH\x03FUDQH\x03OLIWV\x03WKH\x03KRRN", True),
        ("THE CRANE LIFTS ITS HOOK", False),
    ],
)
def test_text_is_unreadable_where_much_of_it_is_codes(text: str, is_odd: bool) -> None:
    assert is_unreadable(text, "/Subtype /TrueType /BaseFont /Arial") == is_odd


def test_names_of_glyphs_that_are_only_numbers_are_codes() -> None:
    numbered = "/Subtype /Type3 /Encoding << /Differences [1 /g1 /g12 /u0041 /space] >>"
    assert is_unreadable("/g1/g12/g1", numbered)
    assert not is_unreadable("/u0041/u0041/u0041", numbered)
    assert not is_unreadable("/g1/g12/g1", "/Subtype /Type3")


def test_signs_of_a_formula_are_not_lost_words() -> None:
    assert not is_unreadable("\x01\x02\x03\x04", "/Subtype /Type1 /BaseFont /ABCDEF+CMSY10")
    assert is_unreadable("\x01\x02\x03\x04", "/Subtype /Type1 /BaseFont /ABCDEF+CMR10")


def test_a_symbolic_subset_that_reads_as_signs_has_its_own_codes() -> None:
    signs = "!\"#$%&'()*+,/;<=>?@ab"
    descriptor = "/FontDescriptor << /Flags 4 >>"
    assert is_unreadable(signs, f"{SUBSET} {descriptor}")
    assert not is_unreadable(signs[:20], f"{SUBSET} {descriptor}")
    assert not is_unreadable(signs, f"{SUBSET} /FontDescriptor << /Flags 32 >>")
    assert not is_unreadable(signs, f"{SUBSET} {descriptor} /Encoding /WinAnsiEncoding")
    assert not is_unreadable("words of a text that is plain", f"{SUBSET} {descriptor}")


def test_pieces_of_a_font_are_judged_together_and_no_font_is_readable() -> None:
    font, other = font_of("/Subtype /Type1"), font_of("/Subtype /Type1")
    fonts = Fonts()
    assert fonts.unreadable([("\x01", font), ("a", other), ("\x02\x03", font)]) == {id(font)}
    # Another page of the same font may be readable.
    assert fonts.unreadable([("words", font), ("words", None)]) == set()


@pytest.mark.parametrize(
    ("pieces", "is_lost"),
    [
        ([], False),
        (["ab", " c "], False),
        (["a b c"], True),
        (["x"] * 39, False),
        (["x"] * 40, True),
    ],
)
def test_few_short_pieces_are_no_lost_text(pieces: list[str], is_lost: bool) -> None:
    assert is_lost_text(pieces) == is_lost


@pytest.mark.parametrize(
    ("first", "widths", "expected"),
    [
        (32, [500, 300], [400, 300]),
        (31, [250, 500, 300], [250, 400, 300]),
        (32, [450, 300], [450, 300]),
        (32, [600, 600], [600, 600]),
        (40, [500, 300], [500, 300]),
        (30, [500, 300], [500, 300]),
    ],
)
def test_a_wide_space_becomes_narrower(
    first: int, widths: Sequence[int], expected: list[int]
) -> None:
    entries = f"/FirstChar {first} /Widths [{' '.join(map(str, widths))}]"
    objects = [f"<< {entries} >>".encode(), b"<< /Widths 5 >>", b"(no font)"]
    data = pdf(b"", fonts="/F2 8 0 R /F3 9 0 R /F4 7 0 R", extra=objects)
    page: Any = PdfReader(io.BytesIO(data)).pages[0]
    narrow_spaces(page)
    assert page["/Resources"]["/Font"]["/F4"]["/Widths"] == expected


def test_a_page_without_fonts_is_no_damage() -> None:
    narrow_spaces(DictionaryObject())
    assert issubclass(KeyError, damages())
    assert not issubclass(MemoryError, damages())
