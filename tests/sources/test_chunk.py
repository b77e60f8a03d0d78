"""Chunks fit the model, keep the structure and lose nothing."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from kbproc.base.text.passage import Mark, Passage, passage
from kbproc.engine.events.document import ChunkText
from kbproc.engine.sources.chunk import (
    TokenCounter,
    chunk,
    count_words,
    embed_text,
    sentences,
)
from kbproc.engine.sources.chunk import token_counter as load
from kbproc.engine.sources.parse.blocks import Block
from kbproc.engine.sources.word_counts import WordCounts, reads_word_by_word
from tests.kit import models
from tests.kit.patience import LONG

SENTENCE = "The quick brown fox number {} jumps over the lazy dog near the river. "


@cache
def real_counter() -> TokenCounter:
    return load(real_tokenizer_path())


@cache
def real_tokenizer() -> Tokenizer:
    tokenizer = Tokenizer.from_file(real_tokenizer_path())
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def real_tokenizer_path() -> str:
    folder = models.default_source().folder
    if folder is None:
        pytest.skip("the default model is not on this machine")
    return str(folder / "tokenizer.json")


def prose(n: int, **rest: object) -> Block:
    return Block(text="".join(SENTENCE.format(i) for i in range(n)).strip(), **rest)  # type: ignore[arg-type]


def cut(blocks: list[Block], **rest: object) -> list[ChunkText]:
    options = {"title": None, "count": count_words, "max_tokens": 128, "overlap": 19} | rest
    return chunk(blocks, **options)  # type: ignore[arg-type]


def solid(text: str) -> str:
    return "".join(text.split())


def assert_sound(blocks: list[Block], chunks: list[ChunkText], **rest: object) -> None:
    """Asserts that chunks fit and are not empty, and that nothing is lost or out of order."""
    title, count, most = rest["title"], rest["count"], rest["max_tokens"]
    for one in chunks:
        assert one.text.strip()
        whole = embed_text(title, one.section, one.text, max_tokens=most)  # type: ignore[arg-type]
        assert count(whole) <= most  # type: ignore[operator]
    assert joined(chunks).strip() == "\n\n".join(block.text for block in blocks).strip()
    for one in chunks:
        at = [mark.at for mark in one.marks]
        assert at == sorted(set(at)) and at[:1] in ([], [0]) and max(at, default=0) < len(one.text)


def joined(chunks: list[ChunkText]) -> str:
    """Returns the text as a reader sees it, without seams between the chunks."""
    parts = [
        ("\n\n" if one.joint is None and i else one.joint or "") + one.text[one.overlap :]
        for i, one in enumerate(chunks)
    ]
    return "".join(parts)


words = st.text(
    st.sampled_from(
        "abcdefghij ABC  \n\n..!?,;:()[]_-=/+0123456789éßñ中文字。、한국어ひらがな😀👩‍💻ﷺ\t́"
    ),
    max_size=600,
)
sections = st.none() | st.sampled_from(
    ["A", "A > B", "A > B > C", "D", "深い > 見出し" * 30, "x" * 300]
)
some_blocks = st.lists(
    st.builds(
        Block,
        text=words | st.integers(1, 30).map(lambda n: prose(n).text) | st.just("QUJD" * 500),
        page=st.none() | st.integers(1, 3),
        section=sections,
        kind=st.sampled_from(["prose", "code", "table"]),
    ),
    max_size=6,
)
titles = st.none() | st.sampled_from(["A", "A title", "題" * 300, "é😀" * 150])


@given(some_blocks, titles, st.sampled_from([32, 64, 256]), st.sampled_from([0, 10, 40]))
def test_any_blocks_with_the_estimate(
    blocks: list[Block], title: str | None, most: int, overlap: int
) -> None:
    chunks = cut(blocks, title=title, max_tokens=most, overlap=overlap)
    assert_sound(blocks, chunks, title=title, count=count_words, max_tokens=most)


@pytest.mark.model
@given(some_blocks, titles, st.sampled_from([32, 256]), st.sampled_from([0, 38]))
def test_any_blocks_with_the_real_tokenizer(
    blocks: list[Block], title: str | None, most: int, overlap: int
) -> None:
    count = real_counter()
    chunks = cut(blocks, title=title, max_tokens=most, overlap=overlap, count=count)
    assert_sound(blocks, chunks, title=title, count=count, max_tokens=most)


lines = st.lists(
    st.sampled_from(["", "a.", "  b b b.", "word " * 30, "x" * 700, "中文。" * 20]), max_size=40
)


@given(lines, st.sampled_from(["prose", "code"]), st.sampled_from([0, 40]))
def test_marks_name_the_lines_of_the_source(all: list[str], kind: Any, overlap: int) -> None:
    """Blocks as parsers make them: lines that follow each other, blank ones between blocks."""
    blocks, start = [], 0
    for i in range(len(all) + 1):
        if i == len(all) or not all[i]:
            if text := "\n".join(all[start:i]):
                blocks.append(Block(text=text, kind=kind, line=start + 1))
            start = i + 1
    for one in cut(blocks, max_tokens=64, overlap=overlap):
        place = passage(one.marks, one.text, 0, len(one.text))
        assert place.start_line and place.end_line
        head, *_, tail = [*one.text.split("\n")] * 2
        assert head in all[place.start_line - 1] and tail in all[place.end_line - 1]


def test_marks_name_pages_and_sections() -> None:
    chunks = cut(
        [
            Block(text="one", page=1, section="A"),
            Block(text="two goes on", page=1, section="B", turns=((4, 2),)),
            Block(text="three", page=2, section="B"),
        ]
    )
    (only,) = chunks
    assert (only.page, only.section) == (1, None)
    assert only.marks == [Mark(0, 1, "A"), Mark(5, 1, "B"), Mark(9, 2, "B")]
    at = only.text.index("goes")
    assert passage(only.marks, only.text, at, at + 2) == Passage(page=2, page_end=2, section="B")
    assert passage(only.marks, only.text, 0, 16) == Passage(page=1, page_end=2, section="B")


@given(some_blocks)
def test_a_counter_that_does_not_add_up_is_obeyed_too(blocks: list[Block]) -> None:
    def bytes_of(text: str) -> int:
        return 2 + len(text.encode())

    chunks = cut(blocks, count=bytes_of, max_tokens=64)
    assert_sound(blocks, chunks, title=None, count=bytes_of, max_tokens=64)


@pytest.mark.model
@given(words)
def test_wordpiece_of_sentences_adds_up_to_no_less_than_the_whole(text: str) -> None:
    count = real_counter()
    assert sum(count(part) - 2 for part in sentences(text)) >= count(text) - 2


@pytest.mark.model
@given(
    words | st.text(st.characters(exclude_categories=["Cs"])) | st.lists(st.text()).map(" ".join)
)
@example("the [MASK], not [mask]; IL-6/p53 \u2260 =\u0338 ...")
def test_words_that_are_counted_once_add_up_to_the_whole(text: str) -> None:
    """A counter promises what the tokenizer counts in the whole text."""
    tokenizer = real_tokenizer()
    assert real_counter()(text) == len(tokenizer.encode(text))
    assert reads_word_by_word(tokenizer)


def test_words_are_forgotten_before_they_take_much_memory() -> None:
    counts = WordCounts(lambda text: 2 + len(text))
    assert counts.of(" ".join(map(str, range(150_000)))) == 2 + sum(
        len(str(number)) for number in range(150_000)
    )
    assert counts.of("x" * 100_000) == 100_002
    assert len(counts) <= 1 << 16


@pytest.mark.parametrize("kind", ["prose", "code", "table"])
@pytest.mark.parametrize("between", [" ", "\n"])
def test_no_text_is_counted_over_and_over(kind: Any, between: str) -> None:
    """The counter sees a few times the characters of the text, in lines or without any."""
    counted = 0

    def count(text: str) -> int:
        nonlocal counted
        counted += len(text)
        return count_words(text)

    text = between.join(map(str, range(60_000 if LONG else 15_000)))
    turns = tuple((at, at // 20 + 1) for at in range(20, len(text), 20))
    chunks = cut([Block(text=text, kind=kind, page=1, turns=turns)], count=count)
    assert counted < 6 * len(text)
    assert chunks[-1].marks[-1].page == turns[-1][1]


@given(lines, st.sampled_from(["prose", "code", "table"]), st.lists(st.integers(1, 2000)))
def test_marks_name_the_page_of_each_character(
    all: list[str], kind: Any, places: list[int]
) -> None:
    """A search from the last turn of a page to the first finds the same."""
    text = " ".join(all).strip()
    turns = tuple((at, page) for page, at in enumerate(sorted(set(places)), 2) if at < len(text))
    block = Block(text=text, kind=kind, page=1, turns=turns)
    at = 0
    for one in cut([block] if text else [], max_tokens=64):
        at += len(one.joint or "")
        for character in range(one.overlap, len(one.text)):
            page = next((page for turn, page in reversed(turns) if turn <= at), 1)
            place = passage(one.marks, one.text, character, character + 1) if one.marks else None
            assert (place.page if place else one.page) == page
            at += 1


@given(words)
def test_sentences_join_to_the_text_again(text: str) -> None:
    assert "".join(sentences(text)) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three? Four", ["One. ", "Two! ", "Three? ", "Four"]),
        ("See Fig. 3 by J. Smith et al. Here.", ["See Fig. 3 by J. Smith et al. Here."]),
        ("It costs 3.50 e.g. today. Then", ["It costs 3.50 e.g. today. ", "Then"]),
        ("今日は。明日！「はい。」昨日？", ["今日は。", "明日！", "「はい。」", "昨日？"]),
        ('He said "no." She left.', ['He said "no." ', "She left."]),
        ("- one\n- two\n\nthree\nfour", ["- one\n", "- two\n\n", "three\nfour"]),
    ],
)
def test_where_sentences_end(text: str, expected: list[str]) -> None:
    assert sentences(text) == expected


def test_small_blocks_of_a_section_become_one_chunk() -> None:
    blocks = [Block(text=f"Paragraph {i}.", section="A") for i in range(4)]
    assert cut(blocks) == [
        ChunkText(text="Paragraph 0.\n\nParagraph 1.\n\nParagraph 2.\n\nParagraph 3.", section="A")
    ]


def test_sections_that_can_stand_alone_are_not_mixed() -> None:
    chunks = cut([prose(4, section="A"), prose(1, section="B"), prose(1, section="C")])
    assert [one.section for one in chunks] == ["A", "B", "C"]


def test_small_definitions_of_code_share_a_chunk() -> None:
    code = [
        Block(
            text=f"def {name}():\n    return sum(values) / len(values)", section=name, kind="code"
        )
        for name in ("mean", "share")
    ]
    assert len(cut(code)) == 1


def test_a_small_section_joins_its_neighbour_under_what_both_share() -> None:
    blocks = [Block(text="Tiny.", section="A > B"), Block(text="Small.", section="A > C")]
    marks = [Mark(0, None, "A > B"), Mark(7, None, "A > C")]
    assert cut(blocks) == [ChunkText(text="Tiny.\n\nSmall.", section="A", marks=marks)]


def test_an_intro_joins_the_larger_section_below_it() -> None:
    chunks = cut([Block(text="Intro.", section="A"), prose(4, section="A > B")])
    assert [one.section for one in chunks] == ["A > B"]


def test_a_long_block_is_cut_between_sentences_and_overlaps_by_whole_ones() -> None:
    chunks = cut([prose(40)], overlap=24)
    assert len(chunks) > 3
    for before, after in pairwise(chunks):
        assert before.text.endswith("river.")
        repeated = after.text[: after.overlap].strip()
        assert repeated.startswith("The quick")
        assert before.text.endswith(repeated)
        assert 0 < count_words(repeated) - 2 <= 24


def test_no_overlap_where_nothing_was_cut() -> None:
    assert [one.overlap for one in cut([prose(6, section="A"), prose(6, section="B")])] == [0, 0]


def test_code_is_cut_between_lines_and_keeps_its_indentation() -> None:
    lines = [f"    value_{i} = compute(value_{i - 1})" for i in range(60)]
    chunks = cut([Block(text="\n".join(lines), kind="code")])
    assert len(chunks) > 1
    assert [line for one in chunks for line in one.text.split("\n")] == lines


def rows(n: int, head: str = "") -> str:
    return head + "\n".join(f"{i},name of {i},{i * 3}" for i in range(n))


@pytest.mark.parametrize(
    ("head", "line"),
    [
        ("id,name,amount\n", "{},name {},7"),
        ("| id | name |\n| --- |:--:|\n", "| {} | name {} |"),
        ("id | name\n---|---\n", "{} | name {}"),
        ("A caption\nid | name\n", "{} | name {}"),
        ("\tid\tname\n", "\t{}\tname {}"),
        ('"a long\nname",amount\n', "name {},{}"),
    ],
)
def test_each_piece_of_a_table_begins_with_its_head(head: str, line: str) -> None:
    lines = [line.format(i, i) for i in range(300)]
    table = Block(text=head + "\n".join(lines), kind="table", line=5)
    chunks = cut([prose(2, line=1), table, prose(2, line=200)])
    inner = [one for one in chunks if one.overlap]
    assert len(inner) > 4
    for one in inner:
        assert one.text.startswith(head)
        assert one.overlap == len(head)
        cited = passage(one.marks, one.text, one.overlap, len(one.text.split("\n\n")[0]))
        first = one.text[one.overlap :].split("\n")[0]
        assert cited.start_line == 5 + head.count("\n") + lines.index(first)
        whole = passage(one.marks, one.text, 0, len(one.text))
        assert whole.start_line == cited.start_line, "the rows, not the head above them"
    assert joined(chunks) == "\n\n".join([prose(2).text, table.text, prose(2).text])


def test_each_of_several_tables_has_its_own_head() -> None:
    first = Block(text=rows(60, "a,b,c\n"), kind="table")
    second = Block(text=rows(60, "x,y,z\n"), kind="table")
    chunks = cut([first, second])
    heads = [one.text[: one.overlap] for one in chunks if one.overlap]
    assert heads == sorted(heads) and set(heads) == {"a,b,c\n", "x,y,z\n"}
    assert joined(chunks) == f"{first.text}\n\n{second.text}"


def test_a_head_that_would_fill_the_piece_is_not_repeated() -> None:
    block = Block(text=rows(60, "a very wide head " * 12 + "\n"), kind="table")
    assert {one.overlap for one in cut([block], max_tokens=64)} == {0}


tables = st.builds(
    lambda head, body: Block(text="\n".join([head, *body]), kind="table", line=3),
    st.sampled_from(
        ["a,b", "| a | b |\n|---|---|", "\ta", '"x\ny",z', "word " * 30, "caption\na | b"]
    ),
    st.lists(
        st.sampled_from(["1,2", "", "word " * 40, "x" * 900, "| 1 | 2 |", "中文,。", '"']),
        max_size=40,
    ),
)


@given(st.lists(tables, max_size=3), st.sampled_from([32, 64]), st.sampled_from([0, 20]))
def test_any_tables(blocks: list[Block], most: int, overlap: int) -> None:
    chunks = cut(blocks, max_tokens=most, overlap=overlap)
    assert_sound(blocks, chunks, title=None, count=count_words, max_tokens=most)
    for one in chunks:
        assert one.text[one.overlap :].strip()


def test_lines_of_a_long_block_are_counted_once() -> None:
    """The long profile: chunks whose lines count from the block's start read 30,000 times 20 MB."""
    count = 400_000 if LONG else 40_000
    log = "".join(f"2024-01-01 {i:09} INFO request served in 12 ms\n" for i in range(count))
    chunks = cut([Block(text=log, kind="code", line=1)], max_tokens=256)
    last = passage(chunks[-1].marks, chunks[-1].text, 0, len(chunks[-1].text))
    assert last.end_line == count


def test_a_giant_word_is_cut_by_characters() -> None:
    chunks = cut([Block(text="QUJDREVG" * 2000)])
    assert "".join(one.text for one in chunks) == "QUJDREVG" * 2000
    assert max(len(one.text) for one in chunks) <= 128 * 16


def test_a_chunk_has_the_page_of_its_first_new_words() -> None:
    chunks = cut([prose(5, page=1), prose(5, page=2), prose(12, page=3)])
    assert [one.page for one in chunks] == [1, 2, 3, 3]


def test_short_pages_share_a_chunk() -> None:
    assert cut([Block(text="One.", page=1), Block(text="Two.", page=2)]) == [
        ChunkText(text="One.\n\nTwo.", page=1, marks=[Mark(0, 1), Mark(6, 2)])
    ]


def test_header_of_the_embedded_string() -> None:
    assert embed_text("Guide", "A > B", "text") == "Guide\nA > B\ntext"
    assert embed_text(None, None, "text") == "text"
    assert embed_text("Guide", "Guide > A", "text") == "Guide > A\ntext"
    long = embed_text("T" * 300, "a > " * 100 + "deepest", "text")
    assert len(long.encode()) <= 192 + len("\n\ntext")
    assert "> deepest\n" in long


def test_estimate_is_generous_for_words_and_exact_enough_for_cjk() -> None:
    assert 13 <= count_words("The quick brown fox jumps over the lazy dog.") <= 16
    assert count_words("全文検索の設計") == 9
    assert count_words("") == 2
    assert count_words("the_id\t(42)\x01") == 2 + 1 + 1 + 1 + 1 + 1 + 1 + 1


@given(st.text(st.characters(max_codepoint=127)))
def test_ascii_is_counted_like_any_other_text(text: str) -> None:
    assert count_words(text) == count_words(f"{text} é") - 1


@pytest.mark.model
def test_estimate_is_not_below_the_real_count_of_common_text() -> None:
    count = real_counter()
    for text in (prose(20).text, "def parse(data: bytes, name: str) -> Parsed:\n    pass"):
        assert count(text) <= count_words(text) <= 2 * count(text)


def test_too_small_a_budget_is_refused() -> None:
    with pytest.raises(ValueError, match="needs 32 or more"):
        cut([], max_tokens=31)


@pytest.mark.parametrize("text", ["." * 200_000, "\n " * 100_000, ". " * 50_000, "!a" * 100_000])
def test_odd_texts_take_no_longer(text: str) -> None:
    assert "".join(sentences(text)) == text


def test_nothing_gives_nothing() -> None:
    assert cut([]) == []
    assert cut([Block(text="  \n ")]) == []
