"""Text for a terminal is read as it stays on the screen."""

from __future__ import annotations

import pytest

from kbproc.engine.sources.parse.terminal import on_screen, overstruck, without_codes


@pytest.mark.parametrize(
    ("text", "screen", "wordy"),
    [
        ("plain\ttext", "plain\ttext", 0),
        ("\x1b[1;31mred\x1b[0m", "red", 0),
        ("a\x1b[2Cb\x1b[10;1Hc", "a b c", 0),
        ("\x1b[2Jclear\x1b[K", "clear", 0),
        ("\x1b]0;Window title\x07x", "x", 1),
        ("\x1b]0;Window title\x1b\\x", "x", 1),
        ("\x1b]8;;https://a.org\x07link\x1b]8;;\x07", "link", 1),
        ("\x1b]4;1;12\x07x", "x", 0),
        ("\x1bPdevice\x1b\\x\x1b(Bx\x1b7x\x1b=x", "xxxx", 1),
        # A string or a code without its end stays.
        ("\x1b]0;never ends\nx", "\x1b]0;never ends\nx", 0),
        ("\x1b[31", "\x1b[31", 0),
        ("\x1b", "\x1b", 0),
        ("", "", 0),
    ],
)
def test_control_sequences_go_and_those_with_words_are_counted(
    text: str, screen: str, wordy: int
) -> None:
    assert without_codes(text) == (screen, wordy)


@pytest.mark.parametrize(
    ("text", "screen"),
    [
        ("N\bNA\bAM\bM", "NAM"),
        ("_\ba_\bb", "ab"),
        ("a\b_b", "ab"),
        ("abc\b\b\bxy", "xyc"),
        ("\b\bab", "ab"),
        ("ab\n\bc", "ab\nc"),
        ("plain_text", "plain_text"),
        ("\b", ""),
    ],
)
def test_backspaces_are_applied_within_their_line(text: str, screen: str) -> None:
    assert overstruck(text) == screen


@pytest.mark.parametrize(
    ("text", "screen"),
    [
        ("10 %|#  |\r20 %|## |\r\ndone\r\n", "20 %|## |\ndone\n"),
        ("loading\rok", "okading"),
        ("a_b\rx__", "x__"),
        ("a\r\n\rb\r", "a\nb"),
        ("N\bN\rNA\bA", "NA"),
        ("plain", "plain"),
    ],
)
def test_carriage_returns_overwrite_their_line(text: str, screen: str) -> None:
    assert on_screen(text) == screen
