"""describe: describe the whole surface, or one method."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from kbproc.base.errors import KbprocError
from kbproc.base.params import ReadParams
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.describe import Brief, Full, Index, Surface
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.reply import Reply


class Describe(ReadParams, kw_only=True, frozen=True):
    method: Annotated[str, Meta(max_length=200, description="one method; all if left out")] | (
        None
    ) = None
    full: Annotated[bool, Meta(description="with flags, schemas, scopes and all errors")] = False


@method(
    "describe",
    params=Describe,
    result=(Index, Brief, Surface, Full),
    summary="Describe the whole surface, or one method.",
    when_to_use="To learn what can be asked, with which params, and what may go wrong: an index "
    "first, then one method. All in full is long.",
    scope="store:read",
    needs_store=False,
    errors=["input.unknown_method"],
    positional=["method"],
    examples=[
        Example(params={"method": "search"}, what="one method"),
        Example(params={"method": "search", "full": True}, what="everything about it"),
        Example(params={"method": "serach"}, what="a name that is misspelt", exit=1),
    ],
)
def describe(call: Call, params: Describe) -> Reply:
    from kbproc.methods.calls import describe as descriptions

    if params.method is None:
        full = (
            descriptions.of_registry(call.registry, call.peer.profiles)
            if params.full
            else descriptions.index(call.registry.outlines)
        )
        return Reply(data=full)
    try:
        outline = call.registry.outlines.find(params.method)
    except KbprocError as error:
        error.field = "$.params.method"
        raise
    if params.full:
        return Reply(data=descriptions.of_method(call.registry.find(params.method)))
    return Reply(data=descriptions.brief(outline))
