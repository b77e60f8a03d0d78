"""The methods, one file a noun, and the registry of them all."""

from __future__ import annotations

from kbproc.methods import (
    chunk,
    doc,
    doc_add,
    events,
    history,
    index,
    kb,
    models,
    purge,
    search,
    sql,
    store,
    tag,
    transfer,
)
from kbproc.registry import Registry


def registry() -> Registry:
    return Registry.of(
        store, transfer, purge, index, models, sql, kb, doc_add, doc, history, chunk, tag, search,
        events,
    )  # fmt: skip
