"""A request of the shell: approval, terminals, Ctrl-C, and steps after the answer."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kbproc.base.errors import KbprocError, Retry
from kbproc.base.params import ReadParams, WriteParams
from kbproc.base.settings.config import load
from kbproc.methods.all import registry
from kbproc.methods.calls import method as reg
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.registry import Registry
from kbproc.methods.calls.reply import Reply
from kbproc.surfaces.shell import run as performing
from kbproc.surfaces.shell.arguments import Options
from kbproc.surfaces.shell.printing.formats import Output
from kbproc.surfaces.shell.printing.terminal import shortened
from kbproc.surfaces.shell.waiting import EmbeddingWait
from tests.kit.patience import PATIENCE, until
from tests.kit.shell import (
    ANSI,
    Run,
    environment,
    in_process,
    on_terminal,
    refused,
    write_docs,
)
from tests.kit.site import Site
from tests.kit.start import start

REGISTRY = registry()


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    return in_process(tmp_path, monkeypatch, capsys)


# --------------------------------------------------------------------- embedding


class _Notes(Output):
    """Keeps notes and the times that are left."""

    def __init__(self) -> None:
        super().__init__(sys.stdout, sys.stderr)
        self.notes: list[str] = []
        self.remaining_ms: list[int | None] = []

    def note(self, message: str) -> None:
        self.notes.append(message)

    def progress(self, *args: Any, eta_ms: int | None = None) -> None:
        self.remaining_ms.append(eta_ms)


@pytest.mark.parametrize("pace, more", [(100, "14 min"), (5, "4 h 47 min"), (5000, None)])
def test_a_long_wait_for_vectors_is_announced_once(pace: int, more: str | None) -> None:
    output, seconds = _Notes(), [0.0]
    waiting = EmbeddingWait(output, lambda: seconds[0])
    waiting.progress("prepare", 0, None)
    total = 86_000
    for second in range(8):
        seconds[0] = float(second)
        waiting.progress("embed", min(total, second * pace), total)
    assert output.remaining_ms[:4] == [None] * 4 and output.remaining_ms[4]
    if more is None:
        assert output.notes == []
    else:
        [note] = output.notes
        first = f"{total - 3 * pace:,} of 86,000 passages are found by words only as yet. "
        assert note.startswith(f"{first}Embedding them takes about {more} more; Ctrl-C")


def test_what_is_added_without_a_wait_is_told_to_lack_its_vectors(run: Run, tmp_path: Path) -> None:
    docs = write_docs(tmp_path)
    err = run("add", str(docs), "--no-wait", "--format", "text")[2]
    assert "Note: 2 of 2 passages are found by words only as yet. " in err


# ------------------------------------------------------------------- destructive


def test_without_approval_nothing_happens(run: Run, tmp_path: Path) -> None:
    run("add", str(write_docs(tmp_path)))
    code, out, err = run("doc", "delete", "1")
    error = json.loads(err)["error"]
    assert (code, out, error["type"]) == (10, "", "input.confirmation_required")
    assert "retry" not in error
    assert error["plan"]["plan_hash"]
    assert json.loads(run("list")[1])["meta"]["total"] == 2


def test_yes_takes_the_plan(run: Run, tmp_path: Path) -> None:
    run("add", str(write_docs(tmp_path)))
    assert run("doc", "delete", "1", "--yes", "--jq", ".data.ids")[:2] == (0, "[1]\n")


def make_ten(run: Run) -> list[str]:
    documents = json.dumps([{"title": f"T{n}", "text": f"x {n}"} for n in range(10)])
    assert run("doc", "create", "--documents", documents)[0] == 0
    return run("list", "--jq", ".data[].id")[1].split()


def test_a_bulk_plan_needs_more(run: Run, tmp_path: Path) -> None:
    ids = make_ten(run)
    for yes in ("--yes", "-y"):
        code, _, err = run("doc", "delete", *ids, yes)
        assert (code, json.loads(err)["error"]["plan"]["risk"]["level"]) == (10, "bulk")
        assert "--yes=bulk" in json.loads(err)["error"]["hint"]
    assert run("doc", "delete", *ids, "--yes=bulk")[0] == 0
    assert json.loads(run("list")[1])["meta"]["total"] == 0


def test_a_dry_run_shows_the_plan(run: Run, tmp_path: Path) -> None:
    run("add", str(write_docs(tmp_path)))
    code, out, _ = run("doc", "delete", "1", "--dry-run", "--format", "text")
    assert code == 0
    assert out.splitlines()[0] == "Plan: doc.delete (risk: medium)"
    assert "Git Admin Guide" in out
    assert out.splitlines()[-1] == "Nothing was written."


def test_a_person_is_asked(run: Run, tmp_path: Path) -> None:
    run("add", str(write_docs(tmp_path)))
    code, output = on_terminal(tmp_path, "doc", "delete", "1", typed="n\n")
    assert code == 9
    assert "Plan: doc.delete (risk: medium)" in output
    assert "Do this? [y/N]" in output
    assert "nothing was changed" in output
    assert "Hint: Run it again and type y if it is to be done." in output
    code, output = on_terminal(tmp_path, "doc", "delete", "1", typed="y\n")
    assert code == 0, output
    assert json.loads(run("list")[1])["meta"]["total"] == 1
    ids = make_ten(run)
    code, output = on_terminal(tmp_path, "doc", "delete", "2", *ids, typed="y\n")
    assert (code, "Type bulk to do this" in output) == (9, True)
    assert json.loads(run("list")[1])["meta"]["total"] == 11


# -------------------------------------------------------------- private addresses


@pytest.fixture
def page(run: Run) -> Iterator[str]:
    """Serves a page on this machine and returns its address."""
    site = Site()
    yield site.page("/page.html", b"<title>Inside</title><p>About the intranet.</p>")
    site.close()


def test_a_person_may_fetch_from_a_private_address(run: Run, tmp_path: Path, page: str) -> None:
    allowed = ("doc", "fetch", page, "--allow-private-addresses")
    code, screen = on_terminal(tmp_path, *allowed, typed="n\n")
    assert code == 9
    assert "127.0.0.1 is a private or local address. Ask it? [y/N]" in screen
    assert "nothing was fetched" in screen
    code, screen = on_terminal(tmp_path, *allowed, typed="y\n")
    assert code == 0, screen
    assert "Inside" in run("list", "--format", "text")[1]


def test_a_private_address_needs_a_person(run: Run, page: str) -> None:
    error = refused(run, "doc", "fetch", page)
    assert (error["type"], error["detail"]) == ("network.blocked", {"address": "127.0.0.1"})
    assert "--allow-private-addresses to kbproc doc fetch" in error["hint"]
    allowed = ("doc", "fetch", page, "--allow-private-addresses")
    error = refused(run, *allowed)
    assert (error["type"], error["exit_code"]) == ("input.confirmation_required", 10)
    assert run(*allowed, "--yes", "--jq", ".data.title")[:2] == (0, "Inside\n")
    assert refused(run, "doc", "fetch", page)["type"] == "network.blocked"


@pytest.fixture
def detour(page: str) -> Iterator[tuple[str, Site]]:
    """A page that redirects to another private address, and the site there."""
    try:
        there = Site("127.0.0.2")
    except OSError:
        pytest.skip("this machine has one loopback address")
    here = Site()
    there.page("/secret.html", b"<title>Secret</title><p>The key of the cloud.</p>")
    yield here.page("/page.html", status=302, Location=f"{there.url}/secret.html"), there
    here.close()
    there.close()


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[None]:
    """Runs another process that owns the store until the block ends."""
    owner = start(
        ["-m", "kbproc", "serve"],
        cwd=folder,
        env={"PATH": os.environ["PATH"], **environment(folder)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    with owner:
        assert owner.stdin and owner.stdout
        assert any(json.loads(line)["params"]["type"] == "ready" for line in owner.stdout)
        yield
        owner.stdin.close()


@pytest.mark.parametrize("owned", [False, True])
def test_a_person_approves_of_each_private_address(
    run: Run, tmp_path: Path, detour: tuple[str, Site], owned: bool
) -> None:
    """A redirect to an address without approval raises another question that names it."""
    url, there = detour
    allowed = ("doc", "fetch", url, "--allow-private-addresses")
    with contextlib.ExitStack() as stack:
        if owned:
            stack.enter_context(serving(tmp_path))
        code, screen = on_terminal(tmp_path, *allowed, typed="y\nn\n")
        assert (code, there.asked) == (9, []), screen
        assert "127.0.0.1 is a private or local address. Ask it? [y/N]" in screen
        assert "leads to 127.0.0.2, a private or local address. Ask it? [y/N]" in screen
        code, screen = on_terminal(tmp_path, *allowed, typed="y\ny\n")
        assert (code, len(there.asked)) == (0, 1), screen
    assert "Secret" in run("list", "--format", "text")[1]


def test_yes_approves_of_the_address_that_was_typed(run: Run, detour: tuple[str, Site]) -> None:
    """`--yes` does not cover the unseen address behind a redirect."""
    url, there = detour
    error = refused(run, "doc", "fetch", url, "--allow-private-addresses", "--yes")
    assert (error["type"], there.asked) == ("input.confirmation_required", [])
    assert "127.0.0.2" in error["message"]
    assert "--yes approves of the address that was typed only" in error["hint"]


def test_yes_approves_of_no_redirect_from_a_public_page(
    run: Run, tmp_path: Path, detour: tuple[str, Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first address that is blocked is not the one that was typed."""
    monkeypatch.setattr("kbproc.engine.sources.web.is_public", lambda address: address[-1] == "1")
    url, there = detour
    error = refused(run, "doc", "fetch", url, "--allow-private-addresses", "--yes")
    assert (error["type"], there.asked) == ("input.confirmation_required", [])
    assert "The page leads to 127.0.0.2, a private or local address" in error["message"]
    assert "--yes approves of the address that was typed only" in error["hint"]


# ---------------------------------------------------------------------- terminals


def test_terminals_get_text_and_progress(tmp_path: Path) -> None:
    write_docs(tmp_path)
    code, output = on_terminal(tmp_path, "add", "docs")
    assert code == 0, output
    assert ANSI.search(output)
    assert "parse" in output
    assert "embed" in output


def test_terminals_show_how_far_a_large_file_is(tmp_path: Path) -> None:
    (tmp_path / "numbers.log").write_text("1\n" * 300_000)
    code, output = on_terminal(tmp_path, "add", "numbers.log")
    assert code == 0, output
    assert re.search(r"numbers\.log: \d+ % of its text", output)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("report.pdf: page 120 of 500", "report.pdf: page 120 of 500"),
        ("a" * 48, "a" * 48),
        ("n" * 60 + ".pdf: page 1200 of 5000", "n" * 23 + "…" + "n.pdf: page 1200 of 5000"),
    ],
)
def test_a_message_beside_a_bar_keeps_its_end(message: str, expected: str) -> None:
    assert shortened(message) == expected


def test_no_color_means_no_escape_sequences(tmp_path: Path) -> None:
    write_docs(tmp_path)
    code, output = on_terminal(tmp_path, "add", "docs", env={"NO_COLOR": "1"})
    assert (code, ANSI.search(output)) == (0, None)
    code, output = on_terminal(tmp_path, "search", "git", env={"NO_COLOR": "1"})
    assert (code, ANSI.search(output)) == (0, None)
    assert output.startswith('Search: "git" (')


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "kbproc", "kb", "list"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={"PATH": os.environ["PATH"], **environment(tmp_path)},
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(PATIENCE) == 0


# ------------------------------------------------------------------ pending work


def test_new_documents_are_embedded_before_the_command_ends(run: Run, tmp_path: Path) -> None:
    run("add", str(write_docs(tmp_path)))
    assert run("status", "--jq", ".data.freshness.pending_embeddings")[1] == "0\n"


def test_embedding_can_be_left_for_later(run: Run, tmp_path: Path) -> None:
    run("add", str(write_docs(tmp_path)), "--no-wait")
    pending = int(run("status", "--jq", ".data.freshness.pending_embeddings")[1])
    assert pending >= 2
    assert run("doc", "wait", "--timeout", f"{PATIENCE:g}", "--jq", ".data.ready")[:2] == (0, "2\n")


# ----------------------------------------------------- requests of a toy registry


class Nothing(ReadParams, kw_only=True, frozen=True):
    pass


class Change(WriteParams, kw_only=True, frozen=True):
    pass


def toy(kind: Any, handler: Callable[[Call], Any], *, streams: bool = False) -> reg.Method:
    """A method that does what `handler` does."""
    declare = reg.method(
        "toy.do",
        kind=kind,
        streams=streams,
        params=Nothing if kind == "read" else Change,
        result=int,
        summary="Do it.",
        when_to_use="In tests.",
        examples=[],
        needs_store=False,
    )
    method: reg.Method = declare(lambda call, *rest: handler(call)).method  # type: ignore[attr-defined]
    return method


def performed(
    method: reg.Method, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> tuple[int, dict[str, Any]]:
    others = [REGISTRY.methods["doc.list"]]
    config = load({"HOME": str(tmp_path), **environment(tmp_path)})
    options = Options(
        config=config, output=Output(sys.stdout, sys.stderr), again=["--store", "/s t"]
    )
    code = performing.run(
        Registry({one.name: one for one in (method, *others)}), method, {}, options
    )
    lines = map(json.loads, capsys.readouterr().err.splitlines())
    # Other threads of this process may log lines of their own.
    (error,) = [line["error"] for line in lines if "error" in line]
    return code, error


def test_a_retry_is_told_as_a_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(call: Call) -> Any:
        retry = Retry(method="doc.list", params={"limit": 5, "tags": ["a"]})
        raise KbprocError("store.io", "No.", retry=retry)

    code, error = performed(toy("read", refuse), tmp_path, capsys)
    assert code == 2
    assert error["retry"]["argv"] == [
        "kbproc",
        "doc",
        "list",
        "--limit",
        "5",
        "--tags",
        "a",
        "--store",
        "/s t",
    ]


def test_a_read_ends_at_ctrl_c(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(call: Call) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        goes_on.wait(PATIENCE)

    goes_on = threading.Event()
    code, error = performed(toy("read", interrupted), tmp_path, capsys)
    goes_on.set()
    assert (code, error["type"], error["exit_code"]) == (130, "operation.cancelled", 130)


def test_a_write_is_asked_to_stop_at_ctrl_c(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(call: Call) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        until(call.cancelled, "the cancellation")
        call.check_cancelled(added=3)

    code, error = performed(toy("write", interrupted, streams=True), tmp_path, capsys)
    assert (code, error["type"]) == (130, "operation.cancelled")
    assert error["detail"] == {"added": 3}
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupted_client_gets_the_call_that_continues() -> None:
    events: list[dict[str, Any]] = []
    progress = performing.StreamProgress(events.append)
    progress.event({"type": "progress", "cursor": "x"})
    error = progress.interrupted()
    assert (error.type, error.message, error.retry) == (
        "operation.cancelled",
        "Interrupted.",
        None,
    )
    progress.event({"type": "init", "session_id": 1, "message_id": 2, "kb": None})
    progress.event({"type": "answer", "cursor": "c1"})
    progress.event({"type": "answer", "cursor": "c2"})
    error = progress.interrupted()
    assert error.retry is not None
    assert error.retry.method == "session.resume"
    assert error.retry.params == {"session_id": 1, "message_id": 2, "after": "c2"}
    assert len(events) == 4


def test_a_second_ctrl_c_does_not_wait(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    goes_on = threading.Event()

    def interrupted(call: Call) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        until(call.cancelled, "the cancellation")
        os.kill(os.getpid(), signal.SIGINT)
        goes_on.wait(PATIENCE)

    code, error = performed(toy("write", interrupted, streams=True), tmp_path, capsys)
    goes_on.set()
    assert (code, error["message"]) == (130, "Interrupted.")


def test_a_fault_of_ours_is_one_typed_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fault(call: Call) -> Any:
        return 1 // 0

    code, error = performed(toy("read", fault), tmp_path, capsys)
    assert (code, error["type"]) == (2, "internal.error")
    assert "division" not in error["message"]


def test_a_result_that_breaks_its_schema_is_never_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, error = performed(toy("read", lambda call: Reply(data="x")), tmp_path, capsys)
    assert (code, error["type"]) == (2, "internal.error")
