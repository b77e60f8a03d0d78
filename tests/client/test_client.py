"""The main work of a harness, through both clients: calls, streams, errors, time, many callers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kbproc import client
from kbproc.client import (
    BadRequest,
    Cancelled,
    Closed,
    Conflict,
    Kbproc,
    KbprocError,
    NeedsPerson,
    NotFound,
    Timeout,
)
from kbproc.client.facts import ERRORS, METHODS
from kbproc.methods.all import registry
from kbproc.methods.calls.schemas import params_schema
from tests.client.conftest import Open
from tests.kit.harness import ENVIRONMENT, REPO, running, serving
from tests.kit.judged import told_in
from tests.kit.patience import PATIENCE, until
from tests.kit.shell import environment

# Modules of the standard library that would double the time of the import.
HEAVY = {"asyncio", "dataclasses", "inspect", "logging", "pathlib", "ssl", "tempfile", "urllib"}


def loaded_by(statement: str) -> set[str]:
    """Returns the modules that a new Python loads for the statement."""
    program = (
        f"import sys; before = set(sys.modules); {statement}\nprint(*set(sys.modules) - before)"
    )
    child = subprocess.run(
        [sys.executable, "-c", program],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=True,
    )
    return set(child.stdout.split())


def test_importing_it_loads_little_of_the_standard_library_and_nothing_else() -> None:
    loaded = loaded_by("from kbproc.client import *")
    ours = {name for name in loaded if name.startswith("kbproc.client")}
    assert {name.partition(".")[0] for name in loaded - ours} <= sys.stdlib_module_names | {
        "kbproc"
    }
    assert len(ours) > 5 and {name for name in loaded - ours if "kbproc" in name} == {"kbproc"}
    assert loaded & HEAVY == set()
    alone = {name for name in loaded_by("import kbproc.client.in_flight") if "kbproc" in name}
    assert alone == {"kbproc", "kbproc.client", "kbproc.client.in_flight"}


def test_hints_name_what_the_client_takes(tmp_path: Path) -> None:
    """Hints name arguments of the client, not the flags of `kbproc serve`."""
    root = tmp_path / "root"
    root.mkdir()
    served = [sys.executable, "-m", "kbproc", "serve", "--scopes", "doc:write,kb:read"]
    env = {**environment(tmp_path), "PYTHONPATH": str(REPO)}
    with Kbproc(command=[*served, "--root", str(root)], cwd=tmp_path, env=env) as kb:
        with pytest.raises(KbprocError) as outside:
            kb.doc.ingest([str(tmp_path)])
        with pytest.raises(KbprocError) as missing:
            kb.kb.create(slug="mine")
    assert "with another root=." in outside.value.hint
    assert "to its scopes=." in missing.value.hint
    for error in (outside.value, missing.value):
        assert error.hint and error.hint not in error.message


def test_a_harness_does_its_work(either: Open) -> None:
    """Calls by place and by name, streams with every event in order, and their results."""
    it = either()
    kb = it.kb
    added = it.ask(kb.doc.create, title="Tides", text="High tide is at noon.", tags=["sea"])
    assert (added.data["title"], added.meta["schema"]) == ("Tides", "doc.create/1")
    for answer in (it.ask(kb.search, "high tide", limit=1), it.ask(kb.search, query="high tide")):
        assert answer.data["results"][0]["source"]["document_id"] == added.data["id"]
    assert it.ask(kb.doc.get, added.data["id"], text=True).data["text"] == "High tide is at noon."
    assert it.ask(kb.call, "tag.list", {"limit": 1}, order="count").data[0]["name"] == "sea"

    it.ask(kb.doc.wait, ids=[added.data["id"]])  # so that the answer warns of no missing vector
    stream = it.stream(kb.chat, "when is high tide")
    events = list(it.events(stream))
    assert [event["index"] for event in events] == list(range(len(events)))
    assert {"init", "references", "answer"} == {event["type"] for event in events}
    data = it.result(stream).data
    assert data["text"] == "".join(event.get("delta", "") for event in events)
    assert kb.server["server"]["name"] == "kbproc"
    assert kb.restarts == 0


def test_errors_say_what_to_do(either: Open) -> None:
    it = either()
    kb = it.kb
    with pytest.raises(NotFound) as missing:
        it.ask(kb.kb.get, "defualt")
    assert missing.value.exit_code == 5
    assert missing.value.valid_values == ["default"]
    assert missing.value.retry == {"method": "kb.get", "params": {"slug": "default"}}
    with pytest.raises(BadRequest, match=r"limt.*Valid: limit") as wrong:
        it.ask(kb.search, "x", limt=3)
    assert (wrong.value.field, wrong.value.retryable) == ("$.params.limt", False)
    document = it.ask(kb.doc.create, title="A", text="a", client_token="once")
    again = it.ask(kb.doc.create, title="A", text="a", client_token="once")
    assert again.meta["duplicate"] and again.data == document.data
    with pytest.raises(Conflict):
        it.ask(kb.doc.create, title="B", text="b", client_token="once")
    with pytest.raises(NeedsPerson) as plan:
        it.ask(kb.doc.delete, [document.data["id"]])
    assert plan.value.plan is not None and plan.value.retry is None
    it.ask(kb.doc.delete, [document.data["id"]], confirm=plan.value.plan["plan_hash"])
    with pytest.raises(TypeError, match="by place: query"):
        kb.search("a", "b")
    with pytest.raises(AttributeError) as unknown:
        kb.doc.creat  # noqa: B018
    assert "create" in dir(unknown.value.obj)


def test_what_is_no_json_is_refused_here(either: Open) -> None:
    """The client refuses it because the server's answer would have no id."""
    it = either()
    for wrong in (object(), float("nan")):
        with pytest.raises((TypeError, ValueError)):
            it.ask(it.kb.doc.create, title="A", text="a", metadata={"x": wrong})
    with pytest.raises(BadRequest, match="smaller parts"):
        it.ask(it.kb.doc.create, title="A", text="a" * 17_000_000)
    assert it.ask(it.kb.ping).data["seq"] >= 0


def test_what_the_server_takes_no_line_of_is_refused_here(opened: Open, tmp_path: Path) -> None:
    """The client refuses a line too long for the server, whose answer would have no id."""
    kb = opened(command=serving(tmp_path / "store", max_line_bytes=65_536))
    kb.ready()
    with kb.events.subscribe.stream(), pytest.raises(BadRequest, match="more than 65536 bytes"):
        kb.doc.create(title="Long", text="word " * 20_000, timeout=PATIENCE)


def test_leaving_a_stream_cancels_it(either: Open) -> None:
    """Nothing stays in flight, because the server answers the cancelled request."""
    it = either()
    kb = it.kb
    it.ask(kb.doc.create, title="A", text="a")
    events = it.events(it.stream(kb.events.subscribe, after_seq=0))
    assert [next(events)["type"] for _ in range(2)] == ["init", "item"]
    assert kb.in_flight == 1
    it.leave(events)
    until(lambda: not kb.in_flight, "the server's answer")
    stream = it.stream(kb.events.subscribe)
    stream.cancel()
    with pytest.raises(Cancelled) as cancelled:
        it.result(stream)
    assert cancelled.value.exit_code == 9


def test_a_stopped_server_holds_nobody(either: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client enforces the timeout itself, and works again once the server continues."""
    monkeypatch.setattr("kbproc.client.flights.GRACE", 0.05)
    it = either()
    it.ask(it.kb.ping)
    os.kill(it.kb.pid, signal.SIGSTOP)
    try:
        with pytest.raises(Timeout, match="does not say why"):
            it.ask(it.kb.ping, timeout=0.05)
    finally:
        os.kill(it.kb.pid, signal.SIGCONT)
    assert it.ask(it.kb.ping).data["seq"] >= 0
    monkeypatch.setattr("kbproc.client.flights.GRACE", PATIENCE)
    with pytest.raises(Timeout, match="longer timeout_ms"):
        it.ask(it.kb.ping, min_seq=99, timeout=0.01)


def test_a_server_that_is_stopped_is_ended_soon(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kbproc.client.flights.GRACE", 0.05)
    monkeypatch.setattr("kbproc.client.server._SILENT", 0.05)
    kb = opened()
    kb.ready()
    os.kill(kb.pid, signal.SIGSTOP)
    with pytest.raises(Timeout):
        kb.ping(timeout=0.05)
    kb.close()
    with pytest.raises(Closed):
        kb.ping()


def test_twenty_callers_share_one_client(opened: Open) -> None:
    """There are more callers than requests in flight; each reads its own writes."""
    kb = opened(timeout=PATIENCE)

    def call(number: int) -> int:
        added = kb.doc.create(title=f"Note {number}", text=f"word{number}")
        assert kb.doc.get(added.data["id"], text=True).data["text"] == f"word{number}"
        return int(added.data["id"])

    with ThreadPoolExecutor(20) as pool:
        ids = list(pool.map(call, range(60)))
        waits = [kb.stream("ping") for _ in range(200)]
    assert len(set(ids)) == 60
    assert all(wait.result().data["seq"] >= 60 for wait in waits)


def test_no_server_outlives_its_harness(tmp_path: Path, executed: None) -> None:
    """A killed harness leaves no server, not even one that has just started."""
    harness = (
        "import sys, threading\nfrom kbproc.client import Kbproc\ncame = threading.Event()\n"
        f"kb = Kbproc({str(tmp_path / 'store')!r}, on_event=lambda event: came.set())\n"
        "came.wait(); print(kb.pid, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        running(harness), env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        pid = int(process.stdout.readline())
        process.kill()
    until(lambda: not Path(f"/proc/{pid}").exists(), "the server's end")


def test_facts_are_those_of_the_methods() -> None:
    """Every positional argument is a param, and every class of errors has its code."""
    methods = registry().methods
    assert list(METHODS) == list(methods)
    for name, (writes, places, summary) in METHODS.items():
        assert writes == (methods[name].kind != "read")
        assert set(places) <= set(params_schema(methods[name])["properties"])
        assert summary == methods[name].summary
    classes = {client.errors.of({"data": {"type": type}}).__class__ for type in ERRORS}
    assert KbprocError not in classes and len(classes) >= 10


@pytest.mark.parametrize("type", ["doc.not_found", "path.outside_root"])
def test_members_that_are_null_are_as_if_absent(type: str) -> None:
    members = dict.fromkeys(("hint", "detail", "valid_values", "retry"))
    error = client.errors.of({"message": "No.", "data": {"type": type, **members}})
    assert (str(error), error.hint, error.detail) == (f"{type}: No.", "", {})


def test_the_page_tells_every_class_of_errors() -> None:
    kinds = [getattr(client, name) for name in client.__all__ if name != "Event"]
    classes = {one.__name__: one for one in kinds if issubclass(one, KbprocError)}
    del classes["KbprocError"]
    codes = {client.errors.of({"data": {"exit_code": code}}).__class__: code for code in range(11)}
    rows = {
        name: next(codes[one] for one in kind.__mro__ if one in codes)
        for name, kind in classes.items()
    }
    names = sorted(rows, key=lambda name: (rows[name], len(classes[name].__mro__)))
    with told_in("classes", names, REPO / "docs" / "harness.md") as table:
        for name in names:
            table[name] = f"| `{name}` | {rows[name]} | {classes[name].__doc__} |"


def test_its_words_are_in_its_docs(opened: Open) -> None:
    assert Kbproc.__doc__ and "with Kbproc" in Kbproc.__doc__
    kb = opened()
    assert kb.doc.create.__doc__ == "Add a text as a document, or many at once."
    assert "create" in dir(kb.doc) and "doc" in dir(kb) and "import_" in dir(kb.store)
    assert (REPO / "kbproc" / "client" / "py.typed").exists()
