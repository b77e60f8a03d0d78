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
from kbproc.methods.calls import checker
from kbproc.methods.calls.checker import Checker, lean_schema
from kbproc.methods.calls.method import Method
from kbproc.methods.calls.schemas import result_schema

PING = registry().methods["ping"]
PONG: dict[str, Any] = {"data": {"seq": 1}, "meta": {"schema": "ping/1", "seq": 1}}


@pytest.fixture(params=["files", "no files"], autouse=True)
def source(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Runs each test with the files, and as in an installation that lacks them."""
    if request.param == "no files":
        monkeypatch.setattr(checker, "bundled", lambda path: None)
    for validator in (checker.event_validator, checker.error_validator):
        validator.cache_clear()
    return str(request.param)


def test_a_result_of_the_wrong_type_is_named(source: str) -> None:
    wrong = {**PONG, "data": {"seq": "one"}}
    assert "seq" in str(Checker().result(PING, wrong))


def test_events_and_errors_are_checked(source: str) -> None:
    assert Checker().event("progress", {"type": "progress"}) is not None
    assert Checker().error({"code": 1, "message": "m"}) is not None


def test_both_sources_agree(source: str) -> None:
    for method in registry().methods.values():
        schema = result_schema(method)
        assert msgspec.json.decode(checker.schema_of_result(method)) == schema


class Other(Struct, kw_only=True, frozen=True):
    word: str


def test_another_programs_method_is_checked_against_its_own_type(source: str) -> None:
    def handler() -> None: ...

    method: Method = msgspec.structs.replace(PING, result=Other, handler=handler)
    complaint = Checker().result(method, PONG)
    assert complaint is not None and "word" in complaint


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
