"""Finds the characters of a text that no reader sees, and takes them out.

An agent reads such characters, and a person who looks at the same text does not: they can hide an
instruction, reorder a line, or make two names look alike.

Which they are is a rule of Unicode: the property Default_Ignorable_Code_Point, controls, the
separators of lines and paragraphs, the marks of interlinear notes, codes that are no characters,
and signs whose glyph is blank. Three stay where a text means something else without them: a joiner
between two letters of a script that needs it (Arabic, those of India and their like), a joiner
between two emoji, and the selector behind an emoji or within a keycap.
"""

from __future__ import annotations

from kbproc.base.patterns import lazy

_IGNORABLE = (  # Default_Ignorable_Code_Point; a test derives it from the categories
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff"
)
_CONTROLS = "\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufff9-\ufffb"  # all but tab and newline
_NO_CHARACTERS = "\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff" + "".join(
    chr(plane << 16 | 0xFFFE) + chr(plane << 16 | 0xFFFF) for plane in range(1, 17)
)
_BLANK = "\u2800\U00013441\U00013442\U00016fe4\U0001d159"
# They divide words where they stand, so a space takes their place.
_DIVIDING = frozenset("\x0b\x0c\r\x1c\x1d\x1e\x1f\x85\u2028\u2029\u2800")

# Letters and marks of scripts in which a joiner changes how letters join; none can't be seen.
JOINED = (
    "\u0610-\u061a\u0620-\u06dc\u06df-\u06ff\u0710-\u077f\u07ca-\u07f5\u0840-\u085b\u0860-\u088e"
    "\u0898-\u08e1\u08e3-\u0dff\u1000-\u109f\u1780-\u17b3\u17b6-\u17dd\u1820-\u18aa\ua8e0-\ua8ff"
    "\ufb50-\ufdc7\ufdf0-\ufdfc\ufe70-\ufefc\U00011000-\U000110ba\U00011100-\U00011fff"
)
EMOJI = (
    "\u00a9\u00ae\u203c\u2049\u2122\u2139\u2194-\u21aa\u231a-\u23ff\u24c2\u25aa-\u27bf\u2934\u2935"
    "\u2b05-\u2b55\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
)
# Compiled when first used. What stays has neighbours that stay, too, so a second pass finds
# nothing. The class stands first, because texts are searched for that fast.
UNSEEN = lazy(
    f"[{_IGNORABLE}{_CONTROLS}{_NO_CHARACTERS}{_BLANK}]"
    f"(?!(?<=[{JOINED}][\u200c\u200d])[{JOINED}])"
    f"(?!(?:(?<=[{EMOJI}]\u200d)|(?<=[{EMOJI}]\ufe0f\u200d))[{EMOJI}])"
    f"(?!(?<=[{EMOJI}]\ufe0f)|(?<=[0-9#*]\ufe0f)\u20e3)"
)


def visible(text: str) -> str:
    """Returns the text without characters that can't be seen."""
    return UNSEEN.sub(lambda match: " " if match[0] in _DIVIDING else "", text)


def one_line(text: str, most: int, ellipsis: str = "") -> str:
    """Returns the visible text on one line of at most `most` characters; a cut one ends with
    `ellipsis`.
    """
    line = " ".join(visible(text).split())
    if len(line) <= most:
        return line
    # A cut may take the letter away for which a joiner stayed.
    return f"{visible(line[: most - len(ellipsis)]).rstrip()}{ellipsis}"
