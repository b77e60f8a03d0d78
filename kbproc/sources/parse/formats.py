"""From bytes to blocks: which type a file is, and which parser reads it.

Owns: the table of formats, detection, the boundary where a parser's failure
becomes a typed error. Refuses to know: files, processes, chunks.
Parsers import their libraries when they are first called.
"""

from __future__ import annotations

import importlib
import re
from pathlib import PurePath
from typing import Protocol, cast

import msgspec

from kbproc.base.errors import KbprocError
from kbproc.sources.parse.blocks import Block, Parsed, clean_text, clean_title, in_bytes
from kbproc.sources.parse.code import LANGUAGES, NAMES
from kbproc.sources.parse.page_encoding import decode_page
from kbproc.sources.parse.progress import Report, no_report
from kbproc.sources.parse.text import decode, looks_like_text
from kbproc.sources.parse.unread import counted

# Raised whenever a parser gives other blocks for the same bytes.
PARSER_VERSION = 3


class Format(msgspec.Struct, frozen=True):
    """A document type: the module whose `parse` reads it, and the suffixes it goes by.

    `reports_pages`: its `parse` takes a Report, too.
    """

    module: str
    suffixes: frozenset[str]
    reports_pages: bool = False


def _format(module: str, suffixes: str, *, reports_pages: bool = False) -> Format:
    names = frozenset(f".{suffix}" for suffix in suffixes.split())
    return Format(f"kbproc.sources.parse.{module}", names, reports_pages)


FORMATS: dict[str, Format] = {
    "pdf": _format("pdf", "pdf", reports_pages=True),
    "markdown": _format("markdown", "md markdown mdown mkd mdx qmd rmd"),
    "text": _format("text", "txt text log rst adoc asciidoc org tex csv tsv srt vtt eml mbox"),
    "html": _format("html", "html htm xhtml"),
    "docx": _format("docx", "docx docm"),
    "code": Format("kbproc.sources.parse.code", frozenset(LANGUAGES)),
}

# Text by its type, but read by a module of its own.
_MAIL = frozenset({".eml", ".mbox"})
_BY_SUFFIX = {suffix: type for type, format in FORMATS.items() for suffix in format.suffixes}
# Text by their bytes, but pictures, page descriptions or wrappings that no parser reads.
_UNREAD = frozenset({".svg", ".ps", ".eps", ".ai", ".rtf", ".map", ".ipynb"})
_TEXTUAL = frozenset({"markdown", "text", "html", "code"})


class _Parser(Protocol):
    def parse(self, data: bytes, name: str, *report: Report) -> Parsed: ...


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


def parse(data: bytes, type: str, name: str, report: Report = no_report) -> Parsed:
    """Read `data` as `type`, here and now, without limits of time or memory.

    Raises `input.unsupported_type` for a type that is not in FORMATS or bytes
    that are not of a readable kind, `operation.failed` with the reason for a
    damaged, encrypted or empty document. MemoryError passes through.
    """
    format = FORMATS.get(type)
    if format is None:
        message = f"{name}: no parser reads the type {type!r}."
        raise KbprocError("input.unsupported_type", message, valid_values=FORMATS)
    is_mail = type == "text" and PurePath(name).suffix.lower() in _MAIL
    module = "kbproc.sources.parse.mail" if is_mail else format.module
    parser = cast("_Parser", importlib.import_module(module))
    try:
        parsed = parser.parse(data, name, *([report] if format.reports_pages else []))
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
    return (decode_page(data, name) if type == "html" else decode(data, name)).text


def _reason(error: Exception) -> str:
    said = " ".join(clean_text(str(error)).split())[:200]
    return f"{error.__class__.__name__}: {said}" if said else error.__class__.__name__


def cleaned(parsed: Parsed) -> Parsed:
    """The promise of every parser kept in one place: clean text, clean names."""
    parsed.title = clean_title(without_data_uris(parsed.title or "")[0])
    parsed.tags = [tag for tag in map(clean_title, parsed.tags) if tag]
    parsed.metadata = {
        key: clean_title(without_data_uris(value)[0]) if isinstance(value, str) else value
        for name, value in parsed.metadata.items()
        if (key := clean_title(name))
    }
    embedded = 0

    def shortened(block: Block) -> Block:
        nonlocal embedded
        text, count = without_data_uris(block.text)
        embedded += count
        return msgspec.structs.replace(block, text=text) if count else block

    blocks = (_cleaned_block(shortened(block)) for block in parsed.blocks)
    parsed.blocks = [block for block in blocks if block.text and not block.text.isspace()]
    unread = {**parsed.unread}
    unread["embedded_files"] = unread.get("embedded_files", 0) + embedded
    parsed.unread = counted(unread)
    return parsed


# Shorter ones are left alone: such a URI is short enough to be searched and read.
_DATA_URI = re.compile(
    r"data:(?P<type>[\w.+-]+/[\w.+-]+)?(?P<options>(?:;[\w.=+-]+)*?)(?P<base64>;base64)?,"
    r"(?P<data>(?:[A-Za-z0-9+/=_-]|%[0-9A-Fa-f]{2}){200,})"
)


def without_data_uris(text: str) -> tuple[str, int]:
    """`text` with "data:image/png (60 KB)" in the place of a file that is written out in it.

    The second value is how many such files there were.
    """
    if "data:" not in text:
        return text, 0
    return _DATA_URI.subn(_named, text)


def _named(uri: re.Match[str]) -> str:
    size = len(uri["data"]) * 3 // 4 if uri["base64"] else len(uri["data"])
    return f"data:{uri['type'] or 'text/plain'} ({in_bytes(size)})"


def _cleaned_block(block: Block) -> Block:
    text = clean_text(block.text)
    body = text.lstrip("\n")
    return msgspec.structs.replace(
        block,
        text=body.rstrip(),
        section=clean_title(block.section),
        line=None if block.line is None else block.line + len(text) - len(body),
    )
