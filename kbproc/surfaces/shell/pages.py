"""The pages of docs/, as they came with this kbproc: in a wheel inside the package, else beside it.

Owns: which there are, and finding one, or the section under one of its headings.
Refuses to know: how a page is shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from kbproc.base.errors import KbprocError
from kbproc.base.suggest import closest, did_you_mean, ranked

_PACKAGE = Path(__file__).parents[1]
_HEADING = re.compile(r"(#{1,6}) +(.+)")
_UNSEEN = re.compile(r"^(<!-- .* -->|<a id=\"[^\"]*\"></a>)\n\n?", re.M)


class Section(NamedTuple):
    """What stands from one heading to the next of its level; the first is the whole page."""

    anchor: str
    level: int
    title: str
    text: str


def folder() -> Path:
    """Raises resource.not_found."""
    for root in (_PACKAGE, _PACKAGE.parent):
        if (root / "docs" / "errors.md").is_file():
            return root / "docs"
    raise KbprocError(
        "resource.not_found",
        "This installation holds no docs.",
        hint="Install kbproc from its wheel.",
    )


def titles() -> dict[str, str]:
    """Page → what it is about."""
    return {path.stem: sections(_read(path))[0].title for path in sorted(folder().glob("*.md"))}


def find(address: str) -> tuple[str, Section]:
    """The page and section that `PAGE`, `PAGE#ANCHOR` or an error's doc_url means.

    Raises resource.not_found with what there is, nearest first.
    """
    path, _, typed = address.partition("#")
    page = path.removeprefix("docs/").removesuffix(".md")
    pages = [file.stem for file in folder().glob("*.md")]
    if page not in pages:
        raise _missing(f"There is no page {page!r}.", page, pages)
    found = sections(_read(folder() / f"{page}.md"))
    if not typed:
        return page, found[0]
    wanted = _anchor(typed)
    for section in found:
        if section.anchor == wanted:
            return page, section
    known = [f"{page}#{section.anchor}" for section in found]
    raise _missing(f"The page {page!r} has no section {typed!r}.", f"{page}#{wanted}", known)


def sections(text: str) -> list[Section]:
    """In their order; the first is the page."""
    lines = text.splitlines(keepends=True)
    headings = [*_headings(lines)]
    found, taken = [], dict[str, int]()
    for place, (begin, level, title) in enumerate(headings):
        later = (other for other, depth, _ in headings[place + 1 :] if depth <= level)
        body = "".join(lines[begin : next(later, len(lines))])
        anchor = _anchor(title)
        taken[anchor] = taken.get(anchor, -1) + 1
        if taken[anchor]:
            anchor = f"{anchor}-{taken[anchor]}"
        found.append(Section(anchor, level, title, body.rstrip() + "\n"))
    return found


def _read(path: Path) -> str:
    """Less what no reader sees."""
    return _UNSEEN.sub("", path.read_text(encoding="utf-8"))


def _headings(lines: list[str]) -> Iterator[tuple[int, int, str]]:
    """Line, level and words; what stands in a block of code is none."""
    in_code = False
    for number, line in enumerate(lines):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif not in_code and (match := _HEADING.match(line)):
            yield number, len(match[1]), match[2].strip().replace("`", "")


def _anchor(title: str) -> str:
    """As places that show Markdown make it of a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def _missing(message: str, typed: str, known: list[str]) -> KbprocError:
    like = closest(typed, known)
    near = did_you_mean(like and f"kbproc docs {like}")
    return KbprocError(
        "resource.not_found",
        message,
        field="PAGE",
        valid_values=ranked(typed, known),
        hint=f"{near}kbproc docs lists the pages; kbproc doc is about documents.",
    )
