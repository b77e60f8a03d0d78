"""Outgoing messages are checked against the files of schemas, and without files against types."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Struct

from kbproc.methods.all import registry
from kbproc.methods.calls import checker as module
from kbproc.methods.calls.checker import Checker, lean_schema
from kbproc.methods.calls.method import Method
from kbproc.methods.calls.schemas import result_schema

PING = registry().methods["ping"]
PONG: dict[str, Any] = {"data": {"seq": 1}, "meta": {"schema": "ping/1", "seq": 1}}


def forget() -> None:
    """Makes this process compile its validators anew."""
    module.shared_validator.cache_clear()
    module.shared_results.cache_clear()


@pytest.fixture(params=["a server", "a command", "a command without files"])
def checker(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Checker:
    """Returns the checker of a server, or of a command whose installation has the files or not."""
    if request.param == "a command without files":
        monkeypatch.setattr(module, "bundled", lambda path: None)
    forget()
    return Checker(reads_files=request.param != "a server")


def test_a_result_of_the_wrong_type_is_named(checker: Checker) -> None:
    wrong = {**PONG, "data": {"seq": "one"}}
    assert "seq" in str(checker.result(PING, wrong))


def test_a_lean_result_lacks_what_it_likes(checker: Checker) -> None:
    get = registry().methods["doc.get"]
    meta = {"schema": "doc.get/1", "ms": 1, "seq": 1, "count": 1, "lean": True}
    assert checker.result(get, {"data": {"title": "One"}, "meta": meta}) is None
    assert checker.result(get, {"data": {"title": 1}, "meta": meta}) is not None


def test_events_and_errors_are_checked(checker: Checker) -> None:
    assert checker.event("progress", {"type": "progress"}) is not None
    assert checker.error({"code": 1, "message": "m"}) is not None


def test_a_server_reads_no_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another version may be installed in their place while it runs."""

    def refuse(path: str) -> None:
        raise AssertionError(path)

    monkeypatch.setattr(module, "bundled", refuse)
    forget()
    checker = Checker()
    assert "seq" in str(checker.result(PING, {**PONG, "data": {}}))
    assert checker.event("progress", {}) is not None
    assert checker.error({}) is not None


class Other(Struct, kw_only=True, frozen=True):
    word: str


def test_another_programs_method_is_checked_against_its_own_type(checker: Checker) -> None:
    def handler() -> None: ...

    method: Method = msgspec.structs.replace(PING, result=Other, handler=handler)
    complaint = checker.result(method, PONG)
    assert complaint is not None and "word" in complaint


def test_a_process_makes_a_methods_schema_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each store that a process opens would pay for it."""
    forget()
    assert Checker().result(PING, PONG) is None
    monkeypatch.setattr("kbproc.methods.calls.schemas.result_schema", lambda method: 1 / 0)
    assert Checker().result(PING, PONG) is None
    with pytest.raises(ZeroDivisionError):
        Checker().result(msgspec.structs.replace(PING), PONG)


def test_only_data_is_lean() -> None:
    schema = result_schema(registry().methods["doc.get"])
    lean = lean_schema(schema)
    assert "required" not in str(lean["properties"]["data"]) + str(lean["$defs"])
    assert lean["properties"]["meta"] == schema["properties"]["meta"]


def test_a_shell_command_makes_no_schema(tmp_path: Path) -> None:
    code = (
        "import sys, kbproc.__main__ as main\n"
        "main.leave = lambda code: print('kbproc.methods.calls.schemas' in sys.modules)\n"
        "main.main()\n"
    )
    argv = [sys.executable, "-c", code, "--store", str(tmp_path / "store"), "ping"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"
