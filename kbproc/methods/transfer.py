"""The store as a whole, moved: store.backup, store.export, store.import."""

from __future__ import annotations
