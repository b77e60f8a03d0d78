"""Turns text that was written for a terminal into the text that stays on its screen.

It removes control sequences (ECMA-48), and applies overstrikes and carriage returns.
"""

from __future__ import annotations

import re

# Operating system commands and other strings: a window's title, a link's address.
_STRING = re.compile("\x1b[\\]PX^_](?P<payload>[^\x07\x1b\n\r]*)(?:\x07|\x1b\\\\)")
_CODE = re.compile("\x1b\\[[0-?]*[ -/]*(?P<final>[@-~])|\x1b[ -/]+[0-~]|\x1b[78=>]")
# The final letters of movements; a movement becomes a space, because it separates words.
_MOVES = frozenset("ABCDEFGHf`ade")
_WORD = re.compile(r"[^\W\d]{2,}")


def without_codes(text: str) -> tuple[str, int]:
    """Returns `text` without control sequences, and how many of these held words.

    A window's title and a link's address hold words; colours and movements do not.
    """
    if "\x1b" not in text:
        return text, 0
    wordy = 0

    def drop(string: re.Match[str]) -> str:
        nonlocal wordy
        wordy += bool(_WORD.search(string["payload"]))
        return ""

    text = _STRING.sub(drop, text)
    return _CODE.sub(lambda code: " " if code["final"] in _MOVES else "", text), wordy


def overstruck(text: str) -> str:
    """Returns `text` with its backspaces applied: "N\\bNA\\bA" is "NA", "_\\ba" is "a"."""
    if "\b" not in text:
        return text
    return "\n".join(_line(line) if "\b" in line else line for line in text.split("\n"))


def on_screen(text: str) -> str:
    """Returns `text` with its backspaces and carriage returns applied: "10 %\\r20 %" is "20 %".

    In a file a carriage return alone ends a line; on a screen it leads back to the line's start.
    """
    text = text.replace("\r\n", "\n")
    if "\r" in text:
        text = "\n".join(_overwritten(line) for line in text.split("\n"))
    return overstruck(text)


def _overwritten(line: str) -> str:
    screen = ""
    for written in line.split("\r"):
        screen = written + screen[len(written) :]
    return screen


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
