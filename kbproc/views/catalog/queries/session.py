"""What is asked of conversations, in SQL.

Owns: sessions, their questions, and the pieces of an answer.
Refuses to know: who makes an answer, and who reads it.
"""

from __future__ import annotations

from kbproc.views.catalog.reader import Reader
from kbproc.views.catalog.rows import MessageRow, PieceRow, SessionRow

_OF_IT = "from pieces p where p.message_id = m.id and p.seq >= m.attempt_seq and p.kind ="
_MESSAGE = (
    f"select m.*, coalesce((select string_agg(p.said, '' order by p.seq, p.idx) {_OF_IT} 'delta'), "  # noqa: S608
    f"''), (select last(p.said order by p.seq, p.idx) {_OF_IT} 'references') from messages m where "
)
_SESSION = (
    "select s.*, (select count(*) from messages m where m.session_id = s.id and "
    "m.withdrawn_at is null) from seen.sessions s where "
)


class SessionQueries(Reader):
    def sessions(
        self,
        *,
        created_after: str | None = None,
        created_before: str | None = None,
        updated_after: str | None = None,
        after: int = 0,
        limit: int = 1_000_000,
    ) -> list[SessionRow]:
        """The live ones by id, from the one after `after`, within these moments."""
        bounds = {
            "s.created_at > ?": created_after,
            "s.created_at < ?": created_before,
            "s.updated_at > ?": updated_after,
        }
        chosen = {bound: moment for bound, moment in bounds.items() if moment is not None}
        which = " and ".join(["s.id > ?", "s.deleted_at is null", *chosen])
        sql = f"{_SESSION}{which} order by s.id limit ?"
        return [SessionRow(*row) for row in self._rows(sql, [after, *chosen.values(), limit])]

    def session(self, id: int) -> SessionRow | None:
        """A deleted one too."""
        return next((SessionRow(*row) for row in self._rows(f"{_SESSION}s.id = ?", [id])), None)

    def messages(
        self, session: int, *, before: int = 2**62, limit: int = 1_000_000
    ) -> list[MessageRow]:
        """The last ones that were not withdrawn, in order, up to the one before `before`."""
        sql = (
            f"{_MESSAGE}m.session_id = ? and m.id < ? and m.withdrawn_at is null "
            "order by m.id desc limit ?"
        )
        rows = self._rows(sql, [session, before, limit])
        return [MessageRow(*row) for row in reversed(rows)]

    def message(self, id: int) -> MessageRow | None:
        """A withdrawn one too."""
        return next((MessageRow(*row) for row in self._rows(f"{_MESSAGE}m.id = ?", [id])), None)

    def message_asked(self, seq: int) -> int | None:
        """The question that this record has asked."""
        rows = self._rows("select id from messages where asked_seq = ? limit 1", [seq])
        return int(rows[0][0]) if rows else None

    def pieces(
        self, message: int, *, after: tuple[int, int] = (0, 0), limit: int = 1_000_000
    ) -> list[PieceRow]:
        """In order, from the one after that place: seq, and index in its record."""
        sql = (
            "select seq, idx, kind, said from pieces where message_id = ? and "
            "(seq > ? or (seq = ? and idx > ?)) order by seq, idx limit ?"
        )
        values = [message, after[0], after[0], after[1], limit]
        return [PieceRow(*row) for row in self._rows(sql, values)]

    def being_answered(self) -> list[tuple[int, int]]:
        """Session and message of each answer that has not ended."""
        sql = "select session_id, id from messages where status is null order by id"
        return self._rows(sql)
