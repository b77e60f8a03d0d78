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

from tools.code import ROOT, Code, code_of, files

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


def findings(code: Code) -> list[Finding]:
    """All findings in a file's source, by line."""
    return sorted([*_docstrings(code), *_comments(code.text), *_names(code)])


def _docstrings(code: Code) -> Iterator[Finding]:
    for node in (code.tree, *code.of(ast.ClassDef), *code.functions()):
        if not (text := ast.get_docstring(node)):
            continue
        first = node.body[0].lineno
        rows = text.split("\n")
        if _CLAUSE.match(rows[0]):
            yield Finding(first, "clause first", rows[0])
        for number, row in enumerate(rows):
            if _NO_NOUN.search(row):
                yield Finding(first + number, "no noun", row.strip())


def _comments(source: str) -> Iterator[Finding]:
    # Tokens take Python a hundred times as long as this look, and hardly any file has a finding.
    if not any(_hides(text) for text in re.findall(r"(?=(#.*))", source)):
        return
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and _hides(token.string):
            yield Finding(token.start[0], "comment", token.string.strip())


def _hides(comment: str) -> bool:
    return bool(_NO_NOUN.search(comment) or _CLAUSE.match(comment.lstrip("# ")))


def _names(code: Code) -> Iterator[Finding]:
    for name in code.of(ast.Name):
        if name.id.strip("_") in _PARTICIPLES and isinstance(name.ctx, ast.Store):
            yield Finding(name.lineno, "participle", name.id)
    for argument in code.of(ast.arg):
        if argument.arg.strip("_") in _PARTICIPLES:
            yield Finding(argument.lineno, "participle", argument.arg)


def main() -> int:
    places = [Path(name).resolve() for name in sys.argv[1:]] or [ROOT]
    count = 0
    for path in files():
        if not any(path.is_relative_to(place) for place in places):
            continue
        code = code_of(path)
        for finding in findings(code):
            count += 1
            sys.stdout.write(f"{code}:{finding.line}: {finding.kind}: {finding.text[:110]}\n")
    sys.stdout.write(f"{count} places to read aloud\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
