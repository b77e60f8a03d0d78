"""All that is asked of the catalog.

Owns: putting together what each noun's file asks; the catalog's head, and a digest of all of it.
Refuses to know: who asks, scopes, and scores.

Lists go in as one array parameter: a literal IN list of ten costs twenty times that of `unnest`.
"""

from __future__ import annotations

from hashlib import sha256

from kbproc.views.catalog.queries.agent import AgentQueries
from kbproc.views.catalog.queries.chunk import ChunkQueries
from kbproc.views.catalog.queries.document import DocumentQueries
from kbproc.views.catalog.queries.entry import EntryQueries
from kbproc.views.catalog.queries.event import EventQueries
from kbproc.views.catalog.queries.index import IndexQueries
from kbproc.views.catalog.queries.kb import KbQueries
from kbproc.views.catalog.queries.note import NoteQueries
from kbproc.views.catalog.queries.session import SessionQueries
from kbproc.views.catalog.rows import Head
from kbproc.views.catalog.tables import TABLES


class Queries(
    KbQueries,
    DocumentQueries,
    ChunkQueries,
    EntryQueries,
    NoteQueries,
    AgentQueries,
    SessionQueries,
    EventQueries,
    IndexQueries,
):
    """All reads of the catalog, over one cursor; see Reader for what one may see of it."""

    def seq(self) -> int:
        """The position of what is read: half of what `head` costs."""
        seq: int = self._rows("select seq from head")[0][0]
        return seq

    def head(self) -> Head:
        return Head(*self._rows("select * exclude (version) from head")[0])

    def digest(self) -> str:
        """Of every row of every table, in a fixed order: equal catalogs, equal digests."""
        hash = sha256()
        for table in TABLES:
            # `order by all` would cost twice as much.
            for row in sorted(map(repr, self._cursor.execute(f"from {table}").fetchall())):
                hash.update(row.encode())
        return hash.hexdigest()
