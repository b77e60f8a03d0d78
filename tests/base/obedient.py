"""A child that evaluates each line that it is sent, and answers with what came of it."""

from __future__ import annotations

import os
import resource
import sys

from kbproc.base.durable import write_all
from kbproc.base.pipes import claim
from kbproc.base.sandbox import limit, limit_processor

if __name__ == "__main__":
    reader, writer = claim()
    if "limited" in sys.argv:
        limit(512 << 20, may_open=False)
        limit_processor(0)
    for line in os.fdopen(reader, "rb"):
        try:
            told = repr(eval(line, {"os": os, "resource": resource}))
        except (MemoryError, OSError) as error:
            told = type(error).__name__
        write_all(writer, told.encode() + b"\n")
