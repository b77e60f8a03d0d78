"""A registry of toy methods: JSON-RPC's own examples, and ways to go wrong."""

from __future__ import annotations

import os
import sys
import threading

from msgspec import Struct

from kbproc.base.errors import KbprocError
from kbproc.base.params import Params, ReadParams
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.registry import Registry
from kbproc.methods.calls.reply import Reply, Tail, Wait


class Nothing(ReadParams, kw_only=True, frozen=True):
    pass


class Difference(Params, kw_only=True, frozen=True):
    minuend: int
    subtrahend: int


class Numbers(Params, kw_only=True, frozen=True):
    numbers: list[int]


class Pair(Struct, kw_only=True, frozen=True):
    left: int
    right: int


EXAMPLES = [Example(params={}, what="nothing")]


@method(
    "subtract",
    params=Difference,
    result=int,
    summary="Subtract.",
    when_to_use="Never.",
    scope="admin",
    needs_store=False,
    examples=EXAMPLES,
)
def subtract(call: Call, params: Difference) -> Reply:
    return Reply(data=params.minuend - params.subtrahend)


@method(
    "sum",
    params=Numbers,
    result=int,
    summary="Add.",
    when_to_use="Never.",
    scope="admin",
    needs_store=False,
    examples=EXAMPLES,
)
def add(call: Call, params: Numbers) -> Reply:
    return Reply(data=sum(params.numbers))


@method(
    "notify_hello",
    params=Numbers,
    result=None,
    summary="Say hello.",
    when_to_use="Never.",
    scope="admin",
    needs_store=False,
    examples=EXAMPLES,
)
def notify_hello(call: Call, params: Numbers) -> Reply:
    return Reply(data=None)


@method(
    "get_data",
    params=Nothing,
    result=tuple[str, int],
    summary="Data.",
    when_to_use="Never.",
    scope="admin",
    needs_store=False,
    examples=EXAMPLES,
)
def get_data(call: Call, params: Nothing) -> Reply:
    return Reply(data=("hello", 5))


@method(
    "raise",
    params=Nothing,
    result=int,
    summary="Raise.",
    when_to_use="Never.",
    scope="admin",
    needs_store=False,
    examples=EXAMPLES,
)
def raise_(call: Call, params: Nothing) -> Reply:
    raise ZeroDivisionError("a secret that stays on stderr")


@method(
    "misshape",
    params=Nothing,
    result=Pair,
    summary="Answer amiss.",
    when_to_use="Never.",
    scope="admin",
    needs_store=False,
    examples=EXAMPLES,
)
def misshape(call: Call, params: Nothing) -> Reply:
    return Reply(data={"left": 1, "right": "two"})


@method(
    "print",
    params=Nothing,
    result=int,
    summary="Print to stdout.",
    when_to_use="Never.",
    scope="admin",
    needs_store=False,
    examples=EXAMPLES,
)
def print_(call: Call, params: Nothing) -> Reply:
    print("a stray print", flush=True)
    sys.stdout.write("another\n")
    os.write(1, b"and a third\n")
    os.system("echo of a child")
    return Reply(data=len(os.read(0, 1)))


@method(
    "emit",
    params=Nothing,
    result=int,
    summary="Emit events.",
    when_to_use="Never.",
    scope="admin",
    streams=True,
    needs_store=False,
    examples=EXAMPLES,
)
def emit(call: Call, params: Nothing) -> Reply:
    call.emit("item", {"item": {"number": 1}})
    call.emit("item", {"item": "not an object"})
    call.emit("warning", {"message": "the event before fitted no schema"})
    return Reply(data=1)


@method(
    "flood",
    params=Nothing,
    result=int,
    summary="Emit many events.",
    when_to_use="Never.",
    scope="admin",
    streams=True,
    needs_store=False,
    examples=EXAMPLES,
)
def flood(call: Call, params: Nothing) -> Reply:
    for number in range(PART):
        call.emit("item", {"item": {"number": number, "text": "x" * 1000}})
        call.check_cancelled(items=number)
    return Reply(data=PART)


PART = 3000  # lines, far above the limit at which an outbox is congested


@method(
    "follow",
    params=Nothing,
    result=int,
    summary="Emit many events, and wait for more.",
    when_to_use="Never.",
    scope="admin",
    streams=True,
    needs_store=False,
    examples=EXAMPLES,
)
def follow(call: Call, params: Nothing) -> Wait:
    def send_a_part() -> bool:
        for number in range(PART):
            call.emit("item", {"item": {"number": number, "text": "x" * 1000}})
        return False

    return Wait(
        ready=send_a_part,
        resume=lambda: Reply(data=0),
        timeout_ms=None,
        expired=lambda: KbprocError("operation.timeout", "never"),
        tail=Tail(more=lambda: False, detail=dict),
    )


@method(
    "blob",
    params=Nothing,
    result=str,
    summary="Answer a mebibyte.",
    when_to_use="Never.",
    scope="admin",
    needs_store=False,
    examples=EXAMPLES,
)
def blob(call: Call, params: Nothing) -> Reply:
    return Reply(data="x" * (1 << 20))


RELEASED = threading.Event()


@method(
    "hold",
    params=Nothing,
    result=int,
    summary="Answer once it is let go.",
    when_to_use="Never.",
    scope="admin",
    needs_store=False,
    examples=EXAMPLES,
)
def hold(call: Call, params: Nothing) -> Reply:
    RELEASED.wait()
    return Reply(data=1)


def registry() -> Registry:
    return Registry.of(sys.modules[__name__])
