"""docs/evidence/search.md's tables and chart are what the committed results give."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import quality
from tests.kit.talk import REPO

OUTPUTS = quality.outputs()


@pytest.mark.parametrize("path", OUTPUTS, ids=lambda path: str(path.relative_to(REPO)))
def test_the_page_is_what_the_results_give(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == OUTPUTS[path], "run python -m bench.quality"


def test_nothing_of_what_others_wrote_is_kept() -> None:
    for result in quality.results().values():
        assert set(result["compared"]) == {"setting", "better", "worse", "same", "change"}
