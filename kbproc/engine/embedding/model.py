"""Keeps one store's embedding model: its state, its pack of vectors, and query vectors.

The model and the pack are loaded when they are first needed. The exact string that is embedded for
a chunk is made here.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from kbproc.base.errors import KbprocError
from kbproc.base.spared import import_numpy

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kbproc.engine.models.calibration import Scale
    from kbproc.engine.models.fluency import Fluency
    from kbproc.engine.models.interface import Embedder, ModelInfo, ModelSpec
    from kbproc.engine.models.pack import VectorPack
    from kbproc.engine.projections.catalog.rows import IndexRow
    from kbproc.engine.store.model import IndexStatus
    from kbproc.engine.store.state import ModelState

_DEFAULT_TOKENS = 256
# These bytes of a pack are the model's fingerprint: see engine/models/pack.py, which loads numpy.
_FINGERPRINT = slice(16, 48)
_OFF = ({"kind": "none"}, {"kind": "none", "name": "none"})  # settings of no model


def _pack_path(folder: Path, stem: str, fingerprint: bytes) -> Path:
    """Returns the path of a model's pack: of its name, unless another model of that name has it.

    Such are two lengths of an endpoint's vectors, or two revisions.
    """
    path = folder / f"{stem}.pack"
    try:
        with path.open("rb") as file:
            header = file.read(_FINGERPRINT.stop)
    except OSError:
        return path
    is_other = len(header) == _FINGERPRINT.stop and header[_FINGERPRINT] != fingerprint
    return folder / f"{stem}-{fingerprint.hex()[:8]}.pack" if is_other else path


class UnopenedPack(Struct, frozen=True):
    """A pack that is opened when it is first needed."""

    path: Path
    dim: int
    fingerprint: bytes
    scale: Scale

    def open(self) -> VectorPack:
        """Opens the pack; raises store.io."""
        import_numpy()
        from kbproc.engine.models.pack import VectorPack

        pack = VectorPack.open(self.path, dim=self.dim, fingerprint=self.fingerprint)
        pack.scale = self.scale
        return pack


class StoredModel:
    """The model that a store is configured with; heavy parts are loaded when first needed."""

    def __init__(
        self,
        folder: Path,
        settings: dict[str, Any],
        cache: Path,
        problem: KbprocError | None = None,
    ) -> None:
        """`folder`: the store's. `cache`: the folder of all stores' exported models.

        `problem`: why this model must not be used.
        """
        self._settings = settings
        self._packs = folder / "vectors"
        self.models_folder = cache / "models"  # exported models of all stores
        self.info: ModelInfo | None = None
        self.problem = problem
        self.is_barred = problem is not None
        self.is_brief = False  # True in a process that answers one request and ends
        self.state: ModelState = "off" if problem is None else "missing"
        self._pack: VectorPack | None = None
        self.unopened: UnopenedPack | None = None
        self._opening = threading.Lock()
        self._embedder: Embedder | None = None
        self._loading = threading.Lock()
        self._packing = threading.Lock()
        if settings not in _OFF and self.spec.kind != "none" and problem is None:
            self._look()

    @cached_property
    def spec(self) -> ModelSpec:
        """The settings, checked by `__init__` unless they name no model."""
        from kbproc.engine.models.interface import spec_of

        return spec_of(self._settings)

    def _look(self) -> None:
        """Reads what the model's files tell without loading it, and sets state, info and pack."""
        from kbproc.engine.models import catalogue

        try:
            self.info = catalogue.inspect(self.spec, self.models_folder)
        except KbprocError as error:
            self.state, self.problem = "missing", error
            return
        if self.info.fingerprint is None:
            self.state = "not ready"
            return
        path = _pack_path(self._packs, self.info.file_name, self.info.fingerprint)
        self.unopened = UnopenedPack(path, self.info.dim, self.info.fingerprint, self.info.scale)
        self.state = "ready"

    @property
    def pack(self) -> VectorPack | None:
        """The model's pack, opened on the first use; raises store.io."""
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
        """The longest text that the model reads; the default model's while that is unknown."""
        return (self.info.max_tokens if self.info else 0) or _DEFAULT_TOKENS

    @property
    def status_when_new(self) -> IndexStatus:
        return "ready" if self.state == "off" else "pending"

    @property
    def is_prepared(self) -> bool:
        """False while the model still has to be exported or its endpoint called once."""
        return self.state not in {"not ready", "preparing"}

    def query_vector(self, text: str) -> tuple[NDArray[np.float32] | None, str | None]:
        """Returns the query's vector, or None and the reason."""
        if self.state == "off":
            return None, "No embedding model is configured."
        if not self.is_prepared:
            return None, "The embedding model is being prepared."
        try:
            return self.load(for_query=True).embed_query(text), None
        except KbprocError as error:
            return None, error.message

    def cosines(self, vector: NDArray[np.float32], texts: list[str]) -> list[float]:
        """Returns the cosine of each text with a vector; of no text if the model fails."""
        try:
            embedder = self.load()
            low, span = embedder.scale.low, embedder.scale.span
            return [(float(one @ vector) - low) / span for one in embedder.embed_many(texts)]
        except KbprocError:
            return []

    def fluency(self, text: str, *, is_foreign: bool = False) -> Fluency:
        """Returns how well the model knows a text."""
        return self.load().fluency(text, is_foreign=is_foreign)

    def load(self, *, for_query: bool = False) -> Embedder:
        """Returns the embedder, which is loaded once; raises model.unavailable.

        `for_query`: it embeds a query, which is all that most one-shot processes embed.
        """
        from kbproc.engine.models import catalogue

        with self._loading:
            if self._embedder is None:
                if self.state == "missing" and self.problem is not None:
                    raise self.problem
                for_few = for_query and self.is_brief
                self._embedder = catalogue.load(self.spec, self.models_folder, for_few=for_few)
            return self._embedder

    def prepare(self) -> None:
        """Exports a model that is not ready, or calls its endpoint once.

        This may take a minute. Raises model.unavailable.
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
        """Returns the exact string that is embedded, by which its vector is cached."""
        return self.string_of(row.title, row.section, row.text)

    def string_of(self, title: str, section: str | None, text: str) -> str:
        # Imported here, because a search does not need the rest of the chunker.
        from kbproc.engine.sources.chunk import embed_text

        return embed_text(title, section, text, max_tokens=self.max_tokens)

    def keep(
        self,
        rows: Sequence[IndexRow],
        vectors: Sequence[NDArray[np.float32]] | NDArray[np.float32],
    ) -> list[bytes]:
        """Stores the rows' vectors, in one block; returns their keys. Raises store.io."""
        import numpy as np

        if not rows or self.pack is None:
            return []
        keys = [self.pack.key(self.string(row)) for row in rows]
        with self._packing:
            self.pack.append(keys, np.asarray(vectors, np.float32))
        self.problem = None  # because the model computes again and the disk has room
        return keys

    @property
    def fingerprint(self) -> str | None:
        """The hex digest of weights, precision and longest text; None while there is no pack."""
        unopened = self.unopened  # read once: `pack` sets _pack before it clears this
        pack = self._pack if unopened is None else unopened
        return None if pack is None else pack.fingerprint.hex()

    def kept(self, strings: Sequence[str]) -> list[bytes | None]:
        """Returns the stored vector of each exact string, or None: 16-bit floats, little-endian."""
        if self.pack is None:
            return [None] * len(strings)
        rows = self.pack.rows([self.pack.key(string) for string in strings])
        halves = iter(self.pack.halves(rows[rows >= 0]))
        return [next(halves) if row >= 0 else None for row in rows.tolist()]

    def bring(self, vectors: Mapping[str, bytes]) -> None:
        """Stores vectors that another store of this model has computed; raises store.io.

        `vectors`: exact string → 16-bit floats, little-endian.
        """
        if self.pack is not None:
            self.fold({self.pack.key(string): half for string, half in vectors.items()})

    def fold(self, vectors: Mapping[bytes, bytes]) -> None:
        """Stores vectors by the pack's keys; see `bring`."""
        import numpy as np

        if not vectors or self.pack is None:
            return
        halves = np.frombuffer(b"".join(vectors.values()), "<f2").reshape(len(vectors), -1)
        with self._packing:
            self.pack.append(list(vectors), halves.astype(np.float32))

    def release(self) -> None:
        """Closes the embedder and the pack, after the last use."""
        if self._embedder is not None:
            self._embedder.close()
        if self._pack is not None:
            self._pack.close()
