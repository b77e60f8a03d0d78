"""A store that is opened for one request, which may need no vectors.

Owns: opening the vectors when somebody first asks for them, or before anything is written; and how
far they are until then.
Refuses to know: what is asked, and what the vectors are.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbproc.base.durable import Seen, look_at
from kbproc.embedding.model import Unopened
from kbproc.log.record import Position
from kbproc.store.lane import Ticket
from kbproc.store.store import Store
from kbproc.views.vectors import manifest
from kbproc.views.vectors.waiting import Waiting

if TYPE_CHECKING:
    from kbproc.views.vectors.view import Vectors


class LateStore(Store):
    """Until `put_off` it is a Store like any other."""

    _vectors: Vectors | None = None
    _is_late = False

    def put_off(self, pack: Unopened | None) -> None:
        """`pack`: the model's, if it has one."""
        self._is_late = True
        if pack is not None:
            self.standing = standing_of(self.folder / "views", pack, self.published.head.position)

    @property
    def vectors(self) -> Vectors | None:
        """Whoever asks holds no lock but the writers' lane. Raises store.io."""
        if self._is_late:
            with self.lane():
                if self._is_late:
                    self.attach_vectors()
                    self._is_late, self.standing = False, None  # there may be none
        return self._vectors

    @vectors.setter
    def vectors(self, vectors: Vectors | None) -> None:
        self._vectors = vectors
        self._is_late, self.standing = False, None

    @property
    def are_vectors_opened(self) -> bool:
        return not self._is_late

    def _run(self, tickets: list[Ticket[Any]]) -> None:
        self.vectors  # noqa: B018
        super()._run(tickets)


def standing_of(views: Path, pack: Unopened, position: Position) -> tuple[int, int] | None:
    """How far a view at `position` would be if it were opened: up to where all is embedded, and how
    many chunks wait; None where only opening it can tell.

    It is known of one that was saved, if its graph and its pack were found sound, and nobody has
    touched them since.
    """
    saved = manifest.read(views)
    if saved is None or saved.pack is None or look_at(pack.path) != saved.pack:
        return None
    if saved.position != position or saved.model != pack.fingerprint:
        return None
    if not Seen(pack.path.parent).knows(pack.path):
        return None
    if saved.graph is not None and not Seen(views).knows(views / saved.graph.name):
        return None
    waiting = Waiting()
    for row in saved.pending:
        waiting.add(row)
    return waiting.settled_to(position.seq), len(waiting)
