"""How sure a search is, and that its docs say the same."""

from __future__ import annotations

import re

import pytest

from kbproc.search.confidence import LIKELY, RELATED, Confidence, confidence
from kbproc.search.fusion import Mode
from tests.kit.talk import REPO


@pytest.mark.parametrize(
    "best, mode, level",
    [
        (0.0, "hybrid", "none"),
        (0.199, "hybrid", "none"),
        (0.2, "hybrid", "related"),
        (0.349, "hybrid", "related"),
        (0.35, "hybrid", "likely"),
        (0.3, "fts", "likely"),
        (0.3, "vector", "related"),
    ],
)
def test_the_best_score_tells(best: float, mode: Mode, level: Confidence) -> None:
    assert confidence(best, mode) == level


def test_the_docs_state_the_thresholds() -> None:
    page = (REPO / "docs" / "search.md").read_text()

    def row(first: str) -> str:
        return next(line for line in page.splitlines() if line.startswith(f"| `{first}`"))

    modes = re.findall(r"mode (\w+)", row("confidence"))
    for level, words, least in (
        ("none", "below", RELATED),
        ("related", "from", RELATED),
        ("likely", "from", LIKELY),
    ):
        told = [float(found) for found in re.findall(rf"{words} ([\d.]+)", row(level))]
        assert dict(zip(modes, told, strict=True)) == least
