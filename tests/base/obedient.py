"""A child process that evaluates each line of its input and answers with the result."""

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
            answer = repr(eval(line, {"os": os, "resource": resource}))
        except (MemoryError, OSError) as error:
            answer = type(error).__name__
        write_all(writer, answer.encode() + b"\n")
