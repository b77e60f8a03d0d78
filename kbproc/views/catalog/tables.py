"""The catalog's tables.

Owns: their columns, and the version that every change of them raises.
Refuses to know: what goes in (folds/) and what is asked (queries/).
"""

import re

# A change here makes every catalog rebuild itself from the log on the next open.
CATALOG_VERSION = 10

SCHEMA = """
create table head(version int, seq bigint, hash varchar, ts varchar,
                  next_document bigint, next_chunk bigint, next_session bigint,
                  next_message bigint);
create table kbs(slug varchar, name varchar, description varchar, revision int,
                 created_at varchar, updated_at varchar);
create table documents(
  id bigint, kb varchar, title varchar, type varchar, path varchar, url varchar,
  source_id varchar, tags varchar[], metadata varchar, revision int, chunk_count int,
  size_bytes bigint, sha256 varchar, parser int, pages int, created_at varchar,
  updated_at varchar, created_by varchar, deleted_at varchar, touched bigint,
  updated_by varchar, source_facts varchar, confidence int, expires_at varchar,
  task_id varchar, task_kind varchar, source varchar, superseded_by bigint, head bigint);
create table agents(
  slug varchar, description varchar, kbs varchar[], folder varchar, scopes varchar[],
  quotas varchar, instructions varchar, revision int, created_at varchar, updated_at varchar,
  deleted_at varchar);
create table chunks(id bigint, document_id bigint, idx int, text varchar, page int,
                    section varchar, overlap int, joint varchar, marks varchar);
create index chunks_id on chunks(id);
create table failures(kb varchar, path varchar, error varchar, message varchar,
                      sha256 varchar, failed_at varchar);
create table sessions(
  id bigint, key varchar, title varchar, kbs varchar[], agent varchar, created_at varchar,
  created_by varchar, updated_at varchar, deleted_at varchar, purged boolean);
create table messages(
  id bigint, session_id bigint, question varchar, detail varchar, answerer varchar, model varchar,
  profile varchar, asked_at varchar, asked_by varchar, asked_seq bigint, attempt_seq bigint,
  status varchar, ending varchar, ended_at varchar, withdrawn_at varchar);
create table pieces(message_id bigint, seq bigint, idx int, kind varchar, said varchar,
                    documents bigint[]);
create table tokens(actor varchar, method varchar, token varchar, params_hash varchar,
                    salt varchar, seq bigint, result varchar);
create index tokens_token on tokens(token);
create table events(seq bigint, idx int, ts varchar, actor varchar, method varchar, type varchar,
                    kb varchar, document_id bigint, revision int, session_id bigint,
                    message_id bigint);
"""

# Table → its columns, in order, with their types: asking DuckDB takes a millisecond a table.
TYPES = {
    table: dict(column.split() for column in columns.split(","))
    for table, columns in re.findall(r"create table (\w+)\((.*?)\);", SCHEMA, re.DOTALL)
}
TABLES = tuple(TYPES)
