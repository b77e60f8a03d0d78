"""tests/kit/slow.json lists files that are there, the slowest first."""

from __future__ import annotations

from tests.kit import slow
from tests.kit.start import REPO


def test_each_slow_file_is_there() -> None:
    listed = slow.seconds()
    missing = [name for name in listed if not (REPO / name).is_file()]
    assert not missing, f"take {', '.join(missing)} out of tests/kit/slow.json"
    assert list(listed.values()) == sorted(listed.values(), reverse=True)
