"""A red test says where a golden differs, and which command helps."""

from __future__ import annotations

from tests.kit.advice import ADVICE, advice, why_none
from tests.kit.golden import AROUND, difference
from tests.kit.start import REPO


def test_a_golden_shows_the_place_that_differs() -> None:
    golden = 'first\n{"a":"' + "x" * 500 + '","b":1,"c":"' + "y" * 500 + '"}\nlast\n'
    place, one, other = difference(golden, golden.replace('"b":1', '"b":2').replace("last", "end"))
    assert place == "line 2, byte 512: the first of 2 differing lines"
    assert one.startswith("golden: …xxx") and '"b":⟦here⟧1,"c"' in one
    assert other.startswith("  came: …xxx") and '"b":⟦here⟧2,"c"' in other
    assert len(one) == len(other) < 2 * AROUND + 30
    (_, one, other) = difference("é\n", "é\nmore\n")
    assert (one, other) == ("golden: ⟦here⟧(no such line)", "  came: ⟦here⟧more")


def test_a_red_test_says_what_to_run() -> None:
    command = advice("tests/conversations/test_golden.py::test_over_pipes[kb]")
    assert command is not None and "--snapshot-update" in command
    assert advice("tests/store/test_lane.py::test_x") is None
    assert [prefix for prefix in ADVICE if not (REPO / prefix).exists()] == []


def test_a_run_without_a_test_says_why() -> None:
    absent, how = why_none(["tests/serch/test_hits.py::test_x"], "")
    assert (
        "tests/serch/test_hits.py::test_x is not there; is it tests/search/test_hits.py" in absent
    )
    assert "make test ONLY=" in how
    assert next(why_none(["tests/search"], "nonesuch")) == "no test's name fits 'nonesuch'"
