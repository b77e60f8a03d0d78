"""The store and the process: ping, version, describe, schema, status, doctor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct

from kbproc import PROTOCOL, SCHEMA_VERSION
from kbproc.base.errors import KbprocError
from kbproc.base.params import ReadParams
from kbproc.base.suggest import nearest
from kbproc.calls.call import Call
from kbproc.calls.method import Example, method
from kbproc.calls.reply import Reply
from kbproc.store.state import Freshness

if TYPE_CHECKING:
    from kbproc.views.catalog.queries.queries import Queries


class Ping(ReadParams, kw_only=True, frozen=True):
    pass


class Pong(Struct, kw_only=True, frozen=True):
    seq: int


class Version(ReadParams, kw_only=True, frozen=True):
    pass


class Versions(Struct, kw_only=True, frozen=True):
    """`libraries`: name → version of what does the work."""

    kbproc: str
    protocol: str
    schema: int
    python: str
    libraries: dict[str, str]


class Describe(ReadParams, kw_only=True, frozen=True):
    method: Annotated[str, Meta(max_length=200, description="one method; all if left out")] | (
        None
    ) = None


class Schema(ReadParams, kw_only=True, frozen=True):
    name: Annotated[str, Meta(max_length=200, description="such as search.result")]


class Status(ReadParams, kw_only=True, frozen=True):
    pass


class StoreStatus(Struct, kw_only=True, frozen=True):
    """`documents`: type → count. `embedding_dim` is null while no model is ready."""

    store: str
    documents: dict[str, int]
    total_documents: int
    total_chunks: int
    knowledge_bases: int
    db_size_bytes: int
    model_name: str | None
    model_state: str
    embedding_dim: int | None
    schema_version: int
    seq: int
    freshness: Freshness


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


@method(
    "version",
    params=Version,
    result=Versions,
    summary="Tell the versions of kbproc, the protocol, Python and the libraries.",
    when_to_use="For a bug report, or to check what a harness talks to.",
    scope="store:read",
    needs_store=False,
    examples=[Example(params={}, what="all versions")],
)
def version(call: Call, params: Version) -> Reply:
    import platform

    from kbproc import __version__
    from kbproc.health.doctor import library_versions

    found = {"python": platform.python_version(), **library_versions()}
    told = call.host.versions(found)
    data = Versions(
        kbproc=__version__,
        protocol=PROTOCOL,
        schema=SCHEMA_VERSION,
        python=told["python"],
        libraries={name: value for name, value in told.items() if name != "python"},
    )
    return Reply(data=data)


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
        return Reply(data=of_registry(call.registry, call.settings.get("profiles", ())))
    return Reply(data=of_method(call.registry.find(params.method)))


@method(
    "schema",
    params=Schema,
    result=dict[str, Any],
    summary="Return one JSON Schema by name.",
    when_to_use="To validate what you send or receive.",
    scope="store:read",
    needs_store=False,
    errors=["resource.not_found"],
    positional=["name"],
    examples=[
        Example(params={"name": "search.result"}, what="what search answers"),
        Example(params={"name": "nothing"}, what="one that does not exist", exit=5),
    ],
)
def schema(call: Call, params: Schema) -> Reply:
    from kbproc.calls.schema import all_schemas

    found = all_schemas(call.registry.methods.values())
    if params.name not in found:
        raise KbprocError(
            "resource.not_found",
            f"There is no schema {params.name!r}.",
            field="$.params.name",
            valid_values=nearest(params.name, found),
        )
    return Reply(data=found[params.name])


def _size(call: Call, queries: Queries) -> int:
    """On disk; for whoever sees a part, the size of what that holds."""
    if call.sight is None:
        return call.store.size_bytes()
    return queries.source_bytes()


@method(
    "status",
    params=Status,
    result=StoreStatus,
    summary="Count what the store holds and tell how far its indexes are; cheap.",
    when_to_use="To see whether there is anything to search, and whether it is all indexed.",
    scope="store:read",
    examples=[Example(params={}, what="counts and freshness")],
)
def status(call: Call, params: Status) -> Reply:
    store = call.store
    with store.reading() as snapshot:
        queries, freshness = snapshot.queries, store.freshness(snapshot)
        documents = queries.by_type()
        data = StoreStatus(
            store=str(store.origin),
            documents=documents,
            total_documents=sum(documents.values()),
            total_chunks=queries.chunk_total(),
            knowledge_bases=len(queries.kb_slugs()),
            db_size_bytes=call.host.database_size(_size(call, queries)),
            model_name=store.embedding.model_name,
            model_state=store.embedding.state,
            embedding_dim=store.embedding.dim,
            schema_version=SCHEMA_VERSION,
            seq=snapshot.seq,
            freshness=freshness,
        )
        return Reply(data=data, seq=snapshot.seq, freshness=freshness)
