"""Tests of this folder lose records, whose sources stay in the store unnamed."""

from __future__ import annotations

import pytest


@pytest.fixture
def leaves_sources() -> bool:
    return True
