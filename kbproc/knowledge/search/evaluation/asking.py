"""Fills a store with a collection, asks its questions and returns the rankings.

Document ids of the store are mapped back to those of the collection.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from kbproc.base.errors import KbprocError
from kbproc.knowledge.search.evaluation.collection import Collection, CollectionDocument, Question

Progress = Callable[[str, int, int], None]
# Takes a method and its params; returns data and meta.
Ask = Callable[[str, dict[str, Any]], dict[str, Any]]

_AT_ONCE = 200
_DEPTH = 100
_LONGEST_QUERY = 2000
_LONGEST_TITLE = 300


class Ranking(Struct, frozen=True):
    """The documents of an answer. `ranked`: their ids in the collection, best first; `scores`: the
    score of each.
    """

    ranked: list[str]
    scores: list[float]

    @property
    def best(self) -> float:
        return self.scores[0] if self.scores else 0.0


class EvaluationStore:
    """The store of a collection. Its methods raise what `ask` raises."""

    def __init__(
        self, collection: Collection, ask: Ask, drain: Callable[[], object], progress: Progress
    ) -> None:
        """`drain`: waits until everything is embedded."""
        self._ask = ask
        self._progress = progress
        self._parts: dict[str, str] = {}
        self._names: dict[int, str] = {}
        self._fill(collection)
        drain()

    @property
    def documents(self) -> int:
        return len(self._names)

    def answers(
        self, questions: list[Question], label: str, settings: Mapping[str, Any]
    ) -> list[Ranking]:
        rankings = []
        for done, question in enumerate(questions, 1):
            options: dict[str, Any] = {"kb": self._parts[question.part]} if question.part else {}
            options |= {"limit": _DEPTH, "per_document": 1, "text": False, "highlight": False}
            query = question.text[:_LONGEST_QUERY]
            answer = self._ask("search", {"query": query, **options, **settings})
            hits = answer["data"]["results"]
            if settings.get("fusion") == "rerank":
                _require_judged(hits, answer["meta"])
            ranked = [self._names[hit["source"]["document_id"]] for hit in hits]
            rankings.append(Ranking(ranked, [hit["score"] for hit in hits]))
            self._progress(label, done, len(questions))
        return rankings

    def _fill(self, collection: Collection) -> None:
        parts = dict.fromkeys(document.part for document in collection.documents)
        for number, part in enumerate(parts, 1):
            if part is not None:
                self._parts[part] = f"part-{number}"
                self._data("kb.create", slug=self._parts[part])
        if collection.folder is not None:
            self._ingest(collection.folder)
        documents = [d for d in collection.documents if (d.title + d.text).strip()]
        for at in range(0, len(documents), _AT_ONCE):
            batch = documents[at : at + _AT_ONCE]
            created = self._data("doc.create", documents=list(map(self._params, batch)))
            for result in created["documents"]:
                self._names[result["id"]] = batch[result["index"]].id
            self._progress("add", at + len(batch), len(documents))

    def _params(self, document: CollectionDocument) -> dict[str, Any]:
        title = " ".join(document.title.split())[:_LONGEST_TITLE] or "-"
        params = {"title": title, "text": document.text or document.title, "source_id": document.id}
        return params | ({"kb": self._parts[document.part]} if document.part else {})

    def _ingest(self, folder: Path) -> None:
        root = folder.resolve()
        self._data("doc.ingest", paths=[str(root)], exclude=["questions.jsonl"])
        cursor: str | None = None
        while True:
            page = self._ask("doc.list", {"limit": 1000, **({"cursor": cursor} if cursor else {})})
            for document in page["data"]:
                path = Path(document["source"]["path"])
                self._names[document["id"]] = str(path.relative_to(root))
            cursor = page["meta"].get("next_cursor")
            if cursor is None:
                return

    def _data(self, name: str, **params: Any) -> Any:
        return self._ask(name, params)["data"]


def _require_judged(hits: list[dict[str, Any]], meta: Mapping[str, Any]) -> None:
    """Raises model.unavailable if the cross-encoder has not read all hits.

    Otherwise the figures would be those of the blend.
    """
    if all("rerank" in hit["score_breakdown"] for hit in hits):
        return
    raise KbprocError(
        "model.unavailable",
        " ".join(meta.get("notice") or ["No cross-encoder has read the hits."]),
        hint="Check the cross-encoder with kbproc doctor, then run the evaluation again.",
    )
