"""A store with a little of everything, and its page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.browser import Page, browser, opened
from tests.kit.world import filled


@pytest.fixture(scope="session")
def window() -> Iterator[Any]:
    """The window of the one browser of this run."""
    with browser() as driver:
        yield driver


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed store; see `filled`."""
    return filled(tmp_path_factory.mktemp("page")) / "store"


@pytest.fixture(scope="module")
def page(store: Path) -> Iterator[Page]:
    """The page of the store, with its key."""
    with opened(store) as page:
        yield page.login()
