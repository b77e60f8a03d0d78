"""Forgetting for good: store.purge."""

from __future__ import annotations
