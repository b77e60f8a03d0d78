"""Plain text: which encoding it is in, and its paragraphs, rows or lines.

Owns: decoding of bytes without a declared encoding. Refuses to know: markup.

Of what was written for a terminal the text is what stays on the screen. Colours and movements of
the cursor hold no words and are not counted as unread; a window's title is.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import NamedTuple

from kbproc.base.errors import KbprocError
from kbproc.sources.parse.blocks import Block, Kind, Parsed, Scalar, clean_text
from kbproc.sources.parse.damage import is_western, mend, mended_if_likely
from kbproc.sources.parse.rows import Part, tables
from kbproc.sources.parse.terminal import overstruck, without_codes

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_GAP = re.compile(r"\n[ \t]*\n\s*?(?=[^\n])")
# A page or a paragraph begins behind it, whatever the line.
_PAGE = re.compile("[\x0c\u2029]")
_BY_LINE: dict[str, Kind] = {".csv": "table", ".tsv": "table", ".log": "code"}
# Bytes that text doesn't hold: C0 but tab, breaks, backspace, and the shifts
# and escape with which ISO 2022 switches alphabets.
_BINARY = re.compile(rb"[\x01-\x07\x10-\x1a\x1c-\x1f\x7f]")
_ZEROS = re.compile(rb"\0+")
_HIGH = re.compile(rb"[\x80-\xff]")
# Detection looks at this much of a file that is not Unicode.
SAMPLE = 1 << 16
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
# ő, which as Western õ would be Portuguese, and there an e follows.
_HUNGARIAN = re.compile(rb"\xf5(?!e)")
_MULTIBYTE = ("euc_jp", "cp932", "cp949", "big5", "johab", "gb18030")
# Never written to files today, but statistics take short texts for them.
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
    """Paragraphs of `data`: what blank lines and form feeds keep apart.

    Raises `input.unsupported_type` for bytes that are not text.
    """
    decoded = decode(data, name)
    utf8 = decoded.encoding == "utf-8"
    metadata: dict[str, Scalar] = {} if utf8 else {"encoding": decoded.encoding}
    text, codes = without_codes(decoded.text)
    return Parsed(
        blocks=paragraphs(text, name),
        metadata=metadata,
        unread={"replaced_bytes": decoded.replaced, "terminal_codes": codes},
    )


def paragraphs(text: str, name: str) -> list[Block]:
    """The blocks of a text; of a table's file, its tables, and of a log, its stanzas."""
    kind = _BY_LINE.get(PurePath(name).suffix.lower(), "prose")
    blocks: list[Block] = []
    line = 1
    for page in map(clean_text, _pages(overstruck(text))):
        parts = _paragraphs(page)
        for lines, start, end in tables(page, parts) if kind == "table" else parts:
            part = page[start:end]
            if part and not part.isspace():
                blocks.append(Block(text=part, kind=kind, line=line + lines))
        line += page.count("\n")
    return blocks


def _pages(text: str) -> list[str]:
    if "\x0c" not in text and "\u2029" not in text:
        return [text]
    return _PAGE.split(text)


def _paragraphs(text: str) -> Iterator[Part]:
    """For each: how many lines stand above it, where it starts and where it ends."""
    lines, start = 0, 0
    body = text.rstrip()
    for gap in _GAP.finditer(body):
        yield lines, start, gap.start()
        lines += body.count("\n", start, gap.end())
        start = gap.end()
    yield lines, start, len(body)


class Decoded(NamedTuple):
    """`encoding`: Python's name of it. `replaced`: bytes that are no valid text in it.

    Those of damaged UTF-8 that were read as Western letters are counted, too.
    """

    text: str
    encoding: str
    replaced: int = 0


def decode(data: bytes, name: str) -> Decoded:
    """Text and the encoding that it was in: BOM, UTF-8, wide Unicode, else by statistics.

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
    """`data` as text in `encoding`, with U+FFFD for what is none."""
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
        # Where statistics cannot tell, Western is what most such files are.
        score = (best.chaos, best.coherence)
        equal = [match.encoding for match in matches if (match.chaos, match.coherence) == score]
        western = "cp1252" in equal and not _HUNGARIAN.search(sample)
        encoding = "cp1252" if western else best.encoding
    if encoding in {"cp1250", "cp1252"} and len(_LATIN2.findall(sample)) > len(sample) // 500:
        return "cp1250" if re.search(rb"[\x80-\x9f]", sample) else "iso8859_2"
    return encoding


def _sample(data: bytes) -> bytes:
    """A stretch of `data` that holds what tells encodings apart: from its start, or later on."""
    first = _HIGH.search(data)
    if first is None or first.start() < SAMPLE // 2:
        return data[:SAMPLE]
    start = data.rfind(b"\n", first.start() - SAMPLE // 2, first.start()) + 1
    return data[start or first.start() : (start or first.start()) + SAMPLE]


def _least_wrong(sample: bytes) -> str:
    """For text with a few broken bytes: what decodes nearly all of it, else Western."""
    wrong = {name: sample.decode(name, "replace").count("\ufffd") for name in _MULTIBYTE}
    best = min(wrong, key=lambda name: wrong[name])
    return best if wrong[best] <= len(sample) // 100 else "cp1252"


def looks_like_text(head: bytes) -> bool:
    """Whether the first bytes of a file can be text in any encoding."""
    if head.startswith(tuple(bom for bom, _ in _BOMS)) or not head:
        return True
    if _nul_laden(head):
        return _wide(head) is not None
    return len(_BINARY.findall(head)) <= len(head) // 50


def _nul_laden(data: bytes) -> bool:
    """More than what a crash leaves in a log: binary, or a wide encoding.

    That is a stray zero, or a hole: many in a row, where the disk had no room or no time.
    """
    zeros = data.count(0)
    if zeros * 500 <= len(data):
        return False
    return zeros * 2 > len(data) or len(_ZEROS.findall(data)) * 500 > len(data)


def _wide(data: bytes) -> str | None:
    """UTF-16 or UTF-32 without a BOM: known by where the zero bytes lie."""
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
