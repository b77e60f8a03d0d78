"""A server of kbproc's wire in Python's standard library: `python server.py STORE`.

It has the methods of the part `core`; wire.py has what they share, and more.py adds other parts.
"""

import sys

from wire import PARTS, Refusal, main, method

PARTS.append("core")


def normal(tags):
    return [tag.lower().replace(" ", "-") for tag in tags or []]


def shown(row, *without):
    return {name: row[name] for name in row if name not in ("deleted", *without)}


def filtered(call, docs):
    """Returns the documents that the filters let through."""
    names = [call.kb] if isinstance(call.kb, str) else call.kb
    for name in names or []:
        call.get("kb", name, "kb")
    sought = normal(call.params.get("tags"))
    enough = any if call.params.get("tags_mode") == "any" else all
    docs = [doc for doc in docs if not names or doc["kb"] in names]
    docs = [doc for doc in docs if not sought or enough(tag in doc["tags"] for tag in sought)]
    return [doc for doc in docs if doc["type"] in (call.params.get("types") or [doc["type"]])]


def documents(call):
    return [row for row in call.rows.all("doc") if not row["kb"].startswith("notes/")]


# ----------------------------------------------------------- knowledge bases
@method("ping")
def ping(call):
    return {"seq": call.store.seq()}


@method("version")
def version(call):
    return {"protocol": "1.0", "schema": 1}


@method("kb.create", "write")
def kb_create(call):
    if any(row["slug"] == call.slug for row in call.rows.all("kb")):
        raise Refusal("resource.already_exists", "This slug is sources.", "slug")
    row = {"slug": call.slug, "name": call.name or call.slug, "description": call.description}
    return shown(call.put("kb.created", "kb", call.slug, row))


@method("kb.get")
def kb_get(call):
    return shown(call.get("kb", call.slug, "slug"))


@method("kb.list")
def kb_list(call):
    return [shown(row) for row in call.page(call.rows.all("kb"), lambda row: row["slug"])]


@method("kb.update", "write")
def kb_update(call):
    row = call.get("kb", call.slug, "slug")
    return shown(call.change("kb.updated", "kb", call.slug, row, ("name", "description")))


@method("kb.delete", "destructive")
def kb_delete(call):
    row = call.get("kb", call.slug, "slug")
    if call.slug == "default":
        raise Refusal("input.invalid_params", "default stays.", "slug")
    call.remove("kb.deleted", "kb", call.slug, row, "kb")
    own = [doc for doc in call.rows.all("doc") if doc["kb"] == call.slug]
    for doc in own:
        call.remove("doc.deleted", "doc", doc["id"], doc, "document")
    return {"slug": call.slug, "documents": len(own)}


# ---------------------------------------------------------------- documents
@method("doc.create", "write")
def doc_create(call):
    if call.documents is None:
        return shown(added(call, call.params), "text")
    documents, failures = [], call.failures
    for index, one in enumerate(call.documents):
        try:
            row = added(call, {**one, "kb": one["kb"] or call.kb})
            row = {name: row[name] for name in ("id", "kb", "title")}
            documents.append({"index": index, **row})
        except Refusal as refusal:
            data = refusal.error["data"]
            field = data["field"].replace("$.params", f"$.params.documents[{index}]")
            failure = {name: data[name] for name in ("type", "message", "hint")}
            failures.append({"index": index, **failure, "field": field})
    counts = {"added": len(documents), "failed": len(failures), "chunks": len(documents)}
    return {**counts, "documents": documents, "failures": failures}


def added(call, one):
    call.get("kb", one["kb"], "kb")
    for name in ("title", "text"):
        if not (one[name] or "").strip():
            raise Refusal("input.invalid_params", f"{name} is blank.", name)
    source = one["source_id"]
    sources = [row["source"]["source_id"] for row in documents(call) if row["kb"] == one["kb"]]
    if source is not None and source in sources:
        raise Refusal("resource.already_exists", "This source_id is sources.", "source_id")
    id, row = call.id("doc"), {name: one[name] for name in ("kb", "title", "text", "type")}
    row |= {"tags": normal(one["tags"]), "metadata": one["metadata"] or {}}
    row |= {"source": {"path": None, "url": None, "source_id": source}}
    return call.put("doc.written", "doc", id, {"id": id, **row})


@method("doc.get")
def doc_get(call):
    row = call.get("doc", call.params["id"], "id")
    if not call.text:
        return {**shown(row), "text": None, "text_length": None}
    end = call.offset + call.length
    call.meta["has_more"] = end < len(row["text"])
    return {**shown(row), "text": row["text"][call.offset : end], "text_length": len(row["text"])}


@method("doc.list")
def doc_list(call):
    docs = filtered(call, documents(call))
    part, source = (call.title_contains or "").lower(), call.source_id
    docs = [doc for doc in docs if part in doc["title"].lower()]
    docs = [doc for doc in docs if source in (None, doc["source"]["source_id"])]
    return [shown(doc, "text") for doc in call.page(docs)]


@method("doc.update", "write")
def doc_update(call):
    row = call.get("doc", call.params["id"], "id")
    if row["type"] not in ("code", "html", "markdown", "text"):
        raise Refusal("input.invalid_params", "It is no document.", "id")
    call.params["tags"] = call.tags and normal(call.tags)
    names = ("title", "text", "tags", "metadata")
    event = "doc.changed" if call.text is None else "doc.written"
    return shown(call.change(event, "doc", call.params["id"], row, names), "text")


@method("doc.delete", "destructive")
def doc_delete(call, kind="document"):
    if not call.ids:
        raise Refusal("input.invalid_params", "ids is required.", "")
    for id in call.ids:
        row = call.get("doc", id, "ids")
        if (row["type"] == "knowledge") != (kind == "entry"):
            raise Refusal("input.invalid_params", f"{id} is no {kind}.", "ids")
        call.remove("doc.deleted", "doc", id, row, kind)
    return {"deleted": len(call.ids), "ids": call.ids}


@method("doc.restore", "write")
def doc_restore(call):
    restored, unchanged = [], []
    for id in call.ids:
        row = call.rows.tables["doc"].get(id) or call.get("doc", id, "ids")
        if not row["deleted"]:
            unchanged.append(id)
            continue
        call.get("kb", row["kb"], "ids")
        restored.append(shown(call.put("doc.written", "doc", id, row, deleted=False), "text"))
    return {"restored": len(restored), "documents": restored, "unchanged": unchanged}


@method("tag.list")
def tag_list(call):
    names = [tag for doc in filtered(call, documents(call)) for tag in doc["tags"]]
    counts = [{"name": name, "count": names.count(name)} for name in set(names)]
    return call.page(counts, lambda row: row["name"])


# ----------------------------------------------------------------- the log
@method("events.subscribe", "wait")
def events_subscribe(call):
    """Returns the records after `after_seq` that the filters let through, and goes on there."""
    after = call.store.seq() if call.after_seq is None else call.after_seq
    call.params["after_seq"] = max(after, call.store.seq())
    return [one for one in (seen(record, call) for record in call.store.records[after:]) if one]


def seen(record, call):
    """Returns the record as a reader sees it; None if the filters hide it."""
    is_narrow = call.types is not None or call.document_id is not None
    events = [one for one in record["events"] if one["type"] in (call.types or [one["type"]])]
    events = [one for one in events if call.document_id in (None, one["document_id"])]
    if call.actor not in (None, record["actor"]) or (is_narrow and not events):
        return None
    return {**{name: record[name] for name in ("seq", "ts", "actor", "method", "token")}} | {
        "events": events
    }


if __name__ == "__main__":
    sys.exit(main())
