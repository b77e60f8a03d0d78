"""Fields and notes of a PDF page become lines, and those that are left out are counted."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import pytest
from pypdf import PdfReader

from kbproc.engine.sources.parse.forms import Annotations, embedded_files, is_dynamic_form
from tests.kit.pdfs import pdf, stream


def reader_of(catalog: str = "", page: str = "", extra: Sequence[bytes] = ()) -> PdfReader:
    """Returns the reader of a PDF of one empty page; the first extra object has the number 7."""
    return PdfReader(io.BytesIO(pdf(b"", catalog=catalog, page=page, extra=extra)))


def read(*annotations: str, extra: Sequence[bytes] = ()) -> tuple[list[str], dict[str, int]]:
    """Returns the lines of a page with these annotations, and the counts of those left out."""
    reader = reader_of(page=f"/Annots [{' '.join(annotations)}]", extra=extra)
    annotated = Annotations()
    return annotated.lines(reader.pages[0]), dict(annotated.unread)


class Listing(list[Any]):
    """A list that stands for an indirect one."""

    def get_object(self) -> Listing:
        return self


@pytest.mark.parametrize(
    ("entries", "line"),
    [
        ("/FT /Tx /T (load) /V (4 t)", "load: 4 t"),
        ("/FT /Tx /T (load) /TU (Load :) /V (4 t)", "Load: 4 t"),
        ("/FT /Tx /V (no name)", "no name"),
        ("/FT /Ch /T (c) /V [(a) (b)] /Opt [[(a) (Red)] (b)]", "c: Red, b"),
        ("/FT /Btn /T (box) /V /Yes", "box: Yes"),
        ("/FT /Btn /T (box) /AS /On", "box: On"),
        ("/FT /Btn /T (radio) /V /1 /Opt [(small) (large)]", "radio: large"),
        ("/FT /Btn /T (radio) /V /7 /Opt [(small) (large)]", "radio: 7"),
    ],
)
def test_a_field_is_its_name_and_its_value(entries: str, line: str) -> None:
    assert read(f"<< /Subtype /Widget {entries} >>") == ([line], {})


@pytest.mark.parametrize(
    "entries",
    [
        "/FT /Tx /T (empty) /V ( )",
        "/FT /Tx /T (no value)",
        "/FT /Tx /T (null) /V null",
        "/FT /Btn /T (box) /V /Off",
        "/FT /Btn /T (push) /Ff 65536 /V (x)",
        "/FT /Sig /T (unsigned)",
        "/FT /Tx /T (t) /V << /A 1 >>",
    ],
)
def test_a_field_without_a_value_is_no_line(entries: str) -> None:
    assert read(f"<< /Subtype /Widget {entries} >>") == ([], {})


def test_a_field_that_several_widgets_show_is_read_once_with_its_full_name() -> None:
    form, field = b"<< /T (crane) >>", b"<< /Parent 7 0 R /T (load) /FT /Tx /V (4 t) >>"
    widget = "<< /Subtype /Widget /Parent 8 0 R >>"
    assert read(widget, widget, extra=[form, field]) == (["crane.load: 4 t"], {})


def test_parents_that_run_in_a_circle_are_followed_to_an_end() -> None:
    circle = b"<< /Parent 7 0 R /FT /Tx /V (x) >>"
    assert read("<< /Subtype /Widget /T (t) /Parent 7 0 R >>", extra=[circle]) == (["t: x"], {})


def test_notes_are_read_and_other_annotations_are_counted() -> None:
    lines, unread = read(
        "<< /Subtype /Text /Contents (Check\\r\\nthis) >>",
        "<< /Subtype /FreeText /Contents (Typed) >>",
        "<< /Subtype /Stamp /Contents (Approved) >>",
        "<< /Subtype /Link /Contents (a link) >>",
        "<< /Subtype /Popup /Contents (a popup) >>",
        "<< /Subtype /FileAttachment /Contents (see file) >>",
        "<< /Subtype /Movie >>",
    )
    assert lines == ["Note: Check\nthis", "Typed", "Note: Approved", "Note: see file"]
    assert unread == {"embedded_files": 1, "objects": 1}


def test_passwords_and_hidden_annotations_are_counted_and_not_read() -> None:
    lines, unread = read(
        "<< /Subtype /Widget /FT /Tx /Ff 8192 /T (pin) /V (1234) >>",
        "<< /Subtype /Widget /FT /Tx /F 2 /T (h) /V (hidden) >>",
        "<< /Subtype /Widget /FT /Btn /F 2 /T (h) /V /Off >>",
        "<< /Subtype /Text /F 32 /Contents (not viewed) >>",
        "<< /Subtype /Link /F 2 /Contents (a link) >>",
        "<< /Subtype /Text /F 4 /Contents (printed) >>",
    )
    assert lines == ["Note: printed"]
    assert unread == {"hidden_passages": 3}


def test_the_look_of_an_annotation_is_read_where_it_has_no_text() -> None:
    form = stream(
        "/Type /XObject /Subtype /Form /BBox [0 0 9 9] /Resources << /Font << /F1 3 0 R >> >>",
        b"BT /F1 9 Tf (Drawn  words) Tj ET",
    )
    look = "/AP << /N 7 0 R >>"
    lines, _ = read(
        f"<< /Subtype /FreeText {look} >>",
        f"<< /Subtype /Stamp {look} /Contents (unused) >>",
        f"<< /Subtype /Widget /FT /Sig /V << /Type /Sig >> {look} >>",
        "<< /Subtype /FreeText >>",
        extra=[form],
    )
    assert lines == ["Drawn words"] * 3


def test_damaged_annotations_are_counted_and_lose_no_other() -> None:
    assert read("(no dictionary)", "<< /Subtype /Text /Contents (x) >>") == (
        ["Note: x"],
        {"annotations": 1},
    )
    for page in ("", "/Annots 5", "/Annots 99 0 R", "/Annots null"):
        assert Annotations().lines(reader_of(page=page).pages[0]) == []


def test_only_so_many_annotations_of_a_document_are_read() -> None:
    page: Any = {"/Annots": Listing([{}] * 10_002)}
    annotations = Annotations()
    assert annotations.lines(page) == []
    assert annotations.unread["annotations"] == 10_002
    assert annotations.lines({"/Annots": Listing([{}])}) == []
    assert annotations.unread["annotations"] == 10_003


def test_files_that_are_attached_to_the_whole_are_counted() -> None:
    tree = "/Names << /EmbeddedFiles << /Kids [7 0 R 8 0 R] >> >>"
    leaves = [b"<< /Names [(a) 1 (b) 2] >>", b"<< /Names [(c) 3] /Kids [8 0 R] >>"]
    assert embedded_files(reader_of(tree, extra=[leaves[0], b"<< /Names [(c) 3] >>"])) == 3
    assert embedded_files(reader_of()) == 0
    assert embedded_files(reader_of("/Names 7", extra=leaves)) == 0
    assert embedded_files(reader_of("/Names << /EmbeddedFiles [1] >>")) == 0


def test_a_form_in_xfa_alone_is_a_dynamic_one() -> None:
    assert is_dynamic_form(reader_of("/AcroForm << /XFA (x) /Fields [] >>"))
    assert not is_dynamic_form(reader_of("/AcroForm << /XFA (x) /Fields [7 0 R] >>"))
    assert not is_dynamic_form(reader_of("/AcroForm << /Fields [] >>"))
    assert not is_dynamic_form(reader_of("/AcroForm 5"))
    assert not is_dynamic_form(reader_of())
