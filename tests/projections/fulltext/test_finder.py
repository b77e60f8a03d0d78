"""Finding words ahead gives the words that are found here, in order, if the process dies, too."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbproc.base import sandbox
from kbproc.base.text.query import parse_query
from kbproc.engine.log.record import Position
from kbproc.engine.projections.catalog.rows import IndexRow
from kbproc.engine.projections.fulltext.finder import FEW, MANY, SLICE, FoundWords, WordFinder
from kbproc.engine.projections.fulltext.index import FullText
from kbproc.engine.projections.fulltext.words import ChunkTexts, ChunkWords, words_of
from tests.kit.patience import until

TEXTS = (
    "Installing git from source takes a while; parseQuery and parse_tree are quick in C++.",
    "Über die Straße läuft ein naïver Hund, und der ist nicht von hier.",
    "黑豹队的防守丢了三百零八分，在联盟中排名第六。",
    "Кошки спят на диванах; v2.3.1, CVE-2024-3094, wi-fi, 1,284,500.",
    "",
)
Processes = list[subprocess.Popen[Any]]


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


def check(answer: FoundWords, chunks: list[IndexRow]) -> None:
    pairs = list(answer)
    assert [row for row, _ in pairs] == chunks
    for row, words in pairs:
        texts = ChunkTexts(row.title, row.section, row.text, row.path, row.url)
        assert words == words_of(texts)


@pytest.fixture
def finder() -> Iterator[WordFinder]:
    finder = WordFinder()
    yield finder
    finder.close()


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> Processes:
    """Returns the processes that are started, as they are."""
    started: Processes = []
    start: Callable[..., subprocess.Popen[Any]] = sandbox.popen

    def note(command: list[str], **options: Any) -> subprocess.Popen[Any]:
        started.append(start(command, **options))
        return started[-1]

    monkeypatch.setattr("kbproc.base.sandbox.popen", note)
    return started


def begin(finder: WordFinder, processes: Processes) -> list[IndexRow]:
    """Adds many chunks and waits until the process has begun; returns them."""
    chunks = rows(MANY + SLICE)
    finder.add(chunks)
    until(lambda: processes, "the process")
    return chunks


def test_many_chunks_are_found_by_one_process_in_order(
    finder: WordFinder, processes: Processes
) -> None:
    chunks = begin(finder, processes)
    check(finder.all(), chunks)
    more = rows(2 * SLICE + 7, first=1000)
    finder.add(more)
    check(finder.all(), more)
    assert len(processes) == 1
    assert processes[0].poll() is None


def test_few_chunks_start_no_process(finder: WordFinder, processes: Processes) -> None:
    finder.add(rows(MANY - 1))
    assert list(finder.ready()) == []
    check(finder.all(), rows(MANY - 1))
    assert list(finder.all()) == []
    assert processes == []


def test_few_chunks_at_a_time_are_many_in_the_end(finder: WordFinder, processes: Processes) -> None:
    for number in range(MANY + FEW):
        finder.add(rows(1, first=number))
    until(lambda: processes, "the process")
    check(finder.all(), rows(MANY + FEW))


def test_ready_yields_what_the_process_has_found(finder: WordFinder, processes: Processes) -> None:
    chunks = begin(finder, processes)
    pairs: list[tuple[IndexRow, ChunkWords]] = []
    until(lambda: pairs.extend(finder.ready()) or len(pairs) >= SLICE, "the first slice")
    check(iter([*pairs, *finder.all()]), chunks)


def test_a_full_finder_is_emptied_by_all(finder: WordFinder) -> None:
    added: list[IndexRow] = []
    while not finder.is_full:
        some = rows(1000, first=len(added))
        finder.add(some)
        added += some
    check(finder.all(), added)
    assert not finder.is_full


def test_a_killed_process_loses_no_chunk(
    finder: WordFinder, processes: Processes, caplog: pytest.LogCaptureFixture
) -> None:
    chunks = begin(finder, processes)
    processes[0].kill()
    with caplog.at_level(logging.WARNING):
        later = rows(MANY, first=1000)
        finder.add(later)
        check(finder.all(), chunks + later)
    finder.end_idle_process()  # after a pause it is tried again
    check(finder.all(), [])
    again = rows(MANY, first=5000)
    finder.add(again)
    check(finder.all(), again)


ANSWERS_WRONGLY = """
import sys
from kbproc.base.frames import frame, read_frame
while read_frame(sys.stdin.buffer) is not None:
    sys.stdout.buffer.write(ANSWER)
    sys.stdout.buffer.flush()
"""


@pytest.mark.parametrize(
    "answer", ["frame([])", "frame('words')", r"b'\0\0\0\1\xc1'", "b'\\0\\0'; sys.exit()"]
)
def test_a_process_that_answers_wrongly_is_not_believed(
    finder: WordFinder,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    answer: str,
) -> None:
    def start(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        write, _, rest = answer.partition("; ")
        code = ANSWERS_WRONGLY.replace("ANSWER)", f"{write}); {rest}")
        return subprocess.Popen([sys.executable, "-c", code], **options)

    monkeypatch.setattr("kbproc.base.sandbox.popen", start)
    finder.add(rows(MANY))
    with caplog.at_level(logging.WARNING):
        check(finder.all(), rows(MANY))


def test_a_system_without_room_for_a_process_finds_the_words_here(
    finder: WordFinder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(command: list[str], **options: Any) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr("kbproc.base.sandbox.popen", fail)
    finder.add(rows(MANY))
    finder.add(rows(MANY, first=MANY))
    check(finder.all(), rows(2 * MANY))


def test_cleared_chunks_are_gone(finder: WordFinder, processes: Processes) -> None:
    begin(finder, processes)
    finder.clear()
    finder.add(rows(3, first=9))
    check(finder.all(), rows(3, first=9))


def test_a_resting_finder_has_no_process_unless_it_has_work(
    finder: WordFinder, processes: Processes
) -> None:
    chunks = begin(finder, processes)
    finder.end_idle_process()
    assert processes[0].poll() is None
    check(finder.all(), chunks)
    finder.end_idle_process()
    assert processes[0].poll() is not None
    finder.add(chunks)
    check(finder.all(), chunks)
    until(lambda: len(processes) == 2, "another process")


def test_closing_ends_a_process_that_is_at_work(processes: Processes) -> None:
    finder = WordFinder()
    begin(finder, processes)
    finder.close()
    assert processes[0].poll() is not None
    assert list(finder.all()) == []


def test_an_index_finds_many_chunks_like_few(tmp_path: Path) -> None:
    chunks = rows(1500)
    position = Position(1, "one")
    at_once, one_by_one = (FullText.open(tmp_path / name) for name in ("many", "few"))
    at_once.apply([], chunks, position)
    for chunk in chunks:
        one_by_one.apply([], [chunk], position)
    try:
        for query in ("git", "straße", "防守", "кошка", "wifi", "file", "deep", "title 7"):
            for index in (at_once, one_by_one):
                index.commit()
            first, second = (
                index.snapshot().search(parse_query(query), 50) for index in (at_once, one_by_one)
            )
            assert first.total == second.total > 0, query
            assert first.chunk_ids == second.chunk_ids
    finally:
        at_once.close()
        one_by_one.close()


def test_a_removal_meets_chunks_whose_words_are_still_being_found(tmp_path: Path) -> None:
    index = FullText.open(tmp_path / "fulltext")
    try:
        index.apply([], rows(MANY + 1), Position(1, "one"))
        index.apply([0, MANY], rows(1), Position(2, "two"))
        index.commit()
        hits = index.snapshot().search(parse_query("title"), MANY + 2)
        assert sorted(hits.chunk_ids) == list(range(MANY))
    finally:
        index.close()


@given(st.lists(st.tuples(st.text(max_size=30), st.none() | st.text(max_size=9)), max_size=4))
def test_words_have_a_value_for_each_text(texts: list[tuple[str, str | None]]) -> None:
    for text, section in texts:
        words = words_of(ChunkTexts(text, section, f"{text}. {text}", f"/{text}", None))
        assert len(words.stem) == len(words.word) == 3
        assert len(words.head) in {0, 3}
