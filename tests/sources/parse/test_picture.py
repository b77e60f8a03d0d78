"""Pictures are given to text recognition as files, and a picture without words is refused."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import pytest
from pypdf import PdfReader

from kbproc.base.errors import KbprocError
from kbproc.engine.sources.parse import picture
from kbproc.engine.sources.parse.blocks import Block, Scalar
from kbproc.engine.sources.parse.ocr import RecognisedPage
from tests.kit.pdfs import pdf, stream


class Recogniser:
    """Stands for text recognition: it keeps its pictures, and reads the same pages in each."""

    pages = (RecognisedPage(["One.", "Two."], 90.0), RecognisedPage(["Three."], 90.0))
    metadata: dict[str, Scalar] = {"ocr": True}

    def __init__(self, language: str) -> None:
        self.language = language
        self.pictures: list[bytes] = []

    def read(self, data: bytes) -> list[RecognisedPage]:
        self.pictures.append(data)
        return list(self.pages) if data != b"blank" else []


def sent(*images: bytes) -> list[bytes]:
    """Returns the pictures of a page that text recognition gets."""
    names = " ".join(f"/I{number} {7 + number} 0 R" for number in range(len(images)))
    data = pdf(b"", resources=f"/XObject << {names} >>", extra=images)
    recogniser: Any = Recogniser("eng")
    picture.recognised(PdfReader(io.BytesIO(data)).pages[0], recogniser)
    return list(recogniser.pictures)


def image(entries: str, data: bytes, width: int = 200, height: int = 60) -> bytes:
    size = f"/Width {width} /Height {height}"
    return stream(f"/Type /XObject /Subtype /Image {size} {entries}", data)


def test_a_picture_has_a_block_for_each_paragraph(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picture, "Recogniser", Recogniser)
    parsed = picture.parse(b"II*\0", "a.tiff", "eng")
    assert parsed.blocks == [
        Block(text="One.", page=1),
        Block(text="Two.", page=1),
        Block(text="Three.", page=2),
    ]
    assert (parsed.pages, parsed.metadata) == (2, {"ocr": True})


@pytest.mark.parametrize(("data", "language"), [(b"blank", "eng"), (b"II*\0", "")])
def test_a_picture_without_words_is_refused(
    monkeypatch: pytest.MonkeyPatch, data: bytes, language: str
) -> None:
    monkeypatch.setattr(picture, "Recogniser", Recogniser)
    with pytest.raises(KbprocError) as caught:
        picture.parse(data, "a.png", language)
    assert caught.value.type == "operation.failed"
    assert caught.value.message == "a.png holds no text that text recognition finds."


def test_pictures_of_a_page_are_read_in_order() -> None:
    data = pdf(b"", resources="/XObject << /I 7 0 R >>", extra=[image("/Filter /DCTDecode", b"J")])
    recogniser: Any = Recogniser("eng")
    page = PdfReader(io.BytesIO(data)).pages[0]
    assert picture.recognised(page, recogniser) == "One.\n\nTwo.\n\nThree."
    assert picture.recognised({}, recogniser) == ""


def test_a_file_within_the_page_is_passed_on_as_it_is() -> None:
    assert sent(
        image("/Filter /DCTDecode", b"\xff\xd8jpeg"),
        image("/Filter [/JPXDecode]", b"jp2"),
        image("/Filter [/FlateDecode /DCTDecode]", zlib.compress(b"\xff\xd8packed")),
        image("/Filter [/ASCIIHexDecode /ASCIIHexDecode /DCTDecode]", b"6a>"),
    ) == [b"\xff\xd8jpeg", b"jp2", b"\xff\xd8packed"]


def test_samples_get_the_head_of_their_format() -> None:
    count = 200 * 60
    assert sent(
        image("/BitsPerComponent 8", b"g" * count),
        image("/BitsPerComponent 8", b"rgb" * count),
        image("/BitsPerComponent 1", b"\xf0" * (25 * 60) + b"\n"),
        image("/ImageMask true", b"\x0f" * (25 * 60)),
    ) == [
        b"P5 200 60 255\n" + b"g" * count,
        b"P6 200 60 255\n" + b"rgb" * count,
        b"P4 200 60\n" + b"\x0f" * (25 * 60),
        b"P4 200 60\n" + b"\xf0" * (25 * 60),
    ]


@pytest.mark.parametrize(("k", "compression"), [("-1", 4), ("0", 3), ("4", 3)])
def test_a_fax_becomes_a_tiff(k: str, compression: int) -> None:
    parms = f"/DecodeParms << /K {k} >>"
    [tiff] = sent(image(f"/Filter /CCITTFaxDecode {parms}", b"fax data"))
    count = struct.unpack_from("<H", tiff, 8)[0]
    fields = dict(struct.unpack_from("<H6xI", tiff, 10 + 12 * number) for number in range(count))
    assert tiff[:8] == b"II*\0\x08\0\0\0"
    assert (fields[256], fields[257], fields[259]) == (200, 60, compression)
    assert tiff[fields[273] : fields[273] + fields[279]] == b"fax data"
    assert len(tiff) == fields[273] + fields[279]


def test_small_huge_and_damaged_pictures_are_passed_over() -> None:
    form = stream("/Type /XObject /Subtype /Form /BBox [0 0 9 9] /Width 900 /Height 900", b"")
    assert (
        sent(
            image("/Filter /DCTDecode", b"logo", width=199),
            image("/Filter /DCTDecode", b"line", height=59),
            image("/Filter /DCTDecode", b"huge", width=1 << 20, height=1 << 20),
            image("/BitsPerComponent 8", b"too short"),
            image("/Filter /NoSuchDecode", b"x"),
            image("/Filter /CCITTFaxDecode /DecodeParms << /K (x) >>", b"x"),
            image("/Filter /CCITTFaxDecode", b"x", width=-300, height=-300),
            form,
            b"(no picture)",
        )
        == []
    )
