"""From bytes to blocks: which type a file is, and which parser reads it.

Owns: the table of formats, detection, the boundary where a parser's failure
becomes a typed error. Refuses to know: files, processes, chunks.
Parsers import their libraries when they are first called.
"""

from __future__ import annotations

import importlib
from pathlib import PurePath
from typing import Protocol, cast

import msgspec

from kbproc.base.errors import KbprocError
from kbproc.sources.parse.blocks import Block, Parsed, clean_text, clean_title
from kbproc.sources.parse.code import LANGUAGES, NAMES
from kbproc.sources.parse.html import decode_page
from kbproc.sources.parse.text import decode, looks_like_text

# Raised whenever a parser gives other blocks for the same bytes.
PARSER_VERSION = 2


class Format(msgspec.Struct, frozen=True):
    """A document type: the module whose `parse` reads it, and the suffixes it goes by."""

    module: str
    suffixes: frozenset[str]


def _format(module: str, suffixes: str) -> Format:
    return Format(f"kbproc.sources.parse.{module}", frozenset(f".{s}" for s in suffixes.split()))


FORMATS: dict[str, Format] = {
    "pdf": _format("pdf", "pdf"),
    "markdown": _format("markdown", "md markdown mdown mkd mdx qmd rmd"),
    "text": _format("text", "txt text log rst adoc asciidoc org tex csv tsv srt vtt eml"),
    "html": _format("html", "html htm xhtml"),
    "docx": _format("docx", "docx docm"),
    "code": Format("kbproc.sources.parse.code", frozenset(LANGUAGES)),
}

_BY_SUFFIX = {suffix: type for type, format in FORMATS.items() for suffix in format.suffixes}
# Text by their bytes, but pictures, page descriptions or wrappings that no parser reads.
_UNREAD = frozenset({".svg", ".ps", ".eps", ".ai", ".rtf", ".map", ".ipynb"})
_TEXTUAL = frozenset({"markdown", "text", "html", "code"})


class _Parser(Protocol):
    def parse(self, data: bytes, name: str) -> Parsed: ...


def detect(name: str, head: bytes) -> str | None:
    """The document type of a file: by its suffix, else by its first bytes.

    `head` is the file's start, 4 KiB or so. None: no parser reads it.
    """
    path = PurePath(name)
    suffix = path.suffix.lower()
    if suffix in _UNREAD:
        return None
    type = "code" if path.name in NAMES else _BY_SUFFIX.get(suffix)
    if type is None:
        return _sniff(head)
    if type in _TEXTUAL and not looks_like_text(head):
        return None
    return type


def _sniff(head: bytes) -> str | None:
    start = head[:1024].lstrip().lower()
    if b"%pdf-" in start:
        return "pdf"
    if head.startswith(b"PK\x03\x04"):
        return "docx" if b"word/" in head else None
    if not looks_like_text(head):
        return None
    if start.startswith((b"<!doctype html", b"<html")):
        return "html"
    return "code" if start.startswith(b"#!") else "text"


def parse(data: bytes, type: str, name: str) -> Parsed:
    """Read `data` as `type`, here and now, without limits of time or memory.

    Raises `input.unsupported_type` for a type that is not in FORMATS or bytes
    that are not of a readable kind, `operation.failed` with the reason for a
    damaged, encrypted or empty document. MemoryError passes through.
    """
    format = FORMATS.get(type)
    if format is None:
        message = f"{name}: no parser reads the type {type!r}."
        raise KbprocError("input.unsupported_type", message, valid_values=FORMATS)
    parser = cast("_Parser", importlib.import_module(format.module))
    try:
        parsed = parser.parse(data, name)
    except (KbprocError, MemoryError):
        raise
    except RecursionError as error:
        message = f"{name} is nested too deeply to be read."
        raise KbprocError("operation.failed", message) from error
    except Exception as error:
        message = f"{name} can't be read as {type}: {_reason(error).rstrip('.')}."
        raise KbprocError("operation.failed", message) from error
    return cleaned(parsed)


def is_text(type: str) -> bool:
    """Whether a source of this type is text as people write it."""
    return type in _TEXTUAL


def source_text(data: bytes, type: str, name: str) -> str:
    """The own characters of a source that is text.

    Raises `input.unsupported_type` for bytes that are not of a readable kind.
    """
    return decode_page(data, name) if type == "html" else decode(data, name)[0]


def _reason(error: Exception) -> str:
    said = " ".join(clean_text(str(error)).split())[:200]
    return f"{error.__class__.__name__}: {said}" if said else error.__class__.__name__


def cleaned(parsed: Parsed) -> Parsed:
    """The promise of every parser kept in one place: clean text, clean names."""
    parsed.title = clean_title(parsed.title)
    parsed.tags = [tag for tag in map(clean_title, parsed.tags) if tag]
    parsed.metadata = {
        key: clean_title(value) if isinstance(value, str) else value
        for name, value in parsed.metadata.items()
        if (key := clean_title(name))
    }
    blocks = map(_cleaned_block, parsed.blocks)
    parsed.blocks = [block for block in blocks if block.text and not block.text.isspace()]
    return parsed


def _cleaned_block(block: Block) -> Block:
    text = clean_text(block.text)
    body = text.lstrip("\n")
    return msgspec.structs.replace(
        block,
        text=body.rstrip(),
        section=clean_title(block.section),
        line=None if block.line is None else block.line + len(text) - len(body),
    )
