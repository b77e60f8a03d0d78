"""The rules of the code: packages and their imports, sizes, boundaries, prose.

The docstring of a package's `__init__.py` is its description; these tests compare it with the code.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.kit.talk import REPO
from tools.generate import packages

PACKAGE = REPO / "kbproc"

# Boundaries that may catch any exception, because no caller beyond them would see it.
BOUNDARIES = {
    "engine/embedding/background.py",
    "engine/cluster/work/node.py",
    "knowledge/app/library.py",
    "engine/cluster/jetstream/link.py",
    "surfaces/hooks/work.py",
    "surfaces/sharing/inside.py",
    "surfaces/mcp/protocol.py",
    "engine/models/exporting.py",
    "engine/models/onnx.py",
    "knowledge/agents/notes/background.py",
    "knowledge/sessions/making.py",
    "knowledge/watching/folder.py",
    "surfaces/sharing/attached.py",
    "surfaces/sharing/command.py",
    "surfaces/sharing/owner.py",
    "surfaces/shell/cli.py",
    "engine/sources/parse/formats.py",
    "engine/sources/parse/pdf.py",
    "engine/sources/parse/sheet.py",  # calamine panics at some times
    "engine/store/lane.py",
    "engine/store/store.py",
    "engine/projections/fulltext/search.py",
    "surfaces/wire/in_flight.py",
    "surfaces/wire/pool.py",
}

# Folders that exist only on the authors' machines.
PRIVATE = ("shared/" + "design", "shared/" + "contract")

HEAVY = {
    "duckdb",
    "faiss",
    "tantivy",
    "onnxruntime",
    "torch",
    "numpy",
    "simsimd",
    "pypdf",
    "httpx",
    "rich",
    "watchfiles",
    "docx",
    "lxml",
    "selectolax",
    "tokenizers",
    "sentence_transformers",
    "jq",
    "jsonschema_rs",
    "python_calamine",
    "shtab",
}

LONGEST_FUNCTION = 50

FILES = sorted(PACKAGE.rglob("*.py"))
# The client is also published under another name, so its imports are relative.
PUBLISHED = PACKAGE / "client"


def name_of(path: Path) -> str:
    """Returns the module: base.paths for kbproc/base/paths.py; the folder of an `__init__.py`."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in FILES}
TREES = {name: ast.parse(path.read_text()) for name, path in MODULES.items()}
PACKAGES = packages.packages()
DESCRIPTIONS = {name: packages.description(name) for name in PACKAGES}


@cache
def package_of(module: str) -> str:
    """Returns the innermost package with a description; empty for a module without one."""
    outer = [name for name in PACKAGES if f"{module}.".startswith(f"{name}.")]
    return max(outer, key=len, default="")


class Import(NamedTuple):
    """`module`: without the prefix `kbproc.`; `symbol`: None if the module itself is imported."""

    module: str
    symbol: str | None


@cache
def imports(name: str) -> list[Import]:
    """Returns the imports of kbproc in this module, also those in functions and for types only."""
    return list(_imports(name))


def _imports(name: str) -> Iterator[Import]:
    for node in ast.walk(TREES[name]):
        if isinstance(node, ast.ImportFrom):
            package, _, base = named(node, name).partition(".")
            if package != "kbproc":
                continue
            for alias in node.names:
                inner = f"{base}.{alias.name}".removeprefix(".")
                yield Import(inner, None) if inner in MODULES else Import(base, alias.name)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("kbproc."):
                    yield Import(alias.name.removeprefix("kbproc."), None)


def named(node: ast.ImportFrom, name: str) -> str:
    """Returns the full name that the node imports from; `name`: of the importing module."""
    package = f"kbproc.{name}"
    if MODULES[name].name != "__init__.py":
        package = package.rpartition(".")[0]
    return importlib.util.resolve_name("." * node.level + (node.module or ""), package)


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


# -------------------------------------------------------------------------- packages


def test_every_module_belongs_to_a_package() -> None:
    layers = set(packages.layers())
    assert {name for name in MODULES if not package_of(name)} - layers == {"", "__main__"}


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_imports_what_its_description_says(package: str) -> None:
    imported = {
        package_of(one.module)
        for name in MODULES
        if package_of(name) == package
        for one in imports(name)
        if one.module and package_of(one.module) != package
    }
    assert imported == set(DESCRIPTIONS[package].may_import)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_imports_only_packages_before_it(package: str) -> None:
    assert set(DESCRIPTIONS[package].may_import) <= set(PACKAGES[: PACKAGES.index(package)])


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_offers_what_others_import(package: str) -> None:
    """Modules that no description offers are private; so are names with an underscore."""
    imported = {
        (one.module.removeprefix(package).removeprefix("."), one.symbol)
        for name in MODULES
        if package_of(name) != package
        for one in imports(name)
        if package_of(one.module) == package
    }
    assert {module for module, _ in imported} == set(DESCRIPTIONS[package].offers)
    assert {symbol for _, symbol in imported if symbol and symbol.startswith("_")} == set()


def test_few_packages_know_the_cluster() -> None:
    """Others ask the log, or the rules of the store's node; see knowledge/cluster/alone.py."""
    cluster = {"engine.cluster", "knowledge.cluster"}
    knowing = {name for name in PACKAGES if cluster.intersection(DESCRIPTIONS[name].may_import)}
    assert knowing == {"knowledge.cluster", "knowledge.app", "methods", "surfaces.shell"}


def test_no_import_runs_in_a_circle() -> None:
    """Imports in functions and for types only count."""
    graph = {name: {one.module for one in imports(name)} - {name} for name in MODULES}
    while graph:
        ends = {name for name, modules in graph.items() if not modules & graph.keys()}
        if not ends:
            break
        graph = {name: modules for name, modules in graph.items() if name not in ends}
    assert sorted(graph) == []


@pytest.mark.parametrize("path", [p for p in FILES if p.name == "__init__.py"], ids=name_of)
def test_a_packages_init_is_its_description_and_nothing_else(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert ast.get_docstring(tree)
    if path.parent == PUBLISHED:
        names = ast.ImportFrom | ast.Assign | ast.If | ast.FunctionDef  # imported when asked for
        assert all(isinstance(node, names) for node in tree.body[1:])
    elif path.parent != PACKAGE:
        assert len(tree.body) == 1


def test_tests_and_benchmarks_are_not_imported() -> None:
    wrong = [
        (name, node.module)
        for name, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        and named(node, name).split(".")[0] in {"tests", "bench"}
    ]
    assert wrong == []


def test_modules_are_named_in_full_but_where_they_have_two_names() -> None:
    wrong = [
        (name, node.module)
        for name, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        and bool(node.level)
        != (MODULES[name].parent == PUBLISHED and named(node, name).startswith("kbproc"))
    ]
    assert wrong == []


@pytest.mark.parametrize("package", [name for name in PACKAGES if DESCRIPTIONS[name].light])
def test_light_packages_import_no_heavy_library(package: str) -> None:
    names = [f"kbproc.{name}" for name in MODULES if package_of(name) == package]
    code = (
        "import importlib, sys\n"
        f"for name in {names!r}:\n"
        "    importlib.import_module(name)\n"
        f"    heavy = sorted({HEAVY!r} & set(sys.modules))\n"
        "    assert not heavy, (name, heavy)\n"
        "from kbproc.base.pipes import leave\n"
        "leave(0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=REPO, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_naming_a_row_costs_nothing() -> None:
    """Modules of rows and interfaces import no heavy library, although their packages do."""
    assert importlib.util.find_spec("numpy")
    code = (
        "import sys\n"
        "from kbproc.engine.projections.catalog import filters, reader, rows, tables\n"
        "from kbproc.engine.models import interface\n"
        f"assert not {HEAVY!r} & set(sys.modules)\n"
        "from kbproc.base.pipes import leave\n"
        "leave(0)\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=REPO, check=True)


# ----------------------------------------------------------------------------- sizes


def folders() -> list[Path]:
    """Returns the folders of the package and of its tests."""
    paths = {path.parent for path in FILES}
    paths |= {path.parent for path in (REPO / "tests").rglob("test_*.py")}
    return sorted(paths)


@pytest.mark.parametrize("folder", folders(), ids=lambda path: str(path.relative_to(REPO)))
def test_no_file_is_named_for_another(folder: Path) -> None:
    """`a.py` beside `a_b.py` is a folder `a/`; so is `a.py` beside `a/`."""
    names = [path.stem for path in folder.glob("*.py")] + [p.name for p in folder.glob("[a-z]*/")]
    assert [
        (one, other)
        for one in names
        for other in names
        if other.startswith(f"{one}_") and not other.startswith("test_")
    ] == []
    assert len(names) == len(set(names))


def length(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Returns the number of lines without docstring and signature."""
    body = node.body[1:] if ast.get_docstring(node) else node.body
    return (node.end_lineno or 0) - body[0].lineno + 1 if body else 0


def test_functions_are_short() -> None:
    lengths = sorted(length(node) for tree in TREES.values() for node in functions(tree))
    assert statistics.median(lengths) < 10
    assert lengths[int(len(lengths) * 0.9)] < 20


@pytest.mark.parametrize("name", MODULES)
def test_no_function_is_long(name: str) -> None:
    long = {n.name: length(n) for n in functions(TREES[name]) if length(n) > LONGEST_FUNCTION}
    assert long == {}


def test_the_formatter_is_never_switched_off() -> None:
    mark = "fmt: " + "skip"
    trees = (REPO / "kbproc", REPO / "tests", REPO / "bench", REPO / "demo")
    paths = [path for tree in trees for path in tree.rglob("*.py") if mark in path.read_text()]
    assert paths == []


# ------------------------------------------------------------------------ boundaries


def test_only_the_host_reads_the_environment() -> None:
    """Only base.host reads it; base.sandbox only chooses the environment of children."""
    readers = {
        name
        for name, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in {"environ", "environb", "getenv"}
    }
    assert readers - {"base.sandbox"} == {"base.host"}


def test_only_host_asks_the_clock_of_the_wall_and_chance() -> None:
    calls = {
        (name, f"{node.value.id}.{node.attr}")
        for name, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and (node.value.id, node.attr)
        in {
            ("time", "time"),
            ("time", "time_ns"),
            ("datetime", "now"),
            ("datetime", "utcnow"),
            ("secrets", "token_hex"),
            ("uuid", "uuid4"),
            ("random", "random"),
        }
    }
    # The files of models.exporting are in a cache, outside every store.
    assert {name for name, _ in calls} <= {"base.host", "engine.models.exporting"}


# Types that functions may decode to, because msgspec stores nothing about them.
PLAIN = {"dict", "list", "frozenset", "str", "int", "Any", "msgspec", "Raw"}


def _learns(node: ast.Call) -> bool:
    """Returns True if msgspec must inspect a type for this call."""
    called = node.func.attr if isinstance(node.func, ast.Attribute) else ""
    if called in {"Decoder", "schema", "schema_components", "type_info"}:
        return bool(node.args)
    named = [k.value for k in node.keywords if k.arg == "type"] if called == "decode" else []
    if called == "convert":
        named = node.args[1:] + [k.value for k in node.keywords]
    words = {word for name in named for word in re.findall(r"\w+", ast.unparse(name))}
    return not words <= PLAIN


def test_types_are_learnt_in_turn() -> None:
    """Two threads must not make msgspec inspect a type at once; see base/values.py."""
    learning = {
        name
        for name, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and _learns(node)
    }
    assert learning == {"base.values", "methods.calls.schemas"}


def test_blind_excepts_stand_at_boundaries_only() -> None:
    places = {
        str(MODULES[name].relative_to(PACKAGE))
        for name, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ExceptHandler) and _is_blind(node)
    }
    assert places <= BOUNDARIES


def _is_blind(node: ast.ExceptHandler) -> bool:
    """Returns True for a handler that catches everything and does not re-raise."""
    names = {n.id for n in ast.walk(node.type) if isinstance(n, ast.Name)} if node.type else set()
    broad = node.type is None or names & {"Exception", "BaseException"}
    return bool(broad) and not any(isinstance(n, ast.Raise) and not n.exc for n in node.body)


# Modules whose changes of files go through base/disk.py, so that tests can record them.
RECORDED = (
    "base.durable",
    "base.settings.",
    "engine.log.",
    "engine.models.pack.",
    "engine.sources.blobs",
    "engine.sources.older",
    "engine.sources.packs",
    "engine.store.folder",
    "engine.store.restore",
    "knowledge.app.health.salvage",
    "knowledge.history.",
)
# An overlay is a temporary folder: no crash matters to it.
UNRECORDED = {("engine.log.file", "symlink_to"), ("engine.log.file", "copyfile")}
CHANGES = {
    *("write", "pwrite", "fsync", "fdatasync", "ftruncate", "remove", "unlink", "rmdir", "mkdir"),
    *("makedirs", "link", "symlink", "symlink_to", "hardlink_to", "touch", "write_text"),
    *("write_bytes", "rmtree", "move", "copy", "copy2", "copyfile", "copytree", "mkstemp"),
}
PLACES = {"os", "shutil", "tempfile"}  # other objects may have methods of these names
OF_PATHS = {"unlink", "rmdir", "mkdir", "symlink_to", "hardlink_to", "touch", "write_text"}


def _changes_files(node: ast.Call) -> bool:
    """Returns True for a call that changes files and goes round base/disk.py."""
    if isinstance(node.func, ast.Name):
        return node.func.id == "open" and _writes(node.args[1:], node.keywords)
    if not isinstance(node.func, ast.Attribute):
        return False
    place, called = ast.unparse(node.func.value), node.func.attr
    if place in {"disk", "durable"}:
        return False
    if place == "os" and called == "open":
        return "O_RDONLY" not in ast.unparse(node.args[1])
    if called in {"open", "fdopen"}:
        return _writes(node.args, node.keywords)
    if called in {"rename", "replace"}:  # a text's `replace` has two arguments, a struct's a name
        return len(node.args) == 1 and not node.keywords
    return called in CHANGES and (place in PLACES or called in OF_PATHS or called == "write_bytes")


def _writes(arguments: list[ast.expr], keywords: list[ast.keyword]) -> bool:
    modes = [*arguments[-1:], *(k.value for k in keywords if k.arg == "mode")]
    texts = [node.value for node in modes if isinstance(node, ast.Constant)]
    return any(isinstance(text, str) and not {*"wax+"}.isdisjoint(text) for text in texts)


def test_changes_of_the_stores_files_can_be_recorded() -> None:
    calls = {
        (name, node.func.attr if isinstance(node.func, ast.Attribute) else "open")
        for name, tree in TREES.items()
        if f"{name}.".startswith(RECORDED)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and _changes_files(node)
    }
    assert calls - UNRECORDED == set(), "call base/disk.py or base/durable.py instead"


def test_nothing_is_printed() -> None:
    """stdout is the wire, so only owners of a terminal print, and to an explicit stream."""
    printing = {
        name
        for name, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "print"
        and not any(k.arg == "file" for k in node.keywords)
    }
    assert {package_of(name) for name in printing} <= {"surfaces.shell"}


# ----------------------------------------------------------------------------- prose


@pytest.mark.parametrize("name", MODULES)
def test_every_module_has_a_docstring(name: str) -> None:
    assert ast.get_docstring(TREES[name])


_FILE = re.compile(r"\b([a-z_]+(?:/[a-z_]+)*)\.py\b")


@pytest.mark.parametrize("name", MODULES)
def test_files_that_are_named_are_there(name: str) -> None:
    """Docstrings and comments name files by a path in the package, or by name in their folder."""
    text, here = MODULES[name].read_text(), MODULES[name].parent
    assert [
        path
        for path in _FILE.findall(text)
        if not (PACKAGE / f"{path}.py").exists()
        and not (here / f"{path}.py").exists()
        and path not in {"x", "torch", "setup", "conf"}  # files of other projects
    ] == []


def test_defences_that_are_named_are_there() -> None:
    """Each row of the table names its code and its tests, and links lead somewhere."""
    page = (REPO / "SECURITY.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| ")][2:]
    assert rows and all(re.search(r"`kbproc/.*`tests/", row) for row in rows)
    named = re.findall(r"`((?:kbproc|tests)/[^`]+)`|\]\(([^):]+)\)", page)
    assert [path for pair in named for path in pair if path and not (REPO / path).is_file()] == []
    assert "(SECURITY.md)" in (REPO / "README.md").read_text()


def test_files_that_the_design_names_are_there() -> None:
    page = (REPO / "docs" / "design.md").read_text()
    named = set(re.findall(r"`(kbproc/[^`]+)`", page))
    assert len(named) > 30
    assert sorted(path for path in named if not (REPO / path).is_file()) == []


def tracked() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=REPO,
        capture_output=True,
        text=True,
        check=False,
    )
    return [REPO / name for name in listed.stdout.split("\0") if name]


def test_nothing_points_to_what_is_not_here() -> None:
    hits = [
        str(path.relative_to(REPO))
        for path in tracked()
        if path.is_file() and any(p in path.read_text(errors="replace") for p in PRIVATE)
    ]
    assert hits == []


# ----------------------------------------------------------------------------- tests

TESTS = {path: ast.parse(path.read_text()) for path in sorted((REPO / "tests").rglob("*.py"))}


def _imported_by_test(tree: ast.AST) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.module, alias.name) for alias in node.names)


@pytest.mark.parametrize("path", TESTS, ids=lambda path: str(path.relative_to(REPO)))
def test_no_test_imports_a_test_or_a_private_name(path: Path) -> None:
    wrong = [
        f"{module}.{name}"
        for module, name in _imported_by_test(TESTS[path])
        if module.rpartition(".")[2].startswith("test_")
        or (module.split(".")[0] == "tests" and name.startswith("test_"))
        or (module.split(".")[0] == "kbproc" and name.startswith("_") and name != "__version__")
    ]
    assert wrong == []


def test_folders_of_tests_are_named_for_packages() -> None:
    names = {path.name for path in (REPO / "tests").iterdir() if path.is_dir()} - {"__pycache__"}
    tested = {name.rpartition(".")[2] for name in PACKAGES}
    assert names <= {*tested, "repo", "kit", "conversations", "breaks", "house", "harnesses"}
