"""An error names the bound that a param's value exceeds, in a person's words."""

from __future__ import annotations

from typing import Annotated

import msgspec
import pytest
from msgspec import Meta

from kbproc.base.errors import KbprocError
from kbproc.base.params import Params, decode_params
from kbproc.base.values import decoder


class Bounded(Params, kw_only=True, frozen=True):
    number: Annotated[int, Meta(ge=1, le=9)] | None = None
    share: Annotated[float, Meta(gt=0, le=1)] | None = None
    name: Annotated[str, Meta(min_length=2, max_length=3)] | None = None
    tags: Annotated[list[Annotated[str, Meta(max_length=1)]], Meta(min_length=1)] | None = None
    texts: Annotated[dict[str, Annotated[str, Meta(max_length=1)]], Meta(max_length=1)] | None = (
        None
    )


_decoder = decoder(Bounded)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"number": 0}, "$.params.number must be at least 1."),
        ({"number": 10}, "$.params.number must be at most 9."),
        ({"share": 0.0}, "$.params.share must be more than 0."),
        ({"share": 1.5}, "$.params.share must be at most 1."),
        ({"name": ""}, "$.params.name is empty."),
        ({"name": "a"}, "$.params.name has 1 character; it needs at least 2."),
        ({"name": "abcd"}, "$.params.name has 4 characters; the limit is 3."),
        ({"tags": []}, "$.params.tags is empty."),
        ({"tags": ["ab"]}, "$.params.tags[0] has 2 characters; the limit is 1."),
        ({"texts": {"a": "", "b": ""}}, "$.params.texts has too many members; the limit is 1."),
        ({"texts": {"a": "ab"}}, "$.params.texts[...] has too many characters; the limit is 1."),
        ({"number": "x"}, "$.params.number: expected an integer or null, got a string."),
    ],
)
def test_bounds_are_told_in_words(params: dict[str, object], message: str) -> None:
    with pytest.raises(KbprocError) as error:
        decode_params(_decoder, msgspec.json.encode(params))
    assert str(error.value) == message
