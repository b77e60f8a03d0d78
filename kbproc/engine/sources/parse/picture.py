"""Pictures of text (JPEG, PNG, TIFF), and the pictures of a PDF's scanned pages.

A picture of a PDF page is taken from the file as it is, or with the head of a simple format before
its samples. Text recognition reads both.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from kbproc.base.errors import KbprocError
from kbproc.engine.sources.parse.blocks import Block, Parsed
from kbproc.engine.sources.parse.fonts import damages
from kbproc.engine.sources.parse.ocr import Recogniser

# Smaller pictures on a page are logos and lines.
_LEAST_WIDTH, _LEAST_HEIGHT = 200, 60
_MOST_SAMPLES = 200 << 20
_MOST_ON_A_PAGE = 20
# Encodings whose data is a file of that format.
_WHOLE = frozenset({"/DCTDecode", "/JPXDecode"})


def parse(data: bytes, name: str, language: str) -> Parsed:
    """Returns the text in a picture; a TIFF may have several pages.

    Raises `operation.failed` where no words are recognised.
    """
    recogniser = Recogniser(language)
    pages = recogniser.read(data) if language else []
    blocks = [
        Block(text=paragraph, page=number)
        for number, page in enumerate(pages, 1)
        for paragraph in page.paragraphs
    ]
    if not blocks:
        message = f"{name} holds no text that text recognition finds."
        raise KbprocError("operation.failed", message)
    return Parsed(blocks=blocks, metadata=recogniser.metadata, pages=max(1, len(pages)))


def recognised(page: Any, recogniser: Recogniser) -> str:
    """Returns the text in the pictures of a PDF page, paragraph by paragraph; "" for none."""
    return "\n\n".join(
        paragraph
        for picture in _pictures(page)
        for read in recogniser.read(picture)
        for paragraph in read.paragraphs
    )


def _pictures(page: Any) -> Iterator[bytes]:
    """Yields the pictures of a page that may hold text."""
    try:
        objects = page["/Resources"].get_object()["/XObject"].get_object()
        names = list(objects)[:_MOST_ON_A_PAGE]
    except damages():
        return
    for name in names:
        try:
            picture = _as_file(objects[name].get_object())
        except damages():
            continue
        except struct.error:
            continue
        if picture:
            yield picture


def _as_file(image: Any) -> bytes | None:
    if image.get("/Subtype") != "/Image" or "/Width" not in image:
        return None
    width, height = int(image["/Width"]), int(image["/Height"])
    if width < _LEAST_WIDTH or height < _LEAST_HEIGHT or width * height > _MOST_SAMPLES:
        return None
    filters = image.get("/Filter", [])
    filters = [filters] if isinstance(filters, str) else [str(each) for each in filters]
    if filters and filters[-1] in _WHOLE:
        return _without_last(image, filters)
    if filters and filters[-1] == "/CCITTFaxDecode":
        return _fax(image, _without_last(image, filters), width, height)
    return _samples(image, width, height)


def _without_last(image: Any, filters: list[str]) -> bytes:
    """Returns the data of a picture as the last of its filters gets it."""
    data: bytes = image._data
    if len(filters) == 1:
        return data
    from pypdf.generic import EncodedStreamObject, NameObject

    stream = EncodedStreamObject()
    stream._data = data
    stream[NameObject("/Filter")] = NameObject(filters[0])
    return bytes(stream.get_data()) if len(filters) == 2 else b""


def _fax(image: Any, data: bytes, width: int, height: int) -> bytes:
    """Returns a TIFF file around fax data."""
    options = image.get("/DecodeParms", {})
    options = options[-1] if isinstance(options, list) and options else options
    options = options.get_object() if options else {}
    group = int(options.get("/K", 0))
    fields = [
        (256, 4, width),
        (257, 4, height),
        (258, 3, 1),
        (259, 3, 4 if group < 0 else 3),
        (262, 3, 0),
        (273, 4, 8 + 2 + 12 * 9 + 4),
        (277, 3, 1),
        (278, 4, height),
        (279, 4, len(data)),
    ]
    head = struct.pack("<2sHIH", b"II", 42, 8, len(fields))
    head += b"".join(struct.pack("<HHII", tag, kind, 1, value) for tag, kind, value in fields)
    return head + struct.pack("<I", 0) + data


def _samples(image: Any, width: int, height: int) -> bytes | None:
    """Returns a PNM file of samples without compression: black and white, grey, or coloured."""
    bits = 1 if image.get("/ImageMask") else int(image.get("/BitsPerComponent", 8))
    data: bytes = image.get_data()
    line = -(-width * bits // 8)
    if bits == 1 and len(data) >= line * height:
        # A bit of 1 is black in PNM, and white in a PDF.
        inverted = data[: line * height].translate(bytes(255 - byte for byte in range(256)))
        return f"P4 {width} {height}\n".encode() + inverted
    for mark, samples in (("P5", width * height), ("P6", 3 * width * height)):
        if bits == 8 and samples <= len(data) < samples + width:
            return f"{mark} {width} {height} 255\n".encode() + data[:samples]
    return None
