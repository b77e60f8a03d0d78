"""A page is decoded in the encoding that it names, as browsers do, unless its bytes are others."""

from __future__ import annotations

import pytest

from kbproc.base.errors import KbprocError
from kbproc.engine.sources.parse.page_encoding import LABELS, decode_page
from kbproc.engine.sources.parse.text import Decoded

META = '<meta charset="{}">'


def page(label: str, words: str, encoding: str) -> bytes:
    return META.format(label).encode() + words.encode(encoding)


@pytest.mark.parametrize(
    ("label", "words", "encoding"),
    [
        ("windows-1251", "Привет", "cp1251"),
        ("ISO-8859-1", "“Größe”", "cp1252"),
        ("gb2312", "漢字中文", "gb18030"),
        ("Shift_JIS", "漢字かな", "cp932"),
        ("koi8-r", "Привет", "koi8-r"),
    ],
)
def test_a_page_is_in_the_encoding_that_it_names(label: str, words: str, encoding: str) -> None:
    decoded = decode_page(page(label, words, encoding), "a.html")
    assert decoded == Decoded(META.format(label) + words, encoding)


@pytest.mark.parametrize(
    "head",
    [
        b'<meta http-equiv="Content-Type" content="text/html; charset=\'iso-8859-2\'">',
        b"<?xml version='1.0' encoding=\"iso-8859-2\"?>",
        b"<!-- <meta charset=koi8-r> --><meta charset=iso-8859-2>",
        b"<meta charset=no-such><meta charset=iso-8859-2>",
        b"<meta name=x content='charset=koi8-r'><meta charset=iso-8859-2>",
        b"<meta http-equiv=Content-Type content=text/html><meta charset=iso-8859-2>",
        b"<meta http-equiv=Content-Type><meta charset=iso-8859-2>",
    ],
)
def test_the_name_stands_in_a_tag_or_in_the_declaration(head: bytes) -> None:
    decoded = decode_page(head + b" \xb1 \xe6", "a.html")
    assert (decoded.encoding, decoded.text[-4:]) == ("iso8859-2", " ą ć")


def test_the_declaration_of_xml_comes_first_only_in_xml() -> None:
    data = b'<?xml version="1.0" encoding="koi8-r"?><meta charset="windows-1251">\xcf'
    assert decode_page(data, "a.xhtml").encoding == "koi8-r"
    assert decode_page(data, "a.html").encoding == "cp1251"


def test_valid_utf_8_is_utf_8_whatever_single_byte_encoding_the_page_names() -> None:
    for label in ("windows-1252", "utf-16", "utf-8"):
        decoded = decode_page(page(label, "Größe", "utf-8"), "a.html")
        assert decoded == Decoded(META.format(label) + "Größe", "utf-8")
    assert decode_page(page("windows-1251", "plain", "ascii"), "a.html").encoding == "cp1251"


def test_a_byte_order_mark_outranks_the_name() -> None:
    data = b"\xef\xbb\xbf" + page("koi8-r", "Größe", "utf-8")
    assert decode_page(data, "a.html") == Decoded(META.format("koi8-r") + "Größe", "utf-8")
    assert decode_page("\ufeff中".encode("utf-16-le"), "a.html") == Decoded("中", "utf-16-le")


def test_few_bad_bytes_are_counted_in_the_encoding_that_the_page_names() -> None:
    words = "Größe und Länge "
    decoded = decode_page(page("utf-8", words, "utf-8") + b"\xff", "a.html")
    assert decoded == Decoded(f"{META.format('utf-8')}{words}\ufffd", "utf-8", 1)
    many = page("shift_jis", "漢字かな" * 5, "cp932") + b"\x81"
    decoded = decode_page(many, "a.html")
    assert (decoded.encoding, decoded.replaced, decoded.text[-1]) == ("cp932", 1, "\ufffd")


def test_a_page_with_many_bytes_of_another_encoding_is_read_as_any_text() -> None:
    # Western letters under the name of UTF-8, and UTF-8 under that of an Asian encoding.
    assert decode_page(page("utf-8", "Grün", "cp1252"), "a.html").text.endswith("Grün")
    decoded = decode_page(page("euc-jp", "größere Länge", "utf-8"), "a.html")
    assert decoded == Decoded(META.format("euc-jp") + "größere Länge", "utf-8")


@pytest.mark.parametrize("label", ["utf-7", "rot13", "base64", "zlib", "no-such", "x" * 500])
def test_a_name_that_is_no_encoding_of_pages_is_passed_over(label: str) -> None:
    assert decode_page(page(label, "words ö", "utf-8"), "a.html").encoding == "utf-8"


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(KbprocError) as caught:
        decode_page(bytes(range(16)) * 40, "a.html")
    assert caught.value.type == "input.unsupported_type"


def test_each_label_leads_to_an_encoding_of_python() -> None:
    assert all("x".encode(encoding) == b"x" for encoding in LABELS.values())
