"""sql.query: its answers, and that no statement reaches outside its process."""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbproc.base.errors import KbprocError
from kbproc.engine.events.agent import AgentDeleted
from kbproc.engine.events.document import ChunkText, DocDeleted, DocWritten
from kbproc.engine.events.kb import KbCreated
from kbproc.engine.projections.catalog import changes
from kbproc.engine.projections.catalog.catalog import Catalog
from kbproc.engine.store.lane import Lane
from kbproc.engine.store.sql import query as sqlquery
from kbproc.engine.store.sql import views
from kbproc.engine.store.sql.query import CatalogSource, Deadline
from kbproc.knowledge.app.health import doctor
from tests.conftest import OpenSession
from tests.kit import knowledge
from tests.kit.patience import GLIMPSE, LONG, PATIENCE
from tests.kit.shell import environment
from tests.kit.talk import REPO, Session

DOCS = (REPO / "docs" / "sql.md").read_text()
LINUX = sys.platform == "linux"
MIB = 1 << 20

Ask = Callable[..., Any]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """Store with five documents (one deleted), a failure and a token; tests only read it."""
    folder = tmp_path_factory.mktemp("world")
    (folder / "bad.pdf").write_bytes(b"%PDF-1.4\nnot really\n")
    (folder / "outside.csv").write_text("a,b\n1,2\n")
    session = Session(folder / "store", cwd=folder)
    for number in range(4):
        session.data(
            "doc.create",
            title=f"Doc {number}",
            text="Hello world. " * 300,
            tags=["all", f"t{number % 2}"],
            metadata={"n": number, "author": "Ann"},
            client_token=f"token-{number}",
        )
    secret = session.data("doc.create", title="Gone", text="the secret word", kb="default")
    session.data("kb.create", slug="other", description="Another.")
    assert session.data("doc.ingest", paths=["bad.pdf"])["failed"] == 1
    plan = session.error("doc.delete", ids=[secret["id"]])["plan"]
    session.data("doc.delete", ids=[secret["id"]], confirm=plan["plan_hash"])
    session.embedded()
    session.library.tidy()
    yield session
    assert {name: wrong for name, wrong in doctor.compare(session.store).items() if wrong} == {}
    session.close()


def rows(session: Session, sql: str, **params: Any) -> Any:
    return session.data("sql.query", sql=sql, **params)["rows"]


@contextlib.contextmanager
def process(
    session: Session,
    memory_bytes: int = sqlquery.MEMORY_BYTES,
    module: str = "kbproc.engine.store.sql.worker",
) -> Iterator[sqlquery.QueryProcess]:
    """One process for many statements, on one state of the tables."""
    patience = Deadline(600_000, lambda: False)
    with sqlquery.QueryProcess(patience, memory_bytes, module) as running:
        sqlquery.current_catalog(session.store).open_tables(running)
        running.step("limit", memory_bytes)
        yield running


@pytest.fixture(scope="module")
def ask(world: Session) -> Iterator[Ask]:
    """Runs statements in one process, which is quicker than a process for each."""
    with process(world) as running:

        def query(sql: str, params: Any = (), limit: int = 10) -> Any:
            return running.step("query", sql, params, limit, 8 * MIB)

        yield query


def digests(folder: Path) -> dict[str, str]:
    """Digests of all files below, except the vectors' files, which are saved at any time."""
    return {
        str(path.relative_to(folder)): sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        # To read the catalog's file here would give up SQLite's lock on it.
        if path.is_file() and not path.match("views/sql/*") and path.name[:7] not in _APART
    }


_APART = {"catalog", "vectors"}


def state(session: Session) -> tuple[Any, ...]:
    files = digests(session.store.folder.parent)
    files.pop("store/views/log.seen", None)  # kbproc saves there, once idle, how far it has read
    with session.store.reading() as snapshot:
        return snapshot.queries.digest(), snapshot.seq, files


# ----------------------------------------------------------------------- answers


def test_an_answer(world: Session) -> None:
    answer = world.ask(
        "sql.query", sql="select id, title, tags from documents order by id", limit=2
    )
    assert answer["result"]["data"] == {
        "columns": [
            {"name": "id", "type": "BIGINT"},
            {"name": "title", "type": "VARCHAR"},
            {"name": "tags", "type": "VARCHAR[]"},
        ],
        "rows": [[1, "Doc 0", ["all", "t0"]], [2, "Doc 1", ["all", "t1"]]],
    }
    meta = answer["result"]["meta"]
    assert (meta["seq"], meta["count"], meta["has_more"]) == (world.store.seq, 2, True)


def test_only_what_is_live_is_shown(ask: Ask) -> None:
    assert ask("select count(*), max(chunk_count) > 1 from documents")["rows"] == [[4, True]]
    assert ask("from chunks where text ilike '%secret%'")["rows"] == []
    sql = "select count(distinct d.id) from chunks join documents d on d.id = document_id"
    assert ask(sql)["rows"] == [[4]]
    assert ask("select path[-7:], error from failures")["rows"] == [["bad.pdf", "operation.failed"]]
    assert ask("select slug from knowledge_bases order by slug")["rows"] == [["default"], ["other"]]
    assert ask("select tag, count(*) from tags group by tag order by tag")["rows"] == [
        ["all", 4],
        ["t0", 2],
        ["t1", 2],
    ]


def documented() -> dict[str, list[tuple[str, str]]]:
    columns: dict[str, list[tuple[str, str]]] = {}
    for section in DOCS.split("\n### ")[1:]:
        name, _, rest = section.partition("\n")
        table = rest.partition("\n## ")[0]
        columns[name] = re.findall(r"^\| `(\w+)` \| ([A-Z\[\]]+) \|", table, re.MULTILINE)
    return columns


def test_the_views_are_as_documented(ask: Ask) -> None:
    there = {
        view: [(row[0], row[1]) for row in ask(f"describe {view}", limit=50)["rows"]]
        for view in views.VIEWS
    }
    assert there == documented()


def test_entries_notes_and_agents(session: Session) -> None:
    store = session.store
    knowledge.agent(store, "gitea", kbs=["default"], quotas={"notes_stored": 7})
    knowledge.agent(store, "gone")
    knowledge.put(store, AgentDeleted(slug="gone"))
    old = knowledge.entry(
        store,
        "Old",
        actor="gitea",
        confidence=7,
        task_id="TASK-1",
        task_kind="produced",
        expires_at="2999-01-01T00:00:00.000Z",
    )
    new, hidden = knowledge.entry(store, "New", tags=["git"]), knowledge.entry(store, "Hidden")
    knowledge.supersede(store, old, new)
    knowledge.put(store, DocDeleted(id=hidden))
    note = knowledge.note(store, "gitea", "hooks", "# Hooks\n", title="Hooks")
    assert rows(session, "from entries order by id", limit=9) == [
        [
            old,
            "default",
            "Old",
            [],
            7,
            "2999-01-01T00:00:00.000Z",
            "TASK-1",
            "produced",
            "",
            new,
            new,
            1,
            "2026-01-01T00:00:00.000Z",
            "gitea",
            *("agent", [], None, None, None),
        ],
        [
            new,
            "default",
            "New",
            ["git"],
            80,
            None,
            None,
            None,
            "",
            None,
            new,
            1,
            "2026-01-01T00:00:00.000Z",
            "ann",
            *("agent", [], None, None, None),
        ],
    ]
    assert rows(session, "select id, agent, slug, title, sha256 from notes") == [
        [note, "gitea", "hooks", "Hooks", knowledge.sha256("# Hooks\n")]
    ]
    assert rows(session, "select slug, kbs, notes_folder, scopes, quotas from agents") == [
        ["gitea", ["default"], None, None, '{"notes_stored":7}']
    ]
    documents = rows(session, "select id, type from documents order by id")
    assert documents == [[old, "knowledge"], [new, "knowledge"], [note, "note"]]


@pytest.mark.parametrize("sql", re.findall(r"```sql\n(.*?)```", DOCS, re.DOTALL))
def test_documented_examples(ask: Ask, sql: str) -> None:
    assert ask(sql)["columns"]


VALUES: list[tuple[str, Any]] = [
    ("null", None),
    ("true", True),
    ("42::utinyint", 42),
    ("1.5", 1.5),
    ("1e300", 1e300),
    ("'nan'::double", None),
    ("'-inf'::float", None),
    ("'é'", "é"),
    ("chr(0)", "\x00"),
    ("9223372036854775807", 2**63 - 1),
    ("-9223372036854775808", -(2**63)),
    ("9223372036854775808", "9223372036854775808"),
    ("170141183460469231731687303715884105727", "170141183460469231731687303715884105727"),
    ("sum(7::bigint)", 7),
    ("1.50::decimal(9, 2)", 1.5),
    ("'\\xAA'::blob", "qg=="),
    ("date '20000-01-01'", "20000-01-01"),
    ("timestamp 'infinity'", "infinity"),
    ("timestamptz '2026-01-02 03:04:05+01'", "2026-01-02 02:04:05+00"),
    ("interval 1 month", "1 month"),
    ("uuid '00000000-0000-0000-0000-000000000001'", "00000000-0000-0000-0000-000000000001"),
    ("[1, null, 'nan'::double]", [1, None, None]),
    ("{'a': [{'b': date '2026-01-01'}]}", {"a": [{"b": "2026-01-01"}]}),
    ("map {1: 'x'}", {"1": "x"}),
    ("'a'::enum('a', 'b')", "a"),
    ("[]", []),
    ("bitstring '101'", "101"),
    (
        "json '{\"x\": [1e400, 123456789012345678901234567890]}'",
        {"x": [None, "123456789012345678901234567890"]},
    ),
]


def test_values(ask: Ask) -> None:
    answer = ask("select " + ", ".join(sql for sql, _ in VALUES))
    values = dict(zip((sql for sql, _ in VALUES), answer["rows"][0], strict=True))
    assert values == dict(VALUES)


def test_the_order_of_an_inner_statement_is_kept(ask: Ask) -> None:
    assert ask("select i from range(10000) t(i) order by -i -- last", limit=2) == {
        "columns": [{"name": "i", "type": "BIGINT"}],
        "rows": [[9999], [9998]],
        "has_more": True,
    }


@given(st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=50))
def test_a_parameter_comes_back_as_it_went(ask: Ask, value: Any) -> None:
    value = value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
    assert ask("select ?", [value])["rows"] == [[value]]
    assert ask("select $a, $b", {"a": value, "b": 1})["rows"] == [[value, 1]]


@pytest.mark.parametrize(
    ("sql", "column"),
    [
        ("select 1 as a;", "a"),
        (" ; ;select 1 as a;; -- x; y", "a"),
        ("select ';--' as \"ö;\" /* ; */ ; /* é; */ -- ;", "ö;"),
        ("(select 1 as a)", "a"),
        ("from (values (1)) t(a)", "a"),
        ("with tokens as (select 1 as a) from tokens", "a"),
        ("select a from main.documents, (select 1 as a)", "a"),
        ("table tags", "document_id"),
        ("with recursive t(a) as (select 1 union all select a + 1 from t where a < 5) from t", "a"),
        ("select unnest(tags) as a from documents", "a"),
        ("summarize tags", "column_name"),
        ("pivot documents on type in ('text') using count(*) group by kb", "kb"),
        ("select count(*) over () as a from documents", "a"),
    ],
)
def test_statements_of_many_kinds(ask: Ask, sql: str, column: str) -> None:
    assert ask(sql)["columns"][0]["name"] == column


# ---------------------------------------------------------------------- refusals

HOSTILE = """
insert into failures values ('a', 'b', 'c', 'd', 'e')
update documents set title = 'x'
delete from documents
delete from documents returning *
truncate documents
with x as (delete from documents returning *) from x
with x as (insert into tags values (1, 'a') returning *) select * from x
create table x (a int)
create temp table x as select 1
create or replace view tags as select 1
create macro m(a) as a
create secret (type s3)
drop table documents
alter table chunks drop column text
attach '{outside}/new.db' as x
attach ':memory:' as x
detach world
use memory
copy documents to '{outside}/new.csv'
copy (select 1) to '{outside}/new.csv'
copy failures from '{outside}/outside.csv'
export database '{outside}/new'
import database '{outside}/new'
install httpfs
force install json
load httpfs
load '{outside}/x.duckdb_extension'
update extensions
set memory_limit = '100GB'
set global threads = 8
set lock_configuration = false
set enable_external_access = true
set variable x = 1
reset memory_limit
pragma memory_limit = '1GB'
pragma database_list
pragma version
call pragma_version()
checkpoint
force checkpoint
vacuum
analyze
begin
commit
prepare p as select 1
execute p
explain select 1
explain analyze select 1
select 1 into x
select 1; select 2
select 1; drop table documents
;;
-- nothing
select /* open
select 'open
select 1) union (select 2
select 1)) --
from '{outside}/outside.csv'
from '/etc/passwd'
from read_csv('{outside}/outside.csv')
from read_text('/etc/passwd')
from read_blob('{copy}')
from read_parquet('x.parquet')
from parquet_metadata('x')
from read_json('x.json')
from sniff_csv('/etc/passwd')
from read_duckdb('{copy}')
from glob('/*')
from 'https://example.com/x.parquet'
from read_csv('http://127.0.0.1:1/x')
from 's3://bucket/x.parquet'
select getenv('HOME')
select current_setting('memory_limit')
select getvariable('x')
select write_log('x')
select lower(current_setting('memory_limit'))
select sleep_ms(60000)
select nextval('x')
from duckdb_secrets()
from duckdb_settings()
from duckdb_tables()
from duckdb_logs()
from duckdb_tables
from duckdb_databases
from pragma_table_info('documents')
from pragma_storage_info('chunks')
from pragma_database_size()
from which_secret('s3://x', 's3')
from query('select 1')
from query_table('documents')
from json_execute_serialized_sql('x')
from seq_scan('documents')
from test_all_types()
from python_map_function()
show memory_limit
show tables
show databases
show all tables
from tokens
from head
from kbs
from main.tokens
from upkeep.position
describe upkeep.position
select * from documents, tokens
select (select count(*) from tokens)
select exists (from head)
from world.main.documents
with a as (from tokens) from a
with tokens as (select 1) from main.tokens
describe tokens
summarize head
from information_schema.tables
from sqlite_master
from pg_catalog.pg_class
from pg_tables
select * from system.main.documents
from memory.main.x
from temp.x
from _source
from db
from sys
pivot documents on type using count(*)
select repeat('x', 10000000000)
select 1 / 'a'
select error('x')
select titel from documents
""".strip().splitlines()

ODD = [
    "",
    " ;; ",
    "\0",
    "select '\0'",
    "from " + "(from " * 2000,
    "select " + "(" * 9000 + "1" + ")" * 9000,
    "select " + "[" * 5000 + "1" + "]" * 5000,
    "select " + "not " * 900 + "true",
    "select " + "abs(" * 990 + "1" + ")" * 990,
    "select " + "+".join(["1"] * 5000),
    "select json('" + "[" * 900 + "]" * 900 + "')",
]


def test_hostile_statements_are_refused(world: Session) -> None:
    """Each refusal names the field and a hint, and no statement changes anything."""
    outside = world.store.folder.parent
    before = state(world)
    with process(world) as running:
        copy = next(sqlquery.tables_of(world.store.folder).iterdir())
        for template in HOSTILE + ODD:
            sql = template.replace("{outside}", str(outside)).replace("{copy}", str(copy))
            with pytest.raises(KbprocError) as caught:
                running.step("query", sql, [], 10, 8 * MIB)
            assert caught.value.type == "input.invalid_params", (sql[:100], caught.value.message)
            assert caught.value.field == "$.params.sql"
            assert caught.value.hint
            assert state(world)[:2] == before[:2]
    assert state(world) == before
    assert rows(world, "select count(*) from documents") == [[4]]


_OUT = re.compile(r"outside|\{copy\}|/etc/|glob|http|s3://bucket|parquet|json\(|extension")
REACHING_OUT = (
    [sql for sql in HOSTILE if _OUT.search(sql)]
    + """
insert into failures values ('a', 'b', 'c', 'd', 'e')
update documents set title = 'x'
delete from documents
truncate documents
with x as (delete from documents returning *) from x
create table x (a int)
drop table documents
alter table chunks drop column text
create or replace view tags as select 1
install httpfs
load httpfs
install httpfs from 'http://127.0.0.1:1'
from read_blob('/proc/self/environ')
from read_text('{copy}')
copy (select 1) to '{copy}'
copy (select 1) to '{copy}.wal'
copy (select 1) to '/dev/stderr'
set memory_limit = '100GB'
set lock_configuration = false
set enable_external_access = true
set allowed_directories = ['/']
set temp_directory = '/tmp'
set autoload_known_extensions = true
reset memory_limit
pragma memory_limit = '1GB'
create persistent secret s (type s3)
call enable_logging(storage = 'file', storage_path = '{outside}/new.log')
attach '{copy}' as x
attach '{outside}/store/views/catalog.duckdb' as x (read_only)
from tokens
from head
from _source
from db
from sql
""".strip().splitlines()
)


def test_what_the_check_lets_pass_gets_nowhere(world: Session) -> None:
    """Runs unchecked statements on the worker's own connection."""
    outside = world.store.folder.parent
    before = state(world)
    with process(world, module="tests.store.sql.unchecked") as running:
        copy = next(sqlquery.tables_of(world.store.folder).iterdir())
        content = copy.read_bytes()
        for template in REACHING_OUT:
            sql = template.replace("{outside}", str(outside)).replace("{copy}", str(copy))
            with pytest.raises(KbprocError):
                raise AssertionError((sql, running.step("query", sql)))
        assert running.step("query", "select count(*) from documents") == [["4"]]
        tables = running.step("query", "select table_name from duckdb_tables() order by 1")
        assert [name for (name,) in tables] == ["agents", "chunks", "documents"]
        if LINUX:
            limits = Path(f"/proc/{running.process.pid}/limits").read_text()
            assert re.search(r"Max open files +0 +0", limits)
            assert re.search(r"Max file size +0 +0", limits)
    assert copy.read_bytes() == content
    assert state(world) == before


@pytest.mark.parametrize(
    ("sql", "message", "valid", "hint"),
    [
        ("select titel from documents", 'Referenced column "titel" not found', "title", ""),
        (
            'from documents where kb in ("Bob\'s", "b c")',
            'Referenced column "Bob\'s" not found',
            "kb",
            "single quotes: 'Bob''s'",
        ),
        ("show tables", "SHOW", "documents", "The views are agents, chunks, documents"),
        ("show all tables", "SHOW", "tags", "failures, knowledge_bases"),
        ("select d.titel from documents d", 'does not have a column named "titel"', "title", ""),
        ("from document", "There is no view 'document'", "documents", "DESCRIBE"),
        ("from read_csv('x')", "There is no view 'read_csv'", "chunks", "DESCRIBE"),
        ("select lenth('a')", "lenth does not exist", "length", ""),
        ("selec 1", 'syntax error at or near "selec"', None, ""),
        ("select id, count(*) from tags", 'Referenced column "id" not found', "document_id", ""),
        ("select tag, count(*) from tags", "must appear in the GROUP BY", None, "Either add it"),
        ("delete from tags", "Only a SELECT is allowed, not DELETE", None, "can only be read"),
        ("select 1; select 2", "One statement is wanted, not 2", None, ""),
    ],
)
def test_errors_that_help(ask: Ask, sql: str, message: str, valid: str | None, hint: str) -> None:
    with pytest.raises(KbprocError) as caught:
        ask(sql)
    error = caught.value
    assert message in error.message
    assert "LINE" not in error.message + error.hint
    assert "\n" not in error.message
    assert hint in error.hint
    assert (valid in (error.valid_values or ())) == (valid is not None)


@pytest.mark.parametrize(
    ("sql", "params", "valid"),
    [
        ("select ?", [], ["1"]),
        ("select ?, ?", [1], ["1", "2"]),
        ("select 1", [1], []),
        ("select $a", [1], ["a"]),
        ("select $a", {"b": 1}, ["a"]),
        ("select ?", {"a": 1}, ["1"]),
    ],
)
def test_the_wrong_parameters(ask: Ask, sql: str, params: Any, valid: list[str]) -> None:
    with pytest.raises(KbprocError) as caught:
        ask(sql, params)
    assert (caught.value.field, caught.value.valid_values) == ("$.params.params", valid)


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"sql": ""}, "$.params.sql"),
        ({"sql": "select 1" + " " * MIB}, "$.params.sql"),
        ({"sql": "select 1", "params": [[1]]}, "$.params.params[0]"),
        ({"sql": "select 1", "params": list(range(101))}, "$.params.params"),
        ({"sql": "select 1", "limit": 1001}, "$.params.limit"),
        ({"sql": "select 1", "timeout_ms": 60_001}, "$.params.timeout_ms"),
        ({"sql": "select ?::int", "params": ["x"]}, "$.params.sql"),
    ],
)
def test_params_out_of_range(world: Session, params: dict[str, Any], field: str) -> None:
    error = world.error("sql.query", **params)
    assert (error["type"], error["field"]) == ("input.invalid_params", field)


# ------------------------------------------------------------------------ limits


@pytest.mark.parametrize(
    "sql",
    [
        "with recursive t as (select 1 as n union all select n + 1 from t) select max(n) from t",
        "select sum(length(a.text) + i * j) from chunks a, range(100000) b(i), range(100000) c(j)",
        "select max(length(repeat('x', 100000) || range)) from range(1000000000)",
    ],
)
def test_a_query_without_end_is_ended(world: Session, sql: str) -> None:
    error = world.error("sql.query", sql=sql, timeout_ms=400)
    assert error["type"] == "operation.timeout" and error["hint"].startswith("Ask for less")
    assert "WHERE" in error["hint"]


def test_the_process_ends_itself_if_nobody_does() -> None:
    waiting = subprocess.Popen(
        [sys.executable, "-m", "kbproc.engine.store.sql.worker", str(os.getpid()), "0.05"],
        stdin=subprocess.PIPE,
        cwd="/",
        env={"PYTHONPATH": str(REPO)},
    )
    assert waiting.wait(PATIENCE) == -signal.SIGALRM
    assert waiting.stdin
    waiting.stdin.close()


@pytest.mark.skipif(not LINUX, reason="macOS has no limit of a process's memory")
@pytest.mark.parametrize(
    "sql",
    [
        "select length(repeat('x', 1000000000))",
        "select list(range) from range(100000000)",
        "select [x for x in range(100000000)]",
        "select string_agg(text) from chunks, range(100000)",
        "select count(*) from (select unnest(range(100000000)))",
        "select printf('%1000000000d', 1)",
        "select list_resize([1], 2000000000)",
        "select array_agg(text order by text) from chunks, range(20000)",
        "select count(distinct text || range) from chunks, range(1000000)",
    ],
)
def test_memory_is_bounded(world: Session, sql: str) -> None:
    """A query that needs too much memory gets an error, or only its process dies."""
    most = 300 * MIB
    with process(world, most) as running:
        with pytest.raises(KbprocError) as caught:
            running.step("query", sql, [], 10, 8 * MIB)
        assert caught.value.type in ("input.too_large", "operation.failed"), caught.value.message
        if running.process.poll() is None:
            status = Path(f"/proc/{running.process.pid}/status").read_text()
            peak = re.search(r"VmPeak:\s+(\d+) kB", status)
            assert peak
            assert int(peak[1]) << 10 <= most


def test_a_result_that_is_too_large(world: Session) -> None:
    for sql in ("select repeat('x', 9000000)", "select repeat('\t', 5000) from range(1000)"):
        error = world.error("sql.query", sql=sql, limit=1000)
        assert error["type"] == "input.too_large"
        assert "substr" in error["hint"]


def test_a_process_that_dies_fails_its_query_alone(world: Session) -> None:
    for signum, word in ((signal.SIGSEGV, "SIGSEGV"), (signal.SIGKILL, "memory")):
        with process(world) as running:
            running.process.send_signal(signum)
            with pytest.raises(KbprocError, match=word) as caught:
                running.step("query", "select 1", [], 10, MIB)
        assert caught.value.type == "operation.failed"
    assert rows(world, "select 1") == [[1]]


def test_only_so_many_at_once(world: Session) -> None:
    with contextlib.ExitStack() as turns:
        for _ in range(sqlquery.RUNNING):
            turns.enter_context(sqlquery.turn(Deadline(1000, lambda: False)))
        assert (
            world.error("sql.query", sql="select 1", timeout_ms=50)["type"] == "operation.timeout"
        )
        for _ in range(sqlquery.WAITING):
            assert sqlquery.admitted.acquire(blocking=False)
            turns.callback(sqlquery.admitted.release)
        error = world.error("sql.query", sql="select 1")
        assert (error["type"], error["retryable"]) == ("server.overloaded", True)
    assert rows(world, "select 1") == [[1]]


def test_a_cancelled_query_ends(world: Session) -> None:
    with pytest.raises(KbprocError, match="cancelled") as caught:
        sqlquery.run(
            sqlquery.current_catalog(world.store),
            "select 1",
            limit=1,
            timeout_ms=600_000,
            cancelled=lambda: True,
        )
    assert caught.value.type == "operation.cancelled"


def test_the_scope_is_admin(open_session: OpenSession) -> None:
    session = open_session(scopes="doc:read,kb:read")
    assert session.error("sql.query", sql="select 1")["type"] == "auth.insufficient_scope"


# ------------------------------------------------------------------------ tables


def test_the_tables_follow_what_has_changed(session: Session) -> None:
    folder = sqlquery.tables_of(session.store.folder)
    rows(session, "select 1")
    (first,) = folder.iterdir()
    written = first.stat().st_mtime_ns
    assert rows(session, "select count(*) from documents") == [[0]]
    assert [path.stat().st_mtime_ns for path in folder.iterdir()] == [written]
    session.data("doc.create", title="New", text="New words.")
    assert rows(session, "select title from documents") == [["New"]]
    assert list(folder.iterdir()) == [first]
    assert (folder.stat().st_mode & 0o777, first.stat().st_mode & 0o777) == (0o700, 0o600)
    sqlquery.remove_tables(session.store.folder)
    assert not folder.exists()
    assert rows(session, "select title from documents") == [["New"]]


def test_a_running_query_keeps_its_generation(session: Session) -> None:
    """Nothing is written into a file that a query reads, and its rows stay as they were."""
    folder, count = sqlquery.tables_of(session.store.folder), "select count(*) from documents"
    with process(session) as running:
        (first,) = folder.iterdir()
        content = first.read_bytes()
        with first.open("rb") as file:
            session.data("doc.create", title="New", text="New words.")
            assert rows(session, count) == [[1]]
            assert file.read() == content
        (second,) = folder.iterdir()
        assert second != first
        assert running.step("query", count, [], 1, MIB)["rows"] == [[0]]
    session.data("doc.create", title="Newer", text="New words.")
    assert rows(session, count) == [[2]]
    assert list(folder.iterdir()) == [second]


def test_tables_stay_until_their_query_has_opened_them(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Removing all tables, as a purge does, waits until the query has opened them."""
    step, removing = sqlquery.QueryProcess.step, []

    def slow(self: sqlquery.QueryProcess, name: str, *args: Any) -> Any:
        if name == "read":
            removing.append(
                threading.Thread(target=sqlquery.remove_tables, args=(session.store.folder,))
            )
            removing[0].start()
            removing[0].join(GLIMPSE)
        return step(self, name, *args)

    monkeypatch.setattr(sqlquery.QueryProcess, "step", slow)
    assert session.data("sql.query", sql="select count(*) from documents")["rows"] == [[0]]
    removing[0].join(PATIENCE)
    assert not list(sqlquery.tables_of(session.store.folder).glob("*"))


def test_a_catch_up_goes_on_where_a_timeout_has_ended_it(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "MOST_ROWS", 10)
    for _ in range(8):
        session.store.commit(_write_one)
    step, positions = sqlquery.QueryProcess.step, []

    def counted(self: sqlquery.QueryProcess, name: str, *args: Any) -> Any:
        answer = step(self, name, *args)
        if name == "take":
            positions.append(args[2])
            if len(positions) == 2:
                raise self._deadline.over()
        return answer

    monkeypatch.setattr(sqlquery.QueryProcess, "step", counted)
    error = session.error("sql.query", sql="select 1")
    assert error["type"] == "operation.timeout"
    assert error["hint"].startswith("The tables for SQL are being filled. Send the request again")
    before = list(positions)
    assert rows(session, "select count(*), sum(chunk_count) from documents") == [[8, 40]]
    assert before[-1] < positions[2] < positions[-1] == session.store.seq


def test_damaged_tables_are_made_afresh(session: Session) -> None:
    for _ in range(3):
        session.store.commit(_write_one)
    sql = "select count(*), sum(length(text)), max(hash(text))::varchar from chunks"
    expected, folder = rows(session, sql), sqlquery.tables_of(session.store.folder)
    (file,) = folder.iterdir()
    content = file.read_bytes()
    damages = [content[:5000], b"x" * len(content)]
    for start in range(3, len(content), len(content) // (64 if LONG else 3)):
        middle = content[start : start + 5000]
        rest = content[start + len(middle) :]
        damages.append(content[:start] + bytes(255 - byte for byte in middle) + rest)
    cases = zip(damages, itertools.cycle((False, True, True)), strict=False)
    for damaged, has_changed in cases:
        for path in folder.iterdir():
            path.unlink()
        file.write_bytes(damaged)
        if has_changed:
            session.data("kb.create", slug=f"kb-{session.store.seq}")
        assert rows(session, sql) == expected


def test_the_tables_have_only_what_is_committed(session: Session, tmp_path: Path) -> None:
    """The tables lack rows that are folded in but not published."""
    source = CatalogSource(lambda: session.store.catalog, session.store.log, tmp_path / "tables")
    sql = "select slug from knowledge_bases order by slug"
    answers: list[Any] = []

    def turn(lane: Lane) -> None:
        for number in range(200):
            created = KbCreated(slug=f"new-{number:03}", name="x" * 300, description="")
            lane.append([created], actor="a", method="kb.create")
        answer = sqlquery.run(source, sql, limit=500, timeout_ms=600_000)
        answers.append((answer.seq, answer.rows))

    session.store.commit(turn)
    assert answers == [(1, [["default"]])]
    assert len(rows(session, sql, limit=500)) == 201


def test_the_tables_are_one_committed_state(session: Session) -> None:
    """Each query reads one consistent state while another connection writes."""
    sql = (
        "select (select count(*) from documents), (select sum(chunk_count) from documents), "
        "(select count(*) from chunks), (select max(seq) from events)"
    )
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            session.store.commit(_write_one)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(4):
            answer = sqlquery.run(
                sqlquery.current_catalog(session.store), sql, limit=1, timeout_ms=600_000
            )
            documents, total, chunks, seq = answer.rows[0]
            assert (documents * 5, total or 0, seq) == (chunks, chunks, answer.seq)
    finally:
        stop.set()
        writer.join()


def _write_one(lane: Lane) -> None:
    head = lane.head
    written = DocWritten(
        id=head.next_document,
        kb="default",
        title="T",
        doc_type="text",
        source_sha256="",
        size_bytes=0,
        first_chunk=head.next_chunk,
        parser=1,
        origin="user",
        revision=1,
        chunks=[ChunkText(text=f"{head.seq} " * (9000 if LONG else 900)) for _ in range(5)],
    )
    lane.append([written], actor="a", method="doc.create")


def test_from_the_shell(tmp_path: Path) -> None:
    sql = "select ? || slug as s from knowledge_bases"
    done = subprocess.run(
        [sys.executable, "-m", "kbproc", "sql", "query", sql, "--params", '["kb "]'],
        capture_output=True,
        cwd=REPO,
        env=environment(tmp_path),
        check=False,
    )
    assert json.loads(done.stdout)["data"]["rows"] == [["kb default"]], done.stderr


@pytest.mark.parametrize(
    ("number", "lasting", "hint"),
    [
        (errno.ENOENT, True, "moved or removed"),
        (errno.EACCES, True, "who owns"),
        (errno.EROFS, True, "who owns"),
        (errno.ENOSPC, False, "Free space"),
    ],
)
def test_a_catch_up_that_fails_says_why(
    session: Session, tmp_path: Path, number: int, lasting: bool, hint: str
) -> None:
    def catalog() -> Catalog:
        raise OSError(number, os.strerror(number), "views/catalog.sqlite")

    source = CatalogSource(catalog, session.store.log, tmp_path / "sql")
    with (
        pytest.raises(KbprocError) as caught,
        sqlquery.QueryProcess(Deadline(60_000, lambda: False), sqlquery.MEMORY_BYTES) as running,
    ):
        source.open_tables(running)
    error = caught.value
    assert (error.type, error.retryable) == ("store.io", not lasting)
    assert os.strerror(number) in error.message and "views/catalog.sqlite" in error.message
    assert hint in error.hint


def test_a_process_that_finds_no_changes_says_so(tmp_path: Path) -> None:
    absent, broken = tmp_path / "gone.sqlite", tmp_path / "broken.sqlite"
    file, position = str(tmp_path / "tables.duckdb"), ["origin", 1, "hash"]
    with sqlquery.QueryProcess(Deadline(60_000, lambda: False), sqlquery.MEMORY_BYTES) as running:
        running.step("write", file, file)
        with pytest.raises(KbprocError, match="No such file or directory") as caught:
            running.step("take", str(absent), *position)
        assert str(absent) in caught.value.message and "moved or removed" in caught.value.hint
        broken.write_bytes(b"no catalog at all" * 1000)
        with pytest.raises(KbprocError, match="can't be opened") as caught:
            running.step("take", str(broken), *position)
        assert "kbproc doctor" in caught.value.hint
