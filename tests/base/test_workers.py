"""A worker takes steps when it is woken or a time has passed, and none after its end."""

from __future__ import annotations

import queue
import subprocess
import sys
import threading

import pytest

from kbproc.base import workers
from kbproc.base.workers import Backoff, Worker, WorkerStopped
from tests.kit.patience import PATIENCE


def test_it_steps_at_once_when_woken_and_after_the_seconds_that_a_step_names() -> None:
    steps: queue.Queue[bool] = queue.Queue()
    waits = iter([None, None, 0.001])

    def step(is_woken: bool) -> float | None:
        steps.put(is_woken)
        return next(waits, None)

    worker = Worker("test", step)
    assert worker.start() and not worker.start()
    assert steps.get(timeout=PATIENCE) is False
    for _ in range(2):  # the second names a moment
        worker.wake()
        assert steps.get(timeout=PATIENCE) is True
    assert steps.get(timeout=PATIENCE) is False
    worker.close()
    worker.wake()
    assert steps.empty() and not worker.is_running and not worker.start()


def test_a_wake_within_a_step_is_not_lost() -> None:
    steps: queue.Queue[bool] = queue.Queue()

    def step(is_woken: bool) -> None:
        if steps.empty():
            worker.wake()
        steps.put(is_woken)

    worker = Worker("test", step, first_s=None)
    worker.wake()
    worker.start()
    assert [steps.get(timeout=PATIENCE) for _ in range(2)] == [True, True]
    worker.close()


def test_a_stop_ends_a_pause_and_the_first_wait() -> None:
    pausing, outcome = threading.Event(), list[bool]()

    def step(is_woken: bool) -> float:
        pausing.set()
        outcome.append(worker.pause(10 * PATIENCE))
        worker.join()
        return 0.0

    worker = Worker("test", step)
    worker.start()
    assert pausing.wait(PATIENCE)
    worker.close(PATIENCE)
    assert outcome == [False] and not worker.is_running
    other = Worker("test", step, first_s=10 * PATIENCE)
    other.start()
    other.close(PATIENCE)
    assert not other.is_running and len(outcome) == 1


def test_long_work_rests_where_others_have_made_a_slice_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The clocks are an argument here: seconds of the thread's time, and of the clock."""
    now, rests = [0.0, 0.0], list[float]()
    monkeypatch.setattr(workers.time, "thread_time", lambda: now[0])
    monkeypatch.setattr(workers.time, "monotonic", lambda: now[1])
    worker = Worker("test", lambda is_woken: None)
    monkeypatch.setattr(worker, "pause", lambda seconds: rests.append(seconds) or True)
    for work_s, slice_s, rest_s in [
        (0.004, 1.0, []),  # a slice is not over yet
        (0.001, 0.0, [0.05]),  # others had the processor for most of it
        (0.006, 0.008, []),  # hardly anybody else works
        (0.006, 0.010, [0.04]),  # the rest is ten times as long as the others' part
        (60.0, 100.0, [0.05]),  # and short, also after a step that did not call it
    ]:
        now[0] += work_s
        now[1] += slice_s
        rests.clear()
        worker.give_way()
        assert rests == pytest.approx(rest_s), (work_s, slice_s)
    now[:] = [now[0] + 1.0, now[1] + 2.0]
    rests.clear()
    worker.give_way(rests=False)
    assert rests == []
    worker.stop()
    with pytest.raises(WorkerStopped):
        worker.give_way()


def test_a_thread_that_cannot_be_started_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    stepped = threading.Event()

    def step(is_woken: bool) -> None:
        stepped.set()

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    worker = Worker("test", step)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError):
            worker.start()
    assert worker.start() and stepped.wait(PATIENCE)
    worker.close()


def test_pauses_double_up_to_the_longest() -> None:
    backoff = Backoff(0.5, 3.0)
    assert [backoff.failed() for _ in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]
    assert backoff.failures == 5
    backoff.reset()
    assert (backoff.failures, backoff.failed()) == (0, 0.5)
    endless = Backoff(1.0, 60.0)
    endless.failures = 5_000
    assert endless.failed() == 60.0


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has priorities of threads")
@pytest.mark.parametrize("more", [0, 15])
def test_a_worker_that_gives_way_has_a_lower_priority_than_its_process(more: int) -> None:
    """A worker of a process that runs under `nice` has less of the processor than its searches."""
    program = f"""
import os, threading
from kbproc.base.workers import Worker
os.nice({more})
priorities = []
def step(_):
    priorities.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
    worker.stop()
worker = Worker("test", step, gives_way=True)
worker.start()
worker.join(30)
print(os.nice(0), *priorities)
"""
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True)
    process, worker = map(int, done.stdout.split())
    assert worker == min(19, process + 10)
