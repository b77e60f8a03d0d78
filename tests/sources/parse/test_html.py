"""HTML: reading order, sections, what is dropped, charsets."""

from __future__ import annotations

import pytest

from kbproc.sources.parse.blocks import Block, Parsed
from kbproc.sources.parse.formats import parse


def read(html: str | bytes) -> Parsed:
    data = html if isinstance(html, bytes) else html.encode()
    return parse(data, "html", "a.html")


def test_a_page() -> None:
    parsed = read(
        "<!doctype html><title> The &lt;title&gt; </title><style>x{}</style><nav>menu</nav>"
        "<h1>Guide</h1><p>Some <b>bold</b>\n words<br>and a line.</p><script>evil()</script>"
        "<h2>Install <a href=#x>¶</a></h2><ul><li>one<li>two <ul><li>deep</ul></ul>"
        "<pre>a  =  1\n\n  b</pre><p hidden>secret</p><footer>imprint</footer>"
    )
    assert parsed.title == "The <title>"
    assert parsed.blocks == [
        Block(text="Guide", section="Guide"),
        Block(text="Some bold words\nand a line.", section="Guide"),
        Block(text="Install", section="Guide > Install"),
        Block(text="- one\n- two", section="Guide > Install"),
        Block(text="- deep", section="Guide > Install"),
        Block(text="a  =  1\n\n  b", section="Guide > Install", kind="code"),
    ]


def test_a_table_is_read_by_rows() -> None:
    parsed = read("<table><caption>C</caption><tr><th>a<th>b<tr><td>1<td>2 <i>x</i></table>")
    assert parsed.blocks == [Block(text="C\na | b\n1 | 2 x", kind="table")]


def test_a_table_for_layout_is_read_as_text() -> None:
    parsed = read("<table><tr><td><h1>T</h1><p>a</p><td><p>b</p></table>")
    assert [block.text for block in parsed.blocks] == ["T", "a", "b"]


def test_main_is_all_there_is_where_it_holds_enough() -> None:
    long = "word " * 60
    assert [b.text for b in read(f"<p>around</p><main><p>{long}</main>").blocks] == [long.strip()]
    assert len(read("<p>around</p><main><p>short</main>").blocks) == 2


def test_a_page_of_nothing_but_furniture_is_still_read() -> None:
    assert [block.text for block in read("<nav><a>only</a></nav>").blocks] == ["only"]


def test_without_a_title_the_first_heading_is_it() -> None:
    assert read("<h2>First</h2><h1>Second</h1>").title == "First"


@pytest.mark.parametrize("charset", ["windows-1251", "koi8-r", "utf-8"])
def test_the_declared_charset(charset: str) -> None:
    data = f'<meta charset="{charset}"><p>Привет'.encode(charset)
    assert [block.text for block in read(data).blocks] == ["Привет"]


def test_a_wrong_or_unknown_charset_is_not_believed() -> None:
    for label in ("utf-16", "no-such", "ascii"):
        data = f'<meta charset="{label}"><p>Grüße, 世界'.encode()
        assert "Grüße, 世界" in read(data).blocks[0].text or label == "ascii"
    assert read(b"\xef\xbb\xbf<meta charset=koi8-r><p>\xc3\xbc").blocks[0].text == "ü"


def test_nesting_deeper_than_the_stack_is_no_danger() -> None:
    assert [block.text for block in read("<div>" * 10_000 + "deep").blocks] == ["deep"]
