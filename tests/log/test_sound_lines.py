"""A survey gives the place of every sound record, so that its bytes can be read again."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbproc.engine.log import record as records
from kbproc.engine.log.file import FileLog
from kbproc.engine.log.interface import Lost
from kbproc.engine.log.record import START, Position, Record
from kbproc.engine.log.survey import SoundLine, survey
from tests.kit.records import put, split, write

SEGMENT = "000000000001.ndjson"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def written(folder: Path) -> list[Record]:
    """Three records in one segment."""
    log = FileLog.open(folder)
    try:
        return write(log, 3, size=20)
    finally:
        log.close()


def test_each_record_is_read_from_its_place(folder: Path, written: list[Record]) -> None:
    chain = survey(folder).chain
    assert [type(part) for part in chain] == [SoundLine] * 3
    for number, (part, record) in enumerate(zip(chain, written, strict=True), 1):
        assert isinstance(part, SoundLine)
        assert (part.line, part.segment.name, part.position) == (number, SEGMENT, record.position)
        assert part.read() == records.encode(record)


def test_two_records_on_one_line_keep_their_own_places(folder: Path, written: list[Record]) -> None:
    lines = split(folder / SEGMENT)
    put([lines[0].rstrip(b"\n") + lines[1], lines[2]], folder / SEGMENT)
    report = survey(folder)
    assert [place.line for place in report.places] == [1]
    first, second, third = report.chain
    assert isinstance(first, SoundLine) and isinstance(second, SoundLine)
    assert isinstance(third, SoundLine)
    assert [part.line for part in (first, second, third)] == [1, 1, 2]
    assert (first.offset, second.offset) == (0, first.size)
    assert [part.read() for part in (first, second, third)] == list(map(records.encode, written))


def test_a_damaged_end_has_an_unknown_hash_that_depends_on_its_bytes(
    folder: Path, written: list[Record]
) -> None:
    lines = split(folder / SEGMENT)
    ends = []
    for end in (b"gibberish\n", b"nonsense\n"):
        put([*lines, end], folder / SEGMENT)
        *_, last = survey(folder).chain
        assert isinstance(last, Lost)
        assert (last.first, last.last.seq, last.prev) == (4, 4, written[-1].hash)
        ends.append(last.last.hash)
    assert ends[0] != ends[1]


def test_a_projection_ahead_of_the_log_ends_the_chain_at_its_own_position(
    folder: Path, written: list[Record]
) -> None:
    applied = Position(5, "f" * 32)
    *sound, lost = survey(folder, applied).chain
    assert len(sound) == 3 and isinstance(lost, Lost)
    assert (lost.first, lost.last) == (4, applied)
    assert survey(folder, START).chain == sound
