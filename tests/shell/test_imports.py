"""A command imports only what it needs: people, cron and hooks wait for each start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.start import REPO
from tests.kit.talk import Session
from tests.kit.world import filled

# Libraries that take longer to import than all else of a small command.
HEAVY = {"_duckdb", "duckdb", "tantivy", "numpy", "faiss", "onnxruntime", "tokenizers", "simsimd"}
VALIDATOR = {"jsonschema_rs"}
RARE = {"asyncio", "httpx", "rich", "inspect", "importlib.metadata", "traceback", "email.utils"}
SERVES = {"kbproc.surfaces.sharing.owner", "kbproc.knowledge.app.library"}
WRITES = {
    "kbproc.engine.store.pipeline",
    "kbproc.engine.events.codec",
    "kbproc.engine.models.export",
    "kbproc.engine.models.answering.choice",
    "kbproc.knowledge.history.purge",
}
CODE = """
import sys, kbproc.__main__ as main
leave = main.leave
main.leave = lambda code: (print(*sys.modules, file=sys.stderr), leave(code))
main.main()
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed store, whose catalog's file a command has made private."""
    folder = filled(tmp_path_factory.mktemp("imports")) / "store"
    imported(folder, "ping")
    return folder


def imported(store: Path, *argv: str) -> set[str]:
    """Returns the modules that a command has imported when it ends."""
    env = {**os.environ, "KBPROC_STORE": str(store), "PYTHONPATH": str(REPO)}
    done = subprocess.run(
        [sys.executable, "-c", CODE, *argv], env=env, capture_output=True, text=True, check=True
    )
    return set(done.stderr.splitlines()[-1].split())


def methods_in(modules: set[str]) -> set[str]:
    """Returns the methods' own modules."""
    names = {name.removeprefix("kbproc.methods.") for name in modules if "kbproc.methods." in name}
    return {name for name in names if name != "all" and name.partition(".")[0] != "calls"}


@pytest.mark.parametrize("argv", [["--help"], ["doc", "--help"], ["search", "--help"], ["help"]])
def test_help_reads_the_outlines(store: Path, argv: list[str]) -> None:
    modules = imported(store, *argv)
    assert methods_in(modules) == set()
    forbidden = {*HEAVY, *VALIDATOR, *RARE, *SERVES, "logging", "socket", "hashlib"}
    assert modules & forbidden == set()
    assert not any(name.startswith("kbproc.engine") for name in modules)


def test_completion_reads_the_outlines(store: Path) -> None:
    modules = imported(store, "completion", "bash")
    assert methods_in(modules) == set()
    assert modules & {*HEAVY, *VALIDATOR, *RARE, *SERVES} == set()


@pytest.mark.parametrize(
    ("argv", "method"),
    [
        (["version"], "version"),
        (["describe"], "describe"),
        (["describe", "doc.list"], "describe"),
    ],
)
def test_a_command_without_a_store_imports_none(store: Path, argv: list[str], method: str) -> None:
    modules = imported(store, *argv)
    assert methods_in(modules) == {method}
    assert modules & {*HEAVY, *RARE, *SERVES, *WRITES} == set()


@pytest.mark.parametrize(
    ("argv", "method", "heavy"),
    [
        (["ping"], {"ping"}, set()),
        (["list"], {"doc", "doc.list"}, set()),
        (["list", "--limit", "2"], {"doc", "doc.list"}, set()),
        (["search", "install git", "--fts-only"], {"search"}, {"tantivy"}),
        (["kb", "list"], {"kb", "kb.list"}, set()),
        (["list", "--kb", "scratch"], {"doc", "doc.list"}, set()),
    ],
)
def test_a_read_of_a_closed_store_imports_the_projections_that_it_reads(
    store: Path, argv: list[str], method: set[str], heavy: set[str]
) -> None:
    modules = imported(store, *argv)
    assert modules & HEAVY == heavy
    assert methods_in(modules) == method
    assert modules & RARE == set()
    assert heavy or modules & WRITES == set()


def test_a_list_opens_no_vectors_where_there_is_no_model(tmp_path: Path) -> None:
    session = Session(tmp_path / "store", cwd=tmp_path, model="onnx:a-model-of-nobody")
    session.data("doc.create", title="Tides", text="High tide is at noon.")
    session.close()
    assert imported(tmp_path / "store", "list") & HEAVY == set()
