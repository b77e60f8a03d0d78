"""The methods, one file a noun, and the registry of them all."""

from __future__ import annotations

from kbproc.methods import chunk, doc, doc_add, index, kb, search, store, tag
from kbproc.registry import Registry


def registry() -> Registry:
    return Registry.of(store, index, kb, doc_add, doc, chunk, tag, search)
