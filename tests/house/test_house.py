"""The house's rules, as the README of the code would state them."""

from __future__ import annotations

import ast
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.talk import REPO

PACKAGE = REPO / "kbproc"

# A file imports only from its own floor or a lower one.
FLOORS: dict[int, str] = {
    0: "__init__ errors model config pipes host logs words failpoints profiles tomlfiles",
    1: "events records segments log survey blobs gitignore files exchange notefolder notehidden "
    "noteedit",
    2: "parse chunk embed embed_http embed_onnx onnx_export fusion text snippets",
    3: "views",
    4: "sight parsers quotas search_params entries agents notes store lane catchup snapshot "
    "storefiles embedding commit documents revision paging ingest ingest_result content fetch "
    "search candidates search_hints doctor pending tidy rebuild past purge salvage recover "
    "checks history restore revert feed sqlquery sqlworker sqlviews backup portable exporting "
    "importing importing_more importing_known switch quiet readonly notewatch agentcheck "
    "chains notebooks notediff noterevision notesync portable_lines reversal revert_links "
    "revert_named",
    5: "registry params call methods flags describe schema",
    6: "rpc outbox pool lines flight waiting server coprocess serve share owner relay attached "
    "quick argv commands help profile_commands texts options output stream completion "
    "terminal cli perform oneshot gen __main__",
}
FLOOR = {name: floor for floor, names in FLOORS.items() for name in names.split()}

# Where any exception may be caught: the boundaries, beyond which nobody would see it.
BOUNDARIES = {
    "embedding.py",
    "owner.py",
    "rpc.py",
    "flight.py",
    "waiting.py",
    "store.py",
    "lane.py",
    "oneshot.py",
    "perform.py",
    "cli.py",
    "parse/__init__.py",
    "parse/worker.py",
    "parse/docx.py",
    "parse/html.py",
    "parse/pdf.py",
    "views/fulltext_search.py",
    "onnx_export.py",
    "embed_onnx.py",
    "notebooks.py",
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
    "pypdf",
    "httpx",
    "rich",
    "watchfiles",
    "docx",
    "selectolax",
    "tokenizers",
    "sentence_transformers",
    "jq",
    "jsonschema_rs",
    "shtab",
}

FILES = sorted(PACKAGE.rglob("*.py"))


def name_of(path: Path) -> str:
    """kbproc/views/catalog.py → views.catalog"""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in FILES}
TREES = {name: ast.parse(path.read_text()) for name, path in MODULES.items()}


def floor_of(name: str) -> int:
    return FLOOR[name.split(".", maxsplit=1)[0]]


def is_typing_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


def imports(tree: ast.AST, *, types: bool) -> Iterator[str]:
    """Every module of ours that is imported, in functions too; `types`: for types, too."""
    for node in ast.iter_child_nodes(tree):
        if not types and is_typing_only(node):
            continue
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from _named(node)
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
            yield from (n.partition("kbproc.")[2] for n in names if n.startswith("kbproc."))
        yield from imports(node, types=types)


def _named(node: ast.ImportFrom) -> Iterator[str]:
    module = str(node.module)
    if module != "kbproc" and not module.startswith("kbproc."):
        return
    base = module.removeprefix("kbproc").removeprefix(".")
    for alias in node.names:
        inner = f"{base}.{alias.name}".removeprefix(".")
        yield inner if inner in MODULES else base or "__init__"


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_every_file_has_a_floor() -> None:
    assert sorted({name.split(".")[0] for name in MODULES} - FLOOR.keys()) == []
    assert sorted(FLOOR.keys() - {name.split(".")[0] for name in MODULES}) == []


@pytest.mark.parametrize("name", MODULES)
def test_imports_go_down(name: str) -> None:
    up = {found for found in imports(TREES[name], types=True) if floor_of(found) > floor_of(name)}
    assert up == set()


def test_no_import_runs_in_a_circle() -> None:
    """Imports for types only are left out: they do not run."""
    graph = {name: set(imports(tree, types=False)) - {name} for name, tree in TREES.items()}
    while graph:
        ends = {name for name, found in graph.items() if not found & graph.keys()}
        if not ends:
            break
        graph = {name: found for name, found in graph.items() if name not in ends}
    assert sorted(graph) == []


def test_tests_and_benchmarks_are_not_imported() -> None:
    wrong = [
        (name, node.module)
        for name, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        and (node.level or str(node.module).split(".")[0] in {"tests", "bench"})
    ]
    assert wrong == []


def test_light_to_import() -> None:
    """Everything but views/ and embed.py imports no heavy library."""
    light = [n for n in MODULES if not n.startswith("views.") and n not in {"embed", "__main__"}]
    code = (
        "import importlib, sys\n"
        f"for name in {light!r}:\n"
        "    importlib.import_module('kbproc' if name == '__init__' else f'kbproc.{name}')\n"
        f"    heavy = sorted({HEAVY!r} & set(sys.modules))\n"
        "    assert not heavy, (name, heavy)\n"
    )
    # embed_http and embed_onnx are parts of embed.py, imported by it alone.
    code = code.replace("'embed_http', ", "").replace("'embed_onnx', ", "")
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=REPO, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_only_config_reads_the_environment() -> None:
    """parse/pool.py and onnx_export.py only say what their subprocesses get."""
    readers = {
        name
        for name, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in {"environ", "environb", "getenv"}
    }
    assert readers - {"parse.pool", "onnx_export"} == {"config"}


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
    # What onnx_export writes lies in a cache, beside every store.
    assert {name for name, _ in asked} <= {"host", "onnx_export"}


def length(path: Path) -> int:
    return len(path.read_text().splitlines())


def test_no_file_is_longer_than_400_lines() -> None:
    long = {str(path.relative_to(PACKAGE)) for path in FILES if length(path) > 400}
    assert long == set()


def test_functions_are_short() -> None:
    """Counted without the docstring and the signature: the lines that do something."""
    lengths = sorted(
        (node.end_lineno or 0) - first.lineno + 1
        for tree in TREES.values()
        for node in functions(tree)
        if (first := _first_statement(node)) is not None
    )
    assert statistics.median(lengths) < 10
    assert lengths[int(len(lengths) * 0.9)] < 30


def _first_statement(node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.stmt | None:
    body = node.body[1:] if ast.get_docstring(node) else node.body
    return body[0] if body else None


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


@pytest.mark.parametrize("name", [n for n in MODULES if n not in {"__init__", "__main__"}])
def test_every_module_says_what_it_owns(name: str) -> None:
    said = ast.get_docstring(TREES[name]) or ""
    assert said
    if not name.startswith("methods") and name != "views":
        assert "Refuses to know" in said or name == "views.base", "what does it refuse to know?"
        assert "Owns" in said or name == "views.base", "what does it own?"


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
    assert {name for name in printing if floor_of(name) < 6} == set()
