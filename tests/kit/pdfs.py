"""Small PDFs written by hand, for the tests."""

from __future__ import annotations

from collections.abc import Sequence


def stream(dictionary: str, data: bytes) -> bytes:
    return f"<< {dictionary} /Length {len(data)} >>\nstream\n".encode() + data + b"\nendstream"


def text_page(lines: list[str]) -> bytes:
    """Returns a content stream that shows the lines one below the other; "" leaves a gap."""
    operators = [f"({line}) Tj T*" for line in lines]
    return ("BT /F1 11 Tf 14 TL 50 800 Td " + "\n".join(operators) + " ET").encode("latin-1")


def pdf(
    *pages: bytes,
    info: str = "",
    catalog: str = "",
    page: str = "",
    fonts: str = "",
    resources: str = "",
    extra: Sequence[bytes] = (),
) -> bytes:
    """Returns a PDF of these content streams, with a correct cross-reference table.

    `catalog`, `page` (for each of them), `fonts` and `resources` are entries of those
    dictionaries. The `extra` objects follow the pages: the first has the number 5 + 2 * pages.
    """
    kids = " ".join(f"{4 + 2 * i} 0 R" for i in range(len(pages)))
    objects = [
        f"<< /Type /Catalog /Pages 2 0 R {catalog} >>".encode("latin-1"),
        f"<< /Type /Pages /Count {len(pages)} /Kids [{kids}] >>".encode(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
    ]
    for i, content in enumerate(pages):
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] {page} "
            f"/Resources << /Font << /F1 3 0 R {fonts} >> {resources} >> "
            f"/Contents {5 + 2 * i} 0 R >>".encode("latin-1")
        )
        objects.append(stream("", content))
    objects.append(f"<< {info} >>".encode("latin-1"))
    information = len(objects)
    objects += extra
    body, offsets = bytearray(b"%PDF-1.4\n"), []
    for number, data in enumerate(objects, 1):
        offsets.append(len(body))
        body += b"%d 0 obj\n%s\nendobj\n" % (number, data)
    start, size = len(body), len(objects) + 1
    body += b"xref\n0 %d\n0000000000 65535 f \n" % size
    body += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    body += b"trailer << /Size %d /Root 1 0 R /Info %d 0 R >>\n" % (size, information)
    return bytes(body + b"startxref\n%d\n%%%%EOF" % start)


def slow_pdf() -> bytes:
    """Returns a valid PDF whose one page takes seconds to read."""
    return pdf(b"BT /F1 9 Tf " + b"(word) Tj 1 0 0 1 5 5 Tm\n" * 150_000 + b"ET")
