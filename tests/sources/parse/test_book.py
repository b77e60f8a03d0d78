"""A book is cited by its chapters, and what of it can't be read is counted or refused."""

from __future__ import annotations

import io
import zipfile

import pytest

from kbproc.base.errors import KbprocError
from kbproc.engine.sources.parse.blocks import Block
from kbproc.engine.sources.parse.book import parse
from tests.kit.office import archive, book


def changed(data: bytes, **parts: str | None) -> bytes:
    """Returns an EPUB with other parts; the names are shortened, and None takes a part out."""
    names = {
        "chapter": "OEBPS/one 0.xhtml",
        "package": "OEBPS/p.opf",
        "locks": "META-INF/encryption.xml",
        "container": "META-INF/container.xml",
    }
    with zipfile.ZipFile(io.BytesIO(data)) as opened:
        files: dict[str, str | bytes] = {name: opened.read(name) for name in opened.namelist()}
    for name, content in parts.items():
        files.pop(names[name], None)
        if content is not None:
            files[names[name]] = content
    return archive(files)


EPUB = book("The crane", {"Rope": "Steel.", "Hook": "Red."})


def test_a_chapter_is_the_section_of_its_blocks() -> None:
    parsed = parse(EPUB, "a.epub")
    assert parsed.blocks == [
        Block(text="Rope", section="Rope"),
        Block(text="Steel.", section="Rope"),
        Block(text="Hook", section="Hook"),
        Block(text="Red.", section="Hook"),
    ]
    assert parsed.title == "The crane"
    assert parsed.metadata == {"author": "Ann Lee", "language": "en"}
    assert parsed.unread["pictures"] == 1


def test_headings_within_a_chapter_stand_below_it() -> None:
    page = "<html><title>Part</title><p>Above.</p><h2>Care</h2><p>Oil.</p></html>"
    parsed = parse(changed(EPUB, chapter=page), "a.epub")
    assert [(block.text, block.section) for block in parsed.blocks[:3]] == [
        ("Above.", "Part"),
        ("Care", "Part > Care"),
        ("Oil.", "Part > Care"),
    ]


def test_a_chapter_that_is_missing_is_counted_and_loses_no_other() -> None:
    parsed = parse(changed(EPUB, chapter=None), "a.epub")
    assert [block.text for block in parsed.blocks] == ["Hook", "Red."]
    assert parsed.unread["damaged_pages"] == 1


def test_the_navigation_and_other_media_are_no_chapters() -> None:
    package = (
        '<package><manifest><item id="a" href="one%200.xhtml" properties="x nav" '
        'media-type="application/xhtml+xml"/><item id="b" href="../OEBPS/one%201.xhtml" '
        'media-type="text/html"/><item id="c" href="p.png" media-type="image/png"/></manifest>'
        '<spine><itemref idref="gone"/><itemref idref="c"/><itemref idref="a"/>'
        '<itemref idref="b"/></spine></package>'
    )
    parsed = parse(changed(EPUB, package=package), "a.epub")
    assert [block.text for block in parsed.blocks] == ["Hook", "Red."]
    assert (parsed.title, parsed.metadata) == (None, {})


def test_a_locked_book_is_refused_and_one_with_locked_fonts_is_read() -> None:
    lock = '<encryption><CipherReference URI="OEBPS/{}"/></encryption>'
    with pytest.raises(KbprocError) as caught:
        parse(changed(EPUB, locks=lock.format("one%200.xhtml")), "a.epub")
    assert caught.value.message == (
        "a.epub is locked (DRM): no program but the seller's can read it."
    )
    assert len(parse(changed(EPUB, locks=lock.format("f.otf")), "a.epub").blocks) == 4


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (changed(EPUB, container=None), "a.epub is damaged at META-INF/container.xml: "),
        (changed(EPUB, container="<c/>"), "a.epub is damaged at : it has no such part."),
        (changed(EPUB, package="<p"), "a.epub is damaged at OEBPS/p.opf: "),
        (b"PK", "a.epub is damaged: it is not a whole EPUB archive"),
        (b"", "a.epub is damaged or no book: "),
        (b"<FictionBook>", "a.epub is damaged or no book: "),
    ],
)
def test_a_damaged_book_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(KbprocError) as caught:
        parse(data, "a.epub")
    assert caught.value.type == "operation.failed"
    assert caught.value.message.startswith(message)


def test_a_book_of_fiction_is_cited_by_its_sections() -> None:
    data = """<f:FictionBook xmlns:f="urn:f"><description><title-info>
    <author><first-name>Ann</first-name> <last-name>Lee</last-name></author>
    <book-title>The  crane</book-title></title-info></description>
    <body><title><p>Front</p></title><section><title><p>Rope</p></title><p>Steel
    wire.</p><section><title><p>Care</p></title><poem><v>Oil</v></poem></section></section>
    <section><p>End.</p><image/></section></body>
    <binary>aGk=</binary><binary>aGk=</binary></f:FictionBook>"""
    parsed = parse(data.encode(), "a.fb2")
    assert parsed.blocks == [
        Block(text="Front", section="Front"),
        Block(text="Rope", section="Front > Rope"),
        Block(text="Steel wire.", section="Front > Rope"),
        Block(text="Care", section="Front > Rope > Care"),
        Block(text="Oil", section="Front > Rope > Care"),
        Block(text="End.", section="Front"),
    ]
    assert (parsed.title, parsed.metadata) == ("The crane", {"author": "Ann Lee"})
    assert parsed.unread == {"pictures": 2}
