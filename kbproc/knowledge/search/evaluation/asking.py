"""A collection in a store of its own, and the answers to its questions.

Owns: which requests fill the store and ask it, and whose id is whose.
Refuses to know: where the store is and who answers, measures, and how anything is told.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from kbproc.base.errors import KbprocError
from kbproc.search.evaluation.collection import Collection, Document, Question

Progress = Callable[[str, int, int], None]
# A method and its params → data and meta.
Ask = Callable[[str, dict[str, Any]], dict[str, Any]]

_AT_ONCE = 200
_DEPTH = 100
_LONGEST_QUERY = 2000
_LONGEST_TITLE = 300


class Found(Struct, frozen=True):
    """`ranked`: ids of the collection's documents, best first, each with its score."""

    ranked: list[str]
    scores: list[float]

    @property
    def best(self) -> float:
        return self.scores[0] if self.scores else 0.0


class Asked:
    """The collection's store. Raises what `ask` raises."""

    def __init__(
        self, collection: Collection, ask: Ask, drain: Callable[[], object], progress: Progress
    ) -> None:
        """`drain`: has everything embedded."""
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
    ) -> list[Found]:
        found = []
        for done, question in enumerate(questions, 1):
            asked: dict[str, Any] = {"kb": self._parts[question.part]} if question.part else {}
            asked |= {"limit": _DEPTH, "per_document": 1, "text": False, "highlight": False}
            query = question.text[:_LONGEST_QUERY]
            answer = self._ask("search", {"query": query, **asked, **settings})
            hits = answer["data"]["results"]
            if settings.get("fusion") == "rerank":
                _require_judged(hits, answer["meta"])
            ranked = [self._names[hit["source"]["document_id"]] for hit in hits]
            found.append(Found(ranked, [hit["score"] for hit in hits]))
            self._progress(label, done, len(questions))
        return found

    def _fill(self, collection: Collection) -> None:
        for number, part in enumerate(dict.fromkeys(one.part for one in collection.documents), 1):
            if part is not None:
                self._parts[part] = f"part-{number}"
                self._data("kb.create", slug=self._parts[part])
        if collection.folder is not None:
            self._ingest(collection.folder)
        whole = [one for one in collection.documents if (one.title + one.text).strip()]
        for at in range(0, len(whole), _AT_ONCE):
            some = whole[at : at + _AT_ONCE]
            made = self._data("doc.create", documents=[self._created(one) for one in some])
            for told in made["documents"]:
                self._names[told["id"]] = some[told["index"]].id
            self._progress("add", at + len(some), len(whole))

    def _created(self, one: Document) -> dict[str, Any]:
        title = " ".join(one.title.split())[:_LONGEST_TITLE] or "-"
        made = {"title": title, "text": one.text or one.title, "source_id": one.id}
        return made | ({"kb": self._parts[one.part]} if one.part else {})

    def _ingest(self, folder: Path) -> None:
        root = folder.resolve()
        self._data("doc.ingest", paths=[str(root)], exclude=["questions.jsonl"])
        after: str | None = None
        while True:
            page = self._ask("doc.list", {"limit": 1000, **({"cursor": after} if after else {})})
            for one in page["data"]:
                self._names[one["id"]] = str(Path(one["source"]["path"]).relative_to(root))
            after = page["meta"].get("next_cursor")
            if after is None:
                return

    def _data(self, name: str, **params: Any) -> Any:
        return self._ask(name, params)["data"]


def _require_judged(hits: list[dict[str, Any]], meta: Mapping[str, Any]) -> None:
    """Figures of hits that no cross-encoder has read would be those of the blend.

    Raises model.unavailable.
    """
    if all("rerank" in hit["score_breakdown"] for hit in hits):
        return
    raise KbprocError(
        "model.unavailable",
        " ".join(meta.get("notice") or ["No cross-encoder has read the hits."]),
        hint="kbproc doctor tells of the cross-encoder; then run the evaluation again.",
    )
