"""Writers share a commit, and none waits for later turns."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from kbproc.base.gate import Hold
from kbproc.engine.store.lane import Ticket, Turns
from tests.kit.patience import PATIENCE, until


class Disk:
    """Runs tickets; each run waits for `let_go`."""

    def __init__(self) -> None:
        self.runs: list[int] = []
        self._go_on = threading.Semaphore(0)

    def run(self, tickets: list[Ticket[Any]]) -> None:
        self.runs.append(len(tickets))
        assert self._go_on.acquire(timeout=PATIENCE)
        for ticket in tickets:
            ticket.result = ticket.work(None)  # type: ignore[arg-type]

    def let_go(self) -> None:
        self._go_on.release()


class Writer:
    def __init__(self, turns: Turns, number: int) -> None:
        self.result: int | None = None
        self.thread = threading.Thread(target=self._write, args=(turns, number), daemon=True)
        self.thread.start()

    def _write(self, turns: Turns, number: int) -> None:
        self.result = turns.enter(lambda lane: number)()


def begin(turns: Turns, numbers: range) -> list[Writer]:
    """Starts writers in this order."""
    writers = []
    for number in numbers:
        waiting = len(turns.queue)
        writers.append(Writer(turns, number))
        until(lambda before=waiting: len(turns.queue) > before, "a writer in the queue")
    return writers


def ended(writers: list[Writer]) -> Callable[[], bool]:
    return lambda: all(writer.result is not None for writer in writers)


def test_whoever_waits_shares_a_commit() -> None:
    disk = Disk()
    turns = Turns(disk.run)
    first = Writer(turns, 0)
    until(lambda: disk.runs == [1], "the first commit")
    waiting = begin(turns, range(1, 60))
    disk.let_go()
    until(lambda: len(disk.runs) == 2, "the second commit")
    disk.let_go()
    until(ended([first, *waiting]), "all writers")
    assert disk.runs == [1, 59]
    assert [writer.result for writer in waiting] == list(range(1, 60))


def test_more_than_a_commit_takes_are_several() -> None:
    """A waiting writer runs batches up to its own turn; the remaining turns follow later."""
    runs: list[int] = []

    def run(tickets: list[Ticket[Any]]) -> None:
        runs.append(len(tickets))
        for ticket in tickets:
            ticket.result = ticket.work(None)  # type: ignore[arg-type]

    turns = Turns(run)
    outcomes = [turns.enter(lambda lane, number=number: number) for number in range(1200)]
    assert outcomes[600]() == 600
    assert runs == [500, 500]
    assert [outcome() for outcome in outcomes] == list(range(1200))
    assert runs == [500, 500, 200]


def test_nobody_waits_for_turns_after_its_own() -> None:
    disk = Disk()
    turns = Turns(disk.run)
    early = [Writer(turns, 0)]
    until(lambda: disk.runs == [1], "the first commit")
    early += begin(turns, range(1, 5))
    disk.let_go()
    until(lambda: len(disk.runs) == 2, "the second commit")
    late = begin(turns, range(5, 9))
    disk.let_go()
    until(lambda: len(disk.runs) == 3, "the third commit")
    until(ended(early), "those whose turn has come")  # while the third is at the disk
    assert [writer.result for writer in late] == [None] * 4
    disk.let_go()
    until(ended(late), "the others")


def test_whoever_has_the_lane_may_write_in_it() -> None:
    """The holder of the lane may write although others wait, one of whom would lead."""
    disk = Disk()
    turns = Turns(disk.run)
    for _ in range(4):
        disk.let_go()
    with turns.lane:
        waiting = begin(turns, range(1, 3))
        assert turns.enter(lambda lane: 0)() == 0
        with turns.lane:
            assert turns.enter(lambda lane: 3)() == 3
        assert [writer.result for writer in waiting] == [None, None]
    until(ended(waiting), "those who waited")
    assert disk.runs == [1, 1, 2]
    assert turns.enter(lambda lane: 4)() == 4


def test_a_commit_that_fails_fails_for_all_of_it_and_nobody_else() -> None:
    calls: list[int] = []

    def run(tickets: list[Ticket[Any]]) -> None:
        calls.append(len(tickets))
        if len(calls) == 1:
            raise OSError("no room")
        for ticket in tickets:
            ticket.result = 1

    turns = Turns(run)
    with pytest.raises(OSError, match="no room"):
        turns.enter(lambda lane: 1)()
    assert turns.enter(lambda lane: 1)() == 1
    assert len(turns.queue) == 0


def test_a_writer_that_was_interrupted_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk()
    turns = Turns(disk.run)
    first = Writer(turns, 0)
    until(lambda: disk.runs == [1], "the first commit")

    def interrupt(self: threading.Event, timeout: float | None = None) -> bool:
        monkeypatch.undo()
        disk.let_go()
        until(lambda: first.result is not None, "the first writer")  # and the next leads
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Event, "wait", interrupt)
    with pytest.raises(KeyboardInterrupt):
        turns.enter(lambda lane: 1)()
    disk.let_go()
    assert turns.enter(lambda lane: 2)() == 2
    assert disk.runs == [1, 1]


def test_one_that_is_interrupted_while_it_takes_the_lane_holds_up_nobody() -> None:
    disk = Disk()
    disk.let_go()
    turns = Turns(disk.run)
    lane = turns.lane

    class Interrupted(Hold):
        def __enter__(self) -> None:
            raise KeyboardInterrupt

    turns.lane = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        turns.enter(lambda lane: 1)()
    turns.lane = lane
    assert len(turns.queue) == 0
    writer = Writer(turns, 2)
    until(lambda: writer.result == 2, "the next writer's turn")


def test_one_that_is_interrupted_once_it_is_queued_holds_up_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = Disk()
    disk.let_go()
    turns = Turns(disk.run)

    def interrupt(self: threading.Event, timeout: float | None = None) -> bool:
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Event, "wait", interrupt)
    with pytest.raises(KeyboardInterrupt):
        turns.enter(lambda lane: 1)()
    writer = Writer(turns, 2)
    until(lambda: writer.result == 2, "the next writer's turn")


def test_turns_that_are_entered_first_are_done_together_once_somebody_waits() -> None:
    disk = Disk()
    disk.let_go()
    turns = Turns(disk.run)
    ends = [turns.enter(lambda lane, number=number: number) for number in range(5)]
    assert disk.runs == []
    assert [end() for end in ends] == list(range(5))
    assert disk.runs == [5]
    assert [end() for end in ends] == list(range(5)), "once, however often it is asked"


def test_whoever_waits_works_for_those_who_do_not_yet() -> None:
    disk = Disk()
    turns = Turns(disk.run)
    first = Writer(turns, 0)
    until(lambda: disk.runs == [1], "the first commit")
    end = turns.enter(lambda lane: 1)
    disk.let_go()
    until(ended([first]), "the first writer, which has nobody to pass on to")
    disk.let_go()
    assert turns.enter(lambda lane: 2)() == 2
    assert disk.runs == [1, 2]
    assert end() == 1


def test_one_that_waits_late_is_not_passed_over() -> None:
    """The next leader is the first waiting writer, not the first in the queue."""
    disk = Disk()
    turns = Turns(disk.run)
    first = Writer(turns, 0)
    until(lambda: disk.runs == [1], "the first commit")
    end = turns.enter(lambda lane: 1)
    waiting = begin(turns, range(2, 3))
    disk.let_go()
    disk.let_go()
    until(ended([first, *waiting]), "who waits")
    assert end() == 1
    assert disk.runs == [1, 2]
