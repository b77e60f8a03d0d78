"""describe: describe the whole surface, or one method."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from kbproc.base.params import ReadParams
from kbproc.calls.call import Call
from kbproc.calls.method import Example, method
from kbproc.calls.reply import Reply


class Describe(ReadParams, kw_only=True, frozen=True):
    method: Annotated[str, Meta(max_length=200, description="one method; all if left out")] | (
        None
    ) = None


@method(
    "describe",
    params=Describe,
    result=dict[str, Any],
    summary="Describe the whole surface, or one method.",
    when_to_use="To learn what can be asked, with which params, and what may go wrong.",
    scope="store:read",
    needs_store=False,
    errors=["input.unknown_method"],
    positional=["method"],
    examples=[
        Example(params={"method": "search"}, what="one method"),
        Example(params={"method": "serach"}, what="a name that is misspelt", exit=1),
    ],
)
def describe(call: Call, params: Describe) -> Reply:
    from kbproc.calls.describe import of_method, of_registry

    if params.method is None:
        return Reply(data=of_registry(call.registry, call.peer.profiles))
    return Reply(data=of_method(call.registry.find(params.method)))
