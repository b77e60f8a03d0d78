"""schema: return one JSON Schema by name."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from kbproc.base.errors import KbprocError
from kbproc.base.params import ReadParams
from kbproc.base.suggest import nearest
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.reply import Reply
from kbproc.methods.calls.schemas import JsonSchema


class Schema(ReadParams, kw_only=True, frozen=True):
    name: (
        Annotated[
            str, Meta(max_length=200, description="such as search.result; all names if left out")
        ]
        | None
    ) = None


class Names(Struct, kw_only=True, frozen=True):
    """The names of all."""

    names: list[str]


@method(
    "schema",
    params=Schema,
    result=(JsonSchema, Names),
    summary="Return one JSON Schema by name, or list the names.",
    when_to_use="To validate what you send or receive.",
    scope="store:read",
    needs_store=False,
    errors=["resource.not_found"],
    positional=["name"],
    examples=[
        Example(params={}, what="the names of all"),
        Example(params={"name": "search.result"}, what="what search answers"),
        Example(params={"name": "nothing"}, what="one that does not exist", exit=5),
    ],
)
def schema(call: Call, params: Schema) -> Reply:
    from kbproc.methods.calls.schemas import makers, named_in_meta

    makers_by_name = makers(call.registry.methods.values())
    if params.name is None:
        return Reply(data={"names": list(makers_by_name)}, count=len(makers_by_name))
    name = named_in_meta(params.name)
    if name not in makers_by_name:
        raise KbprocError(
            "resource.not_found",
            f"There is no schema {params.name!r}.",
            field="$.params.name",
            valid_values=nearest(params.name, makers_by_name),
        )
    return Reply(data=makers_by_name[name]())
