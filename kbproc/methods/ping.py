"""ping: answer with the log position."""

# Annotations are values here: msgspec compiles each that is a text, at every start.

from msgspec import Struct

from kbproc.base.params import ReadParams
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.reply import Reply


class Ping(ReadParams, kw_only=True, frozen=True):
    pass


class Pong(Struct, kw_only=True, frozen=True):
    seq: int


@method(
    "ping",
    params=Ping,
    result=Pong,
    summary="Answer with the log position.",
    when_to_use="To see that the process is alive and how far its store is.",
    scope="store:read",
    examples=[Example(params={}, what="is it alive?")],
)
def ping(call: Call, params: Ping) -> Reply:
    seq = call.store.published.seq
    return Reply(data=Pong(seq=seq), seq=seq)
