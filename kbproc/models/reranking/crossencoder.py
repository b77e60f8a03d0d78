"""A cross-encoder from a folder.

Owns: exporting and loading it when it is first needed, and how long a search waits for it.
Refuses to know: how it is exported and run, and which texts are judged.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kbproc.base.errors import KbprocError
from kbproc.models.reranking.export import export, exported_folder, located
from kbproc.models.reranking.exported import Exported, logistic, read_meta
from kbproc.models.reranking.judgements import Judgements

_logger = logging.getLogger(__name__)


class CrossEncoder:
    """The reranker of a folder; exported and loaded when it is first asked, or by `prepare`."""

    def __init__(self, folder: str, cache: Path, candidates: int, timeout_s: float) -> None:
        """Raises model.unavailable if there is no cross-encoder in the folder."""
        self._source = located(Path(os.path.expanduser(folder)))  # noqa: PTH111  never raises
        self._exported = exported_folder(cache, self._source)
        self.name: str | None = self._source.name
        self.problem: KbprocError | None = None
        self.candidates = candidates
        self._timeout_s = timeout_s
        self._closed = threading.Event()
        self._loading = threading.Lock()
        self._model: Exported | None = None
        self._judgements = Judgements()

    @property
    def is_ready(self) -> bool:
        return read_meta(self._exported) is not None

    def judge(self, query: str, texts: Sequence[str]) -> list[float]:
        """See Reranker."""
        model = self._load()
        encoding = model.query(query)
        deadline = time.monotonic() + self._timeout_s

        def scores(some: list[str]) -> list[float]:
            return [self._in_time(model, encoding, text, deadline) for text in some]

        return self._judgements.of(query, texts, scores)

    def _in_time(self, model: Exported, query: Any, text: str, deadline: float) -> float:
        if time.monotonic() > deadline:
            raise KbprocError(
                "model.unavailable",
                f"{self.name} did not read all candidates within {self._timeout_s:g} seconds.",
                hint="Raise rerank.timeout_s, or lower rerank.candidates.",
            )
        return logistic(model.logit(query, text))

    def _load(self) -> Exported:
        """Returns the model. A search waits for an export that runs, at most `timeout_s`."""
        if (model := self._model) is not None:
            return model
        if not self._loading.acquire(timeout=self._timeout_s):
            raise KbprocError("model.unavailable", f"{self.name} is being prepared.")
        try:
            if self._model is None:
                export(self._source, self._exported, cancelled=self._closed.is_set)
                self._model = Exported(self._exported)
            return self._model
        finally:
            self._loading.release()

    def prepare(self) -> None:
        try:
            self._load()
        except KbprocError as error:
            _logger.warning("the cross-encoder is not ready: %s", error.message)

    def close(self) -> None:
        self._closed.set()
