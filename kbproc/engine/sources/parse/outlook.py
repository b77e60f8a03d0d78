"""Mail as Outlook saves it (MSG): a compound file with a stream for each property.

[MS-OXMSG] describes it. The plain text is read, or else the page; a message that has its text as
compressed rich text alone is counted.
"""

from __future__ import annotations

import datetime
import re
import struct
from email.utils import format_datetime, formataddr

import msgspec

from kbproc.base.errors import KbprocError
from kbproc.engine.sources.parse import mail, ole
from kbproc.engine.sources.parse.blocks import Block, Parsed, Part, clean_title, in_bytes
from kbproc.engine.sources.parse.replies import answers
from kbproc.engine.sources.parse.text import decode
from kbproc.engine.sources.parse.unread import total

_SUBJECT, _SENDER, _SENDER_ADDRESS, _TO, _CC = "0037", "0C1A", "5D01", "0E04", "0E03"
_ADDRESS, _ID, _BODY, _PAGE, _RICH = "0C1F", "1035", "1000", "1013", "1009"
_DATA, _LONG_NAME, _NAME, _TYPE = "3701", "3707", "3704", "370E"
_SENT, _RECEIVED = 0x00390040, 0x0E060040
_WIDE, _NARROW, _BINARY = "001F", "001E", "0102"
_ATTACHMENT = re.compile(r"(__attach_version1\.0_#[0-9A-Fa-f]{8}/)")
_EPOCH = datetime.datetime(1601, 1, 1, tzinfo=datetime.UTC)


def parse(data: bytes, name: str) -> Parsed:
    """Returns the blocks of a message, and its attachments as parts.

    Raises `operation.failed` for a file that is damaged or no message.
    """
    file = ole.opened(data, name)
    try:
        return _OutlookMail(file, name).parsed()
    except ole.OleError as error:
        raise KbprocError("operation.failed", f"{name} is damaged: {error}.") from error


class _OutlookMail:
    def __init__(self, file: ole.CompoundFile, name: str) -> None:
        self._file, self._name = file, name

    def parsed(self) -> Parsed:
        if "__properties_version1.0" not in self._file.streams:
            raise KbprocError("operation.failed", f"{self._name} is no message of Outlook.")
        fields = {name: value for name, value in self._fields().items() if value}
        section = mail.sender_and_date(fields)
        head = "\n".join(
            f"{name.title()}: {fields[name]}"
            for name in ("from", "to", "cc", "date", "subject")
            if name in fields
        )
        body = self._body(is_answer=answers(fields))
        parts: dict[str, Part] = {}
        blocks = [Block(text=head, section=section)]
        blocks += (
            msgspec.structs.replace(block, section=section, line=None) for block in body.blocks
        )
        omitted = 0
        for folder in self._attachments():
            if f"{folder}__substg1.0_{_DATA}{_BINARY}" not in self._file.streams:
                omitted += 1  # a message or an object within this one
                continue
            content = self._file.read(f"{folder}__substg1.0_{_DATA}{_BINARY}")
            name = self._text(_LONG_NAME, folder) or self._text(_NAME, folder)
            type = self._text(_TYPE, folder)
            words = f"Attachment: {name or type} ({in_bytes(len(content))})"
            blocks.append(Block(text=words, section=section))
            if len(parts) < mail.MAX_PARTS:
                mail.add_part(parts, mail.file_name(name, type), content)
            else:
                omitted += 1
        return Parsed(
            title=clean_title(fields.get("subject")),
            blocks=blocks,
            metadata=mail.metadata_of(fields),
            unread=total([body.unread, {"attachments": omitted}]),
            parts=list(parts.values()),
        )

    def _fields(self) -> dict[str, str]:
        address = self._text(_SENDER_ADDRESS) or self._text(_ADDRESS)
        sender = self._text(_SENDER)
        has_address = "@" in address and address != sender
        return {
            "from": formataddr((sender, address)) if has_address else sender or address,
            "to": self._text(_TO),
            "cc": self._text(_CC),
            "date": self._date(),
            "subject": self._text(_SUBJECT),
            "message-id": self._text(_ID),
        }

    def _body(self, *, is_answer: bool) -> Parsed:
        if plain := self._text(_BODY, lines=True):
            return mail.parsed_body(plain, self._name, is_page=False, is_answer=is_answer)
        page = self._file.read(f"__substg1.0_{_PAGE}{_BINARY}")
        text = decode(page, self._name).text if page else self._text(_PAGE, lines=True)
        if text:
            return mail.parsed_body(text, self._name, is_page=True, is_answer=is_answer)
        is_rich = f"__substg1.0_{_RICH}{_BINARY}" in self._file.streams
        return Parsed(blocks=[], unread={"objects": int(is_rich)})

    def _text(self, property: str, folder: str = "", *, lines: bool = False) -> str:
        path = f"{folder}__substg1.0_{property}"
        wide = self._file.read(f"{path}{_WIDE}")
        if wide:
            text = wide[: len(wide) // 2 * 2].decode("utf-16-le", "replace")
        else:
            narrow = self._file.read(f"{path}{_NARROW}").rstrip(b"\0")
            text = decode(narrow, self._name).text if narrow else ""
        text = text.strip("\0")
        return text if lines else " ".join(text.split())

    def _date(self) -> str:
        data = self._file.read("__properties_version1.0")
        times = {}
        for at in range(32, len(data) - 15, 16):
            tag, _, ticks = struct.unpack_from("<IIQ", data, at)
            if tag in (_SENT, _RECEIVED):
                times[tag] = ticks
        ticks = times.get(_SENT) or times.get(_RECEIVED)
        try:
            moment = _EPOCH + datetime.timedelta(microseconds=ticks // 10) if ticks else None
        except OverflowError:
            return ""
        return format_datetime(moment) if moment else ""

    def _attachments(self) -> list[str]:
        folders = (_ATTACHMENT.match(path) for path in self._file.streams)
        return sorted({folder[1] for folder in folders if folder})
