"""Subtitles: SubRip (SRT) and WebVTT, with the time at which each passage is heard as section."""

from __future__ import annotations

import html
import re
from itertools import pairwise
from typing import NamedTuple

from kbproc.engine.sources.parse import text
from kbproc.engine.sources.parse.blocks import Block, Parsed, clean_text

_TIMES = re.compile(
    r"^[ \t]*((?:\d+:)?\d{1,2}:\d{2})[.,]\d{1,3}\s*-->\s*((?:\d+:)?\d{1,2}:\d{2})[.,]\d{1,3}", re.M
)
_VOICE = re.compile(r"<v(?:\.[^\s<>]*)?\s++([^<>]+)>")
_TAG = re.compile(r"</?[a-z][^<>]*>|\{\\[^{}]*\}", re.I)
_PARTS = re.compile(r"\n[ \t]*\n")
# Blocks of WebVTT between cues.
_BLOCKS = ("NOTE", "STYLE", "REGION")
# Cues are lines of speech; a passage is some of them together.
_PASSAGE_CHARS = 600


class _Cue(NamedTuple):
    begin: str
    end: str
    words: str


def parse(data: bytes, name: str) -> Parsed:
    """Returns passages of cues. A file without times is read as text.

    Raises `input.unsupported_type` for bytes that are not text.
    """
    decoded = text.decode(data, name)
    source = clean_text(decoded.text)
    is_vtt = source.startswith("WEBVTT")
    cues = _cues(source, is_vtt=is_vtt)
    if not cues:
        return text.parse(data, name)
    blocks: list[Block] = []
    passage: list[_Cue] = []
    for cue in cues:
        if passage and sum(len(each.words) for each in passage) + len(cue.words) > _PASSAGE_CHARS:
            blocks.append(_block(passage))
            passage = []
        passage.append(cue)
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
        text = " ".join(" ".join(map(_plain, "\n".join(parts).split("\n"))).split())
        if text:
            cues.append(_Cue(match[1], match[2], text))
        parts = []
    return cues


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
    return Block(text="\n".join(cue.words for cue in passage), section=section)
