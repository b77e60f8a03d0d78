"""What is asked of conversations, in SQL.

Owns: sessions, their questions, the pieces of an answer, and which of these may be seen: a piece
that may repeat a document out of sight stands as if that document were purged.
Refuses to know: who makes an answer, and who reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from kbproc.views.catalog.reader import EVERYTHING, NOTES, Reader
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
        return [self._as_seen(MessageRow(*row)) for row in reversed(rows)]

    def message(self, id: int) -> MessageRow | None:
        """A withdrawn one too."""
        rows = self._rows(f"{_MESSAGE}m.id = ?", [id])
        return next((self._as_seen(MessageRow(*row)) for row in rows), None)

    def _as_seen(self, row: MessageRow) -> MessageRow:
        if self.sight == EVERYTHING:
            return row
        pieces = self.pieces(row.id, after=(row.attempt_seq - 1, 2**31 - 1))
        referred = [one.said for one in pieces if one.kind == "references"]
        text = "".join(one.said or "" for one in pieces if one.kind == "delta")
        last = referred[-1] if referred else None
        return msgspec.structs.replace(row, text=text, references=last)

    def message_asked(self, seq: int) -> int | None:
        """The question that this record has asked."""
        rows = self._rows("select id from messages where asked_seq = ? limit 1", [seq])
        return int(rows[0][0]) if rows else None

    def pieces(
        self, message: int, *, after: tuple[int, int] = (0, 0), limit: int = 1_000_000
    ) -> list[PieceRow]:
        """In order, from the one after that place: seq, and index in its record."""
        sql = (
            "select seq, idx, kind, said, documents from pieces where message_id = ? and "
            "(seq > ? or (seq = ? and idx > ?)) order by seq, idx limit ?"
        )
        values = [message, after[0], after[0], after[1], limit]
        return self.shown(message, [PieceRow(*row) for row in self._rows(sql, values)])

    def shown(self, message: int, pieces: Sequence[PieceRow]) -> list[PieceRow]:
        """The pieces as they may be seen; those that the catalog does not have yet, too."""
        if self.sight == EVERYTHING:
            return list(pieces)
        referred = self._referred(message)
        asked = set(referred)
        for piece in pieces:
            asked.update(_cited(piece) if piece.kind == "references" else piece.documents or ())
        seen = self._seen(asked)
        return [_seen_piece(piece, referred, seen) for piece in pieces]

    def _referred(self, message: int) -> set[int]:
        """Documents to which an answer and those before it in its session refer; 0 for others."""
        sql = (
            "select p.said from pieces p join messages m on p.message_id = m.id where m.id <= ? "
            "and p.kind = 'references' and m.session_id = "
            "(select session_id from messages where id = ?)"
        )
        told = (PieceRow(0, 0, "references", said) for (said,) in self._rows(sql, [message] * 2))
        return {id for piece in told for id in _cited(piece)}

    def repeated(self, session: int, before: int) -> set[int]:
        """Documents whose words the session's answers before that message repeat, as shown."""
        found: set[int] = set()
        for message in self.messages(session, before=before):
            if message.references is not None:
                found.update(_cited(PieceRow(0, 0, "references", message.references)))
            for piece in self.pieces(message.id):
                if piece.kind == "delta":
                    found.update(piece.documents or ())
        return found - {0}

    def _seen(self, ids: Iterable[int]) -> set[int]:
        """Those of these documents whose text may be seen."""
        which = "id in (select unnest(?::bigint[]))"
        if not self.sight.texts:  # entries and notes have scopes of their own
            which += f" and (type = 'knowledge' or starts_with(kb, '{NOTES}'))"
        rows = self._rows(f"select id from seen.documents where {which}", [list(ids)])  # noqa: S608
        return {int(id) for (id,) in rows}

    def being_answered(self) -> list[tuple[int, int]]:
        """Session and message of each answer that has not ended."""
        sql = "select session_id, id from messages where status is null order by id"
        return self._rows(sql)


def _cited(piece: PieceRow) -> list[int]:
    """The documents of references; 0 for a passage of another store, which nobody knows."""
    found: list[dict[str, Any]] = msgspec.json.decode(piece.said or "[]")
    return [one["document_id"] or 0 for one in found]


def _seen_piece(piece: PieceRow, referred: set[int], seen: set[int]) -> PieceRow:
    """The piece, without the references that can't be seen, or what stands in its place."""
    if piece.kind == "references":
        found: list[dict[str, Any]] = msgspec.json.decode(piece.said or "[]")
        left = [one for one in found if one["document_id"] in seen]
        return msgspec.structs.replace(piece, said=msgspec.json.encode(left).decode())
    repeats = referred if piece.documents is None else piece.documents
    if piece.kind != "delta" or seen.issuperset(repeats):
        return piece
    return PieceRow(piece.seq, piece.idx, "replaced", "answer.said")
