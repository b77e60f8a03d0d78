"""Reports what is in breach of a rule."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

Report = Callable[[Iterable[str]], None]


@pytest.fixture
def none(subtests: pytest.Subtests) -> Report:
    """Returns a function that fails once for each violation, a text `PLACE: what to do there`."""

    def report(violations: Iterable[str]) -> None:
        for violation in sorted(violations):
            place, _, message = violation.partition(": ")
            with subtests.test(place):
                pytest.fail(message, pytrace=False)

    return report
