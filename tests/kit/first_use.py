"""A process whose threads all use every type for the first time at once.

Run as `python -m tests.kit.first_use`; it exits with 0, or a signal kills it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

import msgspec

from kbproc.base.errors import ERRORS, KbprocError
from kbproc.base.frames import LENGTH, frame
from kbproc.base.params import decode_params
from kbproc.base.pipes import leave
from kbproc.engine.sources.parse.worker import (
    ParseAnswer,
    ParseFailure,
    decode_answer,
)
from kbproc.methods.all import registry
from kbproc.methods.calls.checker import Checker
from kbproc.methods.calls.schemas import all_schemas

THREADS = 8


def at_once(*works: Callable[[], object]) -> None:
    """Runs each function in its own thread; all start together."""
    barrier = threading.Barrier(len(works))

    def run(work: Callable[[], object]) -> None:
        barrier.wait()
        work()

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def taken(decoder: msgspec.json.Decoder[object], raw: bytes) -> None:
    """Decodes an example; a refusal is fine here, because only crashes matter."""
    try:
        decode_params(decoder, raw)  # type: ignore[arg-type]
    except KbprocError as error:
        assert error.type in ERRORS


def main() -> None:
    sys.setswitchinterval(1e-6)
    answer = bytes(frame(ParseAnswer(failure=ParseFailure(type="t", message="m", hint="h"))))[
        LENGTH.size :
    ]
    at_once(*[lambda: decode_answer(answer)] * THREADS)
    methods = list(registry().methods.values())
    checker = Checker()
    for first in range(0, len(methods), THREADS):
        some = methods[first : first + THREADS]
        at_once(*[lambda m=m: checker.result(m, {}) for m in some])  # type: ignore[misc]
    for method in methods:
        raw = msgspec.json.encode(method.examples[0].params)
        at_once(*[lambda m=method, r=raw: taken(m.decoder, r)] * THREADS)  # type: ignore[misc]
    at_once(*[lambda: all_schemas(methods)] * 2)
    leave(0)


if __name__ == "__main__":
    main()
