"""docs/cluster.md's figures are what the committed results give."""

from __future__ import annotations

from bench import cluster
from tests.conftest import Report
from tests.kit.golden import outdated


def test_the_page_shows_the_results(none: Report) -> None:
    none(outdated({cluster.PAGE: cluster.page()}))
