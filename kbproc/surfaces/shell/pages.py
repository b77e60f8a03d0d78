"""Finds pages of docs/, and sections by their headings.

The docs come with kbproc: in a wheel inside the package, else beside it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from kbproc.base.bundled import bundled
from kbproc.base.errors import KbprocError
from kbproc.base.suggest import closest, did_you_mean, ranked

_HEADING = re.compile(r"(#{1,6}) +(.+)")
_HIDDEN = re.compile(r"^(<!-- .* -->|<a id=\"[^\"]*\"></a>)\n\n?", re.M)


class Section(NamedTuple):
    """A heading and the text up to the next heading of its level; the first is the whole page."""

    anchor: str
    level: int
    title: str
    text: str


def folder() -> Path:
    """Returns the folder of the docs. Raises resource.not_found."""
    if (page := bundled("docs/errors.md")) is not None:
        return page.parent
    raise KbprocError(
        "resource.not_found",
        "This installation holds no docs.",
        hint="Install kbproc from its wheel.",
    )


def _pages() -> dict[str, Path]:
    """Returns the pages by name: those of docs/, then "evidence/NAME"."""
    root = folder()
    paths = [*sorted(root.glob("*.md")), *sorted((root / "evidence").glob("*.md"))]
    return {str(path.relative_to(root).with_suffix("")): path for path in paths}


def titles() -> dict[str, str]:
    """Returns page → its title."""
    return {page: sections(_read(path))[0].title for page, path in _pages().items()}


def find(address: str) -> tuple[str, Section]:
    """Returns the page and section of `PAGE`, `PAGE#ANCHOR` or an error's doc_url.

    Raises resource.not_found with the names that exist, nearest first.
    """
    path, _, typed = address.partition("#")
    page = path.removeprefix("docs/").removesuffix(".md")
    pages = _pages()
    if page not in pages:
        raise _missing(f"There is no page {page!r}.", page, list(pages))
    page_sections = sections(_read(pages[page]))
    if not typed:
        return page, page_sections[0]
    anchor = _anchor(typed)
    for section in page_sections:
        if section.anchor == anchor:
            return page, section
    addresses = [f"{page}#{section.anchor}" for section in page_sections]
    raise _missing(f"The page {page!r} has no section {typed!r}.", f"{page}#{anchor}", addresses)


def sections(text: str) -> list[Section]:
    """Returns the sections in their order; the first is the page."""
    lines = text.splitlines(keepends=True)
    headings = [*_headings(lines)]
    result, repeats = [], dict[str, int]()
    for place, (begin, level, title) in enumerate(headings):
        later = (other for other, depth, _ in headings[place + 1 :] if depth <= level)
        body = "".join(lines[begin : next(later, len(lines))])
        anchor = _anchor(title)
        repeats[anchor] = repeats.get(anchor, -1) + 1
        if repeats[anchor]:
            anchor = f"{anchor}-{repeats[anchor]}"
        result.append(Section(anchor, level, title, body.rstrip() + "\n"))
    return result


def _read(path: Path) -> str:
    """Returns the text of a page without comments and anchors."""
    return _HIDDEN.sub("", path.read_text(encoding="utf-8"))


def _headings(lines: list[str]) -> Iterator[tuple[int, int, str]]:
    """Yields line, level and title of each heading outside blocks of code."""
    in_code = False
    for number, line in enumerate(lines):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif not in_code and (match := _HEADING.match(line)):
            yield number, len(match[1]), match[2].strip().replace("`", "")


def _anchor(title: str) -> str:
    """Returns the anchor that Markdown renderers make of a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def _missing(message: str, typed: str, names: list[str]) -> KbprocError:
    like = closest(typed, names)
    near = did_you_mean(like and f"kbproc docs {like}")
    return KbprocError(
        "resource.not_found",
        message,
        field="PAGE",
        valid_values=ranked(typed, names),
        hint=f"{near}kbproc docs lists the pages; kbproc doc is about documents.",
    )
