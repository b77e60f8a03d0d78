"""`python -m tools.imports`: the longest chain of imports within kbproc, a module a line.

Imports in functions and for types only count, as in the rules about imports (tests/house).
"""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tools import code

PACKAGE = code.ROOT / "kbproc"


def name_of(path: Path) -> str:
    """Returns the module: base.paths for kbproc/base/paths.py; the folder of an `__init__.py`."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(each.path): each for each in code.codes("kbproc")}


class Import(NamedTuple):
    """`module`: without the prefix `kbproc.`; `symbol`: None if the module itself is imported.

    `importer`: the importing module. `place`: FILE:LINE.
    """

    module: str
    symbol: str | None
    importer: str
    place: str


@cache
def imports() -> list[Import]:
    """Returns all imports of kbproc in it, also those in functions and for types only."""
    return [one for name in MODULES for one in _imports(name)]


def _imports(name: str) -> Iterator[Import]:
    here = MODULES[name]
    for node in here.of(ast.ImportFrom):
        package, _, base = named(node, name).partition(".")
        if package != "kbproc":
            continue
        for alias in node.names:
            inner, place = f"{base}.{alias.name}".removeprefix("."), here.place(node)
            is_module = inner in MODULES
            yield Import(
                inner if is_module else base, None if is_module else alias.name, name, place
            )
    for plain in here.of(ast.Import):
        for alias in plain.names:
            if alias.name.startswith("kbproc."):
                module = alias.name.removeprefix("kbproc.")
                yield Import(module, None, name, here.place(plain))


def named(node: ast.ImportFrom, name: str) -> str:
    """Returns the full name that the node imports from; `name`: of the importing module."""
    package = f"kbproc.{name}"
    if MODULES[name].path.name != "__init__.py":
        package = package.rpartition(".")[0]
    return importlib.util.resolve_name("." * node.level + (node.module or ""), package)


def imported_modules() -> dict[str, set[str]]:
    """Returns each module with the modules that it imports."""
    imported: dict[str, set[str]] = {name: set() for name in MODULES}
    for one in imports():
        imported[one.importer] |= {one.module} - {one.importer}
    return imported


def longest_chain() -> list[str]:
    """Returns modules of which each imports the next, where no import runs in a circle."""
    modules = imported_modules()

    @cache
    def chain_from(name: str) -> tuple[str, ...]:
        return (name, *max(map(chain_from, sorted(modules[name])), key=len, default=()))

    return list(max(map(chain_from, sorted(modules)), key=len))


if __name__ == "__main__":
    chain = longest_chain()
    sys.stdout.write("\n".join([*chain, f"{len(chain)} modules"]) + "\n")
