"""Mail: who wrote to whom, the text of the message, and the names of its attachments.

Owns: .eml and .mbox files, MIME, which of several versions of a body is read.
Refuses to know: what attachments hold, and transport headers.
"""

from __future__ import annotations

import base64
import codecs
import quopri
import re
from collections.abc import Iterator
from email import message_from_bytes
from email.message import Message
from email.utils import parsedate_to_datetime
from itertools import pairwise
from pathlib import PurePath
from typing import Any

import msgspec

from kbproc.base.errors import KbprocError
from kbproc.sources.parse import html, text
from kbproc.sources.parse.blocks import PATH, Block, Parsed, Scalar, clean_title, in_bytes
from kbproc.sources.parse.page_encoding import LABELS
from kbproc.sources.parse.text import Decoded, decode
from kbproc.sources.parse.unread import total

_SHOWN = ("from", "to", "cc", "bcc", "date", "subject")
_KEPT = ("from", "to", "cc", "message-id")
_WORD = re.compile(r"=\?([^?*\s]+)(?:\*[^?\s]*)?\?([bBqQ])\?([^?]*)\?=")
_WORDS = re.compile(rf"{_WORD.pattern}(?:\s*{_WORD.pattern})*")
_FIELD = re.compile(rb"([A-Za-z][\w-]*):")
_OF_MAIL = re.compile(
    rb"^(?:from|to|subject|date|received|message-id|mime-version|return-path|delivered-to):",
    re.I | re.M,
)
_ENVELOPE = re.compile(rb"From [^\r\n]*\d{4}[^\r\n]*(?:\r\n|\n|\r)")
_MBOX = re.compile(rb"(?:\A|(?<=\n\n)|(?<=\r\n\r\n))From [^\r\n]*\d{4}[^\r\n]*\r?\n")
# A message's own line that begins so is quoted in an mbox.
_QUOTED = re.compile(rb"^>(>*From )", re.M)
# The standard library takes a field apart in a time that grows with the square of its length.
_FIELD_BYTES = 10_000
_LONG_FIELD = re.compile(
    rb"^content-(?:type|disposition):[^\r\n]*(?:(?:\r\n|\n|\r)[ \t][^\r\n]*)*", re.I | re.M
)
# Python's codecs that no mail is written in; some take long.
_NO_CHARSET = frozenset({"punycode", "idna", "unicode_escape", "raw_unicode_escape", "undefined"})
# Text by its type, but markup that nothing here reads.
_MARKUP = frozenset({"text/rtf", "text/richtext", "text/enriched"})
# A plain version that is so much shorter than the page beside it only points to the page.
_STUB = 2


def parse(data: bytes, name: str) -> Parsed:
    """A mail's blocks, or those of each in an mbox; a file that does not begin as one is text.

    A part that is text is read where it stands; any other is named and counted. A source's lines
    are not those of the text, which is decoded, so no block has a line.
    """
    data = data.removeprefix(b"\xef\xbb\xbf").lstrip(b"\r\n")
    if not _begins_as_mail(data):
        return text.parse(data, name)
    is_mbox = PurePath(name).suffix.lower() == ".mbox"
    reader = _Reader(name)
    parsed = Parsed(blocks=reader.blocks)
    for raw in _messages(data) if is_mbox else [data]:
        message = message_from_bytes(reader.with_short_fields(raw))
        fields = reader.fields(message)
        subject = fields.get("subject")
        reader.read(message, fields, clean_title(subject) if is_mbox else None)
        if not is_mbox:
            parsed.title, parsed.metadata = subject, _metadata(fields)
    parsed.unread = total([*reader.counts, {"attachments": reader.attachments}])
    return parsed


def _begins_as_mail(data: bytes) -> bool:
    head = re.split(rb"\r?\n\r?\n", data[:_FIELD_BYTES], maxsplit=1)[0]
    head = head[envelope.end() :] if (envelope := _ENVELOPE.match(head + b"\n")) else head
    return bool(_FIELD.match(head) and _OF_MAIL.search(head))


def _messages(data: bytes) -> Iterator[bytes]:
    # A first message without an envelope is one, too.
    starts = sorted({0, *(envelope.start() for envelope in _MBOX.finditer(data))})
    for start, end in pairwise([*starts, len(data)]):
        yield _QUOTED.sub(rb"\1", data[start:end])


def _metadata(fields: dict[str, str]) -> dict[str, Scalar]:
    metadata: dict[str, Scalar] = {
        name.replace("-", "_"): fields[name] for name in _KEPT if name in fields
    }
    date = _date(fields.get("date", ""))
    return {**metadata, "date": date} if date else metadata


def _date(value: str) -> str | None:
    try:
        return parsedate_to_datetime(value).isoformat()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


class _Reader:
    """Reads messages part by part, without recursion: a message may hold another, and so on."""

    def __init__(self, name: str) -> None:
        self.blocks: list[Block] = []
        self.counts: list[dict[str, int]] = []
        self.attachments = 0
        self._name = name
        self._bodies: dict[int, Parsed | None] = {}

    def read(self, message: Message, fields: dict[str, str], section: str | None) -> None:
        """Adds the head of a message, of which `fields` are known, and what it holds."""
        self._bodies.clear()  # keys are ids, which another message's parts may have later
        self._add_head(fields, section)
        stack: list[tuple[Message, str | None, bool]] = [(message, section, True)]
        while stack:
            part, section, is_shown = stack.pop()
            children: list[Any] = part.get_payload() if part.is_multipart() else []  # type: ignore[assignment]
            type = part.get_content_type()
            if not children:
                self._leaf(part, type, section, is_shown)
            elif type == "message/delivery-status":
                self._add("\n\n".join(_lines(self.fields(child)) for child in children), section)
            elif type == "message/rfc822":
                fields = self.fields(children[0])
                below = _path(section, clean_title(fields.get("subject")))
                self._add_head(fields, below)
                stack.append((children[0], below, True))
            else:
                after = part.epilogue or ""  # where mailing lists put their footers
                if after.strip():
                    stack.append((_footer(after), section, is_shown))
                version = self._version(children) if type == "multipart/alternative" else None
                stack += [
                    (child, section, is_shown and version in (None, child))
                    for child in reversed(children)
                ]

    def with_short_fields(self, raw: bytes) -> bytes:
        """The message with its longest fields cut, and these counted."""

        def cut(field: re.Match[bytes]) -> bytes:
            self.counts.append({"fields": int(len(field[0]) > _FIELD_BYTES)})
            return field[0][:_FIELD_BYTES]

        return _LONG_FIELD.sub(cut, raw)

    def _add_head(self, fields: dict[str, str], section: str | None) -> None:
        self._add(_lines({name: fields[name] for name in _SHOWN if name in fields}), section)

    def fields(self, message: Message) -> dict[str, str]:
        """The header fields by name in small letters, decoded; those of one name are joined."""
        fields: dict[str, list[str]] = {}
        for name, value in message.raw_items():
            fields.setdefault(name.lower(), []).append(self._decoded(str(value)))
        joined = {name: ", ".join(filter(None, values)) for name, values in fields.items()}
        return {name: value for name, value in joined.items() if value}

    def _decoded(self, value: str) -> str:
        """A field's value without encoded words, "=?utf-8?q?caf=C3=A9?="."""
        if not value.isascii():
            value = self._counted(decode(value.encode("utf-8", "surrogateescape"), self._name))
        return " ".join(_WORDS.sub(self._spelled, value).split())

    def _spelled(self, words: re.Match[str]) -> str:
        """Encoded words in a row: a letter may begin in one and end in the next."""
        parts: list[tuple[str, bytearray]] = []
        try:
            for charset, coding, encoded in _WORD.findall(words[0]):
                raw = _bytes(coding, encoded)
                if not parts or parts[-1][0] != charset.lower():
                    parts.append((charset.lower(), bytearray()))
                parts[-1][1].extend(raw)
            decoded = [self._text(bytes(raw), charset) for charset, raw in parts]
        except (ValueError, KbprocError):  # cut short, or no text: it stays as it is
            return words[0]
        return "".join(map(self._counted, decoded))

    def _counted(self, decoded: Decoded) -> str:
        self.counts.append({"replaced_bytes": decoded.replaced})
        return decoded.text

    def _text(self, data: bytes, charset: str | None) -> Decoded:
        """Text in the encoding that is declared, where the bytes bear it out, else as any text."""
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
        """Which version of a body is read: the plain one if it says what the page says."""
        by_type = {child.get_content_type(): child for child in reversed(children)}
        nested = next((child for child in children if child.is_multipart()), None)
        plain, rich = by_type.get("text/plain"), by_type.get("text/html", nested)
        if plain is None or rich is None:
            return plain or rich or children[-1]
        words = self._words(plain)
        return plain if words and self._words(rich) <= _STUB * words + 20 else rich

    def _words(self, part: Message) -> int:
        """Words of a part, or of the first text in it."""
        texts = (one for one in part.walk() if one.get_content_maintype() == "text")
        first = next(texts, None)
        body = None if first is None else self._body(first)
        return sum(len(block.text.split()) for block in body.blocks) if body else 0

    def _leaf(self, part: Message, type: str, section: str | None, is_shown: bool) -> None:
        # A message in parts of which no end is found is text as it stands.
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
        """A part's text, parsed; None for bytes that are not text, whatever they are called."""
        if id(part) not in self._bodies:
            try:
                self._bodies[id(part)] = self._parsed(part)
            except KbprocError:
                self._bodies[id(part)] = None
        return self._bodies[id(part)]

    def _parsed(self, part: Message) -> Parsed:
        decoded = self._text(_payload(part), part.get_content_charset())
        if part.get_content_type() == "text/html":
            # A BOM outranks the encoding that the page itself names.
            parsed = html.parse(decoded.text.encode("utf-8-sig", "replace"), self._name)
        else:
            parsed = Parsed(blocks=text.paragraphs(decoded.text, "body"))
        parsed.unread = total([parsed.unread, {"replaced_bytes": decoded.replaced}])
        return parsed

    def _attach(self, part: Message, section: str | None) -> None:
        name = self._decoded(part.get_filename() or "") or part.get_content_type()
        self.attachments += 1
        self._add(f"Attachment: {name} ({in_bytes(len(_payload(part)))})", section)

    def _add(self, words: str, section: str | None) -> None:
        self.blocks.append(Block(text=words, section=section))


def _footer(words: str) -> Message:
    footer = Message()
    footer.set_payload(words)
    return footer


def _path(section: str | None, below: str | None) -> str | None:
    return PATH.join(filter(None, (section, below))) or None


def _lines(fields: dict[str, str]) -> str:
    """{"message-id": "x"} → "Message-Id: x"."""
    return "\n".join(f"{name.title()}: {value}" for name, value in fields.items())


def _bytes(coding: str, encoded: str) -> bytes:
    """The bytes of an encoded word. Raises ValueError."""
    if coding.lower() == "q":
        return quopri.decodestring(encoded.encode(), header=True)
    return base64.b64decode(encoded.encode() + b"==")


def _payload(part: Message) -> bytes:
    payload = part.get_payload(decode=True)
    return payload if isinstance(payload, bytes) else b""
