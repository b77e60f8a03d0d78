"""The methods, one file a noun, and the registry of them all."""

from __future__ import annotations

from kbproc.calls.method import Registry
from kbproc.methods import (
    agent,
    chunk,
    doc,
    doc_add,
    events,
    history,
    index,
    kb,
    knowledge,
    models,
    note,
    purge,
    search,
    sql,
    store,
    tag,
    transfer,
)


def registry() -> Registry:
    return Registry.of(
        store,
        transfer,
        purge,
        index,
        models,
        sql,
        kb,
        doc_add,
        doc,
        history,
        chunk,
        tag,
        search,
        knowledge,
        note,
        agent,
        events,
    )
