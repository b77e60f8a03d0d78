"""Exports of ChatGPT: conversations.json, a list of conversations, each a tree of messages.

Other programs export a file for each conversation, which is one such tree.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kbproc.engine.sources.parse.chats.turns import (
    ChatTranscript,
    Json,
    in_brackets,
    is_picture,
    members,
    objects,
    records_of,
    word,
)

CLIENT = "chatgpt"
_HEAD = re.compile(
    rb'\s*+(?:\[\s*+)?\{(?=.{0,3000}"mapping"\s*:\s*\{)(?=.{0,3000}"create_time"\s*:)', re.S
)
# Marks of the client for what a text cites, in characters for private use.
_MARK = re.compile(
    "\\ue200[^\\ue200\\ue201]{0,1000}\\ue201"
    "|\\u3010[^\\u3010\\u3011\\u2020]{1,100}\\u2020[^\\u3010\\u3011]{0,100}\\u3011"
)
_CONTEXT = ("user_editable_context", "model_editable_context")


def recognises(head: bytes) -> bool:
    return bool(_HEAD.match(head))


def read(data: bytes) -> list[ChatTranscript]:
    return [_conversation(each) for each in records_of(data)]


def _conversation(record: Json) -> ChatTranscript:
    talk = ChatTranscript(
        client=CLIENT,
        id=word(record, "conversation_id", "id"),
        title=word(record, "title"),
        project=word(record, "gizmo_id", "conversation_template_id") or None,
        model=word(record, "default_model_slug") or None,
    )
    mapping = members(record, "mapping")
    branch = list(_branch(mapping, word(record, "current_node")))
    for message in branch:
        _add(talk, message)
    message_count = sum(1 for node in mapping.values() if _is_said(members(node, "message")))
    talk.unread["other_branches"] += message_count - sum(map(_is_said, branch))
    return talk


def _branch(mapping: Json, leaf: str) -> Iterator[Json]:
    """Yields the messages from the root to the node that was shown last."""
    path: list[Json] = []
    visited_nodes: set[str] = set()
    leaf = leaf or next(reversed(mapping), "")
    while leaf and leaf not in visited_nodes:
        visited_nodes.add(leaf)
        node = members(mapping, leaf)
        path.append(members(node, "message"))
        leaf = word(node, "parent")
    yield from reversed(path)


def _is_said(message: Json) -> bool:
    role = members(message, "author").get("role")
    hidden = members(message, "metadata").get("is_visually_hidden_from_conversation")
    kind = members(message, "content").get("content_type")
    return role in ("user", "assistant", "tool") and not hidden and kind not in _CONTEXT


def _add(talk: ChatTranscript, message: Json) -> None:
    if not _is_said(message):
        return
    author, content = members(message, "author"), members(message, "content")
    at = message.get("create_time")
    talk.model = word(members(message, "metadata"), "model_slug") or talk.model
    kind, role = content.get("content_type"), author.get("role")
    if kind in ("thoughts", "reasoning_recap"):
        talk.unread["thoughts"] += 1
        return
    text = _with_pages(_text(talk, content), members(message, "metadata"))
    names = _file_names(talk, members(message, "metadata"))
    text = "\n".join(filter(None, (text, *names)))
    if role == "user":
        talk.add("user", text, at=at)
    elif role == "tool":
        talk.add("result", text, at=at, name=word(author, "name"))
    elif message.get("recipient") not in (None, "all"):
        talk.add("call", text, at=at, name=word(message, "recipient"))
    else:
        talk.add("assistant", text, at=at)


def _with_pages(text: str, metadata: Json) -> str:
    """Returns a text with the titles of the pages that it cites, in place of the client's marks."""
    by_mark: dict[str, list[str]] = {}
    pages: dict[str, None] = {}
    for reference in objects(metadata.get("content_references")):
        cited = _pages(reference)
        by_mark[word(reference, "matched_text")] = cited
        pages.update(dict.fromkeys(cited))
    for citation in objects(metadata.get("citations")):
        if page := _page(members(citation, "metadata")):
            pages[page] = None

    def in_place(mark: re.Match[str]) -> str:
        cited = by_mark.get(mark[0], [])
        for page in cited:
            pages.pop(page, None)
        return f" ({'; '.join(cited)})" if cited else ""

    return "\n".join([_MARK.sub(in_place, text), *pages])


def _pages(reference: Json) -> list[str]:
    """Returns the pages of a reference, each once."""
    items = [reference, *objects(reference.get("items")), *objects(reference.get("sources"))]
    items += [page for item in items for page in objects(item.get("supporting_websites"))]
    return list(dict.fromkeys(filter(None, map(_page, items))))


def _page(record: Json) -> str:
    """Returns a page's title and address, a file's name, or ""."""
    title, address = word(record, "title", "name"), word(record, "url")
    return f"{title} ({address})" if title and address else title


def _file_names(talk: ChatTranscript, metadata: Json) -> list[str]:
    """Returns the names of uploaded files; pictures are counted by their places in the text."""
    names = []
    for file in objects(metadata.get("attachments")):
        name, mime = word(file, "name"), word(file, "mime_type", "mimeType")
        names.append(in_brackets(name, mime) if is_picture(mime) else talk.file_name(name, mime))
    return names


def _text(talk: ChatTranscript, content: Json) -> str:
    texts = [word(content, "text", "result")]
    if "url" in content or "domain" in content:  # a page that a tool quotes
        texts.insert(0, _page(content))
    parts = content.get("parts")
    for part in parts if isinstance(parts, list) else []:
        if isinstance(part, str):
            texts.append(part)
        elif "asset_pointer" in members(part):
            is_picture = "image" in word(part, "content_type")
            talk.unread["pictures" if is_picture else "attachments"] += 1
        else:
            texts.append(word(members(part), "text"))
    return "\n\n".join(filter(None, texts))
