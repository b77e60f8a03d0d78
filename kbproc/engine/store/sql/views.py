"""Names the views that a user's SQL may read, and makes them of the catalog's rows.

See docs/sql.md.
"""

from __future__ import annotations

VIEWS = (
    "agents",
    "chunks",
    "documents",
    "entries",
    "events",
    "failures",
    "knowledge_bases",
    "messages",
    "notes",
    "sessions",
    "tags",
)

# The catalog's tables that the views are made of, with the columns that they need.
COLUMNS = {
    "kbs": "slug name description revision created_at updated_at",
    "documents": "id kb title type path url source_id tags metadata revision chunk_count "
    "size_bytes sha256 pages created_at updated_at created_by source_facts origin confidence "
    "expires_at task_id task_kind source superseded_by head derived_from verified_by verified_at "
    "review_after",
    "agents": "slug description kbs folder scopes quotas instructions revision created_at "
    "updated_at",
    "chunks": "id document_id idx text page section",
    "failures": "kb path error message failed_at",
    "sessions": "id title kbs agent created_at created_by updated_at",
    "messages": "id session_id question answerer model asked_at asked_by attempt_seq status "
    "ended_at",
    "pieces": "message_id seq idx kind said",
    "events": "seq idx ts actor method type kb document_id revision session_id message_id",
}
# Tables of ids whose rows are replaced.
CHANGED = ("changed_documents", "changed_sessions", "changed_messages")

SCHEMA = """
create table documents(id bigint, kb varchar, title varchar, type varchar, path varchar,
  url varchar, source_id varchar, tags varchar[], metadata varchar, revision integer,
  chunk_count integer, size_bytes bigint, sha256 varchar, pages integer, created_at varchar,
  updated_at varchar, created_by varchar, unread varchar, origin varchar);
create table entries(id bigint, kb varchar, title varchar, tags varchar[], confidence integer,
  expires_at varchar, task_id varchar, task_kind varchar, source varchar, superseded_by bigint,
  head bigint, revision integer, created_at varchar, created_by varchar, origin varchar,
  derived_from bigint[], verified_by varchar, verified_at varchar, review_after varchar);
create table notes(id bigint, agent varchar, slug varchar, title varchar, size_bytes bigint,
  sha256 varchar, revision integer, created_at varchar, updated_at varchar, origin varchar);
create table agents(slug varchar, description varchar, kbs varchar[], notes_folder varchar,
  scopes varchar[], quotas varchar, instructions varchar, revision integer, created_at varchar,
  updated_at varchar);
create table sessions(id bigint, title varchar, kb varchar[], agent varchar, created_at varchar,
  created_by varchar, updated_at varchar);
create table messages(id bigint, session_id bigint, question varchar, status varchar, text varchar,
  answerer varchar, model varchar, asked_at varchar, asked_by varchar, ended_at varchar);
create table chunks(id bigint, document_id bigint, chunk_index integer, text varchar, page integer,
  section varchar);
create view tags as select id as document_id, unnest(tags) as tag from documents;
create table knowledge_bases(slug varchar, name varchar, description varchar, revision integer,
  created_at varchar, updated_at varchar);
create table events(seq bigint, idx integer, ts varchar, actor varchar, method varchar,
  type varchar, kb varchar, document_id bigint, revision integer, session_id bigint,
  message_id bigint);
create table failures(kb varchar, path varchar, error varchar, message varchar, failed_at varchar);
create schema upkeep;
create table upkeep.position(origin varchar, seq bigint, hash varchar);
insert into upkeep.position values ('', 0, '')
"""

# Statements that follow a table's changes; its rows are in `new_` with its name.
FOLLOW = {
    "documents": """
delete from documents where id in (from new_changed_documents);
delete from entries where id in (from new_changed_documents);
delete from notes where id in (from new_changed_documents);
insert into documents select id, kb, title, type, path, url, source_id, tags, metadata, revision,
  chunk_count, size_bytes, sha256, pages, created_at, updated_at, created_by,
  json_extract(source_facts, '$.unread'), origin from new_documents order by id;
insert into entries select id, kb, title, tags, confidence, expires_at, task_id, task_kind, source,
  superseded_by, head, revision, created_at, created_by, origin, derived_from, verified_by,
  verified_at, review_after from new_documents where type = 'knowledge' order by id;
insert into notes select id, kb[7:], source_id, title, size_bytes, sha256, revision, created_at,
  updated_at, origin from new_documents where type = 'note' order by id
""",
    "chunks": """
delete from chunks where document_id in (from new_changed_documents);
insert into chunks from new_chunks order by id
""",
    "sessions": """
delete from sessions where id in (from new_changed_sessions);
insert into sessions from new_sessions order by id
""",
    "messages": """
delete from messages where id in (from new_changed_messages)
  or session_id not in (select id from sessions);
insert into messages select m.id, session_id, question, status, coalesce(string_agg(p.said, ''
  order by p.seq, p.idx) filter (p.kind = 'delta' and p.seq >= attempt_seq), ''), answerer, model,
  asked_at, asked_by, ended_at from new_messages m left join new_pieces p on p.message_id = m.id
  group by all order by m.id
""",
    "events": "insert into events from new_events order by seq, idx",
    "kbs": "delete from knowledge_bases; insert into knowledge_bases from new_kbs",
    "agents": "delete from agents; insert into agents from new_agents",
    "failures": "delete from failures; insert into failures from new_failures",
}
