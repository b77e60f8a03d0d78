"""The workers: limits, deaths, replacement, and no orphans."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import psutil
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

import kbproc
from kbproc.base.errors import KbprocError
from kbproc.base.frames import LENGTH, frame
from kbproc.base.text.passage import passage
from kbproc.engine.sources.chunk import count_words
from kbproc.engine.sources.parse.formats import has_reader
from kbproc.engine.sources.parse.pool import ParserPool
from kbproc.engine.sources.parse.progress import Progress
from kbproc.engine.sources.parse.worker import (
    BYTES_IN_TIME,
    REPORTS_A_SECOND,
    ParseAnswers,
    ParsedChunks,
    ParserJob,
    ProgressReporter,
    Setup,
    read,
    size,
)
from tests.kit.parsing import parse_one
from tests.kit.patience import LONG, PATIENCE, until
from tests.kit.pdfs import pdf, slow_pdf, text_page

# A forked worker has the template's memory, and another thread of this process as its parent.
real = pytest.mark.usefixtures("executed")

ENVIRONMENT = {"PYTHONPATH": f"{Path(kbproc.__file__).parents[1]}"}


@pytest.fixture
def pool() -> Iterator[ParserPool]:
    pool = ParserPool(workers=2, timeout_s=PATIENCE)
    yield pool
    pool.close()


def seconds_read(pool: ParserPool) -> float:
    """Returns the processor time that the pool's workers used, in seconds."""
    return sum(psutil.Process(pid).cpu_times().user for pid in pool.pids)


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def failure(pool: ParserPool, data: bytes, type: str) -> KbprocError:
    with pytest.raises(KbprocError) as caught:
        parse_one(pool, data, type, "some/file")
    assert caught.value.message.startswith("some/file ")
    return caught.value


def test_what_is_read_here_is_read_as_by_a_worker(pool: ParserPool) -> None:
    text = (
        "First, alpha beta. " * 90 + "\n\n" + "防守丢了三百零八分。" * 60 + "\r\n \t\n" + "x" * 900
    )
    for title in (None, "Given"):
        here = pool.read_here(text, "a/b.txt", title)
        assert pool.pids == [] or title
        assert here == parse_one(pool, text.encode(), "text", "a/b.txt", title)
    assert len(here.chunks) > 4
    pool.close()
    with pytest.raises(KbprocError) as caught:
        pool.read_here("x", "b", None)
    assert caught.value.type == "operation.cancelled"


SAID = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0\x1b")
    | st.sampled_from("\r\n\ufeff.,_ "),
    min_size=1,
)


@example(text="0\x0c0", name="Notes 2.1")
@given(text=SAID, name=st.sampled_from(["a", "a.csv", "b.LOG", ".tsv", "Notes 2.1"]))
def test_any_text_is_read_here_as_from_its_bytes(text: str, name: str) -> None:
    assume(not has_reader(text, name))
    setup = Setup(
        tokenizer=None, max_tokens=32, overlap=0, memory_bytes=1 << 30, timeout_s=1, parent=0
    )
    pool = ParserPool(tokenizer=None, max_tokens=32)
    try:
        job = ParserJob(data=text.encode(), type="text", name=name, title="T")
        assert pool.read_here(text, name, "T") == read(job, setup, count_words)
    finally:
        pool.close()


def test_a_document_comes_back_in_chunks(pool: ParserPool) -> None:
    parsed = parse_one(pool, b"---\ntags: [a]\nn: 1\n---\n# T\n\nText.", "markdown", "x/a.md")
    assert (parsed.title, parsed.tags, parsed.metadata) == ("T", ["a"], {"n": 1})
    assert [chunk.text for chunk in parsed.chunks] == ["# T\n\nText."]
    parsed = parse_one(pool, pdf(text_page(["Hello."])), "pdf", "x/b.pdf")
    assert (parsed.title, parsed.pages, parsed.chunks[0].page) == ("b.pdf", 1, 1)
    assert parse_one(pool, b"x", "text", "c.txt", title="Given").title == "Given"


def test_workers_start_when_needed_and_are_used_again(pool: ParserPool) -> None:
    assert pool.pids == []
    parse_one(pool, b"x", "text", "a")
    first = pool.pids
    parse_one(pool, b"x", "text", "a")
    assert pool.pids == first
    assert len(first) == 1


def test_many_threads(pool: ParserPool) -> None:
    with ThreadPoolExecutor(6) as threads:
        titles = list(
            threads.map(lambda i: parse_one(pool, b"# T%d\n" % i, "markdown", "a").title, range(60))
        )
    assert titles == [f"T{i}" for i in range(60)]
    assert len(pool.pids) == 2


@real
def test_a_worker_outlives_the_thread_that_asked_for_it(pool: ParserPool) -> None:
    thread = threading.Thread(target=parse_one, args=(pool, b"x", "text", "a"))
    thread.start()
    thread.join()
    first = pool.pids
    parse_one(pool, b"x", "text", "a")
    assert pool.pids == first


def test_a_typed_failure_crosses_and_leaves_the_worker(pool: ParserPool) -> None:
    parse_one(pool, b"x", "text", "a")
    before = pool.pids
    with pytest.raises(KbprocError, match="is damaged") as caught:
        parse_one(pool, b"%PDF", "pdf", "a.pdf")
    assert caught.value.type == "operation.failed"
    with pytest.raises(KbprocError) as caught:
        parse_one(pool, b"x", "image", "a.png")
    assert "pdf" in (caught.value.valid_values or [])
    assert pool.pids == before


def test_a_document_that_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock is the test's: it stands still, except while the second document is sent."""
    times: Iterator[float] = iter(())
    monkeypatch.setattr(
        "kbproc.base.sandbox.time", SimpleNamespace(monotonic=lambda: next(times, 0.0))
    )
    pool = ParserPool(workers=1, timeout_s=50)
    try:
        parse_one(pool, b"x", "text", "a")
        (before,) = pool.pids
        data = b"x" * (2 * BYTES_IN_TIME)  # the larger a document, the longer it may take
        times = iter([0.0, 99.9, 100.1])
        error = failure(pool, data, "text")
        assert next(times, None) is None
        assert error.type == "operation.failed"
        assert "took longer than 100 s" in error.message
        assert gone(before)
        assert parse_one(pool, b"x", "text", "a").chunks
        assert pool.pids != [before]
    finally:
        pool.close()


TOO_LARGE = b"a\n\n" * (4 << 20)  # for a worker of 80 MiB

MEGABYTES = 50 if LONG else 0.5
SMALLEST = 64 << 20  # address space of a worker that reads a word


@real
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the address space")
@pytest.mark.parametrize("name", ["a.log", "a.csv", "a.txt"])
def test_a_large_text_is_read_in_bounded_memory(name: str) -> None:
    """Lines or words of one character, the most parts that a text can have. All of them at once
    would take a hundred times its bytes."""
    between = b" " if name == "a.txt" else b"\n"
    data = b"".join(b"%d" % digit + between for digit in range(10)) * int(MEGABYTES * 50_000)
    pool = ParserPool(workers=1, timeout_s=PATIENCE, memory_bytes=SMALLEST + 10 * len(data))
    try:
        parsed = parse_one(pool, data, "text", name)
    finally:
        pool.close()
    new = b"".join(one.text[one.overlap :].encode() for one in parsed.chunks)
    assert b"".join(new.split()) == b"".join(data.split())
    last = parsed.chunks[-1]
    end = passage(last.marks, last.text, 0, len(last.text)).end_line
    assert end == (data.count(b"\n") or 1)


def test_a_larger_document_may_take_longer() -> None:
    setup = Setup(
        tokenizer=None, max_tokens=32, overlap=0, memory_bytes=1 << 30, timeout_s=60, parent=0
    )
    assert [setup.seconds_for(size) for size in (0, 3_000_000, 48_000_000)] == [60, 60, 960]


def some(*sources: tuple[bytes, str]) -> list[ParserJob]:
    return [
        ParserJob(data=data, type=type, name=f"file {number}", title=None)
        for number, (data, type) in enumerate(sources)
    ]


def test_some_are_read_on_one_way(pool: ParserPool) -> None:
    results = pool.parse(some((b"a b", "text"), (b"%PDF", "pdf"), (b"# T\n\nc", "markdown")))
    assert len(pool.pids) == 1
    first, failed, third = results
    assert isinstance(first, ParsedChunks)
    assert isinstance(third, ParsedChunks)
    assert isinstance(failed, KbprocError)
    assert [first.chunks[0].text, third.title] == ["a b", "T"]
    assert failed.message.startswith("file 1 is damaged")


@real
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the address space")
def test_one_that_needs_too_much_memory_keeps_no_other_from_being_read() -> None:
    pool = ParserPool(workers=1, memory_bytes=80 << 20)
    try:
        error = failure(pool, TOO_LARGE, "text")
        large = (TOO_LARGE, "text")
        results = pool.parse(some((b"x", "text"), large, (b"y", "text"), (b"z", "text")))
    finally:
        pool.close()
    assert "needed more than 80 MiB" in error.message
    texts = [one.chunks[0].text for one in results if isinstance(one, ParsedChunks)]
    assert texts == ["x", "y", "z"]
    assert isinstance(results[1], KbprocError)
    assert "file 1 needed more than 80 MiB" in results[1].message


def end_the_reader(pool: ParserPool) -> None:
    until(lambda: seconds_read(pool) > 0.2, "a worker that reads")
    (pid,) = pool.pids
    os.kill(pid, signal.SIGKILL)
    until(lambda: gone(pid) and pid not in pool.pids, "its end")


def test_one_that_ends_its_worker_keeps_no_other_from_being_read(pool: ParserPool) -> None:
    with ThreadPoolExecutor(1) as thread:
        jobs = some((b"x", "text"), (slow_pdf(), "pdf"), (b"y", "text"))
        reading = thread.submit(pool.parse, jobs)
        for _ in ("with the others", "alone"):
            end_the_reader(pool)
        results = reading.result(PATIENCE)
    assert [isinstance(one, ParsedChunks) for one in results] == [True, False, True]
    assert isinstance(results[1], KbprocError)
    assert results[1].message.startswith("file 1 ")
    assert "SIGKILL" in results[1].message


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_worker_killed_while_it_reads(pool: ParserPool, number: signal.Signals) -> None:
    with ThreadPoolExecutor(1) as thread:
        reading = thread.submit(failure, pool, slow_pdf(), "pdf")
        until(lambda: seconds_read(pool) > 0.2, "a worker that reads")
        os.kill(pool.pids[0], number)
        error = reading.result(PATIENCE)
    assert error.type == "operation.failed"
    assert number.name in error.message
    assert parse_one(pool, b"x", "text", "a").chunks


def test_a_worker_killed_while_idle_is_replaced_unseen(pool: ParserPool) -> None:
    parse_one(pool, b"x", "text", "a")
    (before,) = pool.pids
    os.kill(before, signal.SIGKILL)
    until(lambda: gone(before), "the end of the worker")
    assert parse_one(pool, b"x", "text", "a").chunks


def test_close_ends_what_is_being_read_and_leaves_nobody(pool: ParserPool) -> None:
    with ThreadPoolExecutor(1) as thread:
        reading = thread.submit(failure_of_closing, pool)
        until(lambda: pool.pids, "a worker")
        pids = pool.pids
        pool.close()
        assert reading.result(PATIENCE).type == "operation.cancelled"
    assert all(gone(pid) for pid in pids)
    assert failure_of_closing(pool).type == "operation.cancelled"


def failure_of_closing(pool: ParserPool) -> KbprocError:
    with pytest.raises(KbprocError) as caught:
        parse_one(pool, slow_pdf(), "pdf", "a.pdf")
    return caught.value


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere only stdin's end tells")
@pytest.mark.parametrize("busy", [False, True])
def test_no_orphan_when_the_parent_is_killed(busy: bool) -> None:
    code = (
        "import threading\n"
        "from tests.kit.pdfs import slow_pdf\n"
        "from kbproc.engine.sources.parse.pool import ParserPool\n"
        "from tests.kit.parsing import parse_one\n"
        "pool = ParserPool(workers=1); parse_one(pool, b'x', 'text', 'a')\n"
        "print(pool.pids[0], flush=True)\n"
        f"parse_one(pool, slow_pdf(), 'pdf', 'a') if {busy} else threading.Event().wait()\n"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=ENVIRONMENT) as parent:
        assert parent.stdout
        worker = int(parent.stdout.readline())
        if busy:
            until(lambda: psutil.Process(worker).cpu_times().user > 0.3, "a worker that reads")
        assert not gone(worker)
        parent.kill()
    until(lambda: gone(worker), "the end of the worker")


# A worker that reports as often as it can, so that a short document has reports on any machine.
EAGER = """
import sys
from kbproc.engine.sources.parse import worker
worker.REPORTS_A_SECOND = 1e9
sys.exit(worker.main())
"""


def test_progress_comes_before_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", EAGER], **options)

    monkeypatch.setattr("kbproc.base.sandbox.popen", start)
    monkeypatch.setattr("kbproc.engine.sources.parse.pool.REPORTS_A_SECOND", 10**9)
    pool = ParserPool(workers=1, timeout_s=PATIENCE)
    try:
        for data, type, unit in (
            (pdf(*[text_page(["Some words."])] * 8), "pdf", "page"),
            (b"1\n" * 20_000, "text", "character"),
        ):
            reports: list[Progress] = []
            parsed = parse_one(pool, data, type, "a.log", on_progress=reports.append)
            assert parsed.chunks
            ours = [one for one in reports if one.unit == unit]
            assert ours, type
            assert [one.done for one in ours] == sorted({one.done for one in ours})
            assert {one.total for one in ours} == {8 if type == "pdf" else len(data) - 1}
            assert all(0 < one.done <= one.total for one in ours)
    finally:
        pool.close()


def test_reports_are_written_at_their_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(
        "kbproc.engine.sources.parse.worker.time", SimpleNamespace(monotonic=lambda: now[0])
    )
    sink, written = io.BytesIO(), []
    reporter = ProgressReporter(sink)
    for part in (0.5, 0.4, 0.2, 0.5, 0.6, 3.0):
        now[0] += part / REPORTS_A_SECOND
        reporter.report("page", 1, 2)
        written.append(sink.tell() > 0)
        sink.seek(0)
    assert written == [False, False, True, False, True, True]


# A script in place of a worker that a document has taken over.
TAKEN_OVER = """
import struct, sys
from kbproc.base.frames import frame
from kbproc.engine.sources.parse.progress import Progress
def receive():
    (length,) = struct.unpack(">I", sys.stdin.buffer.read(4))
    sys.stdin.buffer.read(length)
receive(); receive()
good = Progress(unit="page", done=1, total=2)
def progress(**more):
    return {"type": "progress", "unit": "page", "done": 1, "total": 2, **more}
for one in FRAMES:
    sys.stdout.buffer.write(one if isinstance(one, bytes) else frame(one))
    sys.stdout.buffer.flush()
"""


@pytest.mark.parametrize(
    ("frames", "asks", "why"),
    [
        ("[good] * 100_000", True, "sent an invalid message"),
        ("[good]", False, "sent an invalid message"),
        ("[progress(total=-1)]", True, "exit 0"),
        ("[progress(unit='x' * 99_999)]", True, "exit 0"),
        ("[progress(more='x')]", True, "exit 0"),
        (r"[b'\0\0\0\2\xa1\xff']", True, "exit 0"),  # a string that is no UTF-8
        (r"[b'\0\0\x27\x10' + b'\x91' * 10_000]", True, "exit 0"),  # lists in lists
        ("[good]", True, "exit 0"),
    ],
)
def test_a_worker_that_was_taken_over_can_not_flood(
    monkeypatch: pytest.MonkeyPatch, frames: str, asks: bool, why: str
) -> None:
    def start(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        code = TAKEN_OVER.replace("FRAMES", frames)
        return subprocess.Popen([sys.executable, "-c", code], **options)

    monkeypatch.setattr("kbproc.base.sandbox.popen", start)
    reports: list[Progress] = []
    pool = ParserPool(workers=1, timeout_s=PATIENCE)
    try:
        with pytest.raises(KbprocError) as caught:
            parse_one(pool, b"x", "text", "a", on_progress=reports.append if asks else None)
    finally:
        pool.close()
    assert caught.value.type == "operation.failed"
    assert why in caught.value.message
    assert len(reports) < 100
    assert all(one == Progress(unit="page", done=1, total=2) for one in reports)


NOISY = """
import os, sys
import kbproc.engine.sources.parse.text as text
from kbproc.engine.sources.parse import worker
quiet = text.parse
def noisy(data, name):
    print("print"); sys.stdout.flush(); os.write(1, b"raw"); os.system("echo child")
    assert sys.stdin.read() == ""
    try:
        with open("written", "w") as file:
            file.write("x")
    except OSError:
        return quiet(data, name)
text.parse = noisy
sys.exit(worker.main())
"""


def test_neither_print_nor_writing_gets_out_of_a_worker(tmp_path: Path) -> None:
    setup = Setup(
        tokenizer=None,
        max_tokens=64,
        overlap=0,
        memory_bytes=1 << 30,
        timeout_s=PATIENCE,
        parent=os.getpid(),
    )
    job = ParserJob(data=b"Text.", type="text", name="a", title=None)
    done = subprocess.run(
        [sys.executable, "-c", NOISY],
        input=frame(setup) + frame([job]),
        capture_output=True,
        check=True,
        cwd=tmp_path,
        env=ENVIRONMENT,
    )
    stream = io.BytesIO(done.stdout)
    (length,) = LENGTH.unpack(stream.read(LENGTH.size))
    (answer,) = msgspec.msgpack.decode(stream.read(), type=ParseAnswers).answers
    assert length == len(done.stdout) - LENGTH.size
    assert answer.parsed is not None
    assert [chunk.text for chunk in answer.parsed.chunks] == ["Text."]
    assert set(re.findall(b"print|raw|child", done.stderr)) == {b"print", b"raw", b"child"}
    assert not (tmp_path / "written").read_bytes()


def test_sizes_in_words() -> None:
    assert [size(n) for n in (2 << 30, 200 << 20, 1 << 10)] == ["2 GiB", "200 MiB", "1024 bytes"]
