"""Decodes UTF-8 that has some bad bytes, and counts them.

Such files exist: a file is cut in the middle of a letter, one line of it comes from an older
program, a crash leaves noise in a log. The rest is still UTF-8, and another encoding would garble
it.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import NamedTuple

# The codec "surrogateescape" reads a bad byte 80 as U+DC80, and so on.
_RUN = re.compile("[\udc80-\udcff]+")
_HIGH_BYTES = bytes(range(128, 256))
# A pair of surrogates, each written as three bytes, as CESU-8 writes an emoji.
_PAIR = re.compile("\udced[\udca0-\udcaf][\udc80-\udcbf]\udced[\udcb0-\udcbf][\udc80-\udcbf]")
# Characters that are written with too many bytes, and halves of surrogate pairs.
_SHAPED = re.compile(
    "[\udcc0\udcc1][\udc80-\udcbf]|(?:\udce0[\udc80-\udc9f]|\udced[\udca0-\udcbf])[\udc80-\udcbf]"
)
# The first bytes of a character at the very end, where the file was cut.
_CUT = re.compile(
    "(?:[\udcc2-\udcdf]|[\udce0-\udcef][\udc80-\udcbf]?|[\udcf0-\udcf4][\udc80-\udcbf]{0,2})\\Z"
)
_BEYOND_ASCII = re.compile("[\x80-\ud7ff\ue000-\U0010ffff]")
_TWO_BYTES = re.compile("[\x80-\u07ff]")
# ÿ is left out, because it is in hardly any word, and FF in much noise.
_LETTERS = re.compile("[A-Za-zÀ-ÖØ-öø-þŠšŒœŽžŸ]+")
# Stands for the character before a text's first and behind its last one.
_NOTHING = " "
# So few stretches of bad bytes do not suffice to tell their encoding by statistics.
_FEW = 8
_CJK = ("cp932", "gb18030", "big5", "euc_jp", "cp949")


class Mended(NamedTuple):
    """A decoded text; `bad` counts the bytes that were not UTF-8, also if they became letters."""

    text: str
    bad: int


def mend(data: bytes) -> Mended:
    """Decodes `data` as UTF-8, however many of its bytes are bad.

    A bad byte becomes its letter in Windows-1252 if that fits its neighbours, else U+FFFD.
    """
    escaped, end = _escaped(data)
    body = _PAIR.sub(_joined, escaped[:end])
    lines = (_read_line(line) if _RUN.search(line) else line for line in body.split("\n"))
    is_cut = end < len(escaped)
    return Mended("\n".join(lines) + ("\ufffd" if is_cut else ""), _bad(escaped))


def mended_if_likely(data: bytes) -> Mended | None:
    """Decodes UTF-8 with some bad bytes; returns None if another encoding is more likely."""
    escaped, end = _escaped(data)
    bad = _bad(escaped)
    good = len(escaped) - bad - len(data.translate(None, _HIGH_BYTES))
    against = bad - (len(escaped) - end) - sum(map(len, _SHAPED.findall(escaped)))
    # Text in a legacy encoding has some valid sequences by accident: at most two for five invalid
    # bytes.
    likely = good and (good >= against or _is_mixture(escaped))
    return mend(data) if likely or _is_noise(escaped, end) else None


def _escaped(data: bytes) -> tuple[str, int]:
    """Returns the text with its bad bytes escaped, and where a cut letter begins, else its end."""
    escaped = data.decode("utf-8", "surrogateescape")
    cut = _CUT.search(escaped, max(0, len(escaped) - 3))
    return escaped, cut.start() if cut else len(escaped)


def _bad(escaped: str) -> int:
    return sum(map(len, _RUN.findall(escaped)))


def is_western(data: bytes) -> bool:
    """Returns True for ASCII text with a few Western letters and signs.

    Statistics guess badly for such a text, because they need more letters.
    """
    escaped = data.decode("utf-8", "surrogateescape")
    if _BEYOND_ASCII.search(escaped):
        return False
    runs = list(islice(_RUN.finditer(escaped), _FEW + 1))
    return len(runs) <= _FEW and all(_fits(escaped, run) or _is_sign(run) for run in runs)


def _is_mixture(escaped: str) -> bool:
    """Returns True for a text that is UTF-8 in some lines and Windows-1252 in others.

    In Windows-1252, a capital and a sign may look like a letter of two bytes: "É»" like "ɻ".
    """
    letters = "".join(_TWO_BYTES.findall(escaped))
    if letters.encode("cp1252", "ignore").decode("cp1252") != letters:
        return False
    return all(_fits(escaped, run) or _is_sign(run) for run in _RUN.finditer(escaped))


def _is_sign(run: re.Match[str]) -> bool:
    return len(run[0]) == 1 and not _western(run[0]).isalpha() and _western(run[0]) != "\ufffd"


def _joined(pair: re.Match[str]) -> str:
    halves = _bytes(pair[0]).decode("utf-8", "surrogatepass")
    return halves.encode("utf-16-le", "surrogatepass").decode("utf-16-le")


def _bytes(run: str) -> bytes:
    return run.encode("utf-8", "surrogateescape")


def _read_line(line: str) -> str:
    """Decodes a line whose bad bytes are U+DC80 to U+DCFF as a person would read it."""
    runs = list(_RUN.finditer(line))
    fitting = [_fits(line, run) for run in runs]
    # Quotation marks and signs in a line from an older program are Windows-1252, too.
    is_western = (
        any(fitting)
        and not _BEYOND_ASCII.search(line)
        and all(len(run[0]) < 3 and "\ufffd" not in _western(run[0]) for run in runs)
    )
    parts, end = [], 0
    for run, fits in zip(runs, fitting, strict=True):
        is_read = fits or is_western
        text = _western(run[0]) if is_read else _bytes(run[0]).decode("utf-8", "replace")
        parts += [line[end : run.start()], text]
        end = run.end()
    return "".join([*parts, line[end:]])


def _western(run: str) -> str:
    return _bytes(run).decode("cp1252", "replace")


def _fits(line: str, run: re.Match[str]) -> bool:
    """Returns True for bad bytes that are one or two Western letters within a Western word."""
    letters = _western(run[0])
    if len(letters) > 2 or not _LETTERS.fullmatch(letters):
        return False
    before = line[run.start() - 1] if run.start() else _NOTHING
    after = line[run.end()] if run.end() < len(line) else _NOTHING
    in_word = [bool(_LETTERS.match(char)) for char in (before, after)]
    if run[0][0] < "\udca0":  # š, œ and the like, whose bytes also stand within UTF-8 characters
        return all(in_word) and before.islower() == after.islower() == letters.islower()
    if any(in_word):
        return letters.islower() or not before.islower()
    return len(letters) == 1 and letters.islower() and before.isspace() and after.isspace()


def _is_noise(escaped: str, end: int) -> bool:
    """Returns True if the bad bytes are few, and no letters in any encoding or one cut letter.

    `end` is where the cut letter begins, else the end of the text.
    """
    runs = list(_RUN.finditer(escaped))
    if (len(runs) - 1) * 20 > len(escaped):
        return False
    return not any(_is_explained(escaped, run, run.start() == end) for run in runs)


def _is_explained(text: str, run: re.Match[str], is_cut: bool) -> bool:
    if is_cut:
        return len(run[0]) == 1 and _fits(text, run)
    raw = _bytes(run[0])
    if len(raw) == 1 or all(byte >= 0xC0 and byte != 0xFF for byte in raw) or len(raw) > 4:
        return True
    following = text[run.end() : run.end() + 1]
    spelled = (raw, raw + following.encode()) if following.isascii() else (raw,)
    return any(_is_word(word, encoding) for word in spelled for encoding in _CJK)


def _is_word(raw: bytes, encoding: str) -> bool:
    try:
        return raw.decode(encoding).isalpha()
    except UnicodeDecodeError:
        return False
