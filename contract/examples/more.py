"""The same server with all parts: `python more.py STORE`."""

import base64
import re
import sys
from datetime import UTC, datetime

from server import doc_delete as delete_documents
from server import documents, filtered, normal, seen, shown
from wire import PARTS, Refusal, digest, main, method, now, time_of

PARTS += ["log", "search", "agents", "answers"]


# --------------------------------------------------------------------- log
@method("events.read")
def events_read(call):
    records = [seen(record, call) for record in call.store.records[call.after_seq :]]
    return call.page([record for record in records if record], lambda record: record["seq"])


@method("events.verify")
def events_verify(call):
    records = call.store.records
    ends = {"first_ts": records[0]["ts"], "last_ts": records[-1]["ts"]}
    head = {"seq": len(records), "hash": digest(records)}
    return {"records": len(records), "segments": 1, "head": head, **ends, "erased": 0, "lost": []}


@method("doc.history")
def doc_history(call):
    rows = []
    for record in call.store.records:
        for event in record["events"]:
            if event["document_id"] == call.params["id"]:
                row = {name: record[name] for name in ("seq", "ts", "actor", "method")}
                row |= {"action": event["type"].partition(".")[2], "summary": event["summary"]}
                rows.append({**row, "revision": event["revision"], "title": None})
    return call.page(rows, lambda row: -row["seq"])


# ------------------------------------------------------------------ search
def words(value):
    return re.findall(r"\w+", value.lower())


def hits(docs, query):
    """Returns a hit for each document that holds a word of the query, the best one first."""
    sought, matches = set(words(query)), []
    for doc in docs:
        shared_words = sought & set(words(f"{doc['title']} {doc['text']}"))
        score = round(len(shared_words) / max(1, len(sought)), 6)
        source = {name: doc[name] for name in ("title", "type", "kb", "tags")}
        source |= {"document_id": doc["id"], "path": None, "page": None, "section": None}
        source |= {"chunk_index": 0, "total_chunks": 1, "cite": doc["title"]}
        hit = {"chunk_id": doc["id"], "score": score, "source": source, "text": doc["text"]}
        hit |= {"score_breakdown": {"fts": score, "vector": None}, "snippet": doc["text"][:240]}
        hit |= {name: doc.get(name) for name in ("confidence", "expires_at", "superseded_by")}
        matches += [hit] if shared_words else []
    return sorted(matches, key=lambda hit: (-hit["score"], hit["chunk_id"]))


def fresh(call):
    seq = call.meta["seq"]
    indexes = {"fulltext_seq": seq, "vector_seq": seq, "pending_embeddings": 0}
    call.meta["freshness"] = {"seq": seq, **indexes}


def holding(call, docs):
    """Returns the documents without entries that others have superseded or that have expired."""
    if not call.params.get("include_superseded"):
        docs = [doc for doc in docs if not doc.get("superseded_by")]
    expiries = [(doc, doc.get("expires_at")) for doc in docs]
    return [doc for doc, at in expiries if at is None or time_of(at) > datetime.now(UTC)]


@method("search")
def search(call):
    matches = hits(holding(call, filtered(call, documents(call))), call.query)
    some = matches[call.offset : call.offset + call.limit]
    fresh(call)
    call.meta |= {"count": len(some), "total": len(matches)}
    call.meta["has_more"] = call.offset + len(some) < len(matches)
    data = {"query": call.query, "results": some, "total_matches": len(matches)}
    confidence = "likely" if some else "none"
    return {**data, "total_is_exact": True, "returned": len(some), "confidence": confidence}


def entry(call, id, field="id"):
    row = call.get("doc", id, field)
    if row["type"] != "knowledge":
        raise Refusal("input.invalid_params", f"{id} is no entry.", field)
    return row


def told(call, row):
    head = row["id"]
    while (above := call.rows.tables["doc"][head]["superseded_by"]) is not None:
        head = above
    names = ("id", "kb", "title", "tags", "confidence", "expires_at", "created_at", "superseded_by")
    more = {"expired": False, "task_ref": None, "source": "user", "created_by": "user"}
    return {**{name: row[name] for name in names}, **more, "head": head}


@method("knowledge.store", "write")
def knowledge_store(call):
    call.get("kb", call.kb, "kb")
    until = call.expires_at
    if until is not None and time_of(until) <= datetime.now(UTC):
        raise Refusal("input.invalid_params", "That has passed.", "expires_at")
    id = call.id("doc")
    row = {"id": id, "type": "knowledge", "title": call.title, "text": call.body, "kb": call.kb}
    row |= {"tags": normal(call.tags), "confidence": call.confidence, "expires_at": until}
    row |= {"metadata": {}, "source": {"path": None, "url": None, "source_id": None}}
    row = call.put("doc.written", "doc", id, {**row, "superseded_by": None})
    call.rows.tables["doc"].setdefault(id, row)
    answer = told(call, row)
    del call.rows.tables["doc"][id]
    return answer


@method("knowledge.get")
def knowledge_get(call):
    row = entry(call, call.params["id"])
    below = [doc["id"] for doc in call.rows.all("doc") if doc.get("superseded_by") == row["id"]]
    return {**told(call, row), "body": row["text"], "supersedes": below}


@method("knowledge.list")
def knowledge_list(call):
    docs = [doc for doc in documents(call) if doc["type"] == "knowledge"]
    return [told(call, doc) for doc in call.page(holding(call, filtered(call, docs)))]


@method("knowledge.supersede", "write")
def knowledge_supersede(call):
    old, new = entry(call, call.old_id, "old_id"), entry(call, call.new_id, "new_id")
    if told(call, new)["head"] == told(call, old)["id"]:
        raise Refusal("knowledge.cycle", "The old one stands in the new one's place.", "new_id")
    if old["superseded_by"] not in (None, call.new_id):
        raise Refusal("resource.conflict", "Another one has its place.", "old_id")
    call.put("entry.superseded", "doc", call.old_id, old, superseded_by=call.new_id)
    return {"old_id": call.old_id, "new_id": call.new_id, "head": told(call, new)["head"]}


@method("knowledge.unsupersede", "write")
def knowledge_unsupersede(call):
    old = entry(call, call.old_id, "old_id")
    if old["superseded_by"] != call.new_id:
        raise Refusal("resource.conflict", "Another one has its place, or none.", "new_id")
    call.put("entry.revived", "doc", call.old_id, old, superseded_by=None)
    return {"old_id": call.old_id, "new_id": call.new_id, "head": call.old_id}


@method("knowledge.delete", "destructive")
def knowledge_delete(call):
    """Deletes entries; those whose place they had taken hold again."""
    deleted = delete_documents(call, "entry")
    heads = [id for id in call.ids if call.rows.tables["doc"][id]["superseded_by"] is None]
    below = [row for row in call.rows.all("doc") if row.get("superseded_by") in heads]
    for row in below:
        call.put("entry.revived", "doc", row["id"], row, superseded_by=None)
    return {**deleted, "revived": [row["id"] for row in below]}


# ------------------------------------------------------------------ agents
@method("agent.create", "write")
def agent_create(call):
    if any(row["slug"] == call.slug for row in call.rows.all("agent")):
        raise Refusal("resource.already_exists", "This slug is taken.", "slug")
    row = {"slug": call.slug, "description": call.description or "", "kbs": call.kbs}
    row |= {"scopes": call.scopes, "instructions": call.instructions or ""}
    return shown(call.put("agent.written", "agent", call.slug, row))


@method("agent.get")
def agent_get(call):
    return shown(call.get("agent", call.slug, "slug"))


@method("agent.list")
def agent_list(call):
    return [shown(row) for row in call.page(call.rows.all("agent"), lambda row: row["slug"])]


@method("agent.update", "write")
def agent_update(call):
    row = call.get("agent", call.slug, "slug")
    names = ("description", "kbs", "instructions")
    return shown(call.change("agent.written", "agent", call.slug, row, names))


@method("agent.delete", "destructive")
def agent_delete(call):
    row = call.get("agent", call.slug, "slug")
    call.remove("agent.deleted", "agent", call.slug, row, "agent")
    notes = [doc for doc in call.rows.all("doc") if doc["kb"] == f"notes/{call.slug}"]
    for note in notes:
        call.remove("doc.deleted", "doc", note["id"], note, "note")
    return {"slug": call.slug, "notes": len(notes)}


def notes_of(call):
    call.get("agent", call.agent, "agent")
    own = [doc for doc in call.rows.all("doc") if doc["kb"] == f"notes/{call.agent}"]
    return {note["slug"]: note for note in own}


def note(call):
    notes = notes_of(call)
    if call.slug not in notes:
        raise Refusal("resource.not_found", "There is no such note.", "slug")
    return notes[call.slug]


def brief(row):
    return shown(row, "kb", "text", "type", "created_at")


@method("note.put", "write")
def note_put(call):
    row = notes_of(call).get(call.slug)
    call.expect(row or {"revision": 0})
    heads = [line[2:].strip() for line in call.text.splitlines() if line.startswith("# ")]
    title = heads[0] if heads else call.slug.replace("-", " ").capitalize()
    id = row["id"] if row else call.id("doc")
    new = {"id": id, "slug": call.slug, "agent": call.agent, "kb": f"notes/{call.agent}"}
    new |= {"type": "note", "tags": [], "title": title, "text": call.text}
    return brief(call.put("doc.written", "doc", id, {**(row or {}), **new}))


@method("note.get")
def note_get(call):
    row = note(call)
    return {**brief(row), "text": row["text"], "updated_by": "user"}


@method("note.list")
def note_list(call):
    notes = notes_of(call).values()
    return [brief(row) for row in call.page(list(notes), lambda row: row["slug"])]


@method("note.search")
def note_search(call):
    notes = {row["id"]: brief(row) for row in notes_of(call).values()}
    matches = hits(notes_of(call).values(), call.query)[: call.limit]
    fresh(call)
    call.meta["count"] = len(matches)
    names = ("id", "slug", "title", "updated_at")
    return [
        {**{name: notes[hit["chunk_id"]][name] for name in names}, "section": None}
        | {"score": hit["score"], "snippet": hit["snippet"]}
        for hit in matches
    ]


@method("note.delete", "destructive")
def note_delete(call):
    row = note(call)
    call.remove("doc.deleted", "doc", row["id"], row, "note")
    return {"id": row["id"], "agent": call.agent, "slug": call.slug}


# ----------------------------------------------------------------- answers
def talk(call, row):
    messages = [one for one in call.rows.all("message") if one["session_id"] == row["id"]]
    return {**shown(row, "revision"), "message_count": len(messages)}, messages


def new_session(call, title):
    id = call.id("session")
    row = {"id": id, "title": title, "kb": None, "agent": None, "created_by": "user"}
    return call.put("session.created", "session", id, row)


@method("session.create", "write")
def session_create(call):
    return talk(call, new_session(call, call.title or "Untitled"))[0]


@method("session.list")
def session_list(call):
    return [talk(call, row)[0] for row in call.page(call.rows.all("session"))]


@method("session.get")
def session_get(call):
    row, messages = talk(call, call.get("session", call.session_id, "session_id"))
    names = ("question", "status", "text", "references", "asked_at", "asked_by", "ended_at")
    more = {"hint": None, "failure": None}
    shown_messages = [
        {**{name: one[name] for name in names}, "message_id": one["id"], **more} for one in messages
    ]
    return {**row, "messages": shown_messages}


@method("session.delete", "destructive")
def session_delete(call):
    for id in call.session_ids:
        row = call.get("session", id, "session_ids")
        call.remove("session.deleted", "session", id, row, "session")
    return {"deleted": len(call.session_ids), "ids": call.session_ids}


@method("session.ask", "write")
def session_ask(call):
    call.get("session", call.session_id, "session_id")
    return asked(call, call.session_id, [])


@method("chat", "write")
def chat(call):
    return asked(call, new_session(call, call.question)["id"], call.kb)


def asked(call, session_id, kb):
    """Answers with the best document's first sentence; the events are kept for every resume."""
    names = [kb] if isinstance(kb, str) else kb
    docs = [doc for doc in documents(call) if not names or doc["kb"] in names]
    matches = hits(holding(call, docs), call.question)[:8]
    names = {"chunk_id": "chunk_id", "score": "score"}
    references = [
        {**{name: hit[name] for name in names}, "n": n, "cite": hit["source"]["cite"]}
        | {"document_id": hit["source"]["document_id"]}
        for n, hit in enumerate(matches, 1)
    ]
    text = matches[0]["text"].split("\n")[0] + " [1]" if matches else "I don't know."
    id, time = call.id("message"), now()
    row = {"id": id, "session_id": session_id, "question": call.question, "text": text}
    row |= {"status": "finished" if matches else "refused", "references": references}
    row |= {"asked_at": time, "asked_by": "user", "ended_at": time}
    row = call.put("question.asked", "message", id, row)
    call.stream = [begin(row)] if call.dry_run else [begin(row), *events(row)]
    return ended(row)


def begin(row):
    return {"type": "init", "session_id": row["session_id"], "message_id": row["id"]}


def ended(row):
    data = {"session_id": row["session_id"], "message_id": row["id"]}
    return {**data, **{name: row[name] for name in ("status", "text", "references")}}


def events(row):
    """Returns an answer's events, each with a cursor: the message and the place among them."""
    pieces = [{"type": "references", "references": row["references"]}]
    pieces += [{"type": "answer", "delta": piece} for piece in re.findall(r"\S+\s*", row["text"])]
    pieces += [{"type": "answer", "status": row["status"]}]
    return [
        {**piece, "message_id": row["id"], "cursor": cursor(row["id"], place)}
        for place, piece in enumerate(pieces)
    ]


def cursor(id, place):
    return base64.b64encode(f"{id}.{place}".encode()).decode()


@method("session.resume")
def session_resume(call):
    row = call.get("message", call.message_id, "message_id")
    if row["session_id"] != call.session_id:
        raise Refusal("resource.not_found", "It is of another session.", "message_id")
    call.get("session", call.session_id, "session_id")
    pieces, after = events(row), call.after
    places = [piece["cursor"] for piece in pieces]
    if after is not None and after not in places:
        is_cursor = re.fullmatch(r"\d+\.\d+", base64.b64decode(after + "==").decode("latin-1"))
        problem = "resource.conflict" if is_cursor else "input.invalid_params"
        raise Refusal(problem, "This cursor is not of this answer.", "after")
    call.stream = [begin(row), *pieces[0 if after is None else places.index(after) + 1 :]]
    return ended(row)


if __name__ == "__main__":
    sys.exit(main())
