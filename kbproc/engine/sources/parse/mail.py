"""Parses mail (.eml and .mbox): the header fields, the text, and the attachments.

Sender and date are the section of a message's text, so that a hit cites them. Attachments are
parts, which become documents of their own; their names are in the text.
"""

from __future__ import annotations

import base64
import codecs
import quopri
import re
from collections.abc import Iterator
from email import message_from_bytes
from email.message import Message
from email.utils import parseaddr, parsedate_to_datetime
from itertools import pairwise
from pathlib import PurePath
from typing import Any, NamedTuple

import msgspec

from kbproc.base.errors import KbprocError
from kbproc.base.paths import suffix_of
from kbproc.engine.sources.parse import html, text
from kbproc.engine.sources.parse.blocks import (
    PATH,
    Block,
    Parsed,
    Part,
    Scalar,
    clean_text,
    clean_title,
    in_bytes,
)
from kbproc.engine.sources.parse.page_encoding import LABELS
from kbproc.engine.sources.parse.replies import answers, own_page, own_words
from kbproc.engine.sources.parse.text import Decoded, decode
from kbproc.engine.sources.parse.unread import total

_TEXT_FIELDS = ("from", "to", "cc", "bcc", "date", "subject")
_METADATA_FIELDS = ("from", "to", "cc", "message-id")
_WORD = re.compile(r"=\?([^?*\s]+)(?:\*[^?\s]*)?\?([bBqQ])\?([^?]*)\?=")
_WORDS = re.compile(rf"{_WORD.pattern}(?:\s*{_WORD.pattern})*")
_FIELD = re.compile(rb"([A-Za-z][\w-]*):")
_OF_MAIL = re.compile(
    rb"^(?:from|to|subject|date|received|message-id|mime-version|return-path|delivered-to):",
    re.I | re.M,
)
_ENVELOPE = re.compile(rb"From (?=[^\r\n]*\d{4})[^\r\n]*+(?:\r\n|\n|\r)")
_MBOX = re.compile(rb"(?:\A|(?<=\n\n)|(?<=\r\n\r\n))From (?=[^\r\n]*\d{4})[^\r\n]*+\r?\n")
# An mbox quotes a message's own lines that begin with "From ".
_QUOTED = re.compile(rb"^>(>*From )", re.M)
# Longer fields are cut, because the standard library needs time quadratic in a field's length.
_FIELD_BYTES = 10_000
_LONG_FIELD = re.compile(
    rb"^content-(?:type|disposition):[^\r\n]*(?:(?:\r\n|\n|\r)[ \t][^\r\n]*)*", re.I | re.M
)
# Codecs of Python that no mail is written in; some are slow.
_NO_CHARSET = frozenset({"punycode", "idna", "unicode-escape", "raw-unicode-escape", "undefined"})
# Types of text whose markup no parser reads.
_MARKUP = frozenset({"text/rtf", "text/richtext", "text/enriched"})
_NO_NAME = re.compile(r"[/\\\x00-\x1f\x7f]")
_NAME_CHARS = 100
# Media type → suffix of an attachment without a name.
_SUFFIXES = {
    "application/pdf": ".pdf",
    "application/zip": ".zip",
    "image/jpeg": ".jpg",
    "image/png": ".png",
    "text/html": ".html",
    "text/calendar": ".ics",
    "text/rtf": ".rtf",
    "application/rtf": ".rtf",
}
MAX_PARTS = 2_000  # more attachments are counted, and not read
# The plain version is read if it has at least this share of the words of the HTML version; else it
# only points to it.
_SAME = 0.7
_WORD_OF_TEXT = re.compile(r"\w+")


def parse(data: bytes, name: str) -> Parsed:
    """Returns the blocks of a mail, or of each mail in an mbox.

    Text that belongs to a message is read in its place. Any other part is named, and is one of the
    `parts`. No block has a line, because the text is decoded and its lines are not those of the
    source. A file that does not begin as a mail is read as plain text.
    """
    data = data.removeprefix(b"\xef\xbb\xbf").lstrip(b"\r\n")
    if not _begins_as_mail(data):
        return text.parse(data, name)
    is_mbox = suffix_of(name) == ".mbox"
    reader = _MailReader(name)
    parsed = Parsed(blocks=reader.blocks)
    for number, raw in enumerate(_messages(data) if is_mbox else [data], 1):
        message = message_from_bytes(reader.with_short_fields(raw))
        fields = reader.fields(message)
        subject = fields.get("subject")
        reader.folder = f"{number}/" if is_mbox else ""
        reader.read(message, fields, clean_title(subject) if is_mbox else None)
        if not is_mbox:
            parsed.title, parsed.metadata = subject, metadata_of(fields)
    parsed.unread, parsed.parts = total(reader.counts), list(reader.parts.values())
    return parsed


def _begins_as_mail(data: bytes) -> bool:
    head = re.split(rb"\r?\n\r?\n", data[:_FIELD_BYTES], maxsplit=1)[0]
    head = head[envelope.end() :] if (envelope := _ENVELOPE.match(head + b"\n")) else head
    return bool(_FIELD.match(head) and _OF_MAIL.search(head))


def _messages(data: bytes) -> Iterator[bytes]:
    # The first message may lack an envelope, so 0 is always a start.
    starts = sorted({0, *(envelope.start() for envelope in _MBOX.finditer(data))})
    for start, end in pairwise([*starts, len(data)]):
        yield _QUOTED.sub(rb"\1", data[start:end])


def metadata_of(fields: dict[str, str]) -> dict[str, Scalar]:
    """Returns the metadata of a message with these fields, by name in lower case."""
    metadata: dict[str, Scalar] = {
        name.replace("-", "_"): fields[name] for name in _METADATA_FIELDS if name in fields
    }
    date = _date(fields.get("date", ""))
    return {**metadata, "date": date} if date else metadata


def sender_and_date(fields: dict[str, str]) -> str | None:
    """Returns the words that cite a message: "Ann Lee, 2024-03-05"."""
    name, address = parseaddr(fields.get("from", "")[:1000])
    date = (_date(fields.get("date", "")) or "")[:10]
    return clean_title(", ".join(filter(None, (name or address, date))))


def _date(value: str) -> str | None:
    try:
        return parsedate_to_datetime(value).isoformat()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


class _PartOfMail(NamedTuple):
    """A part of a message, its section, and whether it is read and is of an answer."""

    message: Message
    section: str | None
    is_shown: bool
    is_answer: bool


class _MailReader:
    """Reads messages part by part, without recursion because messages may nest deeply."""

    def __init__(self, name: str) -> None:
        self.blocks: list[Block] = []
        self.counts: list[dict[str, int]] = []
        self.parts: dict[str, Part] = {}
        self.folder = ""  # the beginning of the names of the parts
        self._name = name
        self._bodies: dict[int, Parsed | None] = {}
        self._is_answer = False

    def read(self, message: Message, fields: dict[str, str], section: str | None) -> None:
        """Adds the blocks of a message's head, from its decoded `fields`, and of its parts."""
        self._bodies.clear()  # keys are ids, which another message's parts may have later
        section = _path(section, sender_and_date(fields))
        self._add_head(fields, section)
        stack = [_PartOfMail(message, section, True, answers(fields))]
        while stack:
            part, section, is_shown, self._is_answer = stack.pop()
            children: list[Any] = part.get_payload() if part.is_multipart() else []  # type: ignore[assignment]
            type = part.get_content_type()
            if not children:
                self._leaf(part, type, section, is_shown)
            elif type == "message/delivery-status":
                self._add("\n\n".join(_lines(self.fields(child)) for child in children), section)
            elif type == "message/rfc822":
                fields = self.fields(children[0])
                subject = clean_title(fields.get("subject"))
                below = _path(section, _path(subject, sender_and_date(fields)))
                self._add_head(fields, below)
                stack.append(_PartOfMail(children[0], below, True, answers(fields)))
            else:
                after = part.epilogue or ""  # mailing lists put their footers there
                if after.strip():
                    stack.append(_PartOfMail(_footer(after), section, is_shown, self._is_answer))
                version = self._version(children) if type == "multipart/alternative" else None
                stack += [
                    _PartOfMail(
                        child, section, is_shown and version in (None, child), self._is_answer
                    )
                    for child in reversed(children)
                ]

    def with_short_fields(self, raw: bytes) -> bytes:
        """Cuts the fields that are too long, and counts them; returns the message."""

        def cut(field: re.Match[bytes]) -> bytes:
            self.counts.append({"fields": int(len(field[0]) > _FIELD_BYTES)})
            return field[0][:_FIELD_BYTES]

        return _LONG_FIELD.sub(cut, raw)

    def _add_head(self, fields: dict[str, str], section: str | None) -> None:
        texts = {name: fields[name] for name in _TEXT_FIELDS if name in fields}
        self._add(_lines(texts), section)

    def fields(self, message: Message) -> dict[str, str]:
        """Returns the decoded header fields by name in lower case; equal names are joined."""
        fields: dict[str, list[str]] = {}
        for name, value in message.raw_items():
            fields.setdefault(name.lower(), []).append(self._decoded(str(value)))
        joined = {name: ", ".join(filter(None, values)) for name, values in fields.items()}
        return {name: value for name, value in joined.items() if value}

    def _decoded(self, value: str) -> str:
        """Decodes the encoded words of a field's value, "=?utf-8?q?caf=C3=A9?="."""
        if not value.isascii():
            value = self._counted(decode(value.encode("utf-8", "surrogateescape"), self._name))
        return " ".join(_WORDS.sub(self._spelled, value).split())

    def _spelled(self, words: re.Match[str]) -> str:
        """Decodes encoded words in a row together, because a letter may be split between two."""
        parts: list[tuple[str, bytearray]] = []
        try:
            for charset, coding, encoded in _WORD.findall(words[0]):
                raw = _bytes(coding, encoded)
                if not parts or parts[-1][0] != charset.lower():
                    parts.append((charset.lower(), bytearray()))
                parts[-1][1].extend(raw)
            decoded = [self._text(bytes(raw), charset) for charset, raw in parts]
        except (ValueError, KbprocError):  # words that are cut short or no text stay as they are
            return words[0]
        return "".join(map(self._counted, decoded))

    def _counted(self, decoded: Decoded) -> str:
        self.counts.append({"replaced_bytes": decoded.replaced})
        return decoded.text

    def _text(self, data: bytes, charset: str | None) -> Decoded:
        """Decodes `data` in the declared encoding if it is valid there, else as any text."""
        label = (charset or "us-ascii").lower()
        if label != "us-ascii":
            try:
                encoding = codecs.lookup(LABELS.get(label, label)).name
                if encoding not in _NO_CHARSET:
                    return Decoded(data.decode(encoding), encoding)
            except (LookupError, ValueError):
                pass
        return decode(data, self._name)

    def _version(self, children: list[Message]) -> Message:
        """Returns the version of a body to be read: the plain one, unless it is only a stub."""
        by_type = {child.get_content_type(): child for child in reversed(children)}
        nested = next((child for child in children if child.is_multipart()), None)
        plain, rich = by_type.get("text/plain"), by_type.get("text/html", nested)
        if plain is None or rich is None:
            return plain or rich or children[-1]
        words, rich_words = self._words(plain), self._words(rich)
        return plain if words and len(words & rich_words) >= _SAME * len(rich_words) else rich

    def _words(self, part: Message) -> set[str]:
        """Returns the words in a part, or in the first text within it."""
        texts = (inner for inner in part.walk() if inner.get_content_maintype() == "text")
        first = next(texts, None)
        body = None if first is None else self._body(first)
        blocks = body.blocks if body else []
        return {word for block in blocks for word in _WORD_OF_TEXT.findall(block.text.lower())}

    def _leaf(self, part: Message, type: str, section: str | None, is_shown: bool) -> None:
        # A message in parts without an end is read as text.
        is_text = type.startswith(("text/", "multipart/", "message/")) and type not in _MARKUP
        if not is_text or part.get_content_disposition() == "attachment":
            self._attach(part, section)
        elif is_shown:
            body = self._body(part)
            if body is None:
                self._attach(part, section)
                return
            self.counts.append(body.unread)
            self.blocks += (
                msgspec.structs.replace(block, line=None, section=_path(section, block.section))
                for block in body.blocks
            )

    def _body(self, part: Message) -> Parsed | None:
        """Returns a part's text, parsed; None for bytes that are not text despite their type."""
        if id(part) not in self._bodies:
            try:
                self._bodies[id(part)] = self._parsed(part)
            except KbprocError:
                self._bodies[id(part)] = None
        return self._bodies[id(part)]

    def _parsed(self, part: Message) -> Parsed:
        decoded = self._text(_payload(part), part.get_content_charset())
        is_page = part.get_content_type() == "text/html"
        parsed = parsed_body(decoded.text, self._name, is_page=is_page, is_answer=self._is_answer)
        parsed.unread = total([parsed.unread, {"replaced_bytes": decoded.replaced}])
        return parsed

    def _attach(self, part: Message, section: str | None) -> None:
        type, data = part.get_content_type(), _payload(part)
        name = self._decoded(part.get_filename() or "")
        self._add(f"Attachment: {name or type} ({in_bytes(len(data))})", section)
        if len(self.parts) < MAX_PARTS:
            add_part(self.parts, f"{self.folder}{file_name(name, type)}", data)
        else:
            self.counts.append({"attachments": 1})

    def _add(self, words: str, section: str | None) -> None:
        self.blocks.append(Block(text=words, section=section))


def parsed_body(words: str, name: str, *, is_page: bool, is_answer: bool) -> Parsed:
    """Returns the sender's own words in the body of a message as blocks, and the counts."""
    if is_page:
        own = own_page(words, is_answer=is_answer)
        # The BOM is added because it outranks the encoding that the page itself names.
        parsed = html.parse(own.text.encode("utf-8-sig", "replace"), name)
    else:
        own = own_words(words, is_answer=is_answer)
        parsed = Parsed(blocks=text.paragraphs(own.text, "body"))
    parsed.unread = total([parsed.unread, own.unread])
    return parsed


def file_name(name: str, type: str) -> str:
    """Returns the name of an attachment as the name of a file, with the suffix of its type."""
    safe = _NO_NAME.sub("_", clean_text(name)).strip(". ")
    suffix = PurePath(safe).suffix[:20] or _SUFFIXES.get(type, "")
    return f"{PurePath(safe or 'attachment').stem[:_NAME_CHARS]}{suffix}"


def add_part(parts: dict[str, Part], name: str, data: bytes) -> None:
    """Adds a part under its name, or under "name (2)" if that is taken."""
    path = PurePath(name)
    number = 1
    while name in parts:
        number += 1
        name = str(path.with_name(f"{path.stem} ({number}){path.suffix}"))
    parts[name] = Part(name, data)


def _footer(words: str) -> Message:
    footer = Message()
    footer.set_payload(words)
    return footer


def _path(section: str | None, below: str | None) -> str | None:
    return PATH.join(filter(None, (section, below))) or None


def _lines(fields: dict[str, str]) -> str:
    """Writes header fields as text: {"message-id": "x"} → "Message-Id: x"."""
    return "\n".join(f"{name.title()}: {value}" for name, value in fields.items())


def _bytes(coding: str, encoded: str) -> bytes:
    """Returns the bytes of an encoded word. Raises ValueError."""
    if coding.lower() == "q":
        return quopri.decodestring(encoded.encode(), header=True)
    return base64.b64decode(encoded.encode() + b"==")


def _payload(part: Message) -> bytes:
    payload = part.get_payload(decode=True)
    return payload if isinstance(payload, bytes) else b""
