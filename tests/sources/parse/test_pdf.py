"""PDF: pages, paragraphs, and files that cannot be read."""

from __future__ import annotations

import io

import pytest
from pypdf import PdfReader, PdfWriter

from kbproc.base.errors import KbprocError
from kbproc.sources.parse.blocks import Parsed
from kbproc.sources.parse.formats import parse
from tests.kit.pdfs import pdf, text_page

FULL = "This line is as long as the lines of its paragraph are, number {}"


def read(data: bytes) -> Parsed:
    return parse(data, "pdf", "a.pdf")


def refused(data: bytes) -> KbprocError:
    with pytest.raises(KbprocError) as caught:
        read(data)
    assert caught.value.type == "operation.failed"
    assert "a.pdf" in caught.value.message
    return caught.value


def page(*lines: str) -> bytes:
    return text_page(list(lines))


def texts(*pages: bytes) -> list[str]:
    return [block.text for block in read(pdf(*pages)).blocks]


def encrypted(user_password: str) -> bytes:
    writer = PdfWriter()
    writer.append(PdfReader(io.BytesIO(pdf(page("Secret words.")))))
    writer.encrypt(user_password=user_password, owner_password="owner", algorithm="AES-256")
    stream = io.BytesIO()
    writer.write(stream)
    return stream.getvalue()


def test_pages_and_title() -> None:
    info = "/Title (The \\(great\\) title) /Author (Ann)"
    parsed = read(pdf(page("First page."), page(), page("Third page."), info=info))
    assert (parsed.title, parsed.pages) == ("The (great) title", 3)
    assert parsed.metadata == {"author": "Ann"}
    assert [(block.page, block.text) for block in parsed.blocks] == [
        (1, "First page."),
        (3, "Third page."),
    ]


def test_lines_join_to_paragraphs() -> None:
    first = [FULL.format(i) for i in range(3)]
    second = [FULL.format(i) for i in range(3, 6)]
    found = texts(page(*first, "and its end.", *second, "- an item"))
    assert found == [" ".join([*first, "and its end."]), " ".join(second), "- an item"]


def test_a_hyphen_at_the_end_of_a_line() -> None:
    (text,) = texts(
        page(
            "The configuration of a well-known system needs a descrip-",
            "tion of its parts, and the self-made ones of the well-",
            "known kinds are in Alsace-",
            "Lorraine.",
        )
    )
    assert "a description of" in text
    assert "the well-known kinds" in text
    assert "Alsace-Lorraine" in text


def test_ligatures_are_letters() -> None:
    content = b"BT /F1 11 Tf 50 800 Td (\xad x) Tj ET"
    assert texts(content)


def test_running_heads_and_page_numbers_go() -> None:
    pages = [
        page("Journal of Tests, vol. 7", *(f"Body {n} line {i}." for i in range(6)), f"{n}")
        for n in range(1, 7)
    ]
    joined = "\n".join(texts(*pages))
    assert "Journal" not in joined
    assert "Body 6 line 5." in joined


def test_a_sentence_that_runs_on_is_joined_on_its_first_page() -> None:
    blocks = read(pdf(page("It begins here and"), page("goes on there. A new one."))).blocks
    assert [(block.page, block.text) for block in blocks] == [
        (1, "It begins here and goes on there."),
        (2, "A new one."),
    ]


def test_encrypted() -> None:
    assert [block.text for block in read(encrypted("")).blocks] == ["Secret words."]
    error = refused(encrypted("user"))
    assert "is encrypted" in error.message
    assert "without a password" in error.hint


@pytest.mark.parametrize(
    "data",
    [b"", b"%PDF-1.4", b"not a pdf at all", b"%PDF-1.7\n" + bytes(range(256)) * 20],
    ids=["empty", "header", "text", "noise"],
)
def test_damaged(data: bytes) -> None:
    assert "damaged" in refused(data).message


def test_a_cut_file_is_read_as_far_as_it_goes_or_said_to_be_damaged() -> None:
    whole = pdf(page("One."), page("Two."))
    for end in range(20, len(whole), 40):
        try:
            assert read(whole[:end]).blocks
        except KbprocError as error:
            assert error.type == "operation.failed"


def test_pictures_only() -> None:
    assert "holds no text on its 2 pages" in refused(pdf(b"q Q", b"")).message


def test_one_bad_page_does_not_lose_the_others() -> None:
    good = pdf(page("Good."), page("Bad."))
    data = good.replace(b"/Contents 7 0 R", b"/Contents (x)  ")
    parsed = read(data)
    assert [block.text for block in parsed.blocks] == ["Good."]
    assert parsed.pages == 2
