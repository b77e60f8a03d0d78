"""What is asked of the records that the catalog has folded in, in SQL.

Owns: which records touched what, when they were written and by whom, and what a
request was answered.
Refuses to know: what an event said: that is in the log.
"""

from __future__ import annotations

from collections.abc import Sequence

from kbproc.views.catalog.reader import Reader
from kbproc.views.catalog.rows import EventRow, TokenRow

_MATCHING = (
    "select seq from (select seq, type, actor, document_id from events union all "
    "select seq, '', actor, null from tokens) where seq > ? "
    "and (?::varchar[] is null or list_contains(?::varchar[], type)) "
    "and (?::varchar is null or actor = ?) and (?::bigint is null or document_id = ?) "
    "order by seq limit ?"
)


class EventQueries(Reader):
    def seq_at(self, ts: str, *, before: bool = False) -> int:
        """The last position at that moment, or the last `before` it; 0 where there is none."""
        sql = f"select coalesce(max(seq), 0) from events where ts {'<' if before else '<='} ?"  # noqa: S608
        return int(self._rows(sql, [ts])[0][0])

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
        """Records that erase something, and were not brought to their end."""
        sql = "select coalesce(max(seq), 0) from events where type = 'purge.ended'"
        return self.purges_after(self._rows(sql)[0][0])

    def purges_after(self, seq: int) -> list[int]:
        """Records that erase something, brought to their end or not."""
        sql = (
            "select distinct seq from events where type in ('doc.purged', 'content.forgotten', "
            "'session.purged') and seq > ? order by seq"
        )
        return [row[0] for row in self._rows(sql, [seq])]

    def contents_before(self, ts: str) -> list[tuple[int, bool, list[int]]]:
        """document id, whether it was deleted by then, the revisions that wrote it by then."""
        sql = (
            "select d.id, coalesce(d.deleted_at < ?, false), list(e.revision order by e.revision) "
            "from documents d join events e on e.document_id = d.id and e.type = 'doc.written' "
            "where e.ts < ? and d.kb <> '' group by all"
        )
        return self._rows(sql, [ts, ts])

    def token(self, actor: str, method: str, token: str) -> TokenRow | None:
        """The newest record under this token."""
        sql = (
            "select params_hash, salt, seq, result from tokens where token = ? and actor = ? "
            "and method = ?"
        )
        # An order in the query would have DuckDB read all tokens.
        found = [TokenRow(*row) for row in self._rows(sql, [token, actor, method])]
        return max(found, key=lambda row: row.seq, default=None)

    def written_under(self, actor: str, method: str, token: str) -> dict[int, int]:
        """document id → revision, of what an unfinished command has already written."""
        sql = (
            "select d.id, d.revision from documents d join tokens t on t.seq = d.touched "
            "where t.token = ? and t.actor = ? and t.method = ? and d.deleted_at is null"
        )
        return dict(self._rows(sql, [token, actor, method]))
