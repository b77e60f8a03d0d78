"""Detects a file's document type, and reads it with the parser of that type.

Here a parser's failure becomes a typed error. Parsers import their libraries when they are first
called, so that detection stays cheap.
"""

from __future__ import annotations

import importlib
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import PurePath
from typing import Protocol, cast

import msgspec
from msgspec import Struct

from kbproc.base.errors import KbprocError
from kbproc.base.paths import suffix_of
from kbproc.base.patterns import lazy
from kbproc.engine.sources.parse.blocks import Block, Parsed, clean_text, clean_title, in_bytes
from kbproc.engine.sources.parse.code import LANGUAGES, NAMES
from kbproc.engine.sources.parse.kinds import LFS_POINTER, OLDER_OFFICE, ZIP, Kind, kind_of
from kbproc.engine.sources.parse.page_encoding import decode_page
from kbproc.engine.sources.parse.progress import Report, no_report
from kbproc.engine.sources.parse.text import decode, looks_like_text
from kbproc.engine.sources.parse.unread import counted

# To be raised with each change by which a parser returns other blocks for the same bytes.
PARSER_VERSION = 7


OCR_LANGUAGES = "ocr_languages"  # the field of metadata that names the languages of OCR
TAIL_BYTES = 1 << 20  # the end of a file that detection examines: some 10,000 names of a ZIP


class Format(Struct, frozen=True):
    """A document type: the module whose `parse` reads it, and its file suffixes.

    With `reports_pages`, `parse` also takes a Report; with `recognises`, the languages of OCR; with
    `divides`, whether parts of the source may be documents of their own, and messages to leave out.
    """

    module: str
    suffixes: frozenset[str]
    reports_pages: bool = False
    recognises: bool = False
    divides: bool = False


class ReadOptions(Struct, frozen=True, kw_only=True):
    """Choices of an ingest for the parsers.

    `parts`: attachments and other files within a source are documents of their own. `archives`:
    archives are read, too. `ocr`: the languages of text recognition, as tesseract names them
    ("eng+deu"); "" for none. `redact`: secrets are taken out before anything is stored. `digests`:
    those of parts that were read before, by path; parts that are still the same are not read.
    `earlier`: keys of messages of a session log that another log's document holds.
    """

    parts: bool = False
    archives: bool = False
    ocr: str = ""
    redact: bool = False
    digests: dict[str, str] = {}
    earlier: list[str] = []


NO_OPTIONS = ReadOptions()


def _format(
    module: str,
    suffixes: str,
    *,
    reports_pages: bool = False,
    recognises: bool = False,
    divides: bool = False,
) -> Format:
    names = frozenset(f".{suffix}" for suffix in suffixes.split())
    path = f"kbproc.engine.sources.parse.{module}"
    return Format(path, names, reports_pages, recognises, divides)


FORMATS: dict[str, Format] = {
    "pdf": _format("pdf", "pdf", reports_pages=True, recognises=True),
    "markdown": _format("markdown", "md markdown mdown mkd mdx qmd rmd"),
    "text": _format(
        "text",
        "txt text log rst adoc asciidoc org tex bib typ wiki mediawiki canvas srt vtt ics vcs vcf "
        "vcard po pot enex",
    ),
    "table": _format("text", "csv tsv tab"),
    "html": _format("html", "html htm xhtml"),
    "docx": _format("docx", "docx docm"),
    "doc": _format("word_97", "doc dot"),
    "sheet": _format("sheet", "xlsx xlsm xlsb xls ods"),
    "slides": _format("slides", "pptx pptm ppsx odp ppt pps"),
    "notebook": _format("notebook", "ipynb"),
    "odt": _format("odf", "odt ott"),
    "rtf": _format("rtf", "rtf"),
    "book": _format("book", "epub fb2"),
    "mail": _format("mail", "eml mbox msg mht mhtml"),
    "archive": _format("archive", ""),
    "picture": _format("picture", "jpg jpeg png tif tiff", recognises=True),
    "conversation": _format("conversation", "", divides=True),
    "code": Format("kbproc.engine.sources.parse.code", frozenset(LANGUAGES)),
}

# Pages of a manual, which their headings alone tell from any other text.
_MANUAL = frozenset(f".{number}" for number in range(1, 10))
_MANUAL_HEADING = lazy(r"\.\s*+S[HS]")
# Files whose type is text, code or mail, and which a module of their own reads, by suffix.
_READERS = {
    **dict.fromkeys((".eml", ".mbox"), "mail"),
    ".msg": "outlook",
    **dict.fromkeys((".mht", ".mhtml"), "web_archive"),
    **dict.fromkeys((".srt", ".vtt"), "captions"),
    **dict.fromkeys((".ics", ".vcs", ".vcf", ".vcard"), "cards"),
    **dict.fromkeys((".po", ".pot"), "catalogs"),
    ".enex": "evernote",
    **dict.fromkeys((".rst", ".org", ".adoc", ".asciidoc", ".tex", ".bib"), "outline"),
    **dict.fromkeys((".typ", ".wiki", ".mediawiki"), "outline"),
    **dict.fromkeys(_MANUAL, "outline"),
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), "records"),
    **dict.fromkeys((".yaml", ".yml", ".toml", ".xml"), "trees"),
    ".canvas": "canvas",
}
_BY_SUFFIX = {suffix: type for type, format in FORMATS.items() for suffix in format.suffixes}
# Their bytes are text, but they are pictures, page descriptions or containers without a parser.
_UNREAD = frozenset({".svg", ".ps", ".eps", ".ai", ".map"})
_PICTURE = "Text recognition (OCR) reads JPEG, PNG and TIFF with ocr: true, if tesseract is there."
_ARCHIVE = "archives: true reads the files in it."
_UNPACK = "Unpack it, and add the folder."
_FETCH_LFS = "git lfs pull fetches the files themselves."
_RECORDING = "Add its transcript, for example as VTT or SRT."
# Suffixes of files that people add and no parser reads → what to do instead.
_CONVERSIONS = {
    **dict.fromkeys((".wpd", ".wps", ".pages"), "Save it as DOCX or PDF."),
    ".key": "Save it as PPTX or PDF.",
    **dict.fromkeys((".numbers", ".xlt"), "Save it as XLSX."),
    **dict.fromkeys((".mobi", ".azw3", ".djvu"), "Convert it to EPUB or PDF."),
    **dict.fromkeys((".ps", ".eps", ".ai"), "Convert it to PDF."),
    **dict.fromkeys(
        (".jpg", ".jpeg", ".png", ".gif", ".tif", ".tiff", ".bmp", ".webp", ".heic"), _PICTURE
    ),
    **dict.fromkeys(
        (".zip", ".tar", ".gz", ".tgz", ".bz2", ".tbz", ".tbz2", ".xz", ".txz"), _ARCHIVE
    ),
    **dict.fromkeys((".7z", ".rar", ".zst"), _UNPACK),
    **dict.fromkeys(
        (".mp3", ".m4a", ".wav", ".ogg", ".flac", ".mp4", ".mov", ".mkv", ".avi", ".webm"),
        _RECORDING,
    ),
}
# Archives that are read where the caller asks for it.
_PACKED = frozenset((".zip", ".tar", ".gz", ".tgz", ".bz2", ".tbz", ".tbz2", ".xz", ".txz"))
# Suffixes of session logs, and of what chats are exported as.
_OF_CONVERSATIONS = frozenset({".jsonl", ".ndjson", ".json", ".zip", ".db"})
# Types whose files may be in the older Office format: encrypted, or as they were written then.
_IN_OLE = frozenset({"docx", "sheet", "slides", "doc", "mail"})
# Types whose files begin with the mark of their kind.
_MARKED = _IN_OLE - {"mail"} | {"pdf", "odt", "book", "rtf", "picture", "archive"}
# Types whose sources hold other files.
HOLDERS = frozenset({"mail", "archive", "conversation"})
_TEXTUAL = frozenset({"markdown", "text", "table", "html", "code"})
# Types of which some files are plain texts with the suffix of the type.
_OFTEN_TEXT = _MARKED - {"picture", "archive"}


class _Parser(Protocol):
    def parse(self, data: bytes, name: str, *more: object) -> Parsed: ...


class Detection(Struct, frozen=True, kw_only=True):
    """A file's document type; None if no parser reads it.

    `kind`: what its bytes are, in words. `note`: how name and bytes differ, as a sentence.
    """

    type: str | None
    kind: str | None = None
    note: str | None = None


def detect(
    name: str, head: bytes, options: ReadOptions = NO_OPTIONS, tail: bytes = b""
) -> str | None:
    """Returns the document type of a file, by its suffix and its first bytes; see `detection`."""
    return detection(name, head, options, tail).type


def detection(
    name: str, head: bytes, options: ReadOptions = NO_OPTIONS, tail: bytes = b""
) -> Detection:
    """Tells a file's document type by its suffix, unless its bytes are of another kind.

    `head` is the file's start, about 4 KiB; `tail` its end, which holds the names in a ZIP.
    """
    path = PurePath(name)
    suffix = path.suffix.lower()
    if suffix in _OF_CONVERSATIONS and _is_conversation(path.name, suffix, head, tail):
        return Detection(type="conversation")
    kind = kind_of(head)
    words = kind.words if kind else None
    if suffix in _UNREAD or kind == LFS_POINTER:
        return Detection(type=None, kind=words)
    named = "code" if path.name in NAMES else _BY_SUFFIX.get(suffix)
    if suffix in _PACKED:
        named = "archive"
    type = named or _by_content(kind, head)
    if named and kind and not _agree(named, kind, head):
        type = kind.type
    elif named in _OFTEN_TEXT and kind is None and _is_plain(head):
        type, words = _by_content(kind, head), "a text"
    if type in _TEXTUAL | {"mail"} and kind != OLDER_OFFICE and not looks_like_text(head):
        type = None
    is_asked = {"archive": options.archives, "picture": bool(options.ocr)}
    if type in is_asked and not is_asked[type]:
        type = None
    note = f"{path.name} is {words}, and was read as that." if named not in (None, type) else None
    return Detection(type=type, kind=words, note=note if type else None)


def _is_conversation(name: str, suffix: str, head: bytes, tail: bytes) -> bool:
    from kbproc.engine.sources.parse.conversation import is_conversation  # costs milliseconds

    return is_conversation(name, suffix, head, tail)


def _agree(type: str, kind: Kind, head: bytes) -> bool:
    """Returns False if the bytes of a file are of another kind than its name says."""
    if kind.type == type:
        return True
    if kind == OLDER_OFFICE:
        return type in _IN_OLE
    if type == "mail":
        return looks_like_text(head)
    if kind == ZIP and kind.type != type:
        return type in _MARKED  # the names that tell the kind may stand further below
    if type in _MARKED:
        return False
    if kind.type == "pdf":
        return not head.lstrip().startswith(b"%PDF-")  # a text may speak of that mark
    return kind.type in ("html", "rtf") or looks_like_text(head)


def _is_plain(head: bytes) -> bool:
    """Returns True for a text that is no document of its name: no PDF, ZIP or book of fiction."""
    is_document = head.startswith(b"PK") or b"%PDF" in head or b"<FictionBook" in head
    return not is_document and bool(head.strip()) and looks_like_text(head)


def _by_content(kind: Kind | None, head: bytes) -> str | None:
    if kind and (kind.type or not looks_like_text(head)):
        return kind.type
    if not looks_like_text(head):
        return None
    return "code" if head.lstrip().startswith(b"#!") else "text"


def has_reader(text: str, name: str) -> bool:
    """Returns True if a module of its own reads a text of this name, and may find more in it."""
    suffix = suffix_of(name)
    if suffix in _MANUAL:  # "Release notes 2.1" ends like a page's name
        return _MANUAL_HEADING.search(clean_text(text)) is not None
    return suffix in _READERS


def parse(
    data: bytes,
    type: str,
    name: str,
    report: Report = no_report,
    options: ReadOptions = NO_OPTIONS,
) -> Parsed:
    """Reads `data` as `type`, in this process, without limits of time or memory.

    Raises `input.unsupported_type` for a type that is not in FORMATS or bytes
    that are not of a readable kind, `operation.failed` with the reason for a
    damaged, encrypted or empty document. MemoryError passes through.
    """
    format = FORMATS.get(type)
    if format is None:
        message = f"{name}: no parser reads the type {type!r}."
        raise KbprocError("input.unsupported_type", message, valid_values=FORMATS)
    if options.redact:
        return _parsed_without_secrets(data, type, name, format, report, options)
    return _parsed(data, type, name, format, report, options)


def _parsed(
    data: bytes, type: str, name: str, format: Format, report: Report, options: ReadOptions
) -> Parsed:
    own = _READERS.get(suffix_of(name)) if type in {"text", "code", "mail"} else None
    module = f"{__package__}.{own}" if own else format.module
    parser = cast("_Parser", importlib.import_module(module))
    try:
        more: list[object] = [report] if format.reports_pages else []
        more += [options.ocr] if format.recognises else []
        more += [options.parts, options.earlier] if format.divides else []
        parsed = parser.parse(data, name, *more)
    except (KbprocError, MemoryError):
        raise
    except RecursionError as error:
        message = f"{name} is nested too deeply to be read."
        raise KbprocError("operation.failed", message) from error
    except Exception as error:
        message = f"{name} can't be read as {type}: {_reason(error).rstrip('.')}."
        raise KbprocError("operation.failed", message) from error
    return cleaned(parsed)


def _parsed_without_secrets(
    data: bytes, type: str, name: str, format: Format, report: Report, options: ReadOptions
) -> Parsed:
    """Returns what was parsed, with the redacted source that is to be stored.

    The parser's text is looked at, too, because markup can divide a secret that only its reader
    sees whole. Raises `SecretSourceError` for secrets in a source that is no text, or in places
    of it that can't be told, because its bytes can't be stored without them.
    """
    from kbproc.base.text.secrets import redact, secret_values

    redacted, counts, others = data, Counter[str](), dict[str, str]()
    for _ in range(2):
        if is_text(type):
            redaction = redact(source_text(redacted, type, name), others)
            counts.update(redaction.counts)
            if redaction.counts:
                # The mark of UTF-8 holds against an encoding that a page names.
                mark = type == "html" and not redaction.text.isascii()
                redacted = redaction.text.encode("utf-8-sig" if mark else "utf-8", "replace")
        parsed = _parsed(redacted, type, name, format, report, options)
        others = {} if parsed.source is not None else secret_values(_whole_text(parsed))
        if not others or not is_text(type):
            break
    if not is_text(type) and parsed.source is None and looks_like_text(data[:4096]):
        others |= secret_values(data.decode("utf-8", "replace"))
    if others:
        raise SecretSourceError(name, f"it holds secrets ({_kinds_in_words(others)})")
    if counts:
        parsed.source = redacted
        parsed.unread = {**parsed.unread, **counts}
    return parsed


def _whole_text(parsed: Parsed) -> str:
    """Returns all that a parser says of a source."""
    texts = [parsed.title or "", *parsed.tags]
    texts += [f"{key}: {value}" for key, value in parsed.metadata.items()]
    texts += [f"{block.section or ''}\n{block.text}" for block in parsed.blocks]
    return "\n\n".join(texts)


def _kinds_in_words(secrets: Mapping[str, str]) -> str:
    from kbproc.base.text.secrets import REDACTED
    from kbproc.engine.sources.parse.unread import in_words

    return in_words(Counter(f"{REDACTED}{kind}" for kind in secrets.values()))


class SecretSourceError(KbprocError):
    """A source with secrets that can't be stored without them.

    It is no `operation.failed`, after which a source is read without the files in it.
    """

    def __init__(self, name: str, why: str) -> None:
        super().__init__(
            "input.unsupported_type",
            f"{name} is not stored, because {why}.",
            hint="Add its text without them; only text files can be redacted.",
        )


def conversion_hint(name: str, kind: str | None) -> str | None:
    """Returns how a file of an unread kind can be made readable, or None where that is unknown."""
    return _FETCH_LFS if kind == LFS_POINTER.words else _CONVERSIONS.get(suffix_of(name))


def is_text(type: str) -> bool:
    """Returns True if a source of this type is text that people write as it is."""
    return type in _TEXTUAL


def source_text(data: bytes, type: str, name: str) -> str:
    """Returns the characters of a source of text, markup included.

    Raises `input.unsupported_type` for bytes that are not of a readable kind.
    """
    return (decode_page(data, name) if type == "html" else decode(data, name)).text


def _reason(error: Exception) -> str:
    message = " ".join(clean_text(str(error)).split())[:200]
    return f"{error.__class__.__name__}: {message}" if message else error.__class__.__name__


def cleaned(parsed: Parsed) -> Parsed:
    """Cleans a parser's result in place and returns it: title, tags, metadata, blocks, counts."""
    if parsed.title is not None:
        parsed.title = clean_title(without_data_uris(parsed.title)[0])
    parsed.tags = [tag for tag in map(clean_title, parsed.tags) if tag]
    parsed.metadata = {
        key: clean_title(without_data_uris(value)[0]) if isinstance(value, str) else value
        for name, value in parsed.metadata.items()
        if (key := clean_title(name))
    }
    blocks: list[Block] = []
    embedded = 0
    for block in parsed.blocks:
        text, count = without_data_uris(block.text)
        embedded += count
        shortened = msgspec.structs.replace(block, text=text) if count else block
        clean_block = _cleaned_block(shortened)
        if clean_block.text and not clean_block.text.isspace():
            blocks.append(clean_block)
    parsed.blocks = blocks
    if embedded:
        embedded += parsed.unread.get("embedded_files", 0)
        parsed.unread = {**parsed.unread, "embedded_files": embedded}
    parsed.unread = counted(parsed.unread)
    return parsed


# Shorter data URIs stay in the text, because they are short enough to be read.
_DATA_URI = re.compile(
    r"data:(?P<type>[\w.+-]+/[\w.+-]+)?(?P<options>(?:;[\w.=+-]+)*?)(?P<base64>;base64)?,"
    r"(?P<data>(?:[A-Za-z0-9+/=_-]|%[0-9A-Fa-f]{2}){200,})"
)


def without_data_uris(text: str) -> tuple[str, int]:
    """Returns `text` with "data:image/png (60 KB)" for each embedded file, and their number."""
    if "data:" not in text:
        return text, 0
    return _DATA_URI.subn(_summary, text)


def _summary(uri: re.Match[str]) -> str:
    size = len(uri["data"]) * 3 // 4 if uri["base64"] else len(uri["data"])
    return f"data:{uri['type'] or 'text/plain'} ({in_bytes(size)})"


def _cleaned_block(block: Block) -> Block:
    text = clean_text(block.text)
    body = text.lstrip("\n")
    trimmed, section = body.rstrip(), clean_title(block.section)
    if trimmed == block.text and section == block.section:
        return block
    return msgspec.structs.replace(
        block,
        text=trimmed,
        section=section,
        line=None if block.line is None else block.line + len(text) - len(body),
    )
