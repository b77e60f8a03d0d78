"""Text recognition reads pictures and scanned pages, and states its confidence."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from kbproc.base.errors import KbprocError
from kbproc.engine.sources.parse import ocr
from kbproc.engine.sources.parse.formats import ReadOptions, detect
from kbproc.engine.sources.parse.pool import ParserPool
from kbproc.engine.sources.parse.worker import ParsedChunks
from tests.kit.parsing import parse_one
from tests.kit.patience import PATIENCE
from tests.kit.pdfs import pdf, stream, text_page

JPEG = (Path(__file__).parent / "corpus" / "scan.jpg").read_bytes()
WORDS = "The harbour crane lifts eleven tons of timber."
ENGLISH = ReadOptions(ocr="eng")

pytestmark = pytest.mark.skipif(ocr.program() is None, reason="tesseract is not installed")


@pytest.fixture(scope="module")
def pool() -> Iterator[ParserPool]:
    pool = ParserPool(workers=1, timeout_s=PATIENCE)
    yield pool
    pool.close()


def picture(format: str, mode: str = "L", **options: object) -> bytes:
    target = io.BytesIO()
    image = Image.open(io.BytesIO(JPEG)).convert(mode)
    image.save(target, format, **options)  # type: ignore[arg-type]
    return target.getvalue()


def shown(parsed: ParsedChunks) -> str:
    return " ".join(" ".join(chunk.text for chunk in parsed.chunks).split())


@pytest.mark.parametrize(("name", "format"), [("a.jpg", "JPEG"), ("a.png", "PNG"), ("a", "TIFF")])
def test_a_picture_is_read_in_the_limited_process(pool: ParserPool, name: str, format: str) -> None:
    data = picture(format)
    assert detect(name, data[:4096]) is None
    type = detect(name, data[:4096], ENGLISH)
    assert type == "picture"
    parsed = parse_one(pool, data, type, name, options=ENGLISH)
    assert shown(parsed) == WORDS
    assert parsed.metadata["ocr"] is True
    assert parsed.metadata["ocr_languages"] == "eng"
    assert 60 < int(str(parsed.metadata["ocr_confidence"])) <= 100


def test_each_page_of_a_tiff_is_cited(pool: ParserPool) -> None:
    page = Image.open(io.BytesIO(JPEG)).convert("1")
    target = io.BytesIO()
    page.save(target, "TIFF", compression="group4", save_all=True, append_images=[page])
    parsed = parse_one(pool, target.getvalue(), "picture", "a.tif", options=ENGLISH)
    assert parsed.pages == 2
    assert {page for chunk in parsed.chunks for page in [chunk.page]} >= {1}
    assert shown(parsed) == f"{WORDS} {WORDS}"


def scanned(*images: tuple[str, bytes]) -> bytes:
    """Returns a PDF of a page of text, and a page for each picture."""
    first = 5 + 2 * (1 + len(images))
    names = " ".join(f"/I{i} {first + i} 0 R" for i in range(len(images)))
    pages = [f"q 480 0 0 130 50 600 cm /I{i} Do Q".encode() for i in range(len(images))]
    size = "/Type /XObject /Subtype /Image /Width 480 /Height 130"
    return pdf(
        text_page(["Printed words on the first page."]),
        *pages,
        page="",
        resources=f"/XObject << {names} >>",
        extra=[stream(f"{size} {entries}", data) for entries, data in images],
    )


def test_a_picture_that_names_files_has_none_of_them_read(pool: ParserPool, tmp_path: Path) -> None:
    target = tmp_path / "scan.jpg"
    target.write_bytes(JPEG)
    names = f"{target}\n".encode()
    assert ocr.Recogniser("eng").read(names) == []
    parsed = parse_one(
        pool, scanned(("/Filter /DCTDecode", names)), "pdf", "a.pdf", options=ENGLISH
    )
    assert shown(parsed) == "Printed words on the first page."
    with pytest.raises(KbprocError, match="no text"):
        parse_one(pool, names, "picture", "a.jpg", options=ENGLISH)


IMAGES = {
    "JPEG": ("/ColorSpace /DeviceGray /BitsPerComponent 8 /Filter /DCTDecode", JPEG),
    "grey samples": (
        "/ColorSpace /DeviceGray /BitsPerComponent 8",
        Image.open(io.BytesIO(JPEG)).convert("L").tobytes(),
    ),
    "coloured samples": (
        "/ColorSpace /DeviceRGB /BitsPerComponent 8",
        Image.open(io.BytesIO(JPEG)).convert("RGB").tobytes(),
    ),
    "black and white samples": (
        "/ColorSpace /DeviceGray /BitsPerComponent 1",
        Image.open(io.BytesIO(JPEG)).convert("1").tobytes(),
    ),
}


@pytest.mark.parametrize("kind", IMAGES)
def test_scanned_pages_are_read_and_cited(pool: ParserPool, kind: str) -> None:
    data = scanned(IMAGES[kind])
    assert parse_one(pool, data, "pdf", "a.pdf").unread == {"pages_without_text": 1}
    parsed = parse_one(pool, data, "pdf", "a.pdf", options=ENGLISH)
    assert parsed.unread == {}
    assert next((chunk.page, chunk.text.split()[0]) for chunk in parsed.chunks) == (1, "Printed")
    assert WORDS in shown(parsed)
    assert parsed.metadata["ocr_pages"] == 1


def test_fax_pages_are_read(pool: ParserPool) -> None:
    page = Image.open(io.BytesIO(JPEG)).convert("1")
    target = io.BytesIO()
    page.save(target, "TIFF", compression="group4")
    tiff = Image.open(io.BytesIO(target.getvalue()))
    start, size = tiff.tag_v2[273][0], tiff.tag_v2[279][0]  # type: ignore[attr-defined]
    entries = (
        "/ColorSpace /DeviceGray /BitsPerComponent 1 /Filter /CCITTFaxDecode "
        "/DecodeParms << /K -1 /Columns 480 /Rows 130 >>"
    )
    data = scanned((entries, target.getvalue()[start : start + size]))
    parsed = parse_one(pool, data, "pdf", "a.pdf", options=ENGLISH)
    assert WORDS in shown(parsed)


@pytest.mark.parametrize("data", [JPEG[:300], b"\x89PNG\r\n\x1a\n" + b"\0" * 50])
def test_a_damaged_picture_is_refused(pool: ParserPool, data: bytes) -> None:
    with pytest.raises(KbprocError, match="holds no text that text recognition finds") as caught:
        parse_one(pool, data, "picture", "a.jpg", options=ENGLISH)
    assert caught.value.type == "operation.failed"


def test_what_is_no_text_leaves_no_words(pool: ParserPool) -> None:
    target = io.BytesIO()
    Image.new("L", (400, 300), 255).save(target, "PNG")
    with pytest.raises(KbprocError, match="holds no text"):
        parse_one(pool, target.getvalue(), "picture", "a.png", options=ENGLISH)
