"""Subtitles: SubRip (SRT) and WebVTT, with the time at which each passage is heard as section.

Rolling captions show each line again above the next one, or a line as it grows; what is heard once
is read once.
"""

from __future__ import annotations

import html
import re
from itertools import pairwise
from typing import NamedTuple

from kbproc.engine.sources.parse import text
from kbproc.engine.sources.parse.blocks import Block, Parsed, clean_text

_TIMES = re.compile(
    r"^[ \t]*((?:\d+:)?\d{1,2}:\d{2})[.,](\d{1,3})\s*-->"
    r"\s*((?:\d+:)?\d{1,2}:\d{2})[.,](\d{1,3})",
    re.M,
)
_VOICE = re.compile(r"<v(?:\.[^\s<>]*)?\s++([^<>]+)>")
_TAG = re.compile(r"</?[a-z][^<>]*>|<(?:\d{1,3}:)+[\d.]{1,10}>|\{\\[^{}]*\}", re.I)
_PARTS = re.compile(r"\n[ \t]*\n")
# Blocks of WebVTT between cues.
_BLOCKS = ("NOTE", "STYLE", "REGION")
# Captions roll if so many cues, and this share of them, show a line of the cue before.
_LEAST_ROLLING, _SHARE_ROLLING = 2, 1 / 3
# A cue this much later than the end of the one before shows none of its lines.
_GAP_S = 1.0
# A cue that is shorter shows again what stands there, while the lines move.
_MOMENT_S = 0.1
# Cues are lines of speech; a passage is some of them together.
_PASSAGE_CHARS = 600


class _Cue(NamedTuple):
    begin: str
    begin_fraction: str
    end: str
    end_fraction: str
    lines: list[str]

    @property
    def begin_s(self) -> float:
        return _seconds(self.begin, self.begin_fraction)

    @property
    def end_s(self) -> float:
        return _seconds(self.end, self.end_fraction)


def parse(data: bytes, name: str) -> Parsed:
    """Returns passages of cues. A file without times is read as text.

    Raises `input.unsupported_type` for bytes that are not text.
    """
    decoded = text.decode(data, name)
    source = clean_text(decoded.text)
    is_vtt = source.startswith("WEBVTT")
    cues = _without_repeats(_cues(source, is_vtt=is_vtt))
    if not cues:
        return text.parse(data, name)
    blocks: list[Block] = []
    passage: list[_Cue] = []
    chars = 0
    for cue in cues:
        length = sum(map(len, cue.lines))
        if passage and chars + length > _PASSAGE_CHARS:
            blocks.append(_block(passage))
            passage, chars = [], 0
        passage.append(cue)
        chars += length
    blocks.append(_block(passage))
    comments = sum(part.startswith("NOTE") for part in _PARTS.split(source)) if is_vtt else 0
    return Parsed(blocks=blocks, unread={"replaced_bytes": decoded.replaced, "comments": comments})


def _cues(source: str, *, is_vtt: bool) -> list[_Cue]:
    """Returns the cues; in SubRip the text above the first one goes with it."""
    matches = list(_TIMES.finditer(source))
    edges = [0, *(match.start() for match in matches), len(source)]
    bodies = [source[begin:end] for begin, end in pairwise(edges)]
    bodies[:-1] = [_without_name(body, is_vtt) for body in bodies[:-1]]
    parts = [] if is_vtt else [bodies[0]]
    cues = []
    for match, body in zip(matches, bodies[1:], strict=True):
        # The rest of the line of times holds settings.
        words, *others = _PARTS.split(body.partition("\n")[2])
        parts += [words, *(part for part in others if not (is_vtt and part.startswith(_BLOCKS)))]
        lines = [line for part in parts for line in map(_plain, part.split("\n")) if line]
        if lines:
            cues.append(_Cue(match[1], match[2], match[3], match[4], lines))
        parts = []
    return cues


def _seconds(time: str, fraction: str) -> float:
    """("1:02", "500") → 62.5"""
    *hours, minutes, seconds = time.split(":")
    return sum(map(int, hours)) * 3600 + int(minutes) * 60 + float(f"{seconds}.{fraction}")


def _without_repeats(cues: list[_Cue]) -> list[_Cue]:
    """Returns the cues, in rolling captions without the lines that the cue before brought."""
    rolling = sum(_rolls(before, cue) for before, cue in pairwise(cues))
    if rolling < max(_LEAST_ROLLING, _SHARE_ROLLING * (len(cues) - 1)):
        return cues
    single: list[_Cue] = []
    screen: list[str] = []
    end_s = 0.0
    for cue in cues:
        follows = bool(screen) and cue.begin_s - end_s <= _GAP_S
        repeated = _repeated(screen, cue.lines) if follows else 0
        lines = cue.lines[repeated:]
        if follows and not repeated and _grows(screen, cue.lines):
            single[-1] = single[-1]._replace(lines=single[-1].lines[:-1])
        if lines:
            single.append(cue._replace(lines=lines))
        screen, end_s = cue.lines, cue.end_s
    return [cue for cue in single if cue.lines]


def _rolls(before: _Cue, cue: _Cue) -> bool:
    """Returns True if a cue shows lines of the one before and more, or only for a moment."""
    repeats = cue.lines[0] in before.lines or cue.lines[0].startswith(before.lines[-1])
    if not repeats or cue.begin_s - before.end_s > _GAP_S:
        return False
    repeated = _repeated(before.lines, cue.lines)
    if repeated == len(cue.lines):
        return min(cue.end_s - cue.begin_s, before.end_s - before.begin_s) <= _MOMENT_S
    return repeated > 0 or _grows(before.lines, cue.lines)


def _repeated(screen: list[str], lines: list[str]) -> int:
    """Returns the number of the first lines that are the last ones on the screen."""
    most = min(len(screen), len(lines))
    return next((n for n in range(most, 0, -1) if screen[-n:] == lines[:n]), 0)


def _grows(screen: list[str], lines: list[str]) -> bool:
    """Returns True if a line goes on as the last one on the screen did, with more words."""
    return lines[0].startswith(f"{screen[-1]} ")


def _without_name(body: str, is_vtt: bool) -> str:
    """Returns the lines above a cue's times without the cue's own number or name."""
    above, _, line = body.removesuffix("\n").rpartition("\n")
    follows_blank = not above or above.endswith("\n")
    is_name = line.strip().isdigit() or (is_vtt and line.strip() != "" and follows_blank)
    return above if is_name else body


def _plain(line: str) -> str:
    named = _VOICE.sub(lambda match: f"{match[1].strip()}: ", line)
    return " ".join(html.unescape(_TAG.sub("", named)).split())


def _block(passage: list[_Cue]) -> Block:
    section = f"{passage[0].begin}–{passage[-1].end}"
    return Block(text="\n".join(" ".join(cue.lines) for cue in passage), section=section)
