"""Text that was written for a terminal: what stays on its screen.

Owns: control sequences (ECMA-48) and overstrikes. Refuses to know: files, encodings.
"""

from __future__ import annotations

import re

# Operating system commands and other strings: a window's title, a link's address.
_STRING = re.compile("\x1b[\\]PX^_](?P<payload>[^\x07\x1b\n\r]*)(?:\x07|\x1b\\\\)")
_CODE = re.compile("\x1b\\[[0-?]*[ -/]*(?P<final>[@-~])|\x1b[ -/]+[0-~]|\x1b[78=>]")
# The final letters of movements: words on both sides of one do not touch.
_MOVES = frozenset("ABCDEFGHf`ade")
_WORD = re.compile(r"[^\W\d]{2,}")


def without_codes(text: str) -> tuple[str, int]:
    """`text` without control sequences, and how many of them held words.

    Colours, movements and the like hold none; a window's title and a link's address do.
    """
    if "\x1b" not in text:
        return text, 0
    wordy = 0

    def dropped(string: re.Match[str]) -> str:
        nonlocal wordy
        wordy += bool(_WORD.search(string["payload"]))
        return ""

    text = _STRING.sub(dropped, text)
    return _CODE.sub(lambda code: " " if code["final"] in _MOVES else "", text), wordy


def overstruck(text: str) -> str:
    """`text` as it stands where backspaces were printed: "N\\bNA\\bA" is "NA", "_\\ba" is "a"."""
    if "\b" not in text:
        return text
    return "\n".join(_line(line) if "\b" in line else line for line in text.split("\n"))


def _line(line: str) -> str:
    screen: list[str] = []
    at = 0
    for char in line:
        if char == "\b":
            at = max(0, at - 1)
            continue
        if at == len(screen):
            screen.append(char)
        elif char != "_":  # an underscore underlines the letter
            screen[at] = char
        at += 1
    return "".join(screen)
