"""Reads the package's layers from their descriptions, for the generated map and for tests."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from msgspec import Struct

import kbproc

_ROOT = Path(kbproc.__file__).parent
_LAYER = re.compile(r"^    ([a-z]+): +([a-z. ]+)$", re.M)


class Description(Struct, frozen=True, kw_only=True):
    """The description in a package's `__init__.py`; `offers` are modules for other packages."""

    sentence: str
    offers: tuple[str, ...]
    may_import: tuple[str, ...]
    light: bool


def layers() -> dict[str, list[str]]:
    """Returns each layer with its packages by their full names, from the ground up."""
    return {
        layer: [layer if name == "." else f"{layer}.{name}" for name in names.split()]
        for layer, names in _LAYER.findall(kbproc.__doc__ or "")
    }


def packages() -> list[str]:
    """Returns all packages; each may import only those before it."""
    return [package for names in layers().values() for package in names]


def description(package: str) -> Description:
    """Returns a package's description; raises KeyError if it lacks a line."""
    path = _ROOT / package.replace(".", "/") / "__init__.py"
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    sentence, *_, facts = (" ".join(part.split()) for part in text.strip().split("\n\n"))
    fact = dict(re.findall(r"(Offers|May import|Light): (.*?)(?= May import:| Light:|$)", facts))
    return Description(
        sentence=sentence,
        offers=_names(fact["Offers"]),
        may_import=_names(fact["May import"]),
        light=fact["Light"] == "yes",
    )


def _names(listed: str) -> tuple[str, ...]:
    return () if listed == "nothing" else tuple(listed.split(" · "))


def package_map() -> str:
    """Returns Markdown for AGENTS.md: every package with its sentence."""
    lines = ["| layer | package | what |", "| --- | --- | --- |"]
    for layer, names in layers().items():
        for number, name in enumerate(names):
            path = name.replace(".", "/")
            sentence = description(name).sentence
            lines.append(f"| {'' if number else layer} | `{path}/` | {sentence} |")
    return "\n".join(lines) + "\n"
