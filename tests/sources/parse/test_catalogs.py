"""Messages of a catalog of translations are read with their strings put together."""

from __future__ import annotations

from kbproc.engine.sources.parse.formats import parse

CATALOG = r"""# Translators of the port
msgid ""
msgstr ""
"Project-Id-Version: Harbour 2\n"
"Language: de\n"
"Content-Type: text/plain; charset=CHARSET\n"

#. Shown at the gate
#: gate.c:12 gate.c:19
#, fuzzy
msgctxt "gate"
msgid ""
"The harb"
"our opens "
"at noon.\n"
msgstr "Der Hafen "
"\"öff\x6eet\" um "

"zwölf.\tImmer.\n"
#: b.c:1
msgid "%d ship"
msgid_plural "%d ships"
msgstr[0] "%d Schi"
"ff"
msgstr[1] "%d Schiffe"

#~ msgid "Old"
#~ msgstr "Alt"
"""


def test_strings_over_several_lines_are_one() -> None:
    for charset in ("UTF-8", "ISO-8859-1", "unknown"):
        encoding = charset.replace("unknown", "utf-8")
        parsed = parse(CATALOG.replace("CHARSET", charset).encode(encoding), "text", "de.po")
        assert [(block.line, block.section, block.text) for block in parsed.blocks[1:]] == [
            (
                8,
                "gate.c:12 gate.c:19",
                "Shown at the gate\ngate\nThe harbour opens at noon.\n"
                'Der Hafen "öffnet" um zwölf.\tImmer.',
            ),
            (20, "b.c:1", "%d ship\n%d ships\n%d Schiff\n%d Schiffe"),
        ]
        assert parsed.blocks[0].text.startswith("Translators of the port\nProject-Id-Version: Harb")
        assert parsed.metadata == {"project": "Harbour 2", "language": "de"}
        assert parsed.unread == {"deleted_passages": 1}


def test_what_is_no_catalog_is_read_as_text_and_no_line_is_lost() -> None:
    assert parse(b"just words", "text", "a.po").blocks[0].text == "just words"
    parsed = parse(b'msgid "a\\163"\nmsgstr "x" stray\nwords\n', "text", "a.pot")
    assert [block.text for block in parsed.blocks] == ['as\nmsgstr "x" stray\nwords']
