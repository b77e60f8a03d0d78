"""The outlines hold what the declarations say, for processes that import no method."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest

from kbproc.methods.all import outlines, registry
from kbproc.methods.calls import describe
from kbproc.methods.calls.flags import common_flags, flags_of, outline_of
from tests.kit.start import REPO

METHODS = registry().loaded().methods


def test_every_method_has_an_outline_in_the_same_order() -> None:
    assert list(outlines().methods) == list(METHODS)


def test_an_outline_says_what_the_declaration_says(subtests: pytest.Subtests) -> None:
    for name, method in METHODS.items():
        with subtests.test(name):
            outline = outlines().methods[name]
            assert msgspec.to_builtins(outline) == msgspec.to_builtins(outline_of(method))
            assert msgspec.to_builtins(flags_of(outline)) == msgspec.to_builtins(flags_of(method))
            assert common_flags(outline) == common_flags(method)
            assert describe.line(outline) == describe.line(method)
            assert describe.brief(outline) == describe.brief(method)


def test_the_nearest_names_are_the_same() -> None:
    for typed in ("serach", "doc.view", "list", "knowledge.add", "nothing"):
        assert outlines().meant(typed) == registry().meant(typed)


def test_reading_them_imports_no_method() -> None:
    code = (
        "import sys\nfrom kbproc.methods.all import outlines\nassert outlines().methods\n"
        "print(*[name for name in sys.modules if name.startswith('kbproc.methods')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=REPO, capture_output=True, text=True, check=True
    )
    assert {
        name.removeprefix("kbproc.methods").strip(".").partition(".")[0]
        for name in done.stdout.split()
    } == {"", "all", "calls"}
