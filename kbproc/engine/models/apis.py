"""Words requests to endpoints of embeddings, and reads their answers.

Most servers speak as OpenAI does; Cohere, Ollama and text-embeddings-inference have ways of their
own beside it, and Voyage and Jina take a few other members. Vectors are asked for as base64, which
costs a fifth of the time that floats as text cost; what comes instead is read, too.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from kbproc.base.values import decoder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Body = dict[str, Any]
# A vector in an answer: its numbers, or base64 of them.
Coded = str | list[float]


class Wish(NamedTuple):
    """Texts to embed. `is_packed`: the vectors should come as base64."""

    model: str
    texts: list[str]
    is_query: bool
    is_packed: bool


class Api(NamedTuple):
    """A way to ask for embeddings.

    `path`: the end of its addresses. `body`: makes a request's. `read`: returns an answer's vectors
    in the order of the texts, and raises ValueError or what NOT_READABLE names. `tells_queries`:
    requests tell which texts are queries, and the vectors differ by that.
    """

    name: str
    path: str
    body: Callable[[Wish], Body]
    read: Callable[[bytes], Sequence[Coded]]
    tells_queries: bool = False


class _Item(msgspec.Struct):
    index: int
    embedding: Coded


class _Listed(msgspec.Struct):
    data: list[_Item]


class _ByType(msgspec.Struct):
    embeddings: dict[str, list[Coded] | None]


class _Bare(msgspec.Struct):
    embeddings: list[Coded]


_decode_listed = decoder(_Listed).decode
_decode_by_type = decoder(_ByType).decode
_decode_bare = decoder(_Bare).decode
_decode_list = decoder(list[Coded]).decode


def _listed(answer: bytes) -> list[Coded]:
    items = sorted(_decode_listed(answer).data, key=lambda item: item.index)
    if [item.index for item in items] != list(range(len(items))):
        raise ValueError("its vectors are not numbered from 0 on")
    return [item.embedding for item in items]


def _by_type(answer: bytes) -> list[Coded]:
    vectors = _decode_by_type(answer).embeddings
    return vectors.get("base64") or vectors.get("float") or []


def _openai(wish: Wish) -> Body:
    form = "base64" if wish.is_packed else "float"
    return {"model": wish.model, "input": wish.texts, "encoding_format": form}


def _voyage(wish: Wish) -> Body:
    packed = {"encoding_format": "base64"} if wish.is_packed else {}
    role = "query" if wish.is_query else "document"
    return {"model": wish.model, "input": wish.texts, "input_type": role, **packed}


def _jina(wish: Wish) -> Body:
    form = "base64" if wish.is_packed else "float"
    role = f"retrieval.{'query' if wish.is_query else 'passage'}"
    return {"model": wish.model, "input": wish.texts, "task": role, "embedding_type": form}


def _cohere(wish: Wish) -> Body:
    form = "base64" if wish.is_packed else "float"
    role = f"search_{'query' if wish.is_query else 'document'}"
    return {"model": wish.model, "texts": wish.texts, "input_type": role, "embedding_types": [form]}


OPENAI = Api("openai", "/embeddings", _openai, _listed)
VOYAGE = Api("voyage", "/embeddings", _voyage, _listed, tells_queries=True)
JINA = Api("jina", "/embeddings", _jina, _listed, tells_queries=True)
_COHERE = Api("cohere", "/v2/embed", _cohere, _by_type, tells_queries=True)
_OLLAMA = Api(
    "ollama",
    "/api/embed",
    lambda wish: {"model": wish.model, "input": wish.texts},
    lambda answer: _decode_bare(answer).embeddings,
)
_TEI = Api("tei", "/embed", lambda wish: {"inputs": wish.texts}, _decode_list)
_HOSTS = {"api.voyageai.com": VOYAGE, "ai.mongodb.com": VOYAGE, "api.jina.ai": JINA}


def api_of(url: str) -> Api:
    """Returns how the endpoint at an address is asked: by the path's end, else by the host."""
    try:
        parts = urlsplit(url)
    except ValueError:  # an odd address, which is an error once it is asked
        return OPENAI
    path = parts.path.rstrip("/")
    for api in (_COHERE, _OLLAMA, _TEI):
        if path.endswith(api.path):
            return api
    return _HOSTS.get(parts.hostname or "", OPENAI)


def matrix(vectors: Sequence[Coded], dim: int) -> NDArray[np.float64]:
    """Returns the vectors as rows. Raises ValueError where one can't be read.

    `dim`: the dimensions that they should have. Some servers pack numbers of 64 bits.
    """
    import numpy as np

    def numbers(vector: Coded) -> Any:
        if not isinstance(vector, str):
            return vector
        try:
            data = base64.b64decode(vector, validate=True)
        except binascii.Error as error:
            raise ValueError(f"a vector is no base64: {error}") from None
        return np.frombuffer(data, "<f8" if dim and len(data) == 8 * dim else "<f4")

    return np.array([numbers(vector) for vector in vectors], np.float64)
