"""The interface of a reranker: a query and texts go in, a score for each text comes out.

Owns: the Reranker protocol, and the stand-in where none can be used.
Refuses to know: which texts are candidates, and how a model judges them. Light.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kbproc.base.errors import KbprocError

CANDIDATES = 50


class Reranker(Protocol):
    """A cross-encoder: it reads a query and a text together. Any number of threads may ask at once.

    `name`: as its settings call it; None where none is configured. `candidates`: how many texts of
    a search it reads. `problem`: why it can't be used as it is configured.
    """

    @property
    def name(self) -> str | None: ...
    @property
    def candidates(self) -> int: ...
    @property
    def problem(self) -> KbprocError | None: ...
    @property
    def is_ready(self) -> bool:
        """False while a model has to be exported first."""

    def judge(self, query: str, texts: Sequence[str]) -> list[float]:
        """Returns for each text how well it answers, from 0 to 1: the same for the same query and
        text, whatever other texts there are. Raises model.unavailable.
        """
        ...

    def prepare(self) -> None:
        """Does in advance what the first search would wait for. Raises nothing."""
        ...

    def close(self) -> None:
        """Stops an export that runs, and does not wait for its end."""
        ...


class Unusable:
    """Stands in for a reranker that can't be used: `problem` tells the reason."""

    candidates = CANDIDATES
    is_ready = False

    def __init__(self, problem: KbprocError, name: str | None = None) -> None:
        self.problem = problem
        self.name = name

    def judge(self, query: str, texts: Sequence[str]) -> list[float]:
        raise self.problem

    def prepare(self) -> None:
        """There is nothing to prepare."""

    def close(self) -> None:
        """Nothing is open."""


def not_configured() -> Unusable:
    return Unusable(
        KbprocError(
            "model.unavailable",
            "Fusion rerank needs a cross-encoder, and none is configured.",
            hint="Name one: KBPROC_RERANK_FOLDER is a cross-encoder's folder, KBPROC_RERANK_URL "
            "and KBPROC_RERANK_MODEL an endpoint; or the table [rerank] of store.toml. Fusion "
            "blend needs none.",
            lasting=True,
        )
    )
