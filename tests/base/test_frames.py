"""Frames and lines: what is written is read, wherever blocks begin, and a cut stream ends."""

from __future__ import annotations

import io

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from kbproc.base.frames import LENGTH, frame, read_frame
from kbproc.base.lines import LineCutter

MESSAGES = st.recursive(
    st.none() | st.integers(-9, 9) | st.text(max_size=9) | st.binary(max_size=9),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=5,
)


@given(st.lists(MESSAGES, max_size=4), st.integers(0, 8))
def test_frames_are_read_as_written_and_a_cut_one_is_none(messages: list[object], cut: int) -> None:
    whole = b"".join(map(frame, messages))
    source = io.BytesIO(whole)
    for message in messages:
        body = read_frame(source)
        assert body is not None
        assert msgspec.msgpack.decode(body) == message
    assert read_frame(source) is None
    if messages and 0 < cut < len(frame(messages[-1])):
        source = io.BytesIO(whole[:-cut])
        for _ in messages[:-1]:
            assert read_frame(source) is not None
        assert read_frame(source) is None


def test_a_length_is_four_bytes_before_the_message() -> None:
    assert frame("words") == LENGTH.pack(6) + msgspec.msgpack.encode("words")


@given(st.lists(st.text("ab\n", max_size=5).map(str.encode), max_size=6))
def test_lines_are_the_same_wherever_the_blocks_begin(blocks: list[bytes]) -> None:
    cutter = LineCutter()
    lines = [line for block in blocks for line in cutter.take(block)]
    *expected, rest = b"".join(blocks).split(b"\n")
    assert (lines, cutter.unfinished_bytes, cutter.unfinished()) == (expected, len(rest), rest)
    assert cutter.take(b"c\n") == [b"c"]  # the rest is forgotten
