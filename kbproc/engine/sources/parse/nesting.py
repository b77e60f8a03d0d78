"""Makes the tree of a page, in a time that deep nesting can't stretch.

The HTML parser looks through all elements around one of these whenever it opens one.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from selectolax.lexbor import LexborHTMLParser

# Browsers nest some five hundred elements.
_DEEPEST = 1000
_TAG = re.compile(
    r"<(?P<end>/?)(?:address|article|aside|blockquote|center|details|dialog|dir|div|dl|fieldset"
    r"|figcaption|figure|footer|header|hgroup|listing|main|menu|nav|ol|optgroup|pre|search|section"
    r"|summary|ul)(?=[\s/>])",
    re.I,
)
_DEEPER = "too-deep"  # an element with no meaning of its own, which no other looks for


def tree_of(page: str) -> LexborHTMLParser:
    """Returns the tree of a page; in it, elements below too many others are those of a name that
    HTML does not know.
    """
    from selectolax.lexbor import LexborHTMLParser

    return LexborHTMLParser(_with_few_open(page) if page.count("<") > _DEEPEST else page)


def _with_few_open(page: str) -> str:
    depth = 0

    def renamed(tag: re.Match[str]) -> str:
        nonlocal depth
        is_deep = depth > _DEEPEST if tag["end"] else depth >= _DEEPEST
        depth = max(0, depth - 1) if tag["end"] else depth + 1
        return f"<{tag['end']}{_DEEPER}" if is_deep else tag[0]

    return _TAG.sub(renamed, page)
