"""docs/evidence/search.md's tables and chart are what the committed results give."""

from __future__ import annotations

from bench import quality
from tests.conftest import Report
from tests.kit.golden import outdated

OUTPUTS = quality.outputs()


def test_the_pages_are_what_the_results_give(none: Report) -> None:
    none(outdated(OUTPUTS))


def test_nothing_of_what_others_wrote_is_kept() -> None:
    for result in quality.results().values():
        assert set(result["compared"]) == {"setting", "better", "worse", "same", "change"}
