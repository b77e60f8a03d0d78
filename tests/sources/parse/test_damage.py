"""UTF-8 with some bad bytes is still UTF-8, and its bad bytes are counted."""

from __future__ import annotations

import pytest

from kbproc.engine.sources.parse.damage import Mended, is_western, mend, mended_if_likely


@pytest.mark.parametrize(
    ("data", "text", "bad"),
    [
        (b"plain", "plain", 0),
        ("Größe 中".encode(), "Größe 中", 0),
        (b"", "", 0),
        # A letter of an older program within a word, and a quotation mark in the same line.
        (b"Gr\xf6\xdfe", "Größe", 2),
        (b"caf\xe9 \x93au lait\x94", "café “au lait”", 3),
        # The line above has it in UTF-8, and the next one in Windows-1252.
        ("Größe\n".encode() + b"gr\xfcn", "Größe\ngrün", 1),
        (b"\xe0 la carte", "à la carte", 1),
        (b"voil\xe0 \xe0 moi", "voilà à moi", 2),
        (b"Malm\xf6", "Malmö", 1),
        # A capital stands at the start of a word or in one of capitals.
        (b"\xc4rger \xc0 B\xc4R", "Ärger À BÄR", 3),
        ("ø g".encode() + b"\xc4rten", "ø g\ufffdrten", 1),
        ("ø a ".encode() + b"\xc0 b", "ø a \ufffd b", 1),
        ("ø a ".encode() + b"\xe0, b", "ø a \ufffd, b", 1),
        # Bytes that also stand within letters of UTF-8 have to be within a word of their case.
        (b"ko\x9aice", "košice", 1),
        (b"KO\x9aICE", "KO\ufffdICE", 1),
        (b"\x9aice", "\ufffdice", 1),
        # Three in a row are no letters of a Western word.
        (b"a\xe4\xf6\xfcb", "a\ufffd\ufffd\ufffdb", 3),
        # The file is cut within a letter.
        ("Grö".encode()[:-1], "Gr\ufffd", 1),
        ("x中".encode()[:-1], "x\ufffd", 2),
        # Noise is no letter.
        (b"a\xff\xfe\xffb", "a\ufffd\ufffd\ufffdb", 3),
        ("中".encode() + b"\x93x", "中\ufffdx", 1),
    ],
)
def test_bad_bytes_become_the_letters_that_fit(data: bytes, text: str, bad: int) -> None:
    assert mend(data) == Mended(text, bad)


def test_halves_of_a_surrogate_pair_are_joined() -> None:
    pair = "\ud83d\ude00".encode("utf-8", "surrogatepass")
    assert mend(b"ok " + pair).text == "ok 😀"
    assert "😀" not in mend(b"ok " + pair[:3] + b" " + pair[3:]).text


@pytest.mark.parametrize(
    "data",
    [
        "Viele größere Wörter".encode() + b" \xff",
        "Größe\n".encode() * 3 + "grün\n".encode("cp1252"),
        "中文字符".encode()[:-1],
        b"log line\n" * 30 + b"\xff\xfe\x9f" + b"more\n" * 30,
    ],
)
def test_text_with_few_bad_bytes_is_mended(data: bytes) -> None:
    mended = mended_if_likely(data)
    assert mended is not None
    assert mended == mend(data)
    assert mended.bad >= 1


def test_noise_is_mended_only_where_it_is_rare_and_is_no_letter() -> None:
    noise = b"\xff\xfe\x9f"
    assert mended_if_likely(b"words of a log " * 2 + noise + b"more " + noise) is not None
    assert mended_if_likely((b"log " + noise) * 30) is None
    # One byte alone, or several that could all be letters, are explained by another encoding.
    for run in (b"\xe9", b"\xe9\xe8\xea\xeb\xec", b"\x82\xa0"):
        assert mended_if_likely(b"words of a log " * 9 + run + b" more") is None


@pytest.mark.parametrize(
    "data",
    [
        "Größe für jeden".encode("cp1252"),
        "Привет, мир".encode("cp1251"),
        "漢字とかな".encode("cp932"),
        "中文字符".encode("gb18030"),
    ],
)
def test_text_in_another_encoding_is_not_taken_for_damage(data: bytes) -> None:
    assert mended_if_likely(data) is None


@pytest.mark.parametrize(
    ("data", "western"),
    [
        (b"plain", True),
        (b"caf\xe9 and gr\xfcn", True),
        (b"5 \xb0 and \x80 7", True),
        ("Größe".encode(), False),
        ("Привет".encode("cp1251"), False),
        (b"caf\xe9 " * 8, True),
        (b"caf\xe9 " * 9, False),
        (b"a\x81b", False),
    ],
)
def test_ascii_with_a_few_western_letters_is_western(data: bytes, western: bool) -> None:
    assert is_western(data) == western
