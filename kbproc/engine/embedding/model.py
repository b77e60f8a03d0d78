"""One store's embedding model: what is known of it, and what it says of a text.

Owns: the model's state, its pack, loading it when first needed, the exact string that is
embedded, and query vectors.
Refuses to know: which chunks lack a vector (background.py), and how a model computes.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kbproc.base.errors import KbprocError
from kbproc.models.calibration import Scale
from kbproc.models.fluency import Fluency
from kbproc.models.interface import Embedder, ModelInfo, ModelSpec
from kbproc.store.state import IndexStatus, ModelState
from kbproc.views.catalog.rows import IndexRow

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kbproc.models.pack import VectorPack

_DEFAULT_TOKENS = 256


class Unopened(NamedTuple):
    """A pack that nobody has asked for yet."""

    path: Path
    dim: int
    fingerprint: bytes
    scale: Scale

    def open(self) -> VectorPack:
        """Raises store.io."""
        from kbproc.models.pack import VectorPack

        pack = VectorPack.open(self.path, dim=self.dim, fingerprint=self.fingerprint)
        pack.scale = self.scale
        return pack


class StoredModel:
    """The model that a store is configured with. Nothing heavy is loaded before it is needed."""

    def __init__(
        self,
        folder: Path,
        settings: dict[str, Any],
        cache: Path,
        problem: KbprocError | None = None,
    ) -> None:
        """`folder`: the store's; `cache`: where exported models are kept for all stores.

        `problem`: why this model must not be used.
        """
        from kbproc.models import catalogue

        self._packs = folder / "vectors"
        self.models_folder = cache / "models"  # exported ones, for all stores
        self.spec: ModelSpec = catalogue.spec_of(settings)
        self.info: ModelInfo | None = None
        self.problem = problem
        self.state: ModelState = "off" if problem is None else "missing"
        self._pack: VectorPack | None = None
        self.unopened: Unopened | None = None
        self._opening = threading.Lock()
        self._embedder: Embedder | None = None
        self._loading = threading.Lock()
        self._packing = threading.Lock()
        if self.spec.kind != "none" and problem is None:
            self._look()

    def _look(self) -> None:
        """What can be known of the model without loading it."""
        from kbproc.models import catalogue

        try:
            self.info = catalogue.inspect(self.spec, self.models_folder)
        except KbprocError as error:
            self.state, self.problem = "missing", error
            return
        if self.info.fingerprint is None:
            self.state = "not ready"
            return
        path = self._packs / f"{self.info.file_name}.pack"
        self.unopened = Unopened(path, self.info.dim, self.info.fingerprint, self.info.scale)
        self.state = "ready"

    @property
    def pack(self) -> VectorPack | None:
        """Opened when it is first asked for. Raises store.io."""
        if self.unopened is not None:
            with self._opening:
                if self.unopened is not None:
                    self._pack = self.unopened.open()
                    self.unopened = None
        return self._pack

    @pack.setter
    def pack(self, pack: VectorPack | None) -> None:
        with self._opening:
            self._pack, self.unopened = pack, None

    @property
    def model_name(self) -> str | None:
        return None if self.state == "off" else self.spec.name

    @property
    def dim(self) -> int | None:
        return self.info.dim if self.info and self.state == "ready" else None

    @property
    def max_tokens(self) -> int:
        """Of the model; of the default one while its own are not known yet."""
        return (self.info.max_tokens if self.info else 0) or _DEFAULT_TOKENS

    @property
    def status_when_new(self) -> IndexStatus:
        return "ready" if self.state == "off" else "pending"

    def query_vector(self, text: str) -> tuple[NDArray[np.float32] | None, str | None]:
        """The query's vector, or None and why there is none."""
        if self.state == "off":
            return None, "No embedding model is configured."
        if self.state in {"not ready", "preparing"}:
            return None, "The embedding model is being prepared."
        try:
            return self.load().embed_query(text), None
        except KbprocError as error:
            return None, error.message

    def fluency(self, text: str, *, is_foreign: bool = False) -> Fluency:
        """Of a text that has a vector."""
        return self.load().fluency(text, is_foreign=is_foreign)

    def load(self) -> Embedder:
        """The embedder, loaded once; raises model.unavailable."""
        from kbproc.models import catalogue

        with self._loading:
            if self._embedder is None:
                if self.state == "missing" and self.problem is not None:
                    raise self.problem
                self._embedder = catalogue.load(self.spec, self.models_folder)
            return self._embedder

    def prepare(self) -> None:
        """Gets a model ready that is not: exports it, or asks its endpoint; may take a minute.

        Raises model.unavailable.
        """
        if self.state != "not ready":
            return
        self.state = "preparing"
        try:
            self.load()
        except KbprocError as error:
            self.state, self.problem = "missing", error
            raise
        self._look()

    def string(self, row: IndexRow) -> str:
        """The exact string that is embedded, and that a vector is cached under."""
        return self.string_of(row.title, row.section, row.text)

    def string_of(self, title: str, section: str | None, text: str) -> str:
        from kbproc.sources.chunk import (
            embed_text,
        )  # which cuts texts, too: more than a search needs

        return embed_text(title, section, text, max_tokens=self.max_tokens)

    def keep(self, rows: Sequence[IndexRow], vectors: list[NDArray[np.float32]]) -> list[bytes]:
        import numpy as np

        if not rows or self.pack is None:
            return []
        keys = [self.pack.key(self.string(row)) for row in rows]
        with self._packing:
            self.pack.append(keys, np.stack(vectors))
        return keys

    @property
    def fingerprint(self) -> str | None:
        """Of the weights, their precision and the longest text; None while there is no pack."""
        unopened = self.unopened  # whoever opens it sets the other first
        pack = self._pack if unopened is None else unopened
        return None if pack is None else pack.fingerprint.hex()

    def kept(self, strings: Sequence[str]) -> list[bytes | None]:
        """The vectors that there are of these exact strings, 16-bit floats, little-endian."""
        if self.pack is None:
            return [None] * len(strings)
        rows = self.pack.rows([self.pack.key(string) for string in strings])
        found = iter(self.pack.halves(rows[rows >= 0]))
        return [next(found) if row >= 0 else None for row in rows.tolist()]

    def bring(self, vectors: Mapping[str, bytes]) -> None:
        """What another store of this model has made of these strings; raises store.io."""
        if self.pack is not None:
            self.fold({self.pack.key(string): half for string, half in vectors.items()})

    def fold(self, vectors: Mapping[bytes, bytes]) -> None:
        """The same by the pack's keys."""
        import numpy as np

        if not vectors or self.pack is None:
            return
        halves = np.frombuffer(b"".join(vectors.values()), "<f2").reshape(len(vectors), -1)
        with self._packing:
            self.pack.append(list(vectors), halves.astype(np.float32))

    def release(self) -> None:
        """Closes what it has open; nobody asks it any more."""
        if self._embedder is not None:
            self._embedder.close()
        if self._pack is not None:
            self._pack.close()
