"""Rules that the declaration of every method keeps."""

import subprocess
import sys
from pathlib import Path

import kbproc.methods
from kbproc.methods.all import registry

METHODS = list(registry().methods.values())
PACKAGE = Path(kbproc.methods.__file__).parent


def test_every_file_holds_a_method() -> None:
    files = {path.relative_to(PACKAGE).with_suffix("") for path in PACKAGE.rglob("*.py")}
    named = {
        ".".join(path.parts).replace("import_", "import")
        for path in files
        if path.name != "__init__" and path.parts[0] not in {"all", "calls"}
    }
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
    imported = {name.removeprefix("kbproc.methods.") for name in done.stdout.split()}
    assert {name for name in imported if name.partition(".")[0] != "calls"} == {
        "all",
        "doc",
        "doc.get",
    }


def test_a_method_lies_in_the_file_of_its_name() -> None:
    elsewhere = {}
    for method in METHODS:
        home = f"kbproc.methods.{method.name.replace('store.import', 'store.import_')}"
        places = method.handler.__module__, method.params.__module__
        if places[0] != home or places[1] not in {home, "kbproc.knowledge.search.params"}:
            elsewhere[method.name] = places
    assert elsewhere == {}


def test_every_write_says_what_takes_it_back() -> None:
    """tests/calls/test_examples.py holds it against what events.revert does."""
    writes = {method.name for method in METHODS if method.kind != "read"}
    assert {method.name for method in METHODS if method.undone_by is not None} == writes
    named = {name for method in METHODS for name in method.undone_by or ()}
    assert named <= writes and not named & {"store.purge", "store.compact"}


def test_a_write_that_takes_several_records_has_a_plan() -> None:
    """plan.approve does not stream; the request that it carries out may be such a write."""
    is_long = {one.name for one in METHODS if one.streams and one.kind != "read"}
    assert {one.name for one in METHODS if one.plan is not None} == {*is_long, "plan.approve"}
