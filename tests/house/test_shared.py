"""docs/cluster.md's figures are what the committed results give."""

from __future__ import annotations

from bench import cluster


def test_the_page_shows_the_results() -> None:
    text = cluster.PAGE.read_text(encoding="utf-8")
    assert text == cluster.page(), "run python -m bench.cluster"
