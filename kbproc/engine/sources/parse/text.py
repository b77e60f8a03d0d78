"""Parses plain text: detects its encoding, and cuts it into paragraphs, tables or stanzas.

Text that was written for a terminal is read as it stays on the screen. A window's title counts as
unread; colours and movements of the cursor do not, because they hold no words.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from typing import NamedTuple

from kbproc.base.errors import KbprocError
from kbproc.base.paths import suffix_of
from kbproc.engine.sources.parse.blocks import Block, Kind, Parsed, Scalar, clean_text
from kbproc.engine.sources.parse.damage import is_western, mend, mended_if_likely
from kbproc.engine.sources.parse.rows import TextRange, in_rows
from kbproc.engine.sources.parse.rows import blocks as table_blocks
from kbproc.engine.sources.parse.terminal import overstruck, without_codes

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_GAP = re.compile(r"\n[ \t]*\n+")
# A page or a paragraph begins behind each of these, even within a line.
_PAGE = re.compile("[\x0c\u2029]")
_BY_LINE: dict[str, Kind] = {
    ".csv": "table",
    ".tsv": "table",
    ".tab": "table",
    ".log": "code",
}
# Bytes that text doesn't hold: C0 except tab, breaks, backspace, and the shifts
# and escape with which ISO 2022 switches alphabets.
_BINARY = re.compile(rb"[\x01-\x07\x10-\x1a\x1c-\x1f\x7f]")
_ZEROS = re.compile(rb"\0+")
_HIGH = re.compile(rb"[\x80-\xff]")
SAMPLE = 1 << 16  # bytes of a file that detection examines if it is not Unicode
_ESCAPES = (
    (b"\x1b$)C", "iso2022_kr"),
    (b"\x1b$B", "iso2022_jp_2"),
    (b"\x1b$@", "iso2022_jp_2"),
    (b"\x1b(J", "iso2022_jp_2"),
)
# Inside a word these are Central European letters in ISO 8859-2, signs such as
# ± ¶ ¼ on Windows, which alone uses the bytes 80 to 9F.
_LATIN2 = re.compile(
    rb"(?<=[A-Za-z\xc0-\xff])[\xb1\xb3\xb5\xb6\xb9-\xbc\xbe\xbf](?=[A-Za-z\xc0-\xff])"
)
# The byte of Hungarian ő is õ in Western encodings; in Portuguese, an e follows that.
_HUNGARIAN = re.compile(rb"\xf5(?!e)")
_MULTIBYTE = ("euc_jp", "cp932", "cp949", "big5", "johab", "gb18030")
# Excluded, because no files are written in them today and statistics take short texts for them.
_RARE = [
    *("cp037", "cp273", "cp424", "cp500", "cp875", "cp1026", "cp1140", "hp_roman8", "ptcp154"),
    *("cp720", "cp775", "cp857", "cp858", "cp860", "cp861", "cp863", "cp864", "cp865", "cp869"),
    *(
        "iso8859_3",
        "iso8859_4",
        "iso8859_10",
        "iso8859_14",
        "iso8859_16",
        "mac_iceland",
        "mac_turkish",
        "kz1048",
        "cp1125",
    ),
]


def parse(data: bytes, name: str) -> Parsed:
    """Returns the paragraphs of `data`, which blank lines and form feeds separate.

    Raises `input.unsupported_type` for bytes that are not text.
    """
    return parse_decoded(decode(data, name), name)


def parse_decoded(decoded: Decoded, name: str) -> Parsed:
    """Returns the paragraphs of a text that is decoded; see `parse`."""
    utf8 = decoded.encoding == "utf-8"
    metadata: dict[str, Scalar] = {} if utf8 else {"encoding": decoded.encoding}
    text, codes = without_codes(decoded.text)
    return Parsed(
        blocks=paragraphs(text, name),
        metadata=metadata,
        unread={"replaced_bytes": decoded.replaced, "terminal_codes": codes},
    )


def paragraphs(text: str, name: str) -> list[Block]:
    """Returns a text's paragraphs as blocks; a table file's tables, a log's stanzas."""
    kind = _BY_LINE.get(suffix_of(name), "prose")
    if kind == "table":
        rows = in_rows(clean_text(overstruck(text)))
        return [block for block in table_blocks(rows, _paragraphs(rows)) if block.text.strip()]
    blocks: list[Block] = []
    line = 1
    for page in map(clean_text, _pages(overstruck(text))):
        for lines, start, end in _paragraphs(page):
            part = page[start:end]
            if part and not part.isspace():
                blocks.append(Block(text=part, kind=kind, line=line + lines))
        line += page.count("\n")
    return blocks


def _pages(text: str) -> list[str]:
    if "\x0c" not in text and "\u2029" not in text:
        return [text]
    return _PAGE.split(text)


def _paragraphs(text: str) -> Iterator[TextRange]:
    """Yields the range of each paragraph."""
    lines, start = 0, 0
    body = text.rstrip()
    for gap in _GAP.finditer(body):
        yield lines, start, gap.start()
        lines += body.count("\n", start, gap.end())
        start = gap.end()
    yield lines, start, len(body)


class Decoded(NamedTuple):
    """A decoded text, and Python's name of its encoding.

    `replaced` counts the bytes that are invalid in the encoding, also those of damaged UTF-8 that
    were read as Western letters.
    """

    text: str
    encoding: str
    replaced: int = 0


def decode(data: bytes, name: str) -> Decoded:
    """Decodes bytes by their BOM, as UTF-8, as wide Unicode, or else by statistics.

    A file of UTF-8 with some bad bytes is UTF-8: see damage.py. Raises `input.unsupported_type`
    for bytes that are not text.
    """
    for bom, encoding in _BOMS:
        if data.startswith(bom):
            return _decoded(data[len(bom) :], encoding)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return _decode_other(data, name)
    is_shifted = data.isascii() and any(escape in data for escape, _ in _ESCAPES)
    if is_shifted or _nul_laden(data):
        return _decode_other(data, name)
    return Decoded(text, "utf-8")


def _decode_other(data: bytes, name: str) -> Decoded:
    wide = _wide(data)
    if wide:
        return _decoded(data, wide)
    if not looks_like_text(data[:SAMPLE]) or _nul_laden(data):
        raise KbprocError("input.unsupported_type", f"{name} is not text: it holds binary data.")
    damaged = None if data.isascii() else mended_if_likely(data)
    if damaged:
        return Decoded(damaged.text, "utf-8", damaged.bad)
    return _decoded(data, _guess(data))


def _decoded(data: bytes, encoding: str) -> Decoded:
    """Decodes `data` in `encoding`, with U+FFFD for invalid bytes."""
    if encoding in {"ascii", "utf-8"}:
        text, bad = mend(data)
        return Decoded(text, "utf-8", bad)
    text = data.decode(encoding, "replace")
    if "\ufffd" not in text:
        return Decoded(text, encoding)
    if encoding.startswith("utf-"):
        return Decoded(
            text, encoding, len(data) - len(data.decode(encoding, "ignore").encode(encoding))
        )
    return Decoded(text, encoding, text.count("\ufffd"))


def _guess(data: bytes) -> str:
    for escape, encoding in _ESCAPES:
        if escape in data:
            return encoding
    if not _HUNGARIAN.search(data[:SAMPLE]) and is_western(data):
        return "cp1252"
    from charset_normalizer import from_bytes

    sample = _sample(data)
    matches = from_bytes(sample, cp_exclusion=_RARE)
    best = matches.best()
    if best is None:
        encoding = _least_wrong(sample)
    else:
        # If statistics can't tell, Western is chosen, because most such files are Western.
        score = (best.chaos, best.coherence)
        equal = [match.encoding for match in matches if (match.chaos, match.coherence) == score]
        western = "cp1252" in equal and not _HUNGARIAN.search(sample)
        encoding = "cp1252" if western else best.encoding
    if encoding in {"cp1250", "cp1252"} and len(_LATIN2.findall(sample)) > len(sample) // 500:
        return "cp1250" if re.search(rb"[\x80-\x9f]", sample) else "iso8859_2"
    return encoding


def _sample(data: bytes) -> bytes:
    """Returns a stretch of `data` with bytes beyond ASCII, which tell encodings apart."""
    first = _HIGH.search(data)
    if first is None or first.start() < SAMPLE // 2:
        return data[:SAMPLE]
    start = data.rfind(b"\n", first.start() - SAMPLE // 2, first.start()) + 1
    return data[start or first.start() : (start or first.start()) + SAMPLE]


def _least_wrong(sample: bytes) -> str:
    """Returns the encoding in which nearly all of a damaged text is valid, else Western."""
    wrong = {name: sample.decode(name, "replace").count("\ufffd") for name in _MULTIBYTE}
    best = min(wrong, key=lambda name: wrong[name])
    return best if wrong[best] <= len(sample) // 100 else "cp1252"


def looks_like_text(head: bytes) -> bool:
    """Returns True if the first bytes of a file can be text in any encoding."""
    if head.startswith(tuple(bom for bom, _ in _BOMS)) or not head:
        return True
    if _nul_laden(head):
        return _wide(head) is not None
    return len(_BINARY.findall(head)) <= len(head) // 50


def _nul_laden(data: bytes) -> bool:
    """Returns True for so many zero bytes that the data is binary or in a wide encoding.

    Fewer are allowed, because a crash or a full disk leaves zeros in a log: a stray one, or a hole
    with many in a row.
    """
    zeros = data.count(0)
    if zeros * 500 <= len(data):
        return False
    return zeros * 2 > len(data) or len(_ZEROS.findall(data)) * 500 > len(data)


def _wide(data: bytes) -> str | None:
    """Returns UTF-16 or UTF-32 for data without a BOM, by where its zero bytes lie, or None."""
    head = data[: SAMPLE - SAMPLE % 4]
    if len(head) < 4 or b"\0" not in head:
        return None
    zeros = [head[i::4].count(0) * 4 / len(head) for i in range(4)]
    if min(zeros[2:]) > 0.9 and zeros[0] < 0.5:
        wide = "utf-32-le"
    elif min(zeros[:2]) > 0.9 and zeros[3] < 0.5:
        wide = "utf-32-be"
    elif max(zeros[0], zeros[2]) < 0.02 and max(zeros[1], zeros[3]) > 0.05:
        wide = "utf-16-le"
    elif max(zeros[1], zeros[3]) < 0.02 and max(zeros[0], zeros[2]) > 0.05:
        wide = "utf-16-be"
    else:
        return None
    return wide if _readable(head, wide) else None


def _readable(head: bytes, encoding: str) -> bool:
    text = codecs.getincrementaldecoder(encoding)("replace").decode(head)
    odd = sum(not (char.isprintable() or char.isspace()) for char in text[:2000])
    return odd <= len(text[:2000]) // 50
