"""Names the views that a user's SQL may read, and makes them of the catalog: see docs/sql.md."""

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

# The catalog's tables that the views are made of.
TABLES = (
    "kbs",
    "documents",
    "agents",
    "chunks",
    "failures",
    "sessions",
    "messages",
    "pieces",
    "events",
)

# Turns the catalog's tables into those that docs/sql.md describes. No hidden row stays.
SHOW = """
alter table chunks drop column overlap; alter table chunks drop column joint;
alter table chunks drop column marks; alter table chunks rename idx to chunk_index;
alter table events drop column place;
alter table kbs rename to knowledge_bases;
delete from documents where deleted_at is not null;
alter table documents drop column parser; alter table documents drop column deleted_at;
alter table documents drop column touched; alter table documents drop column updated_by;
alter table documents drop column title_lower;
alter table documents rename source_facts to unread;
update documents set unread = json_extract(unread, '$.unread') where unread is not null;
create table entries as select id, kb, title, tags, confidence, expires_at, task_id, task_kind,
  source, superseded_by, head, revision, created_at, created_by, origin, derived_from, verified_by,
  verified_at, review_after
  from documents where type = 'knowledge' order by id;
create table notes as select id, kb[7:] as agent, source_id as slug, title, size_bytes, sha256,
  revision, created_at, updated_at, origin from documents where type = 'note' order by id;
alter table documents drop column confidence; alter table documents drop column expires_at;
alter table documents drop column task_id; alter table documents drop column task_kind;
alter table documents drop column source; alter table documents drop column superseded_by;
alter table documents drop column head; alter table documents drop column derived_from;
alter table documents drop column verified_by; alter table documents drop column verified_at;
alter table documents drop column review_after;
delete from agents where deleted_at is not null; alter table agents drop column deleted_at;
alter table agents rename folder to notes_folder;
alter table failures drop column sha256;
delete from sessions where deleted_at is not null; alter table sessions drop column deleted_at;
alter table sessions drop column purged; alter table sessions drop column key;
alter table sessions rename kbs to kb;
delete from messages where withdrawn_at is not null or session_id not in (select id from sessions);
alter table messages rename to asked;
create table messages as select m.id, session_id, question, status, coalesce(string_agg(p.said, ''
  order by p.seq, p.idx) filter (p.kind = 'delta' and p.seq >= attempt_seq), '') as text, answerer,
  model, asked_at, asked_by, ended_at from asked m left join pieces p on p.message_id = m.id
  group by all order by m.id;
drop table asked; drop table pieces;
create view tags as select id as document_id, unnest(tags) as tag from documents;
checkpoint
"""
