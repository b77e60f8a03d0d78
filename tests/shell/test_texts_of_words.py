"""A word of a command line is a text itself, or names stdin or a file that has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbproc.base.errors import KbprocError
from kbproc.base.settings.config import MAX_LINE_BYTES
from kbproc.methods.calls.flags import Flag
from kbproc.surfaces.shell.texts import Texts

LINE = Flag(name="--title", type="string", help="", param="title", max_length=300)
LONG = Flag(name="--text", type="string", help="", param="text", max_length=1 << 20)


def texts(stdin: bytes = b"") -> Texts:
    return Texts(lambda: stdin)


def refusal(word: str, stdin: bytes = b"") -> KbprocError:
    with pytest.raises(KbprocError) as error:
        texts(stdin).of(word, LONG)
    assert error.value.field == "--text"
    return error.value


@pytest.mark.parametrize(
    ("word", "text"),
    [("", ""), ("plain\n", "plain\n"), ("\\-", "-"), ("\\@x", "@x"), ("--", "--"), ("-x", "-x")],
)
def test_a_plain_word_is_the_text(word: str, text: str) -> None:
    assert texts().of(word, LINE) == text


@pytest.mark.parametrize(
    ("stdin", "line", "long"),
    [
        (b"one\n", "one", "one\n"),
        (b"one\r\n", "one", "one\r\n"),
        (b"one\n\n", "one\n", "one\n\n"),
        (b"", "", ""),
        ("Bücher".encode(), "Bücher", "Bücher"),
    ],
)
def test_a_line_loses_its_end_and_a_long_text_keeps_it(stdin: bytes, line: str, long: str) -> None:
    assert texts(stdin).of("-", LINE) == line
    assert texts(stdin).of("-", LONG) == long


def test_stdin_is_read_for_one_flag_alone() -> None:
    reader = texts(b"one")
    assert reader.of("-", LINE) == "one"
    with pytest.raises(KbprocError) as error:
        reader.of("-", LONG)
    assert (error.value.type, error.value.field) == ("input.invalid_params", "--text")
    assert error.value.message == (
        "Both --title and --text are -, and stdin can be read only once."
    )


def test_a_file_gives_its_text_and_a_home_is_expanded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "note.md").write_text("# Note\n")
    for word in (f"@{tmp_path}/note.md", "@~/note.md"):
        assert texts().of(word, LONG) == "# Note\n"
        assert texts().of(word, LINE) == "# Note"


def test_a_file_must_exist_be_a_file_and_fit(tmp_path: Path) -> None:
    error = refusal("@")
    assert (error.type, error.message) == (
        "resource.not_found",
        "--text names the file '', which is not there.",
    )
    assert refusal(f"@{tmp_path}/x").hint == (
        f"For a text that begins with @, write '\\@{tmp_path}/x'."
    )
    error = refusal(f"@{tmp_path}")
    assert (error.type, error.message) == (
        "input.invalid_params",
        f"{tmp_path} is no regular file.",
    )
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(MAX_LINE_BYTES + 1)
    assert refusal(f"@{tmp_path}/huge").type == "input.too_large"


def test_bytes_that_are_no_text_are_refused_with_their_place() -> None:
    error = refusal("-", b"ab\xffcd")
    assert (error.type, error.message) == (
        "input.invalid_params",
        "stdin is not UTF-8: byte 2 is 0xff.",
    )
