"""The project's own Python files, each read, parsed and walked once for all rules about them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache, cached_property
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).parents[1]
PLACES = ("kbproc", "tools", "tests", "bench", "demo")
Function = ast.FunctionDef | ast.AsyncFunctionDef
N = TypeVar("N", bound=ast.AST)


class Code:
    """The source of a file and its tree; for a text without a file, `path` is any name."""

    def __init__(self, text: str, path: Path = ROOT) -> None:
        self.path = path
        self.text = text
        self.tree = ast.parse(text)

    def __repr__(self) -> str:
        return self.name

    @property
    def name(self) -> str:
        """The file's path in the repository."""
        return str(self.path.relative_to(ROOT))

    def of(self, *kinds: type[N]) -> Iterator[N]:
        """Yields the nodes of exactly these kinds, by kind."""
        for kind in kinds:
            yield from self._nodes.get(kind, ())  # type: ignore[misc]

    def functions(self) -> Iterator[Function]:
        return self.of(ast.FunctionDef, ast.AsyncFunctionDef)

    def place(self, node: ast.AST) -> str:
        """Returns FILE:LINE of the node."""
        return f"{self.name}:{getattr(node, 'lineno', 1)}"

    @cached_property
    def _nodes(self) -> dict[type[ast.AST], list[ast.AST]]:
        """All nodes by kind, but those that say only how a name is used."""
        nodes: dict[type[ast.AST], list[ast.AST]] = {}
        open_nodes: list[ast.AST] = [self.tree]
        while open_nodes:
            node = open_nodes.pop()
            nodes.setdefault(type(node), []).append(node)
            for field in node._fields:
                value = getattr(node, field, None)
                if isinstance(value, list):
                    open_nodes += (each for each in value if isinstance(each, ast.AST))
                elif isinstance(value, ast.AST) and value._fields:
                    open_nodes.append(value)
        return nodes


@cache
def code_of(path: Path) -> Code:
    return Code(path.read_text(encoding="utf-8"), path)


@cache
def files(*places: str) -> list[Path]:
    """Returns the Python files of these folders, of all without one; sorted by folder."""
    return [path for place in places or PLACES for path in sorted((ROOT / place).rglob("*.py"))]


@cache
def codes(*places: str) -> list[Code]:
    return [code_of(path) for path in files(*places)]
