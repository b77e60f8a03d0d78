"""Runs a user's SQL in a process of its own: the catalog's rows come in, rows go out.

The process brings the views to the catalog's position, limits itself, checks statements and writes
values as JSON. query.py runs it as `python -m kbproc.engine.store.sql.worker PARENT SECONDS`: each
line of stdin is one step, answered by one line.

The file holds the documented views and nothing else. Once it is open, read-only, the kernel lets
this process open no file and no socket any more: `check` makes for better errors, not for safety.
"""

from __future__ import annotations

import errno
import json
import math
import os
import re
import signal
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from kbproc.base.durable import write_all
from kbproc.base.errors import is_lasting
from kbproc.base.pipes import claim
from kbproc.base.sandbox import end_with, limit
from kbproc.engine.store.sql.views import VIEWS

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_TABLE_FUNCTIONS = frozenset({"generate_series", "json_each", "json_tree", "range", "unnest"})
_NO_FUNCTIONS = frozenset(
    {
        "current_setting",
        "getvariable",
        "write_log",
        "sleep_ms",
        "pg_sleep",
        "nextval",
        "setval",
        "currval",
    }
)
_NODES = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"})
# Levels of nesting that a value, and the tree of a statement, may have; Python's limit varies.
_DEEPEST = 200
_DEEPEST_STATEMENT = 1000
_QUOTED = re.compile(r'"([^"]+)"')
_UNKNOWN_COLUMN = re.compile(r'Referenced column "([^"]+)"')
_HINT = "Read the documented views; DESCRIBE documents tells the columns of one."
_BROKEN = "kbproc doctor tells whether the catalog is whole; kbproc index rebuild makes it anew."
_NOT_ALLOWED = "Check who owns the store's folder, and whether you may write there."
_HINTS: dict[int | None, str] = {  # for any other fault the type's own hint blames the disk
    errno.ENOENT: "The store's folder was moved or removed while it is open: close the store, and "
    "open it where it lies now.",
    errno.EACCES: _NOT_ALLOWED,
    errno.EPERM: _NOT_ALLOWED,
    errno.EROFS: _NOT_ALLOWED,
}
_READ_ONLY = "The views can only be read; documents change through doc.*"

_AS_IS = frozenset(
    {
        "boolean",
        "tinyint",
        "smallint",
        "integer",
        "bigint",
        "hugeint",
        "utinyint",
        "usmallint",
        "uinteger",
        "ubigint",
        "uhugeint",
        "float",
        "double",
        "varchar",
        "enum",
    }
)
_AS_JSON = frozenset({"decimal", "list", "array", "struct", "tuple", "map", "union"})


class QueryRefused(Exception):
    """A KbprocError on its way to the parent: its type, its message and the rest."""

    def __init__(self, type: str, message: str, **more: Any) -> None:
        super().__init__(message)
        self.fields = {"type": type, "message": message, **more}


def bad_sql(message: str, **more: Any) -> QueryRefused:
    return QueryRefused("input.invalid_params", message, field="$.params.sql", **more)


class Steps:
    """The steps of one process, which has SQL's tables open."""

    def __init__(self) -> None:
        self._db: DuckDBPyConnection | None = None

    @property
    def db(self) -> DuckDBPyConnection:
        assert self._db is not None  # noqa: S101 query.py opens the tables first
        return self._db

    def read(self, path: str, memory_bytes: int) -> list[Any] | None:
        """Opens a file read-only; returns the position of its rows, or None if it is damaged.

        DuckDB may take half of `memory_bytes`, the process as a whole all of it.
        """
        import duckdb

        from kbproc.engine.store.sql import tables

        self._close()
        try:
            self._db = tables.open_for_reading(path, memory_bytes // 2)
            return tables.position_of(self._db)
        except duckdb.Error:
            return None

    def write(self, path: str, copy: str) -> str:
        """Opens a file for writing, or makes it; returns the path of the open file."""
        from kbproc.engine.store.sql import tables

        self._close()
        path, self._db = tables.open_for_writing(path, copy)
        return path

    def take(self, changes: str, *position: Any) -> None:
        """Brings the tables to a position."""
        from kbproc.engine.store.sql import tables

        tables.take(self.db, changes, *position)

    def _close(self) -> None:
        if self._db is not None:
            self._db.close()

    def limit(self, memory_bytes: int) -> None:
        """Limits the process, which can open nothing any more."""
        # Last, because a temporary directory would otherwise stay an allowed one.
        self.db.execute("set enable_external_access = false; set lock_configuration = true")
        self.db.execute("select 1 where ? = 1", [1]).fetchall()  # runs DuckDB's late imports now
        limit(memory_bytes, may_open=False)

    def query(self, *arguments: Any) -> bytes:
        return query(self.db, *arguments)


def main() -> int:
    """Serves until stdin ends. Returns the exit status."""
    reader, writer = claim()
    _die_with(int(sys.argv[1]), float(sys.argv[2]))
    os.umask(0o077)
    import sqlite3

    import duckdb

    steps = Steps()
    for line in os.fdopen(reader, "rb"):
        step, *arguments = json.loads(line)
        try:
            answer = getattr(steps, step)(*arguments)
            if not isinstance(answer, bytes):
                answer = json.dumps(answer).encode()
        except (
            QueryRefused,
            MemoryError,
            RecursionError,
            OSError,
            duckdb.Error,
            sqlite3.Error,
        ) as error:
            sql = arguments[0] if step == "query" else None
            answer = json.dumps({"error": _as_refusal(error, sql=sql)}).encode()
        write_all(writer, answer + b"\n")
    return 0


def _die_with(parent: int, seconds: float) -> None:
    """Ends the process after `seconds`, and with its parent where the kernel supports that."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    end_with(parent)


# ------------------------------------------------------------------- the statement


def query(
    db: DuckDBPyConnection,
    sql: str,
    params: Sequence[Any] | dict[str, Any],
    limit: int,
    most_bytes: int,
) -> bytes:
    """Returns `{columns, rows, has_more}` as JSON; raises QueryRefused, duckdb.Error, MemoryError.

    The statement stands in a subquery: DuckDB then knows its limit and need not sort everything,
    and types that JSON lacks are cast there.
    """
    inner = "(\n" + only_select(db, sql, params) + "\n)"
    description = db.execute(f"select * from {inner} limit 0", params).description  # noqa: S608
    columns = [(column[0], column[1]) for column in description]
    names = ", ".join(f"c{i}" for i in range(len(columns)))
    casts = ", ".join(_cast(f"c{i}", kind) for i, (_, kind) in enumerate(columns))
    db.execute(f"select {casts} from {inner} as t({names}) limit {limit + 1}", params)  # noqa: S608
    plain = [not _is_json(kind) for _, kind in columns]
    rows = list(_rows(db, plain, limit, most_bytes))
    header = json.dumps([{"name": name, "type": str(kind)} for name, kind in columns]).encode()
    more = b"true" if db.fetchone() else b"false"
    return b'{"columns":%b,"rows":[%b],"has_more":%b}' % (header, b",".join(rows), more)


def only_select(db: DuckDBPyConnection, sql: str, params: Sequence[Any] | dict[str, Any]) -> str:
    """Returns the statement without semicolons; raises QueryRefused if it is no single SELECT."""
    if "\0" in sql:
        raise bad_sql("The statement holds a NUL character.")
    statements = db.extract_statements(sql)
    if len(statements) != 1:
        raise bad_sql(f"One statement is wanted, not {len(statements)}.")
    try:
        kind = statements[0].type.name
    except ValueError:
        kind = "this"  # one that DuckDB knows and its Python does not
    if kind != "SELECT":
        raise bad_sql(f"Only a SELECT is allowed, not {kind}.", hint=_READ_ONLY)
    _check_params(set(statements[0].named_parameters), params)
    check(db, sql)
    return _without_semicolon(sql)


def _without_semicolon(sql: str) -> str:
    """Returns the SQL with spaces for semicolons, except in strings and comments.

    DuckDB's tokenizer finds them.
    """
    import duckdb

    data = bytearray(sql.encode())
    for start, _ in duckdb.tokenize(sql):
        if data[start : start + 1] == b";":
            data[start : start + 1] = b" "
    return data.decode()


def _check_params(named: set[str], params: Sequence[Any] | dict[str, Any]) -> None:
    names = set(params) if isinstance(params, dict) else {str(i + 1) for i in range(len(params))}
    if names == named:
        return
    raise QueryRefused(
        "input.invalid_params",
        f"The statement needs {len(named)} parameters; the request has {len(names)}, or others.",
        field="$.params.params",
        valid_values=sorted(named),
        hint="A list for ? and $1, an object for $name.",
    )


def check(db: DuckDBPyConnection, sql: str) -> None:
    """Raises QueryRefused, with the valid names, for anything but the views and plain functions."""
    row = db.execute("select json_serialize_sql(?)", [sql]).fetchone()
    tree = json.loads(row[0]) if row else {"error": True}
    _check_depth(tree, _DEEPEST_STATEMENT)
    if tree["error"]:
        raise bad_sql(f"Only a SELECT is allowed: {tree.get('error_message')}.", hint=_READ_ONLY)
    nodes = list(_dicts(tree["statements"]))
    own = {entry["key"].lower() for node in nodes for entry in _ctes(node)}
    for node in nodes:
        _check_node(node, own)


def _check_depth(value: Any, most: int) -> None:
    """Raises RecursionError for a value of lists and dicts with more than `most` levels."""
    level = [value]
    for _ in range(most + 1):
        level = [
            child
            for one in level
            if isinstance(one, list | dict)
            for child in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            return
    raise RecursionError


def _dicts(tree: Any) -> Iterator[dict[str, Any]]:
    """Yields every object of the tree, without recursion, because a user sets its depth."""
    unvisited = [tree]
    while unvisited:
        value = unvisited.pop()
        if isinstance(value, dict):
            yield value
            unvisited.extend(value.values())
        elif isinstance(value, list):
            unvisited.extend(value)


def _ctes(node: dict[str, Any]) -> list[dict[str, Any]]:
    cte_map = node.get("cte_map")
    return cte_map["map"] if isinstance(cte_map, dict) else []


def _check_node(node: dict[str, Any], own: set[str]) -> None:
    kind = node.get("type")
    if kind == "BASE_TABLE":
        path = [part.lower() for part in node["qualified_name"]["path"]]
        name = path[-1]
        is_view = name in VIEWS and path[:-1] in ([], ["main"])
        if not is_view and not (path == [name] and name in own):
            raise _no_view(".".join(path))
    elif kind == "SHOW_REF" and node["query"] is None:
        raise _no_show(node)
    elif kind == "TABLE_FUNCTION":
        name = node["function"]["function_name"].lower()
        if name not in _TABLE_FUNCTIONS:
            raise _no_view(name)
    elif node.get("class") == "FUNCTION" and node["function_name"].lower() in _NO_FUNCTIONS:
        raise bad_sql(f"The function {node['function_name']} is not allowed here.", hint=_HINT)
    elif isinstance(kind, str) and kind.endswith("_NODE") and kind not in _NODES:
        raise bad_sql("Only a SELECT is allowed.", hint=_READ_ONLY)


def _no_view(name: str) -> QueryRefused:
    return bad_sql(f"There is no view {name[:100]!r}.", valid_values=list(VIEWS), hint=_HINT)


def _no_show(node: dict[str, Any]) -> QueryRefused:
    """Returns the refusal of SHOW, and of DESCRIBE without a view; it lists the views."""
    if node["show_type"] == "SHOW":
        return _no_view(node["table_name"])
    views = f"The views are {', '.join(VIEWS)}; DESCRIBE documents tells the columns of one."
    return bad_sql("SHOW is not answered.", valid_values=list(VIEWS), hint=views)


def _as_refusal(error: Exception, *, sql: str | None) -> dict[str, Any]:
    """Returns the error as fields; `sql`: the statement, if the step was a query."""
    import duckdb

    if isinstance(error, QueryRefused):
        return error.fields
    if isinstance(error, MemoryError | duckdb.OutOfMemoryException):
        return {"type": "memory"}
    if isinstance(error, RecursionError):
        return bad_sql("The statement, or a value that it finds, is nested too deeply.").fields
    if _is_damage(error, has_statement=sql is not None):
        return {"type": "damaged", "message": str(error)[:500]}
    if sql is None:
        return uncopied(error)
    fields = _in_duckdbs_words(str(error), sql)
    broken = (duckdb.InternalException, duckdb.FatalException, duckdb.IOException, OSError)
    return {**fields, "type": "operation.failed"} if isinstance(error, broken) else fields


def _is_damage(error: Exception, *, has_statement: bool) -> bool:
    """Returns whether DuckDB found its own file damaged: a block has another checksum.

    DuckDB's internal errors tell that as well, if no statement of a user can have caused them.
    """
    import duckdb

    internal = (duckdb.InternalException, duckdb.FatalException, duckdb.SerializationException)
    if isinstance(error, internal) and not has_statement:
        return True
    return isinstance(error, duckdb.Error) and "checksum" in str(error)


def uncopied(error: Exception) -> dict[str, Any]:
    """Returns the fields of the store.io error for a catalog that could not be copied."""
    if not isinstance(error, OSError):  # DuckDB's or SQLite's
        message = f"The catalog can't be opened: {error}"
        return {"type": "store.io", "message": message[:500], "hint": _BROKEN}
    where = "" if error.filename is None else f": {error.filename}"
    return {
        "type": "store.io",
        "message": f"The catalog could not be copied: {error.strerror or error}{where}.",
        "hint": _HINTS.get(error.errno),
        "lasting": is_lasting(error),
    }


def _in_duckdbs_words(text: str, sql: str) -> dict[str, Any]:
    """Returns DuckDB's message as error fields, with its suggestions as valid values.

    Its drawing of the place and its advice on settings are left out. A text in double quotes, which
    it takes for a column, gets a hint.
    """
    message = re.split(r"(?<!\n)\n+LINE \d+:| Use \"SET ", text)[0]
    first, *rest = [line.strip() for line in message.split("\n") if line.strip()] or ["It failed."]
    suggestions = [line for line in rest if line.startswith(("Candidate bindings", "Did you mean"))]
    remainder = " ".join(line for line in rest if line not in suggestions)
    column = _UNKNOWN_COLUMN.search(first)
    if column is not None and f'"{column[1]}"' in sql:
        literal = column[1].replace("'", "''")
        remainder = f"Double quotes name a column; a text stands in single quotes: '{literal}'."
    fields = bad_sql(first[:500], hint=remainder[:500] or None).fields
    return {**fields, "valid_values": _QUOTED.findall(suggestions[0])} if suggestions else fields


# -------------------------------------------------------------------------- values


def _is_json(kind: Any) -> bool:
    return kind.id in _AS_JSON or str(kind) == "JSON"


def _cast(column: str, kind: Any) -> str:
    if _is_json(kind):
        return f"to_json({column})::varchar"
    if kind.id in _AS_IS:
        return column
    return f"to_base64({column})" if kind.id == "blob" else f"{column}::varchar"


def _rows(
    db: DuckDBPyConnection, plain: Sequence[bool], limit: int, most_bytes: int
) -> Iterator[bytes]:
    size = 0
    for _ in range(limit):
        row = db.fetchone()
        if row is None:
            return
        if sum(len(value) for value in row if isinstance(value, str)) > most_bytes:
            raise _too_large(most_bytes)  # before another copy is made
        encoded = _row(row, plain)
        size += len(encoded)
        if size > most_bytes:
            raise _too_large(most_bytes)
        yield encoded


def _row(values: Sequence[Any], plain: Sequence[bool]) -> bytes:
    cells = [
        _plain(value) if is_plain or value is None else _decode(value)
        for value, is_plain in zip(values, plain, strict=True)
    ]
    return json.dumps(cells, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return str(value)
    return value


def _decode(text: str) -> Any:
    value = json.loads(
        text,
        parse_float=lambda digits: _plain(float(digits)),
        parse_int=lambda digits: _plain(int(digits)) if len(digits) < 20 else digits,
        parse_constant=lambda name: None,
    )
    _check_depth(value, _DEEPEST)
    return value


def _too_large(most_bytes: int) -> QueryRefused:
    return QueryRefused(
        "input.too_large",
        f"The result is larger than {most_bytes:,} bytes.",
        field="$.params.sql",
        hint="Select fewer columns or rows, or parts of the texts: substr(text, 1, 200).",
    )


if __name__ == "__main__":
    raise SystemExit(main())
