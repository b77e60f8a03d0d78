"""A folder's README says what the folder is for."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbproc.base.purpose import purpose_of

BADGES = """\
<p align="center"><img src="x.png"></p>

# Site

[![build](b.svg)](https://ci.example) ![x](y)

> A quotation.

The **site** of the [choir](https://choir.example):
dates, `scores` and who sings. More follows here.

- a list
"""


@pytest.mark.parametrize(
    ("text", "purpose"),
    [
        (BADGES, "The site of the choir: dates, scores and who sings."),
        ("Site\n====\n\nFor the choir\n", "For the choir"),
        ("```sh\nmake it\n```\nBuilds it.\n", "Builds it."),
        ("Hides\u200b an\x1b instruction.", "Hides an instruction."),
        ("word " * 100, "word " * 39 + "word…"),
        ("# Only a title\n", ""),
        ("---\ntitle: x\nlicense: y\n---\nFor the choir.", "For the choir."),
        ("<!-- a\ncomment\nhere -->\nReal text.", "Real text."),
        ("A tool, e.g. for x. More.", "A tool, e.g. for x."),
        ("合唱团的网站。日期和乐谱。", "合唱团的网站。"),
        ("字" * 300, "字" * 200 + "…"),
        ("", ""),
    ],
)
def test_the_first_sentence_of_a_readme(tmp_path: Path, text: str, purpose: str) -> None:
    (tmp_path / "README.md").write_text(text)
    assert purpose_of(tmp_path) == purpose


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("A secret.")
    (tmp_path / "README.md").symlink_to(tmp_path / "secret")
    assert purpose_of(tmp_path) == purpose_of(tmp_path / "nowhere") == ""
