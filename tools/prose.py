"""`python -m tools.prose [PLACE…]`: sentences and names that hide their noun.

Four kinds are counted: a docstring that begins with a clause instead of a subject, a sentence in
which a word such as "whoever" or "nobody" stands for the thing that acts, a comment with either,
and a variable or parameter that is a bare participle. tests/house/test_prose.py lets no file get
more of them.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PLACES = ("kbproc", "tools", "tests", "bench", "demo")
_CLAUSE = re.compile(
    r"^(What|Whether|Whoever|Whatever|Nobody|Of|In|Those|These|By|Up to|That|Where|As|Its?|From"
    r"|For as|With)\b(?! place of| order| case| seconds| bytes)",
    re.I,
)
_NO_NOUN = re.compile(
    r"\b(whoever|whatever becomes|nobody|meanwhile|what is (?:told|said|left|kept|there)"
    r"|tells? of|are told|is told|was told|is said|has nothing of|knows nothing of)\b",
    re.I,
)
_PARTICIPLES = {
    "told",
    "said",
    "wanted",
    "left",
    "kept",
    "given",
    "found",
    "seen",
    "asked",
    "held",
    "made",
    "shown",
    "known",
    "taken",
    "gone",
    "had",
    "meant",
    "spoken",
}


class Finding(NamedTuple):
    line: int
    kind: str
    text: str


def findings(source: str) -> list[Finding]:
    """All findings in a file's source, by line."""
    tree = ast.parse(source)
    return sorted([*_docstrings(tree), *_comments(source), *_names(tree)])


def _docstrings(tree: ast.AST) -> Iterator[Finding]:
    for node in ast.walk(tree):
        if not isinstance(
            node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        ) or not (text := ast.get_docstring(node)):
            continue
        first = node.body[0].lineno
        rows = text.split("\n")
        if _CLAUSE.match(rows[0]):
            yield Finding(first, "clause first", rows[0])
        for number, row in enumerate(rows):
            if _NO_NOUN.search(row):
                yield Finding(first + number, "no noun", row.strip())


def _comments(source: str) -> Iterator[Finding]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        if _NO_NOUN.search(token.string) or _CLAUSE.match(token.string.lstrip("# ")):
            yield Finding(token.start[0], "comment", token.string.strip())


def _names(tree: ast.AST) -> Iterator[Finding]:
    for node in ast.walk(tree):
        name = ""
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        elif isinstance(node, ast.arg):
            name = node.arg
        if name.strip("_") in _PARTICIPLES:
            yield Finding(getattr(node, "lineno", 0), "participle", name)


def files() -> list[Path]:
    """The project's own Python files."""
    return sorted(path for place in PLACES for path in (ROOT / place).rglob("*.py"))


def main() -> int:
    places = [Path(name).resolve() for name in sys.argv[1:]] or [ROOT]
    count = 0
    for path in files():
        if not any(path.is_relative_to(place) for place in places):
            continue
        for finding in findings(path.read_text(encoding="utf-8")):
            count += 1
            name = path.relative_to(ROOT)
            sys.stdout.write(f"{name}:{finding.line}: {finding.kind}: {finding.text[:110]}\n")
    sys.stdout.write(f"{count} places to read aloud\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
