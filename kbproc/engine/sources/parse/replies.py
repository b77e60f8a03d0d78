"""Separates what a mail's sender wrote from the quoted mails and the signature around it.

A mail that an answer quotes is a document of its own or a message of the same mailbox. In the
answer it would be found a second time, under the name of the wrong sender. A mail that forwards
another keeps it, and so does a mail without words of its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from kbproc.engine.sources.parse.nesting import tree_of

if TYPE_CHECKING:
    from selectolax.lexbor import LexborHTMLParser, LexborNode

_SIGNATURE = "-- "
_QUOTE = re.compile(r"\s{0,3}>")
# The line above a quote, in the languages of the common programs: "On Monday, Ann wrote:".
_WROTE_WORDS = (
    r"\b(?:wrote|schrieb|écrit|escribió|escreveu|scritto|schreef|skrev|napisał\(?a?\)?)\b"
    r"|写道|のメール|написал\(?а?\)?"
)
_ATTRIBUTION = re.compile(rf".*(?:{_WROTE_WORDS})[^\n]{{0,200}}[:：]\s*$", re.I)
_OPENING = re.compile(r"\s*(?:On|Am|Le|El|Em|Il|Op|Den|W dniu|В|Il giorno)\s", re.I)
_ORIGINAL = re.compile(
    r"\s*-{2,}\s*(?:original message|ursprüngliche nachricht|message d.origine|mensaje original"
    r"|messaggio originale|oorspronkelijk bericht|originalnachricht|mensagem original)\s*-{2,}\s*$",
    re.I,
)
# The same line in any language, if the fields of a mail follow it.
_DASHED = re.compile(r"\s*-{3,}\s*[^\W\d_][^-\n]{2,60}-{3,}\s*$")
_FIELD = re.compile(r"\s*[^\W\d_][\w .-]{0,20}\s?[:：]\s?\S")
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
# Prefixes of subjects: those of answers, and those of mails that forward another.
_ANSWERS = re.compile(
    r"\s*(?:re|aw|antw|sv|odp|rép|res|rif|ynt|atb|vá|回复|答复|回覆|返信|отв|ответ)\s*+(?:\[\d+\]\s*+)?[:：]",
    re.I,
)
_FORWARDS = re.compile(
    r"\s*(?:fwd?|wg|tr|rv|enc|i|vb|vl|pd|doorst|ilt|továbbítás|转发|轉寄|転送|пер?есл)\s*[:：]",
    re.I,
)
_WROTE = re.compile(rf"(?:{_WROTE_WORDS})[^\n]{{0,200}}?[:：]", re.I)
_LONGEST_LINE = 1_000  # a longer line is no line above a quote


class OwnWords(NamedTuple):
    """The text or page without quotes and signature, and the counts of what was taken out."""

    text: str
    unread: dict[str, int]


def answers(fields: Mapping[str, str]) -> bool:
    """Returns True for a mail that answers another, by its header `fields` in lower case."""
    subject = fields.get("subject", "")
    if _FORWARDS.match(subject):
        return False
    return bool(_ANSWERS.match(subject)) or "in-reply-to" in fields


def own_words(text: str, *, is_answer: bool) -> OwnWords:
    """Returns the sender's own words of a plain text; in no answer a forwarded mail is among them.

    A quote below a line that says who wrote it makes the mail an answer.
    """
    lines = text.replace("\r\n", "\n").split("\n")
    lines, signatures = _without_signature(lines)
    own: list[str] = []
    quotes = 0
    in_quote = is_left_out = False
    for i, line in enumerate(lines):
        begins_mail = bool(_ORIGINAL.match(line) or (is_answer and _begins_mail(lines, i)))
        if _FORWARDED.match(line) or (begins_mail and not is_answer):
            own += lines[i:]
            break
        if begins_mail:
            quotes += 1
            break
        is_quote = bool(_QUOTE.match(line))
        if is_quote and not in_quote:
            is_left_out = _drop_attribution(own) or is_answer
            quotes += is_left_out
        if (not is_quote or not is_left_out) and (line.strip() or not in_quote):
            own.append(line)
        in_quote = is_quote or (in_quote and not line.strip())
    if not any(line.strip() for line in own):
        return OwnWords(text, {})
    return OwnWords("\n".join(own), {"quoted_passages": quotes, "signatures": signatures})


def _begins_mail(lines: list[str], at: int) -> bool:
    """Returns True for a line of dashes and words above the fields of a mail."""
    if len(lines[at]) > _LONGEST_LINE or not _DASHED.match(lines[at]):
        return False
    below = [line for line in lines[at + 1 : at + 4] if line.strip()]
    return len(below) >= 2 and all(_FIELD.match(line[:_LONGEST_LINE]) for line in below[:2])


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


def _drop_attribution(own: list[str]) -> bool:
    """Removes the line above a quote, which may be broken in three, and blank lines around it.

    Returns False if there is none.
    """
    end = len(own)
    while end and not own[end - 1].strip():
        end -= 1
    for count in (3, 2, 1):
        lines = own[max(0, end - count) : end]
        line = " ".join(lines)
        is_whole = count == 1 or (len(lines) == count and _OPENING.match(lines[0]))
        if is_whole and lines and len(line) <= _LONGEST_LINE and _ATTRIBUTION.match(line):
            del own[end - count :]
            return True
    return False


def own_page(page: str, *, is_answer: bool) -> OwnWords:
    """Returns the sender's own part of a page, by the names that mail programs give the others."""
    tree = tree_of(page)
    is_answer = is_answer or any(_WROTE.search(n.text()[:300]) for n in tree.css(_QUOTING))
    quotes = _removed(tree, _QUOTING) if is_answer else 0
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
