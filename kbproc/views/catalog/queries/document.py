"""What is asked of documents, and of files that could not become one, in SQL.

Owns: filters, keyset pages, documents by id and by source.
Refuses to know: scopes, and scores.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kbproc.views.catalog.filters import DocumentFilter
from kbproc.views.catalog.reader import Reader
from kbproc.views.catalog.rows import DocumentRow, Ids

_FEW = 32


class DocumentQueries(Reader):
    def documents(
        self, wanted: DocumentFilter, *, after: int = 0, limit: int = 1_000_000_000
    ) -> list[DocumentRow]:
        """By id, from the one after `after`."""
        where, values = wanted.where()
        which = f"id > ? and {where} order by id limit ?"
        return self._documents(DocumentRow, which, [after, *values, limit])

    def document(self, id: int) -> DocumentRow | None:
        """Deleted ones too: see `deleted_at`."""
        return next(iter(self._documents(DocumentRow, "id = ?", [id])), None)

    def documents_by_id(self, ids: Iterable[int]) -> dict[int, DocumentRow]:
        """Deleted ones too. For few ids a plain scan is three times as fast as a join."""
        wanted = list(ids)
        few = len(wanted) <= _FEW
        which = "list_contains(?::bigint[], id)" if few else "id in (select unnest(?::bigint[]))"
        return {row.id: row for row in self._documents(DocumentRow, which, [wanted])}

    def count(self, wanted: DocumentFilter) -> int:
        where, values = wanted.where()
        return int(self._rows(f"select count(*) from seen.documents where {where}", values)[0][0])  # noqa: S608

    def document_ids(self, wanted: DocumentFilter) -> Ids:
        """Sorted."""
        import numpy as np

        where, values = wanted.where()
        sql = f"select id from seen.documents where {where} order by id"  # noqa: S608
        found = self._cursor.execute(self._sql(sql), values).fetchnumpy()["id"]
        return np.asarray(found, dtype=np.int64)

    def by_type(self) -> dict[str, int]:
        sql = "select type, count(*) from seen.documents where deleted_at is null group by type"
        return dict(sorted((row[0], row[1]) for row in self._rows(sql)))

    def source_bytes(self) -> int:
        sql = "select coalesce(sum(size_bytes), 0) from seen.documents where deleted_at is null"
        return int(self._rows(sql)[0][0])

    def tags(
        self, kbs: Sequence[str] | None, after: str, limit: int, *, by_count: bool = False
    ) -> list[tuple[str, int, str]]:
        """Tag, count, and the key that they are ordered by, of which `after` is one."""
        key = "lpad((1000000000 - count(*))::varchar, 10, '0') || ' ' || tag" if by_count else "tag"
        sql = (
            f"select tag, count(*), {key} as place from (select unnest(tags) as tag "  # noqa: S608
            "from seen.documents where deleted_at is null "
            "and (?::varchar[] is null or list_contains(?::varchar[], kb))) "
            "group by tag having place > ? order by place limit ?"
        )
        only = None if kbs is None else list(kbs)
        return [(row[0], row[1], row[2]) for row in self._rows(sql, [only, only, after, limit])]

    def paths(self, kb: str) -> dict[str, DocumentRow]:
        """The live documents of a knowledge base that come from files."""
        which = "kb = ? and path is not null and deleted_at is null"
        return {str(row.path): row for row in self._documents(DocumentRow, which, [kb])}

    def documents_at(self, kb: str, paths: Sequence[str]) -> dict[str, DocumentRow]:
        """The live documents that come from these files."""
        which = "kb = ? and deleted_at is null and path in (select unnest(?::varchar[]))"
        found = self._documents(DocumentRow, which, [kb, list(paths)])
        return {str(row.path): row for row in found}

    def pruned(self, kb: str) -> list[DocumentRow]:
        """The documents that an ingest removed because their files were gone, by id."""
        which = (
            "kb = ? and path is not null and deleted_at is not null and (id, touched) in "
            "(select (document_id, seq) from events where type = 'doc.deleted' "
            "and method = 'doc.ingest') order by id"
        )
        return self._documents(DocumentRow, which, [kb])

    def with_unread(self, kb: str) -> list[DocumentRow]:
        """The live documents whose sources were not read as a whole, by id."""
        which = (
            "kb = ? and deleted_at is null and contains(source_facts, '\"unread\":{') order by id"
        )
        return self._documents(DocumentRow, which, [kb])

    def failures(self, kb: str) -> dict[str, tuple[str, str, str | None]]:
        """path → error type, message, sha256 of the bytes that failed."""
        sql = "select path, error, message, sha256 from failures where kb = ? order by path"
        return {row[0]: (row[1], row[2], row[3]) for row in self._rows(sql, [kb])}
