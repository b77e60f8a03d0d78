"""A process that dies, or a record that is lost, leaves sources without a name."""

from __future__ import annotations

import pytest


@pytest.fixture
def leaves_sources() -> bool:
    return True
