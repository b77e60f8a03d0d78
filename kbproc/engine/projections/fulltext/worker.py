"""Runs the process that finds words: chunks' texts come in, their words go out, nothing else.

finder.py runs it as `python -m kbproc.engine.projections.fulltext.worker PARENT`: each frame of
stdin, a list of ChunkTexts, is answered by one of stdout, a list of ChunkWords.
"""

from __future__ import annotations

import os
import sys

from kbproc.base.frames import frame, read_frame
from kbproc.base.pipes import claim
from kbproc.base.sandbox import end_with, limit
from kbproc.base.values import packed_decoder
from kbproc.engine.projections.fulltext.words import ChunkTexts, words_of

_MEMORY_BYTES = 1 << 30
_decode = packed_decoder(list[ChunkTexts]).decode


def main() -> int:
    """Serves until stdin ends; returns the exit status."""
    reader, writer = claim()
    end_with(int(sys.argv[1]))
    limit(_MEMORY_BYTES)
    with os.fdopen(reader, "rb") as source, os.fdopen(writer, "wb") as sink:
        while (message := read_frame(source)) is not None:
            sink.write(frame([words_of(chunk) for chunk in _decode(message)]))
            sink.flush()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
