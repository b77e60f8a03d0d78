"""A command imports only what it needs: people, cron and hooks wait for each start."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.processes import Client
from tests.kit.start import REPO
from tests.kit.talk import Session
from tests.kit.world import filled

# Libraries that take longer to import than all else of a small command.
HEAVY = {"_duckdb", "duckdb", "tantivy", "numpy", "faiss", "onnxruntime", "tokenizers", "simsimd"}
VALIDATOR = {"jsonschema_rs"}
RARE = {"asyncio", "httpx", "rich", "inspect", "importlib.metadata", "traceback", "email.utils"}
# Modules that no command needs; the first four took a tenth of the time of a hybrid search.
COSTLY = {"inspect", "ast", "dataclasses", "numpy._typing", "decimal", "base64"}
SERVES = {"kbproc.surfaces.sharing.owner", "kbproc.knowledge.app.library"}
WRITES = {
    "kbproc.engine.store.pipeline",
    "kbproc.engine.events.codec",
    "kbproc.engine.models.export",
    "kbproc.engine.models.answering.choice",
    "kbproc.knowledge.history.purge",
}
# The modules of kbproc that a command may import: package → names, besides those of the command
# whose line `like` names.
MAY_IMPORT = json.loads(Path(__file__).with_name("imports.json").read_text(encoding="utf-8"))
ADVICE = """{} imports {}, which a start did without. Import it in the function that needs it.
If each such command needs it, add it to tests/shell/imports.json, and say in the commit why."""
# Prints what is imported in the very end, because an end can import, too.
CODE = """
import os, sys
end = os._exit
os._exit = lambda code: (print(*sys.modules, file=sys.stderr, flush=True), end(code))
from kbproc.__main__ import main
main()
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


def of_python(code: str) -> set[str]:
    """Returns the modules that Python's own modules import for `code`; 3.14's import more."""
    code += "; import sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def methods_in(modules: set[str]) -> set[str]:
    """Returns the methods' own modules."""
    names = {name.removeprefix("kbproc.methods.") for name in modules if "kbproc.methods." in name}
    return {name for name in names if name != "all" and name.partition(".")[0] != "calls"}


def test_a_look_at_the_model_loads_no_openssl() -> None:
    assert "_hashlib" not in of_python("import kbproc.engine.models.catalogue")


@pytest.mark.parametrize("argv", [["--help"], ["doc", "--help"], ["search", "--help"], ["help"]])
def test_help_reads_the_outlines(store: Path, argv: list[str]) -> None:
    modules = imported(store, *argv)
    assert methods_in(modules) == set()
    forbidden = {*HEAVY, *VALIDATOR, *RARE, *SERVES, "logging", "socket", "hashlib"}
    assert modules & forbidden == set()
    assert not any(name.startswith("kbproc.engine") for name in modules)


def test_completion_reads_the_outlines(store: Path) -> None:
    modules = imported(store, "completion", "bash")
    modules -= of_python("import argparse; argparse.ArgumentParser().format_usage()")
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


def allowed(command: str) -> set[str]:
    """Returns the modules of kbproc that a command may import."""
    packages = dict(MAY_IMPORT[command])
    like = packages.pop("like", None)
    modules = {f"{package}.{name}" for package, names in packages.items() for name in names.split()}
    return modules | (allowed(like) if like else {"kbproc"})


@pytest.fixture(scope="module")
def without_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed store without a model."""
    folder = tmp_path_factory.mktemp("without")
    session = Session(folder / "store", cwd=folder, model="none")
    session.data("doc.create", title="Tides", text="High tide is at noon.")
    session.close()
    imported(folder / "store", "ping")
    return folder / "store"


@pytest.mark.parametrize(
    ("command", "argv"),
    [
        ("--version", ["--version"]),
        ("--help", ["--help"]),
        ("ping", ["ping"]),
        ("list", ["list"]),
        ("words", ["search", "tide", "--fts-only"]),
        ("hybrid", ["search", "tide"]),
        ("beside", ["search", "tide", "--fts-only"]),
    ],
)
def test_a_command_imports_no_more_than_before(
    store: Path, without_model: Path, command: str, argv: list[str]
) -> None:
    server = None
    if command == "beside":
        server = Client(without_model, cwd=without_model.parent).ready()
    modules = imported(store if command == "hybrid" else without_model, *argv)
    if server is not None:
        server.end()
    own = {name for name in modules if name.partition(".")[0] == "kbproc"}
    added = sorted(own - allowed(command))
    assert not added, ADVICE.format(f"kbproc {' '.join(argv)}", ", ".join(added))
    if command in {"--version", "--help", "beside"}:
        assert modules & {*HEAVY, *VALIDATOR, *RARE, *SERVES} == set()
    assert modules & COSTLY <= of_python("import typing; typing.ForwardRef('int')")


def test_a_list_opens_no_vectors_where_there_is_no_model(tmp_path: Path) -> None:
    session = Session(tmp_path / "store", cwd=tmp_path, model="onnx:a-model-of-nobody")
    session.data("doc.create", title="Tides", text="High tide is at noon.")
    session.close()
    assert imported(tmp_path / "store", "list") & HEAVY == set()


def test_windows_is_refused_in_words_that_name_wsl() -> None:
    """Before anything is imported that Python on Windows lacks."""
    program = (
        "import sys\n"
        "sys.modules['fcntl'] = sys.modules['resource'] = None\n"
        "import kbproc.__main__ as program\n"
        "sys.platform = 'win32'\n"
        "program.main()\n"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "not on Windows" in done.stderr and "WSL" in done.stderr
    assert "Traceback" not in done.stderr
