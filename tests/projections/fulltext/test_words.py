"""Words of chunks: many at once are indexed like few, and each text has its words."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from kbproc.base.text.query import parse_query
from kbproc.engine.log.record import Position
from kbproc.engine.projections.catalog.rows import IndexRow
from kbproc.engine.projections.fulltext.index import FullText
from kbproc.engine.projections.fulltext.words import words_of

TEXTS = (
    "Installing git from source takes a while; parseQuery and parse_tree are quick in C++.",
    "Über die Straße läuft ein naïver Hund, und der ist nicht von hier.",
    "黑豹队的防守丢了三百零八分，在联盟中排名第六。",
    "Кошки спят на диванах; v2.3.1, CVE-2024-3094, wi-fi, 1,284,500.",
    "",
)
MANY = 401


def rows(count: int, first: int = 0) -> list[IndexRow]:
    return [
        IndexRow(
            chunk_id=number,
            document_id=number,
            label="default",
            title=f"Title {number}",
            section="Part › One" if number % 2 else None,
            text=TEXTS[number % len(TEXTS)],
            path=f"/notes/deep/file-{number}.md" if number % 3 else None,
        )
        for number in range(first, first + count)
    ]


def test_an_index_finds_many_chunks_like_few(tmp_path: Path) -> None:
    chunks = rows(MANY)
    position = Position(1, "one")
    at_once, one_by_one = (FullText.open(tmp_path / name) for name in ("many", "few"))
    at_once.apply([], chunks, position)
    for chunk in chunks:
        one_by_one.apply([], [chunk], position)
    try:
        for index in (at_once, one_by_one):
            index.commit()
        for query in ("git", "straße", "防守", "кошка", "wifi", "file", "deep", "title 7"):
            first, second = (
                index.snapshot().search(parse_query(query), 50) for index in (at_once, one_by_one)
            )
            assert first.total == second.total > 0, query
            assert first.chunk_ids == second.chunk_ids
    finally:
        at_once.close()
        one_by_one.close()


def test_a_removal_meets_chunks_that_are_staged(tmp_path: Path) -> None:
    index = FullText.open(tmp_path / "fulltext")
    try:
        index.apply([], rows(MANY), Position(1, "one"))
        index.apply([0, MANY - 1], rows(1), Position(2, "two"))
        index.commit()
        hits = index.snapshot().search(parse_query("title"), MANY + 1)
        assert sorted(hits.chunk_ids) == list(range(MANY - 1))
    finally:
        index.close()


@given(st.lists(st.tuples(st.text(max_size=30), st.none() | st.text(max_size=9)), max_size=4))
def test_words_have_a_value_for_each_text(texts: list[tuple[str, str | None]]) -> None:
    for text, section in texts:
        words = words_of(IndexRow(1, 1, "default", text, section, f"{text}. {text}", f"/{text}"))
        assert len(words.stem) == len(words.word) == 3
        assert len(words.head) in {0, 3}
