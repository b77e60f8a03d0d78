"""The survey names exactly the damaged places and lost records, and keeps the sound ones."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import astuple

from kbproc.engine.log import file
from kbproc.engine.log import record as records
from kbproc.engine.log.file import FileLog
from kbproc.engine.log.file import survey_folder as survey
from kbproc.engine.log.interface import Lost, Survey
from kbproc.engine.log.record import START, Position, Record
from tests.kit.faults import cut, flip, lines_of, zero
from tests.kit.records import commit, draft, put, split


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, list[Record]]]:
    """A log of twelve records in four segments."""
    folder = tmp_path_factory.mktemp("sound") / "log"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file, "SEGMENT_BYTES", 900)
        log = FileLog.open(folder)
        written = []
        for number in range(1, 13):
            written += commit(log, [draft(number, 40)])
        log.close()
    assert len(list(folder.iterdir())) == 4
    yield folder, written


@pytest.fixture
def log(sound: tuple[Path, list[Record]], tmp_path: Path) -> Path:
    """A copy of the log that a test may damage."""
    return Path(shutil.copytree(sound[0], tmp_path / "log"))


def places_of(report: Survey) -> list[tuple[str, int, int | None, str]]:
    return [astuple(place) for place in report.places]


def lost_spans(report: Survey) -> list[tuple[int, int]]:
    return [(part.first, part.last.seq) for part in report.lost]


def kept_seqs(report: Survey) -> list[int]:
    return [part.position.seq for part in report.chain if not isinstance(part, Lost)]


SECOND = "000000000004.ndjson"


def test_a_sound_log(sound: tuple[Path, list[Record]]) -> None:
    folder, written = sound
    for position in (START, written[3].position, written[-1].position):
        report = survey(folder, position)
        assert not report.damaged
        assert kept_seqs(report) == list(range(1, 13))
        assert report.holds(position)
    assert not survey(folder, Position(12, "f" * 32)).holds(Position(12, "f" * 32))


def test_no_log_at_all(tmp_path: Path) -> None:
    assert survey(tmp_path / "log") == Survey([], [])
    assert lost_spans(survey(tmp_path / "log", Position(3, "a" * 32))) == [(1, 3)]


def test_a_damaged_line_is_named_with_what_is_lost(log: Path) -> None:
    lines = split(log / SECOND)
    lines[1] = lines[1].replace(b"xxxx", b"xxyx")
    put(lines, log / SECOND)
    report = survey(log)
    assert places_of(report) == [(SECOND, 2, 5, "holds a damaged record")]
    assert lost_spans(report) == [(5, 5)]
    assert str(report.lost[0]) == f"record 5 is lost ({SECOND}, line 3)"


def test_a_line_that_is_no_json(log: Path) -> None:
    lines = split(log / SECOND)
    lines[1] = b"{" + lines[1]
    put(lines, log / SECOND)
    report = survey(log)
    assert report.places[0].wrong == "can't be read"
    assert lost_spans(report) == []
    assert kept_seqs(report) == list(range(1, 13)), "the record in it is sound"


def test_a_damaged_newline_costs_nothing(log: Path) -> None:
    data = (log / SECOND).read_bytes()
    end = data.index(b"\n")
    for between in (b"K", b""):
        (log / SECOND).write_bytes(data[:end] + between + data[end + 1 :])
        report = survey(log)
        assert [(place.line, place.seq) for place in report.places] == [(1, 4)]
        assert (lost_spans(report), kept_seqs(report)) == ([], list(range(1, 13)))


def test_dropped_lines(log: Path) -> None:
    lines = split(log / SECOND)
    put([lines[0]], log / SECOND)
    assert lost_spans(survey(log)) == [(5, 6)]
    assert places_of(survey(log)) == []


def test_a_repeated_line(log: Path) -> None:
    lines = split(log / SECOND)
    put([lines[0], lines[1], lines[1], lines[2]], log / SECOND)
    assert places_of(survey(log)) == [(SECOND, 3, 5, "is repeated")]
    assert lost_spans(survey(log)) == []


def test_swapped_lines(log: Path) -> None:
    lines = split(log / SECOND)
    put([lines[1], lines[0], lines[2]], log / SECOND)
    assert places_of(survey(log)) == [(SECOND, 2, 4, "stands after seq 5")]
    assert kept_seqs(survey(log)) == list(range(1, 13))


def test_a_missing_segment(log: Path) -> None:
    (log / SECOND).unlink()
    assert lost_spans(survey(log)) == [(4, 6)]


def test_a_missing_beginning(log: Path) -> None:
    (log / "000000000001.ndjson").unlink()
    report = survey(log)
    assert lost_spans(report) == [(1, 3)]
    assert report.lost[0].prev == records.GENESIS


def test_a_lost_end_is_known_from_the_views(log: Path, sound: tuple[Path, list[Record]]) -> None:
    last = log / "000000000010.ndjson"
    lines = split(last)
    put(lines[:1], last)
    assert not survey(log).damaged, "nobody knows better"
    position = sound[1][-1].position
    report = survey(log, position)
    assert lost_spans(report) == [(11, 12)]
    assert report.lost[0].last == position
    put([lines[0], lines[1][:50]], last)
    report = survey(log, position)
    assert places_of(report) == [(last.name, 2, 11, "is cut off")]
    assert lost_spans(report) == [(11, 12)]


def test_a_torn_tail_is_no_damage(log: Path, sound: tuple[Path, list[Record]]) -> None:
    last = log / "000000000010.ndjson"
    last.write_bytes(last.read_bytes() + b'{"seq":13,"ts":"20')
    for position in (START, sound[1][-1].position):
        assert not survey(log, position).damaged


def test_a_damaged_end_that_no_view_has_seen_keeps_its_number(log: Path) -> None:
    """A lost record keeps its seq: a client may know it, so no new record may reuse it."""
    last = log / "000000000010.ndjson"
    last.write_bytes(last.read_bytes() + b"gibberish\n" + b'{"seq":14,"more":1}\n')
    report = survey(log)
    assert [(place.line, place.seq) for place in report.places] == [(4, None), (5, 14)]
    assert lost_spans(report) == [(13, 14)]


def test_a_record_of_another_history(log: Path, sound: tuple[Path, list[Record]]) -> None:
    """The end of the chain decides which of two records belongs to this log."""
    other = records.seal(draft(99), Position(4, "b" * 32))
    lines = split(log / SECOND)
    put([lines[0], records.encode(other) + b"\n", lines[1], lines[2]], log / SECOND)
    report = survey(log)
    assert places_of(report) == [(SECOND, 2, 5, "does not belong to this log's chain")]
    assert kept_seqs(report) == list(range(1, 13))


@given(st.floats(0, 1, exclude_max=True), st.sampled_from([flip, cut, zero]), st.integers(0, 3))
def test_any_harm_to_a_segment(
    sound: tuple[Path, list[Record]],
    tmp_path_factory: pytest.TempPathFactory,
    where: float,
    harm: Any,
    number: int,
) -> None:
    """Lost and kept records together make up the whole log; the kept ones verify."""
    folder, written = sound
    log = Path(shutil.copytree(folder, tmp_path_factory.mktemp("harmed") / "log"))
    segment = sorted(log.iterdir())[number]
    before = segment.read_bytes()
    segment.write_bytes(harm(before, where))
    report = survey(log, written[-1].position)
    intact = [line for _, _, line in lines_of(log) if line in set(before.splitlines(True))]
    assert len(kept_seqs(report)) >= len(written) - len(before.splitlines()) + len(intact)
    covered = sorted(
        kept_seqs(report) + [n for a, b in lost_spans(report) for n in range(a, b + 1)]
    )
    assert covered == list(range(1, 13))
    if segment.read_bytes() != before:
        assert report.damaged
    for part in report.chain:
        if not isinstance(part, Lost):
            assert records.decode(part.read()) == written[part.position.seq - 1]
    shutil.rmtree(log.parent)
