"""docs/evidence/performance.md and its charts are what the committed results give."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest

from bench import floor, performance
from bench.charts import Line, Panel, Row, lines, points
from tests.conftest import Report
from tests.kit.golden import outdated
from tests.kit.talk import REPO

OUTPUTS = performance.outputs()


def test_the_pages_show_the_results(none: Report) -> None:
    none(outdated(OUTPUTS))


def test_every_chart_is_shown_and_no_other_lies_there() -> None:
    charts = {path for path in OUTPUTS if path.suffix == ".svg"}
    assert set((REPO / "docs" / "evidence" / "performance").glob("*")) == charts
    page = performance.PAGE.read_text(encoding="utf-8")
    assert {name.name for name in charts if f"(performance/{name.name})" in page} == {
        chart.name for chart in charts
    }
    for chart in charts:
        assert Xml.fromstring(OUTPUTS[chart]).tag.endswith("svg")


def test_a_missed_aim_is_told() -> None:
    results = json.loads((REPO / "bench" / "peers" / "results.json").read_text(encoding="utf-8"))
    for aim in results["aims"]:
        assert aim["met"] == (aim["ratio"] <= aim["aim"])


def test_points_stand_where_their_values_are() -> None:
    """A factor of ten has the same width everywhere."""
    rows = [Row("one & all", 1), Row("ten", 10, mine=True), Row("hundred", 100, reach=1000)]
    chart = Xml.fromstring(points([Panel("Three", rows, "{:g}".format)]))
    at = [float(dot.get("cx", "")) for dot in chart.iter() if dot.tag.endswith("circle")]
    assert at[1] - at[0] == pytest.approx(at[2] - at[1], abs=0.2) and at[0] < at[1]


def test_lines_rise_with_their_values() -> None:
    chart = Xml.fromstring(
        lines("Growth", [Line("a", [(1e3, 1e-3), (1e6, 1e-2)])], "{:g}".format, "{:g}".format)
    )
    (first_x, first_y), (last_x, last_y) = [
        (float(dot.get("cx", "")), float(dot.get("cy", "")))
        for dot in chart.iter()
        if dot.tag.endswith("circle")
    ]
    assert first_x < last_x and first_y > last_y


def test_peers_are_pinned() -> None:
    """Each peer has one pinned version, so that two runs are comparable."""
    pins = sorted((REPO / "bench" / "peers").glob("*.txt"))
    assert {pin.stem for pin in pins} == {"chroma", "lancedb", "sqlite", "txtai"}
    for pin in pins:
        for line in pin.read_text(encoding="utf-8").splitlines():
            assert re.fullmatch(r"[\w.-]+==[\w.]+", line), f"{pin.name}: {line}"
    lock = json.loads(
        (REPO / "bench" / "peers" / "server-memory" / "package-lock.json").read_text()
    )
    named = lock["packages"][""]["dependencies"].values()
    assert all(re.fullmatch(r"[\d.]+", version) for version in named)


def test_the_floor_finds_what_is_there(tmp_path: Path) -> None:
    """The floor must answer correctly, because a floor without hits would be fast."""
    rows = [("a heron stands", 1), ("two herons fly", 2), ("nobody is here", 3)]
    floor.build(tmp_path, rows, said=0)
    search = floor.Search(tmp_path, None)
    hits = json.loads(search.answer(b'{"params": {"query": "herons flying"}}'))
    assert hits == [["two herons fly", 2], ["a heron stands", 1]]
