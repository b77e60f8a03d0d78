"""No verdict of a test depends on how fast a machine is; tests/kit/patience.py has the bounds."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.conftest import Report
from tools import code

CLOCKS = {"time", "monotonic", "perf_counter", "process_time", "thread_time"}
CLOCKS |= {f"{name}_ns" for name in CLOCKS}
WAITS = {"wait", "wait_for", "join", "communicate", "result", "exception", "settimeout"}
WAITS |= {"acquire", "get", "run", "create_connection", "HTTPConnection", "request"}

# Files that read a clock or sleep, and why that decides nothing.
EXCEPTIONS = {
    "tests/kit/patience.py": "its bounds only end tests that hang",
    "tests/kit/growth.py": "compares two times of the same program",
    "tests/documents/test_knowledge.py": "compares two times of the same program",
    "tests/kit/workers.py": "an embedder that takes its time",
    "tests/harnesses/test_harnesses.py": "notes figures for a page",
}


def breaches(here: code.Code) -> Iterator[str]:
    """Yields what makes a verdict depend on time: a measured time, a sleep, a number as a bound."""
    for node in here.of(ast.Compare, ast.BinOp):
        if not isinstance(getattr(node, "op", ast.Sub()), ast.Sub):
            continue
        if any(_reads_clock(inner) for inner in ast.walk(node)):
            yield f"{here.place(node)}: measures a time; count the work, or wait for a condition"
    for call in here.of(ast.Call):
        name = _name(call.func)
        if name == "sleep" and not _is_number(call.args[0], least=0):
            yield f"{here.place(call)}: sleeps; wait for a condition with `until`"
        bounds = [word.value for word in call.keywords if word.arg == "timeout"]
        if isinstance(call.func, ast.Attribute) and name not in {"get", "run", "request"}:
            bounds += call.args
        if name in WAITS and any(_is_number(bound) for bound in bounds):
            yield f"{here.place(call)}: bounds a wait by a number; tests/kit/patience.py has names"


def _reads_clock(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and (node.func.value.id, node.func.attr in CLOCKS) == ("time", True)
    )


def _name(node: ast.expr) -> str:
    return getattr(node, "attr", getattr(node, "id", ""))


def _is_number(node: ast.expr, least: float | None = None) -> bool:
    """Returns True for a literal number above 0; with `least` for one of that value."""
    value = getattr(node, "value", None)
    if not isinstance(node, ast.Constant) or type(value) not in {int, float}:
        return False
    return value > 0 if least is None else value == least


def test_no_verdict_depends_on_how_fast_a_machine_is(none: Report) -> None:
    places = {here.name: list(breaches(here)) for here in code.codes("tests")}
    none(line for name, lines in places.items() if name not in EXCEPTIONS for line in lines)
    assert [name for name in EXCEPTIONS if not places[name]] == [], "take the exception out"


def test_each_way_is_noticed() -> None:
    source = (
        "began = time.monotonic()\nassert time.monotonic() - began < 4\ntime.sleep(0.2)\n"
        "event.wait(0.2)\nprocess.communicate(timeout=5)\nevent.wait(PATIENCE)\n"
        "await asyncio.sleep(0)\nnumbers.get('a', 5)\nlate = time.monotonic() + 5\n"
    )
    lines = [line.partition(": ")[0].rpartition(":")[2] for line in breaches(code.Code(source))]
    assert sorted(set(lines)) == ["2", "3", "4", "5"]
