"""A chunk has one owner at a time, also while new chunks arrive."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from kbproc.engine.embedding.claims import Claims


class Vectors:
    """A vector index as claims see it: chunks without a vector, and its position in the log."""

    def __init__(self) -> None:
        self.position = 1
        self.chunks = [1, 2, 3]

    @property
    def pending_count(self) -> int:
        return len(self.chunks)

    def pending(self, *, newest_first: bool, limit: int) -> Sequence[int]:
        return (self.chunks[::-1] if newest_first else self.chunks)[:limit]


class OtherNodes:
    """Other nodes of a cluster; with `moves`, a new chunk arrives during the look-up of theirs."""

    def __init__(self, *, moves: bool) -> None:
        self._moves = moves

    def expected(self, vectors: Vectors) -> Collection[int]:
        ids = {1}
        if self._moves:
            vectors.position += 1
            vectors.chunks.append(4)  # the other nodes embed this one, too
        return ids

    def announce(self, keys: list[bytes]) -> None:
        """Does nothing, because no test here embeds."""


def claims(*, moves: bool) -> Claims:
    result = Claims(lambda: ())
    result.other_nodes = OtherNodes(moves=moves)  # type: ignore[assignment]
    return result


def test_nothing_is_taken_or_lent_by_what_is_known_no_longer() -> None:
    assert claims(moves=True).take(Vectors(), 9) == []  # type: ignore[arg-type]
    assert claims(moves=True).lend(Vectors(), 9, 0) == []  # type: ignore[arg-type]


def test_the_rest_is_taken_once() -> None:
    vectors, owners = Vectors(), claims(moves=False)
    assert owners.take(vectors, 9) == [3, 2]  # type: ignore[arg-type]
    assert owners.take(vectors, 9) == []  # type: ignore[arg-type]
    owners.done([3])
    assert owners.lend(vectors, 9, 0) == [3]  # type: ignore[arg-type]
