"""Separates what a mail's sender wrote from the quoted mails and the signature around it.

A quoted mail is a document of its own or a message of the same mailbox. In the reply it would be
found a second time, under the name of the wrong sender. A mail without words of its own, such as
one that only forwards another, keeps everything.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from kbproc.engine.sources.parse.nesting import tree_of

if TYPE_CHECKING:
    from selectolax.lexbor import LexborHTMLParser, LexborNode

_SIGNATURE = "-- "
_QUOTE = re.compile(r"\s{0,3}>")
# The line above a quote, in the languages of the common programs: "On Monday, Ann wrote:".
_ATTRIBUTION = re.compile(
    r".*(?:\b(?:wrote|schrieb|écrit|escribió|escreveu|scritto|schreef|skrev|napisał\(?a?\)?)\b"
    r"|写道|のメール|написал\(?а?\)?)[^\n]{0,200}[:：]\s*$",
    re.I,
)
_OPENING = re.compile(r"\s*(?:On|Am|Le|El|Em|Il|Op|Den|W dniu|В|Il giorno)\s", re.I)
_ORIGINAL = re.compile(
    r"\s*-{2,}\s*(?:original message|ursprüngliche nachricht|message d.origine|mensaje original"
    r"|messaggio originale|oorspronkelijk bericht|originalnachricht|mensagem original)\s*-{2,}\s*$",
    re.I,
)
_FORWARDED = re.compile(
    r"\W*(?:begin )?(?:forwarded message|weitergeleitete nachricht|message transféré"
    r"|mensaje reenviado|messaggio inoltrato|doorgestuurd bericht|mensagem encaminhada)",
    re.I,
)
_QUOTING = (
    "blockquote[type=cite], .gmail_quote, .moz-cite-prefix, .yahoo_quoted, .protonmail_quote, "
    "#divRplyFwdMsg, #divRplyFwdMsg ~ *, #appendonsend, #appendonsend ~ *"
)
_SIGNING = ".gmail_signature, .moz-signature, #Signature, .protonmail_signature_block"
_LONGEST_LINE = 1_000  # a longer line is no line above a quote


class OwnWords(NamedTuple):
    """The text or page without quotes and signature, and the counts of what was taken out."""

    text: str
    unread: dict[str, int]


def own_words(text: str) -> OwnWords:
    """Returns the sender's own words of a plain text."""
    lines = text.replace("\r\n", "\n").split("\n")
    lines, signatures = _without_signature(lines)
    own: list[str] = []
    quotes = 0
    in_quote = False
    for i, line in enumerate(lines):
        if _FORWARDED.match(line):
            own += lines[i:]
            break
        if _ORIGINAL.match(line):
            quotes += 1
            break
        is_quote = bool(_QUOTE.match(line))
        if is_quote and not in_quote:
            quotes += 1
            _drop_attribution(own)
        if not is_quote and (line.strip() or not in_quote):
            own.append(line)
        in_quote = is_quote or (in_quote and not line.strip())
    if not any(line.strip() for line in own):
        return OwnWords(text, {})
    return OwnWords("\n".join(own), {"quoted_passages": quotes, "signatures": signatures})


def _without_signature(lines: list[str]) -> tuple[list[str], int]:
    """Cuts the signature, which ends the mail or the words above a quote."""
    start = next((i for i, line in enumerate(lines) if line == _SIGNATURE), None)
    if start is None or not any(line.strip() for line in lines[:start]):
        return lines, 0
    end = next(
        (
            i
            for i in range(start + 1, len(lines))
            if _QUOTE.match(lines[i]) or _ORIGINAL.match(lines[i]) or _FORWARDED.match(lines[i])
        ),
        len(lines),
    )
    return [*lines[:start], *lines[end:]], 1


def _drop_attribution(own: list[str]) -> None:
    """Removes the line above a quote, which may be broken in three, and blank lines around it."""
    while own and not own[-1].strip():
        own.pop()
    for count in (3, 2, 1):
        line = " ".join(own[-count:])
        is_whole = count == 1 or _OPENING.match(own[-count] if len(own) >= count else "")
        if is_whole and own and len(line) <= _LONGEST_LINE and _ATTRIBUTION.match(line):
            del own[-count:]
            return


def own_page(page: str) -> OwnWords:
    """Returns the sender's own part of a page, by the names that mail programs give the others."""
    tree = tree_of(page)
    quotes = _removed(tree, _QUOTING)
    signatures = _removed(tree, _SIGNING)
    body = tree.body
    if not quotes + signatures or body is None or not body.text().strip():
        return OwnWords(page, {})
    unread = {"quoted_passages": int(quotes > 0), "signatures": int(signatures > 0)}
    return OwnWords(tree.html or page, unread)


def _removed(tree: LexborHTMLParser, selectors: str) -> int:
    nodes: list[LexborNode] = [
        node for node in tree.css(selectors) if not _FORWARDED.match(node.text().lstrip()[:100])
    ]
    count = sum(bool(node.text().strip()) for node in nodes)
    for node in nodes:
        node.remove(recursive=True)
    return count
