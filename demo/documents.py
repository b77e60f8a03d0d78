"""Makes the demo's PDF and DOCX: binary files are better made than kept."""

from __future__ import annotations

from pathlib import Path

PAGES = [
    "Coffee machine manual. Fill the tank with fresh water every morning.",
    "Descaling. When the red lamp blinks, dissolve one tablet of citric acid "
    "in a litre of water and run the rinse programme twice.",
]


def make_pdf(path: Path) -> None:
    """A PDF of two pages, written by hand: objects, table of offsets, trailer."""
    pages = [f"{4 + 2 * i} 0 R" for i in range(len(PAGES))]
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{' '.join(pages)}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for i, text in enumerate(PAGES):
        lines = " T* ".join(f"({line}) Tj" for line in _wrapped(text))
        stream = f"BT /F1 12 Tf 14 TL 72 720 Td {lines} ET"
        objects.append(
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] "
            f"/Resources << /Font << /F1 3 0 R >> >> /Contents {5 + 2 * i} 0 R >>"
        )
        objects.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
    objects.append("<< /Title (Coffee machine manual) >>")
    _write_pdf(path, objects)


def _wrapped(text: str, width: int = 70) -> list[str]:
    import textwrap

    return textwrap.wrap(text, width)


def _write_pdf(path: Path, objects: list[str]) -> None:
    out, offsets = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, 1):
        offsets.append(len(out))
        out += f"{number} 0 obj\n{body}\nendobj\n".encode("latin-1")
    table = "".join(f"{offset:010d} 00000 n \n" for offset in offsets)
    size = len(objects) + 1
    trailer = f"trailer\n<< /Size {size} /Root 1 0 R /Info {len(objects)} 0 R >>\n"
    tail = f"xref\n0 {size}\n0000000000 65535 f \n{table}{trailer}startxref\n{len(out)}\n%%EOF\n"
    path.write_bytes(out + tail.encode("latin-1"))


def make_docx(path: Path) -> None:
    import docx

    document = docx.Document()
    document.core_properties.title = "Onboarding"
    document.add_heading("Onboarding", 0)
    document.add_heading("First day", 1)
    document.add_paragraph("Fetch your laptop at the help desk and change the initial password.")
    document.add_heading("First week", 1)
    document.add_paragraph("Meet your mentor, read the runbooks, and deploy something small.")
    document.save(str(path))
