"""Catalogs of translations (PO, POT): a block for each message, with its lines put together."""

from __future__ import annotations

import codecs
import re

from kbproc.engine.sources.parse import text
from kbproc.engine.sources.parse.blocks import Block, Parsed, Scalar, clean_text

_CHARSET = re.compile(rb"charset=([\w.:-]+)")
_STRING = re.compile(r'(?:(msgctxt|msgid|msgid_plural|msgstr)(?:\[\d+\])?\s*)?"((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r"\\([0-7]{1,3}|x[0-9A-Fa-f]{2}|.)")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "", "b": "", "f": "\n", "v": "\n"}
# Comments for people: a translator's, and those that a program took from the source.
_COMMENTS = ("# ", "#.")


class _Message:
    """A message as it is collected: its strings and comments, and the line at which it begins."""

    def __init__(self, line: int) -> None:
        self.line = line
        self.comments: list[str] = []
        self.place: str | None = None
        self.strings: list[str] = []
        self.has_id = False

    @property
    def is_head(self) -> bool:
        return bool(self.strings) and not self.strings[0]

    def block(self) -> Block:
        lines = [*self.comments, *(each.strip("\n") for each in self.strings)]
        body = "\n".join(line for line in lines if line.strip())
        return Block(text=body, section=self.place, line=self.line)


def parse(data: bytes, name: str) -> Parsed:
    """Returns a block for each message; a file without any is read as text.

    Raises `input.unsupported_type` for bytes that are not text.
    """
    decoded = text.decode(_in_utf8(data), name)
    messages, obsolete = _messages(clean_text(decoded.text))
    if not messages:
        return text.parse(data, name)
    metadata: dict[str, Scalar] = {}
    head = messages[0]
    if head.is_head:
        fields = re.findall(r"^(Language|Project-Id-Version): *(.+)$", head.strings[-1], re.M)
        metadata = {key.partition("-")[0].lower(): value for key, value in fields}
    blocks = [message.block() for message in messages]
    unread = {"replaced_bytes": decoded.replaced, "deleted_passages": obsolete}
    return Parsed(blocks=blocks, metadata=metadata, unread=unread)


def _in_utf8(data: bytes) -> bytes:
    """Returns the bytes in UTF-8 where the head of the catalog names another charset."""
    match = _CHARSET.search(data[:8192])
    try:
        charset = codecs.lookup(match[1].decode()).name if match else "utf-8"
        return data if charset == "utf-8" else data.decode(charset).encode()
    except (LookupError, UnicodeDecodeError):
        return data


def _messages(source: str) -> tuple[list[_Message], int]:
    """Returns the messages, and how many there are that are no longer used."""
    messages: list[_Message] = []
    obsolete = 0
    current: _Message | None = None
    for number, line in enumerate(map(str.strip, source.split("\n")), 1):
        if line.startswith("#~"):
            obsolete += line[2:].lstrip().startswith("msgid ")
            continue
        match = _STRING.fullmatch(line)
        begins = line.startswith("#") or (match is not None and match[1] in ("msgctxt", "msgid"))
        if begins and (current is None or current.has_id):
            current = _Message(number)
            messages.append(current)
        if current is None or not line:
            continue
        if line.startswith("#:"):
            current.place = current.place or line[2:].strip()
        elif line.startswith(_COMMENTS):
            current.comments.append(line[2:].strip())
        elif match is not None:
            if match[1] or not current.strings:
                current.strings.append("")
            current.strings[-1] += _ESCAPE.sub(_character, match[2])
            current.has_id = current.has_id or match[1] == "msgid"
        elif not line.startswith("#"):
            current.strings.append(line)  # damaged
    return [message for message in messages if message.has_id], obsolete


def _character(escape: re.Match[str]) -> str:
    code = escape[1]
    if code[0] in "01234567":
        return chr(int(code, 8))
    if code[0] == "x" and len(code) == 3:
        return chr(int(code[1:], 16))
    return _ESCAPES.get(code, code)
