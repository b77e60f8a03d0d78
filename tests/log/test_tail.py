"""The log's end: all bytes of a write or none, and no write into a file of another process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kbproc.base import failpoints
from kbproc.base.errors import KbprocError
from kbproc.engine.log.tail import LogTail


@pytest.fixture
def tail(tmp_path: Path) -> Iterator[LogTail]:
    tail = LogTail()
    tail.open(tmp_path / "segment")
    yield tail
    tail.close()


def refused(work: Any) -> None:
    with pytest.raises(KbprocError) as caught:
        work()
    assert caught.value.type == "store.io"


def fail_at(point: str) -> None:
    """Makes the disk fail at a failpoint, once."""

    def fail(name: str) -> None:
        if name == point:
            failpoints.arm(None)
            raise OSError(28, "No space left on device")

    failpoints.arm(fail)


STEPS = st.lists(
    st.sampled_from(["write", "sync", "take_back", "fail", "tear", "reopen"]), max_size=12
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_the_file_holds_every_write_that_succeeded(tmp_path: Path, steps: list[str]) -> None:
    path = tmp_path / "any"
    path.unlink(missing_ok=True)
    tail, data, durable = LogTail(), b"", b""
    tail.open(path)
    for number, step in enumerate(steps):
        line = b"%d\n" % number
        if step == "write":
            tail.write(line)
            data += line
        elif step == "sync":
            tail.sync()
            durable = data
        elif step == "take_back":
            tail.take_back()
            data = durable
        elif step == "reopen":
            tail.open(path)
            durable = data
        else:
            fail_at("log.write" if step == "fail" else "log.torn")
            refused(lambda line=line: tail.write(line))
        assert path.read_bytes() == data
        assert (tail.size, tail.synced, tail.in_doubt) == (len(data), len(durable), False)
        assert tail.is_untouched()
    tail.close()
    assert not tail.is_open


def test_after_a_failed_sync_the_file_is_in_doubt_until_it_is_opened_again(tail: LogTail) -> None:
    tail.write(b"durable\n")
    tail.sync()
    tail.write(b"lost\n")
    fail_at("log.sync")
    refused(tail.sync)
    assert tail.in_doubt
    for work in (tail.check, tail.sync, lambda: tail.write(b"more\n")):
        refused(work)
    tail.settle()
    assert tail.path.read_bytes() == b"durable\n"
    assert (tail.size, tail.in_doubt) == (8, True)
    tail.open(tail.path)
    tail.write(b"more\n")
    assert tail.path.read_bytes() == b"durable\nmore\n"


def append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"x")


def replace(path: Path) -> None:
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content)


CHANGES = [append, replace, Path.unlink, lambda path: os.truncate(path, 1)]


@pytest.mark.parametrize("change", CHANGES, ids=["appended", "replaced", "removed", "cut"])
@pytest.mark.parametrize("is_written", [True, False])
def test_a_file_that_another_process_has_changed_is_left_alone(
    tail: LogTail, change: Any, is_written: bool
) -> None:
    """The change is noticed before the first write, and before a sync acknowledges anything."""
    tail.write(b"first\n")
    tail.sync()
    if is_written:
        tail.write(b"second\n")
    change(tail.path)
    assert not tail.is_untouched()
    refused(tail.sync if is_written else lambda: tail.write(b"second\n"))


def test_only_the_owner_may_read_the_file_and_no_link_is_followed(tmp_path: Path) -> None:
    tail = LogTail()
    tail.open(tmp_path / "segment")
    assert (tmp_path / "segment").stat().st_mode & 0o777 == 0o600
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    refused(lambda: tail.open(tmp_path / "link"))
    assert not tail.is_open
    assert not (tmp_path / "elsewhere").exists()
