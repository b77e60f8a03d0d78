"""Looks for secrets in the texts that a store shows at present."""

from __future__ import annotations

from kbproc.base.errors import Finding
from kbproc.base.text.secrets import redact, secret_kinds
from kbproc.base.wording import few, plural
from kbproc.engine.events.document import whole_text
from kbproc.engine.projections.catalog.filters import DocumentFilter
from kbproc.engine.sources.parse.unread import in_words
from kbproc.engine.store.store import Store

_MOST_NAMED = 100  # documents in the command that purges them


def secrets(store: Store) -> Finding:
    """Returns the documents, entries and notes that hold secrets, and the command that plans their
    purge.
    """
    holders: dict[int, str] = {}
    with store.reading() as snapshot:
        for row in snapshot.queries.documents(DocumentFilter()):
            chunks = snapshot.queries.chunks_of(row.id)
            text = whole_text(chunk.content for chunk in chunks)
            if kinds := secret_kinds(f"{row.title}\n{row.metadata}\n{text}"):
                what = in_words(kinds).replace("redacted ", "")
                holders[row.id] = f"{row.id} “{redact(row.title).text}” ({what})"
    if not holders:
        return Finding("secrets", "pass", "no text holds a secret of a known shape")
    ids = ",".join(map(str, [*holders][:_MOST_NAMED]))
    rest = " These are the first hundred: look again after that." * (len(holders) > _MOST_NAMED)
    verb = "holds" if len(holders) == 1 else "hold"
    return Finding(
        "secrets",
        "warn",
        f"{plural(len(holders), 'document')} {verb} secrets: {few(list(holders.values()))}",
        f"Revoke the secrets first. kbproc store purge --document-ids {ids} --dry-run shows what "
        f"a purge erases, and without --dry-run it asks you and erases it.{rest}",
    )
