"""Runs the process that writes into the full-text index: rows come in.

beside.py runs it as `python -m kbproc.engine.projections.fulltext.worker PARENT FOLDER`: each frame
of stdin is a Part, and a frame of stdout answers a commit.

It saves no position: the owner does once it has the answer. So a process that is killed leaves what
a killed owner does, the changes of the last commit, or of the one before.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from kbproc.base.frames import frame, read_frame
from kbproc.base.pipes import claim
from kbproc.base.sandbox import end_with
from kbproc.base.threads import share_heaps
from kbproc.base.values import packed_decoder
from kbproc.engine.projections.fulltext.beside import Part
from kbproc.engine.projections.fulltext.index import write, writer_of

_decode = packed_decoder(Part).decode


def main() -> int:
    """Serves until stdin ends; returns the exit status."""
    reader, answers = claim()
    end_with(int(sys.argv[1]))
    os.umask(0o077)
    share_heaps()
    _, index_writer = writer_of(Path(sys.argv[2]))
    with os.fdopen(reader, "rb") as source, os.fdopen(answers, "wb") as sink:
        while (message := read_frame(source)) is not None:
            if part := _decode(message):
                write(index_writer, part.removed_ids, part.rows)
                continue
            index_writer.commit()
            sink.write(frame(None))
            sink.flush()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
