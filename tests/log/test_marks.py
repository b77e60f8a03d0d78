"""Marks of segments, which the log's readers and its writer share."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from kbproc.engine.log.marks import FileMark, Marks


def test_marks_are_put_while_others_are_forgotten() -> None:
    marks = Marks(None)
    segments = [Path(f"{number:012}.ndjson") for number in range(2_000)]
    has_ended = threading.Event()

    def put() -> None:
        while not has_ended.is_set():
            for segment in segments:
                marks.put(segment, FileMark(1, 1, None))

    interval = sys.getswitchinterval()
    writer = threading.Thread(target=put)
    sys.setswitchinterval(1e-6)
    try:
        writer.start()
        for _ in range(300):
            marks.keep(segments)
            marks.doubt()
            marks.keep([])
    finally:
        has_ended.set()
        writer.join()
        sys.setswitchinterval(interval)
