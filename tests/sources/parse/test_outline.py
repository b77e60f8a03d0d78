"""Headings of marked-up text become sections of its paragraphs, which stay as they are written."""

from __future__ import annotations

import pytest

from kbproc.base.errors import KbprocError
from kbproc.engine.sources.parse.outline import READERS, parse


def sections(source: str, name: str) -> list[tuple[str, str | None, int | None]]:
    """Returns the first line, the section and the line of each block."""
    blocks = parse(source.encode(), name).blocks
    return [(block.text.split("\n")[0], block.section, block.line) for block in blocks]


def test_levels_of_restructured_text_are_those_of_the_first_use_of_their_marks() -> None:
    source = (
        "=====\nGuide\n=====\n\nIntro.\n\nLinux\n-----\n\nWords.\n\n"
        "Care\n====\n\nEnd.\n\nMac\n---\nx"
    )
    assert sections(source, "a.rst") == [
        ("=====", "Guide", 1),
        ("Intro.", "Guide", 5),
        ("Linux", "Guide > Linux", 7),
        ("Words.", "Guide > Linux", 10),
        ("Care", "Guide > Linux > Care", 12),
        ("End.", "Guide > Linux > Care", 15),
        ("Mac", "Guide > Mac", 17),
    ]


@pytest.mark.parametrize(
    "source", ["Long heading\n---", "====\n----", "\n-----", "word\n--", "a table\n=== ==="]
)
def test_other_lines_of_marks_are_no_headings(source: str) -> None:
    assert {section for _, section, _ in sections(source, "a.rst")} == {None}


@pytest.mark.parametrize(
    ("name", "first", "second", "names"),
    [
        ("a.org", "* TODO Guide :tag:a1:", "** Linux", ("Guide", "Linux")),
        ("a.adoc", "= Guide =", "=== Linux", ("Guide", "Linux")),
        ("a.ASCIIDOC", "== Guide", "=== Linux ===", ("Guide", "Linux")),
        ("a.tex", r"\section{Guide}", r"  \subsection*{Linux} x", ("Guide", "Linux")),
        (
            "a.tex",
            r"\section[G]{The {\bf G}uide}",
            r"\subsection{Linux}",
            ("The {\\bf G}uide", "Linux"),
        ),
        ("a.typ", "= Guide <intro>", "== Linux", ("Guide", "Linux")),
        ("a.wiki", "== Guide ==", "===Linux===", ("Guide", "Linux")),
        ("a.1", ".SH GUIDE", '.SS "On Linux"', ("GUIDE", "On Linux")),
        ("a.9", ".SH GUIDE", ". SS Linux ", ("GUIDE", "Linux")),
    ],
)
def test_marks_of_each_language_are_headings(
    name: str, first: str, second: str, names: tuple[str, str]
) -> None:
    outer, inner = names
    source = f"{first}\n\nWords.\n\n{second}\n\nMore.\n\n{first}"
    path = f"{outer} > {inner}"
    assert [section for _, section, _ in sections(source, name)] == [
        outer,
        outer,
        path,
        path,
        outer,
    ]


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("a.org", "*bold* words"),
        ("a.org", " * item"),
        ("a.adoc", "=no space"),
        ("a.adoc", "======= seven"),
        ("a.tex", r"\sectional{x}"),
        ("a.tex", r"\section{}"),
        ("a.typ", "=no space"),
        ("a.wiki", "== a = b =="),
        ("a.1", ".SHX y"),
        ("a.1", "SH y"),
    ],
)
def test_lines_that_only_look_like_headings_are_none(name: str, line: str) -> None:
    assert {section for _, section, _ in sections(line, name)} == {None}


def test_a_heading_near_the_start_is_the_title() -> None:
    above = "x\n" * 9
    assert parse(f"{above}* Guide".encode(), "a.org").title == "Guide"
    assert parse(f"{above}x\n* Guide".encode(), "a.org").title is None
    assert parse(b"words", "a.org").title is None


def test_bytes_that_are_no_text_are_refused_and_bad_ones_are_counted() -> None:
    with pytest.raises(KbprocError) as caught:
        parse(bytes(range(16)) * 40, "a.rst")
    assert caught.value.type == "input.unsupported_type"
    parsed = parse("* Größe ü ".encode() + b"\xff", "a.org")
    assert parsed.blocks[0].section == "Größe ü \ufffd"
    assert parsed.unread["replaced_bytes"] == 1
    assert parse(b"", "a.rst").blocks == []


def test_each_suffix_of_the_list_has_a_reader() -> None:
    assert {suffix for suffix in READERS if not suffix[1:].isdigit()} == {
        ".rst",
        ".org",
        ".adoc",
        ".asciidoc",
        ".tex",
        ".bib",
        ".typ",
        ".wiki",
        ".mediawiki",
    }
    assert {suffix[1:] for suffix in READERS if suffix[1:].isdigit()} == set("123456789")


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (r"Fr\'echet, Fr\'{e}chet, Fr{\'e}chet", "Fréchet, Fréchet, Fréchet"),
        (
            r"G\"odel \c{c} \c c \v{S} \H{o} na\"{\i}ve \~n \=a \k{e} \r{u}",
            "Gödel ç ç Š ő naïve ñ ā ę ů",
        ),
        (r"Stra{\ss}e, Stra\ss e, \O{}re, \aa, \LaTeX", r"Straße, Straße, Øre, å, \LaTeX"),
        (r"data\-base 5\,\% of R\&D~Ltd", r"database 5\,% of R&D Ltd"),
        (r"\verb!a%b! \url{x%20y} \cc \bar c", r"\verb!a%b! \url{x%20y} \cc \bar c"),
    ],
)
def test_letters_that_tex_spells_are_letters(source: str, text: str) -> None:
    assert parse(source.encode(), "a.tex").blocks[0].text == text


@pytest.mark.parametrize(
    ("name", "source", "text", "count"),
    [
        ("a.tex", "Seen % not seen\n%\n5\\% % nor this\nend", "Seen %\n%\n5% %\nend", 2),
        (
            "a.tex",
            "a\n\\begin{comment}\nx\n\\end{comment}\nb",
            "a\n\\begin{comment}\n\n\\end{comment}\nb",
            1,
        ),
        ("a.org", "# not seen\n#+begin_src\n#keyword", "#\n#+begin_src\n#keyword", 1),
        ("a.typ", "see https://a.b // not\nx", "see https://a.b //\nx", 1),
        ("a.adoc", "// not\n////\nx", "//\n////\nx", 1),
        ("a.wiki", "a <!-- not\nseen --> b", "a <!--\n--> b", 1),
    ],
)
def test_comments_are_left_out_and_counted(name: str, source: str, text: str, count: int) -> None:
    parsed = parse(source.encode(), name)
    assert "\n\n".join(block.text for block in parsed.blocks) == text
    assert parsed.unread["comments"] == count


@pytest.mark.parametrize(
    ("name", "source"),
    [
        (
            "a.tex",
            "\\documentclass{article}\n\\title[Short]{A {\\it Fr\\'echet}\nspace}\n\\section{Not}",
        ),
        ("a.org", "#+AUTHOR: x\n#+title: A Fréchet space\n* Not"),
        ("a.typ", '#set document(\n  author: "x", title: "A Fréchet space")\n= Not'),
    ],
)
def test_the_title_is_the_one_that_the_markup_names(name: str, source: str) -> None:
    assert parse(source.encode(), name).title == "A Fréchet space"
