"""docs/cluster.md's figures are what the committed results give."""

from __future__ import annotations

from bench import cluster
from tests.kit.golden import outdated


def test_the_page_shows_the_results() -> None:
    wrong = outdated({cluster.PAGE: cluster.page()})
    assert not wrong, "\n".join(["run python -m bench.cluster:", *wrong])
