"""New files are paired with notes whose files are missing, at a bounded cost."""

from __future__ import annotations

import random
import tracemalloc
from typing import Any

from kbproc.engine.projections.catalog.rows import DocumentRow
from kbproc.knowledge.agents.notes.diff import Diff, FileChange, with_renames
from kbproc.knowledge.agents.notes.files import MOST_BYTES


def row_of(id: int, size: int) -> DocumentRow:
    return DocumentRow(
        id=id,
        kb="",
        title="",
        type="note",
        path=None,
        url=None,
        source_id=f"old-{id}",
        tags=[],
        metadata="{}",
        revision=1,
        chunk_count=1,
        size_bytes=size,
        sha256="",
        parser=1,
        pages=None,
        created_at="",
        updated_at="",
        created_by="gitea",
        deleted_at=None,
        touched=1,
        updated_by="gitea",
        source_facts=None,
    )


def text_of(size: int, seed: int) -> str:
    letters = random.Random(seed)
    return "".join(letters.choices("abcdefghijklmnopqrstuvwxyz ", k=size))


class Case:
    """Notes without files, and new files, by their texts; `read` lists the texts that were read."""

    def __init__(self, old: list[str], new: list[str]) -> None:
        self.rows = [row_of(number, len(text)) for number, text in enumerate(old, 1)]
        self._old, self._new = old, {f"new-{number}": text for number, text in enumerate(new, 1)}
        self.read: list[Any] = []

    def renamed(self) -> dict[str, int]:
        """Slug of a new file → id of the note that the file continues."""
        diff = Diff(
            note_count=len(self.rows),
            changes=[FileChange("added", slug, "") for slug in self._new],
            removed=self.rows,
            unchanged=0,
            skipped=[],
        )
        done = with_renames(
            diff,
            size_of=lambda slug: len(self._new[slug]),
            old_text=lambda row: self._text(row.id, self._old[row.id - 1]),
            new_text=lambda slug: self._text(slug, self._new[slug]),
        )
        ids = {one.slug: one.row.id for one in done.changes if one.row is not None}
        assert {row.id for row in done.removed} == {row.id for row in self.rows} - {*ids.values()}
        return ids

    def _text(self, name: Any, text: str) -> str:
        self.read.append(name)
        return text


def test_files_are_paired_with_the_most_similar_notes() -> None:
    texts = [text_of(1000, seed) for seed in range(4)]
    new = [texts[2] + "!", texts[0][:800] + texts[1][:200], text_of(1000, 9)]
    assert Case(texts, new).renamed() == {"new-1": 3, "new-2": 1}
    assert Case(new, texts).renamed() == {"new-1": 2, "new-3": 1}


def test_texts_of_other_sizes_are_not_read() -> None:
    case = Case([text_of(1000, 1), text_of(100, 2)], [text_of(1000, 1)[:499]])
    assert (case.renamed(), case.read) == ({}, [])
    case = Case([text_of(1000, 1), text_of(100, 2)], [text_of(1000, 1)[:510]])
    assert (case.renamed(), case.read) == ({"new-1": 1}, [1, "new-1"])


def peak(old: list[str], new: list[str]) -> int:
    case = Case(old, new)
    tracemalloc.start()
    try:
        case.renamed()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_does_not_grow_with_the_texts_of_the_larger_side() -> None:
    many, one = [text_of(8000, seed) for seed in range(20)], [text_of(8000, 99)]
    assert peak(many, one) < 1.5 * peak(many[:3], one)
    assert peak(one, many) < 1.5 * peak(one, many[:3])


def test_more_bytes_than_a_look_may_compare_are_not_read() -> None:
    """A new file beside hundreds of missing notes, each as large as a note may be."""
    large = text_of(MOST_BYTES, 1)
    case = Case([large] * 300, [large + "!"])
    assert (case.renamed(), case.read) == ({}, [])
    case = Case(["small note"] * 10_000, ["small notes"] * 10_000)
    assert (case.renamed(), case.read) == ({}, [])
    case = Case([large], [large[:-1]])
    assert case.renamed() == {"new-1": 1}
