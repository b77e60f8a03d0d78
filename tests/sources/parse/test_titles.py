"""A title names a document; names of files and programs, and garbage, are none."""

from __future__ import annotations

import pytest

from kbproc.engine.sources.parse.titles import real_title


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Crane manual", "Crane manual"),
        ("  Crane \n manual\0", "Crane manual"),
        ("Test of a crane", "Test of a crane"),
        ("The report.pdf explained", "The report.pdf explained"),
        ("漢字", "漢字"),
        ("snake_case in titles", "snake_case in titles"),
        ("x" * 400, "x" * 300),
    ],
)
def test_a_title_is_one_clean_line(text: str, title: str | None) -> None:
    assert real_title(text) == title


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        " ",
        "7",
        "2024-03-05",
        "a",
        "untitled",
        "Untitled 3",
        "[Document1]",
        "Dokument (2)",
        "Unbenannt",
        "無題",
        "Microsoft Word - report",
        "Word - and excel",
        "PowerPoint Presentation",
        "Präsentation1",
        "report_v2.docx",
        "brochure.indd 12",
        "https://a.org/x",
        "C:\\files\\a",
        "/home/ann",
        "about:blank",
        "one_word",
        "Scanned document 4",
        "Table of contents",
        "Crane \x01",
        "Crane \ufffd",
        "\ue000\ue001 manual",
    ],
)
def test_names_of_files_and_programs_and_garbage_are_no_titles(text: str | None) -> None:
    assert real_title(text) is None


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("mark", ["\ufeff", ""])
def test_utf_16_that_was_read_as_latin_1_is_decoded(encoding: str, mark: str) -> None:
    garbled = f"{mark}Crane – manual".encode(encoding).decode("latin-1")
    assert real_title(garbled) == "Crane – manual"
    # Without a NUL, the mark alone tells it.
    if mark:
        assert real_title(f"{mark}漢字の本".encode(encoding).decode("latin-1")) == "漢字の本"
    # A byte is missing at the end.
    assert real_title(f"{mark}Crane".encode(encoding).decode("latin-1")[:-1]) == "Cran"


def test_letters_that_look_like_a_mark_stay_where_they_are_no_bytes() -> None:
    assert real_title("þÿ–crane") == "þÿ–crane"
