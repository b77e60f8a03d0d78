"""Threads that run requests: few at once, and more while those are blocked."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from kbproc.base import pool as pools
from kbproc.base.pool import Pool
from tests.kit.patience import GLIMPSE, PATIENCE, until

SIZE, AT_ONCE = 5, 2


class HeldJobs:
    """Jobs that block until the test lets them go."""

    def __init__(self, pool: Pool, count: int) -> None:
        self._go_on, self._counting = threading.Event(), threading.Lock()
        self.too_many = threading.Event()
        self.begun = self.done = 0
        for _ in range(count):
            pool.submit(self._run)

    def _run(self) -> None:
        with self._counting:
            self.begun += 1
            if self.begun - self.done > SIZE:
                self.too_many.set()
        assert self._go_on.wait(PATIENCE)
        with self._counting:
            self.done += 1

    def let_go(self) -> None:
        self._go_on.set()


BEFORE: set[threading.Thread] = set()


def threads_of_pool(name: str = "") -> list[threading.Thread]:
    """Returns the pool's live threads: its workers, its watch and its helpers."""
    names = {name} if name else {"worker", "watch", "helper"}
    return [one for one in threading.enumerate() if one not in BEFORE and one.name in names]


@pytest.fixture
def pool() -> Iterator[Pool]:
    BEFORE.clear()
    BEFORE.update(threading.enumerate())
    threads = Pool(SIZE, AT_ONCE)
    yield threads
    threads.close(PATIENCE)
    assert threads_of_pool() == []


def test_who_waits_behind_jobs_that_stand_still_is_begun(pool: Pool) -> None:
    jobs, ran = HeldJobs(pool, AT_ONCE), threading.Event()
    pool.submit(ran.set)
    assert ran.wait(PATIENCE)
    assert jobs.done == 0
    jobs.let_go()


def test_no_more_than_few_run_at_once_while_they_go_on(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "_PATIENCE_S", PATIENCE)
    jobs, ran = HeldJobs(pool, AT_ONCE), threading.Event()
    until(lambda: jobs.begun == AT_ONCE, "both threads at work")
    pool.submit(ran.set)
    assert not ran.wait(GLIMPSE)
    jobs.let_go()
    assert ran.wait(PATIENCE)


def test_however_many_stand_still_the_pool_does_not_grow_above_its_size(pool: Pool) -> None:
    jobs = HeldJobs(pool, SIZE + 3)
    until(lambda: jobs.begun == SIZE, "all threads at work")
    assert not jobs.too_many.wait(GLIMPSE)
    jobs.let_go()
    until(lambda: jobs.done == SIZE + 3, "all jobs done")


def test_once_nothing_waits_few_threads_are_left(pool: Pool) -> None:
    for _ in range(2):  # the second round follows many threads
        jobs = HeldJobs(pool, SIZE)
        until(lambda jobs=jobs: jobs.begun == SIZE, "all threads at work")  # type: ignore[misc]
        jobs.let_go()
        until(lambda: not threads_of_pool("helper"), "helpers gone")
        assert len(threads_of_pool("worker")) == AT_ONCE


def test_what_was_submitted_is_done_before_a_pool_is_closed() -> None:
    pool = Pool(SIZE, AT_ONCE)
    jobs = HeldJobs(pool, SIZE)
    until(lambda: jobs.begun == SIZE, "all threads at work")
    jobs.let_go()
    pool.close(PATIENCE)
    assert jobs.done == SIZE
