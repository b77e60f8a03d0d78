"""Recognises text in pictures with tesseract, a program that the user installs.

It runs in the limited process of the parsers, gets the picture on its stdin and ends with that
process.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterable
from functools import cache, partial
from statistics import fmean
from typing import NamedTuple

from kbproc.base.sandbox import end_with
from kbproc.engine.sources.parse.blocks import Scalar

PROGRAM = "tesseract"
PACKAGE = "tesseract-ocr"  # Debian and Ubuntu call it so
# The folders of packaged programs; a parser's process has no PATH.
_FOLDERS = os.pathsep.join(("/usr/bin", "/usr/local/bin", "/opt/homebrew/bin", "/opt/local/bin"))
# Seconds that a document may take longer if text is recognised in it, and for one picture.
OCR_SECONDS = 600
_PICTURE_SECONDS = 60
# The share of the time after which no further picture is recognised.
_SHARE = 0.8
MAX_PICTURES = 500
# How JPEG, PNG, TIFF, PNM and JPEG 2000 begin. Tesseract takes anything else for a list of files to
# read, and so a document could name files of this machine.
_PICTURES = (
    b"\xff\xd8\xff",
    b"\x89PNG\r\n\x1a\n",
    b"II*\0",
    b"MM\0*",
    b"P4 ",
    b"P5 ",
    b"P6 ",
    b"\0\0\0\x0cjP  \r\n\x87\n",
)
# A word below this confidence, of 100, is noise: a speck, a line, a part of a photo.
_LEAST_CONFIDENCE = 30
_WORD_LEVEL = "5"


class RecognisedPage(NamedTuple):
    """The paragraphs of a page in a picture, and the mean confidence of their words, of 100."""

    paragraphs: list[str]
    confidence: float


@cache
def program() -> str | None:
    """Returns the path of tesseract; None if it is not installed."""
    return shutil.which(PROGRAM, path=_FOLDERS)


@cache
def languages() -> tuple[str, ...]:
    """Returns the languages that tesseract has been installed with."""
    path = program()
    if path is None:
        return ()
    try:
        listed = subprocess.run(
            [path, "--list-langs"], capture_output=True, timeout=10, check=False, text=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(name for name in listed.split("\n")[1:] if name and name != "osd")


class Recogniser:
    """Recognises the pictures of one document within its time; `language`: "eng+deu"."""

    def __init__(self, language: str) -> None:
        self._language = language
        self._end = time.monotonic() + _SHARE * OCR_SECONDS
        self._pictures = 0
        self._confidences: list[float] = []
        self.pages = 0  # pages in which words were found

    def read(self, picture: bytes) -> list[RecognisedPage]:
        """Returns the pages of a picture; none where it can't be read, or the time is over."""
        path = program()
        remaining = min(_PICTURE_SECONDS, self._end - time.monotonic())
        if path is None or remaining <= 0 or self._pictures >= MAX_PICTURES:
            return []
        if not picture.startswith(_PICTURES):
            return []
        self._pictures += 1
        command = [path, "stdin", "stdout", "-l", self._language, "-c", "tessedit_create_tsv=1"]
        try:
            answer = subprocess.run(
                command,
                input=picture,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=remaining,
                check=False,
                preexec_fn=partial(end_with, os.getpid()),
            )
        except (OSError, subprocess.SubprocessError):
            return []
        pages = list(_pages(answer.stdout.decode("utf-8", "replace").split("\n")))
        words = [page for page in pages if page.paragraphs]
        self.pages += len(words)
        self._confidences += [page.confidence for page in words]
        return pages

    @property
    def metadata(self) -> dict[str, Scalar]:
        """Returns the metadata of a document with recognised text."""
        metadata: dict[str, Scalar] = {"ocr_languages": self._language}
        if self.pages:
            confidence = round(fmean(self._confidences))
            metadata = {
                "ocr": True,
                "ocr_confidence": confidence,
                "ocr_pages": self.pages,
                **metadata,
            }
        return metadata


def _pages(rows: Iterable[str]) -> Iterable[RecognisedPage]:
    """Yields the pages of tesseract's table of words."""
    pages: dict[str, dict[tuple[str, str], dict[str, list[str]]]] = {}
    confidences: dict[str, list[float]] = {}
    for row in rows:
        cells = row.split("\t")
        if len(cells) < 12:
            continue
        level, page, block, paragraph, line = cells[:5]
        if level.isdecimal() and page not in pages:
            pages[page], confidences[page] = {}, []
        word = "\t".join(cells[11:]).strip()
        if level != _WORD_LEVEL or not word:
            continue
        try:
            confidence = float(cells[10])
        except ValueError:
            continue
        if confidence < _LEAST_CONFIDENCE:
            continue
        lines = pages[page].setdefault((block, paragraph), {})
        lines.setdefault(line, []).append(word)
        confidences[page].append(confidence)
    for page, paragraphs in pages.items():
        texts = [
            "\n".join(" ".join(words) for words in lines.values()) for lines in paragraphs.values()
        ]
        yield RecognisedPage(texts, fmean(confidences[page]) if confidences[page] else 0.0)
