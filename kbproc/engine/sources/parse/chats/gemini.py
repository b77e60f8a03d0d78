"""Session logs of Gemini CLI: ~/.gemini/tmp/PROJECT/chats/session-….json, or .jsonl since 0.3x."""

from __future__ import annotations

import re

import msgspec

from kbproc.engine.sources.parse.chats.turns import (
    ChatTranscript,
    Json,
    json_lines,
    object_of,
    objects,
    word,
)

CLIENT = "gemini-cli"
_HEAD = re.compile(rb'\s*\{\s*"sessionId"\s*:\s*"[^"]{1,100}"\s*,\s*"projectHash"\s*:')


def recognises(head: bytes) -> bool:
    return bool(_HEAD.match(head))


def read(data: bytes) -> list[ChatTranscript]:
    talk = ChatTranscript(client=CLIENT)
    try:
        session = object_of(data)
        messages = objects(session.get("messages"))
    except (msgspec.DecodeError, UnicodeDecodeError):
        session, messages = _replayed(data, talk)
    talk.id, talk.title = word(session, "sessionId"), word(session, "summary")
    directories = session.get("directories")
    if isinstance(directories, list) and directories:
        talk.project = str(directories[0])
    if word(session, "kind") == "subagent":
        return [talk]
    for message in messages:
        _add(talk, message)
    return [talk]


def _replayed(data: bytes, talk: ChatTranscript) -> tuple[Json, list[Json]]:
    """Returns the session and its messages after the records that change or rewind them."""
    session: Json = {}
    messages: dict[str, Json] = {}
    for record in json_lines(data, talk.unread):
        if isinstance(change := record.get("$set"), dict):
            session |= change
            if isinstance(change.get("messages"), list):
                messages = {word(each, "id"): each for each in objects(change["messages"])}
        elif "$rewindTo" in record:
            ids = list(messages)
            at = ids.index(record["$rewindTo"]) if record["$rewindTo"] in ids else 0
            talk.unread["other_branches"] += sum(
                messages[id].get("type") in ("user", "gemini") for id in ids[at:]
            )
            messages = {id: messages[id] for id in ids[:at]}
        elif "projectHash" in record:
            session |= record
        elif id := word(record, "id"):
            messages[id] = record
    return session, list(messages.values())


def _add(talk: ChatTranscript, message: Json) -> None:
    at, kind = message.get("timestamp"), message.get("type")
    if kind == "user":
        talk.say("user", message.get("displayContent") or message.get("content"), at=at)
    if kind != "gemini":
        return
    talk.model = word(message, "model") or talk.model
    talk.unread["thoughts"] += len(objects(message.get("thoughts")))
    talk.say("assistant", message.get("content"), at=at)
    for call in objects(message.get("toolCalls")):
        name, when = word(call, "name"), call.get("timestamp") or at
        talk.call(name, call.get("args"), at=when)
        display = call.get("resultDisplay")
        output = display if isinstance(display, str) else _output(talk, call.get("result"))
        talk.add("result", output, at=when, name=name)


def _output(talk: ChatTranscript, result: object) -> str:
    """Returns the output of a tool, from the parts of its response."""
    texts = []
    for part in objects(result):
        response = part.get("functionResponse")
        output = response.get("response") if isinstance(response, dict) else None
        text = word(output, "output", "error") if isinstance(output, dict) else ""
        texts.append(text or talk.text_of([part]))
    return "\n".join(filter(None, texts))
