"""Finds the words of a chunk that the full-text index holds, field by field.

Each text field but `name`, `file` and `folder` has three values, and one for each alias: of the
title, the section and the text, so that no phrase matches from a title into the text.
"""

from __future__ import annotations

from typing import NamedTuple

from kbproc.base.text.analysis import analyse
from kbproc.base.text.language import is_foreign
from kbproc.base.text.names import names
from kbproc.base.text.stems import heads, stemmed_by_script
from kbproc.engine.projections.catalog.rows import IndexRow

_FOLDERS = 2  # names of folders; most documents share the folders further up


class ChunkWords(NamedTuple):
    """A chunk's words by field, parted by spaces; index.py describes the fields.

    `head` is empty for a chunk in English; `is_foreign` is True for one that surely is not.
    """

    stem: list[str]
    head: list[str]
    word: list[str]
    name: str
    file: str
    folder: str
    is_foreign: bool


def words_of(chunk: IndexRow) -> ChunkWords:
    """Returns the chunk's words as the index holds them."""
    texts = [chunk.title, chunk.section or "", chunk.text, *chunk.aliases]
    parts = [analyse(text) for text in texts]
    words = [part.split() for part in parts]
    foreign = is_foreign(words[2])
    stems = [*map(stemmed_by_script, parts, words)]
    file, folders = _names_of(chunk.path, chunk.url)
    return ChunkWords(
        stem=stems,
        head=[] if foreign is False else [*map(heads, parts, stems)],
        word=parts,
        name=stemmed_by_script(" ".join(names("\n".join(texts)))),
        file=stemmed_by_script(analyse(file)),
        folder=stemmed_by_script(analyse(folders)),
        is_foreign=bool(foreign),
    )


def _names_of(path: str | None, url: str | None) -> tuple[str, str]:
    """Returns the name of a document's file without its suffix, and the names of its folders."""
    if not path and not url:
        return "", ""
    place = path.replace("\\", "/") if path else _path_of(url or "")
    *folders, file = [name for name in place.split("/") if name not in ("", ".")] or [""]
    stem, _, suffix = file.rpartition(".")
    return stem if stem and suffix else file, " ".join(folders[-_FOLDERS:])


def _path_of(url: str) -> str:
    from urllib.parse import unquote, urlsplit  # not above: a search of words has no address

    try:
        return unquote(urlsplit(url).path)
    except ValueError:
        return ""
