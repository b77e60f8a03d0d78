"""Parses a web page that a browser saved with its pictures as one file (MHTML, RFC 2557)."""

from __future__ import annotations

from email import message_from_bytes
from email.message import Message

from kbproc.engine.sources.parse import html, mail
from kbproc.engine.sources.parse.blocks import Parsed
from kbproc.engine.sources.parse.unread import total

_ADDRESSES = ("snapshot-content-location", "content-location")


def parse(data: bytes, name: str) -> Parsed:
    """Returns the blocks of the page; a file without one is read as mail. Pictures are counted.

    Raises `input.unsupported_type` for bytes that are not text.
    """
    archive = message_from_bytes(data.removeprefix(b"\xef\xbb\xbf").lstrip(b"\r\n"))
    parts = [part for part in archive.walk() if not part.is_multipart()]
    page = next((part for part in parts if part.get_content_type() == "text/html"), None)
    if page is None:
        return mail.parse(data, name)
    parsed = html.parse(_source(page), name)
    addresses = (part[field] for part in (archive, page) for field in _ADDRESSES)
    if address := next(filter(None, addresses), None):
        parsed.metadata = {"url": str(address)}
    pictures = sum(part.get_content_maintype() == "image" for part in parts)
    parsed.unread = total([parsed.unread, {"pictures": pictures}])
    return parsed


def _source(page: Message) -> bytes:
    """Returns the page's bytes; in UTF-8 with a mark where the archive names their encoding."""
    payload = page.get_payload(decode=True)
    source = payload if isinstance(payload, bytes) else b""
    try:
        return source.decode(page.get_content_charset() or "").encode("utf-8-sig")
    except (LookupError, ValueError):
        return source
