"""Runs tests in several processes, which are forked when all tests are collected.

`pytest -p tests.kit.pytest_workers --workers 4`. Each of pytest-xdist's workers imports and
collects all tests, and sends its reports through its controller's threads; together that takes a
twelfth of `make test`. Here one process collects, and its workers share what it has imported.

A file's tests run in one worker, in the order of their collection. A free worker takes the next
file. A worker that dies ends the run.
"""

from __future__ import annotations

import importlib
import os
import struct
import sys
import threading
import traceback
from collections.abc import Iterator
from itertools import groupby
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.kit import tmpfs

_INDEX = struct.Struct("<I")
_MOST_FILES = (64 << 10) // _INDEX.size  # a pipe holds the indexes of so many


def _import_numpy() -> None:
    """Imports numpy without threads, because a process that forks must have none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENBLAS_NUM_THREADS", "1")
        importlib.import_module("numpy")


def pytest_addoption(parser: pytest.Parser) -> None:
    _import_numpy()  # before the tests do
    help = "run the tests in NUMBER processes"
    parser.addoption("--workers", metavar="NUMBER", type=int, default=1, help=help)


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    if config.option.workers > 1 and not config.option.collectonly and not config.option.usepdb:
        config.pluginmanager.register(_Workers(config.option.workers))


class _Workers:
    """The parent of the workers, which passes their reports on to pytest."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._pids: dict[Connection, int] = {}

    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        if session.testsfailed:
            return None  # pytest says which files could not be collected
        files = [list(items) for _, items in groupby(session.items, lambda item: item.path)]
        queue = _queue(len(files))
        _tmp_paths(session.config).getbasetemp()  # before workers do, because it empties the folder
        try:
            for number in range(min(self._count, len(files))):
                self._fork(session, files, queue, number)
            os.close(queue)
            self._report(session)
        finally:
            for pid in self._pids.values():
                os.kill(pid, 9)
                os.waitpid(pid, 0)
        return True

    def _fork(
        self, session: pytest.Session, files: list[list[pytest.Item]], queue: int, number: int
    ) -> None:
        reports, sender = Pipe(duplex=False)
        sys.stdout.flush()
        sys.stderr.flush()
        assert threading.active_count() == 1, "a thread would be missing in the workers"
        if pid := os.fork():
            sender.close()
            self._pids[reports] = pid
            return
        try:
            for other in [reports, *self._pids]:
                other.close()
            _Worker(session, sender, number).run(_items(files, queue))
        except BaseException:  # noqa: BLE001 - it is passed on
            sender.send(("crash", traceback.format_exc()))
        finally:
            os._exit(0)  # else it would run what the parent registered for its own exit

    def _report(self, session: pytest.Session) -> None:
        """Passes on what the workers send until all have ended."""
        running: dict[Connection, str] = {}
        while self._pids:
            for worker in wait(list(self._pids)):
                assert isinstance(worker, Connection)
                try:
                    kind, value = worker.recv()
                except EOFError:
                    _fail(session, running.get(worker, ""), "its worker has died")
                if kind == "crash":
                    _fail(session, running.get(worker, ""), value)
                if kind == "end":
                    os.waitpid(self._pids.pop(worker), 0)
                elif kind == "start":
                    running[worker] = value
                    item = session.config.hook.pytest_runtest_logstart
                    item(nodeid=value, location=(value, None, value))
                else:
                    self._pass_on(session, value)
            if session.shouldfail:
                raise session.Failed(session.shouldfail)

    def _pass_on(self, session: pytest.Session, data: dict[str, Any]) -> None:
        hook = session.config.hook
        report = hook.pytest_report_from_serializable(config=session.config, data=data)
        hook.pytest_runtest_logreport(report=report)
        if report.when == "teardown":
            hook.pytest_runtest_logfinish(nodeid=report.nodeid, location=report.location)


class _Worker:
    """A process that runs tests."""

    def __init__(self, session: pytest.Session, sender: Connection, number: int) -> None:
        self._session, self._config, self._sender = session, session.config, sender
        self._take_own_folder(number)
        self._take_own_streams()
        # Plugins of pytest that write at the end of a run leave that to the parent then.
        # A worker knows only its own goldens; tests/repo finds those that no test names.
        self._config.option.disable_unused_snapshots = True
        self._config.workerinput = {"workerid": f"worker{number}"}  # type: ignore[attr-defined]
        plugins = self._config.pluginmanager
        for name in ("terminalreporter", tmpfs.NAME):
            plugins.unregister(name=name)
        for plugin in [one for one in plugins.get_plugins() if isinstance(one, _Workers)]:
            plugins.unregister(plugin)
        plugins.register(self)

    def _take_own_folder(self, number: int) -> None:
        factory = _tmp_paths(self._config)
        folder = factory.getbasetemp() / f"worker{number}"
        folder.mkdir(mode=0o700)
        factory._basetemp = folder

    def _take_own_streams(self) -> None:
        """Captures output in files that no other worker shares."""
        capture = self._config.pluginmanager.getplugin("capturemanager")
        assert capture is not None
        capture.stop_global_capturing()
        capture.start_global_capturing()

    def run(self, items: Iterator[pytest.Item]) -> None:
        item = next(items, None)
        while item is not None:
            following = next(items, None)
            self._config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            item = following
        self._config.hook.pytest_sessionfinish(
            session=self._session, exitstatus=self._session.exitstatus
        )
        self._config._ensure_unconfigure()
        self._sender.send(("end", None))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._sender.send(("start", nodeid))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        to_data = self._config.hook.pytest_report_to_serializable
        self._sender.send(("report", to_data(config=self._config, report=report)))


def _fail(session: pytest.Session, test: str, message: str) -> NoReturn:
    """Ends the run with a failure of the test that a worker ran, or ran last."""
    report = pytest.TestReport(test, (test, None, test), {}, "failed", message, "call")
    session.config.hook.pytest_runtest_logreport(report=report)
    session.shouldfail = f"a worker can't go on after {test or 'its start'}"
    raise session.Failed(session.shouldfail)


def _tmp_paths(config: pytest.Config) -> pytest.TempPathFactory:
    factory: pytest.TempPathFactory = config._tmp_path_factory  # type: ignore[attr-defined]
    return factory


def _queue(count: int) -> int:
    """Returns the end of a pipe from which each read takes one of `count` indexes."""
    assert count <= _MOST_FILES
    reader, writer = os.pipe()
    os.write(writer, b"".join(map(_INDEX.pack, range(count))))
    os.close(writer)
    return reader


def _items(files: list[list[pytest.Item]], queue: int) -> Iterator[pytest.Item]:
    """Yields the tests of the files that this worker takes from the queue."""
    while index := os.read(queue, _INDEX.size):
        yield from files[_INDEX.unpack(index)[0]]


def base_of_run(factory: pytest.TempPathFactory) -> Path:
    """Returns the folder that the workers of a run share."""
    base = factory.getbasetemp()
    return base.parent if base.name.startswith("worker") else base
