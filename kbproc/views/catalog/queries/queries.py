"""What is asked of the catalog, in SQL.

Owns: the shape of every read: filters, keyset pages, rows as structs.
Refuses to know: who asks, scopes, and scores.

Lists go in as one array parameter: a literal IN list of ten costs twenty times
as much as `unnest`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from kbproc.views.catalog.filters import LABEL, DocumentFilter
from kbproc.views.catalog.queries.entries import EntryQueries
from kbproc.views.catalog.rows import (
    ChunkRow,
    DocumentRow,
    EventRow,
    Head,
    HitRow,
    Ids,
    IndexRow,
    KbRow,
    TokenRow,
)
from kbproc.views.catalog.tables import TABLES

_FEW = 32
_DOCUMENT = ", ".join(DocumentRow.__struct_fields__)


class Queries(EntryQueries):
    """All reads of the catalog; see Reader for what one may see of it."""

    def head(self) -> Head:
        rows = self._rows("select seq, hash, ts, next_document, next_chunk from head")
        return Head(*rows[0])

    # ---------------------------------------------------------- knowledge bases

    def kbs(self, after: str = "", limit: int = 1_000_000) -> list[KbRow]:
        sql = "from seen.kbs where slug > ? order by slug limit ?"
        return [KbRow(*row) for row in self._rows(sql, [after, limit])]

    def kb(self, slug: str) -> KbRow | None:
        sql = "from seen.kbs where slug = ?"
        return next((KbRow(*row) for row in self._rows(sql, [slug])), None)

    def kb_slugs(self) -> list[str]:
        return [row[0] for row in self._rows("select slug from seen.kbs order by slug")]

    def kb_counts(self, kbs: Sequence[str]) -> dict[str, tuple[int, int, int]]:
        """slug → documents, chunks, bytes of their sources."""
        sql = (
            "select kb, count(*), sum(chunk_count), sum(size_bytes) from seen.documents "
            "where deleted_at is null and list_contains(?, kb) group by kb"
        )
        return {row[0]: (row[1], int(row[2]), int(row[3])) for row in self._rows(sql, [list(kbs)])}

    # ---------------------------------------------------------------- documents

    def documents(
        self, wanted: DocumentFilter, *, after: int = 0, limit: int = 1_000_000_000
    ) -> list[DocumentRow]:
        """By id, from the one after `after`."""
        where, values = wanted.where()
        sql = f"select {_DOCUMENT} from seen.documents where id > ? and {where} order by id limit ?"  # noqa: S608
        return [DocumentRow(*row) for row in self._rows(sql, [after, *values, limit])]

    def document(self, id: int) -> DocumentRow | None:
        """Deleted ones too: see `deleted_at`."""
        rows = self._rows(f"select {_DOCUMENT} from seen.documents where id = ?", [id])  # noqa: S608
        return DocumentRow(*rows[0]) if rows else None

    def documents_by_id(self, ids: Iterable[int]) -> dict[int, DocumentRow]:
        """Deleted ones too. For few ids a plain scan is three times as fast as a join."""
        wanted = list(ids)
        few = len(wanted) <= _FEW
        which = "list_contains(?::bigint[], id)" if few else "id in (select unnest(?::bigint[]))"
        sql = f"select {_DOCUMENT} from seen.documents where {which}"  # noqa: S608
        return {row[0]: DocumentRow(*row) for row in self._rows(sql, [wanted])}

    def count(self, wanted: DocumentFilter) -> int:
        where, values = wanted.where()
        return int(self._rows(f"select count(*) from seen.documents where {where}", values)[0][0])  # noqa: S608

    def document_ids(self, wanted: DocumentFilter) -> Ids:
        """Sorted."""
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

    def tags(self, kbs: Sequence[str] | None, after: str, limit: int) -> list[tuple[str, int]]:
        sql = (
            "select tag, count(*) from (select unnest(tags) as tag from seen.documents where "
            "deleted_at is null and (?::varchar[] is null or list_contains(?::varchar[], kb))) "
            "where tag > ? group by tag order by tag limit ?"
        )
        only = None if kbs is None else list(kbs)
        return [(row[0], row[1]) for row in self._rows(sql, [only, only, after, limit])]

    def paths(self, kb: str) -> dict[str, DocumentRow]:
        """The live documents of a knowledge base that come from files."""
        sql = (
            f"select {_DOCUMENT} from seen.documents where kb = ? and path is not null "  # noqa: S608
            "and deleted_at is null"
        )
        return {row[4]: DocumentRow(*row) for row in self._rows(sql, [kb])}

    def documents_at(self, kb: str, paths: Sequence[str]) -> dict[str, DocumentRow]:
        """The live documents that come from these files."""
        sql = (
            f"select {_DOCUMENT} from seen.documents where kb = ? and deleted_at is null "  # noqa: S608
            "and path in (select unnest(?::varchar[]))"
        )
        return {row[4]: DocumentRow(*row) for row in self._rows(sql, [kb, list(paths)])}

    def failures(self, kb: str) -> dict[str, tuple[str, str, str | None]]:
        """path → error type, message, sha256 of the bytes that failed."""
        sql = "select path, error, message, sha256 from failures where kb = ? order by path"
        return {row[0]: (row[1], row[2], row[3]) for row in self._rows(sql, [kb])}

    # ------------------------------------------------------------------- chunks

    def chunk_total(self) -> int:
        return int(self._rows("select count(*) from seen.chunks")[0][0])

    def chunks_of(self, document_id: int, after: int = 0, limit: int = 1_000_000) -> list[ChunkRow]:
        """In order, from the one after chunk id `after`."""
        sql = "from seen.chunks where document_id = ? and id > ? order by id limit ?"
        return [ChunkRow(*row) for row in self._rows(sql, [document_id, after, limit])]

    def chunks(self, ids: Sequence[int]) -> dict[int, ChunkRow]:
        sql = (
            "select c.* from (select unnest(?::bigint[]) as wanted) "
            "join seen.chunks c on c.id = wanted"
        )
        return {row[0]: ChunkRow(*row) for row in self._rows(sql, [list(ids)])}

    def hits(self, ids: Sequence[int]) -> dict[int, HitRow]:
        """Chunks with what is shown of their documents, for a page of results."""
        return {row[0]: HitRow(*row) for row in self._rows(_HITS, [list(ids)])}

    def chunk_counts(self) -> dict[int, int]:
        """document id → number of its chunks, for live documents that have any."""
        sql = (
            "select id, chunk_count from seen.documents where deleted_at is null "
            "and chunk_count > 0"
        )
        return dict(self._rows(sql))

    def document_of_chunks(self, ids: Sequence[int]) -> dict[int, int]:
        sql = (
            "select c.id, c.document_id from (select unnest(?::bigint[]) as wanted) "
            "join seen.chunks c on c.id = wanted"
        )
        return dict(self._rows(sql, [list(ids)]))

    # ------------------------------------------------------------------- events

    def seq_at(self, ts: str) -> int:
        """The last position at that moment; 0 before the first."""
        return int(self._rows("select coalesce(max(seq), 0) from events where ts <= ?", [ts])[0][0])

    def ts_of(self, seq: int) -> str:
        """The moment of the last record up to `seq`; "" before the first."""
        rows = self._rows("select coalesce(max(ts), '') from events where seq <= ?", [seq])
        return str(rows[0][0])

    def events_of_document(self, id: int, after_seq: int = 0) -> list[EventRow]:
        """In order, its purge too."""
        sql = "from events where document_id = ? and seq > ? order by seq, idx"
        return [EventRow(*row) for row in self._rows(sql, [id, after_seq])]

    def events_of_records(self, seqs: Sequence[int]) -> list[EventRow]:
        sql = "from events where seq in (select unnest(?::bigint[])) order by seq, idx"
        return [EventRow(*row) for row in self._rows(sql, [list(seqs)])]

    def matching_records(
        self,
        after_seq: int,
        limit: int,
        types: Sequence[str] | None,
        actor: str | None,
        document_id: int | None,
    ) -> list[int]:
        """In order, once for each event that fits; of an actor alone, what has no event too."""
        only = None if types is None else list(types)
        values = [after_seq, only, only, actor, actor, document_id, document_id, limit]
        return [row[0] for row in self._rows(_MATCHING, values)]

    def records_by(self, actor: str, since: str) -> list[int]:
        """The records of an actor from that moment on, that say anything."""
        sql = "select distinct seq from events where actor = ? and ts >= ? order by seq"
        return [row[0] for row in self._rows(sql, [actor, since])]

    def unfinished_purges(self) -> list[int]:
        """Records whose purge was not brought to its end."""
        sql = (
            "select distinct seq from events where type = 'doc.purged' and seq > (select "
            "coalesce(max(seq), 0) from events where type = 'purge.ended') order by seq"
        )
        return [row[0] for row in self._rows(sql)]

    # ------------------------------------------------------- for the other views

    def touched_since(self, seq: int) -> list[int]:
        """Documents whose indexed content has changed, or that are gone, since `seq`."""
        sql = "select id from documents where touched > ? order by id"
        return [row[0] for row in self._rows(sql, [seq])]

    def index_rows(self, document_ids: Sequence[int]) -> list[IndexRow]:
        sql = _INDEX_ROWS + " where c.document_id in (select unnest(?::bigint[])) order by c.id"
        return [IndexRow(*row) for row in self._rows(sql, [list(document_ids)])]

    def all_index_rows(self, batch: int = 2000) -> Iterable[IndexRow]:
        """Every live chunk by id, streamed."""
        result = self._cursor.execute(_INDEX_ROWS + " order by c.id")
        while rows := result.fetchmany(batch):
            yield from (IndexRow(*row) for row in rows)

    def index_rows_of_chunks(self, ids: Sequence[int]) -> list[IndexRow]:
        sql = (
            _INDEX_ROWS
            + " join (select unnest(?::bigint[]) as wanted) on c.id = wanted order by c.id"
        )
        return [IndexRow(*row) for row in self._rows(sql, [list(ids)])]

    def digest(self) -> str:
        """Of every row of every table, in a fixed order: equal catalogs, equal digests."""
        from hashlib import sha256

        hash = sha256()
        for table in TABLES:
            for row in self._cursor.execute(f"from {table} order by all").fetchall():
                hash.update(repr(row).encode())
        return hash.hexdigest()

    # ------------------------------------------------------------------- tokens

    def token(self, actor: str, method: str, token: str) -> TokenRow | None:
        """The newest record under this token."""
        sql = (
            "select params_hash, seq, result from tokens where token = ? and actor = ? "
            "and method = ? order by seq desc limit 1"
        )
        return next((TokenRow(*row) for row in self._rows(sql, [token, actor, method])), None)

    def written_under(self, actor: str, method: str, token: str) -> dict[int, int]:
        """document id → revision, of what an unfinished command has already written."""
        sql = (
            "select d.id, d.revision from documents d join tokens t on t.seq = d.touched "
            "where t.token = ? and t.actor = ? and t.method = ? and d.deleted_at is null"
        )
        return dict(self._rows(sql, [token, actor, method]))


_MATCHING = (
    "select seq from (select seq, type, actor, document_id from events union all "
    "select seq, '', actor, null from tokens) where seq > ? "
    "and (?::varchar[] is null or list_contains(?::varchar[], type)) "
    "and (?::varchar is null or actor = ?) and (?::bigint is null or document_id = ?) "
    "order by seq limit ?"
)

_HITS = (
    "select c.id, c.text, c.page, c.section, c.idx, "
    "d.id, d.kb, d.title, d.type, d.path, d.url, d.tags, d.chunk_count, d.source_id, "
    "d.confidence, d.expires_at, d.superseded_by, d.head "
    "from (select unnest(?::bigint[]) as wanted) "
    "join chunks c on c.id = wanted join seen.documents d on d.id = c.document_id"
)

_INDEX_ROWS = (
    f"select c.id, c.document_id, {LABEL}, d.title, c.section, c.text "  # noqa: S608
    "from chunks c join documents d on d.id = c.document_id"
)
