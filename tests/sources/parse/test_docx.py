"""DOCX: order, sections, titles, and archives made to do harm."""

from __future__ import annotations

import io
import zipfile

import docx
import pytest

from kbproc.base.errors import KbprocError
from kbproc.engine.sources.parse.blocks import Block, Parsed
from kbproc.engine.sources.parse.formats import parse
from kbproc.engine.sources.parse.packed import MAX_UNPACKED
from kbproc.engine.sources.parse.word_styles import in_format
from tests.kit import words
from tests.kit.words import paragraph, run


def packed(document: docx.document.Document) -> bytes:
    stream = io.BytesIO()
    document.save(stream)
    return stream.getvalue()


def read(data: bytes) -> Parsed:
    return parse(data, "docx", "a.docx")


def refused(data: bytes) -> KbprocError:
    with pytest.raises(KbprocError) as caught:
        read(data)
    return caught.value


def test_a_document() -> None:
    document = docx.Document()
    document.core_properties.title = "The title"
    document.core_properties.author = "Ann"
    document.add_heading("Guide", 0)
    document.add_paragraph("Intro.")
    document.add_heading("Install", 1)
    document.add_paragraph("one", style="List Bullet")
    document.add_paragraph("two", style="List Bullet")
    document.add_heading("Linux", 2)
    table = document.add_table(2, 2)
    for i, word in enumerate(("a", "b", "1", "2")):
        table.cell(i // 2, i % 2).text = word
    table.cell(1, 1).add_paragraph("more")
    document.add_paragraph("End.")

    parsed = read(packed(document))
    assert (parsed.title, parsed.metadata) == ("The title", {"author": "Ann"})
    assert parsed.blocks == [
        Block(text="Guide"),
        Block(text="Intro."),
        Block(text="Install", section="Install"),
        Block(text="- one\n- two", section="Install"),
        Block(text="Linux", section="Install > Linux"),
        Block(text="a | b\n1 | 2 more", section="Install > Linux", kind="table"),
        Block(text="End.", section="Install > Linux"),
    ]


def test_the_title_is_else_the_style_title_or_the_first_heading() -> None:
    document = docx.Document()
    document.core_properties.title = ""
    document.add_heading("First", 1)
    assert read(packed(document)).title == "First"
    document.add_heading("Shown", 0)
    assert read(packed(document)).title == "Shown"


def test_damaged_encrypted_and_other_archives() -> None:
    whole = packed(docx.Document())
    assert "damaged" in refused(whole[: len(whole) // 2]).message
    assert "damaged" in refused(b"").message
    assert "encrypted" in refused(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 600).message
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("a.txt", "no document")
    error = refused(stream.getvalue())
    assert error.type == "operation.failed"
    assert "no Word document" in error.message


def bomb(size: int, files: int = 1) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for i in range(files):
            with archive.open(f"word/{i}.xml", "w") as file:
                for _ in range(size >> 20):
                    file.write(bytes(1 << 20))
    return stream.getvalue()


def test_a_zip_bomb_is_not_unpacked() -> None:
    error = refused(bomb(24 << 20))
    assert error.type == "input.too_large"
    assert "zip bomb" in error.message


def test_a_document_that_unpacks_to_too_much_is_refused() -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("word/document.xml", b"x")
    data = bytearray(stream.getvalue())
    # The size that the directory declares is what a reader would allocate.
    at = data.index(b"PK\x01\x02") + 24
    data[at : at + 4] = (MAX_UNPACKED + 1).to_bytes(4, "little")
    assert refused(bytes(data)).type == "input.too_large"


def test_entities_are_not_expanded() -> None:
    document = packed(docx.Document())
    stream = io.BytesIO()
    evil = (
        b'<?xml version="1.0"?><!DOCTYPE d [<!ENTITY a "xxxxxxxxxx"><!ENTITY b "&a;&a;&a;&a;">]>'
        b'<w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main">'
        b"<w:body><w:p><w:r><w:t>safe&b;</w:t></w:r></w:p></w:body></w:document>"
    )
    with (
        zipfile.ZipFile(io.BytesIO(document)) as old,
        zipfile.ZipFile(stream, "w") as new,
    ):
        for item in old.infolist():
            new.writestr(item, evil if item.filename == "word/document.xml" else old.read(item))
    assert [block.text for block in read(stream.getvalue()).blocks] == ["safe"]


def texts(body: str, parts: dict[str, str] | None = None) -> list[str]:
    return [block.text for block in read(words.docx(body, parts)).blocks]


def test_changes_are_read_as_accepted() -> None:
    deleted = "<w:del><w:r><w:delText>ninety</w:delText></w:r></w:del>"
    moved = f"<w:moveFrom>{run('early ')}</w:moveFrom>"
    body = paragraph(
        run("ends after ") + deleted + f"<w:ins>{run('thirty')}</w:ins>" + moved + run(" days")
    )
    body += paragraph(run("It begins ") + f"<w:moveTo>{run('early')}</w:moveTo>")
    body += f"<w:ins>{paragraph(run('A new paragraph'))}</w:ins>"
    assert texts(body) == ["ends after thirty days", "It begins early", "A new paragraph"]
    mark = "<w:rPr><w:del/></w:rPr>"
    body = paragraph(run("One "), mark) + paragraph(run("line "), mark) + paragraph(run("now"))
    assert texts(body) == ["One line now"]


@pytest.mark.parametrize(
    "around",
    [
        "<w:sdt><w:sdtPr/><w:sdtContent>{}</w:sdtContent></w:sdt>",
        '<w:fldSimple w:instr="REF fig">{}</w:fldSimple>',
        '<w:hyperlink w:anchor="x">{}</w:hyperlink>',
        '<w:smartTag w:element="place">{}</w:smartTag>',
        '<w:customXml w:element="x"><w:customXmlPr/>{}</w:customXml>',
        '<w:bdo w:val="rtl">{}</w:bdo>',
        '<mc:AlternateContent><mc:Choice Requires="w14">{}</mc:Choice>'
        "<mc:Fallback><w:r><w:t>old</w:t></w:r></mc:Fallback></mc:AlternateContent>",
        '<w:ins><w:sdt><w:sdtContent><w:hyperlink r:id="x">{}</w:hyperlink></w:sdtContent></w:sdt>'
        "</w:ins>",
    ],
)
def test_whatever_wraps_a_run_its_text_is_read(around: str) -> None:
    body = paragraph(run("See ") + around.format(run("Figure 7")) + run("."))
    assert texts(body) == ["See Figure 7."]


def test_controls_around_paragraphs_tables_rows_and_cells() -> None:
    control = "<w:sdt><w:sdtContent>{}</w:sdtContent></w:sdt>"
    cell = f"<w:tc>{paragraph(run('in a cell'))}</w:tc>"
    table = f"<w:tbl>{control.format(f'<w:tr>{cell}{control.format(cell)}</w:tr>')}</w:tbl>"
    body = control.format(paragraph(run("A paragraph")) + control.format(table))
    assert texts(body) == ["A paragraph", "in a cell | in a cell"]


def field(kind: str) -> str:
    return f'<w:r><w:fldChar w:fldCharType="{kind}"/></w:r>'


def test_a_field_shows_its_result() -> None:
    code = "<w:r><w:instrText>PAGEREF x</w:instrText></w:r>"
    inner = field("begin") + code + field("separate") + run("hidden") + field("end")
    whole = field("begin") + code + inner + field("separate") + run("12") + field("end")
    assert texts(paragraph(run("page ") + whole + run("."))) == ["page 12."]
    over_two = paragraph(field("begin") + code + field("separate") + run("first"))
    assert texts(over_two + paragraph(run("second") + field("end"))) == ["first", "second"]
    # Without an end it is no field, and hides nothing.
    assert texts(paragraph(field("begin") + run("still here"))) == ["still here"]
    box = '<w:r><w:fldChar w:fldCharType="begin"><w:ffData><w:checkBox><w:checked/></w:checkBox>'
    box += "</w:ffData></w:fldChar></w:r>" + field("end")
    assert texts(paragraph(box + run(" insured"))) == ["☒ insured"]


def test_characters_that_have_elements_of_their_own() -> None:
    body = paragraph(
        "<w:r><w:t>a</w:t><w:tab/><w:t>b</w:t><w:br/><w:t>c</w:t><w:cr/><w:t>d</w:t>"
        '<w:noBreakHyphen/><w:t>e</w:t><w:softHyphen/><w:t>f</w:t><w:ptab w:alignment="right"/>'
        '<w:sym w:font="Symbol" w:char="F061"/><w:sym w:font="Wingdings" w:char="F0FC"/></w:r>'
    )
    assert texts(body) == ["a\tb\nc\nd-ef\tα✓"]


def test_hidden_text_is_left_out_and_counted() -> None:
    hidden = "<w:vanish/>"
    body = paragraph(run("Shown") + run(" one", hidden) + run(" two", hidden) + run(" again"))
    body += paragraph(run("Not off", '<w:vanish w:val="0"/>'))
    body += paragraph(run("By style"), '<w:pStyle w:val="secret"/>')
    styles = '<w:style w:type="paragraph" w:styleId="secret"><w:name w:val="Secret"/><w:rPr>'
    styles = words.part("styles", f"{styles}<w:vanish/></w:rPr></w:style>")
    parsed = read(words.docx(body, {"styles": styles}))
    assert [block.text for block in parsed.blocks] == ["Shown again", "Not off"]
    assert parsed.unread == {"hidden_passages": 2}


def test_notes_stand_behind_their_paragraph() -> None:
    notes = '<w:footnote w:type="separator" w:id="0"><w:p/></w:footnote>'
    notes += f'<w:footnote w:id="3">{paragraph(run("See the annex."))}</w:footnote>'
    end = f'<w:endnote w:id="3">{paragraph(run("Ibid."))}</w:endnote>'
    body = paragraph(
        run("It holds")
        + '<w:r><w:footnoteReference w:id="3"/></w:r>'
        + run(".")
        + '<w:r><w:endnoteReference w:id="3"/></w:r>'
    )
    parts = {"footnotes": words.part("footnotes", notes), "endnotes": words.part("endnotes", end)}
    assert texts(body + paragraph(run("Next.")), parts) == [
        "It holds.",
        "[1] See the annex.",
        "[i] Ibid.",
        "Next.",
    ]


def test_text_boxes_are_read_once() -> None:
    box = f"<w:txbxContent>{paragraph(run('In the box'))}</w:txbxContent>"
    both = (
        f'<mc:AlternateContent><mc:Choice Requires="wps"><w:drawing><wps:txbx>{box}</wps:txbx>'
        f"</w:drawing></mc:Choice><mc:Fallback><w:pict><v:textbox>{box}</v:textbox></w:pict>"
        "</mc:Fallback></mc:AlternateContent>"
    )
    old = f"<w:pict><v:shape><v:textbox>{box}</v:textbox></v:shape></w:pict>"
    assert texts(paragraph(run("Before") + f"<w:r>{both}</w:r>")) == ["Before", "In the box"]
    assert texts(paragraph(run("Before") + f"<w:r>{old}</w:r>")) == ["Before", "In the box"]


def test_what_is_not_read_is_counted() -> None:
    def picture(text: str) -> str:
        shape = f'<wp:docPr id="1" name="Picture 1" descr="{text}"/>'
        return f"<w:r><w:drawing><wp:inline>{shape}<a:blip/></wp:inline></w:drawing></w:r>"

    chart = '<w:r><w:drawing><wp:inline><c:chart r:id="chart1"/></wp:inline></w:drawing></w:r>'
    ole = (
        '<w:r><w:object><v:shape><v:imagedata/></v:shape><o:OLEObject ProgID="x"/></w:object></w:r>'
    )
    body = paragraph(picture("A red house") + picture("image1.png") + picture(""))
    body += paragraph(chart + ole) + '<w:altChunk r:id="x"/>'
    comments = f"<w:comment>{paragraph(run('Why?'))}</w:comment><w:comment/>"
    parts = {
        "chart1": words.part("x", "<a:t>Sales by year</a:t>"),
        "comments": words.part("comments", comments),
        "header1": words.part("hdr", paragraph(run("Confidential"))),
        "footer1": words.part("ftr", paragraph("")),
    }
    parsed = read(words.docx(body, parts))
    assert [block.text for block in parsed.blocks] == ["[A red house]", "Sales by year"]
    assert parsed.unread == {
        "pictures": 3,
        "objects": 3,
        "headers_and_footers": 1,
        "comments": 1,
    }


def test_equations_are_read_in_order() -> None:
    def text(char: str) -> str:
        return f"<m:r><m:t>{char}</m:t></m:r>"

    fraction = f"<m:f><m:num>{text('a')}</m:num><m:den>{text('b')}</m:den></m:f>"
    power = f"<m:sSup><m:e>{text('x')}</m:e><m:sup>{text('2')}</m:sup></m:sSup>"
    body = paragraph(f"<m:oMath>{power}{text('=')}<m:d><m:e>{fraction}</m:e></m:d></m:oMath>")
    assert texts(body) == ["x^2=(a/b)"]


def test_white_space_in_cells() -> None:
    def cell(content: str, properties: str = "") -> str:
        return f"<w:tc><w:tcPr>{properties}</w:tcPr>{content}</w:tc>"

    broken = paragraph(run("Antwerp") + "<w:r><w:br/></w:r>" + run("Rotterdam"))
    tabbed = paragraph(run("1") + "<w:r><w:tab/></w:r>" + run("2"))
    merged = '<w:gridSpan w:val="2"/>'
    nested = f"<w:tbl><w:tr>{cell(tabbed)}</w:tr></w:tbl>"
    table = (
        f"<w:tbl><w:tr>{cell(broken)}{cell(paragraph(run('x')) + nested)}</w:tr>"
        f"<w:tr><w:trPr><w:del/></w:trPr>{cell(paragraph(run('gone')))}</w:tr>"
        f"<w:tr>{cell(paragraph(run('a')) + paragraph(run('b')), merged)}</w:tr>"
        "</w:tbl>"
    )
    assert texts(table) == ["Antwerp Rotterdam | x 1 2\na b"]


def level(number: int, format: str, text: str, more: str = "") -> str:
    return (
        f'<w:lvl w:ilvl="{number}"><w:start w:val="1"/><w:numFmt w:val="{format}"/>{more}'
        f'<w:lvlText w:val="{text}"/></w:lvl>'
    )


def test_clauses_have_their_numbers() -> None:
    heading = '<w:style w:type="paragraph" w:styleId="{0}"><w:name w:val="{1}"/>{2}</w:style>'
    styles = heading.format(
        "berschrift1", "heading 1", '<w:pPr><w:numPr><w:numId w:val="5"/></w:numPr></w:pPr>'
    )
    styles += heading.format(
        "berschrift2",
        "Überschrift 2",
        '<w:basedOn w:val="berschrift1"/><w:pPr><w:numPr><w:ilvl w:val="1"/></w:numPr></w:pPr>',
    )
    kinds = (
        '<w:abstractNum w:abstractNumId="0">'
        + level(0, "upperRoman", "Article %1", '<w:pStyle w:val="berschrift1"/>')
        + level(1, "decimal", "%1.%2", '<w:isLgl/><w:pStyle w:val="berschrift2"/>')
        + level(2, "lowerLetter", "(%3)")
        + '</w:abstractNum><w:abstractNum w:abstractNumId="1">'
        + level(0, "bullet", "·")
        + "</w:abstractNum>"
    )
    again = '<w:lvlOverride w:ilvl="2"><w:startOverride w:val="4"/></w:lvlOverride>'
    for key, kind, change in ((5, 0, ""), (6, 0, again), (7, 1, "")):
        kinds += f'<w:num w:numId="{key}"><w:abstractNumId w:val="{kind}"/>{change}</w:num>'

    def styled(style: str, text: str) -> str:
        return paragraph(run(text), f'<w:pStyle w:val="{style}"/>')

    def item(key: int, at: int, text: str) -> str:
        numbered = f'<w:numPr><w:ilvl w:val="{at}"/><w:numId w:val="{key}"/></w:numPr>'
        return paragraph(run(text), numbered)

    body = styled("berschrift1", "Term") + styled("berschrift2", "Start")
    body += item(5, 2, "x") + item(5, 2, "y") + item(6, 2, "z") + item(6, 2, "zz")
    body += styled("berschrift1", "Price") + styled("berschrift2", "Sum") + item(5, 2, "w")
    body += item(7, 0, "dot") + item(0, 0, "none")
    parts = {
        "styles": words.part("styles", styles),
        "numbering": words.part("numbering", kinds),
    }
    parsed = read(words.docx(body, parts))
    assert parsed.title == "Term"
    assert [(block.text, block.section) for block in parsed.blocks] == [
        ("Article I Term", "Article I Term"),
        ("1.1 Start", "Article I Term > 1.1 Start"),
        ("(a) x\n(b) y\n(d) z\n(e) zz", "Article I Term > 1.1 Start"),
        ("Article II Price", "Article II Price"),
        ("2.1 Sum", "Article II Price > 2.1 Sum"),
        ("(a) w\n- dot", "Article II Price > 2.1 Sum"),
        ("none", "Article II Price > 2.1 Sum"),
    ]


@pytest.mark.parametrize(
    ("count", "format", "written"),
    [
        (4, "upperRoman", "IV"),
        (1994, "lowerRoman", "mcmxciv"),
        (26, "lowerLetter", "z"),
        (28, "upperLetter", "BB"),
        (7, "decimalZero", "07"),
        (22, "ordinal", "22nd"),
        (12, "ordinal", "12th"),
        (3, "japaneseCounting", "3"),
        (3, "none", ""),
    ],
)
def test_formats_of_numbers(count: int, format: str, written: str) -> None:
    assert in_format(count, format) == written


@pytest.mark.parametrize("name", ["heading 1", "Titre 1", "Заголовок 1", "見出し 1"])
@pytest.mark.parametrize("property", ["", "Word Document", "Document1", "report_v2.docx"])
def test_a_title_that_names_nothing_is_none(name: str, property: str) -> None:
    style = f'<w:style w:type="paragraph" w:styleId="s1"><w:name w:val="{name}"/></w:style>'
    style += '<w:style w:type="paragraph" w:styleId="s2"><w:basedOn w:val="s1"/></w:style>'
    parts = {"styles": words.part("styles", style)}
    body = paragraph(run("Words.")) + paragraph(run("The rules"), '<w:pStyle w:val="s2"/>')
    assert read(words.docx(body, parts, title=property)).title == "The rules"
    assert read(words.docx(paragraph(run("Words.")), parts, title=property)).title is None
    assert read(words.docx(body, parts, title="Rules of 2024")).title == "Rules of 2024"


def test_a_paragraph_with_a_level_of_its_own_is_a_heading() -> None:
    body = paragraph(run("Scope"), '<w:outlineLvl w:val="0"/>') + paragraph(run("All of it."))
    parsed = read(words.docx(body))
    assert (parsed.title, parsed.blocks[1].section) == ("Scope", "Scope")


def test_strict_documents_are_read() -> None:
    body = paragraph(run("Strict ") + f"<w:ins>{run('words')}</w:ins>")
    assert [b.text for b in read(words.docx(body, word=words.STRICT)).blocks] == ["Strict words"]


def test_an_expanding_entity_fails_or_stays_out() -> None:
    bomb = "".join(f'<!ENTITY e{i} "{f"&e{i - 1};" * 10 if i else "x" * 99}">' for i in range(9))
    for text in ("&e8;", '<w:tab w:val="&e8;"/>'):
        data = words.docx(paragraph(f"<w:r><w:t>safe{text}</w:t></w:r>"))
        stream = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(stream, "w") as new:
            for name in old.namelist():
                content = old.read(name).decode()
                if name == "word/document.xml":
                    content = f"<!DOCTYPE d [{bomb}]>{content}"
                new.writestr(name, content)
        try:
            assert [block.text for block in read(stream.getvalue()).blocks] == ["safe"]
        except KbprocError as error:
            assert error.type == "operation.failed"


def test_many_deleted_marks_and_deep_nesting_take_no_long_time() -> None:
    mark = "<w:rPr><w:del/></w:rPr>"
    body = paragraph(run("word "), mark) * 20_000 + paragraph(run("end"))
    [text] = texts(body)
    assert text.count("word") == 20_000
    deep = "<w:sdt><w:sdtContent>" * 110 + run("deep") + "</w:sdtContent></w:sdt>" * 110
    assert texts(paragraph(deep)) == ["deep"]
    assert refused(words.docx("<w:ins>" * 5_000 + "</w:ins>" * 5_000)).type == "operation.failed"


def test_a_field_that_ends_in_a_deletion_hides_nothing() -> None:
    deleted = f'<w:del w:id="1">{field("separate")}{field("end")}</w:del>'
    row = f'<w:tr><w:trPr><w:del w:id="2"/></w:trPr><w:tc><w:p>{field("end")}</w:p></w:tc></w:tr>'
    for end in (f"{deleted}</w:p>", f"</w:p><w:tbl>{row}</w:tbl>"):
        body = f"<w:p>{run('a')}{field('begin')}{run('b')}{end}{paragraph(run('rest'))}"
        assert " ".join(texts(body)).endswith("rest")


def test_equations_and_runs_beside_paragraphs_are_read() -> None:
    formula = "<m:oMathPara><m:oMath><m:r><m:t>E=mc2</m:t></m:r></m:oMath></m:oMathPara>"
    assert texts(formula + run("A stray run.")) == ["E=mc2", "A stray run."]


@pytest.mark.parametrize(
    "symbol", ["char='-5'", "char='F00000' w:font='Symbol'", "char='D800' w:font='Symbol'"]
)
def test_symbols_without_a_place_are_nothing(symbol: str) -> None:
    assert texts(paragraph(f"{run('a')}<w:r><w:sym w:{symbol}/></w:r>{run('b')}")) == ["ab"]


def test_a_choice_of_thousands_of_digits_is_none() -> None:
    choice = (
        f'<w:ffData><w:ddList><w:result w:val="{"9" * 5000}"/><w:listEntry w:val="x"/></w:ddList>'
        "</w:ffData>"
    )
    begin = f'<w:r><w:fldChar w:fldCharType="begin">{choice}</w:fldChar></w:r>'
    body = paragraph(f"{run('a')}{begin}{field('separate')}{field('end')}{run('b')}")
    assert texts(body) == ["ab"]


def test_levels_beyond_the_ninth_are_passed_over() -> None:
    numbering = words.part(
        "numbering",
        f'<w:abstractNum w:abstractNumId="0">{level(0, "decimal", "%1.")}</w:abstractNum>'
        '<w:num w:numId="1"><w:abstractNumId w:val="0"/><w:lvlOverride w:ilvl="9">'
        '<w:lvl w:ilvl="9"/></w:lvlOverride></w:num>',
    )
    properties = '<w:numPr><w:ilvl w:val="0"/><w:numId w:val="1"/></w:numPr>'
    assert texts(paragraph(run("one"), properties), {"numbering": numbering}) == ["1. one"]


def test_an_archive_of_a_later_version_is_refused_in_words() -> None:
    data = bytearray(words.docx(paragraph(run("a"))))
    at = data.rindex(b"PK\x01\x02")
    data[at + 6 : at + 8] = (99).to_bytes(2, "little")
    assert "is not a whole DOCX archive" in refused(bytes(data)).message
