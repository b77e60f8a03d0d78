"""The rules of the code: packages and their imports, sizes, boundaries, prose.

The docstring of a package's `__init__.py` is its description; these tests compare it with the code.
Each rule is one case, which lists every place that breaks it and what to do there.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import statistics
import subprocess
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path

from tests.conftest import Report
from tests.kit.talk import REPO
from tools import code
from tools.generate import packages
from tools.imports import MODULES, PACKAGE, imported_modules, imports, named

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
    "surfaces/sharing/here.py",
    "surfaces/sharing/owner.py",
    "surfaces/shell/cli.py",
    "engine/sources/parse/formats.py",
    "engine/sources/parse/pdf.py",
    "engine/sources/parse/sheet.py",  # calamine panics at some times
    "engine/store/lane.py",
    "engine/store/store.py",
    "engine/projections/fulltext/search.py",
    "surfaces/wire/in_flight.py",
    "base/pool.py",
}

# Folders that exist only on the authors' machines.
PRIVATE = (b"shared/" + b"design", b"shared/" + b"contract")

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

# The client and the contract kit import no other package.
THREADS = {"base/threads.py", "client/server.py", "contract/exchange.py"}

# The client is also published under another name, so its imports are relative.
PUBLISHED = PACKAGE / "client"

TESTS = code.codes("tests")
PACKAGES = packages.packages()
DESCRIPTIONS = {name: packages.description(name) for name in PACKAGES}


@cache
def package_of(module: str) -> str:
    """Returns the innermost package with a description; empty for a module without one."""
    outer = [name for name in PACKAGES if f"{module}.".startswith(f"{name}.")]
    return max(outer, key=len, default="")


def init_of(package: str) -> str:
    return f"kbproc/{package.replace('.', '/')}/__init__.py"


# -------------------------------------------------------------------------- packages


def test_every_module_belongs_to_a_package() -> None:
    layers = set(packages.layers())
    assert {name for name in MODULES if not package_of(name)} - layers == {"", "__main__"}


def _across() -> dict[str, dict[str, str]]:
    """Returns package → the packages that it imports, each with the first place."""
    places: dict[str, dict[str, str]] = defaultdict(dict)
    for one in imports():
        importer, imported = package_of(one.importer), package_of(one.module)
        if importer and one.module and imported != importer:
            places[importer].setdefault(imported, one.place)
    return places


def test_a_package_imports_what_its_description_says(none: Report) -> None:
    violations = []
    for package, described in DESCRIPTIONS.items():
        imported, allowed = _across()[package], set(described.may_import)
        violations += [
            f"{imported[other]}: {package} imports {other}, which {init_of(package)} does not name "
            "under `May import`"
            for other in imported.keys() - allowed
        ]
        violations += [
            f"{init_of(package)}: names {other} under `May import`, and imports nothing of it"
            for other in allowed - imported.keys()
        ]
    none(violations)


def test_a_package_imports_only_packages_before_it(none: Report) -> None:
    none(
        f"{init_of(package)}: `May import` names {other}, which stands behind {package} in the "
        "layers of kbproc/__init__.py"
        for number, package in enumerate(PACKAGES)
        for other in set(DESCRIPTIONS[package].may_import) - set(PACKAGES[:number])
    )


def test_a_package_offers_what_others_import(none: Report) -> None:
    """Modules that no description offers are private; so are names with an underscore."""
    imported: dict[str, dict[str, str]] = defaultdict(dict)
    violations = []
    for one in imports():
        package = package_of(one.module)
        if not package or package_of(one.importer) == package:
            continue
        module = one.module.removeprefix(package).removeprefix(".")
        imported[package].setdefault(module, one.place)
        if one.symbol and one.symbol.startswith("_"):
            violations.append(f"{one.place}: imports {one.symbol}, which is private to {package}")
    for package, described in DESCRIPTIONS.items():
        modules, offered = imported[package], set(described.offers)
        violations += [
            f"{modules[module]}: imports {module or package}, which {init_of(package)} does not "
            "name under `Offers`"
            for module in modules.keys() - offered
        ]
        violations += [
            f"{init_of(package)}: offers {module}, which no other package imports"
            for module in offered - modules.keys()
        ]
    none(violations)


def test_few_packages_know_the_cluster() -> None:
    """Others ask the log, or the rules of the store's node; see knowledge/cluster/alone.py."""
    cluster = {"engine.cluster", "knowledge.cluster"}
    knowing = {name for name in PACKAGES if cluster.intersection(DESCRIPTIONS[name].may_import)}
    assert knowing == {"knowledge.cluster", "knowledge.app", "methods", "surfaces.shell"}


def test_no_import_runs_in_a_circle(none: Report) -> None:
    """Imports in functions and for types only count."""
    graph = imported_modules()
    places: dict[tuple[str, str], str] = {}
    for one in imports():
        places.setdefault((one.importer, one.module), one.place)
    while graph:
        ends = {name for name, modules in graph.items() if not modules & graph.keys()}
        if not ends:
            break
        graph = {name: modules - ends for name, modules in graph.items() if name not in ends}
    circle = min((_way_back(graph, name) for name in graph), key=len, default=[])
    none(f"{places[pair]}: {pair[0]} imports {pair[1]}, in a circle" for pair in circle)


def _way_back(graph: dict[str, set[str]], name: str) -> list[tuple[str, str]]:
    """Returns the imports of the shortest circle from this module; all there are without one."""
    ways: dict[str, list[tuple[str, str]]] = {name: []}
    reached = [name]
    for at in reached:  # a list that grows in this loop
        for other in sorted(graph[at] - ways.keys() | graph[at] & {name}):
            ways[other] = [*ways[at], (at, other)]
            if other == name:
                return ways[other]
            reached.append(other)
    return [(at, other) for at, others in graph.items() for other in others]


def test_a_packages_init_is_its_description_and_nothing_else(none: Report) -> None:
    # The client's imports its names when they are asked for.
    lazy = (ast.ImportFrom, ast.Assign, ast.If, ast.FunctionDef)
    violations = []
    for here in MODULES.values():
        if here.path.name != "__init__.py":
            continue
        if not ast.get_docstring(here.tree):
            violations.append(f"{here}:1: begin it with the package's description")
        kinds = lazy if here.path.parent == PUBLISHED else ()
        violations += [
            f"{here.place(node)}: move this to a module"
            for node in here.tree.body[1:]
            if here.path.parent != PACKAGE and not isinstance(node, kinds)
        ]
    none(violations)


def test_tests_and_benchmarks_are_not_imported(none: Report) -> None:
    none(
        f"{here.place(node)}: imports {node.module}"
        for name, here in MODULES.items()
        for node in here.of(ast.ImportFrom)
        if named(node, name).split(".")[0] in {"tests", "bench"}
    )


def test_modules_are_named_in_full_but_where_they_have_two_names(none: Report) -> None:
    none(
        f"{here.place(node)}: {'name it in full' if node.level else 'name it from here, with dots'}"
        for name, here in MODULES.items()
        for node in here.of(ast.ImportFrom)
        if bool(node.level)
        != (here.path.parent == PUBLISHED and named(node, name).startswith("kbproc"))
    )


_LOOKS = """
import importlib, json, sys
from kbproc.base.pipes import leave
modules, heavy = json.loads(sys.argv[1])
loaded = set()
for name in modules:
    importlib.import_module(name)
    for library in sorted(set(heavy) & set(sys.modules) - loaded):
        print(f"{name} loads {library}: import it where it is first needed")
        loaded.add(library)
leave(0)
"""


def test_light_packages_import_no_heavy_library(none: Report) -> None:
    """So do modules of rows and interfaces, although their packages are heavy: naming a row costs
    nothing.
    """
    assert importlib.util.find_spec("numpy")
    names = [f"kbproc.{name}" for name in MODULES if name and _is_light(name)]
    named_rows = ("filters", "reader", "rows", "tables")
    names += [f"kbproc.engine.projections.catalog.{name}" for name in named_rows]
    names.append("kbproc.engine.models.interface")
    command = [sys.executable, "-c", _LOOKS, json.dumps([names, sorted(HEAVY)])]
    done = subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    none(done.stdout.splitlines())


def test_only_the_package_of_sql_imports_duckdb(none: Report) -> None:
    """Everything else reads the catalog, which is SQLite."""
    none(
        f"{here.place(node)}: {name} imports duckdb"
        for name, here in MODULES.items()
        if not name.startswith("engine.store.sql.")
        for node in (*here.of(ast.Import), *here.of(ast.ImportFrom))
        if "duckdb" in _libraries(node)
    )


def _libraries(node: ast.Import | ast.ImportFrom) -> set[str]:
    """Returns the first names of the modules that a statement imports."""
    modules = [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        modules = [] if node.level else [node.module or ""]
    return {module.partition(".")[0] for module in modules}


def _is_light(module: str) -> bool:
    package = package_of(module)
    return bool(package) and DESCRIPTIONS[package].light


# ----------------------------------------------------------------------------- sizes


def folders() -> list[Path]:
    """Returns the folders of the package and of its tests."""
    paths = {here.path.parent for here in MODULES.values()}
    paths |= {path.parent for path in code.files("tests") if path.name.startswith("test_")}
    return sorted(paths)


def test_no_file_is_named_for_another(none: Report) -> None:
    """`a.py` beside `a_b.py` is a folder `a/`; so is `a.py` beside `a/`."""
    violations = []
    for folder in folders():
        names = [path.stem for path in folder.glob("*.py")]
        names += [path.name for path in folder.glob("[a-z]*/")]
        here = folder.relative_to(REPO)
        violations += [
            f"{here}: {other}.py beside {one}.py: make {one}/ a folder"
            for one in names
            for other in names
            if other.startswith(f"{one}_") and not other.startswith("test_")
        ]
        violations += [
            f"{here}: {name}.py beside {name}/: move it into the folder"
            for name in set(names)
            if names.count(name) > 1
        ]
    none(violations)


def length(node: code.Function) -> int:
    """Returns the number of lines without docstring and signature."""
    body = node.body[1:] if ast.get_docstring(node, clean=False) else node.body
    return (node.end_lineno or 0) - body[0].lineno + 1 if body else 0


def test_functions_are_short(none: Report) -> None:
    lengths = {
        f"{here.place(node)}: {node.name}": length(node)
        for here in MODULES.values()
        for node in here.functions()
    }
    none(
        f"{place} has {lines} lines, and at most {LONGEST_FUNCTION} are allowed: divide it"
        for place, lines in lengths.items()
        if lines > LONGEST_FUNCTION
    )
    in_order = sorted(lengths.values())
    assert statistics.median(in_order) < 10
    assert in_order[int(len(in_order) * 0.9)] < 20


def test_the_formatter_is_never_switched_off(none: Report) -> None:
    mark = "fmt: " + "skip"
    none(
        f"{here}:{number}: remove `{mark}`"
        for here in code.codes("kbproc", "tests", "bench", "demo")
        if mark in here.text
        for number, line in enumerate(here.text.splitlines(), 1)
        if mark in line
    )


# ------------------------------------------------------------------------ boundaries


def test_only_the_host_reads_the_environment(none: Report) -> None:
    """Only base.host reads it; base.sandbox only chooses the environment of children."""
    reading = {
        name: here.place(node)
        for name, here in MODULES.items()
        for node in here.of(ast.Attribute)
        if node.attr in {"environ", "environb", "getenv"}
    }
    assert "base.host" in reading
    none(
        f"{place}: ask base.host for the environment"
        for name, place in reading.items()
        if name not in {"base.host", "base.sandbox"}
    )


_CLOCKS = {
    ("time", "time"),
    ("time", "time_ns"),
    ("datetime", "now"),
    ("datetime", "utcnow"),
    ("secrets", "token_hex"),
    ("uuid", "uuid4"),
    ("random", "random"),
}


def test_only_host_asks_the_clock_of_the_wall_and_chance(none: Report) -> None:
    """But models.exporting, whose files are in a cache, outside every store."""
    none(
        f"{here.place(node)}: ask the Host instead of {node.value.id}.{node.attr}"
        for name, here in MODULES.items()
        if name not in {"base.host", "engine.models.exporting"}
        for node in here.of(ast.Attribute)
        if isinstance(node.value, ast.Name) and (node.value.id, node.attr) in _CLOCKS
    )


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


def test_threads_start_in_one_place(none: Report) -> None:
    none(
        f"{here.place(node)}: take start_thread of base/threads.py, a Worker or a Pool"
        for here in MODULES.values()
        if str(here.path.relative_to(PACKAGE)) not in THREADS
        for node in here.of(ast.Call)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "Thread"
    )


def test_types_are_learnt_in_turn(none: Report) -> None:
    """Two threads must not make msgspec inspect a type at once; see base/values.py."""
    learning = {
        name: here.place(node)
        for name, here in MODULES.items()
        for node in here.of(ast.Call)
        if _learns(node)
    }
    may = {"base.values", "methods.calls.schemas"}
    assert learning.keys() >= may
    none(
        f"{place}: make the decoder with base.values"
        for name, place in learning.items()
        if name not in may
    )


def test_blind_excepts_stand_at_boundaries_only(none: Report) -> None:
    none(
        f"{here.place(node)}: name the errors; only a boundary that BOUNDARIES names catches all"
        for here in MODULES.values()
        if str(here.path.relative_to(PACKAGE)) not in BOUNDARIES
        for node in here.of(ast.ExceptHandler)
        if _is_blind(node)
    )


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


def test_changes_of_the_stores_files_can_be_recorded(none: Report) -> None:
    none(
        f"{here.place(node)}: call base/disk.py or base/durable.py, which tests record"
        for name, here in MODULES.items()
        if f"{name}.".startswith(RECORDED)
        for node in here.of(ast.Call)
        if _changes_files(node)
        and (name, ast.unparse(node.func).rpartition(".")[2]) not in UNRECORDED
    )


def test_nothing_is_printed(none: Report) -> None:
    """stdout is the wire, so only owners of a terminal print, and to an explicit stream."""
    none(
        f"{here.place(node)}: only surfaces.shell prints, and others name a stream with `file`"
        for name, here in MODULES.items()
        if package_of(name) != "surfaces.shell"
        for node in here.of(ast.Call)
        if isinstance(node.func, ast.Name)
        and node.func.id == "print"
        and not any(k.arg == "file" for k in node.keywords)
    )


# ----------------------------------------------------------------------------- prose


def test_every_module_has_a_docstring(none: Report) -> None:
    none(
        f"{here}:1: begin it with a docstring"
        for here in MODULES.values()
        if not ast.get_docstring(here.tree, clean=False)
    )


_FILE = re.compile(r"\b([a-z_]+(?:/[a-z_]+)*)\.py\b")


def test_files_that_are_named_are_there(none: Report) -> None:
    """Docstrings and comments name files by a path in the package, or by name in their folder."""
    none(
        f"{here}:{here.text[: match.start()].count(chr(10)) + 1}: names {match[0]}, "
        "which is not there"
        for here in MODULES.values()
        for match in _FILE.finditer(here.text)
        if not (PACKAGE / f"{match[1]}.py").exists()
        and not (here.path.parent / f"{match[1]}.py").exists()
        and match[1] not in {"x", "torch", "setup", "conf"}  # files of other projects
    )


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


def test_nothing_points_to_what_is_not_here(none: Report) -> None:
    none(
        f"{path.relative_to(REPO)}: names a folder that only the authors' machines have"
        for path in tracked()
        if path.is_file() and any(mark in path.read_bytes() for mark in PRIVATE)
    )


# ----------------------------------------------------------------------------- tests


def test_no_test_imports_a_test_or_a_private_name(none: Report) -> None:
    none(
        f"{here.place(node)}: imports {node.module}.{alias.name}; what two tests need stands in "
        "tests/kit, and tests ask no private name of kbproc"
        for here in TESTS
        for node in here.of(ast.ImportFrom)
        if node.module
        for alias in node.names
        if node.module.rpartition(".")[2].startswith("test_")
        or (node.module.split(".")[0] == "tests" and alias.name.startswith("test_"))
        or (
            node.module.split(".")[0] == "kbproc"
            and alias.name.startswith("_")
            and alias.name != "__version__"
        )
    )


def test_folders_of_tests_are_named_for_packages() -> None:
    names = {path.name for path in (REPO / "tests").iterdir() if path.is_dir()} - {"__pycache__"}
    tested = {name.rpartition(".")[2] for name in PACKAGES}
    assert names <= {*tested, "repo", "kit", "conversations", "breaks", "house", "harnesses"}
