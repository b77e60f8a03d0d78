"""sql.query: run one read-only SELECT over the catalog's views."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from kbproc.base.layout import Table
from kbproc.base.params import BudgetTokens, ReadParams
from kbproc.base.values import Scalar
from kbproc.engine.store.sql import query as sqlquery
from kbproc.engine.store.sql.query import Column
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.reply import Reply, fitting

_MOST = 100

Values = Annotated[list[Scalar], Meta(max_length=_MOST)]
NamedValues = Annotated[dict[str, Scalar], Meta(max_length=_MOST)]


class SqlQuery(ReadParams, kw_only=True, frozen=True):
    sql: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=20_000,
            description="one SELECT over documents, chunks, tags, knowledge_bases, events, "
            "failures; DESCRIBE documents tells a view's columns",
        ),
    ]
    params: Annotated[
        Values | NamedValues,
        Meta(description="values for ? and $1 as a list, for $name as an object"),
    ] = []
    limit: Annotated[int, Meta(ge=1, le=1000, description="most rows to return")] = 100
    budget_tokens: BudgetTokens | None = None
    timeout_ms: Annotated[
        int, Meta(ge=1, le=60_000, description="give up after this many milliseconds")
    ] = 10_000


class SqlRows(Struct, kw_only=True, frozen=True):
    """`rows`: values in the order of `columns`, whose types are DuckDB's."""

    columns: list[Column]
    rows: list[list[Any]]


def as_table(data: dict[str, Any], params: dict[str, Any]) -> Table:
    names = [column["name"] for column in data["columns"]]
    rows = [dict(zip(names, row, strict=True)) for row in data["rows"]]
    return Table(rows=rows, columns=names, verbatim=True)


@method(
    "sql.query",
    params=SqlQuery,
    result=SqlRows,
    layout=as_table,
    summary="Run one read-only SELECT over the catalog's views.",
    when_to_use="To count, group or join in ways that no other method offers. To find passages, "
    "use search. The views, with examples: docs/sql.md.",
    scope="admin",
    errors=["input.too_large", "operation.failed", "server.overloaded"],
    positional=["sql"],
    examples=[
        Example(
            params={"sql": "select kb, count(*) as documents from documents group by kb"},
            what="documents by knowledge base",
        ),
        Example(
            params={
                "sql": "select d.title, c.text from chunks c join documents d "
                "on d.id = c.document_id where c.text ilike ? order by c.id",
                "params": ["%git%"],
                "limit": 5,
            },
            what="a join, with a parameter",
        ),
        Example(params={"sql": "describe chunks"}, what="the columns of a view"),
        Example(params={"sql": "delete from documents"}, what="no SELECT", exit=1),
    ],
)
def query(call: Call, params: SqlQuery) -> Reply:
    result = sqlquery.run(
        sqlquery.current_catalog(call.library.store),
        params.sql,
        params.params,
        limit=params.limit,
        timeout_ms=params.timeout_ms,
        cancelled=call.cancelled,
        most_bytes=min(sqlquery.MOST_BYTES, call.max_line_bytes // 2),
    )
    count = fitting(params, params.budget_tokens, result.rows)
    return Reply(
        data=SqlRows(columns=result.columns, rows=result.rows[:count]),
        seq=result.seq,
        count=count,
        has_more=result.has_more or count < len(result.rows),
    )
