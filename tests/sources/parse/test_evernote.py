"""Notes of an export of Evernote are read with their titles, tags and dates, without base64."""

from __future__ import annotations

import pytest

from kbproc.base.errors import KbprocError
from kbproc.engine.sources.parse.formats import detect, parse

HEAD = (
    '<?xml version="1.0" encoding="UTF-8"?><!DOCTYPE en-export SYSTEM '
    '"http://xml.evernote.com/pub/evernote-export4.dtd"><en-export application="Evernote">'
)
DATA = "QUJD" * 5_000_000
PIER = (
    "<note><title>Pier &amp; quay</title><created>20240305T101112Z</created>"
    "<tag>port</tag><tag>to do</tag><note-attributes><author>Ann Lee</author>"
    "<source-url>https://a.org</source-url></note-attributes><content><![CDATA["
    '<?xml version="1.0"?><!DOCTYPE en-note SYSTEM "x"><en-note><h1>Plan</h1>'
    "<div>Paint the <b>bol</b>lards</div>"
    '<div><en-todo checked="true"/>order paint</div><div><en-todo/>find a brush</div>'
    '<en-media type="image/png" hash="77"/><div>Done &amp; dusted</div>'
    '<en-crypt hint="x">SECRETS</en-crypt></en-note>]]></content>'
    f'<resource><data encoding="base64">{DATA[:4000]}</data><mime>image/png</mime></resource>'
    f'<resource><data encoding="base64">{DATA}</data><mime>application/pdf</mime>'
    "<resource-attributes><file-name>tariff.pdf</file-name></resource-attributes></resource></note>"
)
ROPE = (
    "<note><title>Rope</title><content>&lt;en-note&gt;Ten metres&lt;/en-note&gt;</content></note>"
)


def test_a_note_is_read_as_a_document_and_its_files_are_counted() -> None:
    data = f"{HEAD}{PIER}</en-export>".encode()
    assert detect("a.enex", data[:4096]) == "text"
    parsed = parse(data, "text", "a.enex")
    title = "Pier & quay"
    assert [(block.section, block.text) for block in parsed.blocks] == [
        (
            title,
            f"{title}\nCreated: 2024-03-05 10:11 UTC\nAuthor: Ann Lee\nSource: https://a.org\n"
            "Tags: port, to do\nAttachment: tariff.pdf",
        ),
        (f"{title} > Plan", "Plan"),
        (f"{title} > Plan", "Paint the bollards"),
        (f"{title} > Plan", "☑ order paint"),
        (f"{title} > Plan", "☐ find a brush"),
        (f"{title} > Plan", "Done & dusted"),
    ]
    assert (parsed.title, parsed.tags) == (title, ["port", "to do"])
    assert parsed.metadata["created"] == "2024-03-05 10:11 UTC"
    assert parsed.unread == {"pictures": 1, "attachments": 1, "hidden_passages": 1}


def test_a_notebook_of_several_notes_has_their_titles_as_sections() -> None:
    parsed = parse(
        f"{HEAD}{ROPE}{ROPE.replace('Rope', 'Hook')}</en-export>".encode(), "text", "a.enex"
    )
    assert [(block.section, block.text) for block in parsed.blocks] == [
        ("Rope", "Rope"),
        ("Rope", "Ten metres"),
        ("Hook", "Hook"),
        ("Hook", "Ten metres"),
    ]
    assert (parsed.title, parsed.tags) == (None, [])


def test_an_export_that_is_cut_is_read_as_far_as_it_goes() -> None:
    parsed = parse(f"{HEAD}{ROPE}<note><title>Cut".encode(), "text", "a.enex")
    assert parsed.blocks[1].text == "Ten metres"
    assert parsed.unread == {"damaged_pages": 1}
    with pytest.raises(KbprocError, match=r"a\.enex is damaged or no export of Evernote"):
        parse(b"words", "text", "a.enex")
