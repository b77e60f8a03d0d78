"""A stream on servers and the logs of its nodes in this process; writes and breaks them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from kbproc.base.errors import KbprocError
from kbproc.engine.cluster.jetstream import log as shared_log
from kbproc.engine.cluster.jetstream.log import JetStreamLog
from kbproc.engine.cluster.jetstream.refill import compare, refill
from kbproc.engine.log import record as records
from kbproc.engine.log.interface import Behind
from tests.kit.nats import Server, Servers
from tests.kit.patience import until
from tests.kit.records import commit, draft, write


class Case:
    """Servers with one stream, and the logs of its nodes."""

    def __init__(self, folder: Path, servers: int = 1) -> None:
        self.folder = folder
        self.servers = Servers.make(folder / "nats", servers).start()
        self.settings = self.servers.stream("team")
        self.logs: list[JetStreamLog] = []

    def join(self, name: str) -> JetStreamLog:
        log = JetStreamLog.open(self.folder / name / "log")
        log.join(self.settings)
        self.logs.append(log)
        return log

    def leave(self, log: JetStreamLog) -> None:
        log.close()
        self.logs.remove(log)

    def reseed(self, log: JetStreamLog) -> str:
        """Reseeds a log; returns the remedy that was applied."""
        comparison = compare(self.settings, log)
        refill(self.settings, log, comparison, None, lambda done: None)
        return comparison.remedy

    def close(self) -> None:
        for log in self.logs:
            log.close()
        self.servers.kill()


def lines(log: JetStreamLog) -> list[bytes]:
    log.gather()
    return [records.encode(record) for record in log.read(to_seq=log.head.seq)]


def until_same(*logs: JetStreamLog) -> None:
    until(
        lambda: (
            all(log.damage is None and log.trouble is None for log in logs)
            and len({tuple(lines(log)) for log in logs}) == 1
        ),
        "equal logs",
        lambda: str([(log.head.seq, log.damage, log.trouble) for log in logs]),
    )


def until_told(log: JetStreamLog, words: str) -> None:
    def is_told() -> bool:
        log.gather()
        return words in (log.damage or "")

    until(is_told, words, lambda: f"{log.damage} {log.trouble} {log.head}")
    with pytest.raises(KbprocError) as raised:
        write(log, 1)
    error = raised.value
    assert (error.type, error.retryable) == ("store.corrupt", False)
    assert error.detail["seq"] == log.head.seq and str(log._folder.parent) in error.detail["node"]
    assert error.hint is not None and "kbproc cluster reseed" in error.hint


def without_numbers(text: str) -> str:
    return re.sub(r"\d+", "N", re.sub(r"\b1 record\b", "N records", text))


def is_kept(log: JetStreamLog, number: int) -> bool:
    log.gather()
    try:
        commit(log, [draft(number)])
    except Behind:
        return False
    except KbprocError as error:
        assert (error.type, error.retryable) == ("store.io", True), error
        return False
    return True


@contextlib.contextmanager
def impatient() -> Iterator[None]:
    """Makes a log refuse soon what it can't write; elsewhere a slow machine gets the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared_log, "PATIENCE_S", 1.0)
        yield


def write_some(log: JetStreamLog, first: int, count: int) -> None:
    """Writes each record, and retries until it is stored."""
    for number in range(first, first + count):
        until(partial(is_kept, log, number), "a write")


def restarted(case: Case, act: Callable[[Server], None], which: slice = slice(None)) -> None:
    for server in case.servers[which]:
        server.kill()
    for server in case.servers[which]:
        act(server)
    for server in case.servers[which]:
        server.start()
    for server in case.servers[which]:
        server.ready()
