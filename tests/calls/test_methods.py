"""What holds for the declaration of every method."""

import subprocess
import sys
from pathlib import Path

import pytest

import kbproc.methods
from kbproc.calls.method import Method
from kbproc.methods.all import registry

METHODS = list(registry().methods.values())
ROOM = Path(kbproc.methods.__file__).parent


def test_every_file_holds_a_method() -> None:
    files = {path.relative_to(ROOM).with_suffix("") for path in ROOM.rglob("*.py")}
    named = {".".join(path.parts).replace("import_", "import") for path in files}
    named = {name for name in named if not name.endswith("__init__")} - {"all"}
    assert named == {method.name for method in METHODS}


def test_whoever_calls_one_imports_no_other() -> None:
    code = (
        "import os, sys\n"
        "from kbproc.methods.all import registry\n"
        "registry().find('doc.get')\n"
        "found = [n for n in sys.modules if n.startswith('kbproc.methods.')]\n"
        "print(*sorted(set(found)), flush=True)\n"
        "os._exit(0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout.split() == [f"kbproc.methods.{name}" for name in ("all", "doc", "doc.get")]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_a_method_lies_in_the_file_of_its_name(method: Method) -> None:
    name = method.name.replace("store.import", "store.import_")
    assert method.handler.__module__ == f"kbproc.methods.{name}"
    assert method.params.__module__ in {method.handler.__module__, "kbproc.search.params"}


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_a_write_that_takes_several_records_has_a_plan(method: Method) -> None:
    is_long = method.streams and method.kind != "read"
    assert (method.plan is not None) == is_long
