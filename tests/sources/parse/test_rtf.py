"""Rich text is read by its paragraphs, and its pictures and objects are counted."""

from __future__ import annotations

import pytest

from kbproc.base.errors import KbprocError
from kbproc.engine.sources.parse.blocks import Block
from kbproc.engine.sources.parse.rtf import parse


def test_paragraphs_are_blocks_without_their_codes() -> None:
    data = rb"{\rtf1\ansi{\fonttbl\f0 Arial;}\f0 Gr\'f6\'dfe \u20013? {\b bold}\par  \par Next.}"
    assert parse(data, "a.rtf").blocks == [
        Block(text="Größe 中 bold"),
        Block(text="Next."),
    ]


def test_pictures_and_objects_are_counted_and_not_read() -> None:
    data = rb"{\rtf1 a{\pict\pngblip 89504e47}{\object\objemb{\*\objdata 0105}}\pictures\par}"
    parsed = parse(data, "a.rtf")
    assert parsed.unread == {"pictures": 1, "objects": 1}
    assert "89504e47" not in "".join(block.text for block in parsed.blocks)


@pytest.mark.parametrize("data", [b"", b"words", b"x{\\rtf1 y}", b"{\\rt"])
def test_a_file_that_does_not_begin_as_rich_text_is_refused(data: bytes) -> None:
    with pytest.raises(KbprocError) as caught:
        parse(data, "a.rtf")
    assert caught.value.type == "operation.failed"
    assert caught.value.message == "a.rtf is damaged or no RTF file."


def test_a_file_that_is_cut_is_read_as_far_as_it_goes() -> None:
    blocks = parse(b" {\\rtf1 One.\\par Two", "a.rtf").blocks
    assert [block.text.strip() for block in blocks] == ["One.", "Two"]
    assert parse(b"{\\rtf1", "a.rtf").blocks == []
