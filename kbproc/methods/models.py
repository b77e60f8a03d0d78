"""Embedding models: model.list, model.use."""

from __future__ import annotations
