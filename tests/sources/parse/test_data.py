"""The parsers against documents that others wrote, where those are at hand."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from kbproc.base.errors import KbprocError
from kbproc.engine.sources.parse.formats import detect, parse
from kbproc.engine.sources.parse.text import decode

DATA = Path(os.environ.get("KBPROC_TEST_DATA") or "/nonexistent")
pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="the data sets are not here")

# One of the 31 files needs a password, one is damaged, five hold pictures only.
UNREADABLE = {
    "005-libreoffice-writer-password/libreoffice-writer-password.pdf": "is encrypted",
    "017-unreadable-meta-data/unreadablemetadata.pdf": "is damaged",
    "007-imagemagick-images/imagemagick-ASCII85Decode.pdf": "holds no text",
    "007-imagemagick-images/imagemagick-CCITTFaxDecode.pdf": "holds no text",
    "007-imagemagick-images/imagemagick-lzw.pdf": "holds no text",
    "019-grayscale-image/grayscale-image.pdf": "holds no text",
    "023-cmyk-image/cmyk-image.pdf": "holds no text",
}


def test_pdfs_have_their_pages_or_the_right_reason() -> None:
    root = DATA / "pdfs" / "pypdf"
    reasons = {}
    for entry in json.loads((root / "files.json").read_text())["data"]:
        path = root / entry["path"]
        if not path.exists() or entry["pages"] > 100:
            continue
        try:
            parsed = parse(path.read_bytes(), "pdf", entry["path"])
        except KbprocError as error:
            reasons[entry["path"]] = error.message
            continue
        assert parsed.pages == entry["pages"], entry["path"]
    assert reasons.keys() == UNREADABLE.keys()
    for name, words in UNREADABLE.items():
        assert words in reasons[name]


def test_markdown_of_many_hands() -> None:
    files = sorted((DATA / "docs" / "til").rglob("*.md"))[::10]
    assert files
    for path in files:
        parsed = parse(path.read_bytes(), "markdown", path.name)
        assert parsed.blocks, path
        assert parsed.title, path


def test_encodings_detected() -> None:
    """97 in 100 files of 51 encodings; the rest are Latin ones that differ in few letters."""
    codecs = {"MacCyrillic": "mac_cyrillic", "MacRoman": "mac_roman", "Big5": "big5"}
    right = total = 0
    for path in sorted((DATA / "dirty" / "encodings" / "tests").rglob("*.*")):
        label = re.sub(r"^((?:iso-8859|windows)-\d+)-[a-z]+$", r"\1", path.parent.name)
        data = path.read_bytes()
        if detect(path.name, data[:4096]) is None or label == "EUC-TW":
            continue
        total += 1
        text = decode(data, path.name)[0].lstrip("\ufeff")
        truth = data.decode(codecs.get(label, label), "replace").lstrip("\ufeff")
        same = sum(a == b for a, b in zip(text, truth, strict=False))
        right += same >= 0.995 * max(len(text), len(truth))
    assert total > 400
    assert right / total > 0.97
