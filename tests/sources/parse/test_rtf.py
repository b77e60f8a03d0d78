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


def shown(body: bytes) -> tuple[list[str], dict[str, int]]:
    parsed = parse(rb"{\rtf1\ansi " + body + b"}", "a.rtf")
    return [block.text.strip() for block in parsed.blocks], parsed.unread


SHAPE = (
    rb"{\shp{\*\shpinst\shpleft1{\sp{\sn wzDescription}{\sv The north quay}}{\sp{\sn fFlip}{\sv 1}}"
    rb"{\shptxt \pard In the box\par}}{\shprslt{\*\do\dptxbx{\dptxbxtext In the box\par}}}}"
)
CASES: list[tuple[str, bytes, list[str], dict[str, int]]] = [
    (
        "footnotes and endnotes",
        rb"Pull{\super\chftn}{\footnote\pard{\super\chftn} It is stiff.\par Very.} it.\par "
        rb"End{\footnote\ftnalt See {\i below}.}\par",
        ["Pull it.", "[1] It is stiff.\nVery.", "End", "[2] See below."],
        {},
    ),
    (
        "hidden and deleted text",
        rb"Seen {\v not {\b at} all }\v0 again\v  gone\plain . {\deleted ninety}{\revised thirty}"
        rb"\par{\v whole\par}",
        ["Seen again. thirty"],
        {"hidden_passages": 3, "deleted_passages": 1},
    ),
    (
        "text boxes and descriptions of pictures",
        rb"Before "
        + SHAPE
        + rb"{\*\shppict{\pict{\*\picprop{\sp{\sn wzDescription}{\sv x}}}\bin3 }}}}"
        rb"{\nonshppict{\pict aa}}after\par",
        ["Before after", "[The north quay]", "In the box"],
        {"pictures": 1},
    ),
    (
        "comments, headers and fields",
        rb"{\header Port authority\par}{\footer \par}See{\*\atnid A}"
        rb"{\*\annotation {\*\atndate 1}why?}"
        rb" {\field{\*\fldinst HYPERLINK x}{\fldrslt the plan}}{\xe index}{\*\later no}\par",
        ["See the plan"],
        {"headers_and_footers": 1, "comments": 1},
    ),
    (
        "tables",
        rb"\trowd\pard\intbl Hook\par steel\cell 12\cell\row"
        rb"\trowd\intbl Rope\cell\cell\row\pard End\par",
        ["Hook steel | 12\nRope", "End"],
        {},
    ),
    (
        "letters of several code pages",
        rb"{\fonttbl{\f0\fcharset0 A;}{\f1\fcharset204 B;}{\f2\fcharset128 C;}}\f1\'cf\'ee\f0\'e9 "
        rb"\f2\'83A\uc2\u20013\'aa\'bb \u-3913?\u-10179?\u-8704?\par",
        ["Поé ア中 •\ud83d\ude00"],
        {},
    ),
    (
        "lists, alternatives and embedded objects",
        rb"{\listtext\pard 1.\tab}First\par{\upr{Mull}{\*\ud{M\u252?ll}}}\par"
        rb"{\object\objemb{\*\objdata 01}{\result Total 9}}{\*\formfield{\*\ffl red}}\par",
        ["1.\tFirst", "Müll", "Total 9"],
        {"objects": 1, "form_choices": 1},
    ),
]


@pytest.mark.parametrize(("body", "texts", "unread"), [case[1:] for case in CASES])
def test_what_word_shows_is_read_and_the_rest_is_counted(
    body: bytes, texts: list[str], unread: dict[str, int]
) -> None:
    assert shown(body) == (texts, unread)


def test_title_and_author_are_those_of_the_document() -> None:
    parsed = parse(rb"{\rtf1{\info{\title Crane manual}{\author Ann}{\company X}}Pull.}", "a.rtf")
    assert (parsed.title, parsed.metadata) == ("Crane manual", {"author": "Ann"})
    assert [block.text for block in parsed.blocks] == ["Pull."]


CONSTRUCTS = rb"""
{\footnote W}
{\v W}
{\deleted W}
{\*\annotation W}
{\header W}
{\shp{\*\shpinst{\shptxt W}}}
{\*\do{\dptxbxtext W}}
{\field{\fldrslt W}}
{\object{\result W}}
{\trowd\intbl W\cell\row}
{\upr{x}{\*\ud W}}
{\pict W}
{\mmath{\*\moMath{\mr W}}}
{\listtext W}
{\pntext W}
{\footer {\b W}}
{\*\shppict{\pict W}}
{\*\formfield{\*\ffl W}}
{\later W}
\page W
""".split(b"\n")[1:-1]


@pytest.mark.parametrize("construct", CONSTRUCTS)
def test_no_construct_is_dropped_without_a_count(construct: bytes) -> None:
    texts, unread = shown(b"Before " + construct.replace(b"W", b"Bollard") + rb" after\par")
    joined = " ".join(texts)
    assert "Before" in joined and "after" in joined
    assert "Bollard" in joined or unread, (construct, texts)
