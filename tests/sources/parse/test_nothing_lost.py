"""No parser drops a text that stands in a document without counting it.

Each construct of a format holds a word of its own: the word is in the text, or the parser has
counted something that it left out. Parts that no reader ever sees are listed here, by name.
"""

from __future__ import annotations

import itertools

from kbproc.engine.sources.parse.blocks import Parsed
from kbproc.engine.sources.parse.formats import parse
from tests.kit.words import docx, run

# https://html.spec.whatwg.org/multipage/indices.html, elements that may hold text.
_NAMES = """
a abbr address article aside audio b bdi bdo blockquote body button canvas caption center cite code
data datalist dd del details dfn dialog div dl dt em fieldset figcaption figure footer form h1 h2 h3
h4 h5 h6 header hgroup i iframe ins kbd label legend li main map mark math menu meter nav noscript
object ol optgroup option output p pre progress q rp rt ruby s samp search section select slot small
span strong sub summary sup svg table tbody td template textarea tfoot th thead time tr u ul var
video custom-element marquee font tt big strike
"""
ELEMENTS = _NAMES.split()
# Browsers show none of these: a ruby's fallback, and text in a list of choices that is no choice.
NEVER_SHOWN = {"rp", "select", "datalist"}


def lost(parsed: Parsed, *words: str, is_never_shown: bool = False) -> list[str]:
    """Returns which of the words are missing, and Bollard where nothing counts it either."""
    text = "\n".join(block.text for block in parsed.blocks)
    missing = [word for word in words if word not in text]
    if "Bollard" not in text and not parsed.unread and not is_never_shown:
        missing.append("Bollard")
    return missing


def test_no_element_of_html_is_dropped_without_a_count() -> None:
    wrong = {}
    arounds = ("<p>Before.</p>{}<p>After.</p>", "<p>Before {} after.</p>")
    for tag, around in itertools.product(ELEMENTS, arounds):
        page = around.format(f"<{tag}>Bollard</{tag}>")
        parsed = parse(page.encode(), "html", "a.html")
        if missing := lost(parsed, "Before", "fter", is_never_shown=tag in NEVER_SHOWN):
            wrong[page] = missing
    assert wrong == {}


def test_no_element_in_markdown_is_dropped_without_a_count() -> None:
    wrong = {}
    for tag, around in itertools.product(ELEMENTS, ("Before.\n\n{}\n", "Before {} here.\n")):
        page = around.format(f"<{tag}>Bollard</{tag}>")
        parsed = parse(page.encode(), "markdown", "a.md")
        if missing := lost(parsed, "Before", is_never_shown=tag in NEVER_SHOWN):
            wrong[page] = missing
    assert wrong == {}


WRAPPERS = {
    "insertion": "<w:ins w:id='1'>{}</w:ins>",
    "move": "<w:moveTo w:id='1'>{}</w:moveTo>",
    "control": "<w:sdt><w:sdtContent>{}</w:sdtContent></w:sdt>",
    "smart tag": "<w:smartTag w:element='x'>{}</w:smartTag>",
    "custom XML": "<w:customXml w:element='x'>{}</w:customXml>",
    "simple field": "<w:fldSimple w:instr='REF x'>{}</w:fldSimple>",
    "link": "<w:hyperlink w:anchor='x'>{}</w:hyperlink>",
    "direction": "<w:bdo w:val='rtl'>{}</w:bdo>",
    "element of a later version": "<w:later>{}</w:later>",
    "hidden run": "<w:r><w:rPr><w:vanish/></w:rPr><w:t>Bollard</w:t></w:r>",
}


def test_no_wrapper_of_a_run_drops_it_without_a_count() -> None:
    wrong = {}
    for wrapper, outer in itertools.product(WRAPPERS, ["{}", *list(WRAPPERS.values())[:3]]):
        inner = WRAPPERS[wrapper].replace("{}", run("Bollard"))
        body = f"<w:p>{run('Before')}{outer.replace('{}', inner)}{run('After')}</w:p>"
        if missing := lost(parse(docx(body), "docx", "a.docx"), "Before", "After"):
            wrong[wrapper, outer] = missing
    assert wrong == {}


BLOCK_WRAPPERS = ["control", "custom XML", "insertion", "move", "element of a later version"]


def test_no_wrapper_of_a_paragraph_drops_it_without_a_count() -> None:
    wrong = {}
    before, after = (f"<w:p>{run(word)}</w:p>" for word in ("Before", "After"))
    outers = ("{}", WRAPPERS["control"], WRAPPERS["custom XML"])
    for wrapper, outer in itertools.product(BLOCK_WRAPPERS, outers):
        inner = WRAPPERS[wrapper].replace("{}", f"<w:p>{run('Bollard')}</w:p>")
        document = docx(before + outer.replace("{}", inner) + after)
        if missing := lost(parse(document, "docx", "a.docx"), "Before", "After"):
            wrong[wrapper, outer] = missing
    assert wrong == {}
