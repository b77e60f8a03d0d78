"""Runs the process that looks for secrets: texts come in, kinds of secrets go out, nothing else.

secrets.py runs it as `python -m kbproc.knowledge.app.health.secrets_worker PARENT`: each frame of
stdin, a list of SearchedTexts, is answered by one of stdout, a list of FoundSecrets.
"""

from __future__ import annotations

import os
import sys

import msgspec

from kbproc.base.frames import frame, read_frame
from kbproc.base.pipes import claim
from kbproc.base.sandbox import end_with, limit
from kbproc.base.text.secrets import redact, secret_kinds
from kbproc.base.values import packed_decoder

_MEMORY_BYTES = 2 << 30


class SearchedText(msgspec.Struct, frozen=True, array_like=True):
    """A document's title, and its other texts."""

    id: int
    title: str
    text: str


class FoundSecrets(msgspec.Struct, frozen=True, array_like=True):
    """A document's title without secrets, and the number of its secrets by kind."""

    title: str
    kinds: dict[str, int]


_decode = packed_decoder(list[SearchedText]).decode


def main() -> int:
    """Serves until stdin ends; returns the exit status."""
    reader, writer = claim()
    end_with(int(sys.argv[1]))
    limit(_MEMORY_BYTES)
    with os.fdopen(reader, "rb") as source, os.fdopen(writer, "wb") as sink:
        while (message := read_frame(source)) is not None:
            sink.write(frame([_found(text) for text in _decode(message)]))
            sink.flush()
    return 0


def _found(text: SearchedText) -> FoundSecrets:
    kinds = secret_kinds(f"{text.title}\n{text.text}")
    return FoundSecrets(redact(text.title).text if kinds else text.title, kinds)


if __name__ == "__main__":
    raise SystemExit(main())
