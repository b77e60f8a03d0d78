"""PDF: pages, paragraphs, and files that cannot be read."""

from __future__ import annotations

import io

import pytest
from pypdf import PdfReader, PdfWriter

from kbproc.base.errors import KbprocError
from kbproc.engine.sources.parse.blocks import Parsed
from kbproc.engine.sources.parse.formats import parse
from tests.kit.pdfs import pdf, stream, text_page

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
    paragraphs = texts(page(*first, "and its end.", *second, "- an item"))
    assert paragraphs == [" ".join([*first, "and its end."]), " ".join(second), "- an item"]


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


def test_a_line_that_stands_once_stays_whatever_it_looks_like() -> None:
    bodies = [[f"Body {n} line {i}." for i in range(6)] for n in range(5)]
    totals = ("Total 412", "Total 97", "Total 1,288", "Total 7", "Total 3,005")
    joined = "\n".join(texts(*(page(*b, t) for b, t in zip(bodies, totals, strict=True))))
    assert all(total in joined for total in totals)
    assert "1984" in "\n".join(texts(page("The year was", "1984"), page("Another page.")))
    numbered = [page(f"{n} Chapter One", *b, f"- {n} -") for n, b in enumerate(bodies, 11)]
    joined = "\n".join(texts(*numbered))
    assert "Chapter One" not in joined
    assert "- 12 -" not in joined


def form(*fields: str) -> Parsed:
    """A page whose annotations are these dictionaries."""
    numbers = " ".join(f"{7 + i} 0 R" for i in range(len(fields)))
    catalog = f"/AcroForm << /Fields [{numbers}] >>"
    extra = [f"<< /Type /Annot /Rect [0 0 9 9] {field} >>".encode("latin-1") for field in fields]
    return read(
        pdf(page("Printed words."), catalog=catalog, page=f"/Annots [{numbers}]", extra=extra)
    )


def lines(parsed: Parsed) -> list[str]:
    return [line for block in parsed.blocks for line in block.text.split("\n")]


def test_a_filled_form_is_read() -> None:
    widget = "/Subtype /Widget"
    parsed = form(
        f"{widget} /FT /Tx /T (surname) /TU (Family name:) /V (Okafor)",
        f"{widget} /FT /Tx /T (empty)",
        f"{widget} /FT /Ch /T (country) /V (no) /Opt [[(no) (Norway)] [(se) (Sweden)]]",
        f"{widget} /FT /Btn /T (insured) /V /Yes /AS /Yes",
        f"{widget} /FT /Btn /T (smoker) /V /Off /AS /Off",
        f"{widget} /FT /Btn /Ff 65536 /T (send) /MK << /CA (Send) >>",
        f"{widget} /FT /Tx /T (pin) /Ff 8192 /V (4711)",
    )
    assert lines(parsed) == [
        "Printed words.",
        "Family name: Okafor",
        "country: Norway",
        "insured: Yes",
    ]
    assert parsed.unread == {"hidden_passages": 1}
    assert [block.page for block in parsed.blocks] == [1, 1]


def test_notes_are_read() -> None:
    parsed = form(
        "/Subtype /FreeText /Contents (Approved by the board)",
        "/Subtype /Text /Contents (Ask Mary first)",
        "/Subtype /Popup /Contents (Ask Mary first)",
        "/Subtype /Highlight /Contents (Out of date)",
        "/Subtype /Text /F 2 /Contents (unseen)",
        "/Subtype /FileAttachment /Contents (Figures)",
        "/Subtype /RichMedia",
        "/Subtype /Link /Contents (click)",
    )
    assert lines(parsed) == [
        "Printed words.",
        "Approved by the board",
        "Note: Ask Mary first",
        "Note: Out of date",
        "Note: Figures",
    ]
    assert parsed.unread == {"hidden_passages": 1, "embedded_files": 1, "objects": 1}


def test_a_form_that_only_a_viewer_lays_out_and_embedded_files_are_counted() -> None:
    catalog = "/AcroForm << /Fields [] /XFA (x) >> /Names << /EmbeddedFiles << /Names [(a) 7 0 R "
    parsed = read(pdf(page("Words."), catalog=f"{catalog}(b) 7 0 R] >> >>", extra=[b"<< >>"]))
    assert parsed.unread == {"objects": 1, "embedded_files": 2}


PICTURE = stream(
    "/Type /XObject /Subtype /Image /Width 1 /Height 1 /BitsPerComponent 8 /ColorSpace /DeviceGray",
    b"\0",
)


def test_pages_of_pictures_are_counted_and_blank_ones_are_not() -> None:
    resources = "/XObject << /I 15 0 R >>"
    scan = b"q 595 0 0 842 0 0 cm /I Do Q"
    stamped = scan + page("Received 12 May, case 4711")
    drawn = b"10 10 200 200 re f"
    data = pdf(page("Words."), scan, b"q Q", stamped, drawn, resources=resources, extra=[PICTURE])
    parsed = read(data)
    assert parsed.unread == {"pages_without_text": 3}
    assert parsed.pages == 5


def unmapped(codes: bytes, font: bytes, *more: bytes) -> Parsed:
    content = page("A readable line.") + b"BT /F2 11 Tf 50 600 Td " + codes + b" Tj ET"
    return read(pdf(content, fonts="/F2 7 0 R", extra=[font, *more]))


COMPOSITE = (
    b"<< /Type /Font /Subtype /Type0 /BaseFont /ABCDEF+Own /Encoding /Identity-H "
    b"/DescendantFonts [<< /Type /Font /Subtype /CIDFontType2 /BaseFont /ABCDEF+Own "
    b"/CIDSystemInfo << /Registry (Adobe) /Ordering (Identity) /Supplement 0 >> >>]%s >>"
)


@pytest.mark.parametrize(
    ("codes", "font"),
    [
        (b"<0037004B00480003004900480055005500580050>", COMPOSITE % b""),
        (
            b"<0102030405060708>",
            b"<< /Type /Font /Subtype /Type1 /BaseFont /ABCDEF+Own "
            b"/Encoding << /Differences [1 /g12 /g13 /g14 /g15 /g16 /g17 /g18 /g19] >> >>",
        ),
        (
            b"(ABCABC)",
            b"<< /Type /Font /Subtype /Type3 /FontBBox [0 0 1 1] /FontMatrix [1 0 0 1 0 0] "
            b"/CharProcs << >> /Encoding << /Differences [65 /c1 /c2 /c3] >> >>",
        ),
        (b"((cid:12)\\(cid:33\\)(cid:7)(cid:9))", b"<< /Type /Font /Subtype /Type1 >>"),
    ],
    ids=["composite", "names", "drawn", "cid"],
)
def test_text_without_unicode_is_left_out_and_counted(codes: bytes, font: bytes) -> None:
    parsed = unmapped(codes, font)
    assert [block.text for block in parsed.blocks] == ["A readable line."]
    assert parsed.unread == {"pages_without_unicode": 1}


@pytest.mark.parametrize("target", [b"E000", b"FFFD", b"0001"], ids=["private", "none", "control"])
def test_a_font_that_maps_its_codes_to_no_letters(target: bytes) -> None:
    table = b"1 beginbfrange\n<0037> <0047> <%s>\nendbfrange" % target
    if target == b"FFFD":
        table = b"3 beginbfchar\n<0037> <FFFD>\n<0038> <FFFD>\n<0039> <FFFD>\nendbfchar"
    font = COMPOSITE % b" /ToUnicode 8 0 R"
    parsed = unmapped(b"<003700380039003800370038>", font, stream("", table))
    assert lines(parsed) == ["A readable line."]
    assert parsed.unread == {"pages_without_unicode": 1}


def test_a_font_that_maps_its_codes_is_read() -> None:
    table = b"1 beginbfrange\n<0037> <0039> <0041>\nendbfrange"
    parsed = unmapped(b"<003700380039>", COMPOSITE % b" /ToUnicode 8 0 R", stream("", table))
    assert lines(parsed) == ["A readable line.", "ABC"]
    assert parsed.unread == {}


def test_a_document_without_any_unicode_fails_and_names_the_remedy() -> None:
    content = b"BT /F2 11 Tf 50 600 Td <0037004B00480003004900480055> Tj ET"
    error = refused(pdf(content, content, fonts="/F2 9 0 R", extra=[COMPOSITE % b""]))
    assert "no readable text on its 2 pages" in error.message
    assert "OCR" in error.message


@pytest.mark.parametrize(
    "title",
    [
        "i-xx_Moorings-fm.indd",
        "Microsoft Word - report_final.doc",
        "untitled",
        "Document1",
        "slide 1",
        "Quarterly.xlsx",
        "2024",
        "C:\\\\Users\\\\ann\\\\x",
        "Ohne Titel 2",
        "\\000\\001",
    ],
)
def test_titles_that_programs_write_are_none(title: str) -> None:
    plain = read(pdf(page("Words."), info=f"/Title ({title})"))
    assert plain.title is None
    large = b"BT /F1 22 Tf 50 810 Td (Moorings) Tj 0 -24 Td (of the north) Tj ET "
    content = large + page("", "", "", "A line of the text.", "Another line of the text.")
    assert read(pdf(content, info=f"/Title ({title})")).title == "Moorings of the north"


def shown(x: float, y: float, text: str, size: int = 10) -> str:
    return f"BT /F1 {size} Tf 1 0 0 1 {x} {y} Tm ({text}) Tj ET\n"


LEFT = (
    "The contract begins on the first",
    "of March and both parties agree to",
    "the terms that are written below in",
    "full. Neither of them may end it",
    "before the end of its first year.",
)
RIGHT = (
    "Payment is due within thirty days",
    "after the invoice has been received",
    "by the buyer. A late payment bears",
    "interest of eight per cent a year",
    "until the whole sum has been paid.",
)


@pytest.mark.parametrize("turn", ["", "0 1 -1 0 800 0 cm "], ids=["upright", "turned"])
def test_columns_that_are_drawn_line_by_line_are_read_one_after_the_other(turn: str) -> None:
    content = turn + shown(50, 540, "A heading that goes across both of the columns", 16)
    for i, (one, other) in enumerate(zip(LEFT, RIGHT, strict=True)):
        content += shown(50, 510 - 12 * i, one) + shown(310, 510 - 12 * i, other)
    joined = " ".join(texts(content.encode()))
    assert joined.startswith("A heading that goes across both of the columns The contract")
    assert " ".join(LEFT) in joined
    assert " ".join(RIGHT) in joined


def test_three_columns_in_one_text_object() -> None:
    content = "BT /F1 8 Tf 30 700 Td "
    for one, other in zip(LEFT, RIGHT, strict=True):
        content += f"({one}) Tj 180 0 Td ({other}) Tj 180 0 Td ({one}) Tj -360 -10 Td "
    joined = " ".join(texts((content + "ET").encode()))
    assert joined == " ".join((*LEFT, *RIGHT, *LEFT))


@pytest.mark.parametrize("fixed", [False, True])
def test_narrow_gaps_are_spaces_where_the_code_of_the_space_is_another_sign(fixed: bool) -> None:
    """TeX sets a justified line of a font of the T1 encoding like this."""
    words = "[(practical) -235 (features) -235 (of) 28 (f) -234 (dangers)] TJ"
    widths = " ".join(["514"] * 95 if fixed else ["514", *(["460"] * 94)])
    font = (
        "/F2 << /Type /Font /Subtype /Type1 /BaseFont /ABCDEF+SFRM0900 /FirstChar 32 "
        f"/LastChar 126 /Widths [{widths}] /Encoding << /Type /Encoding /Differences "
        "[97 /a /b /c /d /e /f /g /h /i /j /k /l /m /n /o /p /q /r /s /t /u] >> >>"
    )
    data = pdf(f"BT /F2 9 Tf 50 700 Td {words} ET".encode(), fonts=font)
    [block] = read(data).blocks
    assert block.text == (
        "practicalfeaturesoffdangers" if fixed else "practical features off dangers"
    )


def test_a_table_is_read_row_by_row() -> None:
    rows = [
        ("Name of the item", "Price in euro", "Delivered on"),
        ("A chair of oak wood", "120.00", "2024-01-02"),
        ("Table", "80.00", "2024-01-03"),
        ("A very long lamp with a shade", "1,080.00", "2024-02-03"),
        ("Rug", "5.00", "2024-02-09"),
    ]
    content = "".join(
        shown(x, 700 - 14 * i, cell)
        for i, row in enumerate(rows)
        for x, cell in zip((50, 250, 400), row, strict=True)
    )
    joined = " ".join(" ".join(texts(content.encode())).split())
    assert all(" ".join(row) in joined for row in rows)


def test_a_drawing_that_leads_nowhere_loses_no_page() -> None:
    resources = "/XObject << /I 99 0 R >>"
    parsed = read(pdf(page("Words of the page.") + b" q /I Do Q", resources=resources))
    assert lines(parsed) == ["Words of the page."]


@pytest.mark.parametrize("glyph", ["dotlessi", "Idotaccent"])
def test_a_letter_like_a_roman_digit_is_no_number(glyph: str) -> None:
    font = f"<< /Type /Font /Subtype /Type1 /Encoding << /Differences [65 /{glyph}] >> >>"
    line = b"BT /F2 11 Tf 50 830 Td (A) Tj ET "
    data = pdf(line + page("Words."), page("More."), fonts="/F2 9 0 R", extra=[font.encode()])
    assert {"\u0131", "\u0130"} & {*lines(read(data))}


def test_a_stamp_without_a_look_and_a_note_that_leads_nowhere() -> None:
    stamp = "/Subtype /Stamp /Contents (Approved) /AP << >>"
    parsed = form(stamp, "/Subtype /Text /Contents 99 0 R")
    assert lines(parsed) == ["Printed words.", "Note: Approved"]
