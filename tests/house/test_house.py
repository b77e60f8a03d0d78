"""The house's rules: rooms and what each may import, sizes, boundaries, prose.

Every room's card is the docstring of its `__init__.py`; these tests hold the code against it.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from kbproc.repo import house
from tests.kit.talk import REPO

PACKAGE = REPO / "kbproc"

# Where any exception may be caught: the boundaries, beyond which nobody would see it.
BOUNDARIES = {
    "embedding/background.py",
    "embedding/cluster/node.py",
    "library/library.py",
    "log/jetstream/link.py",
    "mcp/inside.py",
    "mcp/session.py",
    "models/onnx.py",
    "agents/notes/background.py",
    "sessions/making.py",
    "sharing/alone.py",
    "sharing/guest.py",
    "sharing/owner.py",
    "sharing/relay.py",
    "shell/cli.py",
    "sources/parse/formats.py",
    "sources/parse/pdf.py",
    "store/lane.py",
    "store/store.py",
    "views/fulltext/search.py",
    "wire/deadlines.py",
    "wire/in_flight.py",
    "wire/pool.py",
}

# Names of folders that exist only on the machines of those who wrote this.
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
    "shtab",
}

LONGEST_FUNCTION = 50

FILES = sorted(PACKAGE.rglob("*.py"))
# These files are published under another name, too: so they name each other relatively.
PUBLISHED = PACKAGE / "client"


def name_of(path: Path) -> str:
    """kbproc/views/catalog/rows.py → views.catalog.rows; a folder's `__init__.py` → the folder."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in FILES}
TREES = {name: ast.parse(path.read_text()) for name, path in MODULES.items()}
ROOMS = house.rooms()
CARDS = {room: house.card(room) for room in ROOMS}


def room_of(module: str) -> str:
    return module.partition(".")[0]


class Import(NamedTuple):
    """`module`: kbproc's, without the package's name; `symbol`: None where it is the module."""

    module: str
    symbol: str | None


def imports(tree: ast.AST, name: str) -> Iterator[Import]:
    """Every import of ours in the module of that name: in functions and for types only, too."""
    for node in ast.walk(tree):
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
    """What it imports from, in full; `name`: of the module where it stands."""
    package = f"kbproc.{name}"
    if MODULES[name].name != "__init__.py":
        package = package.rpartition(".")[0]
    return importlib.util.resolve_name("." * node.level + (node.module or ""), package)


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


# ----------------------------------------------------------------------------- rooms


def test_only_rooms_and_the_door_lie_in_the_package() -> None:
    assert {path.relative_to(PACKAGE).parts[0] for path in FILES} == {
        *ROOMS,
        "__init__.py",
        "__main__.py",
    }


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_what_its_card_says(room: str) -> None:
    found = {
        room_of(found.module)
        for name, tree in TREES.items()
        if room_of(name) == room
        for found in imports(tree, name)
        if found.module and room_of(found.module) != room
    }
    assert found == set(CARDS[room].may_import)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_rooms_above_it(room: str) -> None:
    assert set(CARDS[room].may_import) <= set(ROOMS[: ROOMS.index(room)])


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_offers_what_others_take(room: str) -> None:
    """Modules that no card offers are the room's own, and so are names with an underscore."""
    taken = {
        (found.module.partition(".")[2], found.symbol)
        for name, tree in TREES.items()
        if room_of(name) != room
        for found in imports(tree, name)
        if room_of(found.module) == room
    }
    assert {module for module, _ in taken} == set(CARDS[room].offers)
    assert {symbol for _, symbol in taken if symbol and symbol.startswith("_")} == set()


def test_no_import_runs_in_a_circle() -> None:
    """Imports within functions and for types only are counted."""
    graph = {
        name: {found.module for found in imports(tree, name)} - {name}
        for name, tree in TREES.items()
    }
    while graph:
        ends = {name for name, found in graph.items() if not found & graph.keys()}
        if not ends:
            break
        graph = {name: found for name, found in graph.items() if name not in ends}
    assert sorted(graph) == []


@pytest.mark.parametrize("path", [p for p in FILES if p.name == "__init__.py"], ids=name_of)
def test_a_rooms_init_is_its_card_and_nothing_else(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert ast.get_docstring(tree)
    if path.parent == PUBLISHED:
        assert all(isinstance(node, ast.ImportFrom | ast.Assign) for node in tree.body[1:])
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


@pytest.mark.parametrize("room", [room for room in ROOMS if CARDS[room].light])
def test_light_rooms_import_no_heavy_library(room: str) -> None:
    names = [f"kbproc.{name}" for name in MODULES if room_of(name) == room]
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
    """Of a room that is not light, what its readers name must be."""
    assert importlib.util.find_spec("numpy")
    code = (
        "import sys\n"
        "from kbproc.views.catalog import filters, reader, rows, tables\n"
        "from kbproc.models import interface\n"
        f"assert not {HEAVY!r} & set(sys.modules)\n"
        "from kbproc.base.pipes import leave\n"
        "leave(0)\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=REPO, check=True)


# ----------------------------------------------------------------------------- sizes


def folders() -> list[Path]:
    """Of the package and of its tests, whose top mirrors the package's."""
    found = {path.parent for path in FILES}
    found |= {path.parent for path in (REPO / "tests").rglob("test_*.py")}
    return sorted(found)


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
    """Without the docstring and the signature: the lines that do something."""
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
    found = [path for tree in trees for path in tree.rglob("*.py") if mark in path.read_text()]
    assert found == []


# ------------------------------------------------------------------------ boundaries


def test_only_config_reads_the_environment() -> None:
    """base.sandbox only says what child processes get."""
    readers = {
        name
        for name, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in {"environ", "environb", "getenv"}
    }
    assert readers - {"base.sandbox"} == {"settings.config"}


def test_only_host_asks_the_clock_of_the_wall_and_chance() -> None:
    asked = {
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
    # What models.exporting writes lies in a cache, beside every store.
    assert {name for name, _ in asked} <= {"base.host", "models.exporting"}


# What functions may decode to: msgspec keeps nothing of these.
PLAIN = {"dict", "list", "frozenset", "str", "int", "Any", "msgspec", "Raw"}


def _learns(node: ast.Call) -> bool:
    """Whether msgspec has to look into a type for this call."""
    called = node.func.attr if isinstance(node.func, ast.Attribute) else ""
    if called in {"Decoder", "schema", "schema_components", "type_info"}:
        return bool(node.args)
    named = [k.value for k in node.keywords if k.arg == "type"] if called == "decode" else []
    if called == "convert":
        named = node.args[1:] + [k.value for k in node.keywords]
    words = {word for name in named for word in re.findall(r"\w+", ast.unparse(name))}
    return not words <= PLAIN


def test_types_are_learnt_in_turn() -> None:
    """What msgspec learns of a type, two threads may not teach it at once: see base/values.py."""
    learning = {
        name
        for name, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and _learns(node)
    }
    assert learning == {"base.values", "calls.schemas.schema"}


def test_blind_excepts_stand_at_boundaries_only() -> None:
    found = {
        str(MODULES[name].relative_to(PACKAGE))
        for name, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ExceptHandler) and _is_blind(node)
    }
    assert found <= BOUNDARIES


def _is_blind(node: ast.ExceptHandler) -> bool:
    """Catches everything, and does not raise it again."""
    names = {n.id for n in ast.walk(node.type) if isinstance(n, ast.Name)} if node.type else set()
    broad = node.type is None or names & {"Exception", "BaseException"}
    return bool(broad) and not any(isinstance(n, ast.Raise) and not n.exc for n in node.body)


def test_nothing_is_printed() -> None:
    """The wire is stdout: only what owns a terminal prints, and to a stream that it names."""
    printing = {
        name
        for name, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "print"
        and not any(k.arg == "file" for k in node.keywords)
    }
    assert {room_of(name) for name in printing} <= {"shell"}


# ----------------------------------------------------------------------------- prose


@pytest.mark.parametrize("name", [n for n in MODULES if n not in {"", "__main__"}])
def test_every_module_says_what_it_owns(name: str) -> None:
    said = ast.get_docstring(TREES[name]) or ""
    assert said
    if room_of(name) != "methods" and MODULES[name].name != "__init__.py":
        assert "Owns" in said, "what does it own?"
        assert "Refuses to know" in said, "what does it refuse to know?"


_FILE = re.compile(r"\b([a-z_]+(?:/[a-z_]+)*)\.py\b")


@pytest.mark.parametrize("name", MODULES)
def test_files_that_are_named_are_there(name: str) -> None:
    """In docstrings and comments: by a path in the package, or by a name in the same folder."""
    text, here = MODULES[name].read_text(), MODULES[name].parent
    assert [
        found
        for found in _FILE.findall(text)
        if not (PACKAGE / f"{found}.py").exists()
        and not (here / f"{found}.py").exists()
        and found not in {"x", "torch", "setup", "conf"}  # files of other projects
    ] == []


def test_defences_that_are_named_are_there() -> None:
    """Each row of the table names its code and its tests, and links lead somewhere."""
    page = (REPO / "SECURITY.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| ")][2:]
    assert rows and all(re.search(r"`kbproc/.*`tests/", row) for row in rows)
    named = re.findall(r"`((?:kbproc|tests)/[^`]+)`|\]\(([^):]+)\)", page)
    assert [path for pair in named for path in pair if path and not (REPO / path).is_file()] == []
    assert "(SECURITY.md)" in (REPO / "README.md").read_text()


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
    found = [
        str(path.relative_to(REPO))
        for path in tracked()
        if path.is_file() and any(p in path.read_text(errors="replace") for p in PRIVATE)
    ]
    assert found == []


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


def test_tests_stand_in_rooms() -> None:
    names = {path.name for path in (REPO / "tests").iterdir() if path.is_dir()} - {"__pycache__"}
    assert names <= {*ROOMS, "kit", "conversations", "breaks", "house", "harnesses"}
