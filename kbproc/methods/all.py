"""The registry of all methods."""

from __future__ import annotations

from functools import cache

from kbproc.calls.registry import Registry
from kbproc.methods import chat, describe, doctor, ping, schema, search, status, version
from kbproc.methods.agent import check as agent_check
from kbproc.methods.agent import create as agent_create
from kbproc.methods.agent import delete as agent_delete
from kbproc.methods.agent import get as agent_get
from kbproc.methods.agent import invoke as agent_invoke
from kbproc.methods.agent import list as agent_list
from kbproc.methods.agent import status as agent_status
from kbproc.methods.agent import update as agent_update
from kbproc.methods.chunk import delete as chunk_delete
from kbproc.methods.chunk import get as chunk_get
from kbproc.methods.chunk import list as chunk_list
from kbproc.methods.cluster import init as cluster_init
from kbproc.methods.cluster import join as cluster_join
from kbproc.methods.cluster import leave as cluster_leave
from kbproc.methods.cluster import reseed as cluster_reseed
from kbproc.methods.cluster import status as cluster_status
from kbproc.methods.doc import create as doc_create
from kbproc.methods.doc import delete as doc_delete
from kbproc.methods.doc import download as doc_download
from kbproc.methods.doc import fetch as doc_fetch
from kbproc.methods.doc import get as doc_get
from kbproc.methods.doc import history as doc_history
from kbproc.methods.doc import ingest as doc_ingest
from kbproc.methods.doc import list as doc_list
from kbproc.methods.doc import reparse as doc_reparse
from kbproc.methods.doc import restore as doc_restore
from kbproc.methods.doc import update as doc_update
from kbproc.methods.doc import wait as doc_wait
from kbproc.methods.events import read as events_read
from kbproc.methods.events import revert as events_revert
from kbproc.methods.events import subscribe as events_subscribe
from kbproc.methods.events import verify as events_verify
from kbproc.methods.index import rebuild as index_rebuild
from kbproc.methods.kb import check as kb_check
from kbproc.methods.kb import create as kb_create
from kbproc.methods.kb import delete as kb_delete
from kbproc.methods.kb import get as kb_get
from kbproc.methods.kb import list as kb_list
from kbproc.methods.kb import status as kb_status
from kbproc.methods.kb import update as kb_update
from kbproc.methods.knowledge import delete as knowledge_delete
from kbproc.methods.knowledge import get as knowledge_get
from kbproc.methods.knowledge import list as knowledge_list
from kbproc.methods.knowledge import search as knowledge_search
from kbproc.methods.knowledge import store as knowledge_store
from kbproc.methods.knowledge import supersede as knowledge_supersede
from kbproc.methods.knowledge import unsupersede as knowledge_unsupersede
from kbproc.methods.model import list as model_list
from kbproc.methods.model import use as model_use
from kbproc.methods.note import delete as note_delete
from kbproc.methods.note import get as note_get
from kbproc.methods.note import list as note_list
from kbproc.methods.note import put as note_put
from kbproc.methods.note import search as note_search
from kbproc.methods.note import sync as note_sync
from kbproc.methods.session import ask as session_ask
from kbproc.methods.session import create as session_create
from kbproc.methods.session import delete as session_delete
from kbproc.methods.session import get as session_get
from kbproc.methods.session import list as session_list
from kbproc.methods.session import resume as session_resume
from kbproc.methods.session import stop as session_stop
from kbproc.methods.sql import query as sql_query
from kbproc.methods.store import backup as store_backup
from kbproc.methods.store import compact as store_compact
from kbproc.methods.store import export as store_export
from kbproc.methods.store import import_ as store_import
from kbproc.methods.store import move as store_move
from kbproc.methods.store import purge as store_purge
from kbproc.methods.tag import list as tag_list

# In the order in which `describe` and the docs tell of them.
_METHODS = (
    ping,
    version,
    describe,
    schema,
    status,
    store_backup,
    store_export,
    store_import,
    store_compact,
    store_purge,
    doctor,
    index_rebuild,
    store_move,
    cluster_init,
    cluster_join,
    cluster_leave,
    cluster_reseed,
    cluster_status,
    model_list,
    model_use,
    sql_query,
    kb_create,
    kb_list,
    kb_get,
    kb_update,
    kb_delete,
    kb_status,
    kb_check,
    doc_ingest,
    doc_create,
    doc_fetch,
    doc_reparse,
    doc_list,
    doc_get,
    doc_update,
    doc_delete,
    doc_download,
    doc_wait,
    doc_history,
    doc_restore,
    events_revert,
    chunk_list,
    chunk_get,
    chunk_delete,
    tag_list,
    search,
    knowledge_store,
    knowledge_search,
    knowledge_get,
    knowledge_list,
    knowledge_supersede,
    knowledge_unsupersede,
    knowledge_delete,
    note_search,
    note_get,
    note_list,
    note_put,
    note_delete,
    note_sync,
    agent_create,
    agent_list,
    agent_get,
    agent_update,
    agent_delete,
    agent_status,
    agent_check,
    agent_invoke,
    chat,
    session_create,
    session_list,
    session_get,
    session_ask,
    session_resume,
    session_stop,
    session_delete,
    events_read,
    events_verify,
    events_subscribe,
)


@cache
def registry() -> Registry:
    return Registry.of(*_METHODS)
