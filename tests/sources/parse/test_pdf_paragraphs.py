"""The lines of a PDF become paragraphs with their pages, and a file without text is refused."""

from __future__ import annotations

import io

import pytest
from pypdf import PdfReader, PdfWriter

from kbproc.base.errors import KbprocError
from kbproc.engine.sources.parse.blocks import Block
from kbproc.engine.sources.parse.pdf import parse
from tests.kit.pdfs import pdf, text_page

LONG = "This line of the paragraph is as long as each of its lines {}"


def texts(*pages: list[str]) -> list[tuple[int | None, str]]:
    """Returns the page and the text of each block."""
    blocks = parse(pdf(*map(text_page, pages)), "a.pdf").blocks
    return [(block.page, block.text) for block in blocks]


def refused(data: bytes) -> str:
    """Returns the message with which a file is refused."""
    with pytest.raises(KbprocError) as caught:
        parse(data, "a.pdf")
    assert caught.value.type == "operation.failed"
    return caught.value.message


def test_lines_that_fill_the_width_are_joined_and_others_begin_a_paragraph() -> None:
    lines = [LONG.format("one"), LONG.format("two"), "and its end.", "- an item", "Next one"]
    assert texts(lines) == [
        (1, f"{LONG.format('one')} {LONG.format('two')} and its end."),
        (1, "- an item\nNext one"),
    ]


def test_a_hyphen_stays_where_the_document_spells_the_word_with_it() -> None:
    lines = [
        "The well-known crane has a hook and a self-",
        "made rope, and it is a well-",
        "known one for the steel-",
        "works of the town.",
    ]
    assert texts(lines) == [
        (
            1,
            "The well-known crane has a hook and a selfmade rope, and it is a well-known one "
            "for the steelworks of the town.",
        )
    ]


def test_a_soft_hyphen_goes_and_lines_of_chinese_are_joined_without_a_space() -> None:
    names = "/Type /Font /Subtype /Type1 /BaseFont /Helvetica"
    font = f"<< {names} /Encoding << /Differences [1 /uni6F22 /uni5B57] >> >>".encode()
    line = "\\001\\002" * 15
    content = (
        f"BT /F2 11 Tf 14 TL 50 800 Td ({line}) Tj T* ({line}) Tj T* "
        "/F1 11 Tf (- A rope of steel wi\xad) Tj T* (re.) Tj ET"
    )
    data = pdf(content.encode("latin-1"), fonts="/F2 7 0 R", extra=[font])
    assert [block.text for block in parse(data, "a.pdf").blocks] == [
        "漢字" * 30,
        "- A rope of steel wire.",
    ]


def test_a_paragraph_goes_on_at_the_top_of_the_next_page() -> None:
    first = [LONG.format("one"), "which ends on the"]
    blocks = parse(pdf(text_page(first), text_page(["next page. Then more."])), "a.pdf").blocks
    head = f"{LONG.format('one')} which ends on the "
    assert blocks == [
        Block(text=f"{head}next page.", page=1, turns=((len(head), 2),)),
        Block(text="Then more.", page=2),
    ]
    assert texts(["Whole."], ["next page"]) == [(1, "Whole."), (2, "next page")]


def test_running_heads_and_growing_page_numbers_go() -> None:
    pages = [
        ["Journal of cranes", *(f"Line {page} of {row}." for row in "abcde"), f"- {page + 7} -"]
        for page in range(4)
    ]
    words = "\n".join(text for _, text in texts(*pages))
    assert "Journal" not in words
    assert not any(f"- {page + 7} -" in words for page in range(4))
    assert all(f"Line {page} of {row}." in words for page in range(4) for row in "abcde")


@pytest.mark.parametrize(
    ("first", "second", "is_number"),
    [
        ("Page 9 of 20", "Page 10 of 20", True),
        ("ix", "x", True),
        ("xiv", "xv", True),
        ("[41/90]", "[42/90]", True),
        ("9", "9", False),
        ("9 t", "10 t", False),
    ],
)
def test_first_lines_that_grow_with_the_pages_are_page_numbers(
    first: str, second: str, is_number: bool
) -> None:
    words = [text for _, text in texts([first, "One."], [second, "Two."])]
    assert (words == ["One.", "Two."]) == is_number


def test_a_head_on_few_pages_and_a_lone_number_stay() -> None:
    pages = [
        ["Journal of cranes", *(f"Line {page} of {row}." for row in "abcde")] for page in range(3)
    ]
    words = "\n".join(text for _, text in texts(*pages, ["1984"]))
    assert words.count("Journal of cranes") == 3
    assert words.endswith("1984")


@pytest.mark.parametrize(
    ("info", "title", "metadata"),
    [
        ("/Title (Crane manual) /Author (Ann Lee)", "Crane manual", {"author": "Ann Lee"}),
        ("/Title (untitled) /Author ( )", None, {}),
        ("/Title (report_v2.docx)", None, {}),
        ("/Title 7 /Author [1 2]", None, {"author": "[1, 2]"}),
    ],
)
def test_title_and_author_are_read_where_they_name_something(
    info: str, title: str | None, metadata: dict[str, str]
) -> None:
    parsed = parse(pdf(text_page(["Words."]), info=info), "a.pdf")
    assert (parsed.title, parsed.metadata, parsed.pages) == (title, metadata, 1)


def test_fields_of_a_form_stand_behind_the_blocks_of_their_page() -> None:
    widget = b"<< /Subtype /Widget /FT /Tx /T (Load) /V (4 t) >>"
    data = pdf(text_page(["First."]), text_page(["Second."]), extra=[widget])
    data = data.replace(b"/Parent 2 0 R ", b"/Parent 2 0 R /Annots [9 0 R] ", 1)
    parsed = parse(data, "a.pdf")
    assert parsed.blocks == [
        Block(text="First.", page=1),
        Block(text="Load: 4 t", page=1),
        Block(text="Second.", page=2),
    ]


def test_a_damaged_page_is_counted_and_loses_no_other() -> None:
    data = pdf(text_page(["First."]), b"x", text_page(["Third."]))
    data = data.replace(b"/Length 1 ", b"/Filter /No", 1)
    parsed = parse(data, "a.pdf")
    assert [(block.page, block.text) for block in parsed.blocks] == [(1, "First."), (3, "Third.")]
    assert parsed.unread["damaged_pages"] == 1


def test_a_locked_file_is_refused_and_one_that_opens_without_a_password_is_read() -> None:
    for password in ("secret", ""):
        writer = PdfWriter()
        writer.append(PdfReader(io.BytesIO(pdf(text_page(["Words."])))))
        writer.encrypt(user_password=password, owner_password="owner", algorithm="RC4-128")
        file = io.BytesIO()
        writer.write(file)
        if password:
            assert refused(file.getvalue()) == (
                "a.pdf is encrypted: it opens only with a password."
            )
        else:
            assert [block.text for block in parse(file.getvalue(), "a.pdf").blocks] == ["Words."]


def test_a_dynamic_form_and_attached_files_are_counted() -> None:
    catalog = "/AcroForm << /XFA (x) /Fields [] >> /Names << /EmbeddedFiles << /Names [(a) 1] >> >>"
    parsed = parse(pdf(text_page(["Words."]), catalog=catalog), "a.pdf")
    assert (parsed.unread["objects"], parsed.unread["embedded_files"]) == (1, 1)


def test_each_page_is_reported() -> None:
    reports: list[tuple[str, int, int]] = []

    def report(unit: str, done: int, total: int) -> None:
        reports.append((unit, done, total))

    parse(pdf(text_page(["First."]), text_page(["Second."])), "a.pdf", report)
    assert reports == [("page", 1, 2), ("page", 2, 2)]


def test_a_file_without_text_says_why() -> None:
    drawing = b"0 0 100 100 re f"
    assert refused(pdf(drawing)) == (
        "a.pdf holds no text on its one page: scanned text needs OCR first."
    )
    assert refused(pdf(drawing, drawing)) == (
        "a.pdf holds no text on its 2 pages: scanned text needs OCR first."
    )
    font = b"<< /Type /Font /Subtype /Type0 /BaseFont /X /Encoding /Identity-H >>"
    unnamed = pdf(b"BT /F2 9 Tf <003700480051> Tj ET", fonts="/F2 7 0 R", extra=[font])
    assert refused(unnamed).startswith("a.pdf holds no readable text on its one page: its fonts ")
    assert refused(pdf()) == "a.pdf is damaged: it has no pages."
    for data in (b"", b"%PDF-1.4\n", b"no pdf at all"):
        assert refused(data).startswith("a.pdf is damaged: ")
